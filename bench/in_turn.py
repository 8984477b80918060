"""Servers that answer the same lookups and pushes in turn, so that what disturbs one disturbs all."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import slotwise

SLOTS = 26
DIM = 64
SEED = 20261124
TABLE = f'tables {{ name: "t" dim: {DIM} slots: {SLOTS} optimizer {{ learning_rate: 0.1 sgd {{}} }} }}\n'


@dataclass
class Contender:
    """A server of one rank that has the table "t" and the configuration's fields `text`; how to reach it."""

    binary: str
    transport: str
    text: str = ""
    backend: str = "cpu"
    credentials: slotwise.Credentials | None = None


def compare(contenders: Mapping[str, Contender], samples: Sequence[int], rounds: int) -> None:
    """Starts all servers, and measures calls of each number of samples."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        clients = {}
        for number, (name, one) in enumerate(contenders.items()):
            address = stack.enter_context(_server(one, Path(folder, f"{number}.pbtxt")))
            client = slotwise.connect(address, transport=one.transport, credentials=one.credentials)
            clients[name] = stack.enter_context(client)
        for count in samples:
            _measure(clients, count, rounds)


@contextlib.contextmanager
def _server(one: Contender, config: Path) -> Iterator[str]:
    """The address of a contender that runs."""
    config.write_text(f'listen: "127.0.0.1:0" log_level: "error"\n{one.text}\n{TABLE}')
    command = [one.binary, "--config", str(config), "--backend", one.backend, "--attached"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process.stdout.readline().split()[1]
        process.stdin.close()


def _measure(clients: Mapping[str, slotwise.Client], samples: int, rounds: int) -> None:
    """Prints how long each client's lookups and pushes of so many samples take, beside the first client's.

    The servers' rows are compared first. A figure is the median of so many rounds; a ratio is the median, and
    the quartiles, of the rounds' own ratios.
    """
    random = np.random.default_rng(SEED)
    keys = random.integers(0, 100_000, samples * SLOTS, dtype=np.uint64)
    gradients = np.ones((samples, SLOTS * DIM), np.float32)
    offsets = np.arange(samples * SLOTS + 1, dtype=np.uint32)
    expected: np.ndarray | None = None
    for name, ps in clients.items():
        values = ps.lookup("t", keys, offsets)
        expected = values if expected is None else expected
        assert np.array_equal(values, expected), name
    names = list(clients)
    for what in ("lookup", "push"):
        times: dict[str, list[float]] = {name: [] for name in clients}
        many = max(1, 200 // samples)
        for turn in range(rounds):
            # Each is first as often as any other: who comes after whom matters to the processor's caches.
            at = turn % len(names)
            for name in names[at:] + names[:at]:
                ps = clients[name]
                begin = time.perf_counter()
                for _ in range(many):
                    if what == "lookup":
                        ps.lookup("t", keys, offsets, train=False)
                    else:
                        ps.push("t", keys, offsets, gradients)
                times[name].append((time.perf_counter() - begin) / many)
        for name, its in times.items():
            ratios = [mine / plain for mine, plain in zip(its, times[names[0]])]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(
                f"{what}, {samples} samples: {name}: {statistics.median(its) * 1e3:.3f} ms,"
                f" {middle:.3f} of {names[0]} ({low:.3f} to {high:.3f})"
            )
