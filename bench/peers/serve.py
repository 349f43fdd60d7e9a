"""The measured side of the pipe: a request a line of JSON on stdin, an answer a line of JSON on what was stdout.

`Stopwatch` is the one clock of all peers. Beside the time it takes how long this process's threads stood in the run queue,
which tells the bench that somebody else had the cores.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def waited() -> float:
    """Seconds that this process's threads have stood ready to run without running."""
    total = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/schedstat") as file:
                total += int(file.read().split()[1])
        except (OSError, IndexError):
            continue  # a thread that has just ended, or a kernel that does not count
    return total / 1e9


def resident(what: str = "VmRSS") -> int:
    """Bytes of memory of this process: VmRSS now, VmHWM at most."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(what + ":"))
    return int(line.split()[1]) * 1024


def reset_peak() -> None:
    """From here on VmHWM counts anew."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


class Stopwatch:
    """`with Stopwatch() as watch: …` then `watch.sample`; `lap()` starts the next sample inside."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []

    def __enter__(self) -> Stopwatch:
        self._start()
        return self

    def _start(self) -> None:
        self._waited = waited()
        self._began = time.perf_counter()

    def lap(self) -> None:
        seconds = time.perf_counter() - self._began
        self.samples.append({"seconds": seconds, "waited": waited() - self._waited})
        self._start()

    def __exit__(self, kind: type | None, *_: Any) -> None:
        if kind is None:
            self.lap()

    def per(self, count: int) -> list[dict[str, float]]:
        """The samples, each of which took `count` calls, as times of one call."""
        return [{name: value / count for name, value in sample.items()} for sample in self.samples]


def serve(peer: Any) -> None:
    """Calls peer.<do>(**arguments) for every request until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not get into the answers
    for line in sys.stdin:
        request = json.loads(line)
        action: Callable[..., Any] = getattr(peer, request.pop("do"))
        try:
            answer = {"answer": action(**request)}
        except Exception as error:  # the bench decides whether that ends it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
