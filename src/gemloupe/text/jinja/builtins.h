// Jinja's filters and tests and Python's methods, those that chat templates use.
#pragma once

#include <string>

#include "gemloupe/text/jinja/value.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

/// Errors: Problem, for a name that is not implemented too.
Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments);
bool apply_test(const std::string& name, const Value& input, const Arguments& arguments);

/// value.name: a method or a member; undefined where there is none.
Value attribute(const Value& value, const std::string& name);

/// value[index]
Value item(const Value& value, const Value& index);

/// value[begin:end:step], bounds that are none left out.
Value slice(const Value& value, const Value& begin, const Value& end, const Value& step);

/// The operators + - * / // % ** and ~.
Value arithmetic(const std::string& op, const Value& a, const Value& b);

/// What every template can name: namespace, range, dict, raise_exception, strftime_now.
Members globals();

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
