"""Rows by key: export, import, erase (service Rows)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.admin_calls import AdminCalls
from slotwise.batch import address_of, as_keys
from slotwise.core import OK, RUNNING, SLICE_MS, RowsView, text
from slotwise.errors import InvalidArgument, from_code


class Rows(NamedTuple):
    """Some rows of a table.

    `state` is what the optimizer keeps beside a row, in the order of docs/semantics.md: nothing for
    SGD, one float for row-wise AdaGrad, dim or 2 * dim floats for the others. If the table evicts, or
    its rows expire, a row's score comes last, in the place of two floats.
    """

    keys: NDArray[np.uint64]  # [rows]
    values: NDArray[np.float32]  # [rows, dim]
    state: NDArray[np.float32] | None  # [rows, state size], if the export asked for state

    @property
    def scores(self) -> NDArray[np.uint64]:
        """The rows' scores, uint64 [rows]; only for rows that have scores, with their state."""
        if self.state is None or self.state.shape[1] < 2:
            raise InvalidArgument("scores are in state, which these rows do not have")
        scores: NDArray[np.uint64] = np.ascontiguousarray(self.state[:, -2:]).view("<u8")[:, 0]
        return scores


class RowsCalls(AdminCalls):
    """Exports, imports and erases rows."""

    def export_rows(
        self, table: str, keys: ArrayLike | None = None, *, with_state: bool = False
    ) -> Iterator[Rows]:
        """Yields a table's rows, in chunks of about 1 MiB and in no order, from all ranks at once.

        Every row is whole, but if clients push meanwhile, the rows may be of several steps. The caller may
        leave the iterator early.

        Args:
            keys: uint64 or int64, of any shape: exports the rows of those keys that have one. None: all rows.
            with_state: whether to export the optimizer's state too.

        Raises:
            NotFound: no such table, or it was dropped meanwhile.
            Unavailable, DeadlineExceeded: a rank is gone, or nothing came within the timeout.
        """
        core = self._settled()
        wanted = None if keys is None else as_keys(keys)
        address, count = (None, 0) if wanted is None else (address_of(wanted), len(wanted))
        rows = core.export(self._client, text(table), bool(with_state), address, count, None)
        view = RowsView()
        while True:
            self._usable()  # the caller may have forked since the last rows
            most = SLICE_MS if threading.current_thread() is threading.main_thread() else -1
            code = core.rows_next(rows, most, ctypes.byref(view))
            if code == RUNNING:
                continue
            if code != OK:
                why = core.rows_message(rows).decode(errors="replace")
                reason = core.rows_reason(rows).decode()
                raise from_code(code, why, core.rows_retry_after_ms(rows), reason)
            if view.rows == 0:
                return
            state = _copy(view.state, np.float32, view.rows, view.state_size)
            yield Rows(
                _copy(view.keys, np.uint64, view.rows),
                _copy(view.values, np.float32, view.rows, view.dim),
                state if with_state else None,
            )

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

        An import is not a step. The rows are sent in messages of about 1 MiB, each of which is applied whole
        or not at all. After an exception some messages may have been applied, and the error's message says
        how many rows were written for sure; importing all rows again does no harm.

        Args:
            keys: uint64 or int64 [rows]. If a key repeats, the last one counts.
            values: float32 [rows, dim], finite. A table with a `row_dtype` of 16 bits rounds them to
                nearest.
            state: float32 [rows, state size] as `export_rows` yields it, with or without scores. None: the
                state of new rows. Rows without scores get those of new rows.
            table_steps: raises the table's count of applied steps to this, so that Adam and the schedule
                continue from the imported model.

        Returns:
            How many rows were written.

        Raises:
            InvalidArgument: arrays of a wrong shape, dtype or size; NaN or infinity; a value that is too
                large for the `row_dtype`.
            NotFound: no such table.
            ResourceExhausted: the table is full. An import of one message has changed nothing.
        """
        key_array = as_keys(keys)
        value_array = _as_rows("values", values, len(key_array))
        state_array = None if state is None else _as_rows("state", state, len(key_array))
        view = RowsView(
            keys=address_of(key_array),
            values=address_of(value_array),
            state=None if state_array is None else address_of(state_array),
            rows=len(key_array),
            dim=value_array.shape[1],
            state_size=0 if state_array is None else state_array.shape[1],
        )
        if not isinstance(table_steps, (int, np.integer)) or not 0 <= table_steps < 1 << 64:
            raise InvalidArgument(f"table_steps is {table_steps!r}, not a 64-bit number")
        core, name = self._settled(), text(table)
        with self._pushes.around_another_state():
            call = core.import_rows(self._client, name, ctypes.byref(view), int(table_steps), None)
            return core.numbers_of(core.finish(call))[0]

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
        flat, core = as_keys(keys), self._settled()
        with self._pushes.around_another_state():
            call = core.erase(self._client, text(table), address_of(flat), len(flat), None)
            return core.numbers_of(core.finish(call))[0]


def _copy(address: int | None, element: type[np.generic], *shape: int) -> NDArray[Any]:
    """Returns a copy of the core's memory.

    `element` is NumPy's: for a type of ctypes NumPy takes `object` if a signal's handler raises meanwhile.
    """
    copied = np.empty(shape, dtype=element)
    if address is not None and copied.nbytes:
        ctypes.memmove(address_of(copied), address, copied.nbytes)
    return copied


def _as_rows(name: str, array: ArrayLike, rows: int) -> NDArray[np.float32]:
    """Returns `array` as C-contiguous float32 [rows, any], or raises InvalidArgument."""
    checked = np.asarray(array)
    if checked.dtype != np.float32:
        raise InvalidArgument(f"{name}: dtype is {checked.dtype}, not float32")
    if checked.ndim != 2 or len(checked) != rows:
        raise InvalidArgument(f"{name}: shape is {checked.shape}, not ({rows}, ...)")
    return np.ascontiguousarray(checked, dtype="<f4")
