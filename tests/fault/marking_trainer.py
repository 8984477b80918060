"""A trainer whose steps leave marks (marked_steps.py), and who does all else that a server can lose."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Optional

import numpy as np
import slotwise
from marked_steps import DIM, HOT_KEYS, Fact, Outcome, Referee, RowsFact, Share, Step
from slotwise_wire import CALL_TIMEOUT

TABLES = ("ads", "users")  # of all trainers; the first trainer's "rates" has learning rates that change
ROWS_A_FACT = 5
_NO_ANSWER = (slotwise.Unavailable, slotwise.DeadlineExceeded, slotwise.Cancelled)
_REFUSED = (slotwise.ResourceExhausted, slotwise.InvalidArgument, slotwise.NotFound)


def make_tables(client: slotwise.Client) -> None:
    """Makes the tables that trainers need, if they are not there."""
    for name in (*TABLES, "rates"):
        zeros = slotwise.Constant(0.0)
        client.create_table(name, dim=DIM, optimizer=slotwise.SGD(lr=1.0), initializer=zeros)


class Trainer:
    """Works in a thread of its own, on one client after the other, with the same sessions for ever.

    Its first trouble is in `trouble`: an answer that no crash explains.
    """

    def __init__(self, number: int, rng: Random, referee: Referee, epoch: int) -> None:
        self.number = number
        self.acknowledged = 0
        self.trouble: Optional[str] = None
        self._rng = rng
        self._referee = referee
        self._sessions = [slotwise.Session(rng.getrandbits(64), epoch=epoch)]
        pair = rng.getrandbits(64)
        self._pair = [slotwise.Session(pair, trainer=t, trainers=2, epoch=epoch) for t in range(2)]
        self._marks = 0
        self._steps: list[Step] = []
        self._rows: list[RowsFact] = []
        self._looked_up: list[RowsFact] = []  # since the last acknowledged step
        self._works = True

    def run(self, client: slotwise.Client, stop: threading.Event) -> None:
        """Works until told to stop, or until an answer does not come."""
        self._stop, self._works = stop, True
        self._looked_up = []
        works = [self._burst] * 6 + [self._one_push] * 4 + [self._shared_push, self._push_twice]
        works += [self._import, self._erase, self._look_up, self._table, self._save]
        if self.number == 0:
            works += [self._set_rate, self._push_at_rate, self._push_at_rate]
        while self._works and not stop.is_set():
            self._rng.choice(works)(client)

    def push_again(self, client: slotwise.Client) -> None:
        """Pushes some steps again, under their names: about half of those without an answer, and the
        last that were acknowledged."""
        self._stop, self._works = threading.Event(), True
        self._looked_up = []
        unknown = [step for step in self._steps[-40:] if step.outcome is Outcome.UNKNOWN]
        unknown = [step for step in unknown if self._rng.random() < 0.5]
        known = [step for step in self._steps[-40:] if step.outcome is Outcome.ACKNOWLEDGED]
        for step in [*unknown, *known[-3:]]:
            if not step.applied and step.tables == ["rates"]:
                step.factor = int(self._referee.rate.possible[0] or 0)
            self._push(client, [step])

    # --- steps

    def _marker(self) -> int:
        self._marks += 1
        return (self.number + 1) << 32 | self._marks

    def _share(self) -> Share:
        count = self._rng.randint(0, 6)
        hot = [(self._rng.randint(1, HOT_KEYS), self._rng.randint(1, 5)) for _ in range(count)]
        return Share(self._marker(), hot, self._rng.choice([1, 1, 2]))

    def _new_step(self, tables: list[str], sessions: list[slotwise.Session]) -> Step:
        calls = [(session.next(), {table: self._share() for table in tables}) for session in sessions]
        name = f"step {calls[0][0].number} of trainer {self.number}, of {', '.join(tables)}"
        step = Step(name, calls, self._rng.choice(["float32", "float32", "float16", "bfloat16"]))
        self._steps.append(step)
        self._referee.steps.append(step)
        return step

    def _some_tables(self) -> list[str]:
        return self._rng.choice([["ads"], ["users"], ["ads", "users"], ["users", "ads"]])

    def _one_push(self, client: slotwise.Client) -> None:
        self._push(client, [self._new_step(self._some_tables(), self._sessions)])

    def _shared_push(self, client: slotwise.Client) -> None:
        self._push(client, [self._new_step([self._rng.choice(TABLES)], self._pair)])

    def _burst(self, client: slotwise.Client) -> None:
        count = self._rng.randint(2, 6)
        self._push(client, [self._new_step([self._rng.choice(TABLES)], self._sessions) for _ in range(count)])

    def _push_twice(self, client: slotwise.Client) -> None:
        """As a client does that has lost a connection: neither answer may come before the step is on disk."""
        step = self._new_step([self._rng.choice(TABLES)], self._sessions)
        self._push(client, [step] * 4)

    def _push(self, client: slotwise.Client, steps: list[Step]) -> None:
        """Pushes steps, all at once where they are of one table."""
        waiting = []
        for step in steps:
            step.send()
            for named, shares in step.calls:
                if len(shares) > 1:
                    batches = {table: share.batch() for table, share in shares.items()}
                    self._end(step, lambda: client.push_many(batches, step=named, wire_dtype=step.wire_dtype))
                else:
                    (table,) = shares
                    keys, offsets, gradients, weights = shares[table].batch()
                    future = client.push_async(
                        table,
                        keys,
                        offsets,
                        gradients,
                        weights=weights if shares[table].weight > 1 else None,
                        step=named,
                        wire_dtype=step.wire_dtype,
                    )
                    waiting.append((step, future))
        for step, future in waiting:
            self._end(step, future.result)

    def _end(self, step: Step, call: Callable[[], object]) -> None:
        outcome = self._outcome_of(call, step.name)
        if outcome is Outcome.ACKNOWLEDGED:
            if step.outcome is not Outcome.ACKNOWLEDGED:
                self.acknowledged += 1
                self._referee.found.acknowledged += 1
            step.acknowledge()
            # An answer that came after a crash says nothing of rows that were looked up before it.
            for fact in self._looked_up if not self._stop.is_set() else ():
                fact.set(0.0, outcome)
            self._looked_up = []
        elif step.outcome is not Outcome.ACKNOWLEDGED:
            step.outcome = outcome

    def _outcome_of(self, call: Callable[[], object], what: str) -> Outcome:
        try:
            call()
            return Outcome.ACKNOWLEDGED
        except slotwise.Error as error:
            return self._outcome_of_error(error, what)

    def _outcome_of_error(self, error: slotwise.Error, what: str) -> Outcome:
        self._works = False
        if isinstance(error, _NO_ANSWER) or (self._stop.is_set() and "closed" in error.message):
            return Outcome.UNKNOWN
        self.trouble = self.trouble or f"{what}: {type(error).__name__}: {error}"
        return Outcome.REFUSED if isinstance(error, _REFUSED) else Outcome.UNKNOWN

    # --- what is no step

    def _fact(self) -> RowsFact:
        """Returns rows of which is known what they are; new ones, or ones that were there before."""
        known = [fact for fact in self._rows if fact.certain]
        if known and self._rng.random() < 0.7:
            return self._rng.choice(known)
        first = 1 << 60 | self.number << 40 | len(self._rows) << 8
        keys = list(range(first, first + ROWS_A_FACT))
        table = self._rng.choice(TABLES)
        fact = RowsFact(f"what rows {first} and on of {table} hold", [None], table=table, keys=keys)
        self._rows.append(fact)
        self._referee.facts.append(fact)
        return fact

    def _import(self, client: slotwise.Client) -> None:
        fact, value = self._fact(), float(self._rng.randint(1, 1000))
        rows = np.full((ROWS_A_FACT, DIM), value, np.float32)
        keys = np.array(fact.keys, np.uint64)
        fact.set(value, self._outcome_of(lambda: client.import_rows(fact.table, keys, rows), fact.name))

    def _erase(self, client: slotwise.Client) -> None:
        fact = self._fact()
        keys = np.array(fact.keys, np.uint64)
        fact.set(None, self._outcome_of(lambda: client.erase(fact.table, keys), fact.name))

    def _look_up(self, client: slotwise.Client) -> None:
        """New rows of a TRAIN lookup are there for good once a later step is acknowledged."""
        fact = self._fact()
        if fact.possible[0] is not None:
            return
        keys = np.array(fact.keys, np.uint64).reshape(-1, 1)
        if self._outcome_of(lambda: client.lookup(fact.table, keys), fact.name) is Outcome.ACKNOWLEDGED:
            self._looked_up.append(fact)
        fact.set(0.0, Outcome.UNKNOWN)

    def _table(self, client: slotwise.Client) -> None:
        name = f"extra_{self.number}_{self._rng.randint(0, 1)}"
        fact = self._referee.tables.setdefault(name, Fact(f"table {name}", [None]))
        if not fact.certain:
            return
        if fact.possible[0] is None:
            adam = slotwise.Adam(lr=0.5)
            made = self._outcome_of(lambda: client.create_table(name, dim=3, optimizer=adam), fact.name)
            fact.set(1.0, made)
        else:
            dropped = self._outcome_of(lambda: client.drop_table(name, missing_ok=True), fact.name)
            fact.set(None, dropped)

    def _save(self, client: slotwise.Client) -> None:
        """What was acknowledged before is in the checkpoint."""
        began = time.monotonic()
        try:
            client.save(delta=self._rng.random() < 0.7, timeout=CALL_TIMEOUT)
            self._referee.saved(began)
        except slotwise.FailedPrecondition:  # another one is under way
            pass
        except slotwise.Error as error:
            self._outcome_of_error(error, "a checkpoint")

    def _set_rate(self, client: slotwise.Client) -> None:
        fact, value = self._referee.rate, float(self._rng.choice([1, 2, 4]))
        fact.set(value, self._outcome_of(lambda: client.set_learning_rate("rates", value), fact.name))

    def _push_at_rate(self, client: slotwise.Client) -> None:
        step = self._new_step(["rates"], self._sessions)
        step.factor = int(self._referee.rate.possible[0] or 0)
        self._push(client, [step])
