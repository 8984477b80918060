"""Random numbers that are functions of what they belong to, so that none needs to be kept."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_SLOT_BITS = 16
_RANK_BITS = 64 - _SLOT_BITS


def mix(words: Words) -> Words:
    """Scatters 64-bit words one to one: SplitMix64's finaliser (Steele, Lea and Flood 2014).

    Not the server's own (docs/semantics.md), so a key's scatter says nothing of its rank there.
    """
    mixed = words ^ (words >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@functools.lru_cache(maxsize=1024)
def salt(seed: int, *numbers: int) -> np.uint64:
    """A word that stands for a seed and for what of it is meant."""
    word = np.zeros(1, dtype=np.uint64)
    for number in (seed, *numbers):
        word = mix((word ^ np.uint64(number)) + np.uint64(0x9E3779B97F4A7C15))
    return np.uint64(word[0])


def scatter(ranks: Words, slot: int, seed: int) -> Words:
    """Raw ids: slot (below 2^16) and rank (below 2^48) as 64 bits, scattered one to one.

    Two slots never share an id, and neither do two ranks of a slot.
    """
    packed = ranks | np.uint64(slot << _RANK_BITS)
    return mix(packed ^ salt(seed))


def normal(words: Words, of: np.uint64) -> NDArray[np.float64]:
    """A standard normal number for each word; another one for every `of`.

    By Box and Muller (1958), from two halves of a hash; none is beyond 6.7.
    """
    hashed = mix(mix(words ^ of) + of)
    radius = np.sqrt(-2 * np.log(((hashed >> np.uint64(32)).astype(np.float64) + 0.5) / 2.0**32))
    angle = (hashed & np.uint64(0xFFFFFFFF)).astype(np.float64) * (2 * np.pi / 2.0**32)
    return np.asarray(radius * np.cos(angle))


def uniform(seed: int, batch: int, purpose: int, count: int) -> NDArray[np.float64]:
    """`count` numbers in [0, 1): Philox4x64-10 (Salmon et al., SC'11) under the key (seed, batch).

    The purpose (below 2^63) is the highest word of the counter, so no two overlap. NumPy keeps a
    bit generator's raw words the same in all versions (NEP 19), and the top 53 bits are the number.
    """
    key = np.array([seed, batch], dtype=np.uint64)
    counter = np.array([0, 0, 0, purpose], dtype=np.uint64)
    words = np.random.Philox(key=key, counter=counter).random_raw(count)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
