"""The data path: lookups and pushes (service Embedding)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise.batch import address_of, check_gradients, make_batch, result_array
from slotwise.core import EVAL, TRAIN, Batch, CallOptions, Handle, LookedUp, NamedStep, TableShape, text
from slotwise.errors import Error, InvalidArgument
from slotwise.futures import Begin, Future, StartedCall
from slotwise.session import Step
from slotwise.session_calls import STEP_FIELDS, OwnSession, SessionCalls

# `lookup`'s keys, offsets and weights.
Bags = (
    tuple[ArrayLike]
    | tuple[ArrayLike, ArrayLike | None]
    | tuple[ArrayLike, ArrayLike | None, ArrayLike | None]
)
# `push`'s keys, offsets, gradients and weights.
Gradients = (
    tuple[ArrayLike, ArrayLike | None, ArrayLike]
    | tuple[ArrayLike, ArrayLike | None, ArrayLike, ArrayLike | None]
)

_WIRE_DTYPES = ("float32", "float16", "bfloat16")  # by the core's numbers


def wire_number(wire_dtype: str) -> int:
    """Returns the core's number of a type on the wire; InvalidArgument if there is no such type."""
    if wire_dtype not in _WIRE_DTYPES:
        raise InvalidArgument(f"wire_dtype is {wire_dtype!r}, not one of {', '.join(_WIRE_DTYPES)}")
    return _WIRE_DTYPES.index(wire_dtype)


class EmbeddingCalls(SessionCalls):
    """Looks pooled rows up and pushes their gradients."""

    def lookup(
        self,
        table: str,
        keys: ArrayLike,
        offsets: ArrayLike | None = None,
        *,
        weights: ArrayLike | None = None,
        train: bool = True,
        wire_dtype: str | None = None,
        out: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Looks up the pooled rows of every bag, or each key's row in a table without a combiner.

        Args:
            table: the table's name.
            keys: uint64 [keys], of any values; int64 is reinterpreted bit by bit, and narrower integers of 0
                and up keep their values. A list of Python's integers may have both kinds. Without offsets
                also [samples, slots]; in a table without a combiner, of any shape.
            offsets: integers [samples * slots + 1], rising from 0 to `len(keys)`: bag b = sample * slots +
                slot owns `keys[offsets[b]:offsets[b + 1]]`. With several slots the end may be left out, as
                torch does by default; with one slot it may not. None: every bag has one key; a table without
                a combiner takes no other batch.
            weights: float32 of the keys' shape, finite; each key's row is multiplied by its weight. The
                combiner "mean" then divides by a bag's sum of weights, and "sqrtn" by the root of the sum
                of their squares; if that is 0 the result is zeros. None: all weights are 1.
            train: True gives an absent key a row, unless the table has an admission; False inserts nothing,
                and an absent key counts as zeros.
            wire_dtype: the values' type on the wire, as for `connect`. None: the type given to `connect`.
            out: the array that receives the result, writable C-contiguous float32 of its shape.

        Returns:
            float32 [samples, slots * dim], writable; `out` if given. In a table without a combiner the shape
            is [*keys.shape, dim], or [samples, dim] with offsets. `torch.from_dlpack` shares its memory.

        Raises:
            InvalidArgument: the batch is malformed; the message names the field and value.
            NotFound: no such table.
            ResourceExhausted: the table is full (`train`), or one sample is too large. A request is refused
                whole, with nothing changed. But a lookup of many MiB is cut into several requests: new keys
                of those that were served have rows, which hold initial values. The message then says how many
                samples were answered.
        """
        with self._shapes(table) as (options,):
            batch = _lookup_batch(options, keys, offsets, weights, out)
            self._run(self._begin_lookup([batch], train), wire_dtype, batch)
        return _values_of(batch)

    def lookup_async(
        self,
        table: str,
        keys: ArrayLike,
        offsets: ArrayLike | None = None,
        *,
        weights: ArrayLike | None = None,
        train: bool = True,
        wire_dtype: str | None = None,
        out: NDArray[np.float32] | None = None,
    ) -> Future[NDArray[np.float32]]:
        """Starts a `lookup` and returns its future; errors come with its result.

        The arrays must not change until the future is done; after `cancel()`, until the client is closed,
        because a cancelled call may go on for a moment.
        """

        def start(tables: list[TableShape]) -> tuple[Begin, Any, Callable[[Handle], Any]]:
            batch = _lookup_batch(tables[0], keys, offsets, weights, out)
            return self._begin_lookup([batch], train), batch, lambda _: _values_of(batch)

        return self._start([table], wire_dtype, start)

    def lookup_many(
        self, lookups: Mapping[str, Bags], *, train: bool = True, wire_dtype: str | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Looks up in several tables, of any dims and numbers of samples, in one request and round.

        A large call becomes several requests, of some tables or of parts of large ones; other clients' steps
        may be applied between them.

        Args:
            lookups: for each table, a tuple of `lookup`'s arguments: (keys,), (keys, offsets) or
                (keys, offsets, weights).
            train, wire_dtype: as in `lookup`.

        Returns:
            For each table, what `lookup` returns.

        Raises:
            As `lookup`. If one table refuses, the call fails, though other tables may have got new rows,
            which hold initial values; the message says so.
        """
        with self._shapes(*lookups) as tables:
            batches = [
                _lookup_batch(options, *_check_tuple(options.name, bags, 1, 3))
                for options, bags in zip(tables, lookups.values())
            ]
            self._run(self._begin_lookup(batches, train), wire_dtype, batches)
        return {name: _values_of(batch) for name, batch in zip(lookups, batches)}

    def push(
        self,
        table: str,
        keys: ArrayLike,
        offsets: ArrayLike | None,
        gradients: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        learning_rate: float | None = None,
        step: Step | None = None,
        wire_dtype: str | None = None,
    ) -> int:
        """Sums the gradients of every row and runs the table's optimizer on the sums, once.

        Returns when the step was applied. If connections break meanwhile, the client sends the parts again
        under the same step, which the server applies once. After an exception, push the same batch with the
        same `step` to be sure that it is applied; so give a `step` if you may need to push again.

        Args:
            table, keys, offsets, weights: as in `lookup`. A key without a row gets one first.
            gradients: float32, of the shape that `lookup` returned (or [samples, slots, dim]): the
                loss's gradient with respect to each pooled value; finite.
            learning_rate: of this step alone; None: the table's own. At least 0, and above 0 for FTRL.
                A table with a `Schedule` takes none. All parts of a step bring the same.
            step: a step of a `Session`. None: the next step of this client's own session. If the server has
                forgotten that session, the client draws a new session and pushes once more, unless an earlier
                try may have arrived.
            wire_dtype: the type that the gradients have on the wire, as in `lookup`. A gradient past the
                type's largest number (65,504 for "float16") becomes infinity, which the server refuses.

        Returns:
            The table's count of applied steps after this step; 1 for the first step.

        Raises:
            InvalidArgument, NotFound: as `lookup`; nothing was changed.
            ResourceExhausted: the table is full, or the step is larger than a round may be
                (`limits.max_round_mib`); nothing was changed, because a step is never cut.
            DeadlineExceeded: another trainer's part of the step did not come; nothing was changed.
            FailedPrecondition: the step may have been applied before, but the server does not remember
                (`Session`); or it came before with other keys, weights, gradients or learning rate.
            DataLoss: the table no longer has a step that this client saw acknowledged.
        """
        given = {table: (keys, offsets, gradients, weights)}
        return self._push_all(given, {}, {table: learning_rate}, step, wire_dtype)[table]

    def push_async(
        self,
        table: str,
        keys: ArrayLike,
        offsets: ArrayLike | None,
        gradients: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        learning_rate: float | None = None,
        step: Step | None = None,
        wire_dtype: str | None = None,
    ) -> Future[int]:
        """Starts a `push` and returns its future; errors come with its result.

        Without `step`, the push takes the next step of this client's own session when it is first sent.
        Pushes that are in flight together may be applied in any order. The arrays must not change, as for
        `lookup_async`.
        """
        rates = rates_of([table], {table: learning_rate})

        def start(tables: list[TableShape]) -> tuple[Begin, Any, Callable[[Handle], Any]]:
            batch = _push_batch(tables[0], self._divisor(step), keys, offsets, gradients, weights)
            begin = self._begin_push([batch], None, rates, step)
            return begin, batch, lambda call: self._core.numbers_of(call)[0]

        return self._start([table], wire_dtype, start)

    def push_many(
        self,
        pushes: Mapping[str, Gradients],
        *,
        learning_rates: Mapping[str, float] | None = None,
        step: Step | None = None,
        wire_dtype: str | None = None,
    ) -> dict[str, int]:
        """Pushes to several tables in one step, which is applied to all of them or to none.

        Args:
            pushes: for each table, a tuple of `push`'s arguments: (keys, offsets, gradients) or
                (keys, offsets, gradients, weights).
            learning_rates: as `push`'s, of tables that have one.
            step, wire_dtype: as in `push`.

        Returns:
            For each table, what `push` returns.

        Raises:
            As `push`. If one table refuses, nothing of the step is applied. All tables' parts have to fit
            into one round (`limits.max_round_mib`) together.
        """
        given = {name: _check_tuple(name, push, 3, 4) for name, push in pushes.items()}
        return self._push_all(given, {}, learning_rates or {}, step, wire_dtype)

    def _looked_up(self, tables: Iterable[str]) -> dict[str, LookedUp]:
        """Returns the state that each table's latest ended lookup has read."""
        core, states = self._usable(), {table: LookedUp() for table in tables}
        for table, state in states.items():
            core.client_looked_up(self._client, text(table), ctypes.byref(state))
        return states

    def _push_all(
        self,
        pushes: Mapping[str, Sequence[Any]],
        looked_up: Mapping[str, LookedUp],
        rates: Mapping[str, float | None],
        step: Step | None,
        wire_dtype: str | None = None,
    ) -> dict[str, int]:
        """Pushes as `push_many`, gradients of rows that were looked up of these states."""
        own_rates = rates_of(pushes, rates)
        with self._shapes(*pushes) as tables:
            divisor = self._divisor(step)
            batches = [_push_batch(options, divisor, *push) for options, push in zip(tables, pushes.values())]
            states = states_of(pushes, looked_up)
            call = self._run(self._begin_push(batches, states, own_rates, step), wire_dtype, batches)
        return dict(zip(pushes, self._core.numbers_of(call)))

    def _begin_lookup(
        self, batches: Sequence[Batch], train: bool, gpu: Any = None, behind: Handle | None = None
    ) -> Begin:
        """Returns a function that starts a lookup.

        Args:
            gpu: a pointer to the GPU that has the batches' arrays; None: the host has them.
            behind: a push by the same GPU that the lookup sees.
        """
        core, mode, native = self._core, TRAIN if train else EVAL, _natives(batches)
        return lambda options: core.lookup(
            self._client, native, len(batches), mode, gpu, behind, options
        )

    def _begin_push(
        self, batches: Sequence[Batch], states: Any, rates: Any, step: Step | None, gpu: Any = None
    ) -> Begin:
        """Returns a function that starts a push. `gpu`: as for a lookup."""
        core, named, native = self._core, self._named(step), _natives(batches)
        return lambda options: core.push(
            self._client, native, len(batches), states, rates, named, gpu, options
        )

    @contextmanager
    def _shapes(self, *names: str) -> Iterator[list[TableShape]]:
        """Yields tables' shapes, which the core forgets if the body fails: a table may have new options."""
        try:
            yield [self._known_table(name) or self._described_table(name) for name in names]
        except Error:
            self._forget(names)
            raise

    def _described_table(self, name: str) -> TableShape:
        options = self.describe_table(name).options
        shape = TableShape(options.dim, options.slots, options.pools)
        shape.name = name
        return shape

    def _named(self, step: Step | None) -> NamedStep | None:
        """Returns the step as the core takes it; None: the next of the core's own session."""
        if step is None and not isinstance(self.session, OwnSession):
            step = self.session.next()
        return None if step is None else _native_step(step)

    def _divisor(self, step: Step | None) -> int:
        """Returns what the gradients of a step are divided by; None: a step of this client's session."""
        if step is None:
            return self.session.divisor
        return step.trainers if isinstance(step, Step) and step.mean else 1

    def _run(self, begin: Begin, wire_dtype: str | None, keep: Any) -> Handle:
        """Runs a call to its end; `keep` must live until then."""
        core, options = self._usable(), None
        if wire_dtype is not None:
            options = ctypes.byref(CallOptions(has_data_type=1, data_type=wire_number(wire_dtype)))
        return core.finish(begin(options), keep)

    def _start(
        self,
        names: Sequence[str],
        wire_dtype: str | None,
        start: Callable[[list[TableShape]], tuple[Begin, Any, Callable[[Handle], Any]]],
    ) -> Future[Any]:
        """Starts a call when the tables' options are known, and returns its future.

        Args:
            start: returns, for those options, a function that starts the call, objects that must live until
                its end, and a function that makes its result.
        """
        core = self._usable()
        data_type = None if wire_dtype is None else wire_number(wire_dtype)
        started = StartedCall(self, core, names, data_type, start)
        started.go_on()
        return started.future


def _lookup_batch(
    options: TableShape,
    keys: ArrayLike,
    offsets: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    out: NDArray[np.float32] | None = None,
) -> Batch:
    batch = make_batch(options, keys, offsets, weights)
    values = result_array(out, batch.shape)
    return batch.set_values(values, address_of(values), values.size)


def _push_batch(
    options: TableShape,
    divisor: int,
    keys: ArrayLike,
    offsets: ArrayLike | None,
    gradients: ArrayLike,
    weights: ArrayLike | None = None,
) -> Batch:
    batch = make_batch(options, keys, offsets, weights)
    values = check_gradients(gradients, batch, options)
    if divisor != 1:
        values = values / np.float32(divisor)
    return batch.set_values(values, address_of(values), values.size)


def _values_of(batch: Batch) -> NDArray[np.float32]:
    values: NDArray[np.float32] = batch.keep[-1]
    return values


def states_of(tables: Collection[str], looked_up: Mapping[str, LookedUp]) -> Any:
    """Returns the states of tables as the core takes them; a missing one is empty."""
    return (LookedUp * len(tables))(*(looked_up.get(table, LookedUp()) for table in tables))


def rates_of(tables: Collection[str], rates: Mapping[str, float | None]) -> Any:
    """Returns the learning rates of a push as the core takes them; None if all tables keep their own.

    InvalidArgument: a rate is not finite, or of a table that is not pushed to.
    """
    for table, rate in rates.items():
        if table not in tables:
            raise InvalidArgument(f"learning_rates: there is no push to table {table}")
        if rate is not None and not math.isfinite(rate):
            raise InvalidArgument(f"table {table}: learning_rate is {rate}: must be finite")
    if all(rate is None for rate in rates.values()):
        return None
    each = (rates.get(table) for table in tables)
    return (ctypes.c_float * len(tables))(*(math.nan if rate is None else rate for rate in each))


def _native_step(step: Step) -> NamedStep:
    if not isinstance(step, Step):
        raise InvalidArgument(f"step is {step!r}, not a Step")
    for name, bits in STEP_FIELDS.items():
        value = getattr(step, name)
        if not isinstance(value, (int, np.integer)) or not 0 <= value < 1 << bits:
            raise InvalidArgument(f"step.{name} is {value!r}, not a {bits}-bit number")
    return NamedStep(*(getattr(step, name) for name in STEP_FIELDS))


def _natives(batches: Sequence[Batch]) -> Any:
    return ctypes.byref(batches[0]) if len(batches) == 1 else (Batch * len(batches))(*batches)


def _check_tuple(table: str, bags: Sequence[Any], least: int, most: int) -> list[Any]:
    if not isinstance(bags, tuple) or not least <= len(bags) <= most:
        raise InvalidArgument(
            f"table {table}: {type(bags).__name__} is not a tuple of {least} to {most} arrays"
        )
    return list(bags)
