// JSON read in one pass, without a tree: what makes a tokenizer.json of 33 MB load in a tenth of a second.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

/// A cursor over JSON text. Each call takes the value that comes next; what is not as expected is a BadTokenizer that
/// names the file, the line and what was expected. `text` must outlive the reader.
class JsonReader {
 public:
  JsonReader(std::string_view text, std::string file);

  /// Calls `member(key)` for each member of an object; it must take the value. The key is valid until it takes a
  /// string.
  template <typename Member>
  void object(Member member) {
    open('{', "an object");
    for (bool first = true; more('}', first); first = false) {
      std::string scratch;
      const std::string_view key = string(scratch);
      expect(':', "':' after a key");
      member(key);
    }
  }

  /// Calls `element()` for each element of an array; it must take the value.
  template <typename Element>
  void array(Element element) {
    open('[', "an array");
    for (bool first = true; more(']', first); first = false) element();
  }

  /// A string: a view of the file, or of `scratch` where it has escapes.
  std::string_view string(std::string& scratch);
  std::string string();
  int64_t integer();
  bool boolean();
  bool null();  ///< takes a null if one comes next
  bool next_is(char first);

  std::string_view skip();  ///< any value, as the text it is
  json tree();              ///< any value, as a tree: for small ones
  void end();               ///< nothing but white space is left

  [[noreturn]] void fail(const std::string& expected) const;

 private:
  void skip_space();
  void open(char bracket, const char* expected);
  void expect(char c, const char* expected);
  bool more(char closing, bool first);
  void skip_string();
  void unescape(std::string& to);
  char32_t hex4();

  std::string_view text_;
  std::string file_;
  const char* at_;
  const char* end_;
};

}  // namespace v0
}  // namespace gemloupe
