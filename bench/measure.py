"""What a measure is: two sides, how they are compared, and what is to be reached."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

PROMPT = "The Eiffel Tower is in the city of"

#: How two sides are compared, and what their target means.
#:   speedup  theirs / ours, at least the target
#:   ratio    ours / theirs, at most the target
#:   share    (ours - theirs) / theirs, at most the target; of memory, theirs is the size of the weights' file
#:   added    ours - theirs in milliseconds, at most the target
Compare = Literal["speedup", "ratio", "share", "added"]


@dataclass(frozen=True)
class Side:
    """Who does what. `peer` is a worker's name, or of a cold start one of `cli`, `gemloupe`, `transformers`, `llamacpp`.

    With `beyond` the figure is what the side takes beyond that action of the same peer, which takes turns with it.
    """

    label: str
    peer: str
    do: str
    arguments: dict[str, Any]
    beyond: str | None = None


@dataclass(frozen=True)
class Measure:
    name: str
    title: str
    model: str
    ours: Side
    theirs: Side
    compare: Compare
    target: float | None
    repeats: int = 5  # turns of each side with a quiet sample, times --repeats
    dtype: str | None = None
    slow: bool = False  # left out by --quick
    kind: Literal["time", "memory"] = "time"
    tolerance: float | None = None  # of answers that are numbers, as a share of their spread; None: they must be equal
    warm: bool = True  # a turn of each side before those that count; long ones warm up in the first that does
    work: str | None = None  # the name of what `limits` counts the bytes or operations of

    @property
    def sides(self) -> dict[str, Side]:
        return {"ours": self.ours, "theirs": self.theirs}

    @property
    def group(self) -> tuple[Any, ...]:
        """What measures have in common that are taken in one go: our side is timed once, in turn with all of theirs."""
        return (self.model, self.dtype, self.kind, self.repeats, repr(self.ours))


def token_ids(count: int, vocabulary: int, seed: int | None = None) -> list[int]:
    """<bos> and random ids, the same for every peer."""
    source = random.Random(count if seed is None else seed)
    return [2, *source.choices(range(1000 % vocabulary, vocabulary), k=count - 1)]
