from __future__ import annotations

import copy
import dataclasses
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from real_server import RealServer, empty_client, serving

import slotwise
from slotwise import CallStats, Durations, RankStats

STAGES = {"decode", "inbox", "round", "exchange", "journal", "encode", "send"}


def keys_of(stats: list[RankStats]) -> tuple[int, int]:
    return sum(rank.lookups.keys for rank in stats), sum(rank.pushes.keys for rank in stats)


def stats_once(ps: slotwise.Client, holds: Callable[[list[RankStats]], bool]) -> list[RankStats]:
    """A call is counted once it is over, which its caller may hear a little earlier."""
    deadline = time.monotonic() + 60
    while not holds(stats := ps.stats()):
        assert time.monotonic() < deadline, stats
    return stats


@pytest.mark.parametrize("transport", ["best", "grpc"])
def test_ranks_count_what_was_done(real: RealServer, transport: str) -> None:
    with empty_client(real), slotwise.connect(real.address, transport=transport) as ps:
        ps.create_table("t", dim=2, slots=2, optimizer=slotwise.SGD(lr=1.0))
        before = ps.stats()
        assert [rank.rank for rank in before] == [0, 1]
        keys, offsets = np.arange(6, dtype=np.uint64), np.array([0, 1, 2, 4, 6], dtype=np.uint32)
        for _ in range(3):
            rows = ps.lookup("t", keys, offsets)
        ps.push("t", keys, offsets, rows)
        looked_up, pushed = keys_of(before)
        after = stats_once(ps, lambda now: keys_of(now) == (looked_up + 18, pushed + 6))
        done = [now.since(earlier) for now, earlier in zip(after, before)]
        assert sum(rank.lookups.samples for rank in done) == 6
        assert sum(rank.pushes.samples for rank in done) == 2
        assert all(rank.uptime_ns > 0 and rank.rounds >= 4 for rank in done)
        for rank in done:
            calls = rank.lookups
            assert calls.stages.keys() == STAGES and not calls.refusals
            assert calls.latency.count == calls.calls
            assert calls.latency.sum_ns == sum(stage.sum_ns for stage in calls.stages.values())
        with pytest.raises(slotwise.NotFound):
            ps.lookup("none", keys, offsets)


def test_a_journal_is_a_stage_of_pushes(tmp_path: Path) -> None:
    with serving(1, data=tmp_path / "data", durability="sync") as ps:
        ps.create_table("t", dim=2, optimizer=slotwise.SGD(lr=1.0))
        keys, offsets = np.arange(3, dtype=np.uint64), np.arange(4, dtype=np.uint32)
        ps.push("t", keys, offsets, np.ones((3, 2), dtype=np.float32))
        ps.lookup("t", keys, offsets)
        (rank,) = stats_once(ps, lambda now: now[0].lookups.calls + now[0].pushes.calls == 2)
        assert rank.pushes.stages["journal"].count == 1
        assert rank.pushes.stages["journal"].sum_ns > 0
        assert rank.lookups.stages["journal"].count == 0


def reading(incarnation: int, calls: int) -> RankStats:
    times = Durations(1000 * calls, (0,) * 35 + (calls,))
    counted = CallStats(calls, calls, calls, calls, calls, {"UNAVAILABLE": calls}, times, {"send": times})
    rest = dict.fromkeys([each.name for each in dataclasses.fields(RankStats)], 1)
    known = {"rank": 0, "instance": incarnation, "started": 7, "uptime_ns": calls, "rounds": calls}
    return RankStats(**{**rest, **known, "lookups": counted, "pushes": counted})


def test_differences_know_a_restart() -> None:
    assert reading(1, 12).since(reading(1, 5)) == reading(1, 7)
    assert reading(2, 12).since(reading(1, 5)) == reading(2, 12)
    assert reading(2, 3).since(reading(1, 5)) == reading(2, 3)
    assert reading(1, 5).since(reading(1, 5)).pushes.refusals == {}, "nothing was refused since"


def test_quantiles_lie_in_their_buckets() -> None:
    times = Durations(99 * 1000 + 10**6, (0,) * 35 + (99,) + (0,) * 39 + (1,))
    assert 0.8e-6 < times.quantile(0.5) < 1.25e-6
    assert 0.8e-3 < times.quantile(1.0) < 1.25e-3
    assert times.mean() == pytest.approx((99e-6 + 1e-3) / 100)
    assert Durations().quantile(0.5) == Durations().mean() == 0


def test_older_names_go_on_working(real: RealServer) -> None:
    with empty_client(real) as ps:
        ps.create_table("named", dim=2, optimizer=slotwise.SGD(lr=0.1))
        info, topology, (rank, *_) = ps.describe_table("named"), ps.topology(), ps.stats()
        assert info.lineage == info.generation > 0
        assert topology.incarnation == topology.instance == rank.incarnation == rank.instance > 0
        session = ps.describe_session()
        assert session.incarnation == session.instance == rank.instance
        for older, newer in {
            "inbox_requests": "queued_requests",
            "announced_requests": "pending_requests",
            "inbox_bytes": "queue_bytes",
            "max_inbox_bytes": "max_queue_bytes",
            "gpu_arena_bytes": "gpu_shared_bytes",
            "max_gpu_arena_bytes": "max_gpu_shared_bytes",
        }.items():
            assert getattr(rank, older) == getattr(rank, newer)
        assert rank.max_queue_bytes > 0
        with pytest.raises(AttributeError, match="no attribute 'in_box'"):
            rank.in_box
        assert copy.copy(rank) == pickle.loads(pickle.dumps(rank)) == rank
