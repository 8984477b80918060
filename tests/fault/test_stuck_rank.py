"""A rank that stops or dies ends the whole server: the others do not wait for it for ever."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
import numpy as np
import pytest
from launched import is_gone, kill
from slotwise_cluster import STOP_TIMEOUT, Cluster, StartCluster, wait_until

LIMIT = 2.0
# The heartbeat would be faster.
CONFIG = f"limits {{ collective_timeout_ms: {int(1000 * LIMIT)} rank_timeout_ms: 600000 }}"
HEARTBEAT = f"limits {{ rank_timeout_ms: {int(1000 * LIMIT)} }}"
OPERATIONS = "AllGather|AllGatherBlocks|AllReduceSum|AllToAll|ReduceScatter|Wake"
REPORT = re.compile(rf"({OPERATIONS}) of \d+ bytes has not ended after (\S+) s: this rank ends")


class Traffic:
    """Lookups and pushes at rank 0, one after another, until one fails. A thread of its own sends them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._table = cluster.create()
        self.answered = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def flows(self) -> None:
        """Returns when more requests have been answered."""
        seen = self.answered
        wait_until(lambda: self.answered > seen + 20, "answers")

    def join(self) -> None:
        """Waits for the request that fails."""
        self._thread.join(STOP_TIMEOUT)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        session = self._cluster.session()
        keys = list(range(100))
        try:
            while True:
                values = self._cluster.lookup(self._table, keys, len(keys))
                step = {"session": session, "number": self.answered + 1, "parts": 1}
                self._cluster.push(self._cluster.push_request(self._table, keys, values, step))
                self.answered += 1
        except grpc.RpcError:
            pass


def signal_ends_all(cluster: Cluster, rank: int, number: signal.Signals) -> None:
    """Sends a rank a signal: every rank ends, of a stopped one no sooner than half of LIMIT later."""
    pids = [cluster.pid(each) for each in range(4)]
    os.kill(pids[rank], number)
    began = time.monotonic()
    try:
        assert cluster.process.wait(timeout=STOP_TIMEOUT) != 0
        assert number != signal.SIGSTOP or time.monotonic() - began > LIMIT / 2
        wait_until(lambda: all(map(is_gone, pids)), "every rank's end")
    finally:
        kill(pids[rank])


def critical(cluster: Cluster, ranks: Sequence[int]) -> list[str]:
    """What ranks said as they ended."""
    return [line["message"] for rank in ranks for line in cluster.log(rank) if line["level"] == "critical"]


@pytest.mark.parametrize(("rank", "number"), [(2, signal.SIGSTOP), (1, signal.SIGKILL)])
def test_a_rank_that_stops_or_dies_in_a_round_ends_all(
    start_cluster: StartCluster, rank: int, number: signal.Signals
) -> None:
    cluster = start_cluster(4, CONFIG)
    traffic = Traffic(cluster)
    traffic.flows()
    signal_ends_all(cluster, rank, number)
    traffic.join()
    if number == signal.SIGKILL:
        return
    # The first to give up ends the others, so not all say why; mpirun wakes the stopped one to end it.
    reports = [float(report[2]) for said in critical(cluster, (0, 1, 3)) if (report := REPORT.match(said))]
    assert reports, cluster.logs()
    assert min(reports) >= LIMIT


@pytest.mark.parametrize("stopped", [0, 2])
def test_a_stopped_rank_ends_all_that_are_idle(start_cluster: StartCluster, stopped: int) -> None:
    cluster = start_cluster(4, HEARTBEAT)
    signal_ends_all(cluster, stopped, signal.SIGSTOP)
    named = re.compile(rf"nothing was heard of rank {stopped} on \S+ for [1-9]\S* s: this rank ends")
    said = critical(cluster, range(4))
    assert any(map(named.fullmatch, said)), cluster.logs()
    # A rank may hear of its neighbour's end first.
    for message in said:
        assert named.fullmatch(message) or re.fullmatch(r"rank \d on \S+ is gone.*: this rank ends", message)


def test_a_rank_that_dies_ends_all_that_are_idle(start_cluster: StartCluster) -> None:
    cluster = start_cluster(4)
    signal_ends_all(cluster, 1, signal.SIGKILL)
    said = critical(cluster, (0, 2))
    assert any(message.startswith("rank 1 on ") for message in said), cluster.logs()


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_ranks_that_wait_for_parts_leave_their_core_alone(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2)
    step = {"session": 1, "number": 1, "part": 0, "parts": 2}
    part = cluster.push_request(cluster.create(), [1], np.ones((1, 4), np.float32), step)
    call = cluster.begin_push(part)
    time.sleep(1.5)  # until the ranks are idle: there is nothing to see of it
    before = [cpu_seconds(cluster.pid(rank)) for rank in range(2)]
    time.sleep(4)
    used = [cpu_seconds(cluster.pid(rank)) - had for rank, had in enumerate(before)]
    assert max(used) < 0.03 * 4, used
    assert not call.done()
    call.cancel()


def test_idle_ranks_are_not_stuck(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2, "limits { collective_timeout_ms: 1000 rank_timeout_ms: 1000 }")
    table = cluster.create()
    time.sleep(2.5)  # what must not happen is the time itself passing, so this is no wait for a condition
    assert cluster.lookup(table, [1, 2], 2).shape == (2, 4)
