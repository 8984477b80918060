"""The client: tables, lookups, pushes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import ArrayLike, NDArray

from slotwise import messages
from slotwise._proto import admin_pb2
from slotwise.batch import Batch, Range, cut, even_ranges, halve_until_fit, make_batch
from slotwise.errors import Error, InvalidArgument, NotFound, Unavailable
from slotwise.optimizers import Initializer, Optimizer, Uniform
from slotwise.options import (
    RankInfo,
    ShardInfo,
    TableDigest,
    TableInfo,
    TableOptions,
    Topology,
    options_from_proto,
    options_to_proto,
)
from slotwise.session import Session, Step
from slotwise.transport import Call, Transport

_DEFAULT_PORT = 7070
# Room in a request for the fields that are not arrays.
_HEADER_BYTES = 1024

_Reply = TypeVar("_Reply")


def connect(*addresses: str, timeout: float = 30.0, channels_per_rank: int = 2) -> Client:
    """Connects to a server through any of its ranks and learns the others from it.

    Args:
        addresses: host:port of one or more ranks; without a port, 7070.
        timeout: seconds that this and every later call may take, retries included. A server that is
            still starting is waited for.
        channels_per_rank: connections to each rank; large batches are spread over them.

    Raises:
        Unavailable, DeadlineExceeded: nobody answered at any address within `timeout`.
    """
    if not addresses or not timeout > 0 or channels_per_rank < 1:
        raise InvalidArgument(
            "connect() takes an address, a timeout above 0 and at least 1 channel a rank"
        )
    seeds = [address if ":" in address else f"{address}:{_DEFAULT_PORT}" for address in addresses]
    transport = Transport(seeds, 1, timeout)
    try:
        topology = _get_topology(transport)
    except Error as error:
        raise type(error)(f"cannot connect: {error.message}", error.code) from None
    finally:
        transport.close()
    if not topology.ranks:
        raise Unavailable(f"cannot connect: {', '.join(seeds)} names no ranks")
    ranks = [rank.address for rank in topology.ranks]
    return Client(Transport(ranks, channels_per_rank, timeout), topology.max_message_bytes)


class Client:
    """A connection to a server's ranks; made by `slotwise.connect`.

    Thread-safe: any number of threads may look up and push at once. Not usable after a fork:
    connect in the child (as in a `DataLoader` worker), or use the "spawn" start method. A context
    manager that closes itself.

    Attributes:
        session: names the steps of pushes that name none.

    Every method raises `slotwise.Error` or one of its subclasses: `DeadlineExceeded` or
    `Unavailable` if there was no answer within the timeout, `FailedPrecondition` if the client is
    closed; the methods name others.
    """

    def __init__(self, transport: Transport, max_message_bytes: int) -> None:
        self.session = Session()
        self._transport = transport
        self._largest_request = (max_message_bytes or 4 << 20) - _HEADER_BYTES
        self._options: dict[str, TableOptions] = {}  # of the tables in use
        self._turns = itertools.count()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<slotwise.Client of {', '.join(self._transport.addresses)}>"

    def close(self) -> None:
        """Closes the connections; calls in flight in other threads raise."""
        self._transport.close()

    def create_table(
        self,
        name: str,
        *,
        dim: int,
        optimizer: Optimizer,
        slots: int = 1,
        combiner: str = "sum",
        initializer: Initializer = Uniform(),
        seed: int = 0,
        initial_rows: int = 0,
        max_rows: int = 0,
    ) -> TableOptions:
        """Makes a table on every rank; if the same table is there already, nothing changes.

        The arguments are those of `TableOptions`. Returns them with the server's defaults in place.

        Raises:
            AlreadyExists: a table of that name has other options.
            InvalidArgument: names the option and its value.
            ResourceExhausted: no memory for it.
        """
        options = TableOptions(
            name, dim, slots, combiner, optimizer, initializer, seed, initial_rows, max_rows
        )
        request = admin_pb2.CreateTableRequest(options=options_to_proto(options))
        reply = self._admin("CreateTable", request, admin_pb2.CreateTableReply.FromString)
        return self._remember(options_from_proto(reply.options))

    def drop_table(self, name: str, *, missing_ok: bool = False) -> None:
        """Forgets a table on every rank; NotFound if there is none, unless `missing_ok`."""
        self._options.pop(name, None)
        request = admin_pb2.DropTableRequest(table=name)
        try:
            self._admin("DropTable", request, admin_pb2.DropTableReply.FromString)
        except NotFound:
            if not missing_ok:
                raise

    def list_tables(self) -> list[TableOptions]:
        """All tables' options, by name."""
        request = admin_pb2.ListTablesRequest()
        reply = self._admin("ListTables", request, admin_pb2.ListTablesReply.FromString)
        return [options_from_proto(table) for table in reply.tables]

    def describe_table(self, name: str) -> TableInfo:
        """A table's options, steps and shards; NotFound if there is none."""
        request = admin_pb2.DescribeTableRequest(table=name)
        reply = self._admin("DescribeTable", request, admin_pb2.DescribeTableReply.FromString)
        options = self._remember(options_from_proto(reply.options))
        shards = tuple(ShardInfo(shard.rows, shard.slots, shard.bytes) for shard in reply.shards)
        return TableInfo(options, reply.steps, shards)

    def topology(self) -> Topology:
        """The server's ranks, as they are now."""
        return _get_topology(self._transport)

    def digest(self, name: str) -> TableDigest:
        """A hash of a table's contents, wherever they lie; NotFound if there is none."""
        request = admin_pb2.DigestRequest(table=name)
        reply = self._admin("Digest", request, admin_pb2.DigestReply.FromString)
        return TableDigest(reply.digest, reply.rows, reply.steps)

    def lookup(
        self,
        table: str,
        keys: ArrayLike,
        offsets: ArrayLike | None = None,
        *,
        train: bool = True,
        out: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """The pooled rows of every bag.

        Args:
            table: its name.
            keys: uint64 [keys], any value is legal; int64 is reinterpreted bit by bit. Without
                offsets also [samples, slots].
            offsets: integers [samples * slots + 1], rising from 0 to `len(keys)`: bag
                b = sample * slots + slot owns `keys[offsets[b]:offsets[b + 1]]`. The end is always
                there, unlike torch's default. None: one key a bag.
            train: True gives an absent key a row; False inserts nothing, and an absent key counts
                as zeros.
            out: where to put the result, C-contiguous float32 [samples, slots * dim].

        Returns:
            float32 [samples, slots * dim], writable; `out` if given.

        Raises:
            InvalidArgument: the batch is malformed; the message names the field and value.
            NotFound: no such table.
            ResourceExhausted: the table is full (`train`), or one sample too large; nothing was
                changed.
        """
        with self._table(table) as options:
            batch = make_batch(keys, offsets, options.slots)
            values = messages.result_array(out, batch.samples, options.width)
            ranges = self._cut(batch, options.width, batch.part_bytes)
            requests = [messages.lookup_request(table, train, batch, part) for part in ranges]

            def on_reply(index: int, reply: bytes) -> None:
                messages.copy_values(reply, values[slice(*ranges[index])])

            self._transport.run(self._calls("Embedding/Lookup", requests), on_reply)
        return values

    def push(
        self,
        table: str,
        keys: ArrayLike,
        offsets: ArrayLike | None,
        gradients: ArrayLike,
        *,
        step: Step | None = None,
    ) -> int:
        """Sums the gradients of every row and runs the table's optimizer on them, once.

        Returns when the step was applied. Connections may break meanwhile: the parts are sent again
        under the same step, and the server applies a step once. After an exception, push the same
        batch with the same `step` to be sure of it; `step` must have been given for that.

        Args:
            table, keys, offsets: as in `lookup`. A key without a row gets one first.
            gradients: float32 [samples, slots * dim] (or [samples, slots, dim]): of the loss by
                each pooled value.
            step: from a `Session`; None: the next of this client's own.

        Returns:
            The table's count of applied steps when this one was applied: 1 for the first.

        Raises:
            InvalidArgument, NotFound, ResourceExhausted: as `lookup`; nothing was changed.
            FailedPrecondition: the step is too far behind the newest of its session.
        """
        table_steps: list[int] = []
        with self._table(table) as options:
            batch = make_batch(keys, offsets, options.slots)
            values = messages.check_gradients(gradients, batch.samples, options)
            step = step or self.session.next()
            if step.parts:
                ranges = even_ranges(batch.samples, step.parts)
            else:
                ranges = self._cut(
                    batch, options.width, lambda part: messages.push_bytes(batch, part, values)
                )
            first_part, parts = step.trainer * len(ranges), step.trainers * len(ranges)
            requests = [
                messages.push_request(table, step, (first_part + i, parts), batch, part, values)
                for i, part in enumerate(ranges)
            ]
            self._transport.run(
                self._calls("Embedding/Push", requests),
                lambda _, reply: table_steps.append(messages.table_step(reply)),
            )
        return table_steps[0]

    @contextmanager
    def _table(self, name: str) -> Iterator[TableOptions]:
        """A table's options, asked for once; forgotten when what is done with them fails.

        Because then the table may have been made anew, with others.
        """
        try:
            yield self._options.get(name) or self.describe_table(name).options
        except Error:
            self._options.pop(name, None)
            raise

    def _remember(self, options: TableOptions) -> TableOptions:
        self._options[options.name] = options
        return options

    def _cut(self, batch: Batch, width: int, request_bytes: Callable[[Range], int]) -> list[Range]:
        """The samples of each request of a batch."""
        whole = max(4 * width * batch.samples, batch.part_bytes((0, batch.samples)))
        ranks, channels = len(self._transport.addresses), self._transport.channels_per_rank
        ranges = cut(batch.samples, whole, ranks, channels)
        return halve_until_fit(ranges, request_bytes, self._largest_request)

    def _calls(self, method: str, requests: Sequence[bytes]) -> list[Call]:
        """The parts of a batch on their way: neighbours to the same rank, in rank order."""
        parts, ranks = len(requests), len(self._transport.addresses)
        # A batch of one part has no neighbours; such batches take turns.
        turn = next(self._turns) if parts == 1 else 0
        return [
            Call(method, request, (i * ranks // parts + turn) % ranks, i + turn // ranks)
            for i, request in enumerate(requests)
        ]

    def _admin(self, method: str, request: Message, parse: Callable[[bytes], _Reply]) -> _Reply:
        return _admin(self._transport, method, request, parse)


def _admin(
    transport: Transport, method: str, request: Message, parse: Callable[[bytes], _Reply]
) -> _Reply:
    reply = transport.call(Call(f"Admin/{method}", request.SerializeToString()))
    try:
        return parse(reply)
    except DecodeError as error:
        raise Error(f"the reply to {method} is not of this version: {error}") from error


def _get_topology(transport: Transport) -> Topology:
    request = admin_pb2.GetTopologyRequest()
    reply = _admin(transport, "GetTopology", request, admin_pb2.GetTopologyReply.FromString)
    ranks = tuple(RankInfo(rank.address, rank.device) for rank in reply.ranks)
    return Topology(reply.version, ranks, reply.max_message_bytes)
