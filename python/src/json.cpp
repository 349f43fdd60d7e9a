// JSON <-> Python objects.
#include "bindings.h"

namespace gemloupe {
inline namespace v0 {

py::object to_python(const json& value) {
  switch (value.type()) {
    case json::value_t::boolean:
      return py::bool_(value.get<bool>());
    case json::value_t::number_integer:
      return py::int_(value.get<int64_t>());
    case json::value_t::number_unsigned:
      return py::int_(value.get<uint64_t>());
    case json::value_t::number_float:
      return py::float_(value.get<double>());
    case json::value_t::string:
      return py::str(value.get_ref<const std::string&>());
    case json::value_t::array: {
      py::list list;
      for (const json& item : value) list.append(to_python(item));
      return list;
    }
    case json::value_t::object: {
      py::dict dict;
      for (const auto& [key, item] : value.items()) dict[py::str(key)] = to_python(item);
      return dict;
    }
    default:
      return py::none();
  }
}

json from_python(const py::handle& value) {
  if (value.is_none()) return nullptr;
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::str>(value)) return utf8_of(py::cast<py::str>(value));
  if (py::isinstance<py::dict>(value)) {
    json out = json::object();
    for (auto [key, item] : py::cast<py::dict>(value)) out[utf8_of(py::str(key))] = from_python(item);
    return out;
  }
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    json out = json::array();
    for (py::handle item : value) out.push_back(from_python(item));
    return out;
  }
  return utf8_of(py::str(value));
}

}  // namespace v0
}  // namespace gemloupe
