"""Rows by key: export, import, erase (service Rows)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import ArrayLike, NDArray

from slotwise import wire
from slotwise._proto import rows_pb2 as pb
from slotwise.admin_calls import AdminCalls
from slotwise.batch import as_keys
from slotwise.errors import Error, InvalidArgument
from slotwise.transport import Call

_MESSAGE_BYTES = 1 << 20
# How many messages are in flight to one rank at once.
_AT_ONCE = 4
_KEYS, _VALUES, _STATE = 14, 15, 16
_DIM, _STATE_SIZE = 1, 2


class Rows(NamedTuple):
    """Some rows of a table.

    `state` is what the optimizer keeps beside a row, in the order of docs/semantics.md: nothing for
    SGD, one float for row-wise AdaGrad, dim or 2 * dim floats for the others.
    """

    keys: NDArray[np.uint64]  # [rows]
    values: NDArray[np.float32]  # [rows, dim]
    state: NDArray[np.float32] | None  # [rows, state size], if the export asked for state


class RowsCalls(AdminCalls):
    """Exports, imports and erases rows."""

    def export_rows(
        self, table: str, keys: ArrayLike | None = None, *, with_state: bool = False
    ) -> Iterator[Rows]:
        """Yields a table's rows, in chunks of about 1 MiB and in no order, from all ranks at once.

        Every row is whole, but all rows belong to one step only if nobody pushes meanwhile. The
        caller may leave the iterator early.

        Args:
            keys: uint64 or int64, of any shape: exports only those of these keys that have a row.
                None: exports all rows.
            with_state: whether to export the optimizer's state too.

        Raises:
            NotFound: no such table, or it was dropped meanwhile.
            Unavailable, DeadlineExceeded: a rank is gone, or nothing came within the timeout.
        """
        header = pb.ExportRequest(table=table, with_state=with_state).SerializeToString()
        requests = [header]
        if keys is not None:  # no keys would mean all keys, but then there is no request
            unique = np.unique(as_keys(keys))
            parts = _slices(len(unique), self._message_bytes() // 8)
            requests = [wire.join(wire.frame(header, [(_KEYS, unique[part])])) for part in parts]
        ranks = len(self._transport.addresses)
        for request in requests:
            for reply in self._transport.stream("Rows/Export", [request] * ranks):
                yield _rows(reply, with_state)

    def import_rows(
        self,
        table: str,
        keys: ArrayLike,
        values: ArrayLike,
        state: ArrayLike | None = None,
        *,
        table_steps: int = 0,
    ) -> int:
        """Writes the rows of keys: absent keys get a row, and other keys' rows are overwritten.

        An import is not a step. The rows are sent in messages of about 1 MiB, spread over the
        ranks; each message is applied whole or not at all. After an exception some messages may
        have been applied; importing all rows again does no harm.

        Args:
            keys: uint64 or int64 [rows]. If a key repeats, the last one counts.
            values: float32 [rows, dim], finite.
            state: float32 [rows, state size] as `export_rows` yields it. None: the state of new
                rows.
            table_steps: raises the table's count of applied steps to this, so that Adam and the
                schedule continue where the imported model was.

        Returns:
            How many rows were written.

        Raises:
            InvalidArgument: arrays of a wrong shape, dtype or size; NaN or infinity.
            NotFound: no such table.
            ResourceExhausted: the table is full.
        """
        key_array = as_keys(keys)
        arrays = [_as_rows("values", values, len(key_array))]
        if state is not None:
            arrays.append(_as_rows("state", state, len(key_array)))
        # Messages to several ranks are applied in any order, so only one message may have a key.
        _, backwards = np.unique(key_array[::-1], return_index=True)
        if len(backwards) < len(key_array):
            chosen = np.sort(len(key_array) - 1 - backwards)
            key_array, arrays = key_array[chosen], [array[chosen] for array in arrays]
        row_bytes = 8 + sum(4 * array.shape[1] for array in arrays)
        parts = _slices(len(key_array), max(1, self._message_bytes() // row_bytes))
        parts = parts or [slice(0, 0)]
        header = pb.ImportRequest(table=table, table_steps=table_steps).SerializeToString()
        written = 0

        def on_reply(_: int, reply: bytes) -> None:
            nonlocal written
            written += _count(pb.ImportReply, reply)

        ranks = len(self._transport.addresses)
        for some in _slices(len(parts), _AT_ONCE * ranks):
            # A stream of one message looks like a unary call on the wire, and can be sent again.
            calls = [
                Call(
                    "Rows/Import",
                    wire.join(
                        wire.frame(
                            header,
                            [
                                (_KEYS, key_array[part]),
                                *zip((_VALUES, _STATE), [array[part] for array in arrays]),
                            ],
                        )
                    ),
                    i % ranks,
                    i // ranks,
                )
                for i, part in enumerate(parts[some])
            ]
            self._transport.run(calls, on_reply)
        return written

    def erase(self, table: str, keys: ArrayLike) -> int:
        """Erases the rows of keys. An erase is not a step.

        A key without a row is ignored, and an erased key that comes again gets a new row.

        Args:
            keys: uint64 or int64, of any shape.

        Returns:
            How many keys had a row; fewer if a connection broke and a request was sent again.

        Raises:
            NotFound: no such table.
        """
        header = pb.EraseRequest(table=table).SerializeToString()
        unique = np.unique(as_keys(keys))
        parts = _slices(len(unique), self._message_bytes() // 8) or [slice(0, 0)]
        requests = [wire.join(wire.frame(header, [(_KEYS, unique[part])])) for part in parts]
        ranks = len(self._transport.addresses)
        calls = [Call("Rows/Erase", request, i % ranks) for i, request in enumerate(requests)]
        counts: list[int] = []
        self._transport.run(calls, lambda _, reply: counts.append(_count(pb.EraseReply, reply)))
        return sum(counts)

    def _message_bytes(self) -> int:
        """Returns the most bytes that the arrays of one message may take."""
        return min(_MESSAGE_BYTES, self._max_message_bytes - 1024)


def _rows(reply: bytes, with_state: bool) -> Rows:
    """Returns an ExportReply's rows. Copies its arrays, which are views of the message."""
    try:
        fields = wire.scan(reply)
        dim, state_size = fields.get(_DIM, 0), fields.get(_STATE_SIZE, 0)
        if not isinstance(dim, int) or not isinstance(state_size, int):
            raise ValueError("dim or state_size is no number")
        keys = wire.array(fields.get(_KEYS), "<u8").copy()
        values = wire.array(fields.get(_VALUES), "<f4").reshape(len(keys), dim).copy()
        state = wire.array(fields.get(_STATE), "<f4").reshape(len(keys), state_size).copy()
    except ValueError as error:
        raise Error(f"the reply is not an ExportReply: {error}") from error
    return Rows(keys, values, state if with_state else None)


def _count(kind: type[pb.ImportReply] | type[pb.EraseReply], reply: bytes) -> int:
    try:
        return int(kind.FromString(reply).rows)
    except DecodeError as error:
        raise Error(f"the reply is not an {kind.__name__}: {error}") from error


def _as_rows(name: str, array: ArrayLike, rows: int) -> NDArray[np.float32]:
    """Returns `array` as C-contiguous float32 [rows, any], or raises InvalidArgument."""
    checked = np.asarray(array)
    if checked.dtype != np.float32:
        raise InvalidArgument(f"{name}: dtype is {checked.dtype}, not float32")
    if checked.ndim != 2 or len(checked) != rows:
        raise InvalidArgument(f"{name}: shape is {checked.shape}, not ({rows}, ...)")
    return np.ascontiguousarray(checked, dtype="<f4")


def _slices(count: int, each: int) -> Sequence[slice]:
    return [slice(first, min(first + each, count)) for first in range(0, count, each)]
