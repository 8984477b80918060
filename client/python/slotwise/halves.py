"""Half precision on the wire: float32 arrays are narrowed before sending, and widened after.

Tables hold float32 and every sum is float32. Only values that travel are rounded, to nearest, ties
to even, and a value too large for the type becomes infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise._proto import embedding_pb2 as pb
from slotwise.errors import InvalidArgument

# For each name, the wire's number, and how numpy reads its memory.
_FLOAT32, _FLOAT16, _BFLOAT16 = "float32", "float16", "bfloat16"
_NUMBERS = {
    _FLOAT32: pb.DATA_TYPE_FLOAT32,
    _FLOAT16: pb.DATA_TYPE_FLOAT16,
    _BFLOAT16: pb.DATA_TYPE_BFLOAT16,
}
_MEMORY: dict[int, str] = {
    pb.DATA_TYPE_UNSPECIFIED: "<f4",
    pb.DATA_TYPE_FLOAT32: "<f4",
    pb.DATA_TYPE_FLOAT16: "<f2",
    pb.DATA_TYPE_BFLOAT16: "<u2",
}
# How many elements are narrowed at a time, so that intermediate results stay in the cache.
_BLOCK = 1 << 15


def number(wire_dtype: str) -> pb.DataType:
    """Returns the `DataType` of "float32", "float16" or "bfloat16"; else InvalidArgument."""
    if wire_dtype not in _NUMBERS:
        raise InvalidArgument(f"wire_dtype is {wire_dtype!r}, not one of {', '.join(_NUMBERS)}")
    return _NUMBERS[wire_dtype]


def bytes_each(wire_dtype: str) -> int:
    """Returns the bytes of one number on the wire."""
    return np.dtype(memory(number(wire_dtype))).itemsize


def memory(data_type: int) -> str:
    """Returns how numpy reads the bytes of a `DataType`; ValueError if there is no such type."""
    if data_type not in _MEMORY:
        raise ValueError(f"data_type is {data_type}, which this client does not know")
    return _MEMORY[data_type]


def narrow(array: NDArray[np.float32], wire_dtype: str) -> NDArray[Any]:
    """Returns `array` as it travels: float32 unchanged, bfloat16 in uint16."""
    if wire_dtype == _FLOAT32:
        return array
    if wire_dtype == _FLOAT16:
        with np.errstate(over="ignore", under="ignore"):
            return array.astype("<f2")
    bits = array.view(np.uint32).reshape(-1)
    narrowed = np.empty(len(bits), dtype="<u2")
    for first in range(0, len(bits), _BLOCK):
        block = bits[first : first + _BLOCK]
        # Adds half of the last place that stays, less one, and one more if the last bit that stays
        # is odd.
        rounded = (block >> 16) & 1
        rounded += block
        rounded += 0x7FFF
        rounded >>= 16
        nan = (block & 0x7FFFFFFF) > 0x7F800000
        if nan.any():  # rounding could make the NaN infinity, or wrap around
            rounded[nan] = block[nan] >> 16 | 0x40
        narrowed[first : first + _BLOCK] = rounded
    return narrowed.reshape(array.shape)


def widen_into(received: NDArray[Any], values: NDArray[np.float32], data_type: int) -> None:
    """Writes an array from the wire, read as `memory(data_type)`, to `values` of its shape."""
    if data_type == pb.DATA_TYPE_BFLOAT16:
        np.left_shift(received, 16, out=values.view(np.uint32), dtype=np.uint32)
    else:
        values[...] = received
