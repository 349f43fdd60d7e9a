// The values of a chat template: Python's, as far as templates use them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

/// What is wrong with a template or with what it was given; the interpreter adds the line.
struct Problem {
  std::string message;
};

class Value;
using List = std::vector<Value>;
using Members = std::vector<std::pair<std::string, Value>>;  // in order, as in Python

struct Arguments {
  List positional;
  Members named;

  /// The argument at a place or of a name; null where it was left out.
  const Value* get(size_t place, std::string_view name) const;
};
using Function = std::function<Value(const Arguments&)>;

struct None {};
struct Undefined {
  std::string name;  // for messages
};
/// namespace(…): the one thing that a template can write to from inside a loop.
struct Namespace {
  Members members;
};

class Value {
 public:
  using Variant =
      std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<const List>,
                   std::shared_ptr<const Members>, std::shared_ptr<Namespace>, std::shared_ptr<const Function>>;

  /// What a template can build is bounded: all that it says counts, were it written out, and how deep it goes.
  static constexpr size_t most_bytes = size_t{1} << 24;
  static constexpr int deepest = 100;

  Value() : data_(Undefined{}) {}
  template <typename T>
  Value(T data) : data_(std::move(data)) {}  // NOLINT(google-explicit-constructor): values are made of many things
  Value(const char* text) : data_(std::string(text)) {}
  Value(List list);        ///< Errors: Problem for more than the bounds, or for a function or a namespace inside, which
  Value(Members members);  ///< thereby never outlives what it refers to
  Value(Function function) : data_(std::make_shared<const Function>(std::move(function))) {}

  static Value from_json(const json& value, int depth = 0);

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  const std::string* string() const { return as<std::string>(); }
  const List* list() const { return pointed<const List>(); }
  const Members* members() const { return pointed<const Members>(); }
  Namespace* name_space() const { return pointed<Namespace>(); }
  const Function* function() const { return pointed<const Function>(); }
  bool undefined() const { return as<Undefined>() != nullptr; }
  bool none() const { return as<None>() != nullptr; }
  bool number() const { return as<bool>() || as<int64_t>() || as<double>(); }
  double real() const;                      ///< of a number
  int64_t integer(const char* what) const;  ///< of an int or a bool; `what` is for the message otherwise

  bool truth() const;
  const char* type() const;  ///< Python's name of the type
  std::string text() const;  ///< str(value)
  std::string repr() const;  ///< repr(value)
  List iterate() const;      ///< list(value): elements, keys or characters
  size_t length() const;
  size_t bytes() const { return string() ? string()->size() : bytes_; }

 private:
  void count(const Value& element);

  template <typename T>
  T* pointed() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer ? pointer->get() : nullptr;
  }
  Variant data_;
  size_t bytes_ = 8;  // about what it takes to write it out
  int depth_ = 0;
};

const Value* find(const Members& members, std::string_view name);

bool equal(const Value& a, const Value& b);
bool less(const Value& a, const Value& b);
bool contains(const Value& container, const Value& element);

/// json.dumps(value, ensure_ascii=False); `indent` below 0: on one line.
std::string dump(const Value& value, int64_t indent, bool sort_keys, std::string_view item_separator,
                 std::string_view key_separator);

/// A text's code points as Python counts them, and its slice of them.
std::vector<std::string_view> characters(std::string_view text);
bool is_python_space(char32_t value);
std::string strip(std::string_view text, const Value* characters, bool left, bool right);

/// Upper or lower case, character by character.
std::string with_case(std::string_view text, bool upper);

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
