"""A server under Prometheus that everybody uses for a long time: whether its memory stays what it was.

`run` starts a server of two ranks that keeps a journal and makes checkpoints, and Prometheus with the files
of deploy/observed. Meanwhile trainers look up and push by every transport, over the same keys; a client comes
and goes, makes and drops a table, imports, exports and erases rows, saves checkpoints, and is refused;
another reads the page. What there is to keep is as much at the end as at the beginning: so is the memory that
Prometheus has seen, or something is kept that is not needed.
"""

from __future__ import annotations

import statistics
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from observed_prometheus import Prometheus, prometheus_of
from slotwise_cluster import Cluster
from slotwise_metrics import METRICS, address_of

import slotwise

MIB = float(1 << 20)
KEYS = 20_000
DIM = 16
SAMPLES = 512
RANKS = 2
TRANSPORTS = ("shm", "tcp", "grpc")
# From the second fifth of the time, when all has been done once, to the last, medians may grow by this share
# and so many MiB. What the program uses stays what it was; malloc keeps more of what came back for a while.
GROWTH = 1.03
GROWTH_MIB = {"used": 1.0, "resident": 8.0}
QUERIES = {"used": 'slotwise_heap_bytes{state="used"}', "resident": "process_resident_memory_bytes"}
DURABLE = 'durability {{ folder: "{folder}" mode: DURABILITY_MODE_SYNC checkpoint_every_s: 10 }}\n'
CONFIG = METRICS + DURABLE


@dataclass
class Soak:
    """What was seen, and what does not hold."""

    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def judge(rank: str, kind: str, memory: list[float]) -> tuple[str, str | None]:
    """A line about a rank's memory of a kind, in MiB at even distances of time; and what is wrong with it."""
    fifth = len(memory) // 5
    assert fifth > 0, f"rank {rank}: only {len(memory)} samples"
    early, late = statistics.median(memory[fifth : 2 * fifth]), statistics.median(memory[-fifth:])
    ends = [i * len(memory) // 10 for i in range(11)]
    tenths = [statistics.median(memory[begin:end]) for begin, end in zip(ends, ends[1:])]
    line = f"rank {rank}: {kind}, MiB by tenths of the time: {' '.join(f'{tenth:.1f}' for tenth in tenths)}"
    if late > GROWTH * early + GROWTH_MIB[kind]:
        return line, f"rank {rank}: {kind} memory grew from {early:.1f} to {late:.1f} MiB"
    return line, None


class Users:
    """Threads that use a server until they are told to stop, and what went wrong."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: list[str] = []
        self.calls = 0
        self._lock = threading.Lock()

    def start(self, use: Callable[[int], None]) -> None:
        """Begins to call `use` again and again, with 0, 1, 2, ..."""

        def go_on() -> None:
            turn = 0
            try:
                while not self._stop.is_set():
                    use(turn)
                    turn += 1
                    with self._lock:
                        self.calls += 1
            except Exception as error:  # whatever it is, the soak has failed
                self.errors.append(f"{use.__name__}: {type(error).__name__}: {error}")

        self._threads.append(threading.Thread(target=go_on))
        self._threads[-1].start()

    def stop(self) -> None:
        """Waits for all."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def use_it(cluster: Cluster, users: Users) -> None:
    """Starts all who use the server."""
    address = cluster.ranks[0].address

    def trains_by(transport: str, seed: int) -> Callable[[int], None]:
        ps = slotwise.connect(address, transport=transport, timeout=120)
        random = np.random.default_rng(seed)

        def trains(_: int) -> None:
            keys = random.integers(0, KEYS, SAMPLES * 8, dtype=np.uint64)
            offsets = np.arange(0, len(keys) + 1, 4)
            ps.lookup("ads", keys, offsets)
            ps.push("ads", keys, offsets, np.ones((SAMPLES, 2 * DIM), np.float32))

        return trains

    def comes_and_goes(turn: int) -> None:
        transport = TRANSPORTS[turn % len(TRANSPORTS)]
        with slotwise.connect(cluster.ranks[turn % RANKS].address, transport=transport, timeout=120) as ps:
            ps.create_table("passing", dim=4, optimizer=slotwise.SGD(lr=0.1))
            keys = np.arange(1000, dtype=np.uint64)
            ps.import_rows("passing", keys, np.ones((1000, 4), np.float32))
            assert sum(len(rows.keys) for rows in ps.export_rows("passing")) == 1000
            assert ps.erase("passing", keys[:500]) == 500
            try:
                ps.push("passing", keys, None, np.full((1000, 4), np.nan, np.float32))
                raise AssertionError("a gradient that is not finite was taken")
            except slotwise.InvalidArgument:
                pass
            ps.drop_table("passing")
            if turn % 10 == 9:
                ps.save()

    def reads_the_page(turn: int) -> None:
        base = address_of(cluster, turn % RANKS).removesuffix("metrics")
        for path in ("", "metrics", "rank.json"):
            with urllib.request.urlopen(base + path, timeout=60) as answer:
                assert answer.read()
        time.sleep(0.2)  # a page asks once a second

    with slotwise.connect(address) as ps:
        ps.create_table("ads", dim=DIM, slots=2, combiner="sum", optimizer=slotwise.AdaGrad(lr=0.05))
        ps.lookup("ads", np.arange(KEYS * 2, dtype=np.uint64) % KEYS, np.arange(KEYS * 2 + 1))
    for seed, transport in enumerate(TRANSPORTS):
        users.start(trains_by(transport, seed))
    users.start(comes_and_goes)
    users.start(reads_the_page)


def sample(found: Prometheus, memory: dict[tuple[str, str], list[float]]) -> None:
    """Adds what each rank's memory of each kind is now, as Prometheus has it."""
    for kind, query in QUERIES.items():
        for each in found.get("query", query=query)["result"]:
            of = memory.setdefault((each["metric"]["instance"], kind), [])
            of.append(float(each["value"][1]) / MIB)


def run(start: Callable[..., Cluster], folder: Path, seconds: float) -> Soak:
    """Uses a server for so long. `start` starts clusters, as conftest.py's does."""
    cluster = start(RANKS, CONFIG.format(folder=folder / "data"))
    soak = Soak()
    memory: dict[tuple[str, str], list[float]] = {}
    with prometheus_of(cluster, folder / "prometheus") as found:
        users = Users(cluster)
        begin = time.monotonic()
        try:
            use_it(cluster, users)
            while time.monotonic() - begin < seconds and not users.errors:
                time.sleep(min(1.0, seconds / 50))
                sample(found, memory)
        finally:
            users.stop()
        steps = max(found.query('slotwise_table_steps_total{table="ads"}'), default=0.0)
        alerts = found.query('count(ALERTS{alertstate="firing"})')
    soak.failures += users.errors
    if alerts:
        soak.failures.append("alerts fire")
    if len(memory) != RANKS * len(QUERIES):
        soak.failures.append(f"Prometheus saw only {sorted(memory)}")
    for (rank, kind), samples in sorted(memory.items()):
        line, wrong = judge(rank, kind, samples)
        soak.lines.append(line)
        soak.failures += [wrong] if wrong else []
    count = len(TRANSPORTS) + 2
    soak.lines.append(f"{seconds:.0f} s, {users.calls} turns of {count} users, {steps:.0f} steps")
    return soak
