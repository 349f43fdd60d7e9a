#include "log.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "gemloupe/base/errors.h"

namespace gemloupe::cli {
namespace {
Level least = Level::Warning;
using Clock = std::chrono::steady_clock;
constexpr const char* kNames[] = {"debug", "info", "warning"};
}  // namespace

void read_log_level(bool quiet) {
  if (quiet) least = Level::Off;
  const char* asked = std::getenv("GEMLOUPE_LOG");
  if (!asked || !*asked) return;
  for (int i = 0; i < 3; ++i)
    if (std::string(asked) == kNames[i]) {
      least = static_cast<Level>(i);
      return;
    }
  throw BadOption("GEMLOUPE_LOG is '" + std::string(asked) + "'; it takes debug, info or warning.");
}

void log(Level level, const std::string& message) {
  if (level >= least) std::fprintf(stderr, "gemloupe: %s: %s\n", kNames[static_cast<int>(level)], message.c_str());
}

Timed::~Timed() {
  if (least != Level::Debug) return;
  double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  char text[32];
  std::snprintf(text, sizeof text, " in %.1f ms", seconds * 1e3);
  log(Level::Debug, what_ + text);
}

Progress::Progress(std::string what, int64_t total, bool quiet)
    : what_(std::move(what)), total_(total), enabled_(!quiet && ::isatty(STDERR_FILENO)) {}

void Progress::at(int64_t done) {
  Clock::time_point now = Clock::now();
  if (!enabled_ || now - start_ < std::chrono::seconds(1) || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  std::fprintf(stderr, "\r\033[K%s %lld of %lld", what_.c_str(), static_cast<long long>(done),
               static_cast<long long>(total_));
}

Progress::~Progress() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
}

}  // namespace gemloupe::cli
