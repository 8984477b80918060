"""The control path: tables and the server's topology (service Admin)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from slotwise._proto import admin_pb2
from slotwise.errors import Error, NotFound
from slotwise.optimizers import Initializer, Optimizer, Uniform
from slotwise.options import (
    RankInfo,
    TableDigest,
    TableInfo,
    TableOptions,
    Topology,
    info_from_proto,
    options_from_proto,
    options_to_proto,
)
from slotwise.transport import Call, Transport

_Reply = TypeVar("_Reply")


class AdminCalls:
    """Makes, describes and drops tables, and remembers the options of tables in use."""

    def __init__(self, transport: Transport, max_message_bytes: int) -> None:
        self._transport = transport
        self._max_message_bytes = max_message_bytes or 4 << 20
        self._options: dict[str, TableOptions] = {}  # of the tables in use

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
        max_load: float = 0.0,
    ) -> TableOptions:
        """Makes a table on every rank; nothing changes if the same table exists already.

        The arguments are those of `TableOptions`. Returns them with the server's defaults in place.

        Raises:
            AlreadyExists: a table of that name has other options.
            InvalidArgument: names the option and its value.
            ResourceExhausted: there is no memory for the table.
        """
        options = TableOptions(
            name=name,
            dim=dim,
            slots=slots,
            combiner=combiner,
            optimizer=optimizer,
            initializer=initializer,
            seed=seed,
            initial_rows=initial_rows,
            max_rows=max_rows,
            max_load=max_load,
        )
        request = admin_pb2.CreateTableRequest(options=options_to_proto(options))
        reply = self._admin("CreateTable", request, admin_pb2.CreateTableReply.FromString)
        return self._remember(options_from_proto(reply.options))

    def drop_table(self, name: str, *, missing_ok: bool = False) -> None:
        """Drops a table on every rank. Raises NotFound if there is none, unless `missing_ok`."""
        self._options.pop(name, None)
        request = admin_pb2.DropTableRequest(table=name)
        try:
            self._admin("DropTable", request, admin_pb2.DropTableReply.FromString)
        except NotFound:
            if not missing_ok:
                raise

    def list_tables(self) -> list[TableOptions]:
        """Returns all tables' options, sorted by name."""
        request = admin_pb2.ListTablesRequest()
        reply = self._admin("ListTables", request, admin_pb2.ListTablesReply.FromString)
        return [options_from_proto(table) for table in reply.tables]

    def describe_table(self, name: str) -> TableInfo:
        """Returns a table's options, steps, learning rate, shards and rounds. Raises NotFound."""
        request = admin_pb2.DescribeTableRequest(table=name)
        reply = self._admin("DescribeTable", request, admin_pb2.DescribeTableReply.FromString)
        info = info_from_proto(reply)
        self._remember(info.options)
        return info

    def set_learning_rate(self, name: str, lr: float) -> None:
        """Sets a table's learning rate on every rank, from its next step on.

        The rate replaces the optimizer's `lr`, and a schedule continues from the step it has
        reached. The table's options do not change: `create_table` with the old options still finds
        the table.

        Raises:
            InvalidArgument: `lr` is not finite and above 0.
            NotFound: no such table.
        """
        request = admin_pb2.SetLearningRateRequest(table=name, learning_rate=lr)
        parse = admin_pb2.SetLearningRateReply.FromString
        self._admin("SetLearningRate", request, parse)

    def topology(self) -> Topology:
        """Returns the server's ranks, as they are now."""
        return get_topology(self._transport)

    def digest(self, name: str) -> TableDigest:
        """Returns a hash of a table's contents, wherever they lie, or raises NotFound."""
        request = admin_pb2.DigestRequest(table=name)
        reply = self._admin("Digest", request, admin_pb2.DigestReply.FromString)
        return TableDigest(reply.digest, reply.rows, reply.steps)

    @contextmanager
    def _tables(self, *names: str) -> Iterator[list[TableOptions]]:
        """Yields tables' options, asking for each once; forgets them if the `with` body fails.

        The body may have failed because a table was made again, with other options.
        """
        try:
            yield [self._options.get(name) or self.describe_table(name).options for name in names]
        except Error:
            for name in names:
                self._options.pop(name, None)
            raise

    def _remember(self, options: TableOptions) -> TableOptions:
        self._options[options.name] = options
        return options

    def _admin(self, method: str, request: Message, parse: Callable[[bytes], _Reply]) -> _Reply:
        return _admin(self._transport, method, request, parse)


def get_topology(transport: Transport) -> Topology:
    """Returns the ranks that a server names."""
    request = admin_pb2.GetTopologyRequest()
    reply = _admin(transport, "GetTopology", request, admin_pb2.GetTopologyReply.FromString)
    ranks = tuple(RankInfo(rank.address, rank.device) for rank in reply.ranks)
    return Topology(reply.version, ranks, reply.max_message_bytes)


def _admin(
    transport: Transport, method: str, request: Message, parse: Callable[[bytes], _Reply]
) -> _Reply:
    reply = transport.call(Call(f"Admin/{method}", request.SerializeToString()))
    try:
        return parse(reply)
    except DecodeError as error:
        raise Error(f"the reply to {method} is not of this version: {error}") from error
