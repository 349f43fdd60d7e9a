"""Whether a run of the bench has lost against the committed one: `make bench-guard`.

Ratios are compared, not times: how many times better than its peer each row was, there (bench/baseline.json) and now
(build/bench/results.json, which `make bench` writes). A row that lost more than the tolerance fails. Figures without a quiet sample
are no evidence, and neither are differences next to nothing: they are named, or left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "bench" / "baseline.json"
RESULTS = ROOT / "build" / "bench" / "results.json"
TOLERANCE = 0.15


def advantage(result: dict[str, Any]) -> float | None:
    """How many times less than its peer's our figure is: more is better. None where the row says nothing."""
    sides = result["ours"], result["theirs"]
    if result["value"] is None or not all(side.get("quiet", True) for side in sides):
        return None
    if result["compare"] == "added":
        if any("bare" in side for side in sides):
            return None  # two differences, each near nothing
        return sides[1]["seconds"] / sides[0]["seconds"]
    value = result["value"]
    return {"speedup": lambda: value, "ratio": lambda: 1 / value, "share": lambda: 1 / (1 + value)}[result["compare"]]()


def advantages(document: dict[str, Any]) -> dict[str, float]:
    found = {result["name"]: advantage(result) for result in document["measures"]}
    return {name: round(value, 4) for name, value in found.items() if value is not None}


@dataclass
class Verdict:
    lost: list[str] = field(default_factory=list)  # a line each
    gained: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)  # names: in the baseline, not to be compared now
    new: list[str] = field(default_factory=list)  # names: not in the baseline


def compare(before: dict[str, float], now: dict[str, float], tolerance: float) -> Verdict:
    verdict = Verdict(silent=sorted(before.keys() - now.keys()), new=sorted(now.keys() - before.keys()))
    for name in sorted(before.keys() & now.keys()):
        change = now[name] / before[name] - 1
        line = f"{name}: {before[name]:.2f}× before, {now[name]:.2f}× now ({change * 100:+.0f} %)"
        if change < -tolerance:
            verdict.lost.append(line)
        elif change > tolerance:
            verdict.gained.append(line)
    return verdict


def baseline(document: dict[str, Any]) -> dict[str, Any]:
    """What is committed of a run."""
    machine = document["machine"]
    taken = {key: machine[key] for key in ("date", "commit", "cpu", "threads", "versions")}
    return {"taken": taken, "ratios": advantages(document)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="make the new run the baseline")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help=f"what a row may lose ({TOLERANCE})")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the new run")
    options = parser.parse_args()
    if not options.results.exists():
        sys.exit(f"guard: there is no {options.results}; run make bench first.")
    document = json.loads(options.results.read_text())
    if options.update:
        BASELINE.write_text(json.dumps(baseline(document), indent=2, ensure_ascii=False) + "\n")
        print(f"Written: {BASELINE.relative_to(ROOT)}")
        return 0
    if not BASELINE.exists():
        sys.exit("guard: there is no bench/baseline.json; bench/guard.py --update makes the last run one.")
    committed = json.loads(BASELINE.read_text())
    if committed["taken"]["cpu"] != document["machine"]["cpu"]:
        print(f"Another processor than the baseline's ({committed['taken']['cpu']}): ratios may differ for that.")
    return report(compare(committed["ratios"], advantages(document), options.tolerance), len(committed["ratios"]))


def report(verdict: Verdict, rows: int) -> int:
    for words, lines in (("lost", verdict.lost), ("gained", verdict.gained)):
        print("".join(f"{words}: {line}\n" for line in lines), end="")
    for words, names in (("not compared, noisy or not measured", verdict.silent), ("new", verdict.new)):
        if names:
            print(f"{words}: {', '.join(names)}")
    compared = rows - len(verdict.silent)
    print(f"{compared} of {rows} rows compared, {len(verdict.lost)} lost, {len(verdict.gained)} gained.")
    return 1 if verdict.lost or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
