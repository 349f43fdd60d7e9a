#include "save.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"
#include "gemloupe/base/text.h"
#include "gemloupe/run/weights.h"
#include "gemloupe/store/atomic_file.h"
#include "gemloupe/store/npy.h"
#include "gemloupe/store/npz.h"
#include "gemloupe/store/safetensors.h"

namespace gemloupe::cli {
namespace fs = std::filesystem;
namespace {

bool is_folder(const std::string& target) {
  return target.ends_with('/') || fs::is_directory(target);
}

// Tensors as arrays, and what keeps their memory.
struct Arrays {
  std::vector<ArrayToWrite> list;
  std::vector<at::Tensor> tensors;
};

// numpy has no bfloat16: float32 holds all of it.
Arrays arrays_of(const std::vector<Saved>& values, bool for_numpy) {
  Arrays arrays;
  for (const Saved& value : values) {
    at::Tensor tensor = value.tensor.detach().to(at::kCPU).contiguous();
    if (for_numpy && tensor.scalar_type() == at::kBFloat16) tensor = tensor.to(at::kFloat);
    auto dtype = dtype_from_name(dtype_name(tensor.scalar_type()));
    check(dtype.has_value(), "a value's dtype can be written");
    arrays.list.push_back(
        {value.name, *dtype, tensor.sizes().vec(), static_cast<const std::byte*>(tensor.const_data_ptr())});
    arrays.tensors.push_back(std::move(tensor));
  }
  return arrays;
}

std::map<std::string, std::string> texts_of(const json& origin) {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : origin.items())
    texts[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return texts;
}

// A folder's lock: held while a run writes into it, and gone with the run however that ends. -1: another has it.
int lock_of(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

// Removed unless it is kept: a new folder appears whole.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& target) : target_(target), work_(target) {
    remove_abandoned();
    if (fs::is_directory(target)) return;
    work_ += kMark + std::to_string(::getpid());
    std::error_code error;
    if (!fs::create_directory(work_, error))
      throw CannotWrite(target.string() + ": cannot be created: " + error.message() + ".");
    lock_ = lock_of(work_);
  }
  ~NewFolder() {
    std::error_code error;
    if (work_ != target_) fs::remove_all(work_, error);
    if (lock_ >= 0) ::close(lock_);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const fs::path& path() const { return work_; }
  void keep() {
    std::error_code error;
    if (work_ != target_) fs::rename(work_, target_, error);
    if (error) throw CannotWrite(target_.string() + ": cannot be written: " + error.message() + ".");
    work_ = target_;
  }

 private:
  static constexpr const char* kMark = ".gemloupe-";

  // What runs left that were killed: a signal handler cannot remove a folder with files.
  void remove_abandoned() const {
    const std::string prefix = target_.filename().string() + kMark;
    std::error_code error;
    std::vector<fs::path> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(fs::absolute(target_).parent_path(), error)) {
      const std::string name = entry.path().filename().string();
      if (name.size() > prefix.size() && name.starts_with(prefix) &&
          name.find_first_not_of("0123456789", prefix.size()) == name.npos)
        found.push_back(entry.path());
    }
    for (const fs::path& folder : found) {
      const int lock = lock_of(folder);
      if (lock < 0) continue;
      fs::remove_all(folder, error);
      ::close(lock);
    }
  }

  fs::path target_, work_;
  int lock_ = -1;
};

void save_folder(const std::string& target, const Arrays& arrays, const json& origin) {
  fs::path path(target);
  if (!path.has_filename()) path = path.parent_path();
  NewFolder folder(path);
  for (const ArrayToWrite& array : arrays.list) {
    throw_if_interrupted();
    write_npy(folder.path() / (array.name + ".npy"), array);
  }
  write_file(folder.path() / "metadata.json", origin.dump(2) + "\n");
  folder.keep();
}

std::vector<std::pair<std::string, json>> statistics(const at::Tensor& tensor) {
  std::vector<std::pair<std::string, json>> facts{{"shape", tensor.sizes().vec()},
                                                  {"dtype", dtype_name(tensor.scalar_type())}};
  at::Tensor numbers = tensor.to(at::kCPU, at::kDouble);
  const bool some = numbers.numel() > 0;
  auto add = [&](const char* name, const auto& of) {
    facts.emplace_back(name, some ? json(of().template item<double>()) : json());
  };
  add("mean", [&] { return numbers.mean(); });
  add("std", [&] { return numbers.std(false); });
  add("min", [&] { return numbers.min(); });
  add("max", [&] { return numbers.max(); });
  return facts;
}

}  // namespace

void check_target(const std::string& target) {
  if (is_folder(target)) {
    const fs::path folder = fs::path(target).parent_path();
    if (fs::symlink_status(folder).type() != fs::file_type::not_found && !fs::is_directory(folder))
      throw CannotWrite(target + ": cannot be written: '" + folder.string() + "' is there, and is no folder.");
    return;
  }
  if (!target.ends_with(".safetensors") && !target.ends_with(".npz"))
    throw BadOption("--out '" + target + "' is none of x.safetensors, x.npz and a folder, which ends in /.");
  fs::path folder = fs::path(target).parent_path();
  if (!folder.empty() && !fs::is_directory(folder))
    throw CannotWrite(target + ": cannot be written: the folder '" + folder.string() +
                      "' does not exist; create it first.");
}

void save(const std::string& target, const std::vector<Saved>& values, const json& origin) {
  bool as_safetensors = target.ends_with(".safetensors") && !is_folder(target);
  Arrays arrays = arrays_of(values, !as_safetensors);
  if (as_safetensors)
    write_safetensors(target, arrays.list, texts_of(origin));
  else if (is_folder(target))
    save_folder(target, arrays, origin);
  else
    write_npz(target, arrays.list, texts_of(origin));
}

Document summary(const std::vector<Saved>& values) {
  Document::Table table{"", "", {"value"}, {}};
  for (const Saved& value : values) {
    std::vector<json> row{value.name};
    for (auto& [name, fact] : statistics(value.tensor)) {
      if (table.rows.empty()) table.columns.push_back(name);
      row.push_back(name == "shape" ? json(shape_text(value.tensor.sizes().vec())) : std::move(fact));
    }
    table.rows.push_back(std::move(row));
  }
  return {"", "", {{"values", "", {table}}}, {}};
}

json summary_json(const std::vector<Saved>& values, const json& origin) {
  json out = origin;
  json& list = out["values"] = json::array();
  for (const Saved& value : values) {
    json& entry = list.emplace_back(json{{"name", value.name}});
    for (auto& [name, fact] : statistics(value.tensor)) entry[name] = std::move(fact);
  }
  return out;
}

}  // namespace gemloupe::cli
