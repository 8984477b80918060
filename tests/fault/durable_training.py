"""A training of all kinds of updates on servers with a data folder, and what such a server is at the end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import slotwise
from slotwise_cluster import STOP_TIMEOUT, Cluster, StartCluster, run_server, wait_until

SEED = 20261122
State = dict[str, tuple[str, int, int, float]]


def durability(folder: Path, mode: str = "SYNC", more: str = "") -> str:
    return f'durability {{ folder: "{folder}" mode: DURABILITY_MODE_{mode} {more} }}'


def kill(cluster: Cluster) -> None:
    """kill -9 to every rank."""
    for rank in range(len(cluster.ranks)):
        with contextlib.suppress(ProcessLookupError):  # mpirun ends the others once it sees that one is gone
            os.kill(cluster.pid(rank), signal.SIGKILL)
    cluster.process.wait(timeout=STOP_TIMEOUT)


def connect(cluster: Cluster) -> slotwise.Client:
    return slotwise.connect(cluster.ranks[-1].address, timeout=60.0)


def state(ps: slotwise.Client) -> State:
    """What every table is."""
    tables = {}
    for name in sorted(table.name for table in ps.list_tables()):
        described = ps.describe_table(name)
        tables[name] = (ps.digest(name).digest, described.steps, described.rows, described.learning_rate)
    return tables


def make(ps: slotwise.Client, *names: str, **options: Any) -> None:
    """Makes tables of dim 4."""
    for name in names:
        ps.create_table(name, dim=4, optimizer=slotwise.SGD(lr=1.0), **options)


class Training:
    """Steps of all kinds, the same for a seed."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED)

    def begin(self, ps: slotwise.Client) -> None:
        ps.create_table("ads", dim=8, slots=2, optimizer=slotwise.Adam(lr=0.1))
        ps.create_table("users", dim=16, optimizer=slotwise.RowWiseAdaGrad(lr=0.1))

    def step(self, ps: slotwise.Client) -> None:
        draw = self.random
        ads = draw.integers(0, 3000, (100, 2)).astype(np.uint64)
        users = draw.integers(0, 5000, (60, 1)).astype(np.uint64)
        ps.lookup("ads", ads)
        gradients = draw.normal(size=(100, 16)).astype(np.float32)
        ps.push("ads", ads, None, gradients, wire_dtype="bfloat16" if draw.random() < 0.3 else None)
        of_users = draw.normal(size=(60, 16)).astype(np.float32)
        ps.push_many({"users": (users, None, of_users), "ads": (ads, None, gradients)})
        if draw.random() < 0.2:
            ps.erase("users", draw.integers(0, 5000, 20).astype(np.uint64))
        if draw.random() < 0.2:
            ps.set_learning_rate("users", float(draw.random()))
        if draw.random() < 0.2:
            keys = draw.choice(9000, 30, replace=False).astype(np.uint64)
            ps.import_rows("ads", keys, draw.normal(size=(30, 8)).astype(np.float32))

    def run(self, ps: slotwise.Client, steps: int) -> None:
        for _ in range(steps):
            self.step(ps)

    def run_until(self, ps: slotwise.Client, condition: Callable[[], Any], what: str) -> None:
        """Makes steps until the condition holds."""

        def holds() -> bool:
            self.step(ps)
            return bool(condition())

        wait_until(holds, what)


class Lives:
    """A server on one data folder that lives, ends, and lives again, on other ranks or in another mode."""

    def __init__(self, start_cluster: StartCluster, data: Path) -> None:
        self._start_cluster = start_cluster
        self.data = data

    @contextlib.contextmanager
    def live(
        self,
        ranks: int,
        mode: str = "SYNC",
        more: str = "",
        end: Callable[[Cluster], None] = kill,
        config: str = "",
    ) -> Iterator[slotwise.Client]:
        """Starts it; gives a client of it, and ends the life in the end. `more`: of its durability."""
        self.cluster = self._start_cluster(ranks, durability(self.data, mode, more) + config)
        with connect(self.cluster) as ps:
            yield ps
        end(self.cluster)

    def end_with(self, expected: State, ranks: int, mode: str = "SYNC", more: str = "") -> None:
        """Lives once more, with tables that are as they were, and stops well."""
        with self.live(ranks, mode, more, end=Cluster.stop) as ps:
            assert state(ps) == expected, f"on {ranks} ranks"

    def refuses(self, *words: str) -> None:
        """Asserts that a server does not start on the folder, and says why."""
        ended = run_server("--backend", "cpu", "--listen", "127.0.0.1:0", "--data", str(self.data))
        assert ended.returncode == 1
        assert all(word in ended.stderr for word in words), ended.stderr

    def checkpoints(self) -> list[Path]:
        """Those that exist, the oldest first."""
        there = self.data / "checkpoints"
        return sorted(path for path in there.iterdir() if not path.name.startswith("."))

    def damage(self, id: str, file: str = "table-1/rank-0.rows.npy") -> None:
        """Flips a bit in the middle of a checkpoint's file."""
        damage_a_byte(self.data / "checkpoints" / id / file)


def damage_a_byte(path: Path) -> None:
    """Flips a bit in the middle of a file."""
    bytes_ = bytearray(path.read_bytes())
    bytes_[len(bytes_) // 2] ^= 1
    path.write_bytes(bytes_)
