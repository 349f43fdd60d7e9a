// A forward pass as data: an immutable list of steps over slots, the tree of native modules, the weights, the named
// values, and what is absent and why. Knows nothing of tensors or of Python.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gemloupe/plan/catalogue.h"
#include "gemloupe/plan/config.h"
#include "gemloupe/plan/op.h"

namespace gemloupe {
inline namespace v0 {

using Slot = int32_t;  ///< where a tensor lives while a run needs it
using WeightId = int32_t;
using ModuleId = int32_t;
using RowId = int32_t;
using Position = int32_t;  ///< between steps: position p is before step p and after step p - 1

struct Operand {
  Slot slot = -1;
  View view;
};

struct Step {
  Op op;
  std::vector<Operand> inputs;
  std::vector<Slot> outputs;
  std::vector<WeightId> weights;
  ModuleId module = -1;          ///< the module in whose forward it runs
  std::vector<Slot> dies_after;  ///< slots that nothing reads after this step
};

/// Steps [first, end) that one operation does when nothing between them is asked for: with the same bits.
struct Fusion {
  Position first = 0, end = 0;
  Op op;
  std::vector<Operand> inputs;
  std::vector<WeightId> weights;
  std::vector<Slot> outputs;
};

struct WeightSlot {
  std::string name;  ///< the reference's parameter name, "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;
  std::string gguf;                 ///< "blk.0.attn_q.weight"; empty where GGUF has none
  bool gguf_adds_one = false;       ///< llama.cpp stores a norm's 1 + weight
  bool buffer = false;              ///< no parameter of the reference's: layer_scalar
  std::optional<WeightId> tied_to;  ///< shares that slot's tensor
};

/// A leaf (a row), nothing the plan holds (None), or a tuple of parts, whose members may have names.
struct Part {
  RowId row = -1;
  bool is_tuple = false;
  std::vector<Part> members;
  std::vector<std::string> names;  ///< of a named tuple such as the reference's ModelOutput
};

struct Argument {
  std::string keyword;  ///< empty for a positional one
  Part part;
};

struct Module {
  std::string path;        ///< "model.layers.0.self_attn"; "" is the root
  std::string standard;    ///< "layers.0.self_attn"; `path` where it has no other name
  std::string name;        ///< its last component
  std::string class_name;  ///< the reference's class, "Gemma3Attention"
  std::string summary;     ///< what print() shows in the brackets, "in_features=48, …"
  ModuleId parent = -1;
  std::vector<ModuleId> children;
  std::vector<std::pair<std::string, WeightId>> weights;  ///< "weight" -> slot
  json attributes = json::object();                       ///< `_module`'s plain attributes: sliding_window, eps, …
  Position first = 0, end = 0;                            ///< its steps
  std::vector<Argument> arguments;                        ///< what a forward hook on the reference's module would see
  std::optional<Part> result;
  std::string no_ports;  ///< why it has no input and output, where it has none
  bool runs = true;      ///< false for a tower's modules, which need more than a text
  /// What print() shows in the place of `children`, where that differs: standard names beside native ones.
  std::vector<std::pair<std::string, ModuleId>> shown;
};

/// A value that can be read and written by name.
struct Row {
  std::string name;                 ///< "layers.3.self_attn.attention_output", "layers.3.mlp.input", "norm.output"
  const ValueSpec* spec = nullptr;  ///< null for a module's port
  std::string meaning;              ///< the catalogue's sentence, ended by the family's own words
  std::string read_at;              ///< which step of ours it lies at
  int layer = -1;                   ///< -1 outside the blocks
  Operand value;
  std::vector<int64_t> sizes;  ///< of spec->axes; -1 where the run decides
  Position position = 0;       ///< where it can be read and written
  /// A module's argument: an assignment reaches these operands (step, index) only. A value reaches every consumer.
  bool is_argument = false;
  std::vector<std::pair<Position, int>> consumers;
};

struct Absence {
  const ValueSpec* spec;
  int layer;  ///< -1 outside the blocks
  std::string name;
  std::string reason;
  bool of_family = true;  ///< another checkpoint of the family has it, so printouts list it
  bool of_run = false;    ///< the checkpoint has it, a text prompt does not bring it
  std::string meaning = std::string(spec->meaning);
  std::vector<int64_t> sizes = {};  ///< as a row's, where they are known
};

struct Sizes {
  int64_t hidden_size = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0, qk_head_dim = 0, intermediate_size = 0,
          vocab_size = 0, num_experts = 0, top_k = 0, vision_hidden_size = 0;
};

/// The vision tower's sizes: `model.vision.num_layers`, …
struct Vision {
  int64_t num_layers = 0, patch_size = 0;
  json image_size;  ///< "varies" where it depends on the image
  Sizes sizes;
};

struct Note {
  std::string title, text;
};

struct Plan {
  std::string family;      ///< "gemma3_text"
  std::string class_name;  ///< "Gemma3ForCausalLM"
  Config config;
  Config text_config;  ///< the text model's: `config` itself, or a part of a multimodal one
  Sizes sizes;
  std::vector<Sizes> layer_sizes;
  std::vector<std::string> layer_kinds;  ///< "sliding_attention", …
  std::optional<Vision> vision;

  std::vector<Step> steps;
  std::vector<Fusion> fusions;  ///< by `first`; one may lie inside another
  std::vector<WeightSlot> weights;
  std::vector<Module> modules;  ///< [0] is the root
  std::vector<Row> rows;
  std::vector<Absence> absences;
  std::vector<Note> notes;
  std::vector<std::string> warnings;  ///< what a load option makes of this model that its user must know
  std::vector<const ValueSpec*>
      moved;             ///< values that do not lie where the catalogue's usual family has them; printed first
  std::string identity;  ///< "layers[i].input + … == layer_output"
  int32_t slots = 0;
  int32_t caches = 0;              ///< of keys and values: a block's, and what later blocks borrow of it
  std::vector<Position> producer;  ///< by slot: the step that writes it, -1 for a run's inputs

  int64_t first_position = 0;                                   ///< the first token's, where a prompt names none
  Slot input_ids = -1, attention_mask = -1, position_ids = -1;  ///< a run's inputs
  Slot stream_before_head = -1;                                 ///< what lm_head reads
  Position head = 0;                                            ///< the step at which lm_head runs
  RowId logits = -1, next_token_probs = -1;
  /// (prefix in WeightSlot::name, prefix on disk) pairs under which files may spell the weights.
  std::vector<std::pair<std::string, std::string>> spellings;
  std::vector<std::string> ignored_weights;  ///< globs of names on disk that have no place here

  std::unordered_map<std::string, RowId> row_index;        ///< every spelling of every row
  std::unordered_map<std::string, ModuleId> module_index;  ///< every spelling of every module's path
  std::unordered_map<std::string, size_t> absence_index;   ///< every spelling, into `absences`

  const Row& row(RowId id) const { return rows[static_cast<size_t>(id)]; }
  const Module& module(ModuleId id) const { return modules[static_cast<size_t>(id)]; }
  int64_t num_layers() const { return static_cast<int64_t>(layer_sizes.size()); }

  /// The row with that name, in either spelling ("model.layers.0.…" or "layers.0.…").
  /// Errors: Absent with the family's reason, NotInThisRun, UnknownName with the nearest names.
  RowId find_row(const std::string& name) const;
  ModuleId find_module(const std::string& path) const;
};

}  // namespace v0
}  // namespace gemloupe
