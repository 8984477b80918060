"""A power law over the ranks 1 .. n, which needs no table of n entries for a draw."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.errors import InvalidArgument

# Ranks up to here have their exact share in a table; beyond them, a rank's share is an integral.
_HEAD = 4096


class PowerLaw:
    """Rank r of 1 .. n comes with probability r^-alpha / (1^-alpha + ... + n^-alpha).

    This is Zipf's law, bounded. A draw inverts the cumulative distribution: for ranks up to 4096 by
    binary search in the exact sums, and for higher ranks in closed form, with the integral of
    x^-alpha from r - 1/2 to r + 1/2 in place of r^-alpha (the midpoint rule). By the rule's error
    term the integral is larger by a share of about alpha (alpha + 1) / (24 r^2), here less than
    10^-8 for alpha below 1.5, which no sample that fits a computer shows. A draw takes one uniform
    number and rejects none, so the i-th draw never depends on the others.

    Thread-safe: a law does not change.
    """

    def __init__(self, ranks: int, alpha: float) -> None:
        """Makes a law over `ranks` ranks, 1 .. 2^48; `alpha` is at least 0 and finite."""
        if not 1 <= ranks <= 1 << 48:
            raise InvalidArgument(f"ranks is {ranks}, not in 1 .. 2^48")
        if not 0 <= alpha < np.inf:
            raise InvalidArgument(f"alpha is {alpha}, not a number of at least 0")
        self.ranks, self.alpha = ranks, alpha
        self._head = np.cumsum(np.arange(1, min(ranks, _HEAD) + 1, dtype=np.float64) ** -alpha)
        self._from = self._primitive(np.float64(_HEAD + 0.5))
        tail = self._primitive(np.float64(ranks + 0.5)) - self._from if ranks > _HEAD else 0.0
        self._total = float(self._head[-1] + tail)

    def draw(self, uniform: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Returns the ranks 1 .. n at quantiles in [0, 1); uniform numbers give the law."""
        mass = uniform * self._total
        ranks = np.searchsorted(self._head, mass, side="right") + 1.0
        beyond = ranks > _HEAD
        rest = self._inverse(self._from + mass[beyond] - self._head[-1])
        ranks[beyond] = np.clip(np.rint(rest), _HEAD + 1, None)
        return np.minimum(ranks, float(self.ranks)).astype(np.uint64)

    def probability(self, rank: ArrayLike) -> NDArray[np.float64]:
        """Returns the probability of each of `rank`, which are in 1 .. n."""
        return np.asarray(rank, dtype=np.float64) ** -self.alpha / self._total

    def share_up_to(self, rank: int) -> float:
        """Returns the probability of all ranks 1 .. rank together."""
        if rank <= len(self._head):
            return float(self._head[rank - 1]) / self._total if rank > 0 else 0.0
        end = self._primitive(np.float64(min(rank, self.ranks) + 0.5))
        return float(self._head[-1] + end - self._from) / self._total

    # The primitive of x^-alpha that is 0 at x = 1, written so that alpha near 1 loses no digits.

    def _primitive(self, x: np.float64) -> np.float64:
        power = 1 - self.alpha
        return np.float64(np.expm1(power * np.log(x)) / power if power else np.log(x))

    def _inverse(self, y: NDArray[Any]) -> NDArray[np.float64]:
        power = 1 - self.alpha
        result: NDArray[np.float64] = np.exp(np.log1p(power * y) / power if power else y)
        return result
