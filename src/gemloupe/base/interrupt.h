// Ctrl-C: a handler sets a flag, long work asks for it between steps.
#pragma once

#include <functional>

namespace gemloupe {
inline namespace v0 {

/// Async-signal-safe.
void request_interrupt();

/// Throws Interrupted if it was requested since the last call. Also runs the host language's own check, if one is set.
void throw_if_interrupted();

/// Called at most every 50 ms by throw_if_interrupted; may throw.
void set_interrupt_poll(std::function<void()> poll);

}  // namespace v0
}  // namespace gemloupe
