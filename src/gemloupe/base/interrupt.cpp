#include "gemloupe/base/interrupt.h"

#include <atomic>
#include <chrono>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {
namespace {
std::atomic<bool> requested{false};
std::function<void()> host_poll;
using Clock = std::chrono::steady_clock;
thread_local Clock::time_point last_poll{};
}  // namespace

void request_interrupt() {
  requested.store(true, std::memory_order_relaxed);
}

void set_interrupt_poll(std::function<void()> poll) {
  host_poll = std::move(poll);
}

void throw_if_interrupted() {
  if (requested.load(std::memory_order_relaxed) && requested.exchange(false)) throw Interrupted("interrupted.");
  if (!host_poll) return;
  Clock::time_point now = Clock::now();
  if (now - last_poll < std::chrono::milliseconds(50)) return;
  last_poll = now;
  host_poll();
}

}  // namespace v0
}  // namespace gemloupe
