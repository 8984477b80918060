"""A server of several ranks in this process: the real one's wire and steps, the oracle's numbers.

It parses requests with protobuf itself, keeps a log of them, and can be told to fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from oracle import OracleTable

from slotwise._proto import admin_pb2, embedding_pb2

METHODS = {
    "Admin": ["CreateTable", "DropTable", "ListTables", "DescribeTable", "GetTopology", "Digest"],
    "Embedding": ["Lookup", "Push"],
}


class Refused(Exception):
    """Ends a call with a status."""

    def __init__(self, code: grpc.StatusCode, message: str = "as the test wishes") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# Called with (rank, method, request) before or after a call is served; raises Refused to fail it.
Fault = Callable[[int, str, Any], None]


@dataclass
class PendingStep:
    parts: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    table_step: int | None = None


class FakeServer:
    """`ranks` gRPC servers on 127.0.0.1, on free ports unless told, over one set of tables."""

    def __init__(
        self, ranks: int = 2, max_message_bytes: int = 64 << 20, first_port: int = 0
    ) -> None:
        self.log: list[tuple[int, str, Any]] = []  # (rank, method, request) of all calls, in order
        self.before: Fault = lambda rank, method, request: None
        self.after: Fault = lambda rank, method, request: None
        self.step_timeout = 20.0  # seconds
        self.tables: dict[str, OracleTable] = {}
        self.addresses: list[str] = []
        self._max_message_bytes = max_message_bytes
        self._steps: dict[tuple[str, int, int], PendingStep] = {}
        self._changed = threading.Condition()
        self._servers = [self._start(rank, first_port) for rank in range(ranks)]

    def stop(self) -> None:
        for server in self._servers:
            server.stop(grace=None).wait()

    def requests(self, method: str) -> list[Any]:
        """The logged requests of a method."""
        return [request for _, name, request in self.log if name == method]

    def _start(self, rank: int, first_port: int) -> grpc.Server:
        options = [("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
        server = grpc.server(ThreadPoolExecutor(max_workers=64), options=options)
        for service, methods in METHODS.items():
            handlers = {name: self._handler(rank, name) for name in methods}
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(f"slotwise.v1.{service}", handlers),)
            )
        port = server.add_insecure_port(f"127.0.0.1:{first_port and first_port + rank}")
        self.addresses.append(f"127.0.0.1:{port}")
        server.start()
        return server

    def _handler(self, rank: int, method: str) -> grpc.RpcMethodHandler:
        pb = embedding_pb2 if method in METHODS["Embedding"] else admin_pb2
        serve = getattr(self, f"_{method}")

        def handle(message: bytes, context: grpc.ServicerContext) -> bytes:
            request = getattr(pb, f"{method}Request").FromString(message)
            self.log.append((rank, method, request))
            try:
                self.before(rank, method, request)
                reply = getattr(pb, f"{method}Reply")(**serve(request))
                self.after(rank, method, request)
            except Refused as refused:
                context.abort(refused.code, refused.message)
            return reply.SerializeToString()  # type: ignore[no-any-return]

        return grpc.unary_unary_rpc_method_handler(handle)

    def _table(self, name: str) -> OracleTable:
        if name not in self.tables:
            raise Refused(grpc.StatusCode.NOT_FOUND, f"table: there is no '{name}'")
        return self.tables[name]

    def _CreateTable(self, request: Any) -> dict[str, Any]:
        options = request.options
        if options.dim == 0:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "options.dim is 0, not in 1 .. 4096")
        options.slots = options.slots or 1
        options.max_rows = options.max_rows or 1 << 30
        with self._changed:
            created = options.name not in self.tables
            table = self.tables.setdefault(options.name, OracleTable(options))
        if table.options != options:
            raise Refused(grpc.StatusCode.ALREADY_EXISTS, f"table '{options.name}' is there")
        return {"options": options, "created": created}

    def _DropTable(self, request: Any) -> dict[str, Any]:
        self._table(request.table)
        del self.tables[request.table]
        return {}

    def _ListTables(self, _: Any) -> dict[str, Any]:
        return {"tables": [self.tables[name].options for name in sorted(self.tables)]}

    def _DescribeTable(self, request: Any) -> dict[str, Any]:
        table = self._table(request.table)
        shards = [admin_pb2.ShardInfo(rows=len(table.rows)), admin_pb2.ShardInfo()]
        return {"options": table.options, "steps": table.steps, "shards": shards}

    def _GetTopology(self, _: Any) -> dict[str, Any]:
        ranks = [admin_pb2.RankInfo(address=address, device="cpu") for address in self.addresses]
        return {"version": "fake", "ranks": ranks, "max_message_bytes": self._max_message_bytes}

    def _Digest(self, request: Any) -> dict[str, Any]:
        table = self._table(request.table)
        return {"digest": table.digest(), "rows": len(table.rows), "steps": table.steps}

    def _Lookup(self, request: Any) -> dict[str, Any]:
        table = self._table(request.table)
        keys, offsets = _csr(request, table.options.slots)
        train = request.mode != embedding_pb2.LOOKUP_MODE_EVAL
        with self._changed:
            values = table.lookup(keys, offsets, train).astype("<f4").tobytes()
        width = table.options.slots * table.options.dim
        return {"samples": request.samples, "width": width, "values": values}

    def _Push(self, request: Any) -> dict[str, Any]:
        table = self._table(request.table)
        keys, offsets = _csr(request, table.options.slots)
        bags, dim = len(offsets) - 1, table.options.dim
        gradients = np.frombuffer(request.gradients, dtype="<f4").reshape(bags, dim)
        name = (request.table, request.step.session, request.step.number)
        with self._changed:
            step = self._steps.setdefault(name, PendingStep())
            step.parts[request.step.part] = (keys, offsets, gradients)
            if step.table_step is None and len(step.parts) == max(1, request.step.parts):
                step.table_step = table.push(*_join([step.parts[i] for i in sorted(step.parts)]))
                self._changed.notify_all()
            if not self._changed.wait_for(lambda: step.table_step is not None, self.step_timeout):
                self._steps.pop(name, None)
                raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, "other parts did not come")
            return {"table_step": step.table_step}


def _csr(request: Any, slots: int) -> tuple[Any, Any]:
    keys = np.frombuffer(request.keys, dtype="<u8")
    bags = request.samples * slots
    offsets = np.arange(bags + 1, dtype=np.uint32)
    if request.offsets:
        offsets = np.frombuffer(request.offsets, dtype="<u4")
    if len(offsets) != bags + 1 or offsets[0] != 0 or offsets[-1] != len(keys):
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"offsets: {offsets}, {len(keys)} keys")
    return keys, offsets


def _join(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The batch that the parts were cut from."""
    counts = np.concatenate([np.diff(offsets.astype(np.int64)) for _, offsets, _ in parts])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    return np.concatenate([p[0] for p in parts]), offsets, np.concatenate([p[2] for p in parts])
