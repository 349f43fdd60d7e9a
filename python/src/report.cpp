// Renderings of the plan: print(model) and support().
#include "bindings.h"
#include "gemloupe/family/released.h"
#include "gemloupe/model.h"
#include "gemloupe/report/document.h"
#include "gemloupe/report/printout.h"
#include "gemloupe/report/support.h"

namespace gemloupe {
inline namespace v0 {

void bind_report(py::module_& m) {
  py::class_<Document>(m, "Document", "A page that can be rendered as text, HTML or JSON.")
      .def_readonly("title", &Document::title)
      .def(
          "to_text", [](const Document& d, size_t width) { return to_text(d, width); }, py::arg("width") = 100)
      .def("to_html", [](const Document& d) { return to_html(d); })
      .def("to_json", [](const Document& d) { return to_python(to_json(d)); })
      .def("_repr_html_", [](const Document& d) { return to_html_fragment(d); })
      .def("__repr__", [](const Document& d) { return to_text(d); });
  m.def("released", [] {
    py::list out;
    for (const Released& one : released()) out.append(py::make_tuple(one.name, one.hub_ids, to_python(one.config)));
    return out;
  });
  m.def("printout", [](const Model& model) { return printout(model.plan()); });
  m.def("support", [](const Model& model) { return support(model.plan()); });
}

}  // namespace v0
}  // namespace gemloupe
