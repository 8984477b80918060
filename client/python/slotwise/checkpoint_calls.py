"""Checkpoints of a running server, in its data folder (service Admin)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slotwise._messages import read
from slotwise.admin_calls import AdminCalls
from slotwise.checkpoint_manifest import parse_manifest
from slotwise.core import text
from slotwise.errors import InvalidArgument
from slotwise.optimizers import Json
from slotwise.options import row_type_to_json

_VALUE_DTYPES = {name: f"DATA_TYPE_{name.upper()}" for name in ("float32", "float16", "bfloat16")}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint.

    Attributes:
        id: its name, and its folder's in the data folder's `checkpoints`.
        delta: whether it has only the changes since the checkpoint before.
        round: the round after which the state was taken.
        rows, bytes: of its own files.
    """

    id: str
    delta: bool
    round: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class ListedCheckpoint(Checkpoint):
    """A checkpoint in the data folder; if its manifest is unreadable, only `id` and `why_not` count.

    Attributes:
        parent: the checkpoint before, which a delta needs; "": this one is a base.
        folds: the last checkpoint of the chain that a base was compacted from; else "".
        created: seconds since 1970.
        ranks: how many wrote it; any number may read it.
        tables: rows in its own files, by the table's name.
        usable: whether all files that it needs are there, of the right sizes; `Client.verify` reads them.
        why_not: what is missing or wrong if it cannot be used.
        pinned: it stays until `Client.release_checkpoint`.
        kept_for_load: it stays until another load: it was loaded last, or was the newest before the load.
    """

    parent: str
    folds: str
    created: int
    ranks: int
    tables: dict[str, int]
    usable: bool
    why_not: str
    pinned: bool
    kept_for_load: bool


@dataclass(frozen=True)
class CheckpointDetails:
    """All that is known of a checkpoint.

    Attributes:
        chain: the ids that it is restored from, the base first; empty if it is not usable.
        folder: its folder's path on the server's host.
        manifest: its manifest.json: tables' options, steps and learning rates, ranks' rows, files with sizes
            and checksums.
    """

    checkpoint: ListedCheckpoint
    chain: tuple[str, ...]
    folder: str
    manifest: dict[str, Any]


@dataclass(frozen=True)
class Verification:
    """What `Client.verify` has read: the ids of the chain, the base first; files; bytes."""

    chain: tuple[str, ...]
    files: int
    bytes: int


class CheckpointCalls(AdminCalls):
    """Saves, lists, verifies and loads checkpoints.

    Each method raises FailedPrecondition if the server was started without a data folder
    (`slotwise-server --data`, `slotwise.serve(data=...)`).
    """

    def save(
        self, *, delta: bool = False, value_dtype: str = "float32", timeout: float | None = None
    ) -> Checkpoint:
        """Writes a checkpoint of all tables while calls go on; returns once the checkpoint exists.

        The call first waits for another checkpoint that is being written and verified.

        Args:
            delta: write only the changes since the newest checkpoint, if the server knows them.
            value_dtype: the type that rows are rounded to: "float32" (no rounding), "float16" or "bfloat16".
                Optimizers' state is not rounded.
            timeout: seconds to wait; None: a day. After the timeout the checkpoint goes on, and `checkpoints`
                lists it once it exists.

        Raises:
            ResourceExhausted: there is no memory for it, the disk is full or takes rows too slowly, or too
                many such calls wait.
            Error: it could not be written; the message says why.
        """
        if value_dtype not in _VALUE_DTYPES:
            raise InvalidArgument(f"value_dtype is {value_dtype!r}, not one of {', '.join(_VALUE_DTYPES)}")
        self._settled()
        request = {"delta": bool(delta), "value_type": _VALUE_DTYPES[value_dtype]}
        return read(Checkpoint, self._ask("SaveCheckpoint", request, timeout=timeout))

    def load(
        self, id: str, *, tables: Sequence[str] | None = None, row_dtype: str | None = None,
        rounding: str | None = None, timeout: float | None = None,
    ) -> Checkpoint:
        """Replaces all tables and names of steps that the server has with a checkpoint's.

        Steps applied since the checkpoint are lost. Other clients whose steps were acknowledged get DataLoss
        once; this client does not. The server serves nothing while the ranks read, and both states lie in
        memory for a moment. The checkpoint, and the newest one before the load, stay until another load,
        whatever `durability.keep` says.

        Args:
            tables: the names of the tables to load; None: all. Each table replaces the table of its name, or
                is back if that was dropped. Other tables and the names of steps stay as they are: a session
                goes on behind its newest number.
            row_dtype: what the loaded tables keep rows as from now on: "float32", "float16" or "bfloat16".
                Rows of another type are rounded to nearest, and what would be infinite becomes the largest
                number. None: what the checkpoint's tables kept them as.
            rounding: with a `row_dtype` of 16 bits: how steps round these rows, "stochastic" (None means
                that) or "nearest".
            timeout: seconds to wait; None: a day. After the timeout the load goes on.

        Returns:
            A new checkpoint of all tables, with what was loaded, which a restart brings back.

        Raises:
            NotFound: there is no such checkpoint, or it has no such table.
            InvalidArgument: `tables` is empty, or names a table twice. A table cannot have the `row_dtype`,
                because its initial values would not fit. `rounding` comes without a `row_dtype` of 16 bits.
            FailedPrecondition: the checkpoint cannot be restored; the message names the file.
            ResourceExhausted: there is no memory for both states.
            Unavailable: no answer came. The load is not tried again, and may have happened: then
                `checkpoints` shows the new checkpoint.
        """
        if isinstance(tables, str) or (tables is not None and not tables):
            raise InvalidArgument(f"tables is {tables!r}, not a list of tables' names, or None")
        for name in (id, *(tables or ())):
            text(name)  # raises InvalidArgument unless it is one
        some = {"some": {"id": id, "tables": list(tables or ())}}
        request: Json = {"id": id} if tables is None else some
        request |= row_type_to_json(row_dtype, rounding)
        self._settled()
        with self._pushes.around_another_state():
            reply = self._ask("LoadCheckpoint", request, timeout=timeout)
        return read(Checkpoint, reply, delta=False)

    def checkpoints(self) -> list[ListedCheckpoint]:
        """Returns the checkpoints in the data folder, the newest first, then broken ones."""
        reply = self._ask("ListCheckpoints")
        return [_listed(message) for message in reply.get("checkpoints", [])]

    def describe_checkpoint(self, id: str) -> CheckpointDetails:
        """Returns all that is known of a checkpoint.

        Raises:
            NotFound: there is no such checkpoint.
            DataLoss, ResourceExhausted: its manifest is damaged, or longer than a message may be.
        """
        reply = self._ask("DescribeCheckpoint", {"id": id})
        listed, manifest = _listed(reply["checkpoint"]), parse_manifest(reply["manifest"])
        return CheckpointDetails(listed, tuple(reply.get("chain", [])), reply["folder"], manifest)

    def verify(self, id: str, *, timeout: float | None = None) -> Verification:
        """Makes a rank read every file of a checkpoint and of those that it builds on.

        Args:
            timeout: seconds to wait; None: a day. The rank stops when the timeout is over.

        Raises:
            NotFound: there is no such checkpoint.
            DataLoss: it cannot be restored; the message names the file, and what is wrong.
            ResourceExhausted: the rank is verifying another checkpoint.
        """
        return read(Verification, self._ask("VerifyCheckpoint", {"id": id}, timeout=timeout))

    def pin_checkpoint(self, id: str) -> None:
        """Keeps a checkpoint, and all that it builds on, until it is released; pinning again changes nothing.

        Other checkpoints go once there are enough newer ones (`durability.keep`).

        Raises:
            NotFound: there is no such checkpoint.
            DataLoss: it cannot be restored; the message says why.
            ResourceExhausted: 64 checkpoints, the most, are pinned; or the disk is full.
        """
        self._ask("PinCheckpoint", {"id": id})

    def release_checkpoint(self, id: str) -> None:
        """Lets a pinned checkpoint go, once there are enough newer ones. Raises NotFound."""
        self._ask("ReleaseCheckpoint", {"id": id})

    def compact_checkpoint(self, id: str, *, timeout: float | None = None) -> ListedCheckpoint:
        """Makes a rank fold a delta, with all that it builds on, into a new base of the same state.

        The folded checkpoints stay until there are enough newer ones, of which the new base is one.

        Args:
            timeout: seconds to wait; None: a day. After the timeout the rank stops, and leaves nothing.

        Raises:
            NotFound: there is no such checkpoint.
            FailedPrecondition: it is a base.
            AlreadyExists: it was folded before; the message names the base.
            DataLoss: it cannot be restored; the message says why.
            ResourceExhausted: the rank folds or verifies another checkpoint, or the disk is full.
        """
        reply = self._ask("CompactCheckpoint", {"id": id}, timeout=timeout)
        return _listed(reply["checkpoint"])


def _listed(message: Json) -> ListedCheckpoint:
    rows = {table["name"]: int(table.get("rows", 0)) for table in message.get("tables", [])}
    return read(ListedCheckpoint, message, delta="parent" in message, tables=rows)
