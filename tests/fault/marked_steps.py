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
    sent: Optional[float] = None  # time.monotonic() when it was pushed first, since it was lost
    answered: float = 0.0  # time.monotonic() when it was acknowledged first, since it was lost
    applied: Optional[bool] = None  # as was seen after a crash, when no push of it was under way

    @property
    def tables(self) -> list[str]:
        return list(self.calls[0][1])

    def markers(self) -> Iterable[tuple[str, int]]:
        return ((table, share.marker) for _, shares in self.calls for table, share in shares.items())

    def send(self) -> None:
        """It is pushed now."""
        if self.sent is None:
            self.sent = time.monotonic()

    def acknowledge(self) -> None:
        if self.outcome is not Outcome.ACKNOWLEDGED or not self.applied:
            self.answered = time.monotonic()
        self.outcome = Outcome.ACKNOWLEDGED
        self.applied = True

    def lose(self) -> None:
        """A crash took it back, or it was never there."""
        self.applied = False
        self.sent = None

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
    taken_back: int = 0  # acknowledged steps that a crash lost, as it may
    longest_loss: float = 0.0  # seconds from the answer to a crash's first to the push of its last

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)


class Referee:
    """Judges all that trainers did against what a server has.

    With `may_lose`, a crash may take back what was acknowledged in the last so many seconds: all that came
    after some round. What came before `saved` has to be there.
    """

    def __init__(self, may_lose: Optional[float] = None) -> None:
        self.may_lose = may_lose
        self._saved = [0.0]  # changed by trainers' threads
        self.steps: list[Step] = []  # in each trainer's order
        self.facts: list[RowsFact] = []
        self.tables: dict[str, Fact] = {}  # 1.0: it exists
        self.rate = Fact("the learning rate of rates", [1.0])
        self.found = Findings()

    def saved(self, began: float) -> None:
        """A checkpoint was saved that was asked for at that time.monotonic()."""
        self._saved.append(began)

    def judge_steps(self, values: dict[str, dict[int, float]]) -> None:
        """Takes what lookups found of every marker, by table, after a crash."""
        lost: list[Step] = []  # that were acknowledged
        acknowledged = [step for step in self.steps if step.outcome is Outcome.ACKNOWLEDGED]
        last = max((step.sent or 0.0 for step in acknowledged), default=0.0)
        for step in self.steps:
            seen = {values[table][marker] for table, marker in step.markers()}
            if len(seen) > 1:
                self.found.wrong.append(f"{step.name} was applied to a part of its tables or shares: {seen}")
                continue
            (value,) = seen
            if value in step.possible:
                step.applied = value != 0
                if value == 0:
                    step.lose()
            elif value == 0:
                self._lose(step, lost)
            elif step.applied is False or step.outcome is Outcome.REFUSED:
                self.found.wrong.append(f"{step.name} was {step.outcome.value}, and is there: {value}")
            else:
                self.found.doubled += 1
                wrong = f"{step.name} ({step.outcome.value}) has {value}, not {step.possible}"
                self.found.wrong.append(wrong)

        if lost:
            self._judge_loss(lost, last)

    def _lose(self, step: Step, lost: list[Step]) -> None:
        step.lose()
        if self.may_lose is None:
            self.found.lost += 1
            self.found.wrong.append(f"{step.name} was {step.outcome.value}, was applied, and is gone")
        elif step.outcome is Outcome.ACKNOWLEDGED:
            lost.append(step)

    def _judge_loss(self, lost: list[Step], last: float) -> None:
        """A crash took acknowledged steps back: the last ones, and no more than was promised. The last of
        them that was acknowledged was pushed at `last`: the server applied it then or later."""
        self.found.taken_back += len(lost)
        first = min(lost, key=lambda step: step.answered)
        loss = last - first.answered
        self.found.longest_loss = max(self.found.longest_loss, loss)
        if self.may_lose is not None and loss > self.may_lose:
            self.found.wrong.append(f"steps of {loss:.2f} s are gone, from {first.name} on")
        if first.answered < max(self._saved):
            self.found.wrong.append(f"{first.name} was there before a checkpoint was saved, and is gone")
        for step in self.steps:
            if step.applied and step.sent is not None and step.sent > first.answered:
                self.found.wrong.append(f"{first.name} is gone, and {step.name}, which came later, is there")

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
        if value not in (fact.possible if self.may_lose is None else fact.ever):
            self.found.wrong.append(f"{fact.name} is {value}, not one of {fact.possible}")
        fact.possible = [value]
        fact.ever = [*fact.ever, value]

    def expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.found.wrong.append(f"{what} is {found}, not {wanted}")
