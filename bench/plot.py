"""Draws what run-gpu-checks measured in its section `sweep`: a picture for each thing that was varied.

    ./dev python bench/plot.py DIR... [--out docs/plots]

A DIR is a folder that run-gpu-checks wrote; where two have the same measurement, the later one's is drawn.
The pictures are load.png, dim.png, hot.png and gpus.png: ours, the floor dashed, and what others reached
where that is known. The same reports give the same bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_checks.goals import goal_of, in_quantity
from matplotlib.axes import Axes
from matplotlib.figure import Figure  # without pyplot: a file needs no display
from matplotlib.ticker import FuncFormatter

_COLOURS = ("#2563eb", "#ea580c", "#059669")
_PEER_MARKERS = ("x", "+", "1")
_QUANTITIES = {"keys_per_second": ("G keys/s", 1e-9), "seconds": ("ms a call", 1e3)}

Report = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """Something that is varied: where a report says it, what tells lines apart, and what is drawn."""

    label: str
    of: Callable[[Report], float]
    line: Callable[[Report], str]
    quantity: str
    doubling: bool = True  # the values are powers of two, and drawn evenly


def _option(name: str) -> Callable[[Report], float]:
    return lambda report: report["options"][name]


def _line(label: str, option: str) -> Callable[[Report], str]:
    return lambda report: f"{label} {report['options'][option]:g}"


_LOAD = _option("load_of_table")
AXES = {
    "load": Axis("load factor, keys a cell", _LOAD, _line("α", "alpha"), "keys_per_second", doubling=False),
    "dim": Axis("dim, float32 elements a row", _option("dim"), _line("hot", "hot"), "seconds"),
    "hot": Axis("hot, keys a bag", _option("hot"), _line("dim", "dim"), "keys_per_second"),
    "gpus": Axis("GPUs", lambda report: report["ranks"], _line("hot", "hot"), "seconds"),
}


@dataclass
class Point:
    """A result in the axis's quantity: at `x` we reached `ours`, others `peers`; memory allows `floor`."""

    x: float
    ours: float
    floor: float
    peers: dict[str, float] = field(default_factory=dict)


# Of an axis: for each result's name, for each line, the points in order.
Panels = dict[str, dict[str, list[Point]]]


def read_sweeps(folders: Sequence[Path]) -> dict[str, list[Report]]:
    """slotwise-bench's reports of all that was swept, by what was varied."""
    paths = {}
    for folder in folders:
        for check in json.loads((folder / "report.json").read_text(encoding="utf-8"))["checks"]:
            if check["section"] == "sweep" and "report" in check:
                paths[check["name"]] = folder / check["report"]
    sweeps: dict[str, list[Report]] = {}
    for name, path in paths.items():
        sweeps.setdefault(name.split("-")[0], []).append(json.loads(path.read_text(encoding="utf-8")))
    return sweeps


def panels_of(axis: Axis, reports: Sequence[Report]) -> Panels:
    panels: Panels = {}
    for report in sorted(reports, key=axis.of):
        for result in report["results"]:
            lines = panels.setdefault(result["name"], {})
            lines.setdefault(axis.line(report), []).append(_point(axis, report, result))
    return {name: dict(sorted(lines.items())) for name, lines in panels.items()}


def _point(axis: Axis, report: Report, result: dict[str, Any]) -> Point:
    goal = goal_of(report, result["name"])
    return Point(
        axis.of(report),
        result[axis.quantity],
        in_quantity(axis.quantity, "seconds", result["floor"]["seconds"], result),
        {name: in_quantity(axis.quantity, goal.quantity, peer, result) for name, peer in goal.peers.items()},
    )


def draw(axis: Axis, panels: Panels, title: str, path: Path) -> None:
    """Writes one picture as PNG, a panel a result."""
    figure = Figure(figsize=(5.0 * len(panels), 5.2), layout="constrained")
    for axes, (name, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items()):
        _draw_panel(axis, axes, lines)
        axes.set_title(name)
    figure.suptitle(title)
    # matplotlib would note its version, and so change the file with it.
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _draw_panel(axis: Axis, axes: Axes, lines: dict[str, list[Point]]) -> None:
    unit, factor = _QUANTITIES[axis.quantity]
    markers: dict[str, str] = {}
    for colour, (label, points) in zip(itertools.cycle(_COLOURS), lines.items()):
        x, ours = [point.x for point in points], [point.ours * factor for point in points]
        axes.plot(x, ours, "o-", color=colour, label=f"slotwise, {label}")
        floor = [point.floor * factor for point in points]
        axes.plot(x, floor, "--", color=colour, alpha=0.6, label=f"floor, {label}")
        for name in sorted({name for point in points for name in point.peers}):
            marker = markers.setdefault(name, _PEER_MARKERS[len(markers) % len(_PEER_MARKERS)])
            known = [(point.x, point.peers[name] * factor) for point in points if name in point.peers]
            axes.plot(*zip(*known), marker, color=colour, markersize=8, label=f"{name}, {label}")
    if axis.doubling:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xticks(sorted({point.x for points in lines.values() for point in points}))
    axes.minorticks_off()
    axes.set(xlabel=axis.label, ylabel=unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, fontsize="small")


def main() -> None:
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_is)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="what run-gpu-checks wrote")
    out = Path("docs/plots")
    parser.add_argument("--out", type=Path, default=out, metavar="DIR", help="for the pictures")
    arguments = parser.parse_args()
    sweeps = read_sweeps(arguments.folders)
    if not sweeps:
        parser.error("there is no sweep in these folders: run-gpu-checks --only sweep makes one")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, reports in sweeps.items():
        title = f"Slotwise on {reports[0]['device']}"
        draw(AXES[name], panels_of(AXES[name], reports), title, arguments.out / f"{name}.png")
        print(arguments.out / f"{name}.png")


if __name__ == "__main__":
    main()
