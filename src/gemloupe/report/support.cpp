#include "gemloupe/report/support.h"

#include <algorithm>
#include <map>
#include <regex>

#include "gemloupe/base/text.h"
#include "gemloupe/report/printout.h"

namespace gemloupe {
inline namespace v0 {

std::string ranges_text(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t first = 0, end; first < numbers.size(); first = end) {
    for (end = first + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    parts.push_back(std::to_string(numbers[first]) +
                    (end - first > 1 ? "-" + std::to_string(numbers[end - 1]) : std::string()));
  }
  return join(parts, ", ");
}

namespace {

using Facts = Document::Facts;
using Table = Document::Table;

// The keys of the pages' Config tables, in their order; what a family lacks, or has as null, is left out.
constexpr const char* kConfigKeys[] = {"architectures",
                                       "num_hidden_layers",
                                       "hidden_size",
                                       "intermediate_size",
                                       "num_attention_heads",
                                       "num_key_value_heads",
                                       "head_dim",
                                       "vocab_size",
                                       "max_position_embeddings",
                                       "sliding_window",
                                       "hidden_act",
                                       "hidden_activation",
                                       "rms_norm_eps",
                                       "query_pre_attn_scalar",
                                       "attn_logit_softcapping",
                                       "final_logit_softcapping",
                                       "tie_word_embeddings",
                                       "dtype",
                                       "num_kv_shared_layers",
                                       "attention_bias",
                                       "use_bidirectional_attention",
                                       "enable_moe_block",
                                       "num_experts",
                                       "top_k_experts",
                                       "moe_intermediate_size",
                                       "hidden_size_per_layer_input",
                                       "attention_k_eq_v"};

// "layers.12.mlp" is "layers[i].mlp" of any block.
std::string any_layer(const std::string& text) {
  static const std::regex layer("layers\\.[0-9]+");
  return std::regex_replace(text, layer, "layers[i]");
}

// What is said of a value, and of which blocks it is said; -1 stands for outside the blocks.
using Said = std::vector<std::pair<std::string, std::vector<int>>>;

void say(Said& said, const std::string& what, int layer) {
  for (auto& [text, layers] : said)
    if (text == what) return layers.push_back(layer);
  said.push_back({what, {layer}});
}

std::string text_of(const Said& said) {
  if (said.size() == 1) return said[0].first;
  std::vector<std::string> parts;
  for (const auto& [text, layers] : said)
    parts.push_back((layers.size() == 1 ? "layer " : "layers ") + ranges_text(layers) + ": " + text);
  return join(parts, "; ");
}

struct Entry {
  const ValueSpec* spec;
  std::string meaning;
  Said read_at;
};

// The values of one host, in the catalogue's order.
struct HostTable {
  std::string host, class_name;
  std::vector<Entry> entries;

  Entry& entry(const ValueSpec* spec, const std::string& meaning) {
    for (Entry& known : entries)
      if (known.spec == spec) return known;
    return entries.emplace_back(Entry{spec, meaning, {}});
  }
};

class HostTables {
 public:
  explicit HostTables(const Plan& plan) : plan_(plan) {
    for (const Row& row : plan.rows)
      if (row.spec) say(find(row.name).entry(row.spec, row.meaning).read_at, any_layer(row.read_at), row.layer);
    for (const Absence& absence : plan.absences)
      if (absence.of_family)
        say(find(absence.name).entry(absence.spec, absence.meaning).read_at,
            (absence.of_run ? "not in a text run: " : "absent: ") + absence.reason, absence.layer);
  }

  Document::Section section() {
    Document::Section section{"values", "Values, by host", {}};
    std::stable_sort(tables_.begin(), tables_.end(), [](const HostTable& a, const HostTable& b) {
      return a.entries[0].spec->host < b.entries[0].spec->host;
    });
    for (HostTable& host : tables_) section.parts.emplace_back(std::in_place_type<Table>, table(host));
    return section;
  }

 private:
  HostTable& find(const std::string& value_name) {
    std::string path = host_of(value_name);
    std::string host = path.empty() ? "model" : "model." + any_layer(path);
    for (HostTable& table : tables_)
      if (table.host == host) return table;
    auto module = plan_.module_index.find(path);
    return tables_.emplace_back(
        HostTable{host, module == plan_.module_index.end() ? "" : plan_.module(module->second).class_name, {}});
  }

  static Table table(HostTable& host) {
    auto all = catalogue();
    std::stable_sort(host.entries.begin(), host.entries.end(), [&](const Entry& a, const Entry& b) {
      return std::find(all.begin(), all.end(), a.spec) < std::find(all.begin(), all.end(), b.spec);
    });
    Table table{host.host, host.class_name, {"value", "layout", "axes", "what it is", "read at"}, {}};
    for (const auto& [spec, meaning, read_at] : host.entries)
      table.rows.push_back(
          {spec->name, spec->layout, spec->axes.empty() ? "" : axes_text(spec->axes), meaning, text_of(read_at)});
    return table;
  }

  const Plan& plan_;
  std::vector<HostTable> tables_;
};

Facts sizes_of(const Sizes& sizes) {
  return {{{"hidden_size", sizes.hidden_size},
           {"num_heads", sizes.num_heads},
           {"num_kv_heads", sizes.num_kv_heads},
           {"head_dim", sizes.head_dim},
           {"qk_head_dim", sizes.qk_head_dim},
           {"vocab_size", sizes.vocab_size},
           {"intermediate_size", sizes.intermediate_size}}};
}

Document::Section model_section(const Plan& plan) {
  Facts facts{{{"family", plan.family}, {"class", plan.class_name}, {"model.num_layers", plan.num_layers()}}};
  for (const auto& [name, value] : sizes_of(plan.sizes).entries) facts.entries.emplace_back("model." + name, value);
  return {"model", "Model", {facts}};
}

struct BlockKind {
  std::string name;
  Facts sizes;
  std::vector<int> layers;
};

// Blocks of one kind and one size together.
std::vector<BlockKind> block_kinds(const Plan& plan) {
  std::vector<BlockKind> kinds;
  for (size_t layer = 0; layer < plan.layer_sizes.size(); ++layer) {
    BlockKind kind{plan.layer_kinds[layer], sizes_of(plan.layer_sizes[layer]), {}};
    auto known = std::find_if(kinds.begin(), kinds.end(), [&](const BlockKind& other) {
      return other.name == kind.name && other.sizes.entries == kind.sizes.entries;
    });
    if (known == kinds.end()) known = kinds.insert(kinds.end(), std::move(kind));
    known->layers.push_back(static_cast<int>(layer));
  }
  return kinds;
}

// A row a kind, with the sizes in which kinds differ.
Document::Section blocks_section(const Plan& plan) {
  std::vector<BlockKind> kinds = block_kinds(plan);
  Table table{"", "", {"kind", "layers"}, {}};
  for (const BlockKind& kind : kinds) table.rows.push_back({kind.name, ranges_text(kind.layers)});
  for (size_t i = 0; !kinds.empty() && i < kinds[0].sizes.entries.size(); ++i) {
    auto size = [i](const BlockKind& kind) { return kind.sizes.entries[i].second; };
    if (std::all_of(kinds.begin(), kinds.end(), [&](const BlockKind& kind) { return size(kind) == size(kinds[0]); }))
      continue;
    table.columns.push_back(kinds[0].sizes.entries[i].first);
    for (size_t row = 0; row < kinds.size(); ++row) table.rows[row].push_back(size(kinds[row]));
  }
  return {"blocks", "Blocks", {table}};
}

// A key of the root's, else of the text model's.
json configured(const Plan& plan, const std::string& key) {
  const json own = plan.config.attributes().value(key, json());
  return own.is_null() ? plan.text_config.attributes().value(key, json()) : own;
}

// As the pages print it: the text model's keys, a multimodal root's own first where both have one.
Document::Section config_section(const Plan& plan) {
  Facts facts;
  for (const char* key : kConfigKeys)
    if (json value = configured(plan, key); !value.is_null()) facts.entries.emplace_back(key, std::move(value));
  return {"config", "Config", {facts}};
}

// What the table leaves out; a part of a multimodal config is a table of its own.
void add_rest_of_config(const Plan& plan, Document& document) {
  Facts rest;
  std::vector<Document::Section> parts;
  for (const auto& [key, value] : plan.config.attributes().items()) {
    if (key.ends_with("_config") && value.is_object()) {
      Facts part;
      for (const auto& [name, inside] : value.items()) part.entries.emplace_back(name, inside);
      parts.push_back({key, "config." + key, {part}});
    } else if (std::find(std::begin(kConfigKeys), std::end(kConfigKeys), key) == std::end(kConfigKeys) ||
               value.is_null()) {
      rest.entries.emplace_back(key, value);
    }
  }
  document.sections.push_back({"more_config", "The other config keys", {rest}});
  for (Document::Section& part : parts) document.sections.push_back(std::move(part));
}

void add_vision_section(const Plan& plan, Document& document) {
  if (!plan.vision) return;
  const Sizes& s = plan.vision->sizes;
  const std::pair<const char*, json> all[] = {{"num_layers", plan.vision->num_layers},
                                              {"vision_hidden_size", s.vision_hidden_size},
                                              {"num_heads", s.num_heads},
                                              {"head_dim", s.head_dim},
                                              {"intermediate_size", s.intermediate_size},
                                              {"patch_size", plan.vision->patch_size},
                                              {"image_size", plan.vision->image_size}};
  Facts facts;
  for (const auto& [name, value] : all)
    if (value != 0) facts.entries.emplace_back(std::string("model.vision.") + name, value);
  document.sections.push_back({"vision", "Vision Config", {facts}});
}

Document::Section notes_section(const Plan& plan) {
  Document::Section section{"notes", "Notes", {}};
  for (const Note& note : plan.notes) section.parts.emplace_back(Document::Paragraph{note.text, note.title});
  return section;
}

}  // namespace

Document support(const Plan& plan) {
  Document document{plan.class_name, "family " + plan.family, {}, {}};
  document.sections.push_back(model_section(plan));
  document.sections.push_back(blocks_section(plan));
  document.sections.push_back(HostTables(plan).section());
  if (!plan.identity.empty())
    document.sections.push_back({"identity", "The identity", {Document::Lines{plan.identity}}});
  document.sections.push_back(config_section(plan));
  add_vision_section(plan, document);
  if (!plan.notes.empty()) document.sections.push_back(notes_section(plan));
  add_rest_of_config(plan, document);
  return document;
}

}  // namespace v0
}  // namespace gemloupe
