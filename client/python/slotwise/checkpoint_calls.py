"""Checkpoints of a running server, in its data folder (service Admin)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slotwise._messages import read
from slotwise.admin_calls import AdminCalls
from slotwise.core import text
from slotwise.errors import InvalidArgument
from slotwise.optimizers import Json

_VALUE_DTYPES = {
    "float32": "DATA_TYPE_FLOAT32",
    "float16": "DATA_TYPE_FLOAT16",
    "bfloat16": "DATA_TYPE_BFLOAT16",
}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint.

    Attributes:
        id: its name, and that of its folder in the data folder's `checkpoints`.
        delta: whether it has only what has changed since the checkpoint before it.
        round: it is the state after this round.
        rows: rows in its own files.
        bytes: of its own files.
    """

    id: str
    delta: bool
    round: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class ListedCheckpoint(Checkpoint):
    """A checkpoint that lies in the data folder.

    Of one whose manifest cannot be read, only `id` and `why_not` say anything.

    Attributes:
        parent: the checkpoint before it, which a delta needs; "": it is a base.
        folds: of a base that was compacted from a chain, the chain's last; else "".
        created: seconds since 1970.
        ranks: how many wrote it; any number may read it.
        tables: rows in its own files, by the table's name.
        usable: all files that it needs are there, and of the right size; `Client.verify` reads them.
        why_not: why it cannot be used, naming what is missing or wrong.
        pinned: it stays until `Client.release_checkpoint`.
        kept_for_load: it stays until another checkpoint is loaded: it was loaded last, or was the newest
            before that.
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
        chain: ids of what it is restored from, the base first; empty if it is not usable.
        folder: where it lies, as the server sees it.
        manifest: what its manifest.json says: tables' options, steps and learning rates, ranks'
            rows, files with sizes and checksums.
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
        """Writes a checkpoint of all tables while everything goes on; returns once it exists.

        Args:
            delta: write only what has changed since the newest checkpoint, if the server knows that.
            value_dtype: what rows are rounded to in it: "float32" (they are not), "float16" or
                "bfloat16". Optimizers' state is not rounded.
            timeout: seconds to wait; None: a day. After the timeout the checkpoint goes on, and
                `checkpoints` lists it once it exists.

        While another checkpoint is written and verified, it waits for that.

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
        self, id: str, *, tables: Sequence[str] | None = None, timeout: float | None = None
    ) -> Checkpoint:
        """Puts a checkpoint's tables, and its names of steps, in the place of all that the server has.

        What was applied since is in no table any more. This client expects nothing of it from then on;
        others whose steps were acknowledged hear DataLoss once. Nothing is served while the ranks read,
        and both states lie in memory for a moment. The checkpoint, and what was the newest before, stay
        until another one is loaded, whatever `durability.keep` says.

        Args:
            id: the checkpoint's.
            tables: the names of those of its tables that alone are loaded; None: all. Each takes the
                place of the table of its name, or is back if that was dropped. Other tables stay as they
                are, and so do names of steps: a session goes on behind its newest number.
            timeout: seconds to wait; None: a day. After the timeout it goes on.

        Returns:
            The new checkpoint, of all tables, that has what was loaded: a restart brings back that.

        Raises:
            NotFound: there is none of that id, or it has no such table.
            InvalidArgument: `tables` is empty, or names a table twice.
            FailedPrecondition: it cannot be restored; the message names the file.
            ResourceExhausted: there is no memory for it beside what there is.
            Unavailable: no answer came. It may have been loaded, and is never tried again by itself:
                `checkpoints` shows the new checkpoint.
        """
        if isinstance(tables, str) or (tables is not None and not tables):
            raise InvalidArgument(f"tables is {tables!r}, not a list of tables' names, or None")
        for name in (id, *(tables or ())):
            text(name)  # raises InvalidArgument unless it is one
        some = {"some": {"id": id, "tables": list(tables or ())}}
        request: Json = {"id": id} if tables is None else some
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
            NotFound: there is none of that id.
            DataLoss: its manifest is damaged.
            ResourceExhausted: its manifest is longer than a message may be.
        """
        reply = self._ask("DescribeCheckpoint", {"id": id})
        return CheckpointDetails(
            _listed(reply["checkpoint"]),
            tuple(reply.get("chain", [])),
            reply["folder"],
            json.loads(reply["manifest"]),
        )

    def verify(self, id: str, *, timeout: float | None = None) -> Verification:
        """Makes a rank read every file of a checkpoint and of those that it builds on.

        Args:
            timeout: seconds to wait; None: a day. The rank stops when the timeout is over.

        Raises:
            NotFound: there is none of that id.
            DataLoss: it cannot be restored; the message names the file, and what is wrong.
            ResourceExhausted: the rank is verifying another one.
        """
        return read(Verification, self._ask("VerifyCheckpoint", {"id": id}, timeout=timeout))

    def pin_checkpoint(self, id: str) -> None:
        """Keeps a checkpoint, and all that it builds on, until it is released.

        Others go once there are enough newer ones (`durability.keep`). Pinning again changes nothing.

        Raises:
            NotFound: there is none of that id.
            DataLoss: it cannot be restored; the message says why.
            ResourceExhausted: as many are pinned as may be, 64; or the disk is full.
        """
        self._ask("PinCheckpoint", {"id": id})

    def release_checkpoint(self, id: str) -> None:
        """Lets a pinned checkpoint go, once there are enough newer ones. Raises NotFound."""
        self._ask("ReleaseCheckpoint", {"id": id})

    def compact_checkpoint(self, id: str, *, timeout: float | None = None) -> ListedCheckpoint:
        """Makes a rank fold a delta, with all that it builds on, into a new base of the same state.

        What was folded stays until newer checkpoints let it go; the new base counts as one.

        Args:
            timeout: seconds to wait; None: a day. After the timeout the rank stops, and leaves nothing.

        Raises:
            NotFound: there is none of that id.
            FailedPrecondition: it is a base.
            AlreadyExists: it was folded before; the message names the base.
            DataLoss: it cannot be restored; the message says why.
            ResourceExhausted: the rank folds or verifies another one, or the disk is full.
        """
        reply = self._ask("CompactCheckpoint", {"id": id}, timeout=timeout)
        return _listed(reply["checkpoint"])


def _listed(message: Json) -> ListedCheckpoint:
    rows = {table["name"]: int(table.get("rows", 0)) for table in message.get("tables", [])}
    return read(ListedCheckpoint, message, delta="parent" in message, tables=rows)
