#include "gemloupe/report/printout.h"

#include <algorithm>
#include <map>

#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {

std::string host_of(const std::string& value_name) {
  size_t dot = value_name.rfind('.');
  return dot == std::string::npos ? "" : value_name.substr(0, dot);
}

namespace {

using Texts = std::vector<std::string>;

// The modules that have a standard place, in the order in which the pages print them; containers between the root and
// them ("model") are not shown.
constexpr const char* kStandardModules[] = {"lm_head", "embed_tokens", "layers", "norm", "vision", "projector"};

struct HostedValue {
  const ValueSpec* spec;
  std::string meaning;
  std::string absent;  // why, where this checkpoint has none
};

class Printer {
 public:
  explicit Printer(const Plan& plan) : plan_(plan) {
    for (const Row& row : plan.rows)
      if (row.spec) add(row.name, {row.spec, row.meaning, ""});
    for (const Absence& absence : plan.absences)
      if (absence.of_family) add(absence.name, {absence.spec, std::string(absence.spec->meaning), absence.reason});
    for (auto& [host, list] : hosted_) sort(list);
  }

  std::string text() const {
    Texts lines{plan_.class_name + "("};
    for (const char* name : kStandardModules) {
      auto found = plan_.module_index.find(name);
      if (found == plan_.module_index.end()) continue;
      append(lines, named(name, module_lines(found->second)));
      if (std::string_view(name) == "lm_head")
        append(lines, {"  (generator): Generator(", "    (streamer): Streamer()", "  )"});
    }
    append(lines, value_lines(0));
    lines.push_back(")");
    return join(lines, "\n");
  }

  json machine(ModuleId id, const std::string& path) const {
    const Module& module = plan_.module(id);
    json out = {{"path", path}, {"native_path", module.path}, {"class", module.class_name}};
    if (!module.summary.empty()) out["summary"] = module.summary;
    for (const auto& [name, weight] : module.weights) {
      const WeightSlot& slot = plan_.weights[static_cast<size_t>(weight)];
      json parameter = {{"name", slot.name}, {"shape", slot.shape}};
      if (slot.tied_to) parameter["tied_to"] = plan_.weights[static_cast<size_t>(*slot.tied_to)].name;
      out["parameters"].push_back(std::move(parameter));
    }
    for (const HostedValue& value : values_of(id)) out["values"].push_back(machine(value, path));
    for (ModuleId child : children_of(id)) {
      const std::string& name = plan_.module(child).name;
      out["modules"].push_back(machine(child, path.empty() ? name : path + "." + name));
    }
    return out;
  }

 private:
  static void append(Texts& lines, const Texts& more) { lines.insert(lines.end(), more.begin(), more.end()); }

  static Texts named(const std::string& name, Texts lines) {
    lines[0] = "(" + name + "): " + lines[0];
    for (std::string& line : lines) line.insert(0, "  ");
    return lines;
  }

  void add(const std::string& name, HostedValue value) {
    auto host = plan_.module_index.find(host_of(name));
    if (host != plan_.module_index.end()) hosted_[host->second].push_back(std::move(value));
  }

  // Those that a family has moved come first, in its order, then the catalogue's.
  void sort(std::vector<HostedValue>& list) const {
    auto rank = [this](const HostedValue& value) {
      auto moved = std::find(plan_.moved.begin(), plan_.moved.end(), value.spec);
      auto all = catalogue();
      auto usual = std::find(all.begin(), all.end(), value.spec);
      bool is_moved = moved != plan_.moved.end();
      return std::pair(!is_moved, is_moved ? moved - plan_.moved.begin() : usual - all.begin());
    };
    std::stable_sort(list.begin(), list.end(),
                     [&](const HostedValue& a, const HostedValue& b) { return rank(a) < rank(b); });
  }

  const std::vector<HostedValue>& values_of(ModuleId id) const {
    static const std::vector<HostedValue> none;
    auto found = hosted_.find(id);
    return found == hosted_.end() ? none : found->second;
  }

  // Of the root, those with a standard place, wherever they hang.
  std::vector<ModuleId> children_of(ModuleId id) const {
    if (id != 0) return plan_.module(id).children;
    std::vector<ModuleId> children;
    for (const char* name : kStandardModules)
      if (auto found = plan_.module_index.find(name); found != plan_.module_index.end())
        children.push_back(found->second);
    return children;
  }

  Texts value_lines(ModuleId id) const {
    Texts lines;
    for (const auto& [spec, meaning, absent] : values_of(id)) {
      std::string layout =
          spec->axes.empty() ? ": " : " -> " + std::string(spec->layout) + " " + axes_text(spec->axes) + ": ";
      lines.push_back("  (" + std::string(spec->name) + ")" + layout + meaning);
    }
    return lines;
  }

  Texts module_lines(ModuleId id) const {
    const Module& module = plan_.module(id);
    Texts inside;
    if (module.class_name == "ModuleList") {
      inside = list_lines(module);
    } else {
      for (ModuleId child : module.children) append(inside, named(plan_.module(child).name, module_lines(child)));
    }
    append(inside, value_lines(id));
    if (inside.empty()) return {module.class_name + "(" + module.summary + ")"};
    Texts lines{module.class_name + "("};
    append(lines, inside);
    lines.push_back(")");
    return lines;
  }

  Texts list_lines(const Module& list) const {
    std::vector<Texts> blocks;
    for (ModuleId child : list.children) blocks.push_back(module_lines(child));
    Texts lines;
    for (size_t first = 0, end; first < blocks.size(); first = end) {
      for (end = first + 1; end < blocks.size() && blocks[end] == blocks[first];) ++end;
      std::string name = std::to_string(first);
      Texts block = blocks[first];
      if (end - first > 1) {
        name += "-" + std::to_string(end - 1);
        block[0].insert(0, std::to_string(end - first) + " x ");
      }
      append(lines, named(name, std::move(block)));
    }
    return lines;
  }

  static json machine(const HostedValue& value, const std::string& host) {
    std::string name = (host.empty() ? "" : host + ".") + std::string(value.spec->name);
    json axes = json::array();
    for (Axis axis : value.spec->axes) axes.push_back(name_of(axis));
    json out = {{"name", name}, {"layout", value.spec->layout}, {"axes", axes}, {"meaning", value.meaning}};
    if (!value.absent.empty()) out["absent"] = value.absent;
    return out;
  }

  const Plan& plan_;
  std::map<ModuleId, std::vector<HostedValue>> hosted_;
};

}  // namespace

std::string printout(const Plan& plan) {
  return Printer(plan).text();
}

json printout_json(const Plan& plan) {
  return Printer(plan).machine(0, "");
}

}  // namespace v0
}  // namespace gemloupe
