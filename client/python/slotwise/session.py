"""A Session names optimizer steps, so that a push that is sent twice is applied once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from slotwise._messages import OlderNames, named
from slotwise.errors import InvalidArgument


@dataclass(frozen=True)
class Step:
    """One optimizer step of one table, made by a `Session`.

    Attributes:
        session: random 64 bits, the same for all trainers that share the step.
        number: the session's own count.
        trainer, trainers: the trainer whose share of the step this is, 0 .. trainers - 1.
        parts: how many parts every trainer's share of a table is cut into, on which trainers must agree. 0:
            as many as the batch needs, for a lone trainer.
        epoch: the server's when the session was drawn; 0 if that is not known.
        mean: whether gradients are divided by `trainers` before they are sent.
    """

    session: int
    number: int
    trainer: int = 0
    trainers: int = 1
    parts: int = 0
    epoch: int = 0
    mean: bool = False


@dataclass(frozen=True)
class SessionInfo(OlderNames):
    """What a server knows of a session.

    Attributes:
        known: whether the server knows an applied step of the session.
        last_step: the largest number of its applied steps; 0 if none is known. Pushes that were in flight
            together may leave smaller numbers out.
        epoch: the latest epoch of its applied steps; 0 if none is known.
        may_be_forgotten: whether the session is not known and the server has forgotten sessions of its epoch:
            its steps would be refused.
        tables: the largest number by table that still exists; "" for steps of several tables.
        instance: the server's, as in `Topology`; `incarnation` is its older name.
    """

    known: bool
    last_step: int
    epoch: int
    may_be_forgotten: bool
    tables: dict[str, int]
    instance: int = named("incarnation")


class Session:
    """Counts the steps of one trainer, or of one of several that train in step.

    Every client has a session of its own, which suffices for a lone trainer. Data-parallel trainers share
    `id` and `epoch` (one trainer draws them and sends them to all), and each trainer pushes the same number
    of times, in the same order. The server then sums one push of every trainer into one optimizer step::

        session = slotwise.torch.shared_session(ps)  # in a process group of torch.distributed

        drawn = ps.new_session()  # without one: by one trainer, which sends id and epoch to all
        session = slotwise.Session(
            drawn.id, epoch=drawn.epoch, trainer=rank, trainers=world_size, gradients="mean"
        )

    If each trainer's loss is the mean over its own batch, as under DistributedDataParallel, take
    `gradients="mean"`; if each loss is a part of one loss of all trainers, "sum".

    A trainer that was started again and has kept `id` and `epoch` goes on with its session: `Client.resume`.

    The epoch says how old the session is. A server remembers the tens of thousands of sessions that pushed
    last. Once it has forgotten some, it refuses an unknown session unless the epoch shows that the session is
    new, because its steps may have been applied before.

    Thread-safe.

    Attributes:
        id, epoch: shared by all trainers.
    """

    def __init__(
        self,
        id: int | None = None,
        *,
        trainer: int = 0,
        trainers: int = 1,
        parts: int | None = None,
        epoch: int = 0,
        last: int = 0,
        gradients: str = "sum",
    ) -> None:
        """Starts at step number `last` + 1.

        Args:
            id: 64 bits; drawn from `os.urandom` if None.
            trainer: this trainer's number, 0 .. trainers - 1; gradients are summed in this order.
            trainers: how many trainers share the session.
            parts: how many parts a push's batch, or each table's, is cut into, the same for all trainers.
                None: chosen batch by batch for a lone trainer, 1 for several trainers. Raise `parts` if one
                trainer's batch of a table exceeds the server's largest request.
            epoch: `Topology.epoch` when the id was drawn; 0 if that is not known.
            last: the number of the last step that was drawn before.
            gradients: "sum", or "mean", for which each trainer divides its gradients by `trainers`.
        """
        if not 0 <= trainer < trainers:
            raise InvalidArgument(f"trainer is {trainer}, not in 0 .. trainers - 1 = {trainers - 1}")
        if parts is not None and parts < 1:
            raise InvalidArgument(f"parts is {parts}, not at least 1")
        if gradients not in ("sum", "mean"):
            raise InvalidArgument(f'gradients is {gradients!r}, not "sum" or "mean"')
        if id is None and trainers > 1:
            raise InvalidArgument("id: several trainers need one session id that they share")
        self.id = self.new_id() if id is None else id
        for name, value in (("id", self.id), ("epoch", epoch)):
            if not 0 <= value < 1 << 64:
                raise InvalidArgument(f"{name} is {value}, not a 64-bit number")
        self.epoch = epoch
        self._trainer = trainer
        self._trainers = trainers
        self._parts = parts if parts is not None else int(trainers > 1)
        self._mean = gradients == "mean"
        self._lock = threading.Lock()
        self._next = 1
        self.go_on_behind(last)

    @staticmethod
    def new_id() -> int:
        """Returns 64 random bits."""
        return int.from_bytes(os.urandom(8), "little")

    def go_on_behind(self, last: int) -> None:
        """Makes the next step's number `last` + 1, under which no other data was pushed."""
        if not 0 <= last < (1 << 64) - 1:
            raise InvalidArgument(f"last is {last}, not 0 to 2**64 - 2")
        with self._lock:
            self._next = last + 1

    def next(self) -> Step:
        """Returns the next step."""
        with self._lock:
            number = self._next
            self._next += 1
        return Step(self.id, number, self._trainer, self._trainers, self._parts, self.epoch, self._mean)

    def next_of(self, parts_wanted: Callable[[int], int]) -> Step:
        """Is Slotwise's own: returns the next step; `parts_wanted` counts a share's parts of n bytes."""
        return self.next()

    @property
    def divisor(self) -> int:
        """The number that divides this trainer's gradients before they are sent."""
        return self._trainers if self._mean else 1

    @property
    def is_shared(self) -> bool:
        """Whether steps have parts of several trainers."""
        return self._trainers > 1
