"""What a server must have after a crash, told by marks.

Every step has a marker row of its own in each of its tables: SGD of rate 1 moves it from 0 to 1 when the
step is applied, so a lookup says how often it was. The same step moves some of the rows that all steps
share, by whole numbers: their sums must fit to the markers. What is no step (imports, erases, tables,
learning rates) is kept as the values that are possible: one, if the last change was acknowledged, and two
after a change whose answer did not come.

Thread-safety: none; a trainer's own are changed by its thread, and judged when no trainer runs.
"""

from __future__ import annotations

import enum
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Optional

import numpy as np
from numpy.typing import NDArray

import slotwise

HOT_KEYS = 12  # 1 to HOT_KEYS: the rows that all trainers share
DIM = 2


class Outcome(enum.Enum):
    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"  # no answer came
    REFUSED = "refused"  # with a promise that nothing has changed


@dataclass
class Share:
    """A step's batch for one table: its marker, and whole numbers that hot rows move by."""

    marker: int
    hot: list[tuple[int, int]]  # key, amount
    weight: int = 1  # of the hot keys

    def batch(self) -> tuple[NDArray[np.uint64], None, NDArray[np.float32], NDArray[np.float32]]:
        """`push`'s arguments."""
        keys = np.array([[self.marker]] + [[key] for key, _ in self.hot], np.uint64)
        amounts = np.array([1] + [amount for _, amount in self.hot], np.float32)
        weights = np.array([[1]] + [[self.weight]] * len(self.hot), np.float32)
        return keys, None, np.repeat(-amounts[:, None], DIM, 1), weights


@dataclass
class Step:
    """A step that was pushed once or more. Each of its calls has shares of the same tables."""

    name: str
    calls: list[tuple[slotwise.Step, dict[str, Share]]]  # one a trainer of its session
    wire_dtype: str
    factor: int = 1  # the marker's value once the step is applied: the learning rate
    outcome: Outcome = Outcome.UNKNOWN
    answered: float = 0.0  # time.monotonic() when it was acknowledged
    applied: Optional[bool] = None  # as was seen after a crash, when no push of it was under way

    @property
    def tables(self) -> list[str]:
        return list(self.calls[0][1])

    def markers(self) -> Iterable[tuple[str, int]]:
        return ((table, share.marker) for _, shares in self.calls for table, share in shares.items())

    def acknowledge(self) -> None:
        self.outcome = Outcome.ACKNOWLEDGED
        self.answered = time.monotonic()
        self.applied = True

    @property
    def possible(self) -> set[int]:
        """The values that its markers may have."""
        if self.applied is None and self.outcome is Outcome.UNKNOWN:
            return {0, self.factor}
        return {self.factor} if self.applied else {0}


@dataclass
class Fact:
    """Something that is no step: what it may be now, and all that it ever was."""

    name: str
    possible: list[Optional[float]]
    ever: list[Optional[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ever = [*self.ever, *self.possible]

    def set(self, value: Optional[float], outcome: Outcome) -> None:
        """A change to `value` ended so."""
        if outcome is Outcome.ACKNOWLEDGED:
            self.possible = [value]
        elif outcome is Outcome.UNKNOWN:
            self.possible = [*self.possible, value]
        self.ever = [*self.ever, *self.possible]

    @property
    def certain(self) -> bool:
        return len(set(self.possible)) == 1


@dataclass
class RowsFact(Fact):
    """Rows that one trainer imports and erases: their value, or None where there are none."""

    table: str = ""
    keys: list[int] = field(default_factory=list)


@dataclass
class Findings:
    """What was counted, and what does not fit, in sentences."""

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)
    longest_loss: float = 0.0  # seconds before a crash

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)


class Referee:
    """Judges all that trainers did against what a server has.

    With `may_lose`, acknowledged steps may be gone: each trainer's newest.
    """

    def __init__(self, may_lose: bool = False) -> None:
        self.may_lose = may_lose
        self.steps: list[Step] = []  # in each trainer's order
        self.facts: list[RowsFact] = []
        self.tables: dict[str, Fact] = {}  # 1.0: it exists
        self.rate = Fact("the learning rate of rates", [1.0])
        self.found = Findings()

    def judge_steps(self, values: dict[str, dict[int, float]], crashed_at: float) -> None:
        """Takes what lookups found of every marker, by table, after a crash."""
        for step in self.steps:
            seen = {values[table][marker] for table, marker in step.markers()}
            if len(seen) > 1:
                self.found.wrong.append(f"{step.name} was applied to a part of its tables or shares: {seen}")
                continue
            (value,) = seen
            if value in step.possible:
                step.applied = value != 0
            elif value == 0:
                self._lose(step, crashed_at)
            elif step.applied is False or step.outcome is Outcome.REFUSED:
                self.found.wrong.append(f"{step.name} was {step.outcome.value}, and is there: {value}")
            else:
                self.found.doubled += 1
                wrong = f"{step.name} ({step.outcome.value}) has {value}, not {step.possible}"
                self.found.wrong.append(wrong)

    def _lose(self, step: Step, crashed_at: float) -> None:
        step.applied = False
        if self.may_lose:
            if step.outcome is Outcome.ACKNOWLEDGED:
                self.found.longest_loss = max(self.found.longest_loss, crashed_at - step.answered)
            return
        self.found.lost += 1
        self.found.wrong.append(f"{step.name} was {step.outcome.value}, was applied, and is gone")

    def hot_sums(self) -> dict[tuple[str, int], int]:
        """Returns what the shared rows must hold, by table and key, after judge_steps."""
        sums: dict[tuple[str, int], int] = defaultdict(int)
        for step in self.steps:
            for _, shares in step.calls if step.applied else ():
                for table, share in shares.items():
                    for key, amount in share.hot:
                        sums[table, key] += amount * share.weight * step.factor
        return sums

    def step_counts(self) -> dict[str, int]:
        """Returns the counts of steps that tables must have, after judge_steps."""
        counts: dict[str, int] = defaultdict(int)
        for step in self.steps:
            for table in step.tables if step.applied else ():
                counts[table] += 1
        return counts

    def judge(self, fact: Fact, value: Optional[float]) -> None:
        """Takes what was found of a fact; that holds from now on."""
        if value not in (fact.ever if self.may_lose else fact.possible):
            self.found.wrong.append(f"{fact.name} is {value}, not one of {fact.possible}")
        fact.possible = [value]
        fact.ever = [*fact.ever, value]

    def expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.found.wrong.append(f"{what} is {found}, not {wanted}")
