"""Protobuf on the wire, for messages that are mostly one large array.

protobuf's own `SerializeToString()` needs an array as `bytes` first and copies these bytes again
into the message. The wire format allows one copy: a message's fields may come in any order, so
protobuf serialises the small fields, and each array follows them as tag, length, memory. Replies
are read the same way, without copying.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A message in several pieces of memory.
Pieces = list[bytes | memoryview]

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5


def varint(number: int) -> bytes:
    """Returns `number` (0 or more) as a base-128 varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def frame(header: bytes, arrays: Iterable[tuple[int, NDArray[Any]]]) -> Pieces:
    """Returns a message of small fields, which protobuf serialised, and arrays as `bytes` fields.

    Args:
        header: the small fields.
        arrays: (field number, array), C-contiguous and little-endian; not copied.
    """
    pieces: Pieces = [header]
    for field, array in arrays:
        pieces.append(_length_delimited(field, array.nbytes))
        pieces.append(array.reshape(-1).view(np.uint8).data)
    return pieces


def nest(field: int, messages: Iterable[Pieces]) -> Pieces:
    """Returns a message of one repeated field of messages."""
    pieces: Pieces = []
    for message in messages:
        pieces.append(_length_delimited(field, sum(map(len, message))))
        pieces += message
    return pieces


def join(pieces: Pieces) -> bytes:
    """Joins the pieces into the one message that gRPC needs; this is the one copy."""
    return b"".join(pieces)


def scan(message: bytes | memoryview) -> dict[int, int | memoryview]:
    """Returns a message's fields by number, as `fields` yields them; the last of several counts.

    Raises ValueError if the message is cut short or is not protobuf.
    """
    return dict(fields(message))


def fields(message: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields (number, value) of a message's fields: varints as integers, length-delimited as views.

    Fields come in any order. Fixed-width fields, which no message read here has, are skipped.
    Raises ValueError if the message is cut short or is not protobuf.
    """
    view = memoryview(message)
    at = 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        field, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            number, at = _read_varint(view, at)
            yield field, number
            continue
        if wire_type == _LENGTH_DELIMITED:
            length, at = _read_varint(view, at)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"field {field} has wire type {wire_type}, which is not of proto3")
        if at + length > len(view):
            raise ValueError(f"field {field} is cut short")
        if wire_type == _LENGTH_DELIMITED:
            yield field, view[at : at + length]
        at += length


def array(field: int | memoryview | None, dtype: str) -> NDArray[Any]:
    """Returns a `bytes` field as a read-only array over the message's own memory.

    The array is empty if the field was left out. Raises ValueError for another kind of field, or if
    the bytes are not a whole number of elements.
    """
    if field is None:
        return np.empty(0, dtype=dtype)
    if not isinstance(field, memoryview):
        raise ValueError("a number is where bytes are expected")
    return np.frombuffer(field, dtype=dtype) if field.nbytes else np.empty(0, dtype=dtype)


def _length_delimited(field: int, length: int) -> bytes:
    return varint(field << 3 | _LENGTH_DELIMITED) + varint(length)


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """Returns the varint at `at`, and the place after it."""
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
