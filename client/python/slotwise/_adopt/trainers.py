"""The trainers of a process group that adopt a model together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import distributed

from slotwise._shared_session import Board, shared_session
from slotwise.client import Client
from slotwise.errors import FailedPrecondition
from slotwise.session import Session

_Result = TypeVar("_Result")


class Trainers:
    """The trainers of this process's group, or this one alone. All call the same methods in the same order.

    Attributes:
        count, number: how many trainers there are, and this trainer's number, 0 .. count - 1.
    """

    def __init__(self) -> None:
        """Asks torch.distributed."""
        there = distributed.is_available() and distributed.is_initialized()
        self.count: int = distributed.get_world_size() if there else 1
        self.number: int = distributed.get_rank() if there else 0
        self._board: Any = Board(None) if self.count > 1 else None
        self._agreed = 0  # how often

    def agree(self, what: Callable[[], _Result]) -> _Result:
        """Does this trainer's share, and returns its result once all trainers have done theirs.

        FailedPrecondition: another trainer's share has failed; the message says why. This trainer's own error
        is raised as it is.
        """
        if self.count == 1:
            return what()
        self._agreed += 1
        place = f"agreed/{self._agreed}/"
        try:
            result = what()
        except BaseException as error:
            self._board.write(f"{place}{self.number}", f"{type(error).__name__}: {error}")
            raise
        self._board.write(f"{place}{self.number}", "")
        # All are read before one is raised: the trainer that raises may undo what others are still doing.
        failures = [self._board.read(f"{place}{trainer}") for trainer in range(self.count)]
        for trainer, failure in enumerate(failures):
            if failure:
                raise FailedPrecondition(f"adopt() has failed in trainer {trainer}: {failure}")
        return result

    def told_by_first(self, value: list[str]) -> list[str]:
        """Returns the value that the first trainer has given."""
        if self.count == 1:
            return value
        if self.number == 0:
            self._board.write("told", value)
        told: list[str] = self._board.read("told")
        return told

    def session(self, ps: Client) -> Session | None:
        """Returns a session that all trainers share, whose gradients are means; None: there is only one."""
        return shared_session(ps) if self.count > 1 else None

    def is_last(self, what: str) -> bool:
        """Returns whether all other trainers have asked this before; does not wait."""
        return self.count == 1 or bool(self._board.count(what) == self.count)
