"""The data path's messages: requests framed from arrays, replies copied to where they belong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise import wire
from slotwise._proto import embedding_pb2 as pb
from slotwise.batch import Batch, Range
from slotwise.errors import Error, FailedPrecondition, InvalidArgument
from slotwise.options import TableOptions
from slotwise.session import Step

# The numbers of the fields that are arrays, and of the reply's width.
_KEYS, _OFFSETS, _GRADIENTS = 14, 15, 16
_WIDTH, _VALUES = 2, 15


def lookup_request(table: str, train: bool, batch: Batch, samples: Range) -> bytes:
    """A LookupRequest for a range of a batch's samples."""
    header = pb.LookupRequest(
        table=table,
        mode=pb.LOOKUP_MODE_TRAIN if train else pb.LOOKUP_MODE_EVAL,
        samples=samples[1] - samples[0],
    )
    return wire.frame(header.SerializeToString(), _csr(batch, samples))


def push_request(
    table: str,
    step: Step,
    part: tuple[int, int],
    batch: Batch,
    samples: Range,
    gradients: NDArray[np.float32],
) -> bytes:
    """A PushRequest for a range of a batch's samples: part `part[0]` of the step's `part[1]`."""
    header = pb.PushRequest(
        table=table,
        step=pb.StepId(session=step.session, number=step.number, part=part[0], parts=part[1]),
        samples=samples[1] - samples[0],
        data_type=pb.DATA_TYPE_FLOAT32,
    )
    arrays = [*_csr(batch, samples), (_GRADIENTS, gradients[samples[0] : samples[1]])]
    return wire.frame(header.SerializeToString(), arrays)


def push_bytes(batch: Batch, samples: Range, gradients: NDArray[np.float32]) -> int:
    """The bytes of a PushRequest's arrays."""
    return batch.part_bytes(samples) + gradients[samples[0] : samples[1]].nbytes


def copy_values(reply: bytes, values: NDArray[np.float32]) -> None:
    """Copies a LookupReply's values into `values`, [samples, width] of those asked for."""
    try:
        fields = wire.scan(reply)
        width = fields.get(_WIDTH, 0)
        received = wire.floats(fields.get(_VALUES))
    except ValueError as error:
        raise Error(f"the reply is not a LookupReply: {error}") from error
    if received.size != values.size or (values.size and width != values.shape[1]):
        raise FailedPrecondition(
            f"the reply has {received.size} values in samples of {width}, not {values.shape[0]} "
            f"samples of {values.shape[1]}: the table was made anew with other options; try again"
        )
    values[...] = received.reshape(values.shape)


def table_step(reply: bytes) -> int:
    """What a PushReply says."""
    return int(pb.PushReply.FromString(reply).table_step)


def result_array(out: NDArray[np.float32] | None, samples: int, width: int) -> NDArray[np.float32]:
    """`out` if it can take a lookup's result, a new array if it is None."""
    if out is None:
        return np.empty((samples, width), dtype=np.float32)
    if out.dtype != np.float32 or out.shape != (samples, width) or not out.flags.c_contiguous:
        raise InvalidArgument(
            f"out: {out.dtype} of shape {out.shape} is not C-contiguous float32 "
            f"of shape ({samples}, {width})"
        )
    return out


def check_gradients(gradients: ArrayLike, samples: int, table: TableOptions) -> NDArray[np.float32]:
    """`gradients` as C-contiguous float32 [samples, slots * dim], or InvalidArgument."""
    array = np.asarray(gradients)
    if array.dtype != np.float32:
        raise InvalidArgument(f"gradients: dtype is {array.dtype}, not float32")
    if array.shape not in ((samples, table.width), (samples, table.slots, table.dim)):
        raise InvalidArgument(f"gradients: shape is {array.shape}, not ({samples}, {table.width})")
    return np.ascontiguousarray(array, dtype="<f4").reshape(samples, table.width)


def _csr(batch: Batch, samples: Range) -> list[tuple[int, NDArray[Any]]]:
    keys, offsets = batch.part(samples)
    return [(_KEYS, keys)] if offsets is None else [(_KEYS, keys), (_OFFSETS, offsets)]
