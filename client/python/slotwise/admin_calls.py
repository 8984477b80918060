"""The control path: tables and the server's topology (service Admin)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slotwise._pushes import Pushes
from slotwise.core import Core, Handle, text
from slotwise.errors import Error, FailedPrecondition, InvalidArgument, NotFound
from slotwise.optimizers import Initializer, Json, Optimizer, Uniform
from slotwise.options import (
    RankInfo,
    TableDigest,
    TableInfo,
    TableOptions,
    Topology,
    info_from_json,
    options_from_json,
    options_to_json,
)
from slotwise.session import Session
from slotwise.stats import RankStats, rank_stats_from_json


class AdminCalls:
    """Makes, describes and drops tables, and remembers the options of tables in use."""

    def __init__(self, core: Core, client: Handle) -> None:
        """Takes a client of the core's."""
        self._core = core
        self._client = client
        self._pushes = Pushes()  # of slotwise.torch, in the background
        self._door, self._wire_dtype = "best", "float32"  # as `connect` was told
        self._gpu: Any = None  # slotwise._gpu.GpuDoor, once slotwise.torch has made one
        self._process = os.getpid()
        self._options: dict[str, TableOptions] = {}  # of the tables in use

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
    ) -> TableOptions:
        """Makes a table on every rank; nothing changes if the same table exists already.

        The arguments are those of `TableOptions`. Returns them with the server's defaults in place.
        `optimizer` must be given, because no learning rate is right for all models: for example
        `slotwise.AdaGrad(lr=0.05)`.

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
        core = self._usable()
        reply = self._ask(core.create_table(self._client, _text_of(options), None))
        return self._remember(options_from_json(reply["options"]))

    def drop_table(self, name: str, *, missing_ok: bool = False) -> None:
        """Drops a table on every rank. Raises NotFound if there is none, unless `missing_ok`."""
        self._options.pop(name, None)
        core = self._settled()
        try:
            with self._pushes.around_another_state():
                core.finish(core.drop_table(self._client, text(name), None))
        except NotFound:
            if not missing_ok:
                raise

    def list_tables(self) -> list[TableOptions]:
        """Returns all tables' options, sorted by name."""
        reply = self._ask(self._usable().list_tables(self._client, None))
        return [options_from_json(table) for table in reply.get("tables", [])]

    def describe_table(self, name: str) -> TableInfo:
        """Returns a table's options, steps, learning rate, shards and rounds. Raises NotFound."""
        reply = self._ask(self._usable().describe_table(self._client, text(name), None))
        info = info_from_json(reply)
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
        core = self._settled()
        core.finish(core.set_learning_rate(self._client, text(name), float(lr), None))

    def topology(self) -> Topology:
        """Returns the server's ranks, as they are now."""
        reply = self._ask(self._usable().topology(self._client, None))
        ranks = (
            RankInfo(rank["address"], rank["device"], rank.get("local", ""))
            for rank in reply.get("ranks", [])
        )
        return Topology(
            reply["version"],
            tuple(ranks),
            int(reply.get("max_message_bytes", 0)),
            int(reply.get("max_round_bytes", 0)),
            incarnation=int(reply.get("incarnation", 0)),
            epoch=int(reply.get("epoch", 0)),
        )

    def stats(self) -> list[RankStats]:
        """Returns what each rank has counted since it started, in rank order.

        What happened in an interval is the difference of two readings: `RankStats.since`. Ranks
        answer without a round, so also while rounds are stuck.
        """
        reply = self._ask(self._usable().stats(self._client, None))
        return [rank_stats_from_json(rank) for rank in reply["ranks"]]

    def new_session(
        self,
        *,
        trainer: int = 0,
        trainers: int = 1,
        parts: int | None = None,
        gradients: str = "sum",
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
        """Returns a hash of a table's contents, wherever they lie, or raises NotFound."""
        reply = self._ask(self._settled().digest(self._client, text(name), None))
        return TableDigest(reply["digest"], int(reply.get("rows", 0)), int(reply.get("steps", 0)))

    @contextmanager
    def _tables(self, *names: str) -> Iterator[list[TableOptions]]:
        """Yields tables' options, asking for each once; forgets them if the `with` body fails.

        The body may have failed because a table was made again, with other options.
        """
        try:
            yield [self._options.get(name) or self.describe_table(name).options for name in names]
        except Error:
            self._forget(names)
            raise

    def _remember(self, options: TableOptions) -> TableOptions:
        self._options[options.name] = options
        return options

    def _forget(self, names: Any) -> None:
        for name in names:
            self._options.pop(name, None)

    def _usable(self) -> Core:
        """Returns the core, or raises FailedPrecondition in a process that did not connect."""
        if os.getpid() != self._process:
            raise FailedPrecondition(
                "gRPC does not survive a fork: call slotwise.connect() in a process of its own, "
                "started by \"spawn\", or connect after the fork"
            )
        return self._core

    def _settled(self) -> Core:
        """Returns the core as `_usable`, when `slotwise.torch` has no push in flight.

        Raises:
            Error: a push in the background has failed.
        """
        core = self._usable()
        self._pushes.wait()
        return core

    def _ask(self, call: Handle) -> Json:
        """Returns the JSON that a call ends with."""
        return self._core.json_of(self._core.finish(call))


def _text_of(options: TableOptions) -> bytes:
    """Returns the options as protobuf's JSON."""
    try:
        return json.dumps(_plain(options_to_json(options))).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{options}: {error}") from error


def _plain(value: Any) -> Any:
    """Returns numbers of NumPy's as Python's, and infinities and NaN as protobuf's JSON has them."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value
