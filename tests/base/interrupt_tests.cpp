#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"

using namespace gemloupe;

namespace {

/// A host's check for the length of a test.
struct Poll {
  explicit Poll(std::function<void()> poll) { set_interrupt_poll(std::move(poll)); }
  ~Poll() { set_interrupt_poll(nullptr); }
};

void wait() {
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
}

}  // namespace

TEST_CASE("interrupt: one request is thrown once") {
  CHECK_NOTHROW(throw_if_interrupted());
  request_interrupt();
  request_interrupt();
  CHECK_THROWS_AS(throw_if_interrupted(), Interrupted);
  CHECK_NOTHROW(throw_if_interrupted());
}

TEST_CASE("interrupt: one of several threads gets it") {
  std::atomic<int> caught{0};
  request_interrupt();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      try {
        throw_if_interrupted();
      } catch (const Interrupted&) {
        ++caught;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(caught == 1);
}

TEST_CASE("interrupt: the host is asked now and then, not at every step") {
  int asked = 0;
  const Poll poll([&] { ++asked; });
  wait();
  for (int i = 0; i < 1000; ++i) throw_if_interrupted();
  CHECK(asked >= 1);
  CHECK(asked < 100);
  const int before = asked;
  wait();
  throw_if_interrupted();
  CHECK(asked == before + 1);
}

TEST_CASE("interrupt: what the host throws comes through") {
  const Poll poll([] { throw std::domain_error("KeyboardInterrupt"); });
  wait();
  CHECK_THROWS_AS(throw_if_interrupted(), std::domain_error);
  request_interrupt();
  CHECK_THROWS_AS(throw_if_interrupted(), Interrupted);  // without a wait
}
