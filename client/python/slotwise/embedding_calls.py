"""The data path: lookups and pushes (service Embedding)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slotwise import halves, messages, wire
from slotwise.admin_calls import AdminCalls
from slotwise.batch import Batch, Share, cut, even_shares, halve_until_fit, make_batch
from slotwise.errors import InvalidArgument
from slotwise.options import TableOptions
from slotwise.session import Session, Step
from slotwise.transport import Call, Transport

# The room that a request keeps for its fields that are not arrays, and for those of each table in
# it.
_HEADER_BYTES, _TABLE_HEADER_BYTES = 768, 256

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


class _TableBatch(NamedTuple):
    """A table's batch, with its values [samples, slots * dim]: a lookup's result, or gradients."""

    table: str
    batch: Batch
    values: NDArray[np.float32]


class EmbeddingCalls(AdminCalls):
    """Looks pooled rows up and pushes their gradients."""

    def __init__(self, transport: Transport, max_message_bytes: int, wire_dtype: str) -> None:
        super().__init__(transport, max_message_bytes)
        self.session = Session()
        self._wire_dtype = wire_dtype
        self._turns = itertools.count()

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
            keys: uint64 [keys], any value is legal; int64 is reinterpreted bit by bit. Without
                offsets also [samples, slots]; in a table without a combiner, of any shape.
            offsets: integers [samples * slots + 1], rising from 0 to `len(keys)`: bag b = sample *
                slots + slot owns `keys[offsets[b]:offsets[b + 1]]`. Unlike torch's default, the
                array always has the end. None: every bag has one key; a table without a combiner
                takes no other batch.
            weights: float32 of the keys' shape, finite; each key's row is multiplied by its weight.
                The combiner "mean" then divides by a bag's sum of weights, and "sqrtn" by the root
                of the sum of their squares; if that is 0 the result is zeros. None: all weights are
                1.
            train: True gives an absent key a row; False inserts nothing, and an absent key counts
                as zeros.
            wire_dtype: the type that the values have on the wire: "float32", or "float16" or
                "bfloat16", which halve the bytes and round. None: the type given to `connect`.
            out: the array that receives the result, C-contiguous float32 of its shape.

        Returns:
            float32 [samples, slots * dim], writable; `out` if given. In a table without a combiner
            the shape is [*keys.shape, dim], or [samples, dim] if there are offsets.

        Raises:
            InvalidArgument: the batch is malformed; the message names the field and value.
            NotFound: no such table.
            ResourceExhausted: the table is full (`train`), or one sample is too large; nothing was
                changed.
        """
        with self._tables(table) as (options,):
            batch = _batch(options, keys, offsets, weights)
            values = messages.result_array(out, (*batch.shape, options.width))
            flat = values.reshape(batch.samples, options.width)
            self._lookup([_TableBatch(table, batch, flat)], train, wire_dtype, many=False)
        return values

    def lookup_many(
        self,
        lookups: Mapping[str, Bags],
        *,
        train: bool = True,
        wire_dtype: str | None = None,
    ) -> dict[str, NDArray[np.float32]]:
        """Looks up in several tables, of any dims and numbers of samples, in one request.

        A large request is cut into parts, as a lookup is; every part has a share of each table.

        Args:
            lookups: for each table, a tuple of `lookup`'s arguments: (keys,), (keys, offsets) or
                (keys, offsets, weights).
            train, wire_dtype: as in `lookup`.

        Returns:
            For each table, what `lookup` returns.

        Raises:
            As `lookup`. If one table refuses, the call fails, though others may have got new rows.
        """
        results: dict[str, NDArray[np.float32]] = {}
        with self._tables(*lookups) as tables:
            wanted: list[_TableBatch] = []
            for options, bags in zip(tables, lookups.values()):
                batch = _batch(options, *_check_tuple(options.name, bags, 1, 3))
                values = messages.result_array(None, (*batch.shape, options.width))
                results[options.name] = values
                flat = values.reshape(batch.samples, options.width)
                wanted.append(_TableBatch(options.name, batch, flat))
            self._lookup(wanted, train, wire_dtype, many=True)
        return results

    def push(
        self,
        table: str,
        keys: ArrayLike,
        offsets: ArrayLike | None,
        gradients: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        step: Step | None = None,
        wire_dtype: str | None = None,
    ) -> int:
        """Sums the gradients of every row and runs the table's optimizer on the sums, once.

        Returns when the step was applied. If connections break meanwhile, the client sends the
        parts again under the same step, and the server applies a step once. After an exception,
        push the same batch with the same `step` to be sure that the step is applied; so give a
        `step` if you may need to push again.

        Args:
            table, keys, offsets, weights: as in `lookup`. A key without a row gets one first.
            gradients: float32, of the shape that `lookup` returned (or [samples, slots, dim]): the
                loss's gradient with respect to each pooled value; finite.
            step: a step of a `Session`. None: the next step of this client's own session.
            wire_dtype: the type that the gradients have on the wire, as in `lookup`. A gradient
                past the type's largest number (65,504 for "float16") becomes infinity, which the
                server refuses.

        Returns:
            The table's count of applied steps after this step; 1 for the first step.

        Raises:
            InvalidArgument, NotFound, ResourceExhausted: as `lookup`; nothing was changed.
            DeadlineExceeded: another trainer's part of the step did not come; nothing of the step
                was applied.
            FailedPrecondition: the step is too far behind the newest of its session.
        """
        with self._tables(table) as (options,):
            batch = _batch(options, keys, offsets, weights)
            values = messages.check_gradients(gradients, batch, options.dim)
            return self._push([_TableBatch(table, batch, values)], step, wire_dtype, many=False)[0]

    def push_many(
        self,
        pushes: Mapping[str, Gradients],
        *,
        step: Step | None = None,
        wire_dtype: str | None = None,
    ) -> dict[str, int]:
        """Pushes to several tables in one request: one step of each, all with one number.

        Args:
            pushes: for each table, a tuple of `push`'s arguments: (keys, offsets, gradients) or
                (keys, offsets, gradients, weights).
            step, wire_dtype: as in `push`.

        Returns:
            For each table, what `push` returns.

        Raises:
            As `push`. If one table refuses, the call fails, though steps of others may have been
            applied; pushing all again with the same `step` applies none of those twice.
        """
        with self._tables(*pushes) as tables:
            wanted: list[_TableBatch] = []
            for options, push in zip(tables, pushes.values()):
                keys, offsets, gradients, *weights = _check_tuple(options.name, push, 3, 4)
                batch = _batch(options, keys, offsets, *weights)
                values = messages.check_gradients(gradients, batch, options.dim)
                wanted.append(_TableBatch(options.name, batch, values))
            steps = self._push(wanted, step, wire_dtype, many=True)
        return dict(zip(pushes, steps))

    def _lookup(
        self, tables: Sequence[_TableBatch], train: bool, wire_dtype: str | None, many: bool
    ) -> None:
        """Fills in the tables' values."""
        if not tables:
            return
        dtype = wire_dtype or self._wire_dtype
        shares = self._cut(tables, dtype, pushed=False)
        requests = [
            [
                messages.lookup_request(table, train, batch, samples, dtype)
                for (table, batch, _), samples in zip(tables, share)
            ]
            for share in shares
        ]

        def on_reply(index: int, reply: bytes) -> None:
            places = [t.values[slice(*samples)] for t, samples in zip(tables, shares[index])]
            if many:
                messages.copy_many_values(reply, places)
            else:
                messages.copy_values(reply, places[0])

        self._transport.run(self._calls("Lookup", requests, many), on_reply)

    def _push(
        self, tables: Sequence[_TableBatch], step: Step | None, wire_dtype: str | None, many: bool
    ) -> list[int]:
        """Pushes to all tables; returns every table's count of steps."""
        if not tables:
            return []
        dtype = wire_dtype or self._wire_dtype
        step = step or self.session.next()
        if step.parts:
            shares = even_shares([batch.samples for _, batch, _ in tables], step.parts)
        else:
            shares = self._cut(tables, dtype, pushed=True)
        first_part, parts = step.trainer * len(shares), step.trainers * len(shares)
        requests = [
            [
                messages.push_request(
                    table, step, (first_part + i, parts), batch, samples, values, dtype
                )
                for (table, batch, values), samples in zip(tables, share)
            ]
            for i, share in enumerate(shares)
        ]
        replies: list[bytes] = []
        calls = self._calls("Push", requests, many)
        self._transport.run(calls, lambda _, reply: replies.append(reply))
        if many:
            return messages.table_steps(replies[0], len(tables))
        return [messages.table_step(replies[0])]

    def _cut(self, tables: Sequence[_TableBatch], dtype: str, pushed: bool) -> list[Share]:
        """Returns the samples of every table in each request."""
        sizes = [halves.bytes_each(dtype) * values.shape[1] for _, _, values in tables]  # a sample

        def request_bytes(share: Share) -> int:
            arrays = sum(t.batch.part_bytes(samples) for t, samples in zip(tables, share))
            if pushed:
                arrays += sum(size * (last - first) for size, (first, last) in zip(sizes, share))
            return arrays + _HEADER_BYTES + _TABLE_HEADER_BYTES * len(share)

        samples = [batch.samples for _, batch, _ in tables]
        keys_bytes = sum(batch.part_bytes((0, batch.samples)) for _, batch, _ in tables)
        values_bytes = sum(size * count for size, count in zip(sizes, samples))
        ranks, channels = len(self._transport.addresses), self._transport.channels_per_rank
        shares = cut(samples, max(values_bytes, keys_bytes), ranks, channels)
        return halve_until_fit(shares, request_bytes, self._max_message_bytes)

    def _calls(
        self, method: str, requests: Sequence[Sequence[wire.Pieces]], many: bool
    ) -> list[Call]:
        """Gives each part of a batch a rank: neighbouring parts get the same, in rank order."""
        parts, ranks = len(requests), len(self._transport.addresses)
        # Batches of one part go to the ranks in turn.
        turn = next(self._turns) if parts == 1 else 0
        return [
            Call(
                f"Embedding/{method}Many" if many else f"Embedding/{method}",
                wire.join(messages.many(tables) if many else tables[0]),
                (i * ranks // parts + turn) % ranks,
                i + turn // ranks,
            )
            for i, tables in enumerate(requests)
        ]


def _batch(
    options: TableOptions,
    keys: ArrayLike,
    offsets: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Batch:
    pooled = options.combiner != "none"
    return make_batch(keys, offsets, options.slots, weights, pooled=pooled)


def _check_tuple(table: str, bags: Sequence[Any], least: int, most: int) -> list[Any]:
    if not isinstance(bags, tuple) or not least <= len(bags) <= most:
        raise InvalidArgument(
            f"table {table}: {type(bags).__name__} is not a tuple of {least} to {most} arrays"
        )
    return list(bags)
