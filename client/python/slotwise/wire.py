"""Protobuf on the wire, for messages that are mostly one large array.

protobuf's own `SerializeToString()` needs an array as `bytes` first and copies it again into the
message. The wire format lets us do with one copy: a message's fields may come in any order, so the
small ones are serialised by protobuf and each array is put behind them as tag, length, memory.
Replies are read the same way, without copying.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5


def varint(number: int) -> bytes:
    """`number` (0 or more) as a base-128 varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def frame(header: bytes, arrays: Iterable[tuple[int, NDArray[Any]]]) -> bytes:
    """A message of small fields, as protobuf serialised them, and arrays as `bytes` fields.

    Args:
        header: the small fields.
        arrays: (field number, array), C-contiguous and little-endian; each is copied once.
    """
    pieces: list[bytes | memoryview] = [header]
    for field, array in arrays:
        pieces.append(varint(field << 3 | _LENGTH_DELIMITED) + varint(array.nbytes))
        pieces.append(array.data)
    return b"".join(pieces)


def scan(message: bytes) -> dict[int, int | memoryview]:
    """A message's fields by number: integers of varint fields, views of length-delimited ones.

    As protobuf has it, fields come in any order, the last of several wins, and fixed-width fields,
    which no message read here has, are skipped. ValueError if the message is cut short or not
    protobuf.
    """
    view = memoryview(message)
    fields: dict[int, int | memoryview] = {}
    at = 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        field, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            fields[field], at = _read_varint(view, at)
            continue
        if wire_type == _LENGTH_DELIMITED:
            length, at = _read_varint(view, at)
            fields[field] = view[at : at + length]
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"field {field} has wire type {wire_type}, which is not of proto3")
        at += length
        if at > len(view):
            raise ValueError(f"field {field} is cut short")
    return fields


def floats(field: int | memoryview | None) -> NDArray[np.float32]:
    """A `bytes` field as a read-only float32 array over the message's own memory.

    Empty if the field was left out. ValueError if it is another field, or not whole floats.
    """
    if field is None:
        return np.empty(0, dtype=np.float32)
    if not isinstance(field, memoryview):
        raise ValueError("a number is where bytes are expected")
    return np.frombuffer(field, dtype="<f4") if field.nbytes else np.empty(0, dtype=np.float32)


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """The varint at `at`, and the place after it."""
    number = shift = 0
    while True:
        if at >= len(view) or shift > 63:
            raise ValueError("a number is cut short")
        byte = view[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
