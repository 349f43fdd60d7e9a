"""Speed and memory beside the reference, in one run, as ratios: `make bench`, or see --help."""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import checkpoints
import limits
import machine
import report
from measure import PROMPT, Measure, Side
from measures import all_measures
from sampling import Samples, agreement, interleave
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
            path = checkpoints.path_for(peer, measure.model)
            self._workers[key] = Worker(peer, path, self._options.threads, measure.dtype)
        return self._workers[key]

    def _cold_command(self, peer: str, path: Path) -> list[str]:
        if peer == "cli":
            return [str(self._options.cli), "generate", str(path), PROMPT, "-n", "1"]
        return [sys.executable, str(PEERS / f"first_answer_{peer}.py"), str(path), PROMPT]

    def _turn(self, side: Side, measure: Measure) -> dict[str, Any]:
        if side.do == "cold":
            command = self._cold_command(side.peer, checkpoints.path_for(side.peer, measure.model))
            return cold(command, self._options.threads)
        return self._worker(side.peer, measure).ask(side.do, **side.arguments)

    def _memory(self, side: Side, measure: Measure) -> dict[str, Any]:
        self.close()  # a fresh process each
        answer = self._turn(side, measure)
        self.close()
        return answer

    def run(self, measures: Sequence[Measure]) -> list[dict[str, Any]]:
        """The results of measures of one group."""
        for side in (measures[0].ours, *(measure.theirs for measure in measures)):
            read_whole(checkpoints.path_for(side.peer, measures[0].model))
        found = self._sizes(measures) if measures[0].kind == "memory" else self._times(measures)
        return [self._result(measure, values) for measure, values in zip(measures, found, strict=True)]

    def _result(self, measure: Measure, values: dict[str, Any]) -> dict[str, Any]:
        about = {"name": measure.name, "title": measure.title, "compare": measure.compare, "target": measure.target}
        return about | values | {"met": self._met(measure, values["value"]), "work": limits.work(measure)}

    def _sizes(self, measures: Sequence[Measure]) -> list[dict[str, Any]]:
        ours = self._memory(measures[0].ours, measures[0])
        results = []
        for measure in measures:
            theirs = self._memory(measure.theirs, measure)
            result = {
                "ours": {"label": measure.ours.label, "bytes": ours["bytes"]},
                "theirs": {"label": measure.theirs.label, "bytes": theirs["bytes"]},
            }
            if measure.compare == "ratio":
                result["value"] = ours["bytes"] / theirs["bytes"]
            else:
                file = checkpoints.weight_bytes(checkpoints.path_for("gemloupe", measure.model))
                result |= {"file_bytes": file, "value": ours["bytes"] / file - 1}
            results.append(result | agreement(ours["check"], theirs["check"], measure.tolerance))
        return results

    def _times(self, measures: Sequence[Measure]) -> list[dict[str, Any]]:
        first = measures[0]
        if first.ours.do == "cold":
            self.close()
        sides = {"ours": first.ours} | {measure.name: measure.theirs for measure in measures}
        turns: dict[str, Callable[[], dict[str, Any]]] = {}
        for name, side in sides.items():
            turns[name] = functools.partial(self._turn, side, first)
            if side.beyond:
                turns[f"{name}, bare"] = functools.partial(self._turn, replace(side, do=side.beyond), first)
        if first.ours.do != "cold" and first.warm:
            for turn in turns.values():
                turn()  # the first call of a shape pays for what later ones reuse
        samples = interleave(turns, max(1, round(first.repeats * self._options.repeats)))
        return [self._compared(measure, samples) for measure in measures]

    @staticmethod
    def _compared(measure: Measure, samples: dict[str, Samples]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, taken, side in (("ours", "ours", measure.ours), ("theirs", measure.name, measure.theirs)):
            bare = samples.get(f"{taken}, bare")
            result[name] = {"label": side.label} | (samples[taken].beyond(bare) if bare else samples[taken].summary())
        ours, theirs = (result[name]["seconds"] for name in measure.sides)
        if measure.compare == "added":
            result["value"] = (ours - theirs) * 1e3
        elif any(result[name].get("noise") for name in measure.sides):
            result["value"] = None  # a ratio of next to nothing says nothing
        else:
            values = {"speedup": theirs / ours, "ratio": ours / theirs, "share": ours / theirs - 1}
            result["value"] = values[measure.compare]
        return result | agreement(samples["ours"].check, samples[measure.name].check, measure.tolerance)

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


def available(measures: Sequence[Measure], document: dict[str, Any]) -> list[Measure]:
    """Those whose peers are installed; the document names the others."""
    found = []
    for measure in measures:
        lacks = next(filter(None, (missing(side.peer) for side in measure.sides.values())), None)
        if lacks:
            document["skipped"].append(f"{measure.title}: {lacks} is not installed")
            print(f"{measure.title}: left out, {lacks} is not installed (make bench-peers)", flush=True)
        else:
            found.append(measure)
    return found


def take(bench: Bench, group: Sequence[Measure], document: dict[str, Any]) -> None:
    """The group's results, into the document and onto the terminal. Where a peer fails, the rows go on without it."""
    began = time.monotonic()
    try:
        results = bench.run(group)
    except PeerFailed as error:
        bench.close()
        if len(group) > 1:
            for measure in group:
                take(bench, [measure], document)
            return
        document["skipped"].append(f"{group[0].title}: {error}")
        print(f"{group[0].title}: {error}", file=sys.stderr, flush=True)
        return
    for result in results:
        document["measures"].append(result | {"group_took": round(time.monotonic() - began, 1)})
        print(report.plain_line(result), flush=True)
        if not result["same_answer"]:
            by = f" by {result['difference'] * 100:.1f} % of their spread" if "difference" in result else ""
            print(f"    the two sides' answers differ{by}", flush=True)


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
        for _, group in itertools.groupby(available(measures, document), key=lambda measure: measure.group):
            take(bench, list(group), document)
    finally:
        bench.close()
    if any(result["work"] for result in document["measures"]):
        document["limits"] = limits.Machine(options.threads).document(document["measures"])
        print("\n" + "\n".join(report.limit_lines(document)) + "\n")
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
