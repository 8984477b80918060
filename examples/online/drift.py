"""Synthetic clicks that drift: ids are born at every step, become popular, fade, and hardly come back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1] / "synthetic"))
from clicks import ClickModel, Clicks, PowerLaw, Slot  # noqa: E402
from clicks.hashing import Words, scatter, uniform  # noqa: E402

# A field's cohort of step 0 has this number, so that the ids born before it have one, too.
_FIRST = 1 << 20
# The purposes of a batch's random numbers: the labels', and of each field the eight from 1 + 8 · field on.
_LABELS, _ID, _AGE, _STAYS = 0, 1, 2, 4


@dataclass(frozen=True)
class Field:
    """A categorical feature: one id a sample, which is either of a cohort, or one of those that stay.

    A cohort is the ids that are born at one step. Its share of the draws `age` steps later is
    age · exp(-age / life), the density of a gamma distribution: it rises for `life` steps, and then falls.

    Attributes:
        deviation: the standard deviation, over ids, of an id's effect on the log-odds of a click.
        alpha: the exponent of the power law over the ids of a cohort, and over those that stay.
        born: how many ids are born at each step.
        life: the age, in steps, at which an id is most popular.
        staying: how many ids stay for ever.
        stays: the share of the samples whose id stays.
    """

    deviation: float
    alpha: float = 1.0
    born: int = 1
    life: float = 1.0
    staying: int = 1
    stays: float = 1.0


FIELDS = (
    Field(0.9, alpha=0.9, born=120, life=12, staying=5000, stays=0.2),  # items: news, and a catalogue
    Field(0.7, alpha=0.6, born=40, life=40, staying=1, stays=0),  # users, who come and leave
    Field(0.6, alpha=0.6, born=1, life=80, staying=200, stays=0.3),  # campaigns
    Field(0.5, staying=60),  # countries
    Field(0.3, staying=24),  # hours
)
PAIRS = ((2, 3),)  # a campaign does better in some countries


class DriftingClicks:
    """Endless batches, a step each. Batch b is a pure function of (seed, batch size, b).

    An id's effect never changes: what drifts is which ids come.
    """

    def __init__(self, *, seed: int, batch_size: int) -> None:
        self.seed, self.batch_size = seed, batch_size
        self._born = [PowerLaw(field.born, field.alpha) for field in FIELDS]
        self._staying = [PowerLaw(field.staying, field.alpha) for field in FIELDS]
        slots = tuple(Slot(1 << 48, field.alpha, field.deviation) for field in FIELDS)
        self._truth = ClickModel(slots, bias=-1.5, pairs=PAIRS, pair_deviation=0.5)

    def batch(self, step: int) -> Clicks:
        """Returns the batch of a step, 0 .. 2^20."""
        keys = [self._keys(step, number, field) for number, field in enumerate(FIELDS)]
        one_each = np.ones(self.batch_size, dtype=np.int64)
        dense = np.empty((self.batch_size, 0), dtype=np.float32)
        log_odds = self._truth.log_odds(self.seed, [(of_field, one_each) for of_field in keys], dense)
        probabilities = 1 / (1 + np.exp(-log_odds))
        labels = self._uniform(step, _LABELS) < probabilities
        offsets = np.arange(self.batch_size * len(keys) + 1, dtype=np.uint32)
        return Clicks(
            np.stack(keys, axis=1).reshape(-1), offsets, dense, labels.astype(np.float32), probabilities
        )

    def batches(self, steps: int) -> Iterator[Clicks]:
        """Yields the batches of steps 0, 1, ... below `steps`."""
        return map(self.batch, range(steps))

    def _keys(self, step: int, number: int, field: Field) -> Words:
        """Returns one key of a field for each sample."""
        first = 1 + 8 * number
        quantile = self._uniform(step, first + _ID)
        # The sum of two exponential numbers has the gamma distribution.
        product = (1 - self._uniform(step, first + _AGE)) * (1 - self._uniform(step, first + _AGE + 1))
        cohort = _FIRST + step - np.floor(-field.life * np.log(product)).astype(np.int64)
        fresh = cohort.astype(np.uint64) * np.uint64(field.born) + self._born[number].draw(quantile)
        stays = self._uniform(step, first + _STAYS) < field.stays
        return scatter(np.where(stays, self._staying[number].draw(quantile), fresh), number, self.seed)

    def _uniform(self, step: int, purpose: int) -> NDArray[np.float64]:
        return uniform(self.seed, step, purpose, self.batch_size)
