"""AUC, rows and memory of tables over time: what was measured, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure  # without pyplot: a file needs no display

_COLOURS = ("#94a3b8", "#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#a16207")


@dataclass(frozen=True)
class Point:
    """A table after a step.

    Attributes:
        auc: of the last window of steps, each batch scored before it was learnt from.
        rows, bytes: the table's, over all ranks; bytes of device memory.
        gone: rows that were evicted or have expired until then.
    """

    table: str
    step: int
    auc: float
    rows: int
    bytes: int
    gone: int


def draw(path: Path, curves: Sequence[Sequence[Point]], title: str) -> None:
    """Writes a PNG with a line for each table's points; AUCs also less the first table's."""
    figure = Figure(figsize=(16, 4), layout="constrained")
    names = ("AUC", f"AUC, less that of {curves[0][0].table}", "thousands of rows", "MiB")
    panels = dict(zip(names, figure.subplots(1, 4)))
    for points, colour in zip(curves, _COLOURS):
        values = (
            [point.auc for point in points],
            [point.auc - first.auc for point, first in zip(points, curves[0])],
            [point.rows / 1000 for point in points],
            [point.bytes / 2**20 for point in points],
        )
        steps = [point.step for point in points]
        for axes, drawn in zip(panels.values(), values):
            axes.plot(steps, drawn, color=colour, linewidth=1.5, label=points[0].table)
    for name, axes in panels.items():
        axes.set(title=name, xlabel="step")
        axes.grid(color="#94a3b8", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels["AUC"].legend(frameon=False)
    figure.suptitle(title, weight="bold")
    figure.savefig(path, dpi=80)
