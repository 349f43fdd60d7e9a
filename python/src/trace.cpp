#include "gemloupe/run/trace.h"

#include <c10/core/InferenceMode.h>

#include "bindings.h"
#include "gemloupe/model.h"

namespace gemloupe {
inline namespace v0 {

namespace {

/// Runs make ordinary tensors also inside torch.inference_mode(): snapshots need their version counters.
struct NormalMode {
  c10::InferenceMode normal{false};
};

/// Whether a tensor has been written since; shares its version counter, not its memory.
struct VersionWatch {
  explicit VersionWatch(const at::Tensor& tensor)
      : counter(tensor.unsafeGetTensorImpl()->version_counter()), seen(counter.current_version()) {}
  bool written() const { return counter.current_version() != seen; }
  c10::VariableVersion counter;
  uint32_t seen;
};

/// A trace with its snapshots, and the version each had when it was taken. A watch outlives its tensor: what was
/// written and dropped is found, too. One object: each that Python makes and each call that it makes is part of a
/// trace's cost.
class PythonTrace : public Trace {
 public:
  explicit PythonTrace(Trace&& trace) : Trace(std::move(trace)) {}

  /// What the head reads, None where rows are not lazy.
  at::Tensor lazy_rows_input(RowId row) { return rows_are_lazy(row) ? head_input(row) : at::Tensor(); }

  /// `held`: somebody in Python still has the tensor, and could write into it. `name` is what it was read as.
  at::Tensor save(at::Tensor tensor, bool held, std::string name) {
    at::Tensor taken = held || tensor.is_inference() ? tensor.clone() : snapshot(std::move(tensor));
    taken_.emplace_back(VersionWatch(taken), std::move(name));
    return taken;
  }
  /// Ends the trace, and gives the name of a snapshot that was written in it.
  std::optional<std::string> end() {
    finish();
    for (const auto& [watch, name] : taken_)
      if (watch.written()) return name;
    return std::nullopt;
  }

 private:
  std::vector<std::pair<VersionWatch, std::string>> taken_;
};

}  // namespace

Action action_of(py::function function) {
  auto held = std::shared_ptr<py::function>(new py::function(std::move(function)), [](py::function* dead) {
    py::gil_scoped_acquire gil;
    delete dead;
  });
  return [held](at::Tensor value) {
    py::gil_scoped_acquire gil;
    py::object result = (*held)(std::move(value));
    return result.is_none() ? at::Tensor() : result.cast<at::Tensor>();
  };
}

void bind_trace(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release, NormalMode>;
  py::class_<Prompt>(m, "Prompt")
      .def(py::init([](at::Tensor ids, std::optional<at::Tensor> mask, std::optional<at::Tensor> positions) {
             return Prompt{std::move(ids), std::move(mask), std::move(positions)};
           }),
           py::arg("ids"), py::arg("attention_mask") = py::none(), py::arg("position_ids") = py::none())
      .def_readonly("ids", &Prompt::ids)
      .def_readonly("attention_mask", &Prompt::attention_mask)
      .def_readonly("position_ids", &Prompt::position_ids);
  m.def("prompt_of", &prompt_of, py::arg("rows"), py::arg("pad"));

  py::class_<TracePoint, std::shared_ptr<TracePoint>>(m, "TracePoint")
      .def("repeat", &TracePoint::repeated, py::arg("times"), Unlocked(),
           "The same place of a run whose batch is this one's so many times over, one copy behind the other.")
      .def_property_readonly("input_size", [](const TracePoint& point) { return point.input_size; });

  py::class_<PythonTrace>(m, "Trace")
      .def(py::init([](const Model& model, const Prompt& prompt) { return PythonTrace(model.trace(prompt)); }),
           Unlocked())
      .def(py::init([](const Model& model, const TracePoint& point) { return PythonTrace(model.trace(point)); }),
           Unlocked())
      .def_static(
          "scan", [](const Model& model, const Prompt& prompt) { return PythonTrace(model.scan(prompt)); }, Unlocked())
      .def("when", [](PythonTrace& trace, RowId row, py::function function) { trace.when(row, action_of(function)); })
      .def("run_actions", &Trace::run_actions, Unlocked())
      .def(
          "skip",
          [](PythonTrace& trace, ModuleId first, ModuleId last, const std::optional<at::Tensor>& value) {
            trace.skip(first, last, value.value_or(at::Tensor()));
          },
          Unlocked())
      .def("record_gradients", &Trace::record_gradients)
      .def("recorded", &Trace::recorded)
      .def("point", &Trace::point, Unlocked())
      .def("read", py::overload_cast<RowId>(&PythonTrace::read), Unlocked())
      .def("write", py::overload_cast<RowId, const at::Tensor&>(&PythonTrace::write), Unlocked())
      .def("rows_are_lazy", &Trace::rows_are_lazy)
      .def("head_input", &PythonTrace::lazy_rows_input, Unlocked())
      .def("apply_head", &Trace::apply_head, Unlocked())
      .def("snapshot", &PythonTrace::save, Unlocked())
      .def("end", &PythonTrace::end)
      .def("at", &Trace::at)
      .def("finish", &Trace::finish)
      .def_property_readonly("finished", &Trace::finished)
      .def_property_readonly("input_size", &Trace::input_size);

  py::class_<Generation>(m, "Generation")
      .def(py::init([](const Model& model, const Prompt& prompt, GenerateOptions options) {
             return model.generation(prompt, std::move(options));
           }),
           Unlocked())
      .def(
          "take", [](Generation& generation) { return PythonTrace(generation.pass()); }, Unlocked())
      .def(
          "finish", [](Generation& generation, PythonTrace& pass) { generation.finish(pass); }, Unlocked())
      .def_property_readonly("finished", &Generation::finished)
      .def_property_readonly("made", &Generation::made)
      .def_property_readonly("ids", &Generation::ids);
}

}  // namespace v0
}  // namespace gemloupe
