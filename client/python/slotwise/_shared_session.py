"""A session that the trainers of a process group share, drawn by one of them."""

from __future__ import annotations

import itertools
import json
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch import distributed

from slotwise.client import Client
from slotwise.errors import FailedPrecondition, InvalidArgument
from slotwise.session import Session, Step

_PATIENCE = 600.0  # seconds that trainers wait for each other

# How many sessions each group has drawn, by its trainers' ranks: all trainers draw as many.
_drawn: defaultdict[tuple[int, ...], itertools.count[int]] = defaultdict(itertools.count)


# The process group of each session, in a tuple, as None is the group of all processes.
_groups: weakref.WeakKeyDictionary[Session, tuple[Any]] = weakref.WeakKeyDictionary()


def group_of(session: Session) -> tuple[Any] | None:
    """Returns the process group of a session, in a tuple; None: `shared_session` did not draw the session."""
    return _groups.get(session)


def shared_session(
    ps: Client, *, group: Any = None, gradients: str = "mean", parts: int | None = None
) -> Session:
    """Returns a session that the trainers of an initialised process group share.

    All trainers of the group call it equally often, and make the modules that get the session in the same
    order. Each `backward()` of a trainer is then one part of one step of all of the modules' tables. A
    trainer that has no gradient of a table sends an empty part, and the table makes the step all the same.
    A `backward()` that goes through none of the modules sends nothing, and the other trainers wait for it:
    let its loss have `0 * module(keys).sum()`.

    Args:
        ps: this trainer's own client.
        group: torch.distributed's; None: that of all processes.
        gradients: "mean", as DistributedDataParallel makes it of the dense weights' gradients, or "sum".
        parts: into how many parts each trainer cuts its share of a table. None: the trainers agree at
            their first step, so that batches may grow to twice its size.

    Raises:
        slotwise.FailedPrecondition: there is no process group, or this process is not in it; or the
            trainer that draws has failed, with its error.
        slotwise.InvalidArgument: `gradients` or `parts` make no sense.
        RuntimeError: torch.distributed's; not all trainers have come within 10 minutes.
    """
    if not distributed.is_available() or not distributed.is_initialized():
        raise FailedPrecondition(
            "shared_session() needs a process group: call torch.distributed.init_process_group() before"
        )
    trainer, trainers = distributed.get_rank(group), distributed.get_world_size(group)
    if trainer < 0:
        raise FailedPrecondition("shared_session(): this process is not in the group")
    board = Board(group)
    if trainer == 0:
        try:
            drawn = ps.new_session()
            board.write("session", ("drawn", drawn.id, drawn.epoch))
        except BaseException as error:
            board.write("session", ("failed", str(error), 0))
            raise
    said, id_, epoch = board.read("session")
    if said == "failed":
        raise FailedPrecondition(f"the trainer that draws the session has failed: {id_}")
    if parts is not None or trainers == 1:
        session = Session(
            id_, trainer=trainer, trainers=trainers, parts=parts, epoch=epoch, gradients=gradients
        )
    else:
        most = ps.topology().max_message_bytes
        session = _AgreedSession(board, most, id_, trainer, trainers, epoch, gradients)
    _groups[session] = (group,)
    return session


class Board:
    """Messages between trainers by their group's store: other threads may be amid the group's collectives."""

    def __init__(self, group: Any) -> None:
        c10d: Any = distributed.distributed_c10d
        ranks = tuple(range(distributed.get_world_size()))
        if group is not None:
            size = distributed.get_world_size(group)
            ranks = tuple(distributed.get_global_rank(group, rank) for rank in range(size))
        self._store = c10d._get_default_store()
        self._name = f"slotwise.shared_session/{ranks}/{next(_drawn[ranks])}/"

    def write(self, name: str, value: Any) -> None:
        self._store.set(self._name + name, json.dumps(value).encode())

    def read(self, name: str) -> Any:
        """Returns what a trainer writes, once it is there. Ctrl-C ends the wait within a second."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self._store.wait([self._name + name], timedelta(seconds=1))
                break
            except RuntimeError:
                if time.monotonic() >= deadline:
                    raise
        return json.loads(self._store.get(self._name + name))

    def count(self, name: str) -> int:
        """Returns how many trainers have called this, this one included."""
        return int(self._store.add(self._name + name, 1))


class _AgreedSession(Session):
    """A session whose trainers agree at their first step on how many parts each share has."""

    def __init__(
        self, board: Board, most: int, id: int, trainer: int, trainers: int, epoch: int, gradients: str
    ) -> None:
        """Agrees on nothing yet; `most` is how many bytes a message may have."""
        super().__init__(id, trainer=trainer, trainers=trainers, epoch=epoch, gradients=gradients)
        self._board = board
        self._most = most
        self._agreed: int | None = None

    def next(self) -> Step:
        """Returns the next step, of as many parts as the trainers have agreed on."""
        if self._agreed is None:
            raise FailedPrecondition(
                "a step of a shared session that has made no backward() yet: its trainers agree on parts by "
                "that, or by shared_session(parts=...)"
            )
        return super().next()

    def next_of(self, parts_wanted: Callable[[int], int]) -> Step:
        """Returns the next step; see `Session`."""
        if self._agreed is None:
            self._board.write(f"parts/{self._trainer}", parts_wanted(self._most // 2))
            each = [self._board.read(f"parts/{trainer}") for trainer in range(self._trainers)]
            self._agreed = self._parts = max(each)
        step = super().next()  # also where this share is refused: trainers draw as many steps
        wanted = parts_wanted(self._most)
        if wanted > self._agreed:
            raise InvalidArgument(
                f"a trainer's share of a table wants {wanted} parts to fit the server's messages, and the "
                f"trainers have agreed on {self._agreed} at their first step: shared_session(parts={wanted})"
            )
        return step
