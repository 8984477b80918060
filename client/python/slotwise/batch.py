"""Batches of bags of keys, as arrays that the core can read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.core import INT64, UINT32, Batch, TableShape, text
from slotwise.errors import InvalidArgument
from slotwise.options import TableOptions

_MISSING = {"nan", "None", "<NA>", "NaT"}  # NumPy's, Python's and pandas' texts of a missing value


def make_batch(
    table: TableOptions | TableShape,
    keys: ArrayLike,
    offsets: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Batch:
    """Returns a batch of `Client.lookup`'s keys, offsets and weights.

    Checks dtypes and shapes: InvalidArgument names the field and value. The core checks values.
    """
    array = _as_integers("keys", keys)
    flat = as_keys(array)
    weight_array = None if weights is None else _as_weights(weights, array.shape)
    offset_array = None
    if offsets is not None:
        if array.ndim != 1:
            raise InvalidArgument(f"keys: shape is {array.shape}, not [keys], though with offsets")
        offset_array = _as_offsets(_as_array("offsets", offsets), table.slots, len(flat))
        shape: tuple[int, ...] = ((len(offset_array) - 1) // table.slots,)
    elif not table.pools:
        shape = array.shape
    else:
        shape = (_samples_without_offsets(array, table.slots),)
    batch = Batch(
        table=text(table.name),
        keys=address_of(flat),
        keys_count=len(flat),
        weights=None if weight_array is None else address_of(weight_array),
    )
    if offset_array is not None:
        batch.offsets, batch.offsets_count = address_of(offset_array), len(offset_array)
        batch.offsets_type = UINT32 if offset_array.dtype == np.uint32 else INT64
    batch.shape, batch.keep = (*shape, table.width), (flat, offset_array, weight_array)
    return batch


def as_keys(keys: ArrayLike) -> NDArray[np.uint64]:
    """Returns integers of any shape as uint64 [keys]; without a copy if contiguous uint64 or int64.

    int64 is reinterpreted bit by bit. Narrower integers keep their values, and are refused below 0, because
    their upper bits are not known. A list may have any integers that fit into uint64 or int64.
    """
    array = _as_integers("keys", keys)
    if array.dtype.kind not in "iu":
        raise InvalidArgument(f"keys: dtype is {array.dtype}: must be integers. {_way_to_keys(array)}")
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype in (np.uint64, np.int64):
        return flat.view(np.uint64).astype("<u8", copy=False)
    if flat.dtype.itemsize < 8 and (flat < 0).any():
        place = int(np.argmax(flat < 0))
        raise InvalidArgument(
            f"keys[{place}] is {flat[place]}, of {flat.dtype}: only int64 may be below 0, which is "
            "reinterpreted bit by bit"
        )
    return flat.astype("<i8" if flat.dtype.kind == "i" else "<u8").view("<u8")


def result_array(out: NDArray[np.float32] | None, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Returns `out` if it can take a lookup's result, or a new array if it is None."""
    if out is None:
        return np.empty(shape, dtype=np.float32)
    flags = out.flags
    if out.dtype != np.float32 or out.shape != shape or not flags.c_contiguous or not flags.writeable:
        raise InvalidArgument(
            f"out: {out.dtype} of shape {out.shape} is not writable C-contiguous float32 of shape {shape}"
        )
    return out


def check_gradients(
    gradients: ArrayLike, batch: Batch, table: TableOptions | TableShape
) -> NDArray[np.float32]:
    """Returns `Client.push`'s gradients as contiguous float32, or raises InvalidArgument."""
    array = _as_array("gradients", gradients)
    if array.dtype != np.float32:
        raise InvalidArgument(f"gradients: dtype is {array.dtype}, not float32")
    if array.shape not in (batch.shape, (*batch.shape[:-1], table.slots, table.dim)):
        raise InvalidArgument(f"gradients: shape is {array.shape}, not {batch.shape}")
    return np.ascontiguousarray(array, dtype="<f4")


def _as_array(name: str, given: ArrayLike) -> NDArray[Any]:
    """Returns an argument as an array; an empty list, which has no type, as uint64."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None
    if isinstance(given, (list, tuple)) and array.size == 0:
        return array.astype(np.uint64)
    return array


def _as_integers(name: str, given: ArrayLike) -> NDArray[Any]:
    """Returns an argument as an array; a list of integers for int64 alone and for uint64 alone as uint64.

    NumPy makes float64, or objects, of such a list.
    """
    array = _as_array(name, given)
    if not isinstance(given, (list, tuple)) or array.dtype.kind not in "fO":
        return array
    objects = np.array(given, dtype=object)
    integers = [each for each in objects.flat if type(each) is int or isinstance(each, np.integer)]
    if len(integers) < objects.size or not all(-(1 << 63) <= each < 1 << 64 for each in integers):
        return array
    bits = [int(each) % (1 << 64) for each in integers]
    return np.array(bits, dtype=np.uint64).reshape(objects.shape)


def _way_to_keys(array: NDArray[Any]) -> str:
    """Returns a sentence that says how such an array becomes keys."""
    elements = array.reshape(-1).tolist() if array.dtype.kind in "fO" else []
    if array.dtype.kind in "US" or any(isinstance(each, (str, bytes)) for each in elements):
        return "slotwise.hash_ids(texts) makes ids of texts"
    if _MISSING & {str(each) for each in elements}:
        return "NaN and None are no ids: leave them out, or give them an id of yours"
    return (
        "Ids from 2**63 on need np.array(ids, dtype=np.uint64), because NumPy by itself makes other "
        "numbers of them"
    )


def address_of(array: NDArray[Any]) -> int:
    """Returns where an array's elements begin."""
    address: int = array.__array_interface__["data"][0]
    return address


def _as_weights(weights: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float32]:
    array = _as_array("weights", weights)
    if array.dtype != np.float32:
        raise InvalidArgument(f"weights: dtype is {array.dtype}, not float32")
    if array.shape != shape:
        raise InvalidArgument(f"weights: shape is {array.shape}, not {shape} as the keys'")
    return np.ascontiguousarray(array, dtype="<f4").reshape(-1)


def _as_offsets(offsets: NDArray[Any], slots: int, keys: int) -> NDArray[Any]:
    """Returns offsets with their end as the core reads them: uint32 as it is, other integers as int64.

    torch's offsets have no end by default. With several slots their number tells so, and the end is added.
    With one slot the number does not tell, and the core refuses offsets without an end.
    """
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1:
        raise InvalidArgument(
            f"offsets: {offsets.dtype} of shape {offsets.shape} is not a 1-D array of integers"
        )
    if len(offsets) == 0 or len(offsets) % slots > 1:
        raise InvalidArgument(
            f"offsets: length is {len(offsets)}, not samples * slots + 1 with {slots} slots"
        )
    if offsets.dtype == np.uint64 and (offsets >> 63).any():  # as int64 they would look negative
        place = int(np.argmax(offsets >> 63))
        raise InvalidArgument(f"offsets[{place}] is {offsets[place]}, more than there can be keys")
    if slots == 1 and 0 <= offsets[-1] < keys:
        raise InvalidArgument(
            f"offsets[{len(offsets) - 1}] is {offsets[-1]}: must be the number of keys, {keys}. "
            "Offsets as torch makes them, without the end, need np.append(offsets, len(keys))"
        )
    if len(offsets) % slots == 0 and slots > 1:
        offsets = np.append(offsets.astype(np.int64), keys)
    return np.ascontiguousarray(offsets, "<u4" if offsets.dtype == np.uint32 else "<i8")


def _samples_without_offsets(keys: NDArray[Any], slots: int) -> int:
    if keys.ndim != 1 and (keys.ndim != 2 or keys.shape[1] != slots):
        raise InvalidArgument(
            f"keys: shape is {keys.shape}, not [keys] or, without offsets, [samples, {slots}]"
        )
    if keys.size % slots:
        raise InvalidArgument(
            f"keys: {keys.size} keys without offsets are no whole number of samples of {slots} slots"
        )
    return keys.size // slots
