// Jinja templates, as far as chat templates go.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gemloupe/store/checkpoint.h"
#include "gemloupe/text/jinja/parser.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

class Template {
 public:
  /// Errors: BadTokenizer with the line, for what is broken or not implemented.
  explicit Template(std::string_view source);

  /// `variables` is an object. Errors: BadTokenizer with the line, for what goes wrong and for a template that does not
  /// come to an end; BadPrompt where the template calls raise_exception.
  std::string render(const json& variables) const;

 private:
  Block block_;
};

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
