"""A model's file, for `slotwise.torch.save` and `load`: dense weights and the server's checkpoint as one.

The file is torch's own, with tensors, and a text of all other values (_plain_values.py): the state of the
model, of its optimizers and of the loader, and a record of the server's checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from slotwise._plain_values import decode, encode
from slotwise.checkpoint_calls import Checkpoint, CheckpointDetails
from slotwise.client import Client
from slotwise.errors import DataLoss, Error, FailedPrecondition, InvalidArgument, NotFound
from slotwise.rows import sync
from slotwise.session import Session, SessionInfo

_LOG = logging.getLogger("slotwise")

_FORMAT = "slotwise.torch 1"

# A damaged file makes zipfile, torch or `decode` raise one of these.
_UNREADABLE = (
    zipfile.BadZipFile,
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
)


@dataclass(frozen=True)
class RemoteEmbedding:
    """The part of a model that is on a server.

    Attributes:
        tables: the tables' names, sorted.
        sessions: the sessions that name the steps of its pushes, by id.
        uses_own: whether some module's steps are of the client's own session.
    """

    ps: Client
    tables: tuple[str, ...]
    sessions: dict[int, Session]
    uses_own: bool


def remote_of(modules: Iterable[tuple[Client, Iterable[str], Session | None]]) -> RemoteEmbedding:
    """Returns the part of modules on one server; InvalidArgument if there are none, or several servers."""
    found = list(modules)
    if not found:
        raise InvalidArgument(
            "the model has no module of slotwise.torch, and none that was adopted: torch.save has all of it"
        )
    ps = found[0][0]
    if any(other is not ps for other, _, _ in found):
        raise InvalidArgument(
            "the model's modules have several clients: give all of them the same, whose server's "
            "checkpoint goes with the file"
        )
    tables = sorted({table for _, names, _ in found for table in names})
    sessions = [ps.session if session is None else session for _, _, session in found]
    return RemoteEmbedding(
        ps,
        tuple(tables),
        {session.id: session for session in sessions},
        any(session is None for _, _, session in found),
    )


def save(
    path: str | os.PathLike[str],
    remote: RemoteEmbedding,
    content: dict[str, Any],
    *,
    delta: bool,
    timeout: float | None,
) -> Checkpoint:
    """Writes a checkpoint and then the file that names it; `slotwise.torch.save` says the rest."""
    encode(content, "what is saved")  # refuses values that cannot be saved before there is a checkpoint
    target = Path(os.path.abspath(path))
    if target.is_dir():
        raise InvalidArgument(f"{target} is a folder")
    ps = remote.ps
    replaced = _checkpoint_named_by(target)
    before = _describe(ps, remote.sessions)
    checkpoint = ps.save(delta=delta, timeout=timeout)
    for id, after in _describe(ps, remote.sessions).items():
        if after.last_step != before[id].last_step:
            raise FailedPrecondition(
                f"step {after.last_step} of session {id} was applied while checkpoint {checkpoint.id} "
                f"was written: nobody may push while the model is saved"
            )
    ps.pin_checkpoint(checkpoint.id)
    try:
        details = ps.describe_checkpoint(checkpoint.id)
        record = _record(details, remote, before)
        _publish(target, {"slotwise": record, **content})
    except BaseException:
        # The file may name the checkpoint already, if the folder's sync failed or was interrupted.
        if _checkpoint_named_by(target) != checkpoint.id:
            _release(ps, checkpoint.id)
        raise
    if replaced not in (None, checkpoint.id):
        _release(ps, replaced)
    return checkpoint


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a whole file of `save`'s; FileNotFoundError, or DataLoss if it is damaged or none of `save`'s."""
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise DataLoss(f"{path} is damaged: {damaged} is not what was written")
            file.seek(0)
            saved = torch.load(file, map_location="cpu", weights_only=True)
            if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
                raise DataLoss(f"{path} is no file of slotwise.torch.save")
            content: dict[str, Any] = decode(saved["values"], saved["tensors"])
        except _UNREADABLE as error:
            if isinstance(error, Error):
                raise
            raise DataLoss(f"{path} is damaged, or no file of slotwise.torch.save: {error}") from error
    return content


def bring_back(
    path: str | os.PathLike[str],
    remote: RemoteEmbedding,
    record: dict[str, Any],
    *,
    go_back: bool,
    all_tables: bool,
    timeout: float | None,
) -> None:
    """Makes sure that the server has the state of the file's checkpoint, and resumes its sessions.

    The arguments are `slotwise.torch.load`'s. FailedPrecondition: the server has another state; the message
    says which, and what to do.
    """
    ps, id = remote.ps, record["checkpoint"]
    missing = sorted(set(remote.tables) - set(record["tables"]))
    if missing:
        raise InvalidArgument(f"{path} knows nothing of table {missing[0]}, which the model has")
    try:
        ps.describe_checkpoint(id)
        differs = []
    except NotFound:
        differs = [f"the server has no checkpoint {id}"]
    differs += _differences_of_tables(ps, remote, record, with_generations=True)
    differs += _differences_of_sessions(ps, record)
    if differs:
        if not go_back:
            raise FailedPrecondition(
                f"the server's state is not that of {path}: {'; '.join(differs)}. {_way_back(record)}"
            )
        ps.load(id, tables=None if all_tables else remote.tables, timeout=timeout)
        # A server that has loaded tables begins new generations.
        differs = _differences_of_tables(ps, remote, record, with_generations=False)
        if all_tables:
            differs += _differences_of_sessions(ps, record)
        if differs:
            raise FailedPrecondition(
                f"the server has loaded checkpoint {id}, and has not the state of {path}: "
                f"{'; '.join(differs)}"
            )
    _resume(remote, record)


def _resume(remote: RemoteEmbedding, record: dict[str, Any]) -> None:
    """Goes on with the sessions that the file knows; other sessions are younger, and stay as they are.

    A server that has loaded the model's tables alone knows later steps of a session than the file.
    """
    ps = remote.ps
    for saved in record["sessions"]:
        session = Session(saved["id"], epoch=saved["epoch"])
        if saved["own"] and remote.uses_own and saved["last_step"] > 0:
            if not ps.describe_session(session).may_be_forgotten:
                ps.resume(session)
        elif saved["id"] in remote.sessions and not saved["own"]:
            newest = ps.describe_session(session).last_step
            remote.sessions[saved["id"]].go_on_behind(max(newest, saved["last_step"]))


def _differences_of_tables(
    ps: Client, remote: RemoteEmbedding, record: dict[str, Any], *, with_generations: bool
) -> list[str]:
    """Returns the differences between the server's tables and the record's, in words."""
    found = []
    for table in remote.tables:
        saved = record["tables"][table]
        try:
            info = ps.describe_table(table)
        except NotFound:
            found.append(f"the server has no table {table}")
            continue
        if with_generations and info.generation != saved["lineage"]:
            found.append(
                f"table {table} is of generation {info.generation:016x}, and in the checkpoint of "
                f"{saved['lineage']:016x}"
            )
        if info.steps != saved["steps"]:
            found.append(f"table {table} has {info.steps} steps, and in the checkpoint {saved['steps']}")
    return found


def _differences_of_sessions(ps: Client, record: dict[str, Any]) -> list[str]:
    """Returns the differences between the sessions' last steps on the server and in the record, in words."""
    found = []
    for saved in record["sessions"]:
        last = ps.describe_session(Session(saved["id"], epoch=saved["epoch"])).last_step
        if last != saved["last_step"]:
            found.append(
                f"session {saved['id']} was applied up to step {last}, and in the "
                f"checkpoint up to {saved['last_step']}"
            )
    return found


def _way_back(record: dict[str, Any]) -> str:
    folder = record["folder"]
    return (
        f"The file belongs to checkpoint {record['checkpoint']}. load(..., go_back=True) takes the model's "
        f"tables on the server back to it, whoever trains them. To leave this server as it is, stop it, "
        f"run `python3 -m slotwise.checkpoint_files copy {folder} NEW`, and start the server with "
        f"`--data NEW`"
    )


def _describe(ps: Client, sessions: dict[int, Session]) -> dict[int, SessionInfo]:
    return {id: ps.describe_session(session) for id, session in sessions.items()}


def _record(
    details: CheckpointDetails, remote: RemoteEmbedding, sessions: dict[int, SessionInfo]
) -> dict[str, Any]:
    tables = {
        entry["options"]["name"]: {"lineage": int(entry["lineage"], 16), "steps": int(entry["steps"])}
        for entry in details.manifest["tables"]
    }
    missing = [table for table in remote.tables if table not in tables]
    if missing:
        raise FailedPrecondition(f"table {missing[0]} was dropped while the model was saved")
    own = remote.ps.session.id if remote.uses_own else None
    return {
        "checkpoint": details.checkpoint.id,
        "folder": details.folder,
        "data_lineage": details.manifest["data_lineage"],
        "tables": {table: tables[table] for table in remote.tables},
        "sessions": [
            {"id": id, "epoch": remote.sessions[id].epoch, "last_step": info.last_step, "own": id == own}
            for id, info in sessions.items()
        ],
    }


def _publish(target: Path, content: dict[str, Any]) -> None:
    """Writes the file beside its place, reads it back, and puts it there in one step."""
    values, tensors = encode(content, "what is saved")
    handle, fresh = tempfile.mkstemp(prefix=f".{target.name}.new-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save({"format": _FORMAT, "values": values, "tensors": tensors}, file)
            file.flush()
            os.fsync(file.fileno())
        read(fresh)
        os.replace(fresh, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # it may be in its place already
            os.unlink(fresh)
        raise
    sync(target.parent)


def _checkpoint_named_by(path: Path) -> str | None:
    """Returns the id of the checkpoint that a file names; None if there is no such file."""
    try:
        return str(read(path)["slotwise"]["checkpoint"])
    except FileNotFoundError:
        return None
    except DataLoss as error:
        _LOG.warning("%s will be replaced; its checkpoint, if it had one, stays pinned", error)
        return None


def _release(ps: Client, id: str | None) -> None:
    """Releases a checkpoint that no file names any more; a failure is logged."""
    if id is None:
        return
    try:
        ps.release_checkpoint(id)
    except NotFound:
        pass  # it was another server's
    except Error as error:
        _LOG.warning("checkpoint %s stays pinned: %s", id, error)


def optimizers_of(given: Any) -> Sequence[torch.optim.Optimizer]:
    """Returns no, one or several optimizers as a list."""
    if given is None:
        return []
    return [given] if isinstance(given, torch.optim.Optimizer) else list(given)
