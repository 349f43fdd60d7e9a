// An error's slug finds its Python class, which gemloupe.errors registers.
#include "gemloupe/base/errors.h"

#include "bindings.h"
#include "gemloupe/base/interrupt.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// Never freed: translators may run while the interpreter shuts down.
py::dict& classes() {
  static auto* dict = new py::dict();
  return *dict;
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    py::str slug{std::string(error.slug())};
    py::object type =
        classes().contains(slug) ? py::object(classes()[slug]) : py::reinterpret_borrow<py::object>(PyExc_RuntimeError);
    PyErr_SetString(type.ptr(), error.what());
  }
}

}  // namespace

void bind_errors(py::module_& m) {
  m.def("set_error_classes", [](py::dict by_slug) { classes() = std::move(by_slug); });
  py::register_exception_translator(translate);
  set_interrupt_poll([] {
    py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  });
}

}  // namespace v0
}  // namespace gemloupe
