"""What is measured of traces: what one adds to a forward, sweeps of them, and many runs as one batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from measure import Measure, Side, token_ids

#: What answers may differ by, as a share of their spread: float32, and bfloat16 with its roundings in another order.
TOLERANCE = {"tiny": 1e-4, "270m": 0.03}


def traces() -> Iterator[Measure]:
    few = {"ids": token_ids(8, 1024), "calls": 100}
    for name, words, do, tokens, repeats, target in (
        ("layers", "saves all 26 layer outputs", "trace_layers", 128, 10, 0.02),
        ("patterns", "saves all attention patterns", "trace_patterns", 512, 4, 0.05),
    ):
        many = {"ids": token_ids(tokens, 262144), "calls": 1}
        bare, traced = Side("bare", "gemloupe", "forward", many), Side("traced", "gemloupe", do, many)
        title, slow = f"A trace that {words}, {tokens} tokens; the bare forward", tokens > 128
        yield Measure(f"trace-{name}", title, "1b", traced, bare, "share", target, repeats=repeats, slow=slow)
    for peer, target in (("gemloupe", 0.05), ("nnsight", None)):
        bare, one = (Side(label, peer, do, few) for label, do in (("bare", "forward"), ("traced", "trace_one")))
        title = "A trace of one value, 2 layers, 8 tokens" + ("" if peer == "gemloupe" else f", {peer}")
        title += "; the bare forward"
        yield Measure(f"trace-one-{peer}", title, "tiny", one, bare, "added", target, repeats=20)


def additions() -> Iterator[Measure]:
    """What a trace adds to a forward, ours beside nnsight's. Its attention patterns need eager attention, bare and traced.

    On the tiny model the two are a ratio. Beside a forward of 270M they are little more than noise: a difference, without a target.
    """
    for model, words, tokens, vocabulary, calls, repeats, compare, targets in (
        ("tiny", "2 layers, 8 tokens", 8, 1024, 50, 10, "speedup", (10.0, 1.0, 1.0, 1.0)),
        ("270m", "270M, 32 tokens", 32, 262144, 1, 20, "added", (None,) * 4),
    ):
        arguments = {"ids": token_ids(tokens, vocabulary), "calls": calls}
        for (name, what, theirs), target in zip(
            (
                ("one", "one value", "nnsight"),
                ("layers", "all layer outputs", "nnsight"),
                ("patterns", "all attention patterns", "nnsight_eager"),
                ("edit", "one edit", "nnsight"),
            ),
            targets,
            strict=True,
        ):
            sides = [Side(peer, peer, f"trace_{name}", arguments, beyond="forward") for peer in ("gemloupe", theirs)]
            title = f"A trace of {what}, beyond a forward, {words}; nnsight"
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


def batches() -> Iterator[Measure]:
    """Many runs of one kind: ours as a few wide passes, theirs one by one with hooks, as a script does it."""
    steer = {"ids": token_ids(32, 262144), "layer": 9, "count": 32, "tokens": 64}
    lengths = random.Random(7).choices(range(8, 65), k=48)
    harvest = {"prompts": [token_ids(length, 262144, seed=row) for row, length in enumerate(lengths)]}
    for name, title, arguments in (
        ("steer", "Steering over 32 vectors, 270M, 32 tokens, the last row of logits", steer),
        ("harvest", "Harvesting every layer's last stream of 48 prompts of 8 to 64 tokens, 270M", harvest),
    ):
        sides = [Side(peer, peer, name, arguments) for peer in ("gemloupe", "transformers")]
        row = Measure(f"batch-{name}", f"{title}; transformers with hooks", "270m", *sides, "speedup", None, repeats=2)
        yield replace(row, slow=True, tolerance=TOLERANCE["270m"])


def trace_measures() -> list[Measure]:
    return [*traces(), *additions(), *sweeps(), *batches()]
