"""A server of several ranks in this process: the real one's wire and steps, the oracle's numbers.

It parses requests with protobuf itself, keeps a log of them, and can be told to fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from oracle import OracleTable
from slotwise_proto import admin_pb2, embedding_pb2, rows_pb2

METHODS = {
    "Admin": (
        "CreateTable DropTable ListTables DescribeTable SetLearningRate GetTopology Digest "
        "SaveCheckpoint ListCheckpoints DescribeCheckpoint VerifyCheckpoint LoadCheckpoint"
    ).split(),
    "Embedding": ["Lookup", "Push", "LookupMany", "PushMany"],
    "Rows": ["Export", "Import", "Erase"],
}
MESSAGES = {"Admin": admin_pb2, "Embedding": embedding_pb2, "Rows": rows_pb2}


class Refused(Exception):
    """Ends a call with a status."""

    def __init__(
        self, code: grpc.StatusCode, message: str = "as the test wishes", retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms


# Called with (rank, method, request) before or after a call is served; raises Refused to fail it.
Fault = Callable[[int, str, Any], None]
EVERY = 1 << 30  # times


def refuse(
    method: str,
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE,
    message: str = "as the test wishes",
    times: int = EVERY,
    retry_after_ms: int | None = None,
    of: Callable[[int, Any], bool] = lambda rank, request: True,
) -> Fault:
    """Refuses calls of a method: the first so many, of which `of`, given rank and request, holds."""
    lock, left = threading.Lock(), times

    def fault(rank: int, called: str, request: Any) -> None:
        nonlocal left
        if called != method or not of(rank, request):
            return
        with lock:
            if left == 0:
                return
            left -= 1
        raise Refused(code, message, retry_after_ms)

    return fault


def all_of(*faults: Fault) -> Fault:
    """Does one after the other."""

    def fault(rank: int, method: str, request: Any) -> None:
        for each in faults:
            each(rank, method, request)

    return fault


@dataclass
class PendingStep:
    parts: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    table_step: int | None = None


class FakeServer:
    """`ranks` gRPC servers on 127.0.0.1, on free ports unless told, over one set of tables."""

    def __init__(self, ranks: int = 2, max_message_bytes: int = 64 << 20, first_port: int = 0) -> None:
        self.log: list[tuple[int, str, Any]] = []  # (rank, method, request) of all calls, in order
        self.before: Fault = lambda rank, method, request: None
        self.after: Fault = lambda rank, method, request: None
        # Given (method, reply), returns the bytes that are sent instead.
        self.spoil: Callable[[str, bytes], bytes] = lambda method, reply: reply
        self.step_timeout = 20.0  # seconds
        self.rows_a_chunk = 2  # of an export
        self.tables: dict[str, OracleTable] = {}
        self.addresses: list[str] = []
        self._max_message_bytes = max_message_bytes
        self._steps: dict[tuple[str, int, int], PendingStep] = {}
        self._changed = threading.Condition()
        self._servers = [self._start(rank, first_port) for rank in range(ranks)]

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for server in self._servers:
            server.stop(grace=None).wait()

    def requests(self, method: str) -> list[Any]:
        """The logged requests of a method."""
        return [request for _, name, request in self.log if name == method]

    def answer(self, method: str, reply: bytes) -> None:
        """Has calls of a method answered with these bytes, and all others as they are."""
        self.spoil = lambda called, real: reply if called == method else real

    def _start(self, rank: int, first_port: int) -> grpc.Server:
        options = [("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
        server = grpc.server(ThreadPoolExecutor(max_workers=64), options=options)
        for service, methods in METHODS.items():
            handlers = {name: self._handler(rank, service, name) for name in methods}
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(f"slotwise.v1.{service}", handlers),)
            )
        port = server.add_insecure_port(f"127.0.0.1:{first_port and first_port + rank}")
        self.addresses.append(f"127.0.0.1:{port}")
        server.start()
        return server

    def _handler(self, rank: int, service: str, method: str) -> grpc.RpcMethodHandler:
        messages, serve = MESSAGES[service], getattr(self, f"_{method}")
        reply_type = getattr(messages, f"{method}Reply")

        def handle(message: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            request = getattr(messages, f"{method}Request").FromString(message)
            self.log.append((rank, method, request))
            try:
                self.before(rank, method, request)
                replies = serve(request, rank) if method == "Export" else [serve(request)]
                for reply in replies:
                    yield self.spoil(method, reply_type(**reply).SerializeToString())
                self.after(rank, method, request)
            except Refused as refused:
                if refused.retry_after_ms is not None:
                    context.set_trailing_metadata((("grpc-retry-pushback-ms", str(refused.retry_after_ms)),))
                context.abort(refused.code, refused.message)

        def handle_one(message: bytes, context: grpc.ServicerContext) -> bytes:
            (reply,) = list(handle(message, context))
            return reply

        def handle_stream(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            """Of Import: only the first message must name the table."""
            table, rows = b"", 0
            for message in messages:
                table = table or rows_pb2.ImportRequest(
                    table=rows_pb2.ImportRequest.FromString(message).table
                ).SerializeToString()
                (reply,) = list(handle(table + message, context))
                rows += rows_pb2.ImportReply.FromString(reply).rows
            return bytes(rows_pb2.ImportReply(rows=rows).SerializeToString())

        if method == "Export":
            return grpc.unary_stream_rpc_method_handler(handle)
        if method == "Import":
            return grpc.stream_unary_rpc_method_handler(handle_stream)
        return grpc.unary_unary_rpc_method_handler(handle_one)

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
        options.max_load = options.max_load or 0.5
        if options.combiner == admin_pb2.COMBINER_NONE and options.slots != 1:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "options.slots is not 1")
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
        shards = [admin_pb2.ShardInfo(rows=len(table.rows), cells=2048, bytes=65536), admin_pb2.ShardInfo()]
        rate = table.learning_rate(table.steps + 1)
        rounds = admin_pb2.TravelledRounds(owned_bags=table.steps)
        rates = {"learning_rate": rate, "base_learning_rate": table.rate}
        return {"options": table.options, "steps": table.steps, "shards": shards, "rounds": rounds, **rates}

    def _SetLearningRate(self, request: Any) -> dict[str, Any]:
        if not (0 < request.learning_rate < np.inf):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "learning_rate is not above 0")
        self._table(request.table).rate = request.learning_rate
        return {}

    def _GetTopology(self, _: Any) -> dict[str, Any]:
        ranks = [admin_pb2.RankInfo(address=address, device="cpu") for address in self.addresses]
        return {"version": "fake", "ranks": ranks, "max_message_bytes": self._max_message_bytes}

    def _Digest(self, request: Any) -> dict[str, Any]:
        table = self._table(request.table)
        return {"digest": table.digest(), "rows": len(table.rows), "steps": table.steps}

    def _SaveCheckpoint(self, _: Any) -> dict[str, Any]:
        """As a server without a data folder; so are the other calls about checkpoints."""
        said = "the server keeps nothing: it was started without a data folder (--data)"
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, said)

    _ListCheckpoints = _DescribeCheckpoint = _VerifyCheckpoint = _LoadCheckpoint = _SaveCheckpoint

    def _Lookup(self, request: Any) -> dict[str, Any]:
        table = self._table(request.table)
        keys, offsets, weights = _csr(request, table.options)
        train = request.mode != embedding_pb2.LOOKUP_MODE_EVAL
        with self._changed:
            values = table.lookup(keys, offsets, train, weights)
        width = table.options.slots * table.options.dim
        return {
            "samples": request.samples,
            "width": width,
            "data_type": request.data_type or embedding_pb2.DATA_TYPE_FLOAT32,
            "values": narrow(values, request.data_type),
        }

    def _LookupMany(self, request: Any) -> dict[str, Any]:
        return {"replies": [self._Lookup(lookup) for lookup in request.lookups]}

    def _Push(self, request: Any) -> dict[str, Any]:
        return self._await_parts(self._take_part(request))

    def _PushMany(self, request: Any) -> dict[str, Any]:
        steps = [self._take_part(push) for push in request.pushes]
        return {"replies": [self._await_parts(step) for step in steps]}

    def _take_part(self, request: Any) -> PendingStep:
        table = self._table(request.table)
        keys, offsets, weights = _csr(request, table.options)
        gradients = widen(request.gradients, request.data_type).reshape(len(offsets) - 1, table.options.dim)
        if not np.isfinite(gradients).all():
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "gradients: not finite")
        name = (request.table, request.step.session, request.step.number)
        with self._changed:
            step = self._steps.setdefault(name, PendingStep())
            step.parts[request.step.part] = (keys, offsets, gradients, weights)
            if step.table_step is None and len(step.parts) == max(1, request.step.parts):
                own = {"rate": request.learning_rate} if request.HasField("learning_rate") else {}
                parts = _join([step.parts[i] for i in sorted(step.parts)])
                step.table_step = table.push(*parts, **own)
                self._changed.notify_all()
        return step

    def _await_parts(self, step: PendingStep) -> dict[str, Any]:
        with self._changed:
            if not self._changed.wait_for(lambda: step.table_step is not None, self.step_timeout):
                for name in [name for name, one in self._steps.items() if one is step]:
                    del self._steps[name]
                raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, "other parts did not come")
            return {"table_step": step.table_step}

    def _Export(self, request: Any, rank: int) -> Iterator[dict[str, Any]]:
        table = self._table(request.table)
        wanted = set(np.frombuffer(request.keys, "<u8").tolist()) if request.keys else table.rows
        keys = [key for key in table.rows if key in wanted and key % len(self._servers) == rank]
        for first in range(0, len(keys), self.rows_a_chunk):
            some = keys[first : first + self.rows_a_chunk]
            reply = {
                "dim": table.options.dim,
                "keys": np.array(some, "<u8").tobytes(),
                "values": b"".join(table.rows[key].tobytes() for key in some),
            }
            if request.with_state:
                reply["state_size"] = table.state_size()
                reply["state"] = b"".join(table.state[key].tobytes() for key in some)
            yield reply

    def _Import(self, request: Any) -> dict[str, Any]:
        table = self._table(request.table)
        keys = np.frombuffer(request.keys, "<u8")
        values, state = np.frombuffer(request.values, "<f4"), np.frombuffer(request.state, "<f4")
        if values.size != len(keys) * table.options.dim:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"values: {values.size} floats")
        if state.size not in (0, len(keys) * table.state_size()):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"state: {state.size} floats")
        with self._changed:
            for i, key in enumerate(keys.tolist()):
                table.rows[key] = values.reshape(len(keys), -1)[i].copy()
                table.state[key] = table.first_state()
                if state.size:
                    table.state[key] = state.reshape(len(keys), -1)[i].copy()
            table.steps = max(table.steps, request.table_steps)
        return {"rows": len(keys)}

    def _Erase(self, request: Any) -> dict[str, Any]:
        table, erased = self._table(request.table), 0
        with self._changed:
            for key in np.frombuffer(request.keys, "<u8").tolist():
                erased += table.rows.pop(key, None) is not None
                table.state.pop(key, None)
        return {"rows": erased}


class Gate:
    """Holds a method's calls at the fake server, of all ranks or one, until it is opened."""

    def __init__(self, fake: FakeServer, held: str, rank: int | None = None) -> None:
        self.opened, self.reached = threading.Event(), threading.Semaphore(0)
        self.passed = 0  # calls that were held and went on

        def hold(of: int, method: str, _: Any) -> None:
            if method == held and rank in (None, of):
                self.reached.release()
                self.opened.wait(20)
                self.passed += 1

        fake.before = hold

    def wait_for_call(self) -> None:
        """Returns once a call is held."""
        assert self.reached.acquire(timeout=20)


def narrow(values: Any, data_type: int) -> bytes:
    """A reply's values. bfloat16 by the float's own arithmetic, unlike the client's."""
    if data_type == embedding_pb2.DATA_TYPE_FLOAT16:
        return bytes(values.astype("<f2").tobytes())
    if data_type == embedding_pb2.DATA_TYPE_BFLOAT16:
        exponent = np.frexp(values)[1].astype(np.float64)
        unit = np.exp2(exponent - 8)
        rounded = (np.round(values.astype(np.float64) / unit) * unit).astype("<f4")
        return (rounded.view("<u4") >> 16).astype("<u2").tobytes()
    return bytes(values.astype("<f4").tobytes())


def widen(array: bytes, data_type: int) -> Any:
    """A request's gradients."""
    if data_type == embedding_pb2.DATA_TYPE_FLOAT16:
        return np.frombuffer(array, "<f2").astype("<f4")
    if data_type == embedding_pb2.DATA_TYPE_BFLOAT16:
        return (np.frombuffer(array, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(array, "<f4")


def _csr(request: Any, options: Any) -> tuple[Any, Any, Any]:
    keys = np.frombuffer(request.keys, dtype="<u8")
    bags = request.samples * options.slots
    offsets = np.arange(bags + 1, dtype=np.uint32)
    if request.offsets:
        offsets = np.frombuffer(request.offsets, dtype="<u4")
    if len(offsets) != bags + 1 or offsets[0] != 0 or offsets[-1] != len(keys):
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"offsets: {offsets}, {len(keys)} keys")
    if options.combiner == admin_pb2.COMBINER_NONE and (np.diff(offsets) != 1).any():
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"offsets: {offsets}, not one key a bag")
    weights = np.frombuffer(request.weights, dtype="<f4") if request.weights else None
    if weights is not None and len(weights) != len(keys):
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"weights: {weights}, {len(keys)} keys")
    return keys, offsets, weights


def _join(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The batch that the parts were cut from."""
    counts = np.concatenate([np.diff(offsets.astype(np.int64)) for _, offsets, _, _ in parts])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    weights = None
    if any(part[3] is not None for part in parts):  # those left out are 1
        ones = [np.ones(len(keys), np.float32) for keys, *_ in parts]
        weights = np.concatenate([one if p[3] is None else p[3] for p, one in zip(parts, ones)])
    keys, gradients = (np.concatenate([part[i] for part in parts]) for i in (0, 2))
    return keys, offsets, gradients, weights
