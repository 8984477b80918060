"""A training of all kinds of updates on servers with a data folder, and what such a server is at the end."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import numpy as np
import slotwise
from slotwise_cluster import STOP_TIMEOUT, Cluster

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


def checkpoints(data: Path) -> list[Path]:
    """Those that exist, the oldest first."""
    return sorted(path for path in (data / "checkpoints").iterdir() if not path.name.startswith("."))


def damage_a_byte(path: Path) -> None:
    """Flips a bit in the middle of a file."""
    bytes_ = bytearray(path.read_bytes())
    bytes_[len(bytes_) // 2] ^= 1
    path.write_bytes(bytes_)
