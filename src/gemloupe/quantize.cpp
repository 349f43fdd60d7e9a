#include "gemloupe/quantize.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <strings.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/family/text_gguf.h"
#include "gemloupe/model.h"
#include "gemloupe/store/dequantize.h"
#include "gemloupe/store/gguf_write.h"
#include "gemloupe/store/quantize.h"
#include "gemloupe/text/gguf_vocabulary.h"

namespace gemloupe {
inline namespace v0 {
namespace {

namespace fs = std::filesystem;

/// A type by the name that files and options have for it, and llama.cpp's number for a file of it, general.file_type.
struct FileType {
  const char* name;
  DType dtype;
  int number;
};
constexpr FileType kFileTypes[] = {
    {"q8_0", DType::Q8_0, 7}, {"bf16", DType::BF16, 32}, {"f16", DType::F16, 1}, {"f32", DType::F32, 0}};

const FileType& file_type(const std::string& name) {
  std::vector<std::string> names;
  for (const FileType& type : kFileTypes) {
    if (::strcasecmp(name.c_str(), type.name) == 0) return type;
    names.emplace_back(type.name);
  }
  throw BadOption("the type '" + name + "' is none of " + quoted_list(names, " and ") + ".");
}

void check_target(const fs::path& to) {
  if (to.extension() != ".gguf")
    throw BadOption("'" + to.string() + "' does not end with .gguf, by which such a file is known. Name it OUT.gguf.");
}

void refuse_own_source(const Checkpoint& checkpoint, const fs::path& to) {
  std::error_code error;
  std::set<fs::path> files;
  for (const StoredTensor& tensor : checkpoint.tensors()) files.insert(tensor.path);
  for (const fs::path& file : files)
    if (fs::equivalent(file, to, error))
      throw CannotWrite(to.string() + ": is a file of the checkpoint that is read; choose another name.");
}

/// What a file calls itself: a hub id's last part, a folder's or a file's name.
std::string name_of(const Checkpoint& checkpoint, const std::string& path_or_id) {
  const json own = checkpoint.is_gguf() ? checkpoint.gguf_metadata().value("general.name", json()) : json();
  if (own.is_string()) return own.get<std::string>();
  std::error_code error;
  const bool is_path = fs::exists(checkpoint.path(), error) && fs::exists(path_or_id, error);
  const fs::path path = is_path ? fs::weakly_canonical(path_or_id, error) : fs::path(path_or_id);
  return fs::is_regular_file(path, error) ? path.stem().string() : path.filename().string();
}

/// Writes a checkpoint as the file that a plan's weight slots and a family's metadata make of it.
class Export {
 public:
  Export(const std::string& path_or_id, fs::path to, const QuantizeOptions& options)
      : options_(options),
        to_(std::move(to)),
        type_(file_type(options.type)),
        checkpoint_(Checkpoint::open(path_or_id, options.revision)) {
    LoadOptions load;
    load.ignore_config_keys = options.ignore_config_keys;
    plan_ = plan_of(checkpoint_, load);
    contents_.metadata["general.architecture"] = "";
    contents_.metadata["general.type"] = "model";
    contents_.metadata["general.name"] = name_of(checkpoint_, path_or_id);
  }

  Quantized run() {
    refuse_own_source(checkpoint_, to_);
    check_weights();
    describe_model();
    describe_tensors();
    refuse_another_meaning(model_, contents_, checkpoint_.path().string());
    describe_tokenizer();
    write();
    return std::move(out_);
  }

 private:
  /// All weights are there, in their shapes, and no others. They are bound on the meta device, where nothing is read;
  /// quantised matrices would be widened on the way there, so they pass for float32.
  void check_weights() const {
    if (!checkpoint_.is_gguf()) return void(Weights::bind(plan_, checkpoint_, at::kFloat, at::kMeta));
    GgufFile seen{checkpoint_.gguf_metadata(), std::nullopt, checkpoint_.tensors()};
    for (StoredTensor& tensor : seen.tensors)
      if (is_quantised(tensor.dtype) && tensor.shape.size() > 1) tensor.dtype = DType::F32;
    Weights::bind(plan_, Checkpoint::of_gguf(std::move(seen), checkpoint_.path()), at::kFloat, at::kMeta);
  }

  void describe_model() {
    const Family& family = find_family(plan_.family, checkpoint_.path().string());
    if (!family.gguf_of_config)
      throw BadConfig(checkpoint_.path().string() + ": GGUF has no form for '" + plan_.family +
                      "' that gemloupe knows; keep this checkpoint as it is.");
    Config text = plan_.text_config;
    text.attributes()["tie_word_embeddings"] = plan_.config.flag("tie_word_embeddings");
    model_ = family.gguf_of_config(text);
    json& metadata = contents_.metadata;
    metadata["general.architecture"] = model_.architecture;
    metadata["general.file_type"] = type_.number;
    metadata["general.quantization_version"] = 2;  // ggml's GGML_QNT_VERSION
    metadata.update(model_.metadata);
  }

  void describe_tensors() {
    for (const WeightSlot& slot : plan_.weights) {
      if (slot.tied_to) continue;
      if (slot.gguf.empty()) {
        ++left_out_;
        continue;
      }
      slots_.push_back(&slot);
      describe(slot.gguf, dtype_of(slot), slot.shape);
    }
    if (!model_.rope_freqs.empty()) {
      StoredTensor& freqs = describe("rope_freqs.weight", DType::F32, {static_cast<int64_t>(model_.rope_freqs.size())});
      freqs.data = reinterpret_cast<std::byte*>(model_.rope_freqs.data());
      freqs.bytes = model_.rope_freqs.size() * sizeof(float);
    }
    if (left_out_)
      note(std::to_string(left_out_) + " weights of towers and projectors are left out: the file is the text model's");
    if (!in_own_type_.empty())
      note(std::to_string(in_own_type_.size()) +
           " matrices whose rows are no multiple of 32 are not quantised, such as '" + in_own_type_[0] + "'");
  }

  StoredTensor& describe(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    StoredTensor& tensor = contents_.tensors.emplace_back();
    tensor.name = name, tensor.dtype = dtype, tensor.shape = shape;
    return tensor;
  }

  /// Vectors are float32, and so is a router's matrix, as in llama.cpp: it is small, and decides.
  DType dtype_of(const WeightSlot& slot) {
    if (slot.shape.size() < 2 || slot.gguf.ends_with("ffn_gate_inp.weight")) return DType::F32;
    if (slot.shape.back() % traits(type_.dtype).block_size == 0) return type_.dtype;
    in_own_type_.push_back(slot.gguf);
    const DType own = stored(slot).dtype;
    return own == DType::BF16 || own == DType::F16 ? own : DType::F32;
  }

  const StoredTensor& stored(const WeightSlot& slot) const {
    const StoredTensor* found = find_stored(plan_, checkpoint_, slot);
    check(found, "a weight that was bound is there");
    return *found;
  }

  void describe_tokenizer() {
    const TokenizerFiles& files = checkpoint_.tokenizer_files();
    if (!files.tokenizer_json && !files.tokenizer_model && !files.gguf)
      return note("the checkpoint has no tokenizer, and the file has none");
    contents_.vocabulary = gguf_vocabulary(files, model_.tokenizer, plan_.sizes.vocab_size);
    const std::string& model = contents_.vocabulary->model;
    contents_.metadata["tokenizer.ggml.pre"] = model == "llama" ? "default" : model;
    if (const size_t more = write_ends(end_tokens_of(plan_, checkpoint_.generation_config()), contents_))
      note(std::to_string(more) + " of the tokens that end a text find no place in the file");
    if (files.chat_template) contents_.metadata["tokenizer.chat_template"] = *files.chat_template;
  }

  void write() {
    GgufWriter writer(to_, contents_);
    const auto of = static_cast<int64_t>(contents_.tensors.size());
    for (size_t i = 0; i < contents_.tensors.size(); ++i) {
      const StoredTensor& tensor = contents_.tensors[i];
      if (tensor.data)
        writer.write(tensor.data, tensor.bytes);
      else
        write_rows(writer, stored(*slots_[i]), tensor.dtype, slots_[i]->gguf_adds_one && !checkpoint_.is_gguf());
      if (options_.on_tensor) options_.on_tensor(static_cast<int64_t>(i) + 1, of);
    }
    out_.bytes = writer.written();
    out_.tensors = of;
    writer.commit();
  }

  /// Some megabytes at a time, whatever the tensor's size.
  void write_rows(GgufWriter& writer, const StoredTensor& source, DType to, bool adds_one) {
    constexpr int64_t kElements = int64_t{1} << 20;
    if (source.dtype == to && !adds_one) return writer.write(source.data, source.bytes);
    const int64_t rows = row_count(source), width = source.shape.empty() ? 1 : source.shape.back();
    const int64_t step = std::max<int64_t>(1, kElements / std::max<int64_t>(width, 1));
    const size_t row_bytes = static_cast<size_t>(width / traits(to).block_size * traits(to).block_bytes);
    floats_.resize(static_cast<size_t>(step * width));
    bytes_.resize(static_cast<size_t>(step) * row_bytes);
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      at::parallel_for(
          0, count, std::max<int64_t>(1, 65536 / std::max<int64_t>(width, 1)), [&](int64_t at, int64_t end) {
            float* values = floats_.data() + at * width;
            dequantize_rows(source, first + at, end - at, values);
            if (adds_one) std::for_each(values, values + (end - at) * width, [](float& value) { value += 1; });
            gemloupe::quantize(to, values, (end - at) * width, bytes_.data() + static_cast<size_t>(at) * row_bytes);
          });
      writer.write(bytes_.data(), static_cast<size_t>(count) * row_bytes);
    }
  }

  void note(std::string text) { out_.notes.push_back(std::move(text)); }

  const QuantizeOptions& options_;
  fs::path to_;
  const FileType& type_;
  Checkpoint checkpoint_;
  Plan plan_;
  GgufModel model_;
  GgufFile contents_;  // what the file says; its tensors are those of slots_, and rope_freqs
  std::vector<const WeightSlot*> slots_;
  int64_t left_out_ = 0;
  std::vector<std::string> in_own_type_;
  std::vector<float> floats_;
  std::vector<std::byte> bytes_;
  Quantized out_;
};

}  // namespace

Quantized quantize(const std::string& path_or_id, const fs::path& to, const QuantizeOptions& options) {
  file_type(options.type);  // bad options are refused before anything is read
  check_target(to);
  return Export(path_or_id, to, options).run();
}

}  // namespace v0
}  // namespace gemloupe
