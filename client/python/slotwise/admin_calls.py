"""The control path: tables and the server's topology (service Admin)."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from slotwise._messages import read
from slotwise._pushes import Pushes
from slotwise.core import CallOptions, Core, Handle, TableShape, text
from slotwise.errors import FailedPrecondition, InvalidArgument, NotFound, Reason
from slotwise.evicted import Evicted, list_evicted
from slotwise.optimizers import Initializer, Json, Optimizer, Uniform
from slotwise.options import (
    UNALTERED,
    Eviction,
    Frequency,
    Probability,
    TableDigest,
    TableInfo,
    TableOptions,
    Topology,
    Unaltered,
    alteration_to_json,
    options_from_json,
    options_to_json,
)
from slotwise.session import Session
from slotwise.stats import RankStats


class AdminCalls:
    """Makes, describes and drops tables. The core remembers the options of tables in use."""

    def __init__(self, core: Core, client: Handle) -> None:
        """Takes a client of the core's."""
        self._core = core
        self._client = client
        self._pushes = Pushes()  # of slotwise.torch, in the background
        self._transport, self._wire_dtype = "best", "float32"  # as `connect` was told
        self._gpu: Any = None  # slotwise._gpu.GpuTransport, once slotwise.torch has made one
        self._process = os.getpid()
        self._evicted_by: dict[str, int] = {}  # by table, the server's instance that `evicted` heard last

    def create_table(
        self,
        name: str,
        *,
        dim: int,
        optimizer: Optimizer | None = None,
        slots: int = 1,
        combiner: str = "sum",
        initializer: Initializer = Uniform(),
        seed: int = 0,
        initial_rows: int = 0,
        max_rows: int = 0,
        max_load: float = 0.0,
        eviction: Eviction | None = None,
        ttl_steps: int = 0,
        ttl_seconds: int = 0,
        admission: Frequency | Probability | None = None,
        row_dtype: str = "float32",
        rounding: str = "stochastic",
    ) -> TableOptions:
        """Makes a table on every rank; nothing changes if the same table exists already.

        The arguments are those of `TableOptions`, which are returned with the server's defaults. `optimizer`
        must be given, for example `slotwise.AdaGrad(lr=0.05)`: no learning rate is right for all models.

        Raises:
            AlreadyExists: a table of that name has other options; names the first that differs.
            InvalidArgument: names the option and its value, and what is allowed.
            ResourceExhausted: there is no memory for the table.
        """
        if optimizer is None:
            raise InvalidArgument(
                "optimizer is missing: give one with its learning rate, for example "
                "slotwise.AdaGrad(lr=0.05)"
            )
        options = TableOptions(
            name, dim, slots, combiner, optimizer, initializer, seed,
            initial_rows, max_rows, max_load, eviction, ttl_steps, ttl_seconds, admission,
            row_dtype, rounding,
        )
        reply = self._ask("CreateTable", {"options": options_to_json(options)})
        return options_from_json(reply.get("options", {}))

    def drop_table(self, name: str, *, missing_ok: bool = False) -> None:
        """Drops a table on every rank. Raises NotFound if there is none, unless `missing_ok`."""
        self._settled()
        try:
            with self._pushes.around_another_state():
                self._ask("DropTable", {"table": name})
        except NotFound:
            if not missing_ok:
                raise

    def list_tables(self) -> list[TableOptions]:
        """Returns all tables' options, sorted by name."""
        reply = self._ask("ListTables")
        return [options_from_json(table) for table in reply.get("tables", [])]

    def describe_table(self, name: str, *, ages: bool = False) -> TableInfo:
        """Returns a table's options, steps, learning rate, shards and rounds. Raises NotFound.

        With `ages`, the server reads the score of each row, if the table keeps scores, and the result has the
        ages and counts of the rows.
        """
        return read(TableInfo, self._ask("DescribeTable", {"table": name, "ages": ages}))

    def set_learning_rate(self, name: str, lr: float) -> None:
        """Sets a table's learning rate on every rank, from its next step on.

        The rate replaces the optimizer's `lr`, and a schedule continues from the step it has reached. The
        table's options do not change: `create_table` with the old options still finds the table.

        Raises:
            InvalidArgument: `lr` is not finite and above 0.
            NotFound: no such table.
        """
        self._settled()
        self._ask("SetLearningRate", {"table": name, "learning_rate": float(lr)})

    def alter_table(
        self,
        name: str,
        *,
        max_rows: int | Unaltered = UNALTERED,
        eviction: Eviction | None | Unaltered = UNALTERED,
        admission: Frequency | Probability | None | Unaltered = UNALTERED,
        ttl_steps: int | Unaltered = UNALTERED,
        ttl_seconds: int | Unaltered = UNALTERED,
    ) -> TableOptions:
        """Gives a table other options on every rank, and returns all of its options.

        What is not given stays as it is. `eviction=None`, `admission=None` and a time to live of 0 take that
        away. Rows stay. If they had no scores, and have some now, each has that of the table's next step.
        `create_table` finds the table by its options now, and by those that it was made with. Again changes
        nothing.

        Raises:
            InvalidArgument: names the option and its value, and what is allowed; or nothing is given.
            FailedPrecondition: the table has more rows than `max_rows`; `evict` or `erase` some first.
            NotFound: no such table.
            ResourceExhausted: there is no memory for scores, or for counts of an admission.
        """
        given = {
            "max_rows": max_rows,
            "eviction": eviction,
            "admission": admission,
            "ttl_steps": ttl_steps,
            "ttl_seconds": ttl_seconds,
        }
        message = alteration_to_json({key: value for key, value in given.items() if value is not UNALTERED})
        self._settled()
        reply = self._ask("AlterTable", {"table": name, **message})
        return options_from_json(reply.get("options", {}))

    def evict(
        self,
        name: str,
        *,
        keep: int | None = None,
        share: float | None = None,
        below_score: int | None = None,
    ) -> int:
        """Removes the rows of a table that have the lowest scores, and returns how many went.

        Args:
            name: the table's name.
            keep: until so many rows are left, over all ranks.
            share: until this share of the table's max_rows is left, 0 to 1.
            below_score: those with a lower score. In a table that evicts by "step", or that only has a time
                to live: rows that no push has touched since that step. With "lfu" and "step_lfu": rows with
                a lower count, halved as it will be at the table's next step.

        Raises:
            InvalidArgument: not exactly one of `keep`, `share` and `below_score` is given.
            FailedPrecondition: the table keeps no scores: it neither evicts nor has a time to live.
            NotFound: no such table.
            ResourceExhausted: there is no memory to list the rows, or no room in the journal; none went.
        """
        given = [value for value in (keep, share, below_score) if value is not None]
        if len(given) != 1:
            raise InvalidArgument(
                f"evict() got {len(given)} of keep, share and below_score: give exactly one"
            )
        if share is not None:
            if not (isinstance(share, (int, float, np.number)) and 0 <= share <= 1):
                raise InvalidArgument(f"share is {share!r}: must be 0 to 1")
            keep = int(share * self.describe_table(name).options.max_rows)
        number = below_score if keep is None else keep
        if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or not 0 <= number < 1 << 64:
            which = "below_score" if keep is None else "keep"
            raise InvalidArgument(f"{which} is {number!r}: must be an integer of 0 to 2**64 - 1")
        return self._evict(name, {"below_score" if keep is None else "keep_rows": int(number)})

    def expire(self, name: str) -> int:
        """Removes the rows of a table that have expired by now, and returns how many went.

        The server does so by itself every 16th of the time to live. Raises NotFound, FailedPrecondition if
        the table has no time to live, and ResourceExhausted as `evict` does.
        """
        return self._evict(name, {"expired": True})

    def evicted(self, name: str, *, after_round: int = 0, instance: int | None = None) -> Evicted:
        """Returns the keys of a table that were evicted or have expired, on all ranks, by round.

            seen = ps.evicted("ads")
            ...
            seen = ps.evicted("ads", after_round=seen.through_round, instance=seen.instance)

        The answer has all such rounds that ended before the call, each with the reason. Each rank keeps the
        latest `limits.max_evicted_mib` of keys, over all tables, until the server ends. If keys may be
        missing, the answer's `gap` is True. Keys that `erase` erased are not listed. The keys come a
        page of at most 8192 at a time, each within the client's timeout. Safe from any thread.

        Args:
            name: the table's name.
            after_round: the last round that the caller has seen: `through_round` of an earlier answer.
            instance: of that answer. A server that has started again uses some numbers of rounds again; with
                the instance, the answer then has a gap. None: that of this client's last answer about the
                table; give it if another client got the answer. 0, or None without an answer: not compared.

        Raises:
            InvalidArgument: `after_round` or `instance` is no integer of 0 to 2**64 - 1.
            PermissionDenied: the caller has no RIGHT_ROWS on the table.
            NotFound: no such table, or it was dropped meanwhile.
        """
        self._settled()
        if instance is None:
            instance = self._evicted_by.get(name, 0) if after_round != 0 else 0
        answer = list_evicted(lambda request: self._ask("ListEvicted", request), name, after_round, instance)
        self._evicted_by[name] = answer.instance
        return answer

    def _evict(self, name: str, which: Json) -> int:
        self._settled()
        return int(self._ask("EvictRows", {"table": name, **which}).get("rows", 0))

    def topology(self) -> Topology:
        """Returns the server's ranks, as they are now."""
        return read(Topology, self._ask("GetTopology"))

    def stats(self) -> list[RankStats]:
        """Returns what each rank has counted since it started, in rank order.

        `RankStats.since` is the difference of two readings. Ranks answer without a round, so also while
        rounds are stuck.
        """
        ranks = range(len(self.topology().ranks))
        calls = [self._begin("GetStats", rank=rank) for rank in ranks]
        try:
            return [read(RankStats, self._reply_to(call)) for call in calls]
        finally:
            for call in calls:
                self._core.end(call)

    def new_session(
        self, *, trainer: int = 0, trainers: int = 1, parts: int | None = None, gradients: str = "sum"
    ) -> Session:
        """Draws a session of the server's epoch. The arguments are those of `Session`."""
        return Session(
            Session.new_id(),
            trainer=trainer,
            trainers=trainers,
            parts=parts,
            epoch=self.topology().epoch,
            gradients=gradients,
        )

    def digest(self, name: str) -> TableDigest:
        """Returns a hash of a table's contents, on however many ranks. Raises NotFound."""
        self._settled()
        return read(TableDigest, self._ask("Digest", {"table": name}))

    def _known_table(self, name: str) -> TableShape | None:
        """Returns a table's shape; None if the core does not know the table."""
        shape = TableShape()
        shape.name = name
        known = self._usable().client_table(self._client, text(name), ctypes.byref(shape))
        return shape if known else None

    def _forget(self, names: Iterable[str]) -> None:
        if os.getpid() != self._process:
            return
        for name in names:
            self._core.client_forget_table(self._client, text(name))

    def _usable(self) -> Core:
        """Returns the core, or raises FailedPrecondition in a process that did not connect."""
        if os.getpid() != self._process:
            raise FailedPrecondition(
                "gRPC does not survive a fork: call slotwise.connect() in a process of its own, "
                'started by "spawn", or connect after the fork',
                reason=Reason.CLIENT_CLOSED,
            )
        return self._core

    def _settled(self) -> Core:
        """Returns the core once `slotwise.torch` has no push in flight, or raises a failed push's error."""
        core = self._usable()
        self._pushes.wait()
        return core

    def _begin(
        self, method: str, request: Json | None = None, *, timeout: float | None = None, rank: int = -1
    ) -> Handle:
        """Starts a call of a method of service Admin, with its request's fields.

        Args:
            timeout: seconds to wait; None: the client's own, or a day to write or read a checkpoint.
            rank: the rank that alone is asked; -1: any.
        """
        core, options = self._usable(), None
        if timeout is not None:
            if not timeout > 0:
                raise InvalidArgument(f"timeout is {timeout}, not above 0")
            options = CallOptions(timeout_ms=max(1, round(min(timeout, 1e9) * 1000)))
        given = None if options is None else ctypes.byref(options)
        call: Handle = core.ask(self._client, text(method), request_text(request or {}), rank, given)
        call.keep = self._client
        return call

    def _reply_to(self, call: Handle) -> Json:
        """Waits for a call's end, and returns its reply, or raises its error."""
        return self._core.json_of(self._core.finish(call, call.keep))

    def _ask(self, method: str, request: Json | None = None, **how: Any) -> Json:
        """Calls a method as `_begin` does, and returns its reply."""
        return self._reply_to(self._begin(method, request, **how))


def request_text(request: Json) -> bytes:
    """Returns a request as protobuf's JSON; InvalidArgument if a value has none, or a name is no text."""
    for name in ("table", "id"):
        if name in request:
            text(request[name])
    try:
        return json.dumps(_plain(request)).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{request}: {error}") from error


def _plain(value: Any) -> Any:
    """Returns NumPy's numbers as Python's, and infinities and NaN as protobuf's JSON has them."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value
