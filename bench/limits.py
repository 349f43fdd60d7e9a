"""What the machine allows: the bytes a row must read over the bandwidth, the operations it must do over the peak.

`work` counts them from a model's sizes; `Machine` measures what they are divided by, beside the rows and in the same run.
Bytes are those of the weights as they are stored, each read once, and of the keys and values a decoded token looks at.
Operations are those of the matrix products and of the attention that the mask allows; element-wise work counts nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import checkpoints
from measure import Measure
from sampling import interleave
from workers import Worker

START_TOKENS = 9  # of measure.PROMPT


def windows(config: dict[str, Any]) -> list[int | None]:
    """How far back each layer looks; None is all the way."""
    pattern = 2 if config["model_type"] == "gemma2" else config["sliding_window_pattern"]
    layers = range(1, config["num_hidden_layers"] + 1)
    return [config["sliding_window"] if layer % pattern else None for layer in layers]


def block_parameters(config: dict[str, Any]) -> int:
    """Of the matrices of one block."""
    hidden, dim = config["hidden_size"], config["head_dim"]
    attention = hidden * dim * (2 * config["num_attention_heads"] + 2 * config["num_key_value_heads"])
    return attention + 3 * hidden * config["intermediate_size"]


def seen(tokens: int, window: int | None) -> int:
    """Pairs of a query and a key that it looks at, in a prefill."""
    if window is None or tokens <= window:
        return tokens * (tokens + 1) // 2
    return window * (window + 1) // 2 + (tokens - window) * window


def prefill_operations(config: dict[str, Any], tokens: int, rows: int) -> int:
    """Multiplications and additions of a forward of `tokens` that makes `rows` rows of logits."""
    products = 2 * config["num_hidden_layers"] * block_parameters(config) * tokens
    width = config["num_attention_heads"] * config["head_dim"]
    attention = sum(4 * width * seen(tokens, window) for window in windows(config))
    return products + attention + 2 * config["vocab_size"] * config["hidden_size"] * rows


def cache_bytes(config: dict[str, Any], context: int) -> int:
    """Keys and values that one token looks at, two bytes each."""
    row = 2 * 2 * config["num_key_value_heads"] * config["head_dim"]
    return sum(row * min(context, window or context) for window in windows(config))


def work(measure: Measure) -> dict[str, Any] | None:
    """What a row cannot do without: {"bytes", "operations", "dtype"}; None where nobody counted it."""
    if measure.work is None:
        return None
    config = checkpoints.config_of(measure.model)
    weights = checkpoints.weight_bytes(checkpoints.path_for("gemloupe", measure.model))
    dtype = measure.dtype or config["torch_dtype"]
    tokens = len(measure.ours.arguments.get("ids", ())) or START_TOKENS
    if measure.work == "decode":
        return {
            "bytes": weights + cache_bytes(config, tokens),
            "operations": prefill_operations(config, 1, 1),
            "dtype": dtype,
        }
    rows = tokens if measure.ours.arguments.get("rows") == "all" else 1
    return {"bytes": weights, "operations": prefill_operations(config, tokens, rows), "dtype": dtype}


class Machine:
    """Bytes and operations a second, the best of quiet samples."""

    def __init__(self, threads: int) -> None:
        worker = Worker("limits", Path(), threads)
        actions = {"read": {}, "bfloat16": {"kind": "bfloat16"}, "float32": {"kind": "float32"}}
        turns = {
            name: (lambda name=name, more=more: worker.ask("read" if name == "read" else "multiply", **more))
            for name, more in actions.items()
        }
        samples = interleave(turns, repeats=1)
        worker.close()
        self.per_second = {name: 1 / taken.best for name, taken in samples.items()}

    def document(self, results: list[dict[str, Any]]) -> dict[str, Any]:
        """The limits, once every row is known: memory is at least as fast as the fastest row read it."""
        read = [
            result["work"]["bytes"] / result[side]["seconds"]
            for result in results
            for side in ("ours", "theirs")
            if result.get("work") and result["name"].startswith("decode")
        ]
        return self.per_second | {"plain_read": self.per_second["read"], "read": max(self.per_second["read"], *read, 0)}


def nearness(result: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """The row's limit in seconds, what binds, and the share of it that each side reaches."""
    by = {
        "memory": result["work"]["bytes"] / machine["read"],
        f"{result['work']['dtype']} products": result["work"]["operations"] / machine[result["work"]["dtype"]],
    }
    binds = max(by, key=by.__getitem__)
    shares = {side: by[binds] / result[side]["seconds"] for side in ("ours", "theirs")}
    return {"seconds": by[binds], "binds": binds} | shares
