"""A checked batch of bags of keys, and how it is cut into the parts of several requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.errors import InvalidArgument

# A part's size in bytes. Below the least, a part is not worth its request; gRPC moves 1 to 4 MiB
# fastest.
_LEAST_PART = 64 << 10
_GOOD_PART = 1 << 20
_LARGEST_PART = 4 << 20

# Samples [first, last) of a batch.
Range = tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """`samples * slots` bags of keys.

    Bag b owns `keys[offsets[b]:offsets[b + 1]]`, or `keys[b]` if `offsets` is None.
    Not thread-safe against a caller who writes to the arrays: they are not copied.
    """

    keys: NDArray[np.uint64]
    offsets: NDArray[np.integer[Any]] | None
    samples: int
    slots: int

    def part(self, samples: Range) -> tuple[NDArray[np.uint64], NDArray[np.uint32] | None]:
        """The keys and offsets (from 0) of a range of samples."""
        first, last = samples[0] * self.slots, samples[1] * self.slots
        if self.offsets is None:
            return self.keys[first:last], None
        offsets = self.offsets[first : last + 1]
        keys = self.keys[int(offsets[0]) : int(offsets[-1])]
        return keys, (offsets - offsets[0]).astype("<u4")

    def part_bytes(self, samples: Range) -> int:
        """The bytes that the keys and offsets of a range of samples take in a request."""
        first, last = samples[0] * self.slots, samples[1] * self.slots
        if self.offsets is None:
            return 8 * (last - first)
        return 8 * int(self.offsets[last] - self.offsets[first]) + 4 * (last - first + 1)


def make_batch(keys: ArrayLike, offsets: ArrayLike | None, slots: int) -> Batch:
    """Checks `keys` and `offsets` as the server would; InvalidArgument names what is wrong.

    Args:
        keys: uint64 or int64 (reinterpreted bit by bit), 1-D; without offsets also
            [samples, slots].
        offsets: None for one key a bag, or integers [samples * slots + 1] rising from 0 to
            `len(keys)`.
        slots: bags a sample.
    """
    key_array = _as_keys(keys, slots, one_key_a_bag=offsets is None)
    if offsets is None:
        if len(key_array) % slots:
            raise InvalidArgument(
                f"keys: {len(key_array)} keys without offsets are no whole number of samples "
                f"of {slots} slots"
            )
        return Batch(key_array, None, len(key_array) // slots, slots)
    offset_array = np.asarray(offsets)
    _check_offsets(offset_array, len(key_array), slots)
    return Batch(key_array, offset_array, (len(offset_array) - 1) // slots, slots)


def _as_keys(keys: ArrayLike, slots: int, one_key_a_bag: bool) -> NDArray[np.uint64]:
    array = np.asarray(keys)
    if array.dtype not in (np.uint64, np.int64):
        raise InvalidArgument(f"keys: dtype is {array.dtype}, not uint64 or int64")
    if one_key_a_bag and array.ndim == 2 and array.shape[1] == slots:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise InvalidArgument(
            f"keys: shape is {array.shape}, not [keys] or, without offsets, [samples, {slots}]"
        )
    return np.ascontiguousarray(array).view(np.uint64).astype("<u8", copy=False)


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


def cut(samples: int, batch_bytes: int, ranks: int, channels: int) -> list[Range]:
    """Cuts a batch into ranges of samples, one a request; at least one, even for no samples.

    Every rank gets a part if there is enough to share, every channel (`channels` a rank) if that
    leaves parts of a good size, and parts are of at most 4 MiB, on average, unless one sample is
    larger.

    Args:
        batch_bytes: of the whole batch's values, or of its keys and offsets if they are more.
    """
    wanted = ranks * channels if batch_bytes >= ranks * channels * _GOOD_PART else ranks
    wanted = max(wanted, -(-batch_bytes // _LARGEST_PART))
    wanted = -(-wanted // ranks) * ranks  # every rank has the same number
    return even_ranges(samples, max(1, min(wanted, batch_bytes // _LEAST_PART, samples)))


def even_ranges(samples: int, parts: int) -> list[Range]:
    """`parts` ranges, as even as can be; empty ones if there are more parts than samples."""
    return [(samples * i // parts, samples * (i + 1) // parts) for i in range(parts)]


def halve_until_fit(
    ranges: list[Range], request_bytes: Callable[[Range], int], limit: int
) -> list[Range]:
    """Halves every range whose request is larger than `limit`, until it fits or is one sample."""
    fitting: list[Range] = []
    waiting = ranges[::-1]
    while waiting:
        first, last = waiting.pop()
        if last - first > 1 and request_bytes((first, last)) > limit:
            middle = (first + last) // 2
            waiting += [(middle, last), (first, middle)]
        else:
            fitting.append((first, last))
    return fitting
