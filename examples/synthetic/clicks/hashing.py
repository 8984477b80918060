"""Random numbers that are functions of what they belong to, so that none is stored."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_SLOT_BITS = 16
_RANK_BITS = 64 - _SLOT_BITS


def mix(words: Words) -> Words:
    """Scatters 64-bit words one to one: SplitMix64's finaliser (Steele, Lea and Flood 2014).

    The server uses another function (docs/semantics.md), so a key's word does not tell its server
    rank.
    """
    mixed = words ^ (words >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@functools.lru_cache(maxsize=1024)
def salt(seed: int, *numbers: int) -> np.uint64:
    """Returns a word that stands for a seed and for the use of the seed that `numbers` name."""
    word = np.zeros(1, dtype=np.uint64)
    for number in (seed, *numbers):
        word = mix((word ^ np.uint64(number)) + np.uint64(0x9E3779B97F4A7C15))
    return np.uint64(word[0])


def scatter(ranks: Words, slot: int, seed: int) -> Words:
    """Returns raw ids: slot (below 2^16) and rank (below 2^48), scattered one to one to 64 bits.

    Two slots never share an id, and neither do two ranks of a slot.
    """
    packed = ranks | np.uint64(slot << _RANK_BITS)
    return mix(packed ^ salt(seed))


def normal(words: Words, of: np.uint64) -> NDArray[np.float64]:
    """Returns a standard normal number for each word; other values of `of` give other numbers.

    The numbers follow Box and Muller (1958), from two halves of a hash; none is beyond 6.7.
    """
    hashed = mix(mix(words ^ of) + of)
    radius = np.sqrt(-2 * np.log(((hashed >> np.uint64(32)).astype(np.float64) + 0.5) / 2.0**32))
    angle = (hashed & np.uint64(0xFFFFFFFF)).astype(np.float64) * (2 * np.pi / 2.0**32)
    return np.asarray(radius * np.cos(angle))


def uniform(seed: int, batch: int, purpose: int, count: int) -> NDArray[np.float64]:
    """Draws `count` numbers in [0, 1) by Philox4x64-10 (Salmon et al., SC'11).


    The key is (seed, batch). The purpose (below 2^63) is the highest word of the counter, so no two
    purposes overlap. NumPy keeps a bit generator's raw words the same in all versions (NEP 19), and
    their top 53 bits make the numbers.
    """
    key = np.array([seed, batch], dtype=np.uint64)
    counter = np.array([0, 0, 0, purpose], dtype=np.uint64)
    words = np.random.Philox(key=key, counter=counter).random_raw(count)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
