"""Tables whose rows come and go: the same ones on any number of ranks, and when a killed server starts.

Some have rows of 16 bits, whose rounding by chance is replayed too.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slotwise
from durable_training import SEED, Lives, State, state
from numpy.typing import NDArray
from slotwise import checkpoint_files
from slotwise_cluster import Cluster, StartCluster

DIM = 4
MAX_ROWS = 200


@pytest.fixture
def lives(start_cluster: StartCluster, tmp_path: Path) -> Lives:
    return Lives(start_cluster, tmp_path / "data")


class Stream:
    """Lookups, pushes, imports and erases of ids that drift, the same for a seed."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED)
        self.at = 0

    def begin(self, ps: slotwise.Client) -> None:
        some = slotwise.Eviction(to=0.7)
        counted = slotwise.Eviction("step_lfu", half_life_steps=20, to=0.7)
        adam = slotwise.Adam(0.1)
        ps.create_table("adam", dim=DIM, optimizer=adam, max_rows=MAX_ROWS, eviction=counted, ttl_steps=32)
        ps.create_table("brief", dim=DIM, optimizer=slotwise.SGD(0.1), ttl_steps=5)
        options: dict[str, Any] = {"eviction": some, "row_dtype": "bfloat16"}
        ps.create_table("sgd", dim=DIM, optimizer=slotwise.SGD(0.1), max_rows=MAX_ROWS // 2, **options)
        ps.create_table("plain", dim=DIM, optimizer=slotwise.SGD(0.1))
        earned = slotwise.Frequency(3, max_keys=MAX_ROWS)
        options = {"eviction": some, "admission": earned, "row_dtype": "float16"}
        ps.create_table("earned", dim=DIM, optimizer=adam, max_rows=80, **options)
        filtered = slotwise.Frequency(4, counter="bloom", counter_mib=1)
        options = {"eviction": some, "admission": filtered}
        ps.create_table("filtered", dim=DIM, optimizer=adam, max_rows=80, **options)
        drawn = slotwise.Probability(0.3)
        options = {"admission": drawn, "row_dtype": "bfloat16", "rounding": "nearest"}
        ps.create_table("drawn", dim=DIM, optimizer=slotwise.SGD(0.1), ttl_steps=9, **options)

    def keys(self, count: int) -> NDArray[np.uint64]:
        self.at += 3
        drawn = self.random.zipf(1.3, (count, 1)).clip(max=2 * MAX_ROWS) + self.at
        return drawn.astype(np.uint64)

    def rows(self, count: int) -> NDArray[np.float32]:
        return self.random.standard_normal((count, DIM)).astype(np.float32)

    def run(self, ps: slotwise.Client, rounds: int) -> None:
        for turn in range(rounds):
            sizes = {"adam": 60, "sgd": 30, "plain": 9, "brief": 9, "earned": 60, "drawn": 30, "filtered": 60}
            batches = {table: self.keys(size) for table, size in sizes.items()}
            ps.lookup_many({"adam": (batches["adam"], None), "earned": (batches["earned"], None)})
            ps.push_many({table: (keys, None, self.rows(len(keys))) for table, keys in batches.items()})
            ps.lookup_many({"sgd": (self.keys(40), None), "adam": (self.keys(40), None)})
            if turn % 5 == 3:
                ps.erase("sgd", self.keys(20))
                ps.erase("earned", self.keys(20))
                ps.erase("filtered", self.keys(20))
                imported = np.unique(self.keys(50))
                ps.import_rows("adam", imported, self.rows(len(imported)))
                ps.evict("sgd", keep=MAX_ROWS // 3)
                ps.evict("brief", below_score=ps.describe_table("brief").steps - 2)


def gone(ps: slotwise.Client) -> dict[str, tuple[int, int]]:
    """Returns how many rows were evicted and how many expired, by table."""
    described = {table.name: ps.describe_table(table.name) for table in ps.list_tables()}
    return {name: (table.evicted_rows, table.expired_rows) for name, table in described.items()}


def ages(ps: slotwise.Client) -> dict[str, tuple[object, ...]]:
    """Returns what is known of the ages of rows, by table."""
    described = {table.name: ps.describe_table(table.name, ages=True) for table in ps.list_tables()}
    return {
        name: (table.evicted_ages, table.youngest_evicted_age, table.ages, table.counts, table.new_rows)
        for name, table in described.items()
    }


def refused(ps: slotwise.Client) -> tuple[int, int, int, int, int]:
    """Returns counted keys of "earned", blocks of "filtered", and three tables' refused occurrences."""
    earned, filtered, drawn = (ps.describe_table(name) for name in ("earned", "filtered", "drawn"))
    of_three = earned.refused_keys, filtered.refused_keys, drawn.refused_keys
    return earned.candidates, filtered.counter_blocks, *of_three


def test_the_same_rows_go_on_any_number_of_ranks(start_cluster: StartCluster) -> None:
    print("seed", SEED)
    ends: list[tuple[State, dict[str, tuple[int, int]], tuple[int, ...], object]] = []
    for ranks in (1, 2, 3):
        with start_cluster(ranks).connect() as ps:
            stream = Stream()
            stream.begin(ps)
            stream.run(ps, 40)
            ends.append((state(ps), gone(ps), refused(ps), ages(ps)))
            assert ps.describe_table("sgd", ages=True).evicted_ages.rows > 0
            assert ps.describe_table("adam").rows <= MAX_ROWS
    assert ends[0] == ends[1] == ends[2]
    rows = ends[0][1]
    assert rows["adam"][0] > MAX_ROWS and rows["sgd"][0] > MAX_ROWS and rows["plain"] == (0, 0)
    assert rows["earned"][0] > 80 and rows["drawn"][1] > 50
    assert all(count > 100 for count in ends[0][2]) and ends[0][2][0] <= MAX_ROWS
    assert rows["adam"][1] > 0 and rows["brief"][0] > 0 and rows["brief"][1] > 100 and rows["sgd"][1] == 0


@pytest.mark.parametrize("ranks", [(1, 1), (1, 2), (3, 1), (2, 3)])
def test_a_killed_server_evicts_again_what_it_evicted(lives: Lives, ranks: tuple[int, int]) -> None:
    print("seed", SEED)
    stream = Stream()
    with lives.live(ranks[0]) as ps:
        stream.begin(ps)
        stream.run(ps, 30)
        before = state(ps), *refused(ps)[:2]
        living = {name: said[2:4] for name, said in ages(ps).items()}
    with lives.live(ranks[1]) as ps:
        assert (state(ps), *refused(ps)) == (*before, 0, 0, 0)
        # A recovery does not count what it evicts again, and rows are as old as they were.
        assert {name: said[2:4] for name, said in ages(ps).items()} == living
        assert all(said[:2] == (slotwise.Quantiles(), 0) and said[4] == 0 for said in ages(ps).values())
        stream.run(ps, 10)
        after = state(ps), refused(ps)[0]
    with lives.live(ranks[0], end=Cluster.stop) as ps:
        assert (state(ps), refused(ps)[0]) == after


@pytest.mark.parametrize("counts", [False, True])
def test_full_tables_are_loaded_on_fewer_ranks(lives: Lives, counts: bool) -> None:
    # A rank's new keys of a delta may have room only where those of another rank went.
    half, ones = 2**63, np.ones((20, DIM), np.float32)
    admission = slotwise.Frequency(5, max_keys=20) if counts else None
    eviction = None if counts else slotwise.Eviction()
    with lives.live(3, "NONE") as ps:
        ps.create_table(
            "full", dim=DIM, optimizer=slotwise.SGD(0.1), max_rows=20, eviction=eviction, admission=admission
        )
        for first in (0, half):
            for turn in range(3):
                ps.push("full", range(first + 20 * turn, first + 20 * turn + 20), None, ones)
            ps.save(delta=first > 0)
    with lives.live(1, "NONE", end=Cluster.stop) as ps:
        described = ps.describe_table("full")
        assert (described.candidates if counts else described.rows) in (19, 20)


def test_all_counts_may_lie_on_one_rank(start_cluster: StartCluster) -> None:
    keys = np.arange(1, 13_000, dtype=np.uint64)
    mixed = keys.copy()
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    mine = keys[(mixed ^ (mixed >> np.uint64(33))) < 2**63][:6000]  # of the first of two ranks
    assert len(mine) == 6000
    with start_cluster(2).connect() as ps:
        earned = slotwise.Frequency(2, max_keys=6000)
        ps.create_table("ads", dim=DIM, optimizer=slotwise.SGD(0.1), admission=earned)
        ps.push("ads", mine, None, np.ones((6000, DIM), np.float32))
        assert ps.describe_table("ads").candidates == 6000


def test_a_load_brings_its_tables_counts_alone(lives: Lives) -> None:
    ones = np.ones((3, DIM), np.float32)
    earned = slotwise.Frequency(3)
    with lives.live(2, "NONE", end=Cluster.stop) as ps:
        for keys in ([1], [1, 2, 3]):
            ps.drop_table("earned", missing_ok=True)
            ps.create_table("earned", dim=DIM, optimizer=slotwise.SGD(0.1), admission=earned)
            ps.push("earned", keys, None, ones[: len(keys)])
            assert ps.describe_table("earned").candidates == len(keys)
            if len(keys) == 1:
                first = ps.save()
        with pytest.raises(slotwise.NotFound):
            ps.load(first.id, tables=["earned/.candidates"])
        assert dict(ps.checkpoints()[-1].tables) == {"earned": 0}
        ps.load(first.id, tables=["earned"])  # another table of that name goes, and what it counted
        assert ps.describe_table("earned").candidates == 1
        ps.push("earned", [1, 1, 2], None, ones)
        described = ps.describe_table("earned")
        assert (described.rows, described.candidates) == (1, 1)
        ps.save()


def test_a_stop_counts_to_a_time_to_live(lives: Lives) -> None:
    with lives.live(2) as ps:
        ps.create_table("hourly", dim=1, optimizer=slotwise.SGD(1.0), ttl_seconds=3600)
        ps.create_table("brief", dim=1, optimizer=slotwise.SGD(1.0), ttl_seconds=1)
        for table in ("hourly", "brief"):
            ps.push(table, [1, 2], None, np.ones((2, 1), np.float32))
        while ps.describe_table("brief").rows > 0:
            ps.push("hourly", [3], None, np.ones((1, 1), np.float32))
        assert ps.describe_table("brief").expired_rows == 2
        ps.push("brief", [4], None, np.ones((1, 1), np.float32))
        ps.expire("brief")  # which says to the journal when step 2 was
    time.sleep(1)
    with lives.live(1) as ps:
        while ps.describe_table("brief").rows > 0:
            time.sleep(0.05)
        assert ps.describe_table("hourly").rows == 3
        ps.save()
    with lives.live(3, end=Cluster.stop) as ps:
        assert ps.describe_table("brief").rows == 0 and ps.describe_table("hourly").rows == 3


def test_checkpoints_and_deltas_have_scores(lives: Lives) -> None:
    print("seed", SEED)
    stream = Stream()
    with lives.live(2, "NONE") as ps:
        stream.begin(ps)
        stream.run(ps, 10)
        ps.save()
        stream.run(ps, 5)
        delta = ps.save()
        before = state(ps)
        counted = refused(ps)[:2]
        rows = {row.tobytes() for chunk in ps.export_rows("adam", with_state=True) for row in joined(chunk)}
        table = checkpoint_files.open(lives.data / "checkpoints" / delta.id)["adam"]
        assert {row.tobytes() for row in joined(table.read())} == rows
        assert (table.read().scores % 2**36).max() <= before["adam"][1] + 1, "the steps in them"
        assert len(np.unique(table.read().scores)) > 1
        folder = lives.data / "checkpoints" / delta.id
        types = {str(np.load(file, mmap_mode="r").dtype) for file in folder.glob("table-*/rank-0.rows.npy")}
        assert types == {"float32", "float16", "uint16"}, "values of 16 bits are saved as such"
    with lives.live(1, "NONE", end=Cluster.stop) as ps:
        assert state(ps) == before, "the scores are in the digest"
        assert refused(ps)[:2] == counted > (0, 0)
        ps.load(delta.id, tables=["earned", "filtered"])
        assert refused(ps)[:2] == counted


def joined(rows: slotwise.Rows) -> NDArray[np.uint8]:
    """Returns the bytes of each row: key, values and state."""
    assert rows.state is not None
    parts = [rows.keys[:, None].view(np.uint8), rows.values.view(np.uint8), rows.state.view(np.uint8)]
    return np.concatenate(parts, axis=1)
