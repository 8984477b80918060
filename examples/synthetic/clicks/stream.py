"""Batches of clicks: batch b of a seed is the same for every process at any time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from slotwise.errors import InvalidArgument

from clicks.hashing import Words, normal, salt, scatter, uniform
from clicks.model import ClickModel, Slot
from clicks.power_law import PowerLaw

# The purposes of a batch's random numbers; a slot has two purposes from _SLOTS on. A purpose's
# numbers do not depend on what else a model has.
_LABELS, _DENSE, _SLOTS = 0, 1, 2


@dataclass(frozen=True)
class Clicks:
    """A batch as Slotwise takes it, with its labels and their true probabilities.

    Attributes:
        keys: uint64 [keys].
        offsets: uint32 [samples * slots + 1]; bag b = sample * slots + slot owns
            keys[offsets[b]:offsets[b + 1]].
        dense: float32 [samples, features].
        labels: float32 [samples], 1 for a click, else 0.
        probabilities: float64 [samples], each label's true probability of being 1, for measuring
            alone: a trainer that uses them shows nothing.
    """

    keys: Words
    offsets: NDArray[np.uint32]
    dense: NDArray[np.float32]
    labels: NDArray[np.float32]
    probabilities: NDArray[np.float64]

    @property
    def samples(self) -> int:
        return len(self.labels)


class ClickStream:
    """Endless batches of one planted model.

    Batch b is a pure function of (model, seed, batch size, b), so any process can make any batch:
    k trainers take `batches(trainer, stop, k)` each and share nothing. The hidden model depends on
    the seed alone.

    Thread-safe: a stream does not change.
    """

    def __init__(self, model: ClickModel, *, seed: int, batch_size: int) -> None:
        """Makes a stream; `seed` is any 64 bits, `batch_size` is in samples."""
        if not 0 <= seed < 1 << 64:
            raise InvalidArgument(f"seed is {seed}, not a 64-bit number")
        if batch_size < 1:
            raise InvalidArgument(f"batch_size is {batch_size}, not at least 1")
        if batch_size * sum(slot.most for slot in model.slots) >= 1 << 32:
            raise InvalidArgument(f"batch_size is {batch_size}: offsets would pass 32 bits")
        self.model, self.seed, self.batch_size = model, seed, batch_size
        self._laws = [PowerLaw(slot.ids, slot.alpha) for slot in model.slots]

    def batch(self, number: int) -> Clicks:
        """Returns batch `number`, 0 .. 2^64 - 1."""
        if not 0 <= number < 1 << 64:
            raise InvalidArgument(f"batch is {number}, not a 64-bit number")
        bags = [self._bags(number, n, slot) for n, slot in enumerate(self.model.slots)]
        dense = self._dense(number)
        log_odds = self.model.log_odds(self.seed, bags, dense)
        probabilities = 1 / (1 + np.exp(-log_odds))
        clicked = uniform(self.seed, number, _LABELS, self.batch_size) < probabilities
        keys, offsets = _interleave(bags)
        return Clicks(keys, offsets, dense, clicked.astype(np.float32), probabilities)

    def batches(self, start: int = 0, stop: int | None = None, step: int = 1) -> Iterator[Clicks]:
        """Yields batches start, start + step, ... below `stop`, or for ever if `stop` is None."""
        numbers: Iterable[int] = itertools.count(start, step) if stop is None else range(start, stop, step)
        return map(self.batch, numbers)

    def _bags(self, batch: int, number: int, slot: Slot) -> tuple[Words, NDArray[np.int64]]:
        """Returns a slot's keys of all samples in order, and int64 [samples] how many each has."""
        purpose = _SLOTS + 2 * number
        counts = np.full(self.batch_size, slot.least, dtype=np.int64)
        if slot.least < slot.most:
            choices = slot.most - slot.least + 1
            chosen = uniform(self.seed, batch, purpose, self.batch_size) * choices
            counts += chosen.astype(np.int64)
        drawn = uniform(self.seed, batch, purpose + 1, int(counts.sum()))
        return scatter(self._laws[number].draw(drawn), number, self.seed), counts

    def _dense(self, batch: int) -> NDArray[np.float32]:
        features = self.model.dense
        place = np.arange(self.batch_size * features, dtype=np.uint64)
        values = normal(place, salt(self.seed, batch, _DENSE))
        return values.astype(np.float32).reshape(self.batch_size, features)


def _interleave(bags: list[tuple[Words, NDArray[np.int64]]]) -> tuple[Words, NDArray[np.uint32]]:
    """Joins the slots' bags sample by sample; returns keys and offsets of a whole batch."""
    counts = np.stack([counts for _, counts in bags], axis=1)  # [samples, slots]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    keys = np.empty(int(offsets[-1]), dtype=np.uint64)
    starts = offsets[:-1].reshape(counts.shape)
    for slot, (slot_keys, slot_counts) in enumerate(bags):
        # How many keys of this slot earlier samples have.
        before = np.cumsum(slot_counts) - slot_counts
        keys[np.repeat(starts[:, slot] - before, slot_counts) + np.arange(len(slot_keys))] = slot_keys
    return keys, offsets.astype(np.uint32)
