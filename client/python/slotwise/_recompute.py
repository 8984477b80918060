"""Forwards that torch makes again: `torch.utils.checkpoint` forgets activations, and computes them anew.

A lookup that is made again gets the rows of the first time, of which the loss was computed: other trainers
may have pushed since.
"""

from __future__ import annotations

import enum
import sys
import threading
import weakref
from typing import Any

import torch.utils.checkpoint
from torch import Tensor

from slotwise._tensors import Lookups, same_lookups
from slotwise.errors import FailedPrecondition

_FILE = torch.utils.checkpoint.__file__


class Phase(enum.Enum):
    """What `torch.utils.checkpoint` has to do with a forward."""

    NONE = enum.auto()
    FIRST = enum.auto()  # it will be made again
    AGAIN = enum.auto()


def phase() -> Phase:
    """Returns what torch's checkpointing has to do with the forward that calls this."""
    found = Phase.NONE
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == _FILE:
            found = Phase.FIRST
            if frame.f_code.co_name in ("unpack", "unpack_hook"):
                return Phase.AGAIN
        frame = frame.f_back
    return found


class Kept:
    """The rows of a forward that will be made again."""

    def __init__(self, lookups: Lookups, rows: tuple[Tensor, ...]) -> None:
        self.lookups = lookups
        self.rows = tuple(each.detach().clone() for each in rows)
        self.times = 0  # that it was made again


class KeptRows:
    """The rows that forwards of a module have kept; each lives as long as its graph."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[weakref.ref[Kept]] = []

    def keep(self, lookups: Lookups, rows: tuple[Tensor, ...]) -> Kept:
        """Keeps copies of rows."""
        kept = Kept(lookups, rows)
        with self._lock:
            self._kept = [each for each in self._kept if each() is not None]
            self._kept.append(weakref.ref(kept))
        return kept

    def rows_of(self, lookups: Lookups) -> tuple[Tensor, ...]:
        """Returns the rows of the newest forward with these lookups that was made again least often.

        FailedPrecondition: there was no such forward.
        """
        with self._lock:
            newest_first = [each() for each in reversed(self._kept)]
        same = [each for each in newest_first if each is not None and same_lookups(each.lookups, lookups)]
        if not same:
            raise FailedPrecondition(
                f"torch.utils.checkpoint looks up other keys of {', '.join(lookups)} than at first: make "
                f"keys outside of what it computes again, or keep preserve_rng_state=True"
            )
        kept = min(same, key=lambda each: each.times)  # a pass goes backwards
        kept.times += 1
        return tuple(each.clone() for each in kept.rows)
