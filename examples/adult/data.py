"""UCI Adult as 13 keys a person: 8 categories and 5 binned numbers, one key a slot."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_COLUMNS = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country income"
).split()
_CATEGORIES = "workclass education marital-status occupation relationship race sex native-country".split()

# A number's bins begin at quantiles, or at every value that the training set has: few people have
# capital gains, of few amounts, and some of those amounts alone tell the income.
_BINS: dict[str, int | None] = {
    "age": 20,
    "education-num": None,
    "capital-gain": None,
    "capital-loss": None,
    "hours-per-week": 10,
}

SLOTS = len(_CATEGORIES) + len(_BINS)


# Makes labels of a column's texts.
Labels = Callable[[NDArray[np.str_]], list[str]]


class People(NamedTuple):
    """`keys`: int64 [people, SLOTS]. `rich`: float32 [people], 1 for an income above 50,000 $."""

    keys: Tensor
    rich: Tensor


def load(folder: Path = Path(__file__).parent / "data") -> tuple[People, People]:
    """The published training set (32,561 people) and test set (16,281); bins are the former's."""
    train, test = _read(folder / "adult.data.gz"), _read(folder / "adult.test.gz")
    labels: dict[str, Labels] = {column: list for column in _CATEGORIES}
    for column, bins in _BINS.items():
        labels[column] = _binning(train[column].astype(float), bins)
    return _people(train, labels), _people(test, labels)


def key(column: str, label: str) -> int:
    """The 64-bit key of a value: the first 8 bytes of BLAKE2b of "column=label", little-endian.

    Without any dictionary that trainers would have to share; signed, because torch wants int64.
    """
    digest = hashlib.blake2b(f"{column}={label}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _read(path: Path) -> dict[str, NDArray[np.str_]]:
    with gzip.open(path, "rt") as file:
        people = [[field.strip() for field in line.split(",")] for line in file]
    # The files have empty lines, and the test set begins with a comment in some copies.
    people = [person for person in people if len(person) == len(_COLUMNS)]
    return dict(zip(_COLUMNS, np.array(people).T, strict=True))


def _binning(known: NDArray[np.float64], bins: int | None) -> Labels:
    """A function from numbers to the names of their bins."""
    starts = np.unique(known if bins is None else np.quantile(known, np.arange(bins) / bins))

    def names(texts: NDArray[np.str_]) -> list[str]:
        places = np.searchsorted(starts, texts.astype(float), side="right") - 1
        return [f"from {starts[place]:g}" for place in np.maximum(places, 0)]

    return names


def _people(table: dict[str, NDArray[np.str_]], labels: dict[str, Labels]) -> People:
    keys = [[key(column, label) for label in of(table[column])] for column, of in labels.items()]
    rich = np.char.startswith(table["income"], ">50K").astype(np.float32)
    return People(torch.tensor(keys).T.contiguous(), torch.from_numpy(rich))
