"""A server that runs goes back to an older checkpoint, on purpose, and goes on from there."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import slotwise
from durable_training import (
    SEED,
    State,
    Training,
    checkpoints,
    connect,
    damage_a_byte,
    durability,
    kill,
    state,
)
from slotwise_cluster import StartCluster, wait_until
ONES = np.ones((1, 4), np.float32)


def trained(ps: slotwise.Client) -> tuple[str, State]:
    """A training with a checkpoint in its middle: the checkpoint, and what the tables were then."""
    training = Training()
    training.begin(ps)
    ps.create_table("dropped", dim=4, optimizer=slotwise.SGD(lr=1.0))
    ps.push("dropped", [7], None, ONES)
    training.run(ps, 5)
    saved, then = ps.save(), state(ps)
    training.run(ps, 3)
    ps.drop_table("dropped")
    ps.create_table("later", dim=4, optimizer=slotwise.SGD(lr=1.0))
    ps.push("later", [8], None, ONES)
    assert state(ps) != then
    return saved.id, then


@pytest.mark.parametrize("mode", ["NONE", "INTERVAL", "SYNC"])
@pytest.mark.parametrize("ranks", [(1, 2), (2, 1), (2, 3)])
def test_what_was_loaded_is_there_after_a_crash(
    start_cluster: StartCluster, tmp_path: Path, ranks: tuple[int, int], mode: str
) -> None:
    print("seed", SEED)
    config = durability(tmp_path / "data", mode, "interval_s: 3600" if mode == "INTERVAL" else "")
    first = start_cluster(ranks[0], config)
    with connect(first) as ps:
        id, then = trained(ps)
        loaded = ps.load(id)
        assert not loaded.delta and loaded.rows == sum(rows for _, _, rows, _ in then.values())
        assert state(ps) == then
        assert ps.checkpoints()[0].id == loaded.id
        # A delta goes on from it, and a table's id that was given since is not given again.
        ps.push("dropped", [7], None, ONES)
        ps.create_table("new", dim=4, optimizer=slotwise.SGD(lr=1.0))
        assert ps.push("new", [8], None, ONES) == 1
        assert ps.save(delta=True).delta
        before = state(ps)
    kill(first)
    with connect(start_cluster(ranks[1], config)) as ps:
        assert state(ps) == before


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_journal_has_that_a_checkpoint_was_loaded(
    start_cluster: StartCluster, tmp_path: Path, ranks: int
) -> None:
    """The checkpoint that a load writes is damaged: what it was made of, and the journal, say the same."""
    data = tmp_path / "data"
    first = start_cluster(ranks, durability(data))
    with connect(first) as ps:
        id, _ = trained(ps)
        ps.save()
        loaded = ps.load(id)
        for _ in range(3):
            ps.push("dropped", [7, 9], None, np.ones((2, 4), np.float32))
        before = state(ps)
    kill(first)
    damage_a_byte(data / "checkpoints" / loaded.id / "table-1" / "rank-0.rows.npy")
    second = start_cluster(3 - ranks, durability(data))
    with connect(second) as ps:
        assert state(ps) == before
        # What is saved next is a base: the newest checkpoint has what the loaded one lacks.
        assert not ps.save(delta=True).delta
    kill(second)
    damage_a_byte(data / "checkpoints" / id / "table-1" / "rank-0.rows.npy")
    with connect(start_cluster(ranks, durability(data))) as ps:
        assert state(ps) == before


def test_clients_hear_what_a_load_took_back(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(2, durability(tmp_path / "data"))
    with connect(cluster) as ps, connect(cluster) as other, connect(cluster) as reader:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))
        ps.push("ads", [1], None, ONES)
        session = other.new_session()
        kept = session.next()
        assert other.push("ads", [1], None, ONES, step=kept) == 2
        id = ps.save().id
        lost = session.next()
        assert other.push("ads", [1], None, ONES, step=lost) == 3
        reader.lookup("ads", [1])
        ps.load(id)
        np.testing.assert_array_equal(ps.lookup("ads", [1])[0], reader.lookup("ads", [1])[0])
        with pytest.raises(slotwise.DataLoss, match="ads"):
            other.lookup("ads", [1])
        other.lookup("ads", [1])
        # The ledger is the checkpoint's: what it has is not applied again, what it lacks is.
        assert other.push("ads", [1], None, ONES, step=kept) == 2
        assert other.push("ads", [1], None, ONES, step=lost) == 3
        assert ps.push("ads", [1], None, ONES) == 4
        assert ps.describe_table("ads").steps == 4


@pytest.mark.parametrize("ranks", [1, 2])
def test_who_writes_or_reads_many_rows_hears_of_a_load_amid_them(
    start_cluster: StartCluster, tmp_path: Path, ranks: int
) -> None:
    cluster = start_cluster(ranks, durability(tmp_path / "data", "NONE"))
    keys = np.arange(1_500_000, dtype=np.uint64)
    with connect(cluster) as ps, connect(cluster) as other:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))
        empty = ps.save().id

        def load_once_rows_come() -> None:
            wait_until(lambda: other.describe_table("ads").rows > 0, "rows")
            other.load(empty)

        loader = threading.Thread(target=load_once_rows_come)
        loader.start()
        with pytest.raises(slotwise.DataLoss, match="a checkpoint was loaded while rows were written"):
            ps.import_rows("ads", keys, np.ones((len(keys), 4), np.float32))
        loader.join()
        assert ps.import_rows("ads", keys, np.ones((len(keys), 4), np.float32)) == len(keys)

        chunks = ps.export_rows("ads")
        next(chunks)
        other.load(empty)
        with pytest.raises((slotwise.Unavailable, slotwise.DataLoss), match="a checkpoint was loaded"):
            for _ in chunks:
                pass


def test_a_load_that_fails_changes_nothing(start_cluster: StartCluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = start_cluster(2, durability(data))
    with connect(first) as ps:
        id, _ = trained(ps)
        before = state(ps)
        for wrong in ("none", "", "../x", "x" * 65, "a\0b"):
            with pytest.raises((slotwise.NotFound, slotwise.InvalidArgument)):
                ps.load(wrong)
        damage_a_byte(data / "checkpoints" / id / "table-1" / "rank-1.rows.npy")
        with pytest.raises(slotwise.Error, match="rank-1.rows.npy|rank 1 could not load"):
            ps.load(id)
        (data / "checkpoints" / id / "table-2" / "rank-0.keys.npy").unlink()
        with pytest.raises(slotwise.FailedPrecondition, match="rank-0.keys.npy"):
            ps.load(id)
        assert state(ps) == before
        ps.push("later", [8], None, ONES)
        ps.save()
        before = state(ps)
    kill(first)
    with connect(start_cluster(1, durability(data))) as ps:
        assert state(ps) == before
    with connect(start_cluster(None, "")) as ps, pytest.raises(slotwise.FailedPrecondition, match="--data"):
        ps.load(id)


def test_saves_and_loads_wait_for_each_other(start_cluster: StartCluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    cluster = start_cluster(2, durability(data, more="keep: 100"))
    with connect(cluster) as ps:
        id, then = trained(ps)
        made: list[str] = []

        def ask(number: int) -> None:
            with connect(cluster) as mine:
                made.append((mine.load(id) if number % 4 == 3 else mine.save(delta=number % 2 == 0)).id)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(made)) == 8
        assert state(ps) == then
        assert {path.name for path in checkpoints(data)} >= set(made)
        manifests = [json.loads((path / "manifest.json").read_text()) for path in checkpoints(data)]
        assert len({manifest["round"] for manifest in manifests}) == len(manifests)
