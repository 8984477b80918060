"""A server that runs goes back to an older checkpoint, on purpose, and goes on from there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import slotwise
from durable_training import SEED, Lives, State, Training, connect, kill, make, state
from judged_times import LONG_FORMS
from slotwise_cluster import Cluster, StartCluster, wait_until
from slotwise_metrics import METRICS, total

ONES = np.ones((1, 4), np.float32)
PATIENT = "limits { step_timeout_ms: 600000 }\n"
SELDOM = {"NONE": "", "INTERVAL": "interval_s: 3600", "SYNC": ""}


@pytest.fixture
def lives(start_cluster: StartCluster, tmp_path: Path) -> Lives:
    return Lives(start_cluster, tmp_path / "data")


def trained(ps: slotwise.Client) -> tuple[str, State]:
    """A training with a checkpoint in its middle: the checkpoint, and what the tables were then."""
    training = Training()
    training.begin(ps)
    make(ps, "dropped")
    ps.push("dropped", [7], None, ONES)
    training.run(ps, 5)
    saved, then = ps.save(), state(ps)
    training.run(ps, 3)
    ps.drop_table("dropped")
    make(ps, "later")
    ps.push("later", [8], None, ONES)
    assert state(ps) != then
    return saved.id, then


@pytest.mark.parametrize("mode", SELDOM)
@pytest.mark.parametrize("ranks", [(1, 2), (2, 1), (2, 3)])
def test_what_was_loaded_is_there_after_a_crash(lives: Lives, ranks: tuple[int, int], mode: str) -> None:
    print("seed", SEED)
    with lives.live(ranks[0], mode, SELDOM[mode]) as ps:
        id, then = trained(ps)
        loaded = ps.load(id)
        assert not loaded.delta and loaded.rows == sum(rows for _, _, rows, _ in then.values())
        assert state(ps) == then
        assert ps.checkpoints()[0].id == loaded.id
        # A delta goes on from it, and a table's id that was given since is not given again.
        ps.push("dropped", [7], None, ONES)
        make(ps, "new")
        assert ps.push("new", [8], None, ONES) == 1
        assert ps.save(delta=True).delta
        before = state(ps)
    lives.end_with(before, ranks[1], mode, SELDOM[mode])


def as_type(ps: slotwise.Client, table: str) -> tuple[str, str]:
    options = ps.describe_table(table).options
    return options.row_dtype, options.rounding


@pytest.mark.parametrize("some", [False, True], ids=["all_tables", "some_tables"])
@pytest.mark.parametrize("damaged", [False, True], ids=["by_the_copy", "by_the_journal"])
@pytest.mark.parametrize("ranks", [(1, 2), (2, 1)])
def test_rows_are_loaded_as_another_type(
    lives: Lives, ranks: tuple[int, int], damaged: bool, some: bool
) -> None:
    """Loads float32 rows as float16, trains on, and finds the same after a crash."""
    keys = np.arange(1, 200, dtype=np.uint64)
    # Rounding is up, down and to the largest number.
    values = np.linspace(-3, 70000, 4 * len(keys), dtype=np.float32).reshape(-1, 4)
    halves = np.minimum(values, np.finfo(np.float16).max).astype(np.float16).astype(np.float32)
    with lives.live(ranks[0]) as ps:
        for table in ("ads", "others"):
            ps.create_table(table, dim=4, optimizer=slotwise.AdaGrad(0.5), max_rows=1000)
            ps.import_rows(table, keys, values)
        ps.push("ads", keys, None, np.zeros((len(keys), 4), np.float32))
        ps.alter_table("ads", max_rows=2000)
        id = ps.save().id
        ps.load(id, tables=["ads"] if some else None, row_dtype="float16", rounding="nearest")
        assert as_type(ps, "ads") == ("float16", "nearest")
        assert as_type(ps, "others") == (("float32", "stochastic") if some else ("float16", "nearest"))
        assert np.array_equal(ps.lookup("ads", keys).reshape(-1, 4), halves)
        assert np.array_equal(ps.lookup("others", keys).reshape(-1, 4), values if some else halves)
        with pytest.raises(slotwise.AlreadyExists, match="row_dtype is float16, not float32"):
            ps.create_table("ads", dim=4, optimizer=slotwise.AdaGrad(0.5), max_rows=2000)
        # The options that the table was made with find it still, but for the type.
        as_made: dict[str, Any] = {"row_dtype": "float16", "rounding": "nearest"}
        ps.create_table("ads", dim=4, optimizer=slotwise.AdaGrad(0.5), max_rows=1000, **as_made)
        ps.push("ads", keys, None, np.ones((len(keys), 4), np.float32))
        before = state(ps)
        newest = ps.checkpoints()[0].id
    if damaged:
        lives.damage(newest)
    with lives.live(ranks[1]) as ps:
        assert state(ps) == before
        assert as_type(ps, "ads") == ("float16", "nearest")
        # Without a type the checkpoint's comes back; state was kept as float32 all the time.
        ps.load(id)
        assert as_type(ps, "ads") == ("float32", "stochastic")
        assert np.array_equal(ps.lookup("ads", keys).reshape(-1, 4), values)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("some", [False, True], ids=["all_tables", "some_tables"])
def test_a_journal_has_that_a_checkpoint_was_loaded(lives: Lives, some: bool, ranks: int) -> None:
    """The checkpoint that a load writes is damaged: what it was made of, and the journal, say the same."""
    with lives.live(ranks) as ps:
        id, _ = tables_that_go_on(ps) if some else trained(ps)
        ps.save()
        loaded = ps.load(id, tables=["ads", "anew"] if some else None)
        for _ in range(3):
            ps.push("anew" if some else "dropped", [7, 9], None, np.ones((2, 4), np.float32))
        before = state(ps)
    lives.damage(loaded.id)
    if some:
        lives.end_with(before, 3 - ranks)
        return
    with lives.live(3 - ranks) as ps:
        assert state(ps) == before
        # What is saved next is a base: the newest checkpoint has what the loaded one lacks.
        assert not ps.save(delta=True).delta
    lives.damage(id)
    lives.end_with(before, ranks)


def test_clients_hear_what_a_load_took_back(lives: Lives) -> None:
    with (
        lives.live(2, end=Cluster.stop) as ps,
        connect(lives.cluster) as other,
        connect(lives.cluster) as reader,
    ):
        make(ps, "ads")
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


@pytest.mark.parametrize("ranks", [1, 2] if LONG_FORMS else [2])
def test_who_writes_or_reads_many_rows_hears_of_a_load_amid_them(lives: Lives, ranks: int) -> None:
    keys = np.arange(1_500_000, dtype=np.uint64)
    rows = np.ones((len(keys), 4), np.float32)
    with lives.live(ranks, "NONE", end=Cluster.stop) as ps, connect(lives.cluster) as other:
        make(ps, "ads")
        empty = ps.save().id

        def load_once_rows_come() -> None:
            wait_until(lambda: other.describe_table("ads").rows > 0, "rows")
            other.load(empty)

        loader = threading.Thread(target=load_once_rows_come)
        loader.start()
        with pytest.raises(slotwise.DataLoss, match="a checkpoint was loaded while rows were written"):
            ps.import_rows("ads", keys, rows)
        loader.join()
        assert ps.import_rows("ads", keys, rows) == len(keys)

        chunks = ps.export_rows("ads")
        next(chunks)
        other.load(empty)
        with pytest.raises((slotwise.Unavailable, slotwise.DataLoss), match="a checkpoint was loaded"):
            for _ in chunks:
                pass


def test_a_load_that_fails_changes_nothing(lives: Lives, start_cluster: StartCluster) -> None:
    with lives.live(2) as ps:
        id, _ = trained(ps)
        before = state(ps)
        for wrong in ("none", "", "../x", "x" * 65, "a\0b"):
            with pytest.raises((slotwise.NotFound, slotwise.InvalidArgument)):
                ps.load(wrong)
        lives.damage(id, "table-1/rank-1.rows.npy")
        with pytest.raises(slotwise.Error, match="rank-1.rows.npy|rank 1 could not load"):
            ps.load(id)
        (lives.data / "checkpoints" / id / "table-2/rank-0.keys.npy").unlink()
        with pytest.raises(slotwise.FailedPrecondition, match="rank-0.keys.npy"):
            ps.load(id)
        assert state(ps) == before
        ps.push("later", [8], None, ONES)
        ps.save()
        before = state(ps)
    lives.end_with(before, 1)
    with connect(start_cluster(1, "")) as ps, pytest.raises(slotwise.FailedPrecondition, match="--data"):
        ps.load(id)


def test_rows_that_cannot_be_of_a_type_change_nothing(lives: Lives) -> None:
    with lives.live(1) as ps:
        ps.create_table("ads", dim=2, optimizer=slotwise.SGD(1.0), initializer=slotwise.Constant(70000.0))
        ps.lookup("ads", np.array([1, 2], np.uint64), train=True)
        id, before = ps.save().id, state(ps)
        refused: list[tuple[dict[str, Any], str]] = [
            ({"row_dtype": "half"}, "row_dtype is 'half', not one of float32, float16, bfloat16"),
            ({"rounding": "nearest"}, "rounding: needs a row_dtype"),
            ({"row_dtype": "float32", "rounding": "stochastic"}, "needs a row_dtype of 16 bits"),
            ({"row_dtype": "float16"}, "table ads: initializer.value is 70000: .* must be at most 65504"),
        ]
        for given, why in refused:
            with pytest.raises(slotwise.InvalidArgument, match=why):
                ps.load(id, **given)
        assert state(ps) == before
        ps.load(id, row_dtype="bfloat16")
        assert as_type(ps, "ads") == ("bfloat16", "stochastic")


def test_saves_and_loads_wait_for_each_other(lives: Lives) -> None:
    with lives.live(2, more="keep: 100", end=Cluster.stop) as ps:
        id, then = trained(ps)
        made: list[str] = []

        def ask(number: int) -> None:
            with connect(lives.cluster) as mine:
                made.append((mine.load(id) if number % 4 == 3 else mine.save(delta=number % 2 == 0)).id)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(made)) == 8
        assert state(ps) == then
        there = lives.checkpoints()
        assert {path.name for path in there} >= set(made)
        manifests = [json.loads((path / "manifest.json").read_text()) for path in there]
        assert len({manifest["round"] for manifest in manifests}) == len(manifests)


def tables_that_go_on(ps: slotwise.Client) -> tuple[str, State]:
    """A training whose table ads goes back, in which a table was dropped, and one made anew under its name.

    Returns a checkpoint of its middle, and what the tables of then were.
    """
    training = Training()
    training.begin(ps)
    make(ps, "dropped", "anew")
    for table in ("dropped", "anew"):
        ps.push(table, [7], None, ONES)
    training.run(ps, 4)
    saved, then = ps.save(), state(ps)
    training.run(ps, 4)
    for table in ("dropped", "anew"):
        ps.drop_table(table)
    ps.create_table("anew", dim=8, optimizer=slotwise.SGD(lr=1.0))
    ps.push("anew", [7, 8], None, np.ones((2, 8), np.float32))
    return saved.id, then


@pytest.mark.parametrize("mode", SELDOM)
@pytest.mark.parametrize("ranks", [(1, 2), (2, 1)])
def test_some_tables_go_back_and_no_others(lives: Lives, ranks: tuple[int, int], mode: str) -> None:
    print("seed", SEED)
    end = kill if mode == "SYNC" else Cluster.stop
    with lives.live(ranks[0], mode, SELDOM[mode], end) as ps:
        id, then = tables_that_go_on(ps)
        now = state(ps)
        lineages = {name: ps.describe_table(name).lineage for name in now}
        before = ps.describe_session()
        loaded = ps.load(id, tables=["dropped", "ads"])
        assert not loaded.delta and ps.checkpoints()[0].id == loaded.id
        assert state(ps) == now | {name: then[name] for name in ("ads", "dropped")}
        assert ps.describe_table("ads").lineage != lineages["ads"]
        assert {ps.describe_table(name).lineage == lineages[name] for name in ("users", "anew")} == {True}
        # Names of steps are those of now, and of the table that is back; the session's next one is applied.
        tables = before.tables | {"dropped": 1}
        assert ps.describe_session() == dataclasses.replace(before, tables=tables)
        keys, gradients = np.array([7], np.uint64), np.ones((1, 16), np.float32)
        steps = ps.push_many({"ads": (np.repeat(keys, 2), None, gradients), "users": (keys, None, gradients)})
        assert steps == {"ads": then["ads"][1] + 1, "users": now["users"][1] + 1}
        # A table of its name makes room for the one that was dropped.
        ps.load(id, tables=["anew"])
        assert state(ps)["anew"] == then["anew"]
        make(ps, "new")
        assert ps.push("new", [8], None, ONES) == 1
        assert ps.push("anew", [8], None, ONES) == then["anew"][1] + 1
        before_end = state(ps)
    with lives.live(ranks[1], mode, SELDOM[mode], Cluster.stop) as ps:
        if mode != "NONE":
            assert state(ps) == before_end
        else:
            assert state(ps)["ads"][1] == then["ads"][1] + 1


def test_a_table_that_comes_back_knows_its_steps(lives: Lives) -> None:
    """The checkpoint's names of steps of a table that was dropped come back with the table."""
    with lives.live(2, end=Cluster.stop) as ps:
        make(ps, "ads")
        session = ps.new_session()
        kept, lost = session.next(), session.next()
        assert ps.push("ads", [1], None, ONES, step=kept) == 1
        id = ps.save().id
        assert ps.push("ads", [1], None, ONES, step=lost) == 2
        later = ps.save().id
        rows = ps.lookup("ads", [1])
        ps.load(id, tables=["ads"])
        # It was not dropped: its names of steps are those of now, and none is applied a second time.
        assert ps.push("ads", [1], None, ONES, step=lost) == 2
        assert ps.describe_table("ads").steps == 1
        ps.drop_table("ads")
        ps.load(id, tables=["ads"])
        assert ps.push("ads", [1], None, ONES, step=kept) == 1
        assert ps.describe_table("ads").steps == 1
        # A later state than the server's brings the names of its steps, too.
        ps.load(later, tables=["ads"])
        assert ps.describe_session(session).last_step == lost.number
        for step in (kept, lost):
            ps.push("ads", [1], None, ONES, step=step)
        assert ps.describe_table("ads").steps == 2
        np.testing.assert_array_equal(ps.lookup("ads", [1]), rows)
        assert ps.push("ads", [1], None, ONES, step=session.next()) == 3


def test_only_who_trains_a_table_that_went_back_hears_of_it(lives: Lives) -> None:
    with lives.live(2, end=Cluster.stop) as ps, connect(lives.cluster) as other:
        make(ps, "ads", "users")
        id = ps.save().id
        for client in (ps, other):
            for table in ("ads", "users"):
                client.push(table, [1], None, ONES)
        ps.load(id, tables=["ads"])
        assert ps.push("ads", [1], None, ONES) == 1
        assert ps.push("users", [1], None, ONES) == 3
        assert other.push("users", [1], None, ONES) == 4
        with pytest.raises(slotwise.DataLoss, match="table ads"):
            other.lookup("ads", [1])
        other.lookup("ads", [1])


def test_who_waits_for_parts_of_a_table_that_goes_back_hears_of_it(lives: Lives) -> None:
    with lives.live(2, end=Cluster.stop, config=METRICS + PATIENT) as ps:
        cluster = lives.cluster
        make(ps, "ads", "users")
        id = ps.save().id
        step = {"session": 5, "number": 1, "parts": 2}
        requests = [cluster.push_request(table, [1], ONES, step) for table in ("ads", "users")]
        goes, stays = map(cluster.begin_push, requests)
        wait_until(lambda: total(cluster, "slotwise_incomplete_steps") == 4, "both ranks know of both")
        ps.load(id, tables=["ads"])
        assert goes.code() == grpc.StatusCode.UNAVAILABLE
        assert "a checkpoint was loaded while the request waited" in goes.details()
        cluster.push(cluster.push_request("users", [1], ONES, step | {"part": 1}), rank=1)
        assert stays.result(timeout=60).table_step == 1


@pytest.mark.parametrize(
    ("tables", "error", "says"),
    [
        (["ads", "nowhere"], slotwise.NotFound, r'checkpoint .* has no table "nowhere"'),
        (["ads", "ads"], slotwise.InvalidArgument, "ads comes twice"),
        (["anew", "dropped"], slotwise.ResourceExhausted, "2 tables, beside which 2 stay, and limits"),
        ([], slotwise.InvalidArgument, "not a list of tables' names"),
        ("ads", slotwise.InvalidArgument, "not a list of tables' names"),
        (["a\0"], slotwise.InvalidArgument, "has a character 0"),
    ],
)
def test_tables_that_cannot_be_loaded_change_nothing(
    lives: Lives, tables: Sequence[str], error: type[slotwise.Error], says: str
) -> None:
    with lives.live(2, end=Cluster.stop, config=" limits { max_tables: 3 }") as ps:
        make(ps, "ads", "dropped", "anew")
        id = ps.save().id
        ps.drop_table("dropped")
        make(ps, "later")
        ps.push("ads", [1], None, ONES)
        before, listed = state(ps), ps.checkpoints()
        with pytest.raises(error, match=says):
            ps.load(id, tables=tables)
        assert state(ps) == before and ps.checkpoints() == listed


def kept_for_loads(ps: slotwise.Client) -> set[str]:
    assert all(checkpoint.usable for checkpoint in ps.checkpoints())
    return {checkpoint.id for checkpoint in ps.checkpoints() if checkpoint.kept_for_load}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("mode", ["NONE", "SYNC"])
def test_what_was_newest_before_a_load_stays(lives: Lives, mode: str, restart: bool) -> None:
    """Loads, and loads of what they made, take nothing away from a training, whatever `keep` says."""
    with contextlib.ExitStack() as life:
        ps = life.enter_context(lives.live(2, mode, "keep: 1", end=kill if restart else Cluster.stop))
        make(ps, "ads")
        ids = []
        for _ in range(2):
            ps.push("ads", [1], None, ONES)
            ids.append(ps.save().id)
            ps.pin_checkpoint(ids[-1])
        old, newest = ids
        ps.release_checkpoint(newest)
        then = state(ps)
        copies = [ps.load(old).id]
        assert kept_for_loads(ps) == {newest, old}
        ps.release_checkpoint(old)
        if restart:
            life.close()
            ps = life.enter_context(lives.live(1, mode, "keep: 1", end=Cluster.stop))
        for _ in range(3):
            copies.append(ps.load(copies[-1]).id)
            assert kept_for_loads(ps) == {newest, copies[-2]}
        ps.load(newest)
        assert state(ps) == then and kept_for_loads(ps) == {newest}
        # A training that goes on has another newest state.
        ps.push("ads", [1], None, ONES)
        other = ps.save().id
        ps.load(newest)
        assert kept_for_loads(ps) == {newest, other}
        ps.release_checkpoint(newest)
        ps.pin_checkpoint(other)
        assert kept_for_loads(ps) == {other}
        assert [each.id for each in ps.checkpoints() if each.pinned] == [other]
