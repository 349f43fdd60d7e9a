#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "gemloupe/text/jinja/builtins.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

namespace {

using Filter = Value (*)(const Value& input, const Arguments& arguments);
using Test = bool (*)(const Value& input, const Arguments& arguments);

Value argument(const Arguments& arguments, size_t place, const char* name, Value otherwise) {
  const Value* given = arguments.get(place, name);
  return given ? *given : std::move(otherwise);
}

std::string text_argument(const Arguments& arguments, size_t place, const char* name, const char* otherwise) {
  const Value value = argument(arguments, place, name, otherwise);
  if (!value.string()) throw Problem{std::string("expected a str as ") + name + ", found " + value.type()};
  return *value.string();
}

void check_length(const std::string& text) {
  if (text.size() > Value::most_bytes) throw Problem{"a text that is too long"};
}

/// "a.b.0": members and items one after another.
Value path(const Value& value, const Value& name) {
  if (!name.string()) return item(value, name);
  const std::string& text = *name.string();
  const size_t dot = text.find('.');
  const std::string first = text.substr(0, dot);
  const bool is_index = !first.empty() && first.size() < 10 && first.find_first_not_of("0123456789") == first.npos;
  const Value found = is_index ? item(value, static_cast<int64_t>(std::stoll(first))) : item(value, first);
  return dot == text.npos ? found : path(found, text.substr(dot + 1));
}

Arguments without_first(const Arguments& arguments, size_t count) {
  const auto begin = arguments.positional.begin() + std::min(count, arguments.positional.size());
  return {List(begin, arguments.positional.end()), arguments.named};
}

// --- texts ---

Value trim(const Value& input, const Arguments& arguments) {
  return strip(input.text(), arguments.get(0, "chars"), true, true);
}

Value replace(const Value& input, const Arguments& arguments) {
  const std::string text = input.text(), old = text_argument(arguments, 0, "old", ""),
                    fresh = text_argument(arguments, 1, "new", "");
  const Value limit = argument(arguments, 2, "count", None{});
  int64_t left = limit.none() || limit.integer("count") < 0 ? INT64_MAX : limit.integer("count");
  std::string out;
  size_t done = 0;
  for (size_t at; left > 0 && (at = text.find(old, done)) != text.npos; --left) {
    out.append(text, done, at - done).append(fresh);
    check_length(out);
    done = at + old.size();
    if (!old.empty()) continue;
    if (at == text.size()) return out;  // "" is found before each character and at the end
    const uint32_t bytes = code_point_at(text, at).bytes;
    out.append(text, at, bytes);
    done += bytes;
  }
  return out.append(text, done);
}

Value join(const Value& input, const Arguments& arguments) {
  const std::string separator = text_argument(arguments, 0, "d", "");
  const Value* name = arguments.get(1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& element : input.iterate()) {
    if (!std::exchange(first, false)) out += separator;
    out += (name ? path(element, *name) : element).text();
    check_length(out);
  }
  return out;
}

/// Unlike the method: a word begins after a space, a hyphen or an opening bracket only.
Value title(const Value& input, const Arguments&) {
  const std::string text = input.text();
  std::string out;
  bool first = true;
  for (const auto c : characters(text)) {
    out += with_case(c, first);
    first = is_python_space(code_point_at(c, 0).value) || std::string_view("-({[<").find(c) != std::string_view::npos;
  }
  return out;
}

Value indent(const Value& input, const Arguments& arguments) {
  const Value width = argument(arguments, 0, "width", int64_t{4});
  const bool first = argument(arguments, 1, "first", false).truth(),
             blank = argument(arguments, 2, "blank", false).truth();
  const std::string space = width.string() ? *width.string() : *arithmetic("*", " ", width).string();
  const std::string text = input.text();
  std::string out = first ? space : "";
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\n' && (blank || (i + 1 < text.size() && text[i + 1] != '\n'))) out += space;
    check_length(out);
  }
  return out;
}

Value to_json(const Value& input, const Arguments& arguments) {
  if (argument(arguments, 0, "ensure_ascii", false).truth())
    throw Problem{"tojson(ensure_ascii=true) is not implemented"};
  const Value indent_by = argument(arguments, 1, "indent", None{}),
              separators = argument(arguments, 2, "separators", None{});
  const int64_t width = indent_by.none() ? -1 : indent_by.integer("indent");
  if (width > 64) throw Problem{"tojson with an indent of more than 64"};
  std::string between = width < 0 ? ", " : ",", after_key = ": ";
  if (separators.list() && separators.length() == 2)
    between = (*separators.list())[0].text(), after_key = (*separators.list())[1].text();
  return dump(input, width, argument(arguments, 3, "sort_keys", false).truth(), between, after_key);
}

// --- numbers ---

std::optional<double> parsed(const Value& input) {
  if (input.number()) return input.real();
  const std::string text = input.string() ? strip(*input.string(), nullptr, true, true) : "";
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

Value to_int(const Value& input, const Arguments& arguments) {
  if (input.as<int64_t>()) return input;
  const auto value = parsed(input);
  if (!value || !(std::fabs(*value) < 9e18)) return argument(arguments, 0, "default", int64_t{0});
  return static_cast<int64_t>(*value);
}

Value to_float(const Value& input, const Arguments& arguments) {
  const auto value = parsed(input);
  return value ? Value(*value) : argument(arguments, 0, "default", 0.0);
}

Value absolute(const Value& input, const Arguments&) {
  return input.truth() && less(input, int64_t{0}) ? arithmetic("-", int64_t{0}, input) : input;
}

Value rounded(const Value& input, const Arguments& arguments) {
  if (!input.number()) throw Problem{std::string("round of ") + input.type()};
  const int64_t digits = argument(arguments, 0, "precision", int64_t{0}).integer("precision");
  if (text_argument(arguments, 1, "method", "common") != "common")
    throw Problem{"round with a method is not implemented"};
  const double scale = std::pow(10.0, static_cast<double>(digits));
  return std::nearbyint(input.real() * scale) / scale;
}

// --- lists and dicts ---

Value first(const Value& input, const Arguments&) {
  const List all = input.iterate();
  return all.empty() ? Value(Undefined{"first"}) : all.front();
}

Value last(const Value& input, const Arguments&) {
  const List all = input.iterate();
  return all.empty() ? Value(Undefined{"last"}) : all.back();
}

Value items(const Value& input, const Arguments&) {
  if (input.undefined()) return List{};
  if (!input.members()) throw Problem{std::string("items of ") + input.type()};
  return (*attribute(input, "items").function())({});
}

/// Sorted by a key, letters of both cases alike unless asked for otherwise.
template <typename Key>
List sorted(List all, bool case_sensitive, bool reverse, Key key) {
  const auto fold = [&](const Value& v) {
    return !case_sensitive && v.string() ? Value(with_case(*v.string(), false)) : v;
  };
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& element : all) keyed.emplace_back(fold(key(element)), element);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  for (size_t i = 0; i < all.size(); ++i) all[i] = keyed[i].second;
  return all;
}

Value dictsort(const Value& input, const Arguments& arguments) {
  const std::string by = text_argument(arguments, 1, "by", "key");
  if (by != "key" && by != "value") throw Problem{"dictsort by '" + by + "'"};
  return sorted(*items(input, {}).list(), argument(arguments, 0, "case_sensitive", false).truth(),
                argument(arguments, 2, "reverse", false).truth(),
                [&](const Value& pair) { return (*pair.list())[by == "value"]; });
}

Value sort(const Value& input, const Arguments& arguments) {
  const Value* name = arguments.get(2, "attribute");
  return sorted(input.iterate(), argument(arguments, 1, "case_sensitive", false).truth(),
                argument(arguments, 0, "reverse", false).truth(),
                [&](const Value& element) { return name ? path(element, *name) : element; });
}

Value reverse(const Value& input, const Arguments&) {
  List all = input.iterate();
  std::reverse(all.begin(), all.end());
  if (!input.string()) return all;
  return join(all, {});
}

Value unique(const Value& input, const Arguments&) {
  List out, seen;
  for (const Value& element : input.iterate()) {
    const Value folded = element.string() ? Value(with_case(*element.string(), false)) : element;
    if (contains(seen, folded)) continue;
    seen.push_back(folded);
    out.push_back(element);
  }
  return out;
}

Value extreme(const Value& input, bool largest) {
  const List all = sorted(input.iterate(), false, largest, [](const Value& element) { return element; });
  return all.empty() ? Value(Undefined{"the extreme of nothing"}) : all.front();
}

Value sum(const Value& input, const Arguments& arguments) {
  const Value* name = arguments.get(0, "attribute");
  Value total = argument(arguments, 1, "start", int64_t{0});
  for (const Value& element : input.iterate())
    total = arithmetic("+", total, name && !name->none() ? path(element, *name) : element);
  return total;
}

Value map(const Value& input, const Arguments& arguments) {
  List out;
  const Value* name = find(arguments.named, "attribute");
  const Value otherwise = argument(arguments, SIZE_MAX, "default", {});
  for (const Value& element : input.iterate()) {
    if (name != nullptr) {
      const Value found = path(element, *name);
      out.push_back(found.undefined() ? otherwise : found);
    } else {
      out.push_back(apply_filter(text_argument(arguments, 0, "filter", ""), element, without_first(arguments, 1)));
    }
  }
  return out;
}

Value select(const Value& input, const Arguments& arguments, bool wanted, bool by_attribute) {
  List out;
  const Value* name = by_attribute ? arguments.get(0, "attr") : nullptr;
  if (by_attribute && name == nullptr) throw Problem{"selectattr and rejectattr take an attribute's name"};
  const Arguments rest = without_first(arguments, by_attribute);
  for (const Value& element : input.iterate()) {
    const Value value = name ? path(element, *name) : element;
    const bool holds = rest.positional.empty()
                           ? value.truth()
                           : apply_test(text_argument(rest, 0, "test", ""), value, without_first(rest, 1));
    if (holds == wanted) out.push_back(element);
  }
  return out;
}

Value otherwise(const Value& input, const Arguments& arguments) {
  const bool replaced = input.undefined() || (argument(arguments, 1, "boolean", false).truth() && !input.truth());
  return replaced ? argument(arguments, 0, "default_value", "") : input;
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all = {
      {"abs", absolute},
      {"capitalize",
       [](const Value& v, const Arguments&) { return (*attribute(v.text(), "capitalize").function())({}); }},
      {"count", [](const Value& v, const Arguments&) { return Value(static_cast<int64_t>(v.length())); }},
      {"d", otherwise},
      {"default", otherwise},
      {"dictsort", dictsort},
      {"first", first},
      {"float", to_float},
      {"indent", indent},
      {"int", to_int},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", [](const Value& v, const Arguments&) { return Value(static_cast<int64_t>(v.length())); }},
      {"list", [](const Value& v, const Arguments&) { return Value(v.iterate()); }},
      {"lower", [](const Value& v, const Arguments&) { return Value(with_case(v.text(), false)); }},
      {"map", map},
      {"max", [](const Value& v, const Arguments&) { return extreme(v, true); }},
      {"min", [](const Value& v, const Arguments&) { return extreme(v, false); }},
      {"reject", [](const Value& v, const Arguments& a) { return select(v, a, false, false); }},
      {"rejectattr", [](const Value& v, const Arguments& a) { return select(v, a, false, true); }},
      {"replace", replace},
      {"reverse", reverse},
      {"round", rounded},
      {"safe", [](const Value& v, const Arguments&) { return v; }},
      {"select", [](const Value& v, const Arguments& a) { return select(v, a, true, false); }},
      {"selectattr", [](const Value& v, const Arguments& a) { return select(v, a, true, true); }},
      {"sort", sort},
      {"string", [](const Value& v, const Arguments&) { return Value(v.text()); }},
      {"sum", sum},
      {"title", title},
      {"tojson", to_json},
      {"trim", trim},
      {"unique", unique},
      {"upper", [](const Value& v, const Arguments&) { return Value(with_case(v.text(), true)); }},
  };
  return all;
}

// --- tests ---

const Value& other(const Arguments& arguments) {
  if (arguments.positional.size() != 1) throw Problem{"this test takes one argument"};
  return arguments.positional[0];
}

/// Letters of one case only, and at least one.
bool is_cased(const std::string& text, bool upper) {
  return with_case(text, upper) == text && with_case(text, !upper) != text;
}

bool remainder_is(const Value& value, int64_t divisor, int64_t wanted) {
  return equal(arithmetic("%", value, divisor), wanted);
}

const std::map<std::string, Test>& tests() {
  const auto equals = [](const Value& v, const Arguments& a) { return equal(v, other(a)); };
  const auto differs = [](const Value& v, const Arguments& a) { return !equal(v, other(a)); };
  const auto is_less = [](const Value& v, const Arguments& a) { return less(v, other(a)); };
  const auto is_greater = [](const Value& v, const Arguments& a) { return less(other(a), v); };
  static const std::map<std::string, Test> all = {
      {"==", equals},
      {"boolean", [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr; }},
      {"callable", [](const Value& v, const Arguments&) { return v.function() != nullptr; }},
      {"defined", [](const Value& v, const Arguments&) { return !v.undefined(); }},
      {"divisibleby",
       [](const Value& v, const Arguments& a) { return remainder_is(v, other(a).integer("divisibleby"), 0); }},
      {"eq", equals},
      {"equalto", equals},
      {"even", [](const Value& v, const Arguments&) { return remainder_is(v, 2, 0); }},
      {"false", [](const Value& v, const Arguments&) { return v.as<bool>() && !v.truth(); }},
      {"float", [](const Value& v, const Arguments&) { return v.as<double>() != nullptr; }},
      {"ge", [](const Value& v, const Arguments& a) { return !less(v, other(a)); }},
      {"greaterthan", is_greater},
      {"gt", is_greater},
      {"in", [](const Value& v, const Arguments& a) { return contains(other(a), v); }},
      {"integer", [](const Value& v, const Arguments&) { return v.as<int64_t>() != nullptr; }},
      {"iterable",
       [](const Value& v, const Arguments&) { return v.list() || v.members() || v.string() || v.undefined(); }},
      {"le", [](const Value& v, const Arguments& a) { return !less(other(a), v); }},
      {"lessthan", is_less},
      {"lower", [](const Value& v, const Arguments&) { return is_cased(v.text(), false); }},
      {"lt", is_less},
      {"mapping", [](const Value& v, const Arguments&) { return v.members() != nullptr; }},
      {"ne", differs},
      {"none", [](const Value& v, const Arguments&) { return v.none(); }},
      {"number", [](const Value& v, const Arguments&) { return v.number(); }},
      {"odd", [](const Value& v, const Arguments&) { return remainder_is(v, 2, 1); }},
      {"sequence",
       [](const Value& v, const Arguments&) { return v.list() || v.members() || v.string() || v.undefined(); }},
      {"string", [](const Value& v, const Arguments&) { return v.string() != nullptr; }},
      {"true", [](const Value& v, const Arguments&) { return v.as<bool>() && v.truth(); }},
      {"undefined", [](const Value& v, const Arguments&) { return v.undefined(); }},
      {"upper", [](const Value& v, const Arguments&) { return is_cased(v.text(), true); }},
  };
  return all;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) throw Problem{"the filter '" + name + "' is not implemented"};
  return found->second(input, arguments);
}

bool apply_test(const std::string& name, const Value& input, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) throw Problem{"the test '" + name + "' is not implemented"};
  return found->second(input, arguments);
}

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
