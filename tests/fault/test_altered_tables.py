"""Tables that are altered while they are used: alike on any number of ranks, and when a killed server starts,
from its journal, from checkpoints and deltas, and from a checkpoint that another server loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slotwise
from durable_training import SEED, Lives, State, state
from numpy.typing import NDArray
from slotwise_cluster import Cluster, StartCluster

DIM = 4
MADE: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": slotwise.SGD(0.1), "max_rows": 300},
    "adam": {"optimizer": slotwise.Adam(0.1), "max_rows": 300, "eviction": slotwise.Eviction("lfu", to=0.6)},
    "half": {"optimizer": slotwise.SGD(0.1), "row_dtype": "bfloat16", "max_rows": 1000},
    "earned": {"optimizer": slotwise.SGD(0.1), "max_rows": 300, "admission": slotwise.Frequency(3)},
}
# These alterations are made one after another.
ALTERATIONS: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"max_rows": 100_000}),
    ("adam", {"eviction": slotwise.Eviction("step", to=0.5)}),
    ("half", {"eviction": slotwise.Eviction("step_lfu", half_life_steps=5)}),
    ("earned", {"admission": slotwise.Frequency(2, max_keys=60)}),
    ("sgd", {"ttl_steps": 6}),
    ("half", {"admission": slotwise.Frequency(2, max_keys=200), "max_rows": 150}),
    ("adam", {"eviction": None, "ttl_steps": 9, "max_rows": 500}),
    ("earned", {"admission": slotwise.Frequency(3, counter="bloom", counter_mib=1)}),
    ("earned", {"admission": slotwise.Frequency(2, counter="bloom", counter_mib=1)}),
    ("earned", {"admission": None, "eviction": slotwise.Eviction("lfu")}),
    ("sgd", {"ttl_steps": 0, "admission": slotwise.Probability(0.5)}),
    ("half", {"eviction": None, "max_rows": 1000}),
    ("adam", {"eviction": slotwise.Eviction("lfu", half_life_steps=3), "ttl_steps": 0}),
    ("earned", {"admission": slotwise.Frequency(2, counter="bloom", counter_mib=2), "max_rows": 200}),
    ("earned", {"admission": slotwise.Frequency(2)}),
]


@pytest.fixture
def lives(start_cluster: StartCluster, tmp_path: Path) -> Lives:
    return Lives(start_cluster, tmp_path / "data")


class Stream:
    """Pushes and lookups of ids that drift, with alterations between them, the same for a seed."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED)
        self.at = 0
        self.altered = 0

    def begin(self, ps: slotwise.Client) -> None:
        for name, options in MADE.items():
            ps.create_table(name, dim=DIM, **options)

    def keys(self, count: int) -> NDArray[np.uint64]:
        self.at += 1
        return (self.random.zipf(1.3, (count, 1)).clip(max=150) + self.at).astype(np.uint64)

    def train(self, ps: slotwise.Client, steps: int) -> None:
        for _ in range(steps):
            batches = {name: self.keys(12) for name in MADE}
            gradients = {name: self.random.standard_normal((12, DIM)).astype(np.float32) for name in MADE}
            ps.push_many({name: (keys, None, gradients[name]) for name, keys in batches.items()})
        ps.lookup_many({name: (self.keys(5), None) for name in MADE})

    def alter(self, ps: slotwise.Client, count: int) -> None:
        for _ in range(count):
            name, options = ALTERATIONS[self.altered]
            self.altered += 1
            if "max_rows" in options and ps.describe_table(name).rows > options["max_rows"]:
                known = np.concatenate([rows.keys for rows in ps.export_rows(name)])
                ps.erase(name, np.sort(known)[options["max_rows"] // 2 :])
            ps.alter_table(name, **options)
            self.train(ps, 4)


def whole(ps: slotwise.Client) -> tuple[State, dict[str, tuple[slotwise.TableOptions, int, int]]]:
    """Returns rows, options, counted keys and blocks of counters of all tables."""
    described = {table.name: ps.describe_table(table.name) for table in ps.list_tables()}
    return state(ps), {
        name: (table.options, table.candidates, table.counter_blocks) for name, table in described.items()
    }


def find(ps: slotwise.Client) -> None:
    """Finds each table by the options that it was made with, and by those that it has."""
    for name, options in MADE.items():
        now = ps.describe_table(name).options
        assert ps.create_table(name, dim=DIM, **options) == now
        assert ps.create_table(**{field: getattr(now, field) for field in now.__dataclass_fields__}) == now
        with pytest.raises(slotwise.AlreadyExists):
            others: dict[str, Any] = options | {"max_rows": 12345}
            ps.create_table(name, dim=DIM, **others)


def test_alterations_are_alike_on_any_number_of_ranks(start_cluster: StartCluster) -> None:
    print("seed", SEED)
    ends = []
    for ranks in (1, 2, 3):
        with start_cluster(ranks).connect() as ps:
            stream = Stream()
            stream.begin(ps)
            stream.train(ps, 10)
            stream.alter(ps, len(ALTERATIONS))
            find(ps)
            ends.append(whole(ps))
    assert ends[0] == ends[1] == ends[2]
    assert all(tables[2] > 20 for tables in ends[0][0].values())


@pytest.mark.parametrize("ranks", [(1, 2), (3, 1), (2, 3)])
def test_a_killed_server_has_the_altered_options(lives: Lives, ranks: tuple[int, int]) -> None:
    print("seed", SEED)
    stream = Stream()
    before: Any = None
    for life, count in enumerate((3, 5, 4)):
        with lives.live(ranks[life % 2]) as ps:
            if before is None:
                stream.begin(ps)
                stream.train(ps, 10)
            else:
                assert whole(ps) == before
            find(ps)
            stream.alter(ps, count)
            if life == 1:
                ps.save()
                stream.train(ps, 2)
            before = whole(ps)
    with lives.live(ranks[0], end=Cluster.stop) as ps:
        assert whole(ps) == before
        find(ps)
        stream.train(ps, 3)


@pytest.mark.parametrize("ranks", [(2, 1), (1, 3)])
def test_checkpoints_and_deltas_have_the_altered_options(lives: Lives, ranks: tuple[int, int]) -> None:
    stream = Stream()
    deltas = []
    with lives.live(ranks[0], "NONE") as ps:
        stream.begin(ps)
        stream.train(ps, 5)
        ps.save()
        for _ in ALTERATIONS:
            stream.alter(ps, 1)
            saved = ps.save(delta=True)
            deltas.append(saved.delta)
            stream.train(ps, 1)
            assert ps.save(delta=True).delta
        before = whole(ps)
    # A delta follows where rows stay as they are, and have room: not where scores change, or a bound falls.
    # Counts, too, stay with their counter, whatever its threshold, and begin anew with another.
    assert deltas == [True] + [False] * 5 + [True] + [False, True] + [False] * 6
    with lives.live(ranks[1], "NONE", end=Cluster.stop) as ps:
        assert whole(ps) == before
        find(ps)


def test_a_checkpoint_of_before_an_alteration_brings_its_options_back(lives: Lives) -> None:
    stream = Stream()
    with lives.live(2, "NONE") as ps:
        stream.begin(ps)
        stream.train(ps, 5)
        first, then = ps.save(), whole(ps)
        stream.alter(ps, 8)
        second, now = ps.save(), whole(ps)
        ps.load(first.id)
        assert whole(ps) == then
        ps.load(second.id, tables=["half", "earned"])
        assert {name: now[0][name] for name in ("half", "earned")}.items() <= whole(ps)[0].items()
        ps.load(second.id)
        assert whole(ps) == now
        find(ps)
    with lives.live(3, end=Cluster.stop) as ps:
        assert whole(ps) == now
        find(ps)
        stream.alter(ps, 4)


def test_a_journal_without_a_checkpoint_between_alterations_and_loads(lives: Lives) -> None:
    stream = Stream()
    with lives.live(2) as ps:
        stream.begin(ps)
        stream.train(ps, 5)
        first = ps.save()
        stream.alter(ps, 6)
        ps.load(first.id, tables=["half"])
        ps.alter_table("half", max_rows=2000, ttl_steps=50)
        stream.train(ps, 3)
        before = whole(ps)
    with lives.live(1, end=Cluster.stop) as ps:
        assert whole(ps) == before
        assert not ps.save(delta=True).delta, "what followed the checkpoint is no delta of it"
