"""The planted model decides the clicks' probabilities, and a trainer is to learn it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from slotwise.errors import InvalidArgument

from clicks.hashing import Words, normal, salt

# The purpose of a hidden number is part of its hash.
_EFFECT, _FACTOR, _WEIGHT = 1, 2, 3

_COMBINERS = ("sum", "mean", "sqrtn")


@dataclass(frozen=True)
class Slot:
    """One categorical feature.

    Attributes:
        ids: the vocabulary's size, at most 2^48; nothing is stored for an id.
        alpha: the exponent of the power law that the ids follow; 0 makes all ids equally frequent.
        deviation: the standard deviation, over ids, of an id's effect on the log-odds of a click.
        least, most: the bounds of a bag's number of ids, which is uniform; least may be 0.
    """

    ids: int
    alpha: float
    deviation: float
    least: int = 1
    most: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.ids <= 1 << 48:
            raise InvalidArgument(f"ids is {self.ids}, not in 1 .. 2^48")
        if not 0 <= self.alpha < math.inf:
            raise InvalidArgument(f"alpha is {self.alpha}, not a number of at least 0")
        if not 0 <= self.deviation < math.inf:
            raise InvalidArgument(f"deviation is {self.deviation}, not a number of at least 0")
        if not 0 <= self.least <= self.most or self.most == 0:
            raise InvalidArgument(
                f"least, most are {self.least}, {self.most}: not 0 <= least <= most, 1 <= most"
            )

    @property
    def single(self) -> bool:
        """Returns whether every bag has one id."""
        return self.least == self.most == 1


@dataclass(frozen=True)
class ClickModel:
    """Gives log-odds = bias + slots' effects + their pairs' effects + weights · dense features.

    - A slot's effect is its ids' effects, pooled by the combiner; an id's effect is normal, with the
      slot's deviation.
    - Each id also has a factor, standard normal. A pair (a, b) of slots adds
      pair_deviation · (factors of slot a, pooled) · (factors of slot b, pooled): a factorisation
      machine of one factor.
    - A dense feature is standard normal; its weight is dense_deviation times a standard normal.

    All hidden numbers are functions of (seed, slot, id) or (seed, feature).

    Attributes:
        combiner: sum, mean or sqrtn, as for a table (docs/semantics.md).
        pairs: the numbers of the slots that interact.
        dense: the number of dense features.
    """

    slots: tuple[Slot, ...]
    bias: float = 0.0
    combiner: str = "sum"
    pairs: tuple[tuple[int, int], ...] = ()
    pair_deviation: float = 0.0
    dense: int = 0
    dense_deviation: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.slots) < 1 << 16:
            raise InvalidArgument(f"there are {len(self.slots)} slots, not 1 .. 65535")
        if self.combiner not in _COMBINERS:
            raise InvalidArgument(f"combiner is {self.combiner!r}, not sum, mean or sqrtn")
        if self.dense < 0:
            raise InvalidArgument(f"dense is {self.dense}, not at least 0")
        for pair in self.pairs:
            if not all(0 <= slot < len(self.slots) for slot in pair):
                raise InvalidArgument(f"pairs: {pair} names a slot that is not there")

    @property
    def ids(self) -> int:
        """Returns the sum of the vocabularies' sizes."""
        return sum(slot.ids for slot in self.slots)

    def log_odds(
        self, seed: int, bags: list[tuple[Words, NDArray[np.int64]]], dense: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Returns the log-odds of a click, float64 [samples].

        Args:
            seed: the seed of the hidden numbers.
            bags: for each slot, its keys of all samples in order, and int64 [samples] how many of
                these keys each sample has.
            dense: float32 [samples, self.dense].
        """
        total = np.full(len(dense), self.bias)
        for number, slot in enumerate(self.slots):
            total += slot.deviation * self._pooled(bags[number], salt(seed, _EFFECT, number))
        interacting = sorted({slot for pair in self.pairs for slot in pair})
        factors = {n: self._pooled(bags[n], salt(seed, _FACTOR, n)) for n in interacting}
        for first, second in self.pairs:
            total += self.pair_deviation * factors[first] * factors[second]
        # The columns are added one at a time, because a matrix product's order of sums depends on
        # the machine.
        for column, weight in enumerate(self.dense_weights(seed)):
            total += weight * dense[:, column]
        return total

    def dense_weights(self, seed: int) -> NDArray[np.float64]:
        """Returns the hidden weights of the dense features, float64 [dense]."""
        features = np.arange(self.dense, dtype=np.uint64)
        return self.dense_deviation * normal(features, salt(seed, _WEIGHT))

    def _pooled(self, bag: tuple[Words, NDArray[np.int64]], of: np.uint64) -> NDArray[np.float64]:
        keys, counts = bag
        sample = np.repeat(np.arange(len(counts)), counts)
        pooled = np.bincount(sample, weights=normal(keys, of), minlength=len(counts))
        divisor = np.maximum(counts, 1)
        if self.combiner == "mean":
            return np.asarray(pooled / divisor)
        return np.asarray(pooled / np.sqrt(divisor) if self.combiner == "sqrtn" else pooled)
