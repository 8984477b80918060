"""Positions of ids among those that a served model knows; needs NumPy alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.batch import as_keys
from slotwise.errors import InvalidArgument


def positions(ids: ArrayLike, known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the places of ids among known ones, int64 of the shape of `ids`; `len(known)` for unknown ids.

    A model that `slotwise.torch.export_module(model, ids="positions")` has made takes these positions.

    Args:
        ids: integers of any shape, as keys for `Client.lookup`.
        known: int64 [rows], rising: the `ids` of a module of that model, or of a file that is mapped into
            memory (`np.load(path, mmap_mode="r")`).

    Raises:
        slotwise.InvalidArgument: an array has another type or shape, or `known` does not rise from its first
            id to its last.
    """
    given = np.asarray(ids)
    if not isinstance(known, np.ndarray) or known.dtype != np.int64 or known.ndim != 1:
        raise InvalidArgument(
            f"known: must be the int64 array [rows] that a module's ids are, not {_kind_of(known)}"
        )
    if len(known) and known[0] > known[-1]:
        raise InvalidArgument(
            f"known: begins with {known[0]} and ends with {known[-1]}: must rise, as a module's ids do. Ids "
            f"that were sorted as uint64 have to be sorted anew as int64"
        )
    wanted = as_keys(ids).view(np.int64)
    found = np.searchsorted(known, wanted)
    if len(known):
        found[known[np.minimum(found, len(known) - 1)] != wanted] = len(known)
    return found.astype(np.int64, copy=False).reshape(given.shape)


def _kind_of(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__
