"""Draws what growth.py measured: a figure of times, a figure of memory, a panel for each axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {"gemloupe": "#0b6e4f", "transformers": "#c8553d"}
FIGURES = {
    "growth-time.png": ("seconds", 1e3, "time, ms"),
    "growth-memory.png": ("bytes", 1e-6, "peak memory beyond a small forward, MB"),
}


def draw(document: dict[str, Any], folder: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("growth: the plots need matplotlib; make bench-peers installs it.") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    for name, (what, unit, words) in FIGURES.items():
        figure, panels = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained")
        for panel, axis in zip(panels.flat, document["axes"].values(), strict=False):
            _draw_axis(panel, axis, what, unit)
            panel.set_ylabel(words)
        for panel in panels.flat[len(document["axes"]) :]:
            panel.remove()
        figure.savefig(folder / name, dpi=110)
        pyplot.close(figure)


def _draw_axis(panel: Any, axis: dict[str, Any], what: str, unit: float) -> None:
    from matplotlib import ticker

    values = [point[what] * unit for curve in axis["curves"].values() for point in curve["points"]]
    for peer, curve in axis["curves"].items():
        xs = [point["x"] for point in curve["points"]]
        label = f"{peer}: slope {curve.get(f'{what}_slope_all', '?')}, last three {curve.get(f'{what}_slope_end', '?')}"
        panel.loglog(xs, [point[what] * unit for point in curve["points"]], "o-", color=COLOURS[peer], label=label)
    panel.set_xticks(xs, [f"{x:,}" for x in xs])
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.set_ylim(min(values) / 3, max(values) * 4)  # a decade at least, for its ticks, and room for the legend
    panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    panel.yaxis.set_minor_formatter(ticker.NullFormatter())
    panel.set_xlabel(axis["title"])
    panel.grid(True, which="major", alpha=0.3)
    panel.legend(fontsize=8)
