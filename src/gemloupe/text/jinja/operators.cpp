#include <algorithm>
#include <cmath>
#include <ctime>

#include "gemloupe/base/errors.h"
#include "gemloupe/text/jinja/builtins.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

namespace {

constexpr int64_t longest_range = 100'000;  // as in Jinja's sandbox

[[noreturn]] void fail(const std::string& op, const Value& a, const Value& b) {
  throw Problem{"'" + op + "' of " + a.type() + " and " + b.type()};
}

int64_t floor_divide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Value integer_arithmetic(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    result = 1;
    for (; b > 0 && !overflow && (result != 0 || a != 0) && !(a == 1); --b)
      overflow = __builtin_mul_overflow(result, a, &result);
  } else {
    if (b == 0) throw Problem{"a division by zero"};
    overflow = a == INT64_MIN && b == -1;
    if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (!overflow) result = op == "//" ? floor_divide(a, b) : a - floor_divide(a, b) * b;
  }
  if (overflow) throw Problem{"an integer of more than 64 bits"};
  return result;
}

Value real_arithmetic(const std::string& op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) throw Problem{"a division by zero"};
  if (op == "/") return a / b;
  return op == "//" ? std::floor(a / b) : a - std::floor(a / b) * b;
}

Value repeated(const Value& value, int64_t count) {
  if (count <= 0) return value.string() ? Value("") : Value(List{});
  if (static_cast<size_t>(count) > Value::most_bytes / (value.bytes() + 1))
    throw Problem{"a repetition that is too long"};
  std::string text;
  List list;
  for (; count > 0; --count) {
    if (value.string()) {
      text += *value.string();
    } else {
      list.insert(list.end(), value.list()->begin(), value.list()->end());
    }
  }
  return value.string() ? Value(std::move(text)) : Value(std::move(list));
}

Value raise_exception(const Arguments& arguments) {
  const Value* message = arguments.get(0, "message");
  throw BadPrompt("the checkpoint's chat template refuses these messages: " +
                  (message ? message->text() : "it does not say why"));
}

Value make_namespace(const Arguments& arguments) {
  auto result = std::make_shared<Namespace>();
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].members()) throw Problem{"namespace() of something that is no dict"};
    result->members = *arguments.positional[0].members();
  }
  for (const auto& [name, value] : arguments.named) result->members.emplace_back(name, value);
  for (const auto& [name, value] : result->members) {
    if (name.starts_with('_')) throw Problem{"a namespace's attribute that begins with '_'"};
    (void)Value(List{value});  // no function and no other namespace
  }
  return result;
}

Value make_range(const Arguments& arguments) {
  const List& given = arguments.positional;
  if (given.empty() || given.size() > 3) throw Problem{"range() takes one to three ints"};
  const int64_t begin = given.size() > 1 ? given[0].integer("range()") : 0;
  const int64_t end = given[given.size() > 1].integer("range()");
  const int64_t step = given.size() > 2 ? given[2].integer("range()") : 1;
  if (step == 0) throw Problem{"range() with a step of 0"};
  List list;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (list.size() == longest_range) throw Problem{"a range of more than " + std::to_string(longest_range)};
    list.push_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return list;
}

Value make_dict(const Arguments& arguments) {
  Members members = !arguments.positional.empty() && arguments.positional[0].members()
                        ? *arguments.positional[0].members()
                        : Members{};
  members.insert(members.end(), arguments.named.begin(), arguments.named.end());
  return members;
}

Value time_now(const Arguments& arguments) {
  const Value* format = arguments.get(0, "format");
  if (format == nullptr || !format->string()) throw Problem{"strftime_now() takes a format"};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[512];
  return std::string(buffer, std::strftime(buffer, sizeof buffer, format->string()->c_str(), &local));
}

}  // namespace

Value arithmetic(const std::string& op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->undefined() && op != "~") throw Problem{"'" + value->as<Undefined>()->name + "' is undefined"};
  }
  if (op == "~" || (op == "+" && a.string() && b.string())) {
    std::string text = a.text() + b.text();
    if (text.size() > Value::most_bytes) throw Problem{"a text that is too long"};
    return text;
  }
  if (a.number() && b.number()) {
    return a.as<double>() || b.as<double>() ? real_arithmetic(op, a.real(), b.real())
                                            : integer_arithmetic(op, a.integer(""), b.integer(""));
  }
  if (op == "+" && a.list() && b.list()) {
    List list = *a.list();
    list.insert(list.end(), b.list()->begin(), b.list()->end());
    return list;
  }
  if (op == "*" && (a.string() || a.list()) && b.number() && !b.as<double>()) return repeated(a, b.integer(""));
  if (op == "*" && (b.string() || b.list()) && a.number() && !a.as<double>()) return repeated(b, a.integer(""));
  fail(op, a, b);
}

Value slice(const Value& value, const Value& begin, const Value& end, const Value& step) {
  const int64_t stride = step.none() ? 1 : step.integer("a slice's step");
  if (stride == 0) throw Problem{"a slice with a step of 0"};
  if (!value.string() && !value.list()) throw Problem{std::string("a slice of ") + value.type()};
  const List all = value.iterate();
  const int64_t size = static_cast<int64_t>(all.size()), low = stride > 0 ? 0 : -1, high = stride > 0 ? size : size - 1;
  auto bound = [&](const Value& given, int64_t otherwise) {
    if (given.none()) return otherwise;
    const int64_t at = given.integer("a slice's bound");
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  const int64_t from = bound(begin, stride > 0 ? low : high), to = bound(end, stride > 0 ? high : low);
  List list;
  std::string text;
  for (int64_t i = from; stride > 0 ? i < to : i > to;) {
    if (value.string()) {
      text += *all[i].string();
    } else {
      list.push_back(all[i]);
    }
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  return value.string() ? Value(std::move(text)) : Value(std::move(list));
}

Members globals() {
  return {{"raise_exception", Function(raise_exception)},
          {"namespace", Function(make_namespace)},
          {"range", Function(make_range)},
          {"dict", Function(make_dict)},
          {"strftime_now", Function(time_now)}};
}

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
