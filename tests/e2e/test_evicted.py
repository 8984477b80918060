"""Which keys went: a client and slotwise-ctl say it on any number of ranks, and say what they do not know."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import programs
import pytest
import slotwise
from programs import CTL
from slotwise_cluster import Cluster, StartCluster

HALF = slotwise.Eviction(to=0.5)


def keys_of(ps: slotwise.Client, table: str = "ads") -> set[int]:
    return {int(key) for rows in ps.export_rows(table) for key in rows.keys}


def push(ps: slotwise.Client, keys: Iterable[int], table: str = "ads") -> None:
    given = np.fromiter(keys, np.uint64)
    ps.push(table, given, None, np.ones((len(given), 4), np.float32))


def make(ps: slotwise.Client, max_rows: int, table: str = "ads", **options: object) -> None:
    ps.create_table(table, dim=4, optimizer=slotwise.SGD(0.1), max_rows=max_rows, **options)  # type: ignore


def ctl(cluster: Cluster, *arguments: object) -> subprocess.CompletedProcess[str]:
    return programs.run(CTL, "--server", cluster.ranks[-1].address, *arguments)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_keys_that_went_are_those_that_have_disappeared(start_cluster: StartCluster, ranks: int) -> None:
    random = np.random.default_rng(20261129)
    with start_cluster(ranks).connect() as ps:
        make(ps, 200, eviction=HALF)
        make(ps, 0, "brief", ttl_steps=16)
        seen = {table: ps.evicted(table) for table in ("ads", "brief")}
        for turn in range(60):
            keys = {int(key) for key in 3 * turn + random.integers(0, 250, 40)}
            before = {table: keys_of(ps, table) for table in seen}
            if turn % 10 == 9:
                ps.evict("ads", keep=50)
            else:
                push(ps, keys)
            push(ps, keys, "brief")
            for table, last in seen.items():
                now = ps.evicted(table, after_round=last.through_round, instance=last.instance)
                assert sorted(now.keys.tolist()) == sorted(before[table] - keys_of(ps, table)), (turn, table)
                assert not now.gap and now.complete_after == last.through_round < now.through_round
                reason = "time_to_live" if table == "brief" else "request" if turn % 10 == 9 else "full_table"
                assert {each.by for each in now.rounds} <= {reason}
                assert all(last.through_round < each.round <= now.through_round for each in now.rounds)
                seen[table] = now
        for table in seen:
            described = ps.describe_table(table)
            all_of_it = ps.evicted(table)
            assert len(all_of_it.keys) == described.evicted_rows + described.expired_rows > 200
            assert all_of_it.generation == described.generation


@pytest.mark.parametrize("ranks", [1, 2])
def test_ctl_and_the_client_list_the_same_keys_in_pages(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks)
    with cluster.connect() as ps:
        make(ps, 0, ttl_steps=10**6)
        push(ps, range(20_000))
        assert ps.evict("ads", keep=0) == 20_000
        push(ps, range(7))
        ps.evict("ads", keep=0)
        ours = ps.evicted("ads")
    assert [sorted(each.keys.tolist()) for each in ours.rounds] == [list(range(20_000)), list(range(7))]
    theirs = json.loads(ctl(cluster, "--json", "evicted", "ads").stdout)
    assert [each["round"] for each in theirs["rounds"]] == [each.round for each in ours.rounds]
    as_text = [[str(key) for key in each.keys.tolist()] for each in ours.rounds]
    assert [each["keys"] for each in theirs["rounds"]] == as_text, "64 bits are more than a JSON number has"
    of_server = (theirs["gap"], theirs["instance"], theirs["generation"])
    assert of_server == (False, str(ours.instance), ours.generation)
    later = ctl(cluster, "evicted", "ads", "--after-round", ours.rounds[0].round)
    assert f"round {ours.rounds[1].round}, by request, 7 keys: " in later.stdout
    assert f" --instance {ours.instance}\n" in later.stdout and not later.stderr
    another = ctl(cluster, "evicted", "ads", "--after-round", ours.through_round, "--instance", 1)
    assert "warning: keys may be missing: the list is complete after round " in another.stderr
    assert ctl(cluster, "evicted", "none").returncode == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_full_log_forgets_the_oldest_rounds_and_says_so(start_cluster: StartCluster, ranks: int) -> None:
    """A MiB has less than 131,072 keys a rank."""
    with start_cluster(ranks, "limits { max_evicted_mib: 1 }").connect() as ps:
        make(ps, 0, ttl_steps=10**6)
        rounds: dict[int, list[int]] = {}
        for turn in range(8):
            keys = range(turn * 40_000, turn * 40_000 + 40_000)
            push(ps, keys)
            ps.evict("ads", keep=0)
            newest = ps.evicted("ads", after_round=max(rounds, default=0))
            assert not newest.gap
            rounds[newest.rounds[0].round] = list(keys)
            assert sorted(newest.keys.tolist()) == rounds[newest.rounds[0].round]
        known = ps.evicted("ads")
        assert known.gap and known.complete_after >= min(rounds)
        kept = {number: keys for number, keys in rounds.items() if number > known.complete_after}
        assert {each.round: sorted(each.keys.tolist()) for each in known.rounds} == kept
        assert 1 <= len(kept) <= 3 * ranks
        push(ps, range(300_000))
        ps.evict("ads", keep=0)
        too_many = ps.evicted("ads", after_round=known.through_round)
        assert too_many.gap and len(too_many.rounds) == 0
        assert known.through_round < too_many.complete_after < too_many.through_round


@pytest.mark.parametrize("durable", [False, True])
def test_a_server_that_starts_again_has_a_gap(
    start_cluster: StartCluster, tmp_path: Path, durable: bool
) -> None:
    config = f'durability {{ folder: "{tmp_path}/data" mode: DURABILITY_MODE_SYNC }}' if durable else ""
    cluster = start_cluster(2, config)
    with cluster.connect() as ps:
        make(ps, 8, eviction=HALF)
        push(ps, range(8))
        push(ps, range(100, 104))
        before = ps.evicted("ads")
        assert sorted(before.keys.tolist()) == list(range(8)) and not before.gap
    cluster.stop()
    cluster = start_cluster(2, config)
    with cluster.connect() as ps:
        make(ps, 8, eviction=HALF)
        for first in range(0, 400, 4):  # without a data folder, rounds have their numbers again
            push(ps, range(200 + first, 204 + first))
        after = ps.evicted("ads", after_round=before.through_round, instance=before.instance)
        assert after.gap and after.instance != before.instance
        first = after.complete_after
        assert (first >= before.rounds[-1].round) == durable
        assert len(after.keys) == ps.describe_table("ads").evicted_rows, "all since the start are listed"
        on = ps.evicted("ads", after_round=after.through_round)
        assert not on.gap and len(on.rounds) == 0
        assert ps.evicted("ads", after_round=10**6).gap, "no round of this server has that number yet"


def test_a_dropped_table_takes_its_keys_along(start_cluster: StartCluster) -> None:
    with start_cluster(2).connect() as ps:
        make(ps, 8, eviction=HALF)
        push(ps, range(8))
        push(ps, [100])
        before = ps.evicted("ads")
        ps.drop_table("ads")
        with pytest.raises(slotwise.NotFound, match='there is no table "ads"'):
            ps.evicted("ads")
        make(ps, 8, eviction=HALF)
        fresh = ps.evicted("ads")
        assert not fresh.gap and len(fresh.rounds) == 0 and fresh.generation != before.generation
        assert ps.evicted("ads", after_round=before.through_round).gap, "those were another table's rounds"
        with pytest.raises(slotwise.InvalidArgument, match="after_round is -1: must be an integer"):
            ps.evicted("ads", after_round=-1)
