"""A server that is offered ten times what it can take: what it serves, refuses and holds meanwhile.

`run` starts a server of small limits, measures it unloaded and saturated, offers it ten times as much as it
served then, and returns an `Outcome`, which says what does not hold. The loads come from programs of their
own (offered_load.cc), whose calls are never tried again. On a machine of few processors the load would take
them from the server, and refusals take some, too. So the load runs at a lower priority, the server has one
thread for its tables, and a large lookup is much work for its bytes: rows of 16 KiB, 256 of them a bag.

A round that has begun is not interrupted, so a small lookup waits for a large one that is being served,
however few there are. Its p99 is therefore compared with that beside one caller who has one large lookup
under way at a time; how it compares with the p99 without others is only said. Throughput and times mean
something only on a machine that does nothing else, as for `./dev bench attacks`, and the throughput is
measured before and after the overload: elsewhere, or where the two differ, these figures are said and not
judged.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from abuse_guard import Memory, own_mib
from judged_times import judges_times
from slotwise_cluster import Cluster, server_binary

MESSAGE_MIB, ROUND_MIB, QUEUE_MIB = 4, 8, 32
CONFIG = (
    f"limits {{ max_message_mib: {MESSAGE_MIB} max_round_mib: {ROUND_MIB} max_queue_mib: {QUEUE_MIB} }} "
    "threads: 1"
)
# What docs/config.md#memory lets a rank hold beside its tables: requests and replies; memory that is kept
# for those to come; what is received and not read; the arrays of rounds. gRPC, threads' stacks and malloc
# need some more.
BUDGET_MIB = QUEUE_MIB + (QUEUE_MIB + 2 * ROUND_MIB) + 2 * QUEUE_MIB + 2 * ROUND_MIB + 64

DIM, KEYS, BAG = 4096, 1024, 256
LARGE, SMALL = 32, 10  # bags of BAG keys, and keys
CONNECTIONS = 8
TIMES = 10  # what is offered, beside what can be taken
TIMEOUT_MS = 2000
PAUSE_US = 1000  # between lookups of the small client, so that it is no load itself
NICE = 10  # the load's priority
EXPECTED = {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
STEADY = 1.25  # the best may change so much from before the overload to after it
SLOWER = 5.0  # a small client's p99 may be so many times what it is beside one large lookup at a time


@dataclass
class Load:
    """A load's seconds, as offered_load.cc writes them."""

    seconds: list[dict[str, Any]]

    def codes(self) -> Counter[str]:
        """How many lookups ended with each code."""
        total: Counter[str] = Counter()
        for second in self.seconds:
            total.update(second["codes"])
        return total

    def of(self, name: str) -> list[float]:
        """All hints, or all times, in ms."""
        return [number for second in self.seconds for number in second[name]]

    def rates(self) -> list[int]:
        """How many lookups were answered in each second, but the first, which begins, and the last."""
        return [second["codes"].get("OK", 0) for second in self.seconds[1:-1]]

    def p99(self) -> float:
        """Of the lookups that were answered, in ms."""
        return float(np.percentile(self.of("took"), 99))


@dataclass
class Outcome:
    """What was measured; `failures` says what does not hold."""

    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def expect(self, holds: bool, line: str, judged: bool = True) -> None:
        """Notes a figure, and that it is wrong unless it `holds`, if it is judged."""
        self.lines.append(line if judged else f"not judged: {line}")
        if judged and not holds:
            self.failures.append(line)


class _Program:
    """A load in a process of its own."""

    def __init__(
        self,
        at: str,
        transport: str,
        table: str,
        time: float,
        *,
        large: bool,
        rate: float = 0,
        at_once: int = 1,
    ) -> None:
        program = server_binary().parents[1] / "tests/abuse/offered_load"
        shape = [CONNECTIONS, LARGE, BAG] if large else [1, 1, SMALL]
        pause_us = 0 if large else PAUSE_US
        numbers = [*shape, KEYS, rate, at_once, pause_us, TIMEOUT_MS, round(time)]
        self._process = subprocess.Popen(
            [str(program), at, transport, table, *map(str, numbers)],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.nice(NICE if rate else 0) and None,
        )

    def load(self) -> Load:
        """Waits for its end."""
        out, _ = self._process.communicate()
        assert self._process.returncode == 0, f"offered_load ended with {self._process.returncode}"
        return Load([json.loads(line) for line in out.splitlines()])


def run(start: Callable[[str], Cluster], transport: str, seconds: float, tolerance: float) -> Outcome:
    """Overloads a server for `seconds`; throughput may be `tolerance` below the best."""
    others = os.getloadavg()[0]
    cluster = start(CONFIG)
    table = cluster.create(dim=DIM)
    keys = np.arange(KEYS)
    for first in range(0, KEYS, 128):  # 2 MiB of values a reply
        cluster.lookup(table, keys[first : first + 128], 128)
    address, pid = cluster.ranks[0].address, cluster.pid(0)
    rest = own_mib(pid)
    quiet_seconds = max(4.0, min(10.0, seconds / 4))

    def begin(time: float, *, large: bool, rate: float = 0, at_once: int = 1) -> _Program:
        return _Program(address, transport, table, time, large=large, rate=rate, at_once=at_once)

    outcome = Outcome()
    begin(1, large=False).load()
    unloaded = begin(quiet_seconds, large=False).load().p99()
    one_large = begin(quiet_seconds, large=True)
    beside_one = begin(quiet_seconds, large=False).load().p99()
    one_large.load()

    def saturate() -> float:
        rates = begin(quiet_seconds, large=True, at_once=4 * CONNECTIONS).load().rates()
        return float(np.median(rates))

    best = saturate()
    memory = Memory([pid], pause=0.05)
    small = begin(seconds, large=False)
    overload = begin(seconds, large=True, rate=TIMES * best).load()
    loaded = small.load()
    memory.stop()
    (mib,) = memory.seen
    after = saturate()
    quiet = judges_times() and others < (os.cpu_count() or 1) / 2 and 1 / STEADY < after / best < STEADY
    outcome.lines.append(
        f"the best: {best:.0f} lookups/s before, {after:.0f} after; load of the machine before: {others:.1f}"
    )

    assert cluster.process.poll() is None, f"the server ended:\n{cluster.logs()}"
    codes, hints, rates = overload.codes(), overload.of("hints"), overload.rates()
    offered = sum(codes.values()) / seconds
    outcome.expect(
        offered > 0.9 * TIMES * best,
        f"offered {offered:.0f} lookups/s, {offered / best:.1f} times the best",
        quiet,
    )
    # On a quiet machine the load has the time to send what it has begun to send.
    stuck = set() if quiet else {"STUCK"}
    outcome.expect(set(codes) <= EXPECTED | stuck, f"what became of them: {dict(codes)}")
    outcome.expect(codes["RESOURCE_EXHAUSTED"] > 0, f"refused: {codes['RESOURCE_EXHAUSTED']}")
    without = sum(int(second["without_hint"]) for second in overload.seconds)
    outcome.expect(without == 0, f"refused without a time to try again: {without}")
    if hints:
        low, mid, high = np.percentile(hints, [0, 50, 100])
        outcome.expect(
            low >= 1 and high <= 5000 and low < high,
            f"hints: {low:.0f} to {high:.0f} ms, median {mid:.0f}; drawn from what waits, so not all alike",
        )
    median = float(np.median(rates))
    outcome.expect(
        median >= (1 - tolerance) * best,
        f"served {median:.0f} lookups/s in the median second, {median / best:.2f} of the best, {best:.0f}",
        quiet,
    )
    third = max(1, len(mib) // 3)
    early, late = (float(np.median(part)) - rest for part in (mib[:third], mib[-third:]))
    peak = max(mib) - rest
    outcome.expect(peak <= BUDGET_MIB, f"memory beyond the table: {peak:.0f} MiB of {BUDGET_MIB} that may be")
    outcome.expect(
        late <= 1.25 * early + BUDGET_MIB / 8,
        f"memory, the median: {early:.0f} MiB in the first third, {late:.0f} in the last",
        quiet,
    )
    outcome.expect(set(loaded.codes()) == {"OK"}, f"the small client: {dict(loaded.codes())}")
    outcome.expect(
        loaded.p99() <= SLOWER * beside_one,
        f"the small client's p99: {loaded.p99():.2f} ms, {loaded.p99() / beside_one:.1f} times that beside "
        f"one large lookup at a time, {beside_one:.2f} ms, and {loaded.p99() / unloaded:.1f} times that "
        f"without others, {unloaded:.2f} ms; its median: {np.median(loaded.of('took')):.2f} ms",
        quiet,
    )
    return outcome
