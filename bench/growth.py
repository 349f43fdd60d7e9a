"""How time and peak memory grow with tokens, layers, batch and saved values: `make bench-growth`, or see --help.

Each point is a process of its own: a small forward first, then one whose peak memory is taken beyond what the small one left,
then some that are timed. Both sides compute the last row of logits. The slope is that of a least-squares line in log-log, over all
points and over the last three.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import checkpoints
import machine
import report
from growth_plots import draw
from measure import token_ids
from sampling import TRIES, Samples
from workers import ROOT, Worker

DOCS = ROOT / "docs"
BEGIN, END = "<!-- growth:begin -->", "<!-- growth:end -->"
VOCABULARY = 16384  # of all ids, so that every model has them
PAGE = 4096  # bytes: nothing is less than that, and has a logarithm


@dataclass(frozen=True)
class Axis:
    """What is made larger. `at` gives a point's model, tokens, batch and number of saved values."""

    name: str
    title: str
    points: tuple[int, ...]
    peers: tuple[str, ...]
    bends: str  # why the curves are no straight lines

    def at(self, point: int) -> tuple[str, int, int, int]:
        return {
            "tokens": ("270m", point, 1, 0),
            "layers": (f"layers-{point}", 128, 1, 0),
            "batch": ("270m", 64, point, 0),
            "saved": ("270m", 512, 1, point),
        }[self.name]


BOTH = ("gemloupe", "transformers")
AXES = (
    Axis(
        "tokens",
        "tokens of a prompt (270M)",
        (16, 64, 256, 1024, 2048, 4096, 8192),
        BOTH,
        "A short prompt costs the reading of the weights, whatever its length; then the products of the blocks grow with the "
        "tokens; from a thousand or so on the attention shows, which grows with their square wherever a block looks at the whole "
        "prompt. A sliding block that looks at its window alone grows with the tokens: the nearer the last slope is to one, the "
        "less is spent outside the windows.",
    ),
    Axis(
        "layers",
        "layers (270M's, vocabulary of 16,384; 128 tokens)",
        checkpoints.LAYERS,
        BOTH,
        "What a run costs without any layer, the embedding, the head and the calls, lies under the first few; from there each "
        "layer adds the same time. Activations are given back layer by layer, so that memory does not grow with them.",
    ),
    Axis(
        "batch",
        "prompts in a batch (270M, 64 tokens each)",
        (1, 2, 4, 8, 16, 32),
        BOTH,
        "As with tokens: one prompt of 64 shares the reading of the weights with nobody; many are bound by the products. Prompts "
        "do not look at each other, so that nothing grows with a square.",
    ),
    Axis(
        "saved",
        "values saved (270M, 512 tokens)",
        (1, 3, 9, 27, 54, 108),
        ("gemloupe",),
        "A saved value costs its memory. Its time does not show beside the forward's. While few are saved, the peak is that of the "
        "activations inside a block.",
    ),
)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Of the least-squares line through (log x, log y)."""
    us, vs = [math.log(x) for x in xs], [math.log(y) for y in ys]
    mean_u, mean_v = sum(us) / len(us), sum(vs) / len(vs)
    spread = sum((u - mean_u) ** 2 for u in us)
    return sum((u - mean_u) * (v - mean_v) for u, v in zip(us, vs, strict=True)) / spread


def measure_point(axis: Axis, peer: str, point: int, threads: int) -> dict[str, Any]:
    model, tokens, batch, saved = axis.at(point)
    path = checkpoints.path_for(peer, model)
    arguments = {"ids": token_ids(tokens, VOCABULARY), "batch": batch, "saved": saved}
    samples, sizes = Samples(), []
    worker = Worker(peer, path, threads)
    try:
        while not samples.is_quiet and len(sizes) < TRIES:
            answer = worker.ask("grow", **arguments, turns=2 if tokens * batch > 3000 else 5)
            samples.add(answer["samples"])
            sizes.append(answer["bytes"])
    finally:
        worker.close()
    return {"x": point, "seconds": samples.best, "quiet": samples.is_quiet, "bytes": max(sizes[0], PAGE)}


def measure_axis(axis: Axis, threads: int, most: int | None) -> dict[str, Any]:
    """The sides take turns, point by point."""
    curves: dict[str, list[dict[str, Any]]] = {peer: [] for peer in axis.peers}
    for point in axis.points if most is None else axis.points[:most]:
        for peer in axis.peers:
            found = measure_point(axis, peer, point, threads)
            curves[peer].append(found)
            quiet = "" if found["quiet"] else " ~"
            megabytes = found["bytes"] / 1e6
            print(
                f"{axis.name:>8} {point:>6} {peer:<14}{found['seconds'] * 1e3:>10.1f} ms{quiet:<2}{megabytes:>10.1f} MB"
            )
    return {"title": axis.title, "curves": {peer: with_slopes(points) for peer, points in curves.items()}}


def with_slopes(points: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"points": points}
    for what in ("seconds", "bytes"):
        for words, part in (("all", points), ("end", points[-3:])):
            if len(part) > 1:
                steepness = slope([point["x"] for point in part], [point[what] for point in part])
                found[f"{what}_slope_{words}"] = round(steepness, 2) + 0.0  # no -0.0
    return found


def in_words(document: dict[str, Any]) -> str:
    """The block of docs/performance.md."""
    about = document["machine"]
    lines = [
        f"Taken on {about['date']} at commit {about['commit']}: {about['cpu']}, {about['threads']} threads.",
        "",
        "![Time against tokens, layers, batch and saved values, log-log](growth-time.png)",
        "",
        "![Peak memory beyond a small forward against the same](growth-memory.png)",
        "",
        "| against | side | slope of time, all / last three | slope of memory, all / last three |",
        "| --- | --- | ---: | ---: |",
    ]
    for axis in document["axes"].values():
        for peer, curve in axis["curves"].items():
            cells = [
                f"{curve.get(f'{what}_slope_all', '')} / {curve.get(f'{what}_slope_end', '')}"
                for what in ("seconds", "bytes")
            ]
            lines.append(f"| {axis['title']} | {peer} | {cells[0]} | {cells[1]} |")
    lines.append("")
    lines += [f"- **{axis.name.capitalize()}.** {axis.bends}" for axis in AXES if axis.name in document["axes"]]
    return "\n".join(lines)


def write_docs(document: dict[str, Any]) -> None:
    draw(document, DOCS)
    report.replace_between(DOCS / "performance.md", BEGIN, END, in_words(document))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[axis.name for axis in AXES], help="only these axes")
    parser.add_argument("--most", type=int, metavar="N", help="the first N points of each axis, to try it out")
    parser.add_argument("--threads", type=int, default=2, help="of every side (2)")
    parser.add_argument("--redraw", action="store_true", help="measure nothing: draw the last run again")
    parser.add_argument("--write-docs", action="store_true", help="put plots and slopes into docs/")
    options = parser.parse_args()
    results = checkpoints.FOLDER / "growth.json"
    if options.redraw:
        document = json.loads(results.read_text())
    else:
        axes = [axis for axis in AXES if not options.only or axis.name in options.only]
        document = {"machine": machine.describe(options.threads), "axes": {}}
        for axis in axes:
            document["axes"][axis.name] = measure_axis(axis, options.threads, options.most)
        results.write_text(json.dumps(document, indent=1) + "\n")
        print(f"Written: {results.relative_to(ROOT)}")
    where: Path = DOCS if options.write_docs else checkpoints.FOLDER
    if options.write_docs:
        write_docs(document)
    else:
        draw(document, where)
    print(f"Written: {where.relative_to(ROOT)}/growth-time.png, growth-memory.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
