"""The learning curve: what happened, and its picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure  # without pyplot: a file needs no display

_BLUE, _ORANGE, _GREY = "#2563eb", "#ea580c", "#94a3b8"


@dataclass
class Curve:
    """Losses of the batches, and test AUCs with the number of batches they were taken after."""

    batches_an_epoch: int
    losses: list[float] = field(default_factory=list)
    aucs: list[tuple[int, float]] = field(default_factory=list)

    def recent_loss(self, batches: int = 20) -> float:
        """The mean of the last batches' losses."""
        return float(np.mean(self.losses[-batches:]))

    def draw(self, path: Path) -> None:
        """Writes the picture as PNG; makes its folder."""
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        epochs = np.arange(1, len(self.losses) + 1) / self.batches_an_epoch
        left.plot(epochs, self.losses, color=_BLUE, alpha=0.2, linewidth=0.8, label="batch")
        left.plot(epochs, self._smooth(), color=_BLUE, linewidth=2, label="smoothed")
        left.set(title="Training loss", ylabel="binary cross-entropy")
        left.legend(frameon=False)

        at, aucs = np.array(self.aucs).T
        right.plot(at / self.batches_an_epoch, aucs, "o-", color=_ORANGE, linewidth=2, markersize=4)
        below = {"xytext": (0, -18), "textcoords": "offset points"}
        last = (at[-1] / self.batches_an_epoch, aucs[-1])
        right.annotate(f"{aucs[-1]:.4f}", last, **below, ha="right", weight="bold")
        right.set(title="Test AUC", ylabel="area under the ROC curve")
        for axes in (left, right):
            axes.set_xlabel("epochs")
            axes.grid(color=_GREY, alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        figure.suptitle("DeepFM on UCI Adult, embeddings on Slotwise", weight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)

    def _smooth(self, decay: float = 0.95) -> list[float]:
        """An exponential mean, without the pull of its start."""
        smooth, mean, weight = [], 0.0, 0.0
        for loss in self.losses:
            mean, weight = decay * mean + (1 - decay) * loss, decay * weight + 1 - decay
            smooth.append(mean / weight)
        return smooth
