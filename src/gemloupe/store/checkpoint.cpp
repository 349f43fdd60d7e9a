#include "gemloupe/store/checkpoint.h"

#include <algorithm>
#include <utility>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/store/digest.h"
#include "gemloupe/store/gguf.h"
#include "gemloupe/store/hub_cache.h"
#include "gemloupe/store/mapped_file.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/safetensors.h"
#include "gemloupe/store/strict_json.h"
#include "gemloupe/store/tensor_bytes.h"
#include "gemloupe/store/tokenizer_files.h"

namespace gemloupe {
inline namespace v0 {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

json read_json_if_there(const fs::path& path) {
  return is_there(path) ? read_json(path) : json();
}

std::vector<fs::path> files_in(const fs::path& folder, const std::vector<std::string>& extensions) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (std::find(extensions.begin(), extensions.end(), at->path().extension()) != extensions.end())
      found.push_back(at->path());
  std::sort(found.begin(), found.end());
  return found;
}

std::string names(const std::vector<fs::path>& files) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min<size_t>(files.size(), 8); ++i) texts.push_back(files[i].filename().string());
  return quoted_list(texts, " and ") + (files.size() > 8 ? ", …" : "");
}

/// Something on disk, or a snapshot in the hub cache.
fs::path locate(const std::string& path_or_id, const std::optional<std::string>& revision) {
  if (path_or_id.empty()) throw NotFound("the checkpoint's path is empty; pass a folder, a file or a hub id");
  const fs::path path = expand_path(path_or_id);
  if (is_there(path)) return path;
  const bool is_file_name = path.extension() == ".gguf" || path.extension() == ".safetensors";
  if (!is_file_name && is_hub_id(path_or_id)) return find_in_hub_cache(path_or_id, revision);
  throw NotFound(in_quotes(path.string()) +
                 ": no such file or folder; pass a folder with config.json and "
                 "model.safetensors, a .safetensors or .gguf file, or a hub id such as 'google/gemma-3-270m'");
}

}  // namespace

/// Fills a Checkpoint from what lies at a path.
class CheckpointReader {
 public:
  Checkpoint of_gguf(GgufFile contents, const fs::path& path) {
    sort_by_name(contents.tensors);
    take_gguf(std::move(contents), path);
    return std::move(out_);
  }

  Checkpoint open(const fs::path& path, Checkpoint::Weights weights) {
    weights_ = weights;
    std::error_code error;
    out_.path_ = path;
    if (fs::is_directory(path, error))
      open_folder(path);
    else if (path.extension() == ".safetensors")
      open_safetensors(path);
    else
      open_gguf(path);  // refuses what does not begin with GGUF
    out_.digest_ = digest_of(out_.config_, out_.gguf_metadata_, out_.tensors_);
    return std::move(out_);
  }

 private:
  void open_folder(const fs::path& folder) {
    if (is_there(folder / "config.json")) {
      read_configs(folder);
      return read_folder_weights(folder);
    }
    std::vector<fs::path> ggufs = files_in(folder, {".gguf"});
    std::erase_if(ggufs, is_later_gguf_split);
    if (ggufs.size() == 1) return open_gguf(ggufs[0]);
    if (ggufs.size() > 1)
      throw BadCheckpoint(folder.string() + ": holds several GGUF files, " + names(ggufs) + "; pass the path of one");
    refuse_without_config(folder);
  }

  [[noreturn]] static void refuse_without_config(const fs::path& folder) {
    if (is_there(folder / "adapter_config.json"))
      throw BadCheckpoint(folder.string() +
                          ": is an adapter (it has adapter_config.json, no config.json); merge it "
                          "into its base model and pass the merged folder");
    throw BadCheckpoint(folder.string() +
                        ": has no config.json, so this is no checkpoint; pass the folder that holds "
                        "config.json and model.safetensors");
  }

  void read_configs(const fs::path& folder) {
    out_.config_ = read_json(folder / "config.json");
    if (!out_.config_.is_object())
      throw BadCheckpoint((folder / "config.json").string() + ": expected a JSON object, found " +
                          out_.config_.type_name() + "; get the file again");
    out_.generation_config_ = read_json_if_there(folder / "generation_config.json");
    out_.tokenizer_files_ = find_tokenizer_files(folder);
  }

  void read_folder_weights(const fs::path& folder) {
    const fs::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
    if (is_there(single)) {
      out_.tensors_ = read_safetensors(single).tensors;
    } else if (is_there(index)) {
      out_.tensors_ = read_safetensors_shards(index);
    } else {
      const std::vector<fs::path> files = files_in(folder, {".safetensors"});
      if (files.size() == 1)
        out_.tensors_ = read_safetensors(files[0]).tensors;
      else if (files.size() > 1)
        throw BadCheckpoint(folder.string() + ": holds several files, " + names(files) +
                            ", and no model.safetensors.index.json that says what is where; get the index, or pass "
                            "the path of one file");
      else if (weights_ == Checkpoint::Weights::Required)
        refuse_without_weights(folder);
    }
  }

  [[noreturn]] static void refuse_without_weights(const fs::path& folder) {
    const std::vector<fs::path> pickles = files_in(folder, {".bin", ".pt", ".pth", ".ckpt"});
    if (pickles.empty())
      throw BadCheckpoint(folder.string() +
                          ": has config.json, but no weights: expected model.safetensors, or shards "
                          "with model.safetensors.index.json; download the checkpoint again");
    throw BadCheckpoint(
        folder.string() + ": its weights are pickled (" + names(pickles) +
        "), which gemloupe does not read: loading a pickle can run code. Convert them once, with transformers: "
        "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)");
  }

  void open_safetensors(const fs::path& file) {
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    const fs::path index = folder / "model.safetensors.index.json";
    if (is_there(index) && !is_there(folder / "model.safetensors"))
      throw BadCheckpoint(file.string() + ": is one shard of several (" + index.string() + "); pass the folder");
    if (!is_there(folder / "config.json")) refuse_without_config(folder);
    read_configs(folder);
    out_.tensors_ = read_safetensors(file).tensors;
  }

  void open_gguf(const fs::path& file) { take_gguf(read_gguf(file), file); }

  void take_gguf(GgufFile gguf, const fs::path& file) {
    out_.path_ = file;
    out_.gguf_metadata_ = std::move(gguf.metadata);
    out_.tensors_ = std::move(gguf.tensors);
    out_.tokenizer_files_.gguf = std::move(gguf.vocabulary);
    const auto chat = out_.gguf_metadata_.find("tokenizer.chat_template");
    if (chat != out_.gguf_metadata_.end() && chat->is_string())
      out_.tokenizer_files_.chat_template = chat->get<std::string>();
  }

  Checkpoint out_;
  Checkpoint::Weights weights_ = Checkpoint::Weights::Required;
};

Checkpoint Checkpoint::open(const std::string& path_or_id, const std::optional<std::string>& revision,
                            Weights weights) {
  return CheckpointReader().open(locate(path_or_id, revision), weights);
}

Checkpoint Checkpoint::of_gguf(GgufFile contents, const fs::path& path) {
  return CheckpointReader().of_gguf(std::move(contents), path);
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const StoredTensor& tensor, std::string_view key) { return tensor.name < key; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

}  // namespace v0
}  // namespace gemloupe
