"""The hash by which keys have their ranks (docs/semantics.md), and back."""

from __future__ import annotations

import numpy as np

_SHIFT = np.uint64(33)
_FACTORS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)


def mix64(keys: np.ndarray) -> np.ndarray:
    """The hashes of keys, or of any uint64 [n]."""
    with np.errstate(over="ignore"):
        for factor in _FACTORS:
            keys = (keys ^ keys >> _SHIFT) * np.uint64(factor)
        return keys ^ keys >> _SHIFT


def unmix64(hashes: np.ndarray) -> np.ndarray:
    """The keys that have these hashes: anybody can find them."""
    with np.errstate(over="ignore"):
        for factor in reversed(_FACTORS):
            hashes = (hashes ^ hashes >> _SHIFT) * np.uint64(pow(factor, -1, 1 << 64))
        return hashes ^ hashes >> _SHIFT


def buckets_of(keys: np.ndarray) -> np.ndarray:
    """The bucket of each key, of 4096; a rank has as many neighbouring ones as another."""
    return mix64(keys) >> np.uint64(52)
