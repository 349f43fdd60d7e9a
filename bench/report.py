"""From results to a table: on the terminal, and in docs/performance.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from limits import nearness

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
WIDTH = 88  # of a title on the terminal
HEADER = ("", "ours", "theirs", "compared", "target", "")


def _time(seconds: float) -> str:
    milliseconds = seconds * 1e3
    digits = 3 if milliseconds < 10 else 1 if milliseconds < 1000 else 0
    return f"{milliseconds:.{digits}f} ms"


def _cell(result: dict[str, Any], side: str) -> str:
    if "bytes" in result[side]:
        return f"{result[side]['bytes'] / 1e6:.0f} MB"
    sign = "+" if "bare" in result[side] and result[side]["seconds"] >= 0 else ""
    return sign + _time(result[side]["seconds"]) + ("" if result[side]["quiet"] else " ~")


def _compared(result: dict[str, Any]) -> tuple[str, str]:
    """The figure and its target, in words."""
    value, target = result["value"], result["target"]
    if value is None:
        return "noise", ""
    figure, wanted = {
        "speedup": (f"{value:.2f}×", f"≥ {target}×"),
        "ratio": (f"{value:.2f}×", f"≤ {target}×"),
        "share": (f"{value * 100:+.1f} %", f"≤ {(target or 0) * 100:.0f} %"),
        "added": (f"{value:+.3f} ms", f"≤ {target} ms"),
    }[result["compare"]]
    return figure, "" if target is None else wanted


def row(result: dict[str, Any]) -> tuple[str, ...]:
    verdict = {True: "yes", False: "NO", None: ""}[result["met"]]
    return (result["title"], _cell(result, "ours"), _cell(result, "theirs"), *_compared(result), verdict)


def plain_line(result: dict[str, Any]) -> str:
    title, *cells = row(result)
    return f"{title:<{WIDTH}}" + "".join(f"{cell:>14}" for cell in cells[:4]) + f"  {cells[4]}"


def header_line() -> str:
    return f"{'':<{WIDTH}}" + "".join(f"{name:>14}" for name in HEADER[1:5]) + "  met"


def samples_line(results: list[dict[str, Any]]) -> str:
    sides = [result[side] for result in results for side in ("ours", "theirs") if "kept" in result[side]]
    kept, thrown = (sum(side[name] for side in sides) for name in ("kept", "thrown_away"))
    noisy = sum(not side["quiet"] for side in sides)
    text = f"{kept} quiet samples kept, {thrown} thrown away"
    return text + (f"; {noisy} figures marked ~ had no quiet sample and mean little" if noisy else "")


def limits_row(result: dict[str, Any], machine: dict[str, Any]) -> tuple[str, ...]:
    near = nearness(result, machine)
    shares = (f"{near[side] * 100:.0f} %" + ("" if result[side]["quiet"] else " ~") for side in ("ours", "theirs"))
    return (result["title"], _time(near["seconds"]), near["binds"], *shares)


def limits_line(machine: dict[str, Any]) -> str:
    return (
        f"Memory: {machine['read'] / 1e9:.1f} GB/s, the most that a row or torch's sum over 1 GiB read in this run (the sum: "
        f"{machine['plain_read'] / 1e9:.1f}). Products: {machine['bfloat16'] / 1e9:.0f} GFLOP/s in bfloat16, "
        f"{machine['float32'] / 1e9:.0f} in float32, the best of torch's products of 2048 × 2048."
    )


def limit_lines(document: dict[str, Any]) -> list[str]:
    """For the terminal: how near the limit each side is."""
    machine = document["limits"]
    lines = [
        f"{'How near the limit':<{WIDTH}}" + "".join(f"{name:>14}" for name in ("limit", "ours", "theirs")) + "  of"
    ]
    for result in filter(lambda result: result["work"], document["measures"]):
        title, limit, binds, ours, theirs = limits_row(result, machine)
        lines.append(f"{title:<{WIDTH}}{limit:>14}{ours:>14}{theirs:>14}  {binds}")
    return [*lines, limits_line(machine)]


def limits_table(document: dict[str, Any]) -> list[str]:
    machine = document["limits"]
    lines = ["", limits_line(machine), "", "| | limit | by | ours | theirs |", "| --- | ---: | --- | ---: | ---: |"]
    rows = [limits_row(result, machine) for result in document["measures"] if result["work"]]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def markdown(document: dict[str, Any]) -> str:
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        f"Taken on {machine['date']} at commit {machine['commit']}: {machine['cpu']} ({', '.join(machine['instructions'])}), "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}; {machine['threads']} threads; "
        f"{versions}. {samples_line(document['measures'])}.",
        "",
        "| | ours | theirs | compared | target | met |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += ["| " + " | ".join(row(result)) + " |" for result in document["measures"]]
    lines += [f"\nNot measured: {line}." for line in document["skipped"]]
    if "limits" in document:
        lines += limits_table(document)
    return "\n".join(lines)


def replace_between(path: Path, begin: str, end: str, text: str) -> None:
    """Replaces what stands between the markers of a file."""
    before, rest = path.read_text().split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def write_docs(path: Path, document: dict[str, Any]) -> None:
    replace_between(path, BEGIN, END, markdown(document))
