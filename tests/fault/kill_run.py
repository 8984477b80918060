"""One run of kill_loop: a data folder that lives through several crashes, and what is checked after each."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Optional

import slotwise
from crashing_server import CrashingServer
from forgetful_files import ForgetfulFiles
from marked_steps import Findings, Referee
from marking_trainer import Trainer, make_tables
from slotwise_cluster import wait_until
from slotwise_wire import CALL_TIMEOUT, Protocol
from state_check import StateCheck

PATIENCE = CALL_TIMEOUT
# Named points: WHEN:CALL as SLOTWISE_CRASH_AT has them, with @TEXT for calls on such paths. A rank dies
# at a call up to that number; a start takes some of them. `after` may also come later, amid what follows.
JOURNAL_POINTS = {  # a record is appended; synced, and its round is acknowledged; a segment goes
    "before:pwritev@journal": 60, "amid:pwritev@journal": 60, "after:pwritev@journal": 60,
    "before:fdatasync@journal": 60, "after:fdatasync@journal": 60,
    "before:fallocate@journal": 2, "after:fallocate@journal": 2,
    "before:unlink@journal": 2, "after:unlink@journal": 2,
}  # fmt: skip
POINTS = {  # a checkpoint's files, its manifest's name, its own name, or its way out; the lineage; folders
    "before:pwritev@checkpoints": 40, "amid:pwritev@checkpoints": 40,
    "before:fdatasync@checkpoints": 40, "after:fdatasync@checkpoints": 40,
    "before:fsync@checkpoints": 12, "after:fsync@checkpoints": 12,
    "before:rename@manifest.json": 2, "after:rename@manifest.json": 2,
    "before:rename@checkpoints/0": 2, "after:rename@checkpoints/0": 2,
    "before:rename@.removed": 1, "after:rename@.removed": 1,
    "before:rename@lineage": 1, "after:rename@lineage": 1,
    "before:fsync": 6, "after:fsync": 6,
    "before:mkdir": 10, "after:mkdir": 10,
}  # fmt: skip


KINDS = ("rank", "all", "all", "term", "point", "point", "point")


@dataclass
class Options:
    """How a run is to go."""

    seed: int
    ranks: Sequence[int] = (1, 2, 3)
    mode: str = "sync"
    interval: int = 1  # durability.interval_s, of that mode
    crashes: int = 4
    kinds: Sequence[str] = ()  # of its crashes, as `KINDS` or as SLOTWISE_CRASH_AT; drawn if empty
    trainers: int = 3
    verbose: bool = False  # says what happens, on standard output
    forget: bool = False  # the disk forgets what was not synced, in crashes that are power failures
    backend: str = "cpu"
    power: float = 0.5  # the share of crashes that are, if it forgets


@dataclass
class Plan:
    """How a life of the server ends."""

    kind: str
    ranks: int
    next_ranks: int
    point: Optional[str] = None
    rank: int = 0  # whom a point or a kill is for
    power: bool = False
    ride: bool = False  # trainers wait for the next life, and go on by themselves
    answers: int = 0  # at least so many come before it ends
    later: float = 0.0  # seconds


@dataclass
class KillRun:
    """One run. `go` raises AssertionError, with what is wrong, if something is."""

    options: Options
    folder: Path
    crashes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self.rng = Random(self.options.seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        most, mode = max(self.options.ranks), self.options.mode
        self.server = CrashingServer(self.folder, most, mode, self._config(), self.options.backend)
        self.referee = Referee(may_lose=None if mode == "sync" else float(self.options.interval))
        self._check = StateCheck(self.server, self.referee, Protocol(self.folder))
        self.trainers: list[Trainer] = []
        self.disk: Optional[ForgetfulFiles] = None
        if self.options.forget:
            self.disk = ForgetfulFiles(self.server.data.parent, self.server.folder / "shadow")

    @property
    def found(self) -> Findings:
        return self.referee.found

    def go(self) -> None:
        try:
            ranks = self.rng.choice(self.options.ranks)
            for kind in self.options.kinds or [self.rng.choice(KINDS) for _ in range(self.options.crashes)]:
                plan = self._draw(kind, ranks)
                self._live(plan)
                self._recover(plan)
                ranks = self.rng.choice(self.options.ranks)
            self._stop_well()
            assert self.found.good, "; ".join(self.found.wrong[:20])
        finally:
            self.server.kill(self.server.pids())
            if not self.server.ended:
                self.server.exit_code()

    def _config(self) -> str:
        """What the server has to do by itself, beside what trainers ask."""
        draw = Random(f"{self.options.seed}, of a server")
        checkpoints = f"checkpoint_every_s: {draw.choice([1, 600])} interval_s: {self.options.interval}"
        kept = f"keep: {draw.randint(1, 3)} max_deltas: {draw.randint(1, 4)} max_copy_on_write_mib: 1"
        return f"durability {{ {checkpoints} {kept} }}"

    def _say(self, what: str) -> None:
        if self.options.verbose:
            print(f"{time.monotonic() - self._began:8.3f} s  seed {self.options.seed}: {what}", flush=True)

    # --- a life, and its end

    def _draw(self, kind: str, ranks: int) -> Plan:
        plan = Plan("point" if ":" in kind else kind, ranks, self.rng.choice(self.options.ranks))
        plan.rank = self.rng.randrange(ranks)
        plan.answers = self.rng.randint(10, 200)
        longest = 0.01 if self.referee.may_lose is None else 1.5 * self.referee.may_lose
        plan.later = self.rng.choice([0.0, self.rng.random() * longest])
        plan.power = self.disk is not None and plan.kind != "term" and self.rng.random() < self.options.power
        plan.ride = self.referee.may_lose is None and self.rng.random() < 0.3
        if plan.ride:
            plan.next_ranks = ranks
        if plan.kind == "point":
            plan.point = kind if ":" in kind else self._draw_point()
            plan.rank = 0 if "rename" in plan.point else plan.rank  # which is the only one to call it
        return plan

    def _draw_point(self) -> str:
        points = POINTS if self.options.mode != "sync" else POINTS | JOURNAL_POINTS
        if self.trainers:  # then the folder has a lineage
            points = {point: most for point, most in points.items() if "@lineage" not in point}
        name, _, path = self.rng.choice(list(points)).partition("@")
        comes_later = name.startswith("after") and self.rng.random() < 0.5
        later = f":{self.rng.randint(1, 3000)}" if comes_later else ""
        most = points[f"{name}@{path}" if path else name]
        return f"{name}:{self.rng.randint(1, most)}{later}" + (f"@{path}" if path else "")

    def _environment(self, point: Optional[str] = None, rank: int = 0) -> Optional[dict[str, str]]:
        environment = {}
        if self.disk is not None:
            environment["SLOTWISE_FORGET"] = str(self.disk.shadow)
        if point is not None:
            at, _, path = point.partition("@")
            environment |= {"SLOTWISE_CRASH_AT": at, "SLOTWISE_CRASH_RANK": str(rank)}
            environment |= {"SLOTWISE_CRASH_PATH": path} if path else {}
        return environment or None

    def _connect(self, timeout: float = PATIENCE) -> slotwise.Client:
        return slotwise.connect(*self.server.addresses, timeout=timeout)

    def _live(self, plan: Plan) -> None:
        """Starts the server, lets trainers work, and ends it as planned."""
        before = self._digests() if not self.server.ended else None
        self._end_idle()
        if not self._start_and_compare(plan, before):
            self._start_again(plan)
        if not self.trainers and not self._begin():
            self._start_again(plan)
            assert self._begin(), self.server.log
        self._say(f"{self.server.ranks} rank(s) serve, and are to die: {plan}")
        self.stop = threading.Event()
        self.clients = self._connect_all(plan)
        self.threads = [
            threading.Thread(target=trainer.run, args=(client, self.stop))
            for trainer, client in zip(self.trainers, self.clients)
        ]
        for thread in self.threads:
            thread.start()
        self._await_answers(plan)
        self._say("is killed")
        self._kill(plan)
        self.stop.set()
        self._say("is dead")
        if not plan.ride:
            self._end_trainers()
        self._fail_power(plan)
        self._say("its disk is as a crash leaves it")

    def _connect_all(self, plan: Plan) -> list[slotwise.Client]:
        try:
            if self._answers():
                return [self._connect() for _ in self.trainers]
        except slotwise.Unavailable:
            assert self.server.ended, self.server.log
        self._start_again(plan)
        return [self._connect() for _ in self.trainers]

    def _answers(self) -> bool:
        """Whether the server lives and answers: a client of a dead one would wait for all of `PATIENCE`."""
        deadline = time.monotonic() + PATIENCE
        while not self.server.ended:
            try:
                self._connect(1.0).close()
                return True
            except slotwise.Error:
                assert time.monotonic() < deadline, self.server.log
        return False

    def _start_again(self, plan: Plan) -> None:
        """The server came to its point before there was work. Starts it again, for another end."""
        self.crashes[f"{_name_of(plan.point or '')}, at the start"] += 1
        self._fail_power(plan)
        assert self.server.start(plan.ranks, self._environment()), self.server.log
        if self.trainers:
            self._check.run()
        plan.kind, plan.point = "all", None

    def _begin(self) -> bool:
        """Makes tables and trainers; returns whether the server has lived through it. A crash before that
        may take the tables back, if it may lose anything."""
        try:
            with self._connect(CALL_TIMEOUT / 12) as client:
                make_tables(client)
                if self.referee.may_lose is not None:
                    client.save()
                epoch = client.topology().epoch
        except slotwise.Error:
            assert self.server.ended, self.server.log
            return False
        self.trainers = [
            Trainer(number, Random(self.rng.getrandbits(64)), self.referee, epoch)
            for number in range(self.options.trainers)
        ]
        return True

    def _await_answers(self, plan: Plan) -> None:
        wanted = sum(trainer.acknowledged for trainer in self.trainers) + plan.answers

        def enough() -> bool:
            troubled = any(trainer.trouble for trainer in self.trainers)
            return self.server.ended or troubled or sum(t.acknowledged for t in self.trainers) >= wanted

        wait_until(enough, "answers")
        time.sleep(plan.later)  # which is what makes the time random

    def _kill(self, plan: Plan) -> None:
        kind = plan.kind
        if plan.point is not None:
            deadline = time.monotonic() + 1.5
            while len(self.server.pids()) == plan.ranks and time.monotonic() < deadline:
                self._hasten()  # or it does not come to its point again: then it is killed
            kind = _name_of(plan.point) if len(self.server.pids()) < plan.ranks else "all"
        pids = self.server.pids()
        if kind == "term":
            self.server.kill(pids[:1], signal.SIGTERM)
            self.server.await_end()
        elif kind == "rank":
            self.server.kill([self.rng.choice(pids)])
            self.server.await_end(self.rng.choice([0.0, 0.05, PATIENCE]))
        elif kind == "all":
            self.server.kill_all()
        else:
            self.server.await_end(self.rng.choice([0.0, 0.05, PATIENCE]))
        power, ride = ", and power" if plan.power else "", ", clients wait" if plan.ride else ""
        self.crashes[kind + power + ride] += 1

    def _hasten(self) -> None:
        """Asks for a checkpoint: points that no push comes to are in one's way."""
        try:
            with self._connect(0.5) as client:
                client.save(delta=self.rng.random() < 0.5, timeout=0.5)
        except slotwise.Error:
            time.sleep(0.001)

    def _fail_power(self, plan: Plan) -> None:
        if plan.power and self.disk is not None:
            self.disk.fail_power(self.rng if self.rng.random() < 0.5 else None)

    def _end_trainers(self) -> None:
        for client in self.clients:
            client.close()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a trainer still waits for an answer"

    # --- recovery, and what is checked after it

    def _recover(self, plan: Plan) -> None:
        if self.rng.random() < 0.25:
            self._crash_while_recovering(plan)
        assert self.server.start(plan.next_ranks, self._environment()), self.server.log
        self._say(f"{self.server.ranks} rank(s) have recovered")
        if plan.ride:
            for thread in self.threads:
                thread.join(PATIENCE)
                assert not thread.is_alive(), f"a trainer did not go on:\n{self.server.log}"
            self._end_trainers()
        self._no_trouble()
        self._check.run()
        self._say("is checked")
        with self._connect() as client:
            for trainer in self.trainers:
                trainer.push_again(client)
        self._no_trouble()
        self._check.run()

    def _crash_while_recovering(self, plan: Plan) -> None:
        point = self._draw_point()
        if self.server.start(plan.next_ranks, self._environment(point, self.rng.randrange(plan.next_ranks))):
            self.server.kill_all()
            point = "all"
        self.crashes[f"{_name_of(point)}, while recovering"] += 1
        self._fail_power(plan)

    def _no_trouble(self) -> None:
        for trainer in self.trainers:
            assert trainer.trouble is None, trainer.trouble

    # --- a server that is started again without a change

    def _digests(self) -> dict[str, slotwise.TableDigest]:
        with self._connect(10.0) as client:
            return {options.name: client.digest(options.name) for options in client.list_tables()}

    def _end_idle(self) -> None:
        """Ends an idle server, in any way: nothing may change by it."""
        if self.server.ended:
            return
        if self.rng.random() < 0.2:
            self.server.kill(self.server.pids()[:1], signal.SIGTERM)
            self.server.await_end()
        else:
            self.server.kill_all()
        if self.disk is not None:
            self.disk.fail_power(None)

    def _start_and_compare(self, plan: Plan, before: Optional[dict[str, slotwise.TableDigest]]) -> bool:
        """Returns whether the server started, and did not come to its point as it did."""
        if not self.server.start(plan.ranks, self._environment(plan.point, plan.rank)):
            assert plan.point is not None, self.server.log
            return False
        try:
            after = self._digests()
            if self.referee.may_lose is not None and self.trainers:
                self._check.run()
        except slotwise.Error:
            assert plan.point is not None, self.server.log
            self.server.await_end()
            return False
        same = before is None or self.referee.may_lose is not None or after == before
        assert same, f"after a restart tables are {after}, not {before}"
        return True

    def _stop_well(self) -> None:
        self.server.kill(self.server.pids()[:1], signal.SIGTERM)
        assert self.server.exit_code() == 0, self.server.log


def _name_of(point: str) -> str:
    """Returns a point without its numbers."""
    at, _, path = point.partition("@")
    return ":".join(at.split(":")[:2]) + (f"@{path}" if path else "")
