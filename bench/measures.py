"""What is measured of the engine: a line here is a row of the table. To add one, add it to `all_measures`; a new peer is a
file in peers/. What is measured of traces and sweeps is in trace_measures.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from measure import PROMPT, Compare, Measure, Side, token_ids
from trace_measures import trace_measures

ROWS = {"all": "all rows of logits", "last": "the last row of logits"}
WORDS = {"transformers": "transformers", "llamacpp": "llama.cpp"}

#: What a row of logits may differ by from llama.cpp's, as a share of its spread: it keeps the stream in float32, and of
#: quantised weights it rounds the activations to 8 bits.
LLAMACPP = {"1b": 0.05, "2b": 0.05, "270m-q4_k_m": 0.2, "1b-q8_0": 0.05}


def beside(
    name: str,
    title: str,
    model: str,
    do: str,
    arguments: dict[str, Any],
    targets: dict[str, float | None],
    compare: Compare = "speedup",
    **more: Any,
) -> Iterator[Measure]:
    """A row for each peer of `targets`, doing the same as we."""
    ours = Side("gemloupe", "gemloupe", do, arguments)
    for peer, target in targets.items():
        theirs = Side(WORDS[peer], peer, do, arguments)
        limit = LLAMACPP[model] if peer == "llamacpp" else None
        yield Measure(
            name if peer == "transformers" else f"{name}-{peer}",
            f"{title}; {WORDS[peer]}",
            model,
            ours,
            theirs,
            compare,
            target,
            tolerance=limit,
            **more,
        )


def first_answers() -> Iterator[Measure]:
    """From the start of a process. llama.cpp's side is a script of llama-cpp-python; our Python side, which imports torch, is
    shown beside it without a target."""
    for name, label, peer, targets in (
        ("cli", "command line", "cli", {"transformers": 5.0, "llamacpp": 1.0}),
        ("python", "Python", "gemloupe", {"transformers": 2.0, "llamacpp": None}),
    ):
        for other, target in targets.items():
            title = f"Process start to first answer on a text, {label}; {WORDS[other]}"
            ours, theirs = Side(label, peer, "cold", {}), Side(WORDS[other], other, "cold", {})
            suffix = "" if other == "transformers" else f"-{other}"
            yield Measure(
                f"start-{name}{suffix}", title, "1b", ours, theirs, "speedup", target, repeats=3, work="start"
            )


def memory() -> Iterator[Measure]:
    """After the load and a first forward of a text, beyond what importing torch, or nothing at llama.cpp, took."""
    arguments = {"text": PROMPT}
    title = "Resident memory after load and first forward, bfloat16"
    targets = {"transformers": 0.9, "llamacpp": 1.1}
    yield from beside("memory", title, "1b", "memory", arguments, targets, "ratio", repeats=1, kind="memory")
    title = "Resident memory after load and first forward, float32 on bfloat16 weights"
    more: dict[str, Any] = {"repeats": 1, "kind": "memory", "dtype": "float32"}
    yield from beside("memory-f32", title, "1b", "memory", arguments, {"transformers": 0.4}, "ratio", **more)


def peak() -> Iterator[Measure]:
    """The most that a process ever had, beyond what importing torch took: weights, activations, logits and all.

    Both sides map the same 2.0 GB of weights, so that the first ratio has a floor near 0.87; the second leaves them out.
    """
    arguments = {"ids": token_ids(2048, 262144)}
    more: dict[str, Any] = {"repeats": 1, "kind": "memory", "slow": True}
    title = "Peak memory of a prefill of 2048 tokens, the last row of logits"
    yield from beside("peak-2048", title, "1b", "peak", arguments, {"transformers": 0.7}, "ratio", **more)
    title = "The same, beyond what load and a first forward left"
    yield from beside("peak-2048-beyond", title, "1b", "peak_beyond", arguments, {"transformers": 0.7}, "ratio", **more)


def prefill() -> Iterator[Measure]:
    for count, target, repeats in ((16, 1.5, 20), (128, 1.2, 6), (512, 1.2, 3), (2048, 1.2, 2)):
        for rows, words in ROWS.items():
            targets: dict[str, float | None] = {"transformers": target}
            if rows == "last":
                targets["llamacpp"] = 1.3
            arguments = {"ids": token_ids(count, 262144), "rows": rows}
            more: dict[str, Any] = {"repeats": repeats, "slow": count > 128, "warm": count < 2048}
            name, title = f"prefill-{count}-{rows}", f"Prefill of {count} tokens, {words}"
            yield from beside(name, title, "1b", "prefill", arguments, targets, work="prefill", **more)


def prefill_float32() -> Iterator[Measure]:
    for count, repeats in ((128, 4), (512, 2)):
        arguments = {"ids": token_ids(count, 262144), "rows": "last"}
        more: dict[str, Any] = {"repeats": repeats, "slow": True, "dtype": "float32", "work": "prefill"}
        title = f"Prefill of {count} tokens in float32, the last row of logits"
        yield from beside(f"prefill-f32-{count}", title, "1b", "prefill", arguments, {"transformers": 1.5}, **more)


def decode() -> Iterator[Measure]:
    """One token after another, greedily, behind a prompt of 56."""
    for name, words, model, dtype, targets, slow in (
        ("decode-64", "1B", "1b", None, {"transformers": 2.0, "llamacpp": 1.0}, False),
        ("decode-f32", "1B in float32 on bfloat16 weights", "1b", "float32", {"transformers": 4.0}, True),
        ("decode-2b", "Gemma 2 2B", "2b", None, {"transformers": 2.0, "llamacpp": 1.0}, True),
        ("decode-q4_k_m", "270M Q4_K_M", "270m-q4_k_m", "bfloat16", {"llamacpp": 0.9}, False),
        ("decode-q8_0", "1B Q8_0", "1b-q8_0", "bfloat16", {"llamacpp": 0.9}, False),
    ):
        arguments = {"ids": token_ids(56, 256000), "tokens": 16}
        more: dict[str, Any] = {"repeats": 4, "dtype": dtype, "slow": slow, "work": "decode"}
        title = f"Decode, {words}, a token at 57 to 70 of context"
        yield from beside(name, title, model, "decode", arguments, targets, **more)


def long_decode() -> Iterator[Measure]:
    """Behind 8,192 tokens, which each process reads once: later turns go on where the one before left off."""
    arguments = {"ids": token_ids(8192, 262144), "tokens": 10}
    targets: dict[str, float | None] = {"transformers": 2.0, "llamacpp": 1.0}
    more: dict[str, Any] = {"repeats": 3, "slow": True, "work": "decode"}
    title = "Decode, 1B, a token after 8192 of context"
    yield from beside("decode-8192", title, "1b", "decode_on", arguments, targets, **more)


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
    """In the order of the table. Measures of a model follow each other where they can: workers change with the model."""
    return [
        *first_answers(),
        *memory(),
        *peak(),
        *prefill(),
        *prefill_float32(),
        *decode(),
        *long_decode(),
        *trace_measures(),
        *streamed(),
    ]
