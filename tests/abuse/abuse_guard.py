"""What must hold while somebody attacks a server: it lives, others are served, its memory has a bound.

`Guard` surrounds an attack. Every lookup of others must be answered; how long they wait is judged by
`./dev bench attacks` alone. Its limits are small, so that an attack that takes memory beyond the budget does
so with megabytes, and a machine that is too small for an unbounded server runs the test all the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest
from judged_times import LONG_FORMS, expect_time, judges_times
from raw_http2 import RawConnection
from slotwise_cluster import Cluster, RankClient, wait_until

ROUND_MIB, QUEUE_MIB = 8, 32
SMALL = f"max_message_mib: 4 max_round_mib: {ROUND_MIB} max_queue_mib: {QUEUE_MIB}"  # of limits
# What a rank may hold beside its tables (docs/config.md): the queue; as much again and two rounds for
# requests and replies to come; the arrays of two rounds. gRPC, threads' stacks and malloc need some more.
BUDGET_MIB = QUEUE_MIB + (QUEUE_MIB + 2 * ROUND_MIB) + 2 * ROUND_MIB + 128
# The goal of others' 99th percentile: so many times its quiet value. A machine of two busy cores may take so
# many seconds more, for the attack takes processors from the bystander and the server alike.
SLOWER, BUSY_MACHINE = 5.0, 0.3
ENOUGH = 200 if judges_times() else 20  # lookups: a 99th percentile takes many
ATTACKED = [1, 2] if LONG_FORMS else [2]  # ranks
STEP = 0.004  # seconds, about as often as the bystander asks


def needs(what: str) -> pytest.MarkDecorator:
    """Marks an attack that a server does not withstand before it has something."""
    return pytest.mark.skipif(os.environ.get("SLOTWISE_ABUSE") != "all", reason=f"needs {what}")


class Guard:
    """`with Guard(cluster):` around an attack. Raises AssertionError at its end if something did not hold."""

    def __init__(
        self,
        cluster: Cluster,
        busy: float = BUSY_MACHINE,
        mib: float = BUDGET_MIB,
        mib_a_second: float = 0,
    ) -> None:
        """`busy`: the seconds that others' 99th percentile may be slower beyond SLOWER times.

        `mib`: what a rank may take, and `mib_a_second` more for each second of the attack.
        """
        self._cluster, self._mib, self._mib_a_second = cluster, mib, mib_a_second
        self._busy = busy
        self._table = cluster.create(dim=8)
        keys = np.arange(1000, dtype=np.uint64)
        cluster.lookup(self._table, keys, len(keys))

    def __enter__(self) -> Guard:
        self._digest = self._cluster.digest(self._table)
        self._bystander = _Bystander(self._cluster.ranks[-1].address, self._table)
        self._bystander.p99("as it began")  # not counted: it connects
        self._quiet = self._bystander.p99("before the attack")
        self._memory = Memory([self._cluster.pid(rank) for rank in range(len(self._cluster.ranks))])
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._check()
        finally:
            self._memory.stop()
            self._bystander.stop()

    def _check(self) -> None:
        assert self._cluster.process.poll() is None, f"the server ended:\n{self._cluster.logs()}"
        during = self._bystander.p99("during the attack")
        quiet = f"others' p99 during the attack, {1000 * self._quiet:.1f} ms before it"
        expect_time(quiet, during, SLOWER * self._quiet + self._busy)
        print(f"memory beyond what was there: {[round(mib) for mib in self._memory.peaks()]} MiB")
        most = self._mib + self._mib_a_second * (time.monotonic() - self._began)
        for rank, peak in enumerate(self._memory.peaks()):
            assert peak <= most, f"rank {rank} took {peak:.0f} MiB, more than {most:.0f}"
        assert self._cluster.digest(self._table) == self._digest


@contextmanager
def raw_connections(
    ranks: Sequence[RankClient], count: int, **options: Any
) -> Iterator[Iterator[RawConnection]]:
    """Connections by turns to these ranks: each is made when it is taken, and all are closed in the end."""
    with ExitStack() as stack:
        made = (RawConnection(ranks[number % len(ranks)].address, **options) for number in range(count))
        yield (stack.enter_context(closing(connection)) for connection in made)


def export_request(table: str) -> bytes:
    """An ExportRequest of a whole table."""
    return b"\x0a" + bytes([len(table)]) + table.encode()


class _Bystander:
    """Another client, in a process of its own."""

    def __init__(self, address: str, table: str) -> None:
        program = Path(__file__).with_name("bystander.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), address, table],
            env=os.environ | {"PYTHONPATH": str(program.parents[1] / "e2e")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def p99(self, when: str) -> float:
        """The 99th percentile in seconds since it was asked last, as many clients would see it.

        The bystander waits for each answer, so a server that freezes for a second delays one lookup of its
        own. Others would have asked meanwhile: each long lookup counts as one that was asked every STEP.
        """
        seconds = self._take(when)
        before = len(seconds)

        def has_enough() -> bool:  # that ended from now on, when whatever the attack began goes on
            seconds.extend(self._take(when))
            return len(seconds) - before >= ENOUGH

        wait_until(has_enough, f"{ENOUGH} lookups of others {when}")
        print(f"the longest of {len(seconds)} lookups of others {when}: {1000 * max(seconds):.1f} ms")
        return float(np.percentile(np.concatenate([np.arange(each, 0, -STEP) for each in seconds]), 99))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _take(self, when: str) -> list[float]:
        """The lookups' seconds since it was asked last; none of them failed."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("take\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline())
        assert not said["failures"], f"{when}: {said['failures'][:3]}"
        return list(said["seconds"])


class Memory:
    """Looks, again and again, how much memory of their own processes have."""

    def __init__(self, pids: list[int], pause: float = 0.01) -> None:
        self.seen = [[own_mib(pid)] for pid in pids]  # MiB, of each process
        self._pids, self._pause = pids, pause
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def peaks(self) -> list[float]:
        """The most MiB that each process had beyond what it had at first."""
        return [max(mib) - mib[0] for mib in self.seen]

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(self._pause):
            for pid, mib in zip(self._pids, self.seen):
                mib.append(own_mib(pid))


def status(pid: int, field: str) -> int:
    """A number of /proc/PID/status: a count, or KiB; 0 of a process that is ending."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def own_mib(pid: int) -> float:
    """What a process has in memory that is no file's; 0 if it has ended."""
    try:
        return status(pid, "RssAnon") / 1024
    except OSError:
        return 0.0
