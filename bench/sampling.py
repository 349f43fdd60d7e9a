"""Interleaved samples: A B A B …, the minimum of the quiet ones.

Barriers that spin collapse tenfold as soon as another process takes a core, and memory bandwidth drifts between minutes. So the
sides of a comparison take turns, and a sample whose threads stood in the run queue for more than 2 % of its time is thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

QUIET = 0.02  # of the wall time
PATIENCE = 90  # seconds after which no turn is repeated for want of quiet: the long rows would take all day
TRIES = 3  # how many times the wanted number of turns is taken where the machine is not quiet
NOISE = 0.01  # of a time: what a side takes beyond it is not told from nothing below this
PAUSE = 0.03  # seconds for the other side's spinning threads to fall asleep


@dataclass
class Samples:
    """One side's samples, in seconds."""

    quiet: list[float] = field(default_factory=list)
    noisy: list[float] = field(default_factory=list)
    check: Any = None  # what this side computed, to compare with the others

    def add(self, samples: Sequence[dict[str, float]]) -> None:
        for sample in samples:
            side = self.quiet if sample["waited"] <= QUIET * sample["seconds"] else self.noisy
            side.append(sample["seconds"])

    @property
    def best(self) -> float:
        return min(self.quiet or self.noisy)

    @property
    def is_quiet(self) -> bool:
        return bool(self.quiet)

    def summary(self) -> dict[str, Any]:
        return {"seconds": self.best, "kept": len(self.quiet), "thrown_away": len(self.noisy), "quiet": self.is_quiet}

    def beyond(self, bare: Samples) -> dict[str, Any]:
        """The summary of what this side takes beyond another."""
        mine, other = self.summary(), bare.summary()
        return {
            "seconds": mine["seconds"] - other["seconds"],
            "whole": mine["seconds"],
            "bare": other["seconds"],
            "kept": mine["kept"] + other["kept"],
            "thrown_away": mine["thrown_away"] + other["thrown_away"],
            "quiet": mine["quiet"] and other["quiet"],
            "noise": mine["seconds"] - other["seconds"] < NOISE * other["seconds"],
        }


def interleave(sides: dict[str, Callable[[], dict[str, Any]]], repeats: int) -> dict[str, Samples]:
    """Takes turns until every side has `repeats` turns with a quiet sample, or has had three times as many, or took too long."""
    taken = {name: Samples() for name in sides}
    turns = dict.fromkeys(sides, 0)
    began = time.monotonic()
    for turn in range(repeats * TRIES):
        open_sides = [name for name in sides if turns[name] < repeats]
        if not open_sides or (turn >= repeats and time.monotonic() - began > PATIENCE):
            break
        for name in sides if len(open_sides) > 1 else open_sides:
            time.sleep(PAUSE)
            answer = sides[name]()
            quiet_before = len(taken[name].quiet)
            taken[name].add(answer["samples"])
            turns[name] += len(taken[name].quiet) > quiet_before
            taken[name].check = answer.get("check", taken[name].check)
    return taken


def agreement(ours: Any, theirs: Any, tolerance: float | None) -> dict[str, Any]:
    """Whether two answers are the same: equal, or lists of numbers that differ by so small a share of their spread.

    An answer may be a dict: of `tokens` that were made as many are compared as both sides name; with a tolerance `some` logits
    behind the prompt are compared in their place, for their top token may be a near tie.
    """
    if isinstance(ours, dict):
        key = "tokens" if tolerance is None or "some" not in ours or "some" not in theirs else "some"
        tolerance = tolerance if key == "some" else None
        ours, theirs = ours[key], theirs[key]
        both = min(len(ours), len(theirs))
        ours, theirs = ours[:both], theirs[:both]
    if tolerance is None:
        return {"same_answer": ours == theirs}
    pairs = zip(ours, theirs, strict=True)
    difference = max(abs(a - b) for a, b in pairs) / (max(theirs) - min(theirs))
    return {"same_answer": difference <= tolerance, "difference": difference}
