#include "gemloupe/text/jinja/value.h"

#include <wctype.h>

#include <algorithm>
#include <charconv>
#include <clocale>
#include <cmath>

#include "gemloupe/store/printable.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

namespace {

/// repr() of a float: the shortest digits that read back as the same, with an exponent where Python writes one.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::fabs(value);
  const auto format =
      value == 0 || (size >= 1e-4 && size < 1e16) ? std::chars_format::fixed : std::chars_format::scientific;
  char buffer[64];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr);
  return format == std::chars_format::fixed && text.find('.') == text.npos ? text + ".0" : text;
}

std::string escaped(std::string_view text, bool python) {
  const char quote = python && text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : python ? '\'' : '"';
  std::string out(1, quote);
  for (const char c : text) {
    static constexpr char digits[] = "0123456789abcdef";
    const size_t name = std::string_view(python ? "\n\r\t" : "\n\r\t\b\f").find(c);
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (name != std::string_view::npos) {
      out += {'\\', "nrtbf"[name]};
    } else if (static_cast<uint8_t>(c) < 0x20 || (python && c == 0x7F)) {
      out += (python ? "\\x" : "\\u00") + std::string{digits[c >> 4], digits[c & 15]};
    } else {
      out += c;
    }
  }
  return out += quote;
}

template <typename Sequence, typename Print>
std::string listed(const Sequence& sequence, const char* open, const char* close, Print print) {
  std::string out = open;
  for (const auto& element : sequence) out += (out.size() > 1 ? ", " : "") + print(element);
  return out + close;
}

}  // namespace

const Value* Arguments::get(size_t place, std::string_view name) const {
  return place < positional.size() ? &positional[place] : find(named, name);
}

const Value* find(const Members& members, std::string_view name) {
  const auto at =
      std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == name; });
  return at == members.end() ? nullptr : &at->second;
}

Value::Value(List list) {
  for (const Value& element : list) count(element);
  data_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Members members) {
  for (const auto& [key, member] : members) count(key), count(member);
  data_ = std::make_shared<const Members>(std::move(members));
}

void Value::count(const Value& element) {
  if (element.function() || element.name_space())
    throw Problem{std::string(element.type()) + " inside a list, a dict or a namespace is not implemented"};
  bytes_ += element.bytes() + 8;
  depth_ = std::max(depth_, element.depth_ + 1);
  if (bytes_ > most_bytes || depth_ > deepest) throw Problem{"a list or a dict that is too large or nested too deeply"};
}

Value Value::from_json(const json& value, int depth) {
  if (depth > deepest) throw Problem{"messages or options that are nested too deeply"};
  switch (value.type()) {
    case json::value_t::boolean:
      return value.get<bool>();
    case json::value_t::number_integer:
      return value.get<int64_t>();
    case json::value_t::number_unsigned:
      return value.get<uint64_t>() <= INT64_MAX ? Value(value.get<int64_t>()) : Value(value.get<double>());
    case json::value_t::number_float:
      return value.get<double>();
    case json::value_t::string:
      return value.get<std::string>();
    case json::value_t::array: {
      List list;
      for (const json& element : value) list.push_back(from_json(element, depth + 1));
      return list;
    }
    case json::value_t::object: {
      Members members;
      for (const auto& [key, member] : value.items()) members.emplace_back(key, from_json(member, depth + 1));
      return members;
    }
    default:
      return None{};
  }
}

double Value::real() const {
  if (const bool* value = as<bool>()) return *value;
  if (const int64_t* value = as<int64_t>()) return static_cast<double>(*value);
  return *as<double>();
}

int64_t Value::integer(const char* what) const {
  if (const bool* value = as<bool>()) return *value;
  if (const int64_t* value = as<int64_t>()) return *value;
  throw Problem{std::string(what) + ": expected an int, found " + type()};
}

bool Value::truth() const {
  if (undefined() || none()) return false;
  if (number()) return real() != 0;
  return string() || list() || members() ? length() > 0 : true;
}

const char* Value::type() const {
  static constexpr const char* names[] = {
      "an undefined value", "None", "bool", "int", "float", "str", "list", "dict", "namespace", "a function"};
  return names[data_.index()];
}

std::string Value::text() const {
  return string() ? *string() : undefined() ? "" : repr();
}

std::string Value::repr() const {
  if (const bool* value = as<bool>()) return *value ? "True" : "False";
  if (const int64_t* value = as<int64_t>()) return std::to_string(*value);
  if (const double* value = as<double>()) return float_text(*value);
  if (string()) return escaped(*string(), true);
  if (list()) return listed(*list(), "[", "]", [](const Value& element) { return element.repr(); });
  if (members()) {
    return listed(*members(), "{", "}", [](const auto& m) { return escaped(m.first, true) + ": " + m.second.repr(); });
  }
  if (none()) return "None";
  if (undefined()) return "Undefined";
  throw Problem{std::string("cannot write ") + type() + " as text"};
}

List Value::iterate() const {
  List out;
  if (list()) return *list();
  if (members()) {
    for (const auto& member : *members()) out.push_back(member.first);
  } else if (string()) {
    for (const auto character : characters(*string())) out.push_back(std::string(character));
  } else if (!undefined()) {
    throw Problem{std::string(type()) + " cannot be iterated over"};
  }
  return out;
}

size_t Value::length() const {
  if (string()) return characters(*string()).size();
  if (list()) return list()->size();
  if (members()) return members()->size();
  if (undefined()) return 0;
  throw Problem{std::string(type()) + " has no length"};
}

bool equal(const Value& a, const Value& b) {
  if (a.number() && b.number())
    return a.as<double>() || b.as<double>() ? a.real() == b.real() : a.integer("") == b.integer("");
  if (a.string() && b.string()) return *a.string() == *b.string();
  if (a.list() && b.list())
    return std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(), equal);
  if (a.members() && b.members()) {
    return a.length() == b.length() && std::all_of(a.members()->begin(), a.members()->end(), [&](const auto& member) {
             const Value* other = find(*b.members(), member.first);
             return other != nullptr && equal(member.second, *other);
           });
  }
  if (a.name_space()) return a.name_space() == b.name_space();
  return (a.none() && b.none()) || (a.undefined() && b.undefined());
}

bool less(const Value& a, const Value& b) {
  if (a.number() && b.number())
    return a.as<double>() || b.as<double>() ? a.real() < b.real() : a.integer("") < b.integer("");
  if (a.string() && b.string()) return *a.string() < *b.string();  // code points order as their bytes in UTF-8
  if (a.list() && b.list()) {
    return std::lexicographical_compare(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(), less);
  }
  throw Problem{std::string("cannot order ") + a.type() + " and " + b.type()};
}

bool contains(const Value& container, const Value& element) {
  if (container.string()) {
    if (!element.string()) throw Problem{std::string("expected a str to look for in a str, found ") + element.type()};
    return container.string()->find(*element.string()) != std::string::npos;
  }
  if (container.members()) return element.string() && find(*container.members(), *element.string());
  const List elements = container.iterate();
  return std::any_of(elements.begin(), elements.end(), [&](const Value& other) { return equal(other, element); });
}

std::string dump(const Value& value, int64_t indent, bool sort_keys, std::string_view item_separator,
                 std::string_view key_separator) {
  std::function<void(const Value&, size_t, std::string&)> write = [&](const Value& v, size_t depth, std::string& out) {
    auto begin_line = [&](size_t level) {
      if (indent >= 0) out.append("\n").append(level * indent, ' ');
    };
    auto all = [&](const auto& elements, char open, char close, auto print) {
      out += open;
      bool first = true;
      for (const auto& element : elements) {
        if (!std::exchange(first, false)) out += item_separator;
        begin_line(depth + 1);
        print(element);
      }
      if (!first) begin_line(depth);
      out += close;
    };
    if (v.list()) {
      all(*v.list(), '[', ']', [&](const Value& element) { write(element, depth + 1, out); });
    } else if (v.members()) {
      Members sorted = *v.members();
      if (sort_keys)
        std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      all(sorted, '{', '}', [&](const auto& member) {
        out.append(escaped(member.first, false)).append(key_separator);
        write(member.second, depth + 1, out);
      });
    } else if (v.string()) {
      out += escaped(*v.string(), false);
    } else if (const double* real = v.as<double>(); real != nullptr && !std::isfinite(*real)) {
      out += std::isnan(*real) ? "NaN" : *real < 0 ? "-Infinity" : "Infinity";
    } else if (v.none() || v.as<bool>()) {
      out += v.none() ? "null" : *v.as<bool>() ? "true" : "false";
    } else if (v.number()) {
      out += v.repr();
    } else {
      throw Problem{std::string("tojson cannot write ") + v.type()};
    }
  };
  std::string out;
  write(value, 0, out);
  return out;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < text.size(); at += out.back().size())
    out.push_back(text.substr(at, code_point_at(text, at).bytes));
  return out;
}

bool is_python_space(char32_t value) {
  return is_space(value) || (value >= 0x1C && value <= 0x1F);
}

std::string strip(std::string_view text, const Value* which, bool left, bool right) {
  const bool spaces = which == nullptr || which->none();
  if (!spaces && !which->string()) throw Problem{"expected the characters to strip as a str"};
  const auto chosen = spaces ? std::vector<std::string_view>{} : characters(*which->string());
  const auto goes = [&](std::string_view c) {
    if (spaces) return is_python_space(code_point_at(c, 0).value);
    return std::find(chosen.begin(), chosen.end(), c) != chosen.end();
  };
  while (left && !text.empty()) {
    const size_t bytes = code_point_at(text, 0).bytes;
    if (!goes(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!goes(text.substr(begin))) break;
    text.remove_suffix(text.size() - begin);
  }
  return std::string(text);
}

std::string with_case(std::string_view text, bool upper) {
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const auto wide = static_cast<wint_t>(point.value);
    if (!point.valid || utf8 == nullptr) {
      out.append(text, at, point.bytes);
    } else {
      append_utf8(out, upper ? towupper_l(wide, utf8) : towlower_l(wide, utf8));
    }
    at += point.bytes;
  }
  return out;
}

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
