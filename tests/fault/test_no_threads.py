"""A system that gives a server no more threads: what needs one is refused in words, and all else goes on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import slotwise
from crashing_server import CrashingServer, crash_library
from slotwise_cluster import StartCluster, run_server

KEYS = np.arange(1000, dtype=np.uint64)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_is_not_loaded_and_the_server_lives(tmp_path: Path, ranks: int) -> None:
    none = tmp_path / "none"
    server = CrashingServer(tmp_path / "server", ranks)
    denied = {"SLOTWISE_NO_THREADS_WHILE": str(none), "SLOTWISE_CRASH_RANK": "0"}
    assert server.start(ranks, denied), server.log
    with slotwise.connect(*server.addresses) as ps:
        ps.create_table("ads", dim=4, combiner="none", optimizer=slotwise.SGD(lr=1.0))
        before = ps.lookup("ads", KEYS)
        saved = ps.save().id
        ps.push("ads", KEYS, None, np.ones((len(KEYS), 4), np.float32))
        after = ps.lookup("ads", KEYS)
        none.touch()
        refused = slotwise.ResourceExhausted if ranks == 1 else slotwise.Error
        with pytest.raises(refused, match="no more threads|its log says why"):
            ps.load(saved)
        assert np.array_equal(ps.lookup("ads", KEYS), after)
        ps.save()  # which needs none
        none.unlink()
        ps.load(saved)
        assert np.array_equal(ps.lookup("ads", KEYS), before)
    assert "the system gives this process no more threads" in server.log
    server.kill_all()


def test_launches_have_their_threads_from_the_start(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of several processors, whose first batch comes when there are no more."""
    none = tmp_path / "none"
    monkeypatch.setenv("SLOTWISE_NO_THREADS_WHILE", str(none))
    monkeypatch.setenv("LD_PRELOAD", str(crash_library()))
    asan = os.environ.get("ASAN_OPTIONS", "")  # which wants to be the first library
    monkeypatch.setenv("ASAN_OPTIONS", f"{asan}:verify_asan_link_order=0")
    cluster = start_cluster(1, "threads: 4")
    none.touch()
    table = cluster.create(dim=1)
    keys = np.arange(50_000)
    assert cluster.lookup(table, keys, len(keys), mode=1).shape == (50_000, 1)
    assert cluster.process.poll() is None, cluster.logs()
    none.unlink()


def test_a_start_without_threads_says_so(tmp_path: Path) -> None:
    none = tmp_path / "none"
    none.touch()
    denied = ("env", f"LD_PRELOAD={crash_library()}", f"SLOTWISE_NO_THREADS_WHILE={none}")
    ended = run_server("--listen", "127.0.0.1:0", wrapper=denied)
    assert ended.returncode == 1, ended
    assert ended.stderr.startswith(
        "slotwise-server: the system gives this process no more than 0 threads (RLIMIT_NPROC, ulimit -u, "
        "or a container's limit of pids), and a server needs at least "
    )
