// What the program says beside its answer, all of it on standard error: the log, and progress.
#pragma once

#include <chrono>
#include <string>

namespace gemloupe::cli {

enum class Level { Debug, Info, Warning, Off };

/// From GEMLOUPE_LOG: debug, info or warning, the default. Errors: BadOption.
void read_log_level(bool quiet);
void log(Level level, const std::string& message);

/// Logs, at the debug level, how long its scope took.
class Timed {
 public:
  explicit Timed(std::string what) : what_(std::move(what)) {}
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  std::string what_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// "layer 12 of 26" in one line that rewrites itself, on a terminal only and only when the work takes longer than a
/// second.
class Progress {
 public:
  Progress(std::string what, int64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void at(int64_t done);

 private:
  std::string what_;
  int64_t total_;
  bool enabled_, shown_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_ = start_;
};

}  // namespace gemloupe::cli
