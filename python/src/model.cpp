#include "gemloupe/model.h"

#include "bindings.h"
#include "gemloupe/base/errors.h"
#include "gemloupe/quantize.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// The callback of each step's tokens is called with the interpreter's lock.
void set_on_step(GenerateOptions& options, py::object on_step) {
  if (on_step.is_none()) return;
  auto held = std::shared_ptr<py::object>(new py::object(std::move(on_step)), [](py::object* dead) {
    py::gil_scoped_acquire gil;
    delete dead;
  });
  options.on_step = [held](const std::vector<int64_t>& tokens) {
    py::gil_scoped_acquire gil;
    py::object go_on = (*held)(tokens);
    return go_on.is_none() || go_on.cast<bool>();
  };
}

/// A recorded edit, which the Python model keeps. Held here too, an edit that names its model would keep both for ever,
/// where no collector sees it.
Action action_of_edit(const py::object& edit) {
  auto held = std::shared_ptr<py::weakref>(new py::weakref(edit), [](py::weakref* dead) {
    py::gil_scoped_acquire gil;
    delete dead;
  });
  return [held](at::Tensor value) {
    py::gil_scoped_acquire gil;
    py::object alive = (*held)();
    check(!alive.is_none(), "a model's edits live as long as its runs");
    py::object result = alive.attr("_replay")(std::move(value));
    return result.is_none() ? at::Tensor() : result.cast<at::Tensor>();
  };
}

}  // namespace

void bind_model(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::class_<LoadOptions>(m, "LoadOptions")
      .def(py::init<>())
      .def_readwrite("dtype", &LoadOptions::dtype)
      .def_readwrite("device", &LoadOptions::device)
      .def_readwrite("attn_implementation", &LoadOptions::attn_implementation)
      .def_readwrite("revision", &LoadOptions::revision)
      .def_readwrite("final_logit_softcapping", &LoadOptions::final_logit_softcapping)
      .def_readwrite("dequantize", &LoadOptions::dequantize)
      .def_readwrite("threads", &LoadOptions::threads)
      .def_readwrite("ignore_config_keys", &LoadOptions::ignore_config_keys);

  py::class_<Model>(m, "Model")
      .def_static("load", &Model::load, py::arg("path_or_id"), py::arg("options"), Unlocked())
      .def_static("without_weights", py::overload_cast<const std::string&, const LoadOptions&>(&Model::without_weights),
                  py::arg("path_or_name"), py::arg("options"), Unlocked())
      .def_static(
          "of_config",
          [](const py::dict& config, const std::string& where, const LoadOptions& options) {
            const json parsed = from_python(config);
            py::gil_scoped_release unlocked;
            return Model::without_weights(parsed, where, options);
          },
          py::arg("config"), py::arg("where"), py::arg("options"))
      .def(
          "with_edits",
          [](const Model& model, const std::vector<std::tuple<RowId, py::object, std::string>>& edits) {
            std::vector<StandingEdit> standing;
            for (const auto& [row, edit, text] : edits) standing.push_back({row, action_of_edit(edit), text});
            return model.with_edits(std::move(standing));
          },
          py::arg("edits"))
      .def_property_readonly("has_weights", &Model::has_weights)
      .def_property_readonly("plan", &Model::plan, py::return_value_policy::reference_internal)
      .def_property_readonly("path", &Model::path)
      .def_property_readonly("attn_implementation", &Model::attn_implementation)
      .def_property_readonly("generation_config",
                             [](const Model& model) { return to_python(model.generation_config()); })
      .def_property_readonly("digest", [](const Model& model) { return model.checkpoint().digest(); })
      .def_property_readonly("end_tokens", &Model::end_tokens)
      .def_property_readonly("pad_token", &Model::pad_token)
      .def("weight", &Model::weight, Unlocked())
      .def("weight_rows", &Model::weight_rows, Unlocked())
      .def_property_readonly("dtype", &Model::dtype)
      .def_property_readonly("device", &Model::device)
      .def("prompt",
           [](const Model& model, const py::str& text) {
             const std::string bytes = utf8_of(text);
             py::gil_scoped_release unlocked;
             return model.prompt(bytes);
           })
      .def("project_on_vocab", &Model::project_on_vocab, Unlocked())
      .def("call", &Model::call, py::arg("module"), py::arg("input"), py::arg("positions") = py::none(), Unlocked())
      .def("generate", &Model::generate, py::arg("prompt"), py::arg("options"), Unlocked());

  m.def(
      "quantize",
      [](const std::string& path_or_id, const std::string& to, const std::string& type,
         const std::optional<std::string>& revision, const std::vector<std::string>& ignore_config_keys) {
        return quantize(path_or_id, to, {type, revision, ignore_config_keys, nullptr}).notes;
      },
      py::arg("path_or_id"), py::arg("to"), py::arg("type"), py::arg("revision"), py::arg("ignore_config_keys"),
      Unlocked());

  py::class_<GenerateOptions>(m, "GenerateOptions")
      .def(py::init([](const Model& model) { return model.generate_defaults(); }))
      .def_readwrite("max_new_tokens", &GenerateOptions::max_new_tokens)
      .def_property("end_tokens", nullptr,
                    [](GenerateOptions& options, const std::set<int64_t>& tokens) { options.end_tokens = tokens; })
      .def_readwrite("do_sample", &GenerateOptions::do_sample)
      .def_readwrite("seed", &GenerateOptions::seed)
      .def_property("on_step", nullptr, &set_on_step)
      .def_property("temperature", nullptr, [](GenerateOptions& o, double v) { o.sampling.temperature = v; })
      .def_property("top_k", nullptr, [](GenerateOptions& o, int64_t v) { o.sampling.top_k = v; })
      .def_property("top_p", nullptr, [](GenerateOptions& o, double v) { o.sampling.top_p = v; })
      .def_property("min_p", nullptr, [](GenerateOptions& o, double v) { o.sampling.min_p = v; })
      .def_property("repetition_penalty", nullptr,
                    [](GenerateOptions& o, double v) { o.sampling.repetition_penalty = v; });
}

}  // namespace v0
}  // namespace gemloupe
