#include "gemloupe/run/read_ahead.h"

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <string>

#include "gemloupe/base/errors.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

int64_t number_in(const std::string& path, const std::string& key = "") {
  std::ifstream file(path);
  std::string word;
  if (!key.empty())
    while (file >> word && word != key) {
    }
  int64_t value = 0;
  return file >> value ? value : kUnlimited;
}

/// "800M" in bytes.
int64_t parse_memory(const std::string& text) {
  size_t end = 0;
  double value = 0;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string units = "KMGT", unit = text.substr(end);
  const size_t power = unit.empty() ? 0 : units.find(unit[0]) + 1;
  if (end == 0 || unit.size() > 1 || (!unit.empty() && power == 0) || !(value > 0) || value > 1e15)
    throw BadOption("GEMLOUPE_MEMORY is '" + text + "'; it must be a size such as 800M or 16G.");
  for (size_t i = 0; i < power; ++i) value *= 1024;
  return static_cast<int64_t>(std::min(value, 1e18));
}

/// Advice fails where the kernel is too old or the file not ours: then its own judgement stands.
void advise(const ReadAhead::Range& range, int advice) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<size_t>(range.first);
  // Whole pages: for reading all that are touched, for giving back none that somebody else's bytes share.
  const bool inward = advice == MADV_PAGEOUT;
  const size_t first = inward ? (address + page - 1) / page * page : address / page * page;
  const size_t last = inward ? (address + range.size) / page * page : address + range.size;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, advice);
}

size_t size_of(const std::vector<ReadAhead::Range>& ranges) {
  size_t size = 0;
  for (const auto& range : ranges) size += range.size;
  return size;
}

}  // namespace

namespace {

/// What the control groups of this process leave it: /proc/self/cgroup has a line a hierarchy, "ID:controllers:path".
int64_t control_group_limit() {
  int64_t least =
      std::min(number_in("/sys/fs/cgroup/memory.max"), number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) least = std::min(least, number_in("/sys/fs/cgroup" + path + "/memory.max"));
    if (controllers.find("memory") != std::string::npos)
      least = std::min(least, number_in("/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes"));
  }
  return least;
}

}  // namespace

int64_t memory_to_fill() {
  if (const char* told = std::getenv("GEMLOUPE_MEMORY")) return parse_memory(told);
  const int64_t available = number_in("/proc/meminfo", "MemAvailable:");
  return std::min(available == kUnlimited ? kUnlimited : available * 1024, control_group_limit());
}

std::shared_ptr<ReadAhead> ReadAhead::make(const Plan& plan, const std::vector<Range>& mapped, int64_t memory) {
  // A stage is a block; what comes before and behind the blocks makes one each.
  std::vector<Position> starts{0};
  for (const Module& module : plan.modules)
    if (module.parent >= 0 && plan.module(module.parent).name == "layers" && module.end > module.first)
      starts.push_back(module.first);
  starts.push_back(plan.head);
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  std::vector<int> stage_of(plan.steps.size());
  std::vector<std::vector<Range>> stages(starts.size());
  std::set<std::byte*> seen;
  for (size_t step = 0; step < plan.steps.size(); ++step) {
    auto next = std::upper_bound(starts.begin(), starts.end(), static_cast<Position>(step));
    const auto stage = static_cast<size_t>(next - starts.begin() - 1);
    stage_of[step] = static_cast<int>(stage);
    const Op& op = plan.steps[step].op;
    // A look-up and a mixture take some rows of a weight, not the whole.
    if (std::holds_alternative<op::Embed>(op) || std::holds_alternative<op::ExpertsGateUp>(op) ||
        std::holds_alternative<op::ExpertsDown>(op))
      continue;
    for (WeightId id : plan.steps[step].weights) {
      const Range& range = mapped[static_cast<size_t>(id)];
      if (range.size && seen.insert(range.first).second) stages[stage].push_back(range);
    }
  }
  size_t all = 0, largest = 0;
  for (const Range& range : mapped) all += range.size;
  for (const auto& stage : stages) largest = std::max(largest, size_of(stage));
  // A tenth is left for activations and for everybody else.
  const auto fits = static_cast<size_t>(std::max<int64_t>(0, memory / 10 * 9));
  if (all <= fits) return nullptr;
  // Two stages pass through, this one and the next; as many as fit beside them stay.
  size_t kept = 0, held = 2 * largest;
  while (kept < stages.size() && held + size_of(stages[kept]) <= fits) held += size_of(stages[kept++]);
  return std::shared_ptr<ReadAhead>(new ReadAhead(std::move(stage_of), std::move(stages), kept));
}

ReadAhead::ReadAhead(std::vector<int> stage_of, std::vector<std::vector<Range>> stages, size_t kept)
    : stage_of_(std::move(stage_of)), stages_(std::move(stages)), kept_(kept), worker_([this] { work(); }) {}

ReadAhead::~ReadAhead() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  worker_.join();
}

void ReadAhead::enter(Position step) {
  const int stage = stage_of_[static_cast<size_t>(step)];
  std::lock_guard lock(mutex_);
  if (stage == current_) return;
  current_ = stage;
  wake_.notify_one();
}

/// Reads this stage and the next, gives back the one before: beside the run, which waits only for pages that are not
/// there yet.
void ReadAhead::work() {
  int done = -1;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return ends_ || current_ != done; });
    if (ends_) return;
    const int last = done, stage = done = current_;
    lock.unlock();
    const auto count = static_cast<int>(stages_.size());
    // Those that the run has left since, also where it was quicker than this thread.
    for (int left = last; left >= 0 && left != stage; left = (left + 1) % count)
      if (left >= static_cast<int>(kept_))
        for (const Range& range : stages_[static_cast<size_t>(left)]) advise(range, MADV_PAGEOUT);
    for (int ahead : {stage, (stage + 1) % count})
      for (const Range& range : stages_[static_cast<size_t>(ahead)]) advise(range, MADV_POPULATE_READ);
    lock.lock();
  }
}

void ReadAhead::use_experts(const at::Tensor& indices, const at::Tensor& weight) const {
  if (!weight.is_contiguous() || weight.dim() < 2) return;
  const at::Tensor flat = indices.reshape({-1}).to(at::kCPU, at::kLong).contiguous();
  const auto* first = flat.const_data_ptr<int64_t>();
  const std::set<int64_t> chosen(first, first + flat.numel());
  const size_t slice = weight.nbytes() / static_cast<size_t>(std::max<int64_t>(weight.size(0), 1));
  for (int64_t expert : chosen)
    if (expert >= 0 && expert < weight.size(0))
      advise({static_cast<std::byte*>(weight.data_ptr()) + static_cast<size_t>(expert) * slice, slice}, MADV_WILLNEED);
}

}  // namespace v0
}  // namespace gemloupe
