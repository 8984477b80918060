"""The data path's messages: requests framed from arrays, replies copied into arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import ArrayLike, NDArray

from slotwise import halves, wire
from slotwise._proto import embedding_pb2 as pb
from slotwise.batch import Batch, Range
from slotwise.errors import Error, FailedPrecondition, InvalidArgument
from slotwise.session import Step

# The numbers of the fields that are arrays, of the lists in LookupMany and PushMany, and of the
# fields of a reply.
_KEYS, _OFFSETS, _GRADIENTS, _WEIGHTS = 14, 15, 16, 17
_MANY = 1
_WIDTH, _DATA_TYPE, _VALUES = 2, 3, 15


def lookup_request(
    table: str, train: bool, batch: Batch, samples: Range, wire_dtype: str
) -> wire.Pieces:
    """Returns a LookupRequest for a range of a batch's samples."""
    header = pb.LookupRequest(
        table=table,
        mode=pb.LOOKUP_MODE_TRAIN if train else pb.LOOKUP_MODE_EVAL,
        samples=samples[1] - samples[0],
        data_type=halves.number(wire_dtype),
    )
    return wire.frame(header.SerializeToString(), _arrays(batch, samples, None))


def push_request(
    table: str,
    step: Step,
    part: tuple[int, int],
    batch: Batch,
    samples: Range,
    gradients: NDArray[np.float32],
    wire_dtype: str,
) -> wire.Pieces:
    """Returns a PushRequest for a range of samples: part `part[0]` of the step's `part[1]`."""
    header = pb.PushRequest(
        table=table,
        step=pb.StepId(session=step.session, number=step.number, part=part[0], parts=part[1]),
        samples=samples[1] - samples[0],
        data_type=halves.number(wire_dtype),
    )
    narrowed = halves.narrow(gradients[slice(*samples)], wire_dtype)
    return wire.frame(header.SerializeToString(), _arrays(batch, samples, narrowed))


def many(requests: Sequence[wire.Pieces]) -> wire.Pieces:
    """Joins LookupRequests into a LookupManyRequest, or PushRequests into a PushManyRequest."""
    return wire.nest(_MANY, requests)


def copy_values(reply: bytes | memoryview, values: NDArray[np.float32]) -> None:
    """Copies a LookupReply's values into `values`, [samples, width] of the request."""
    try:
        fields = wire.scan(reply)
        width = fields.get(_WIDTH, 0)
        data_type = fields.get(_DATA_TYPE, 0)
        if not isinstance(data_type, int):
            raise ValueError("data_type is no number")
        received = wire.array(fields.get(_VALUES), halves.memory(data_type))
    except ValueError as error:
        raise Error(f"the reply is not a LookupReply: {error}") from error
    if received.size != values.size or (values.size and width != values.shape[1]):
        raise FailedPrecondition(
            f"the reply has {received.size} values in samples of {width}, not {values.shape[0]} "
            f"samples of {values.shape[1]}: the table was made anew with other options; try again"
        )
    halves.widen_into(received.reshape(values.shape), values, data_type)


def copy_many_values(reply: bytes, values: Sequence[NDArray[np.float32]]) -> None:
    """Copies a LookupManyReply's values, in the request's order, as `copy_values` does."""
    try:
        replies = [inner for field, inner in wire.fields(reply) if field == _MANY]
    except ValueError as error:
        raise Error(f"the reply is not a LookupManyReply: {error}") from error
    if len(replies) != len(values):
        raise Error(f"the reply to LookupMany has {len(replies)} lookups, not {len(values)}")
    for inner, destination in zip(replies, values):
        if not isinstance(inner, memoryview):
            raise Error("the reply is not a LookupManyReply: a number is where a message is due")
        copy_values(inner, destination)


def table_step(reply: bytes) -> int:
    """Returns the count of steps in a PushReply."""
    try:
        return int(pb.PushReply.FromString(reply).table_step)
    except DecodeError as error:
        raise Error(f"the reply is not a PushReply: {error}") from error


def table_steps(reply: bytes, pushes: int) -> list[int]:
    """Returns the counts of steps in a PushManyReply, in the request's order."""
    try:
        steps = [int(inner.table_step) for inner in pb.PushManyReply.FromString(reply).replies]
    except DecodeError as error:
        raise Error(f"the reply is not a PushManyReply: {error}") from error
    if len(steps) != pushes:
        raise Error(f"the reply to PushMany has {len(steps)} steps, not {pushes}")
    return steps


def result_array(
    out: NDArray[np.float32] | None, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Returns `out` if it can take a lookup's result, or a new array if it is None."""
    if out is None:
        return np.empty(shape, dtype=np.float32)
    if out.dtype != np.float32 or out.shape != shape or not out.flags.c_contiguous:
        raise InvalidArgument(
            f"out: {out.dtype} of shape {out.shape} is not C-contiguous float32 of shape {shape}"
        )
    return out


def check_gradients(gradients: ArrayLike, batch: Batch, dim: int) -> NDArray[np.float32]:
    """Returns `gradients` as contiguous float32 [samples, slots * dim], or raises InvalidArgument.

    The gradients have the shape of a lookup's result, or [samples, slots, dim].
    """
    array = np.asarray(gradients)
    width = batch.slots * dim
    if array.dtype != np.float32:
        raise InvalidArgument(f"gradients: dtype is {array.dtype}, not float32")
    if array.shape not in ((*batch.shape, width), (*batch.shape, batch.slots, dim)):
        raise InvalidArgument(f"gradients: shape is {array.shape}, not {(*batch.shape, width)}")
    return np.ascontiguousarray(array, dtype="<f4").reshape(batch.samples, width)


def _arrays(
    batch: Batch, samples: Range, gradients: NDArray[Any] | None
) -> list[tuple[int, NDArray[Any]]]:
    part = batch.part(samples)
    fields = (
        (_KEYS, part.keys),
        (_OFFSETS, part.offsets),
        (_GRADIENTS, gradients),
        (_WEIGHTS, part.weights),
    )
    return [(number, array) for number, array in fields if array is not None]
