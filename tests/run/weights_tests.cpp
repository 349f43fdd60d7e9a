#include "gemloupe/base/errors.h"
#include "gemloupe/run/weights.h"
#include "run/tiny_model.h"
#include "store/gguf_builder.h"

using namespace run_tests;
using store_tests::check_message;
using store_tests::content;
using store_tests::message_of;

namespace {

const std::string kMatrix = "model.layers.1.mlp.down_proj.weight";

/// A checkpoint on disk, to be changed before it is opened.
struct OnDisk {
  json config = tiny_config();
  std::shared_ptr<const Plan> plan = tiny_plan(config);
  Tensors tensors = random_weights(*plan);
  TempFolder folder;

  explicit OnDisk(const json& changes = json::object(), at::ScalarType dtype = at::kFloat)
      : config(tiny_config(changes)), plan(tiny_plan(config)), tensors(random_weights(*plan, dtype)) {}

  std::filesystem::path file() const { return folder.path() / "model.safetensors"; }
  Checkpoint open() const {
    write_checkpoint(folder, config, tensors);
    return Checkpoint::open(folder.path().string());
  }
  Weights bind(at::ScalarType dtype = at::kFloat) const { return Weights::bind(*plan, open(), dtype, at::kCPU); }

  WeightId id(const std::string& name) const {
    for (size_t i = 0; i < plan->weights.size(); ++i)
      if (plan->weights[i].name == name) return static_cast<WeightId>(i);
    FAIL("no weight ", name);
    return -1;
  }

  void refused(std::initializer_list<std::string_view> parts) const {
    check_message(message_of<BadCheckpoint>([&] { bind(); }), {folder.path().string()});
    check_message(message_of<BadCheckpoint>([&] { bind(); }), parts);
  }
};

}  // namespace

TEST_CASE("weights: of the dtype that is asked for they stay in the file's pages") {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const OnDisk disk(json::object(), dtype);
    const Checkpoint checkpoint = disk.open();
    const Weights weights = Weights::bind(*disk.plan, checkpoint, dtype, at::kCPU);
    CHECK((weights.dtype() == dtype));
    for (size_t i = 0; i < disk.plan->weights.size(); ++i) {
      const WeightSlot& slot = disk.plan->weights[i];
      if (slot.tied_to) continue;
      const at::Tensor& tensor = weights.at(static_cast<WeightId>(i));
      CHECK(tensor.data_ptr() == checkpoint.find(slot.name)->data);
      CHECK(same_bits(tensor, disk.tensors.at(slot.name)));
    }
  }
}

TEST_CASE("weights: of another dtype they are converted") {
  const OnDisk disk;
  const Weights weights = disk.bind(at::kBFloat16);
  for (size_t i = 0; i < disk.plan->weights.size(); ++i)
    if (!disk.plan->weights[i].tied_to)
      CHECK(same_bits(weights.at(static_cast<WeightId>(i)),
                      disk.tensors.at(disk.plan->weights[i].name).to(at::kBFloat16)));
}

TEST_CASE("weights: an edit in place is seen by this process, reaches the tied head, never the file") {
  const OnDisk disk;
  const Checkpoint checkpoint = disk.open();
  const std::string before = content(disk.file());
  const Weights weights = Weights::bind(*disk.plan, checkpoint, at::kFloat, at::kCPU);
  const at::Tensor& head = weights.at(disk.id("lm_head.weight"));
  const at::Tensor& embedding = weights.at(disk.id("model.embed_tokens.weight"));
  CHECK(head.data_ptr() == embedding.data_ptr());
  embedding.mul_(2);
  for (size_t i = 0; i < disk.plan->weights.size(); ++i) weights.at(static_cast<WeightId>(i)).add_(1);
  CHECK(same_bits(head, disk.tensors.at("model.embed_tokens.weight") * 2 + 1 + 1));  // tied: added to twice
  CHECK(content(disk.file()) == before);
  const Checkpoint again = Checkpoint::open(disk.folder.path().string());
  const Weights untouched = Weights::bind(*disk.plan, again, at::kFloat, at::kCPU);
  CHECK(same_bits(untouched.at(disk.id(kMatrix)), disk.tensors.at(kMatrix)));
}

TEST_CASE("weights: tensors keep their file mapped, whatever else is gone") {
  at::Tensor kept, expected;
  {
    const OnDisk disk;
    kept = disk.bind().at(disk.id(kMatrix));
    expected = disk.tensors.at(kMatrix).clone();
  }
  CHECK(same_bits(kept, expected));
  kept.zero_();
}

TEST_CASE("weights: an untied head has its own, a repeated tied one is not read") {
  const OnDisk untied(json{{"tie_word_embeddings", false}});
  const Weights weights = untied.bind();
  CHECK(same_bits(weights.at(untied.id("lm_head.weight")), untied.tensors.at("lm_head.weight")));
  CHECK(weights.at(untied.id("lm_head.weight")).data_ptr() !=
        weights.at(untied.id("model.embed_tokens.weight")).data_ptr());
  OnDisk repeated;
  repeated.tensors["lm_head.weight"] = at::zeros({61, 32});
  const Weights tied = repeated.bind();
  CHECK(same_bits(tied.at(repeated.id("lm_head.weight")), repeated.tensors["model.embed_tokens.weight"]));
}

TEST_CASE("weights: the names of language models cut out of a wrapper") {
  for (const char* prefix : {"language_model.model.", "model.language_model.", ""}) {
    CAPTURE(prefix);
    OnDisk disk;
    Tensors renamed;
    for (const auto& [name, tensor] : disk.tensors) renamed[prefix + name.substr(6)] = tensor;
    disk.tensors = renamed;
    const Weights weights = disk.bind();
    CHECK(same_bits(weights.at(disk.id(kMatrix)), renamed.at(prefix + kMatrix.substr(6))));
  }
}

TEST_CASE("weights: what is missing is named") {
  OnDisk disk;
  SUBCASE("one") {
    disk.tensors.erase(kMatrix);
    disk.refused({"1 weights", "missing", "'" + kMatrix + "'", "shard"});
  }
  SUBCASE("many: a few of them") {
    for (auto it = disk.tensors.begin(); it != disk.tensors.end();)
      it = it->first.find("layers.2") != std::string::npos ? disk.tensors.erase(it) : std::next(it);
    disk.refused({"13 weights", "'model.layers.2.input_layernorm.weight'", " and "});
    CHECK(message_of<BadCheckpoint>([&] { disk.bind(); }).size() < 600);
  }
}

TEST_CASE("weights: what is left over is named, unless it is known to be of no use") {
  OnDisk disk;
  disk.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::zeros({3});
  CHECK_NOTHROW(disk.bind());
  disk.tensors["model.layers.3.input_layernorm.weight"] = at::zeros({32});
  disk.refused({"no place", "'model.layers.3.input_layernorm.weight'"});
}

TEST_CASE("weights: a shape that contradicts the config") {
  OnDisk disk;
  disk.tensors.at(kMatrix) = at::zeros({40, 32});
  disk.refused({"'" + kMatrix + "'", "[40, 32]", "[32, 40]", "model.safetensors"});
  disk.tensors.at(kMatrix) = at::zeros({32 * 40});
  disk.refused({"'" + kMatrix + "'", "[1280]", "[32, 40]"});
}

TEST_CASE("weights: integers are no weights") {
  OnDisk disk;
  disk.tensors.at(kMatrix) = at::zeros({32, 40}, at::kInt);
  disk.refused({"'" + kMatrix + "'", "int32", "floating-point"});
}

TEST_CASE("weights: a file may mix floating dtypes") {
  OnDisk disk;
  disk.tensors.at(kMatrix) = disk.tensors[kMatrix].to(at::kBFloat16);
  const Weights weights = disk.bind();
  CHECK(same_bits(weights.at(disk.id(kMatrix)), disk.tensors.at(kMatrix).to(at::kFloat)));
}

namespace {

/// A GGUF of the tiny model: norms as 1 + weight in float32, one matrix in Q8_0, the rest in float32.
struct GgufOnDisk {
  std::shared_ptr<const Plan> plan = tiny_plan();
  Tensors tensors = random_weights(*plan);  // by the reference's names, what the GGUF amounts to
  TempFolder folder;
  std::filesystem::path file;

  GgufOnDisk() {
    store_tests::GgufBuilder builder;
    builder.pair("general.architecture", store_tests::kString, store_tests::GgufBuilder::text("gemma3"));
    std::string data;
    for (const WeightSlot& weight : plan->weights) {
      if (weight.tied_to) continue;
      at::Tensor& tensor = tensors[weight.name];
      std::vector<uint64_t> innermost_first(weight.shape.rbegin(), weight.shape.rend());
      const bool quantised = weight.name == "model.embed_tokens.weight";
      builder.tensor(weight.gguf, innermost_first, quantised ? 8 : 0, data.size());
      if (quantised)
        data += quantise(tensor);
      else
        data += bytes(weight.gguf_adds_one ? tensor + 1 : tensor);
      if (weight.gguf_adds_one) tensor = (tensor + 1) - 1;
      data.append((32 - data.size() % 32) % 32, '\0');
    }
    file = folder.add("m.gguf", builder.file(0) + data);
  }

  static std::string bytes(const at::Tensor& tensor) {
    return {static_cast<const char*>(tensor.contiguous().data_ptr()), tensor.nbytes()};
  }

  /// Blocks of 32: a half and 32 signed bytes. `tensor` becomes what they stand for.
  static std::string quantise(at::Tensor& tensor) {
    const at::Tensor blocks = tensor.view({-1, 32});
    const at::Tensor scale = (blocks.abs().amax(1) / 127).to(at::kHalf);
    const at::Tensor whole = (blocks / scale.to(at::kFloat).unsqueeze(1)).round().clamp(-127, 127).to(at::kChar);
    std::string out;
    for (int64_t i = 0; i < blocks.size(0); ++i) out += bytes(scale[i]) + bytes(whole[i]);
    tensor = (whole.to(at::kFloat) * scale.to(at::kFloat).unsqueeze(1)).view(tensor.sizes());
    return out;
  }
};

}  // namespace

TEST_CASE("weights: a GGUF's, dequantised, norms without their 1") {
  const GgufOnDisk disk;
  const Checkpoint checkpoint = Checkpoint::open(disk.file.string());
  CHECK((own_dtype(checkpoint) == at::kFloat));
  const Weights weights = Weights::bind(*disk.plan, checkpoint, at::kFloat, at::kCPU);
  for (size_t i = 0; i < disk.plan->weights.size(); ++i) {
    const WeightSlot& slot = disk.plan->weights[i];
    CAPTURE(slot.name);
    const std::string& name = slot.tied_to ? disk.plan->weights[static_cast<size_t>(*slot.tied_to)].name : slot.name;
    CHECK(same_bits(weights.at(static_cast<WeightId>(i)), disk.tensors.at(name)));
  }
}

TEST_CASE("weights: what is missing in a GGUF goes by its name there") {
  GgufOnDisk disk;
  const auto larger = tiny_plan(tiny_config({{"num_hidden_layers", 4}}));
  CHECK_REFUSED(BadCheckpoint, Weights::bind(*larger, Checkpoint::open(disk.file.string()), at::kFloat, at::kCPU),
                "m.gguf", "'blk.3.attn_norm.weight'", "missing");
  const auto smaller = tiny_plan(tiny_config({{"num_hidden_layers", 2}}));
  CHECK_REFUSED(BadCheckpoint, Weights::bind(*smaller, Checkpoint::open(disk.file.string()), at::kFloat, at::kCPU),
                "m.gguf", "'blk.2.attn_k.weight'", "no place");
}

TEST_CASE("dtypes: names") {
  CHECK((parse_dtype("float32") == at::kFloat));
  CHECK((parse_dtype("torch.bfloat16") == at::kBFloat16));
  CHECK((parse_dtype("half") == at::kHalf));
  CHECK((parse_dtype("double") == at::kDouble));
  for (const char* bad : {"", "torch.", "int64", "float8", "Float32", "bf16", "torch.torch.float32"})
    CHECK_REFUSED(BadOption, parse_dtype(bad), bad, "'float32'", "'bfloat16'");
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    CHECK((parse_dtype(dtype_name(dtype)) == dtype));
  CHECK(dtype_name(at::kLong) == "int64");
  for (int i = 0; i <= static_cast<int>(DType::Q6_K); ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(dtype_name(scalar_type(dtype)) == (is_quantised(dtype) ? "float32" : traits(dtype).name));
  }
}
