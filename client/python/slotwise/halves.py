"""Half precision on the wire: float32 arrays narrowed before they are sent, widened after.

Tables hold float32 and every sum is float32; only what travels is rounded, to nearest, ties to
even, and what is too large for the type becomes infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise._proto import embedding_pb2 as pb
from slotwise.errors import InvalidArgument

# By name: the wire's number, and how its memory is read.
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
# Elements narrowed at a time, so that what lies between stays in the cache.
_BLOCK = 1 << 15


def number(wire_dtype: str) -> pb.DataType:
    """The number of `DataType` of "float32", "float16" or "bfloat16"; InvalidArgument if none."""
    if wire_dtype not in _NUMBERS:
        raise InvalidArgument(f"wire_dtype is {wire_dtype!r}, not one of {', '.join(_NUMBERS)}")
    return _NUMBERS[wire_dtype]


def bytes_each(wire_dtype: str) -> int:
    """Bytes of one number on the wire."""
    return np.dtype(memory(number(wire_dtype))).itemsize


def memory(data_type: int) -> str:
    """How numpy reads the bytes of a `DataType`; ValueError if there is no such."""
    if data_type not in _MEMORY:
        raise ValueError(f"data_type is {data_type}, which this client does not know")
    return _MEMORY[data_type]


def narrow(array: NDArray[np.float32], wire_dtype: str) -> NDArray[Any]:
    """`array` as it travels: float32 is itself, bfloat16 lies in uint16."""
    if wire_dtype == _FLOAT32:
        return array
    if wire_dtype == _FLOAT16:
        with np.errstate(over="ignore", under="ignore"):
            return array.astype("<f2")
    bits = array.view(np.uint32).reshape(-1)
    narrowed = np.empty(len(bits), dtype="<u2")
    for first in range(0, len(bits), _BLOCK):
        block = bits[first : first + _BLOCK]
        # Half of what is cut off, less one, and one more if the last bit that stays is odd.
        rounded = (block >> 16) & 1
        rounded += block
        rounded += 0x7FFF
        rounded >>= 16
        nan = (block & 0x7FFFFFFF) > 0x7F800000
        if nan.any():  # rounding could make infinity of it, or wrap around
            rounded[nan] = block[nan] >> 16 | 0x40
        narrowed[first : first + _BLOCK] = rounded
    return narrowed.reshape(array.shape)


def widen_into(received: NDArray[Any], values: NDArray[np.float32], data_type: int) -> None:
    """Writes an array of the wire, read as `memory(data_type)`, into `values` of its shape."""
    if data_type == pb.DATA_TYPE_BFLOAT16:
        np.left_shift(received, 16, out=values.view(np.uint32), dtype=np.uint32)
    else:
        values[...] = received
