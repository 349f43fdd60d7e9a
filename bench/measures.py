"""What is measured: a line here is a row of the table. To add one, add it to `all_measures`; a new peer is a file in peers/."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

PROMPT = "The Eiffel Tower is in the city of"
ROWS = {"all": "all rows of logits", "last": "the last row of logits"}

#: What answers may differ by, as a share of their spread: float32, and bfloat16 with its roundings in another order.
TOLERANCE = {"tiny": 1e-4, "270m": 0.03}

#: How two sides are compared, and what their target means.
#:   speedup  theirs / ours, at least the target
#:   share    (ours - theirs) / theirs, at most the target
#:   added    ours - theirs in milliseconds, at most the target
Compare = Literal["speedup", "share", "added"]


@dataclass(frozen=True)
class Side:
    """Who does what. `peer` is a worker's name, or of a cold start one of `cli`, `gemloupe`, `transformers`.

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

    @property
    def sides(self) -> dict[str, Side]:
        return {"ours": self.ours, "theirs": self.theirs}


def token_ids(count: int, vocabulary: int, seed: int | None = None) -> list[int]:
    """<bos> and random ids, the same for every peer."""
    source = random.Random(count if seed is None else seed)
    return [2, *source.choices(range(1000 % vocabulary, vocabulary), k=count - 1)]


def first_answers() -> Iterator[Measure]:
    theirs = Side("transformers", "transformers", "cold", {})
    for name, label, peer, target in (("cli", "command line", "cli", 3.0), ("python", "Python", "gemloupe", 2.0)):
        title = f"Process start to first answer on a text, {label}"
        yield Measure(f"start-{name}", title, "1b", Side(label, peer, "cold", {}), theirs, "speedup", target)


def memory() -> Iterator[Measure]:
    ours, theirs = (Side(peer, peer, "memory", {"text": PROMPT}) for peer in ("gemloupe", "transformers"))
    title = "Resident memory after load and first forward, beyond import torch"
    yield Measure("memory", title, "1b", ours, theirs, "share", 0.15, repeats=1, kind="memory")


def prefill() -> Iterator[Measure]:
    for count in (16, 128, 512, 2048):
        for rows, words in ROWS.items():
            arguments = {"ids": token_ids(count, 262144), "rows": rows}
            sides = [Side(peer, peer, "prefill", arguments) for peer in ("gemloupe", "transformers")]
            title, repeats = f"Prefill of {count} tokens, {words}", {16: 20, 128: 8, 512: 4, 2048: 2}[count]
            yield Measure(
                f"prefill-{count}-{rows}", title, "1b", *sides, "speedup", 1.0, repeats=repeats, slow=count > 128
            )


def decode() -> Iterator[Measure]:
    arguments = {"ids": token_ids(56, 262144), "tokens": 16}
    sides = [Side(peer, peer, "decode", arguments) for peer in ("gemloupe", "transformers")]
    yield Measure("decode-64", "Decode, a token at 57 to 70 of context", "1b", *sides, "speedup", 1.1, repeats=4)


def traces() -> Iterator[Measure]:
    many = {"ids": token_ids(128, 262144), "calls": 1}
    few = {"ids": token_ids(8, 1024), "calls": 100}
    bare, layers = (
        Side(label, "gemloupe", do, many) for label, do in (("bare", "forward"), ("traced", "trace_layers"))
    )
    title = "A trace that saves all 26 layer outputs, 128 tokens"
    yield Measure("trace-layers", title, "1b", layers, bare, "share", 0.02, repeats=10)
    for peer, target in (("gemloupe", 0.05), ("nnsight", None)):
        bare, one = (Side(label, peer, do, few) for label, do in (("bare", "forward"), ("traced", "trace_one")))
        title = "A trace of one value, 2 layers, 8 tokens" + ("" if peer == "gemloupe" else f", {peer}")
        yield Measure(f"trace-one-{peer}", title, "tiny", one, bare, "added", target, repeats=20)


def additions() -> Iterator[Measure]:
    """What a trace adds to a forward, ours beside nnsight's. Its attention patterns need eager attention, bare and traced.

    On the tiny model the two are a ratio. Beside a forward of 270M they are little more than noise: a difference, without a target.
    """
    for model, words, tokens, vocabulary, calls, repeats, compare, target in (
        ("tiny", "2 layers, 8 tokens", 8, 1024, 50, 10, "speedup", 1.0),
        ("270m", "270M, 32 tokens", 32, 262144, 1, 20, "added", None),
    ):
        arguments = {"ids": token_ids(tokens, vocabulary), "calls": calls}
        for name, what, theirs in (
            ("one", "one value", "nnsight"),
            ("layers", "all layer outputs", "nnsight"),
            ("patterns", "all attention patterns", "nnsight_eager"),
            ("edit", "one edit", "nnsight"),
        ):
            sides = [Side(peer, peer, f"trace_{name}", arguments, beyond="forward") for peer in ("gemloupe", theirs)]
            title = f"A trace of {what}, beyond a forward, {words}"
            row = Measure(f"added-{name}-{model}", title, model, *sides, compare, target, repeats=repeats)
            yield replace(row, tolerance=TOLERANCE[model])


def sweeps() -> Iterator[Measure]:
    """The residual stream patched from a clean run into a corrupted one, at each position of each layer in turn.

    Both prompts are random from the first token on. The metric is the logit of what the clean one is continued with, less that
    of what the corrupted one is.
    """
    for model, words, layers, tokens, vocabulary, answers, runs, repeats in (
        ("tiny", "2 layers", 2, 12, 1024, [902, 17], 24, 10),
        ("270m", "270M", 18, 32, 262144, [120607, 6011], 24, 1),
    ):
        grid = [(layer, position) for layer in range(layers) for position in range(tokens)]
        one_by_one = "nnsight one by one" + (f", {runs} of {len(grid)} timed" if runs < len(grid) else "")
        arguments = {
            "clean": token_ids(tokens, vocabulary, seed=1),
            "corrupted": token_ids(tokens, vocabulary, seed=2),
            "tokens": answers,
        }
        for name, how, cells, target in (
            ("single", one_by_one, sorted(random.Random(tokens).sample(grid, runs)), 5.0),
            ("invokes", "nnsight in batched invokes", grid, 2.0),
        ):
            peers = ("gemloupe", "sweep"), ("nnsight", f"sweep_{name}")
            sides = [Side(peer, peer, do, arguments | {"cells": cells}) for peer, do in peers]
            title = f"Patching sweep, {words}, {tokens} tokens; {how}"
            row = Measure(f"sweep-{name}-{model}", title, model, *sides, "speedup", target, repeats=repeats)
            yield replace(row, slow=model == "270m", tolerance=TOLERANCE[model])


def streamed() -> Iterator[Measure]:
    """Weights three times the memory that may be filled (GEMLOUPE_MEMORY), as on a machine that they do not fit on."""
    few = {"ids": token_ids(16, 262144)}
    ours, disk = (
        Side(label, peer, "pass_over_weights", few)
        for label, peer in (("16 tokens", "streamed"), ("read once", "disk"))
    )
    title = "Weights 3 times the memory: a forward, beside reading the file"
    yield Measure("streamed-speed", title, "1b", ours, disk, "speedup", 0.8, repeats=3, slow=True)
    ours, theirs = (
        Side("streamed", "streamed", "memory", {"text": PROMPT}),
        Side("mapped", "gemloupe", "memory", {"text": PROMPT}),
    )
    title = "Weights 3 times the memory: resident memory after two forwards"
    yield Measure("streamed-memory", title, "1b", ours, theirs, "share", -0.4, repeats=1, kind="memory", slow=True)


def all_measures() -> list[Measure]:
    return [*first_answers(), *memory(), *prefill(), *decode(), *traces(), *additions(), *sweeps(), *streamed()]
