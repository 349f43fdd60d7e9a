// Python strings as UTF-8.
#include "bindings.h"
#include "gemloupe/text/utf8.h"

namespace gemloupe {
inline namespace v0 {

std::string utf8_of(const py::str& text) {
  if (PyObject* bytes = PyUnicode_AsUTF8String(text.ptr())) return py::reinterpret_steal<py::bytes>(bytes);
  PyErr_Clear();
  std::string out;
  for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text.ptr()); ++i) {
    const char32_t point = PyUnicode_READ_CHAR(text.ptr(), i);
    append_utf8(out, point >= 0xD800 && point < 0xE000 ? 0xFFFD : point);
  }
  return out;
}

}  // namespace v0
}  // namespace gemloupe
