#include "gemloupe/store/strict_json.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/mapped_file.h"
#include "gemloupe/store/printable.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr size_t kDeepest = 64;

/// The receiver of nlohmann's SAX events. Its own DOM builder looks every key up in the ordered object it appends to,
/// which is quadratic, and lets a later key override an earlier one.
class Builder {
 public:
  Builder(std::string where, std::string_view skip) : where_(std::move(where)), skip_(skip) {}
  json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t&) { return false; }  // JSON text has none
  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }

  bool end_object() {
    if (skipped_ == 0) refuse_twins();
    return close();
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view reason = error.what();
    if (size_t end = reason.find("] "); end != std::string_view::npos) reason.remove_prefix(end + 2);
    throw BadCheckpoint(where_ + " is not valid JSON: " + printable(reason, 300) + "; get the file again");
  }

 private:
  bool skips() const { return !skip_.empty() && open_.size() == 1 && open_[0]->is_object() && key_ == skip_; }

  bool put(json value) {
    if (skipped_ > 0 || skips()) return true;
    append(std::move(value));
    return true;
  }

  json& append(json value) {
    if (open_.empty()) return root_ = std::move(value);
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    return parent.get_ref<json::object_t&>().emplace_back(std::move(key_), std::move(value)).second;
  }

  bool open(json value) {
    if (open_.size() + skipped_ >= kDeepest)
      throw BadCheckpoint(where_ + " nests deeper than " + std::to_string(kDeepest) + " levels; get the file again");
    if (skipped_ > 0 || skips()) {
      ++skipped_;
      return true;
    }
    open_.push_back(&append(std::move(value)));  // stays valid: only the innermost container grows
    return true;
  }

  bool close() {
    if (skipped_ > 0)
      --skipped_;
    else
      open_.pop_back();
    return true;
  }

  void refuse_twins() const {
    std::vector<std::string_view> keys;
    for (const auto& item : open_.back()->get_ref<const json::object_t&>()) keys.push_back(item.first);
    std::sort(keys.begin(), keys.end());
    const auto twin = std::adjacent_find(keys.begin(), keys.end());
    if (twin != keys.end())
      throw BadCheckpoint(where_ + " has the key " + in_quotes(*twin) + " twice; a key must be unique, take one out");
  }

  std::string where_;
  std::string_view skip_;
  json root_;
  std::vector<json*> open_;
  size_t skipped_ = 0;  // open containers inside the skipped value
  std::string key_;
};

}  // namespace

json parse_json(std::string_view text, const std::filesystem::path& path, std::string_view what,
                std::string_view skip) {
  Builder builder(path.string() + (what.empty() ? "" : ": " + std::string(what)), skip);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

json read_json(const std::filesystem::path& path, std::string_view skip) {
  return parse_json(MappedFile::open(path)->text(), path, {}, skip);
}

}  // namespace v0
}  // namespace gemloupe
