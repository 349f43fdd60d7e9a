"""Speed and memory beside the reference, in one run, as ratios: `make bench`, or see --help."""

from __future__ import annotations

import argparse
import fnmatch
import functools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import checkpoints
import machine
import report
from measures import PROMPT, Measure, Side, all_measures
from sampling import agreement, interleave
from workers import PEERS, ROOT, PeerFailed, Worker, cold, missing, read_whole

DOCS = ROOT / "docs" / "performance.md"


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._workers: dict[tuple[str, str, str | None], Worker] = {}

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def _worker(self, peer: str, measure: Measure) -> Worker:
        """A running worker of that peer with the measure's model; those of other models are closed."""
        key = (peer, measure.model, measure.dtype)
        if any(other[1:] != key[1:] for other in self._workers):
            self.close()
        if key not in self._workers:
            folder = checkpoints.checkpoint(measure.model)
            self._workers[key] = Worker(peer, folder, self._options.threads, measure.dtype)
        return self._workers[key]

    def _cold_command(self, peer: str, folder: Path) -> list[str]:
        if peer == "cli":
            return [str(self._options.cli), "generate", str(folder), PROMPT, "-n", "1"]
        return [sys.executable, str(PEERS / f"first_answer_{peer}.py"), str(folder), PROMPT]

    def _turn(self, side: Side, measure: Measure) -> dict[str, Any]:
        if side.do == "cold":
            command = self._cold_command(side.peer, checkpoints.checkpoint(measure.model))
            return cold(command, self._options.threads)
        return self._worker(side.peer, measure).ask(side.do, **side.arguments)

    def _memory(self, side: Side, measure: Measure) -> dict[str, Any]:
        self.close()  # a fresh process each
        answer = self._turn(side, measure)
        self.close()
        return answer

    def run(self, measure: Measure) -> dict[str, Any]:
        read_whole(checkpoints.checkpoint(measure.model))
        result: dict[str, Any] = {
            "name": measure.name,
            "title": measure.title,
            "compare": measure.compare,
            "target": measure.target,
        }
        result |= self._sizes(measure) if measure.kind == "memory" else self._times(measure)
        result["met"] = self._met(measure, result["value"])
        return result

    def _sizes(self, measure: Measure) -> dict[str, Any]:
        answers = {name: self._memory(side, measure) for name, side in measure.sides.items()}
        result: dict[str, Any] = {
            name: {"label": side.label, "bytes": answers[name]["bytes"]} for name, side in measure.sides.items()
        }
        file = checkpoints.weight_bytes(checkpoints.checkpoint(measure.model))
        result |= {"file_bytes": file, "value": result["ours"]["bytes"] / file - 1}
        return result | agreement(*(answer["check"] for answer in answers.values()), measure.tolerance)

    def _times(self, measure: Measure) -> dict[str, Any]:
        if measure.ours.do == "cold":
            self.close()
        turns: dict[str, Callable[[], dict[str, Any]]] = {}
        for name, side in measure.sides.items():
            turns[name] = functools.partial(self._turn, side, measure)
            if side.beyond:
                turns[f"{name}, bare"] = functools.partial(self._turn, replace(side, do=side.beyond), measure)
        if measure.ours.do != "cold":
            for turn in turns.values():
                turn()  # the first call of a shape pays for what later ones reuse
        samples = interleave(turns, max(1, round(measure.repeats * self._options.repeats)))
        result: dict[str, Any] = {}
        for name, side in measure.sides.items():
            bare = samples.get(f"{name}, bare")
            result[name] = {"label": side.label} | (samples[name].beyond(bare) if bare else samples[name].summary())
        ours, theirs = (result[name]["seconds"] for name in measure.sides)
        if measure.compare == "added":
            result["value"] = (ours - theirs) * 1e3
        elif any(result[name].get("noise") for name in measure.sides):
            result["value"] = None  # a ratio of next to nothing says nothing
        else:
            result["value"] = theirs / ours if measure.compare == "speedup" else ours / theirs - 1
        return result | agreement(*(samples[name].check for name in measure.sides), measure.tolerance)

    @staticmethod
    def _met(measure: Measure, value: float | None) -> bool | None:
        if measure.target is None or value is None:
            return None
        return value >= measure.target if measure.compare == "speedup" else value <= measure.target


def chosen(options: argparse.Namespace) -> list[Measure]:
    measures = [m for m in all_measures() if not (options.quick and m.slow)]
    if not options.only:
        return measures
    found = [m for m in measures if any(fnmatch.fnmatch(m.name, pattern) for pattern in options.only)]
    if not found:
        sys.exit(f"bench: --only {' '.join(options.only)} names none of: {', '.join(m.name for m in measures)}")
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="GLOB", help="only these measures, such as 'prefill-*'")
    parser.add_argument("--list", action="store_true", help="name the measures and stop")
    parser.add_argument("--quick", action="store_true", help="a third of the samples, without the slow rows")
    parser.add_argument("--repeats", type=float, metavar="X", help="X times the usual number of samples")
    parser.add_argument("--threads", type=int, default=2, help="of every peer (2)")
    parser.add_argument(
        "--cli", type=Path, default=ROOT / ".venv" / "bin" / "gemloupe", help="the command line to measure"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args()
    options.repeats = options.repeats or (1 / 3 if options.quick else 1)
    return options


def main() -> int:
    options = parse()
    measures = chosen(options)
    if options.list:
        print("\n".join(f"{m.name:<20} {m.title}" for m in measures))
        return 0
    document: dict[str, Any] = {"machine": machine.describe(options.threads), "measures": [], "skipped": []}
    bench = Bench(options)
    print(report.header_line())
    try:
        for measure in measures:
            lacks = next(filter(None, (missing(side.peer) for side in (measure.ours, measure.theirs))), None)
            if lacks:
                document["skipped"].append(f"{measure.title}: {lacks} is not installed")
                print(f"{measure.title}: left out, {lacks} is not installed", flush=True)
                continue
            try:
                result = bench.run(measure)
            except PeerFailed as error:
                bench.close()
                document["skipped"].append(f"{measure.title}: {error}")
                print(f"{measure.title}: {error}", file=sys.stderr, flush=True)
                continue
            document["measures"].append(result)
            print(report.plain_line(result), flush=True)
            if not result["same_answer"]:
                by = f" by {result['difference'] * 100:.1f} % of their spread" if "difference" in result else ""
                print(f"    the two sides' answers differ{by}", flush=True)
    finally:
        bench.close()
    print(report.samples_line(document["measures"]))
    results = checkpoints.FOLDER / "results.json"
    results.write_text(json.dumps(document, indent=2) + "\n")
    print(f"Written: {results.relative_to(ROOT)}")
    if options.write_docs:
        report.write_docs(DOCS, document)
        print(f"Written: {DOCS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
