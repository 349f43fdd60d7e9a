#include <algorithm>

#include "gemloupe/text/jinja/builtins.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {
namespace jinja {

namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments);

const std::string& text_argument(const Arguments& arguments, size_t place, const char* name) {
  const Value* value = arguments.get(place, name);
  if (value == nullptr || !value->string()) throw Problem{std::string("expected a str as ") + name};
  return *value->string();
}

bool has_affix(const Value& self, const Arguments& arguments, bool prefix) {
  const Value* affix = arguments.get(0, "prefix");
  const List any = affix && affix->list() ? *affix->list() : List{text_argument(arguments, 0, "prefix")};
  return std::any_of(any.begin(), any.end(), [&](const Value& one) {
    return one.string() &&
           (prefix ? self.string()->starts_with(*one.string()) : self.string()->ends_with(*one.string()));
  });
}

List split_at_space(std::string_view text, int64_t most) {
  List parts;
  while (!(text = text.substr(text.size() - strip(text, nullptr, true, false).size())).empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(strip(text, nullptr, false, true));
      break;
    }
    size_t end = 0;
    for (CodePoint c; end < text.size() && !is_python_space((c = code_point_at(text, end)).value);) end += c.bytes;
    parts.push_back(std::string(text.substr(0, end)));
    text.remove_prefix(end);
  }
  return parts;
}

Value split(const Value& self, const Arguments& arguments) {
  const Value* separator = arguments.get(0, "sep");
  const Value* limit = arguments.get(1, "maxsplit");
  const int64_t most = limit ? limit->integer("maxsplit") : -1;
  const std::string& text = *self.string();
  if (separator == nullptr || separator->none()) return split_at_space(text, most);
  const std::string& at = text_argument(arguments, 0, "sep");
  if (at.empty()) throw Problem{"split() at an empty str"};
  List parts;
  size_t begin = 0;
  for (size_t end; (most < 0 || static_cast<int64_t>(parts.size()) < most) && (end = text.find(at, begin)) != text.npos;
       begin = end + at.size()) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

Value split_lines(const Value& self, const Arguments&) {
  List lines;
  const std::string& text = *self.string();
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    size_t stop = std::min(text.find_first_of("\n\r", begin), text.size());
    end = std::min(stop + 1, text.size());
    if (text.compare(stop, 2, "\r\n") == 0) ++end;
    lines.push_back(text.substr(begin, stop - begin));
  }
  return lines;
}

Value capitalized(std::string_view text, bool every_word) {
  std::string out;
  bool first = true;
  for (const auto c : characters(text)) {
    out += with_case(c, first);
    const bool letter = with_case(c, true) != with_case(c, false) || static_cast<uint8_t>(c[0]) >= 0x80;
    first = every_word && !letter;
  }
  return out;
}

Value key_value_pairs(const Value& self, const Arguments&) {
  List pairs;
  for (const auto& [key, value] : *self.members()) pairs.push_back(List{key, value});
  return pairs;
}

const std::pair<std::string_view, Method> text_methods[] = {
    {"strip",
     [](const Value& s, const Arguments& a) { return Value(strip(*s.string(), a.get(0, "chars"), true, true)); }},
    {"lstrip",
     [](const Value& s, const Arguments& a) { return Value(strip(*s.string(), a.get(0, "chars"), true, false)); }},
    {"rstrip",
     [](const Value& s, const Arguments& a) { return Value(strip(*s.string(), a.get(0, "chars"), false, true)); }},
    {"startswith", [](const Value& s, const Arguments& a) { return Value(has_affix(s, a, true)); }},
    {"endswith", [](const Value& s, const Arguments& a) { return Value(has_affix(s, a, false)); }},
    {"upper", [](const Value& s, const Arguments&) { return Value(with_case(*s.string(), true)); }},
    {"lower", [](const Value& s, const Arguments&) { return Value(with_case(*s.string(), false)); }},
    {"title", [](const Value& s, const Arguments&) { return capitalized(*s.string(), true); }},
    {"capitalize", [](const Value& s, const Arguments&) { return capitalized(*s.string(), false); }},
    {"split", split},
    {"splitlines", split_lines},
    {"replace", [](const Value& s, const Arguments& a) { return apply_filter("replace", s, a); }},
    {"join",
     [](const Value& s, const Arguments& a) {
       const Value* elements = a.get(0, "iterable");
       return apply_filter("join", elements ? *elements : Value(None{}), {{s}, {}});
     }},
    {"find",
     [](const Value& s, const Arguments& a) {
       const size_t at = s.string()->find(text_argument(a, 0, "sub"));
       return Value(at == std::string::npos ? int64_t{-1}
                                            : static_cast<int64_t>(characters(s.string()->substr(0, at)).size()));
     }},
    {"isdigit",
     [](const Value& s, const Arguments&) {
       return Value(!s.string()->empty() && s.string()->find_first_not_of("0123456789") == std::string::npos);
     }},
};

const std::pair<std::string_view, Method> dict_methods[] = {
    {"items", key_value_pairs},
    {"keys", [](const Value& s, const Arguments&) { return Value(s.iterate()); }},
    {"values",
     [](const Value& s, const Arguments&) {
       List values;
       for (const auto& member : *s.members()) values.push_back(member.second);
       return Value(values);
     }},
    {"get",
     [](const Value& s, const Arguments& a) {
       const Value* value = find(*s.members(), text_argument(a, 0, "key"));
       const Value* otherwise = a.get(1, "default");
       return value ? *value : otherwise ? *otherwise : Value(None{});
     }},
    {"copy", [](const Value& s, const Arguments&) { return s; }},
};

template <size_t count>
Value bound(const std::pair<std::string_view, Method> (&methods)[count], const Value& self, const std::string& name) {
  for (const auto& [known, method] : methods) {
    if (known == name)
      return Function([self, call = method](const Arguments& arguments) { return call(self, arguments); });
  }
  return Undefined{name};
}

Value method(const Value& self, const std::string& name) {
  if (self.string()) return bound(text_methods, self, name);
  if (self.members()) return bound(dict_methods, self, name);
  return Undefined{name};
}

}  // namespace

Value attribute(const Value& value, const std::string& name) {
  if (value.undefined())
    throw Problem{"'" + value.as<Undefined>()->name + "' is undefined, so it has no '" + name + "'"};
  const Members* members = value.name_space() ? &value.name_space()->members : value.members();
  if (value.members()) {
    if (Value found = method(value, name); !found.undefined()) return found;
  }
  if (members == nullptr) return method(value, name);
  const Value* member = find(*members, name);
  return member ? *member : Undefined{name};
}

Value item(const Value& value, const Value& index) {
  if (index.string() && !value.undefined()) {
    const Members* members = value.name_space() ? &value.name_space()->members : value.members();
    const Value* member = members ? find(*members, *index.string()) : nullptr;
    return member ? *member : method(value, *index.string());
  }
  if (value.undefined()) throw Problem{"'" + value.as<Undefined>()->name + "' is undefined, so it has no items"};
  if ((!value.list() && !value.string()) || !index.number() || index.as<double>()) return Undefined{index.text()};
  const int64_t size = static_cast<int64_t>(value.length()), at = index.integer(""),
                from_start = at < 0 ? at + size : at;
  if (from_start < 0 || from_start >= size) return Undefined{index.text()};
  return value.list() ? (*value.list())[from_start] : Value(std::string(characters(*value.string())[from_start]));
}

}  // namespace jinja
}  // namespace v0
}  // namespace gemloupe
