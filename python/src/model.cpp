#include "gemloupe/model.h"

#include "bindings.h"

namespace gemloupe {
inline namespace v0 {
namespace {

at::Tensor generate_greedily(const Model& model, const Prompt& prompt, int64_t max_new_tokens,
                             const std::vector<int64_t>& end_tokens, const py::object& on_step) {
  GenerateOptions options;
  options.max_new_tokens = max_new_tokens;
  options.end_tokens.insert(end_tokens.begin(), end_tokens.end());
  if (!on_step.is_none())
    options.on_step = [&](const std::vector<int64_t>& tokens) {
      py::gil_scoped_acquire gil;
      py::object go_on = on_step(tokens);
      return go_on.is_none() || go_on.cast<bool>();
    };
  py::gil_scoped_release unlocked;
  return model.generate(prompt, options);
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
      .def_readwrite("threads", &LoadOptions::threads)
      .def_readwrite("ignore_config_keys", &LoadOptions::ignore_config_keys);

  py::class_<Model>(m, "Model")
      .def_static("load", &Model::load, py::arg("path_or_id"), py::arg("options"), Unlocked())
      .def_property_readonly("plan", &Model::plan, py::return_value_policy::reference_internal)
      .def_property_readonly("path", &Model::path)
      .def_property_readonly("attn_implementation", &Model::attn_implementation)
      .def_property_readonly("generation_config",
                             [](const Model& model) { return to_python(model.generation_config()); })
      .def_property_readonly("digest", [](const Model& model) { return model.checkpoint().digest(); })
      .def_property_readonly("end_tokens", &Model::end_tokens)
      .def_property_readonly("pad_token", &Model::pad_token)
      .def("weight", [](const Model& model, WeightId id) { return model.weights().at(id); })
      .def("prompt",
           [](const Model& model, const py::str& text) {
             const std::string bytes = utf8_of(text);
             py::gil_scoped_release unlocked;
             return model.prompt(bytes);
           })
      .def("project_on_vocab", &Model::project_on_vocab, Unlocked())
      .def("generate", &generate_greedily, py::arg("prompt"), py::arg("max_new_tokens"), py::arg("end_tokens"),
           py::arg("on_step"));
}

}  // namespace v0
}  // namespace gemloupe
