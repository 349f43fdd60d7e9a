// What Python needs of a plan: the module tree, rows, sizes.
#include "gemloupe/plan/plan.h"

#include "bindings.h"

namespace gemloupe {
inline namespace v0 {
namespace {

/// A row id, None, or ("tuple", [parts], [names]).
py::object part_of(const Part& part) {
  if (!part.is_tuple) return part.row < 0 ? py::object(py::none()) : py::object(py::int_(part.row));
  py::list members;
  for (const Part& member : part.members) members.append(part_of(member));
  return py::make_tuple("tuple", members, part.names);
}

py::dict module_of(const Module& module) {
  py::list arguments;
  for (const Argument& argument : module.arguments)
    arguments.append(py::make_tuple(argument.keyword, part_of(argument.part)));
  py::dict out;
  out["path"] = module.path;
  out["standard"] = module.standard;
  out["name"] = module.name;
  out["class_name"] = module.class_name;
  out["parent"] = module.parent;
  out["children"] = module.children;
  out["weights"] = module.weights;
  out["attributes"] = to_python(module.attributes);
  out["arguments"] = arguments;
  out["result"] = module.result ? part_of(*module.result) : py::object(py::none());
  out["has_result"] = module.result.has_value();
  out["no_ports"] = module.no_ports;
  out["runs"] = module.runs;
  return out;
}

py::dict sizes_of(const Sizes& s) {
  py::dict out;
  out["hidden_size"] = s.hidden_size;
  out["num_heads"] = s.num_heads;
  out["num_kv_heads"] = s.num_kv_heads;
  out["head_dim"] = s.head_dim;
  out["qk_head_dim"] = s.qk_head_dim;
  out["intermediate_size"] = s.intermediate_size;
  out["vocab_size"] = s.vocab_size;
  return out;
}

/// Empty where there is no vision tower.
py::dict vision_of(const Plan& plan) {
  py::dict out;
  if (!plan.vision) return out;
  const Sizes& s = plan.vision->sizes;
  for (const auto& [name, size] :
       {std::pair("num_layers", plan.vision->num_layers), std::pair("patch_size", plan.vision->patch_size),
        std::pair("vision_hidden_size", s.vision_hidden_size), std::pair("num_heads", s.num_heads),
        std::pair("num_kv_heads", s.num_kv_heads), std::pair("head_dim", s.head_dim),
        std::pair("qk_head_dim", s.qk_head_dim), std::pair("intermediate_size", s.intermediate_size)})
    if (size > 0) out[name] = size;
  out["image_size"] = to_python(plan.vision->image_size);
  return out;
}

/// (name, shape, whether it is a buffer, the name it is tied to or None) of every weight, in the tree's order of
/// making.
py::list weights_of(const Plan& plan) {
  py::list out;
  for (const WeightSlot& slot : plan.weights)
    out.append(py::make_tuple(
        slot.name, slot.shape, slot.buffer,
        slot.tied_to ? py::object(py::str(plan.weights[static_cast<size_t>(*slot.tied_to)].name)) : py::none()));
  return out;
}

}  // namespace

void bind_plan(py::module_& m) {
  py::class_<Row>(m, "Row")
      .def_readonly("name", &Row::name)
      .def_readonly("meaning", &Row::meaning)
      .def_readonly("read_at", &Row::read_at)
      .def_readonly("layer", &Row::layer)
      .def_readonly("position", &Row::position)
      .def_readonly("sizes", &Row::sizes)
      .def_property_readonly("read_only", [](const Row& row) { return row.spec && row.spec->read_only; })
      .def_property_readonly("is_value", [](const Row& row) { return row.spec != nullptr; })
      .def_property_readonly("value_name",
                             [](const Row& row) { return row.spec ? std::string(row.spec->name) : std::string(); })
      .def_property_readonly("layout",
                             [](const Row& row) { return row.spec ? std::string(row.spec->layout) : std::string(); })
      .def_property_readonly("axes", [](const Row& row) {
        std::vector<std::string> names;
        if (row.spec)
          for (Axis axis : row.spec->axes) names.emplace_back(name_of(axis));
        return names;
      });
  py::class_<Plan>(m, "Plan")
      .def_readonly("family", &Plan::family)
      .def_readonly("class_name", &Plan::class_name)
      .def_readonly("identity", &Plan::identity)
      .def_readonly("warnings", &Plan::warnings)
      .def_readonly("layer_kinds", &Plan::layer_kinds)
      .def_property_readonly("rows", [](const Plan& plan) { return plan.rows; })
      .def_property_readonly("row_index", [](const Plan& plan) { return plan.row_index; })
      .def_property_readonly("absences",
                             [](const Plan& plan) {
                               py::dict out;
                               for (const auto& [name, at] : plan.absence_index)
                                 out[py::str(name)] = plan.absences[at].reason;
                               return out;
                             })
      .def_property_readonly("vision", &vision_of)
      .def_property_readonly("weights", &weights_of)
      .def_property_readonly("sizes", [](const Plan& plan) { return sizes_of(plan.sizes); })
      .def_property_readonly("layer_sizes",
                             [](const Plan& plan) {
                               py::list out;
                               for (const Sizes& sizes : plan.layer_sizes) out.append(sizes_of(sizes));
                               return out;
                             })
      .def_property_readonly("modules",
                             [](const Plan& plan) {
                               py::list out;
                               for (const Module& module : plan.modules) out.append(module_of(module));
                               return out;
                             })
      .def_property_readonly("config", [](const Plan& plan) { return to_python(plan.config.attributes()); })
      .def_property_readonly("notes",
                             [](const Plan& plan) {
                               std::vector<std::pair<std::string, std::string>> out;
                               for (const Note& note : plan.notes) out.emplace_back(note.title, note.text);
                               return out;
                             })
      .def("find_row", &Plan::find_row)
      .def("find_module", &Plan::find_module);
}

}  // namespace v0
}  // namespace gemloupe
