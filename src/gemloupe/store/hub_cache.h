// The local cache of the Hugging Face hub, as huggingface_hub lays it out. Nothing is ever downloaded.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gemloupe {
inline namespace v0 {

/// "google/gemma-3-270m": a name, or an organisation and a name.
bool is_hub_id(std::string_view text);

/// A leading `~`, and `$NAME` or `${NAME}`, as the shell would replace them; an unset variable stays as it is written.
std::filesystem::path expand_path(std::string_view text);

/// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder();

/// The ids of the models that the cache holds.
std::vector<std::string> hub_cache_ids();

/// The snapshot folder of a model. `revision` is a branch, a tag or a commit (or the beginning of one); none: main.
/// NotFound says where it looked and how to get the files.
std::filesystem::path find_in_hub_cache(const std::string& id, const std::optional<std::string>& revision);

}  // namespace v0
}  // namespace gemloupe
