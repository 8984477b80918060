"""Keys of ids that are texts."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.batch import address_of
from slotwise.core import core
from slotwise.errors import InvalidArgument


def hash_ids(values: str | Sequence[Any] | NDArray[Any], *, seed: int = 0) -> NDArray[np.uint64]:
    """Returns the keys of texts: uint64, of the shape of `values`.

    A text's key is XXH3's 64-bit hash, with `seed`, of its bytes in UTF-8, as every XXH3 library computes it.
    Two of n different texts have one key with a probability of about n * n / 2**65: 3e-4 of 100 million.

    Args:
        values: a text; or a list, array or column of texts, of any shape. `bytes` are hashed as they are.
        seed: 0 to 2**64 - 1. Features with seeds of their own may share a table, and no rows.

    Raises:
        slotwise.InvalidArgument: a value is no text, as None or NaN; the message names it and its place.
    """
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 1 << 64:
        raise InvalidArgument(f"seed is {seed}: must be 0 to 2**64 - 1")
    given: Any = np.asarray(values, dtype=object)
    encoded = [_encoded(place, value) for place, value in enumerate(given.reshape(-1).tolist())]
    texts = b"".join(encoded)
    ends = np.cumsum(np.fromiter(map(len, encoded), np.uint64, len(encoded)), dtype=np.uint64)
    keys = np.empty(given.shape, np.uint64)
    core().hash_ids(texts, _pointer(ends), len(encoded), int(seed), _pointer(keys))
    return keys


def _encoded(place: int, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise InvalidArgument(
            f"values[{place}] is {value!r}, no text: fill what is missing with a text of your own; ids that "
            f"are integers are keys as they are"
        )
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"values[{place}] is no Unicode text: {error}") from None


def _pointer(array: NDArray[np.uint64]) -> Any:
    return ctypes.cast(address_of(array), ctypes.POINTER(ctypes.c_uint64))
