// The words in which a family writes its forward pass. A word emits, together, the module, its ports, the step, and the
// weights with their names on disk. What a family calls in order is the order in which a run computes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gemloupe/plan/plan.h"

namespace gemloupe {
inline namespace v0 {

/// What a module is called with or returns, as a family writes it: an operand, a tuple of them, or none.
struct PartSpec {
  PartSpec() = default;
  PartSpec(Slot slot) : leaf(Operand{slot, {}}) {}
  PartSpec(Operand operand) : leaf(operand) {}
  static PartSpec tuple(std::vector<PartSpec> members, std::vector<std::string> names = {});

  std::optional<Operand> leaf;
  bool is_tuple = false;
  std::vector<PartSpec> members;
  std::vector<std::string> names;
};

struct ArgumentSpec {
  std::string keyword;
  PartSpec part;
};

class PlanBuilder {
 public:
  /// `standard_prefixes` turn a native path into the standard one, the first that fits: {"model.", ""} is what lies in
  /// `model`, {"model.vision_tower", "vision"} the tower and what lies in it.
  PlanBuilder(std::string family, std::string class_name, Config config,
              std::vector<std::pair<std::string, std::string>> standard_prefixes);

  /// The text model's config.
  const Config& config() const { return plan_.text_config; }
  Plan& plan() { return plan_; }

  Slot input_ids();
  Slot attention_mask();
  Slot position_ids();

  // --- modules: a scope is open until it is destroyed or closed with what the module returns.
  class Scope {
   public:
    Scope(PlanBuilder& builder, ModuleId id) : builder_(builder), id_(id) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();
    ModuleId id() const { return id_; }
    /// What it is called with: here and now, of values that exist.
    void arguments(std::vector<ArgumentSpec> arguments);
    void returns(PartSpec result);
    void attribute(const std::string& name, json value);
    void no_ports(std::string why);
    void summary(std::string text);
    /// What print() shows of it: names, and paths from this module on, of modules that exist.
    void shows(const std::vector<std::pair<std::string, std::string>>& children);

   private:
    PlanBuilder& builder_;
    ModuleId id_;
  };
  /// `children` is the order in which print() shows the submodules (the reference declares them in another order than
  /// it runs).
  Scope module(const std::string& name, const std::string& class_name, std::vector<std::string> children = {});

  /// While it lives, ports show batch and positions as one axis: the reference calls these modules with rows.
  class RowPorts {
   public:
    explicit RowPorts(PlanBuilder& builder, bool rows = true)
        : builder_(builder), before_(std::exchange(builder.row_ports_, rows)) {}
    RowPorts(const RowPorts&) = delete;
    RowPorts& operator=(const RowPorts&) = delete;
    ~RowPorts() { builder_.row_ports_ = before_; }

   private:
    PlanBuilder& builder_;
    bool before_;
  };

  /// While it lives, modules are parts of the tree that a text prompt does not run, for the reason given: they have
  /// parameters, and neither steps nor ports.
  class NotRun {
   public:
    NotRun(PlanBuilder& builder, std::string why)
        : builder_(builder), before_(std::exchange(builder.not_run_, std::move(why))) {}
    NotRun(const NotRun&) = delete;
    NotRun& operator=(const NotRun&) = delete;
    ~NotRun() { builder_.not_run_ = before_; }

   private:
    PlanBuilder& builder_;
    std::string before_;
  };

  // --- words with a module of their own
  struct NormStyle {
    std::string class_name;
    double eps;
    Gain gain;
    bool summary_has_shape = true;
  };
  Slot norm(const std::string& name, Operand x, int64_t size, const NormStyle& style, const std::string& gguf);
  Slot linear(const std::string& name, Operand x, int64_t in, int64_t out, bool bias, const std::string& gguf);
  /// A head that shares the weight named `tied_to`.
  Slot tied_linear(const std::string& name, Operand x, int64_t in, int64_t out, const std::string& tied_to);
  Slot embed(const std::string& name, const std::string& class_name, Slot ids, int64_t rows, int64_t width,
             double scale, std::optional<int64_t> padding, const std::string& gguf);
  Slot activation(const std::string& name, Slot x);

  // --- words without one
  Slot step(Op op, std::vector<Operand> inputs, std::vector<WeightId> weights = {});
  std::pair<Slot, Slot> step2(Op op, std::vector<Operand> inputs, std::vector<WeightId> weights = {});
  std::vector<Slot> steps(Op op, std::vector<Operand> inputs, size_t outputs);
  /// A parameter of the open module that is no module's own weight or bias; `gguf` is its whole name there.
  WeightId parameter(const std::string& name, std::vector<int64_t> shape, const std::string& gguf, bool buffer = false);
  /// Queries, keys, values and mask to head outputs: three steps, one when nothing between them is asked for.
  Slot attention(Operand queries, Slot keys, Slot values, Slot mask, double scale, std::optional<double> softcap,
                 const MaskRule& rule);

  // --- names
  /// The standard value `spec` of the current host is `operand`, here and now. `meaning` takes the place of the
  /// catalogue's sentence.
  void value(const ValueSpec& spec, Operand operand, const std::string& meaning = "");
  /// Other checkpoints of this family have it. What no checkpoint of a family has needs no word.
  void absent(const ValueSpec& spec, const std::string& reason);
  /// The tower makes it in a run that has an image; a text prompt brings none.
  void not_in_this_run(const ValueSpec& spec, const std::string& meaning = "");
  void begin_layer(int index, const Sizes& sizes, const std::string& kind);
  void end_layer();
  void begin_vision_layer(int index) { vision_layer_ = index; }
  void end_vision_layer() { vision_layer_ = -1; }
  void note(std::string title, std::string text) { plan_.notes.push_back({std::move(title), std::move(text)}); }

  Plan finish();

 private:
  friend class Scope;
  Slot new_slot() { return plan_.slots++; }
  Position here() const { return static_cast<Position>(plan_.steps.size()); }
  Module& open() { return plan_.modules[static_cast<size_t>(open_.back())]; }
  WeightId weight(const std::string& suffix, std::vector<int64_t> shape, const std::string& gguf,
                  bool adds_one = false);
  Part add_part(const PartSpec& spec, const std::string& name, Position position, const Module* argument_of);
  RowId add_row(Row row);
  std::string standard(const std::string& native) const;
  std::string host_prefix(const ValueSpec& spec) const;
  std::vector<int64_t> sizes_of(const ValueSpec& spec) const;
  std::string read_at(const Operand& operand) const;
  void close(ModuleId id);
  void index_modules();
  void find_fusions();
  void mark_lifetimes();
  void mark_absent();

  Plan plan_;
  std::vector<std::pair<std::string, std::string>> standard_prefixes_;
  std::vector<ModuleId> open_;
  std::unordered_map<ModuleId, std::vector<std::string>> child_order_;
  std::unordered_map<ModuleId, std::vector<ArgumentSpec>> arguments_;
  std::unordered_map<std::string, WeightId> weight_index_;
  std::unordered_map<ModuleId, Position> called_at_;
  int layer_ = -1, vision_layer_ = -1;
  std::string not_run_;
  bool row_ports_ = false;
};

std::string op_name(const Op& op);

/// `name` with its prefix `from` replaced by `to`: whole components, unless `from` is empty or ends with a dot.
std::optional<std::string> renamed(const std::string& name, const std::string& from, const std::string& to);

/// What print() shows of a linear module.
std::string linear_summary(int64_t in, int64_t out, bool bias);

/// The catalogue's sentence, ended by the family's own words.
std::string with_ending(const ValueSpec& spec, const std::string& ending);

}  // namespace v0
}  // namespace gemloupe
