#include "gemloupe/run/trace.h"

#include "bindings.h"
#include "gemloupe/model.h"

namespace gemloupe {
inline namespace v0 {

namespace {

/// Whether a tensor has been written since; shares its version counter, not its memory.
struct VersionWatch {
  explicit VersionWatch(const at::Tensor& tensor)
      : counter(tensor.unsafeGetTensorImpl()->version_counter()), seen(counter.current_version()) {}
  bool written() const { return counter.current_version() != seen; }
  c10::VariableVersion counter;
  uint32_t seen;
};

/// The snapshots of one trace, with the version each had when it was taken. A watch outlives its tensor: what was
/// written and dropped is found, too.
class Snapshots {
 public:
  /// `held`: somebody in Python still has the tensor, and could write into it. `name` is what it was read as.
  at::Tensor take(Trace& trace, at::Tensor tensor, bool held, std::string name) {
    py::gil_scoped_release unlocked;
    at::Tensor taken = held ? tensor.clone() : trace.snapshot(std::move(tensor));
    taken_.emplace_back(VersionWatch(taken), std::move(name));
    return taken;
  }
  /// Ends the trace, and gives the name of a snapshot that was written in it.
  std::optional<std::string> end(Trace& trace) const {
    trace.finish();
    for (const auto& [watch, name] : taken_)
      if (watch.written()) return name;
    return std::nullopt;
  }

 private:
  std::vector<std::pair<VersionWatch, std::string>> taken_;
};

}  // namespace

void bind_trace(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<Prompt>(m, "Prompt")
      .def(py::init([](at::Tensor ids, std::optional<at::Tensor> mask, std::optional<at::Tensor> positions) {
             return Prompt{std::move(ids), std::move(mask), std::move(positions)};
           }),
           py::arg("ids"), py::arg("attention_mask") = py::none(), py::arg("position_ids") = py::none())
      .def_readonly("ids", &Prompt::ids)
      .def_readonly("attention_mask", &Prompt::attention_mask)
      .def_readonly("position_ids", &Prompt::position_ids);
  m.def("prompt_of", &prompt_of, py::arg("rows"), py::arg("pad"));

  py::class_<Snapshots>(m, "Snapshots").def(py::init<>()).def("take", &Snapshots::take).def("end", &Snapshots::end);

  py::class_<Trace>(m, "Trace")
      .def("read", py::overload_cast<RowId>(&Trace::read), Unlocked())
      .def("write", py::overload_cast<RowId, const at::Tensor&>(&Trace::write), Unlocked())
      .def("rows_are_lazy", &Trace::rows_are_lazy)
      .def("head_input", &Trace::head_input, Unlocked())
      .def("apply_head", &Trace::apply_head, Unlocked())
      .def("at", &Trace::at)
      .def("finish", &Trace::finish)
      .def_property_readonly("finished", &Trace::finished)
      .def_property_readonly("input_size", &Trace::input_size);
}

}  // namespace v0
}  // namespace gemloupe
