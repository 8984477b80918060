"""Checks a batch of bags of keys, and cuts it into the parts of several requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.errors import InvalidArgument

# A part's size in bytes. A part below the least is not worth a request; gRPC moves 1 to 4 MiB
# fastest.
_LEAST_PART = 64 << 10
_GOOD_PART = 1 << 20
_LARGEST_PART = 4 << 20

# Samples [first, last) of a batch.
Range = tuple[int, int]
# One request's share of the batches of one or several tables: a range of samples of each.
Share = tuple[Range, ...]


class Part(NamedTuple):
    """A range of a batch's samples, as a request has it; its offsets begin at 0."""

    keys: NDArray[np.uint64]
    offsets: NDArray[np.uint32] | None
    weights: NDArray[np.float32] | None


@dataclass(frozen=True)
class Batch:
    """`samples * slots` bags of keys.

    Bag b owns `keys[offsets[b]:offsets[b + 1]]`, or `keys[b]` if `offsets` is None. `weights` has
    one weight a key, or is None if all are 1. The arrays are not copied, so a batch is not
    thread-safe against a caller who writes to them.

    Attributes:
        shape: a result's shape without its last dimension: [samples], or, in a table without a
            combiner, the keys' shape.
    """

    keys: NDArray[np.uint64]
    offsets: NDArray[np.integer[Any]] | None
    weights: NDArray[np.float32] | None
    samples: int
    slots: int
    shape: tuple[int, ...]

    def part(self, samples: Range) -> Part:
        """Returns the keys, offsets (from 0) and weights of a range of samples."""
        first, last = samples[0] * self.slots, samples[1] * self.slots
        offsets = None
        if self.offsets is not None:
            from_zero = self.offsets[first : last + 1]
            first, last = int(from_zero[0]), int(from_zero[-1])
            offsets = (from_zero - from_zero[0]).astype("<u4")
        weights = None if self.weights is None else self.weights[first:last]
        return Part(self.keys[first:last], offsets, weights)

    def part_bytes(self, samples: Range) -> int:
        """Returns the bytes that the arrays of a range of samples take in a request."""
        first, last = samples[0] * self.slots, samples[1] * self.slots
        each = 8 if self.weights is None else 12
        if self.offsets is None:
            return each * (last - first)
        return each * int(self.offsets[last] - self.offsets[first]) + 4 * (last - first + 1)


def make_batch(
    keys: ArrayLike,
    offsets: ArrayLike | None,
    slots: int,
    weights: ArrayLike | None = None,
    *,
    pooled: bool = True,
) -> Batch:
    """Checks a batch as the server would; InvalidArgument names the field and value.

    Args:
        keys: uint64 or int64 (reinterpreted bit by bit), 1-D; without offsets also [samples,
            slots]; of any shape if not `pooled`.
        offsets: None for one key a bag, or integers [samples * slots + 1] rising from 0 to
            `len(keys)`.
        slots: bags a sample.
        weights: None for all 1, or float32 of the keys' shape, finite.
        pooled: False for a table without a combiner, in which every bag has exactly one key.
    """
    array = np.asarray(keys)
    key_array = as_keys(array)
    weight_array = None if weights is None else _as_weights(weights, array.shape)
    if offsets is not None:
        if array.ndim != 1:
            raise InvalidArgument(f"keys: shape is {array.shape}, not [keys], though with offsets")
        offset_array = np.asarray(offsets)
        _check_offsets(offset_array, len(key_array), slots)
        if not pooled:
            _check_one_key_a_bag(offset_array)
        samples = (len(offset_array) - 1) // slots
        return Batch(key_array, offset_array, weight_array, samples, slots, (samples,))
    if not pooled:
        return Batch(key_array, None, weight_array, len(key_array), slots, array.shape)
    if array.ndim != 1 and (array.ndim != 2 or array.shape[1] != slots):
        raise InvalidArgument(
            f"keys: shape is {array.shape}, not [keys] or, without offsets, [samples, {slots}]"
        )
    if len(key_array) % slots:
        raise InvalidArgument(
            f"keys: {len(key_array)} keys without offsets are no whole number of samples "
            f"of {slots} slots"
        )
    samples = len(key_array) // slots
    return Batch(key_array, None, weight_array, samples, slots, (samples,))


def as_keys(keys: ArrayLike) -> NDArray[np.uint64]:
    """Returns uint64 or int64 of any shape as uint64 [keys], without a copy if contiguous."""
    array = np.asarray(keys)
    if array.dtype not in (np.uint64, np.int64):
        raise InvalidArgument(f"keys: dtype is {array.dtype}, not uint64 or int64")
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint64).astype("<u8", copy=False)


def _as_weights(weights: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float32]:
    array = np.asarray(weights)
    if array.dtype != np.float32:
        raise InvalidArgument(f"weights: dtype is {array.dtype}, not float32")
    if array.shape != shape:
        raise InvalidArgument(f"weights: shape is {array.shape}, not {shape} as the keys'")
    flat = np.ascontiguousarray(array, dtype="<f4").reshape(-1)
    finite = np.isfinite(flat)
    if not finite.all():
        place = int(np.argmin(finite))
        raise InvalidArgument(f"weights[{place}] is {flat[place]}, not finite")
    return flat


def _check_one_key_a_bag(offsets: NDArray[Any]) -> None:
    wrong = np.flatnonzero(offsets != np.arange(len(offsets)))
    if len(wrong):
        raise InvalidArgument(
            f"offsets[{wrong[0]}] is {offsets[wrong[0]]}, not {wrong[0]}: in a table without a "
            f"combiner every bag has one key"
        )


def _check_offsets(offsets: NDArray[Any], keys: int, slots: int) -> None:
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1:
        raise InvalidArgument(
            f"offsets: {offsets.dtype} of shape {offsets.shape} is not a 1-D array of integers"
        )
    if len(offsets) == 0 or (len(offsets) - 1) % slots:
        raise InvalidArgument(
            f"offsets: length is {len(offsets)}, not samples * slots + 1 with {slots} slots"
        )
    if offsets[0] != 0:
        raise InvalidArgument(f"offsets[0] is {offsets[0]}, not 0")
    if offsets[-1] != keys:
        raise InvalidArgument(f"offsets[-1] is {offsets[-1]}, not the number of keys, {keys}")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(falls):
        bag = int(falls[0])
        raise InvalidArgument(
            f"offsets[{bag + 1}] is {offsets[bag + 1]}, less than {offsets[bag]} before it"
        )


def cut(samples: Sequence[int], all_bytes: int, ranks: int, channels: int) -> list[Share]:
    """Cuts the batches of one or several tables into the shares of requests.

    There is at least one share, even for no samples. Every rank gets a part if the batch is large
    enough, and every channel (`channels` a rank) gets one if the parts are then still of a good
    size. Parts have at most 4 MiB on average, unless one sample is larger.

    Args:
        samples: how many each batch has. All batches are cut into the same number of ranges, some
            of which are empty if a batch has fewer samples than that.
        all_bytes: the bytes of all batches' values, or of their keys, offsets and weights if these
            are more.
    """
    wanted = ranks * channels if all_bytes >= ranks * channels * _GOOD_PART else ranks
    wanted = max(wanted, -(-all_bytes // _LARGEST_PART))
    wanted = -(-wanted // ranks) * ranks  # every rank gets the same number
    return even_shares(samples, max(1, min(wanted, all_bytes // _LEAST_PART, max(samples))))


def even_shares(samples: Sequence[int], parts: int) -> list[Share]:
    """Returns `parts` shares, as even as possible; some are empty if parts exceed samples."""
    return [
        tuple((count * i // parts, count * (i + 1) // parts) for count in samples)
        for i in range(parts)
    ]


def halve_until_fit(
    shares: list[Share], request_bytes: Callable[[Share], int], limit: int
) -> list[Share]:
    """Halves every share whose request exceeds `limit`, until it fits or is one sample."""
    fitting: list[Share] = []
    waiting = shares[::-1]
    while waiting:
        share = waiting.pop()
        if max(last - first for first, last in share) > 1 and request_bytes(share) > limit:
            middles = [(first + last) // 2 for first, last in share]
            waiting += [
                tuple((middle, last) for middle, (_, last) in zip(middles, share)),
                tuple((first, middle) for middle, (first, _) in zip(middles, share)),
            ]
        else:
            fitting.append(share)
    return fitting
