"""A rank that stops or dies ends the whole server: the others do not wait for it for ever."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path

import grpc
from conftest import StartCluster
from slotwise_cluster import STOP_TIMEOUT, Cluster, wait_until

LIMIT = 2.0
CONFIG = f"limits {{ collective_timeout_ms: {int(1000 * LIMIT)} }}"
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


def is_gone(pid: int) -> bool:
    """Whether a process has ended. (Nobody may have asked yet how.)"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_stopped_rank_ends_all_within_the_limit(start_cluster: StartCluster) -> None:
    cluster = start_cluster(4, CONFIG)
    pids = [cluster.pid(rank) for rank in range(4)]
    traffic = Traffic(cluster)
    traffic.flows()
    os.kill(pids[2], signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        assert cluster.process.wait(timeout=STOP_TIMEOUT) != 0
        assert time.monotonic() - stopped > LIMIT / 2
        wait_until(lambda: all(map(is_gone, pids)), "every rank's end")
    finally:
        if not is_gone(pids[2]):
            os.kill(pids[2], signal.SIGKILL)
    traffic.join()
    # The first to give up ends the others, so not all say why; mpirun wakes the stopped one to end it.
    reports = [
        float(report[2])
        for rank in (0, 1, 3)
        for line in cluster.log(rank)
        if line["level"] == "critical" and (report := REPORT.match(line["message"]))
    ]
    assert reports, cluster.logs()
    assert min(reports) >= LIMIT


def test_a_killed_rank_ends_all(start_cluster: StartCluster) -> None:
    cluster = start_cluster(4, CONFIG)
    pids = [cluster.pid(rank) for rank in range(4)]
    traffic = Traffic(cluster)
    traffic.flows()
    os.kill(pids[1], signal.SIGKILL)
    assert cluster.process.wait(timeout=STOP_TIMEOUT) != 0
    wait_until(lambda: all(map(is_gone, pids)), "every rank's end")
    traffic.join()


def test_idle_ranks_are_not_stuck(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2, "limits { collective_timeout_ms: 1000 }")
    table = cluster.create()
    time.sleep(2.5)  # what must not happen is the time itself passing, so this is no wait for a condition
    assert cluster.lookup(table, [1, 2], 2).shape == (2, 4)
