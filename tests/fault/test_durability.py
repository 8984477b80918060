"""A server that is killed goes on from its data folder: checkpoints and journals, on any number of ranks."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import slotwise
from durable_training import SEED, Lives, State, Training, connect, damage_a_byte, durability, make, state
from hashes import buckets_of
from slotwise_cluster import STOP_TIMEOUT, Cluster, StartCluster, wait_until
from slotwise_wire import Protocol

ONES = np.ones((1, 4), np.float32)


@pytest.fixture
def lives(start_cluster: StartCluster, tmp_path: Path) -> Lives:
    return Lives(start_cluster, tmp_path / "data")


@pytest.mark.parametrize("ranks", [(1, 2), (2, 1), (2, 3)])
def test_a_killed_server_has_all_that_it_acknowledged(lives: Lives, ranks: tuple[int, int]) -> None:
    print("seed", SEED)
    training = Training()
    with lives.live(ranks[0]) as ps:
        training.begin(ps)
        training.run(ps, 10)
        make(ps, "gone")
        ps.push("gone", [1, 2], None, np.ones((2, 4), np.float32))
        ps.drop_table("gone")
        before = state(ps)
    with lives.live(ranks[1], end=Cluster.stop) as ps:
        assert state(ps) == before
        training.run(ps, 3)
        # No table gets the id of one that was dropped: steps of the old would be taken for those of the new.
        make(ps, "new")
        assert ps.push("new", [1], None, ONES) == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_that_comes_again_after_a_crash_is_applied_once(lives: Lives, ranks: int) -> None:
    keys, ones = [1, 2, 3], np.ones((3, 4), np.float32)
    with lives.live(ranks) as ps:
        make(ps, "ads")
        session = ps.new_session()
        steps = [session.next() for _ in range(5)]
        for step in steps:
            ps.push("ads", keys, None, ones, step=step)
        before = state(ps)
    with lives.live(3 - ranks, end=Cluster.stop) as ps:
        assert [ps.push("ads", keys, None, ones, step=step) for step in steps] == [1, 2, 3, 4, 5]
        assert state(ps) == before
        with pytest.raises(slotwise.FailedPrecondition, match="gradients or learning rate"):
            ps.push("ads", keys, None, 2 * ones, step=steps[2])
        assert ps.push("ads", keys, None, ones, step=session.next()) == 6


@pytest.mark.parametrize("ranks", [(1, 3), (2, 1)])
def test_checkpoints_are_made_while_steps_go_on(lives: Lives, ranks: tuple[int, int]) -> None:
    """Bases and deltas with a journal behind them: the state after a crash is that before it."""
    print("seed", SEED)
    training, often = Training(), "checkpoint_every_s: 1 max_deltas: 2 max_copy_on_write_mib: 1"
    with lives.live(ranks[0], more=often) as ps:
        training.begin(ps)
        training.run_until(ps, lambda: len(lives.checkpoints()) >= 5, "five checkpoints")
        before = state(ps)
    with lives.live(ranks[1], more=often) as ps:
        assert state(ps) == before
        training.run(ps, 3)
        before = state(ps)
    lives.end_with(before, 2)


def test_what_four_ranks_saved_is_loaded_on_any_number(lives: Lives) -> None:
    """A base and two deltas of four ranks, by themselves: without a journal."""
    training = Training()
    with lives.live(4, "NONE") as ps:
        training.begin(ps)
        session = ps.new_session()
        for delta in (False, True, True):
            training.run(ps, 4)
            named = session.next()
            number = ps.push("ads", [[1, 2]], None, np.ones((1, 16), np.float32), step=named)
            assert ps.save(delta=delta).delta == delta
        before = state(ps)
    for ranks in (1, 2, 3, 8):
        with lives.live(ranks, "NONE") as ps:
            assert state(ps) == before, f"on {ranks} ranks"
            again = ps.push("ads", [[1, 2]], None, np.ones((1, 16), np.float32), step=named)
            assert again == number, f"on {ranks} ranks"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture(scope="module")
def three_checkpoints(protocol: Protocol, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, State]:
    """The folder of a killed server, with three checkpoints and a journal, and what its tables were."""
    folder, training = tmp_path_factory.mktemp("three_checkpoints"), Training()
    lives = Lives(lambda *start: Cluster(start[0], folder / "cluster", protocol, start[1]), folder / "data")
    with lives.live(1, more="checkpoint_every_s: 1 max_deltas: 1 keep: 4") as ps:
        training.begin(ps)
        training.run_until(ps, lambda: len(lives.checkpoints()) >= 3, "three checkpoints")
        was = state(ps)
    return lives.data, was


@pytest.mark.parametrize("spoil", [damage_a_byte, cut, os.remove])
@pytest.mark.parametrize("file", ["manifest.json", "ledger.bin", "table-1/rank-0.rows.npy"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_its_journal(
    lives: Lives, three_checkpoints: tuple[Path, State], spoil: Callable[[Path], None], file: str
) -> None:
    shutil.copytree(three_checkpoints[0], lives.data)
    newest = lives.checkpoints()[-1]
    spoil(newest / file)
    lives.end_with(three_checkpoints[1], 2)
    said = lives.cluster.messages(0) + lives.cluster.messages(1)
    assert any(newest.name in line for line in said), said


def test_a_server_does_not_start_without_what_its_folder_had(lives: Lives) -> None:
    training = Training()
    with lives.live(1, "NONE", "checkpoint_every_s: 1") as ps:
        training.begin(ps)
        training.run_until(ps, lives.checkpoints, "a checkpoint")
    for path in lives.checkpoints():
        damage_a_byte(path / "table-1/rank-0.rows.npy")
    lives.refuses("rank-0.rows.npy")
    # A folder whose state is of another lineage than it says.
    shutil.rmtree(lives.data / "checkpoints")
    (lives.data / "checkpoints/x").mkdir(parents=True)
    (lives.data / "lineage").unlink()
    lives.refuses("has a folder checkpoints, which is not empty, and no file lineage")


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (["journal"], ["journal is not there"]),
        (["journal", "checkpoints"], ["journal is not there", "checkpoints is not there"]),
        (["journal/rank-0", "journal/rank-1"], ["journal has no files"]),
        ([], []),
    ],
)
def test_a_server_warns_of_what_its_folder_has_lost(lives: Lives, gone: list[str], said: list[str]) -> None:
    """It starts, as it has to with a restored backup, which has no journal."""
    data, training = lives.data, Training()
    with lives.live(2) as ps:
        training.begin(ps)
        ps.save()
        then = state(ps)
        training.run(ps, 1)
        now = state(ps)
        assert not [line for line in lives.cluster.messages(0) if "was used before" in line]
    for name in gone:
        shutil.rmtree(data / name)
        if name.startswith("journal/"):
            (data / name).mkdir()
    lives.end_with(now if not gone else {} if "checkpoints" in gone else then, 1)
    warnings = [line for line in lives.cluster.messages(0) if "was used before" in line]
    assert len(warnings) == len(said)
    for line, words in zip(warnings, said, strict=True):
        assert f"{data} was used before, and {data}/{words}" in line


def test_a_server_goes_back_to_an_older_checkpoint_only_if_told_to(lives: Lives, tmp_path: Path) -> None:
    """Without a journal behind it, the checkpoint before a damaged one lacks acknowledged updates."""
    training, often = Training(), "interval_s: 2 keep: 5"
    with lives.live(1, "INTERVAL", often) as ps:
        training.begin(ps)
        training.run_until(ps, lambda: len(lives.checkpoints()) >= 2, "two checkpoints")
    newest = lives.checkpoints()[-1]
    damage_a_byte(newest / "ledger.bin")
    lives.refuses(f"move {newest} away to go on without the updates since")
    newest.rename(tmp_path / "away")
    with lives.live(2, "INTERVAL", often, end=Cluster.stop) as ps:
        assert 0 < ps.describe_table("ads").steps


def test_a_clean_stop_keeps_all(lives: Lives) -> None:
    training, seldom = Training(), "interval_s: 3600"
    with lives.live(1, "INTERVAL", seldom, end=Cluster.stop) as ps:
        training.begin(ps)
        training.run(ps, 5)
        before = state(ps)
    lives.end_with(before, 2, "INTERVAL", seldom)


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_interval_bounds_what_a_crash_loses(lives: Lives, ranks: int) -> None:
    # A step was applied between the two times.
    sent: list[float] = []
    answered: list[float] = []
    with lives.live(ranks, "INTERVAL", "interval_s: 2") as ps:
        make(ps, "ads")
        while not answered or answered[-1] - answered[0] <= 5:
            sent.append(time.monotonic())
            ps.push("ads", [len(answered)], None, ONES)
            answered.append(time.monotonic())
    with lives.live(3 - ranks, "INTERVAL", "interval_s: 2", end=Cluster.stop) as ps:
        kept = ps.describe_table("ads").steps
    assert 0 < kept <= len(sent)
    lost = sent[-1] - answered[kept] if kept < len(sent) else 0.0  # at the least
    print(f"lost {len(sent) - kept} of {len(sent)} steps, of {lost:.2f} s")
    assert lost <= 2.0


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("mode", ["INTERVAL", "SYNC"])
def test_a_base_that_is_gone_is_replaced_while_steps_go_on(lives: Lives, ranks: int, mode: str) -> None:
    training, more = Training(), "interval_s: 2" if mode == "INTERVAL" else ""
    with lives.live(ranks, mode, more) as ps:
        training.begin(ps)
        training.run(ps, 3)
        ps.save()
        for path in lives.checkpoints():
            shutil.rmtree(path)
        training.run(ps, 1)
        ps.save(delta=True)  # an answer comes before it was read back
        # No call asks for it, and nothing changes.
        wait_until(lambda: any(listed.usable for listed in ps.checkpoints()[:1]), "a usable checkpoint")
        training.run(ps, 3)
        saved = ps.save(delta=True)
        assert next(listed for listed in ps.checkpoints() if listed.id == saved.id).usable
        before = state(ps)
        lives.cluster.await_messages("cannot be restored, so the next one is a base")
    lives.end_with(before, 3 - ranks, mode, more)


def test_a_server_of_another_folder_has_nothing(lives: Lives, start_cluster: StartCluster) -> None:
    with lives.live(1, end=Cluster.stop) as ps:
        make(ps, "ads")
        with connect(start_cluster(1, durability(lives.data.with_name("other")))) as other:
            assert other.list_tables() == []


def test_a_second_server_on_a_folder_does_not_start(lives: Lives) -> None:
    with lives.live(2, end=Cluster.stop) as ps:
        make(ps, "ads")
        held = f"{lives.data} is held by slotwise-server on "
        lives.refuses(held, f" pid {lives.cluster.pid(0)} since ")
        ps.push("ads", [1], None, ONES)


def ended(cluster: Cluster) -> None:
    """The end of a server that ends by itself."""
    assert cluster.process.wait(timeout=STOP_TIMEOUT) != 0


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("mode", ["SYNC", "NONE"])
def test_a_server_whose_lock_is_replaced_ends_before_it_acknowledges(
    lives: Lives, mode: str, ranks: int
) -> None:
    """Somebody removes the lock's file, so a second server starts on the folder."""
    lock = lives.data / "server.lock"
    with lives.live(ranks, mode, end=ended) as ps:
        make(ps, "ads")
        ps.push("ads", [1], None, ONES)
        lock.unlink()
        with lives.cluster.connect(-1, timeout=3.0) as hasty, pytest.raises(slotwise.Error):
            if mode == "SYNC":
                hasty.push("ads", [1], None, ONES)
            else:
                hasty.save()
    said = "\n".join(lives.cluster.messages(0))
    assert f"{lock} is not the file that this process has locked" in said, said
    with lives.live(3 - ranks, mode, end=Cluster.stop) as ps:
        assert [table.name for table in ps.list_tables()] == (["ads"] if mode == "SYNC" else [])


@pytest.mark.parametrize("mode", ["SYNC", "INTERVAL"])
def test_rounded_rows_take_no_acknowledged_values_place(lives: Lives, mode: str) -> None:
    """A restart would have taken those of a 16-bit checkpoint for the exact ones."""
    with lives.live(1, mode) as ps:
        make(ps, "ads")
        ps.push("ads", [1], None, np.full((1, 4), 1e30, np.float32))
        with pytest.raises(slotwise.FailedPrecondition, match="durability.rounded_checkpoints allows it"):
            ps.save(value_dtype="float16")
        ps.save()
        before = state(ps)
    with lives.live(2, mode, "rounded_checkpoints: true", end=Cluster.stop) as ps:
        assert state(ps) == before
        ps.save(value_dtype="float16")


def test_rows_of_16_bits_are_saved_in_their_own_type_as_they_are(lives: Lives) -> None:
    with lives.live(1) as ps:
        make(ps, "ads", row_dtype="float16", admission=slotwise.Frequency(2))
        ps.push("ads", [1, 1, 2], None, np.ones((3, 4), np.float32))
        ps.save(value_dtype="float16")
        with pytest.raises(slotwise.FailedPrecondition, match="rounded rows"):
            ps.save(value_dtype="bfloat16")
        make(ps, "more")
        with pytest.raises(slotwise.FailedPrecondition, match="rounded rows"):
            ps.save(value_dtype="float16")
        before = state(ps)
    with lives.live(2, end=Cluster.stop) as ps:
        assert state(ps) == before


@pytest.mark.parametrize("by", ["journal", "checkpoint"])
def test_rows_come_back_even_if_they_are_all_of_one_rank(lives: Lives, by: str) -> None:
    all_keys = np.arange(60000, dtype=np.uint64)
    of_first = all_keys[buckets_of(all_keys) < 1024]
    keys, more = of_first[:12000], of_first[12000:]
    assert len(more) > 0
    with lives.live(1) as ps:
        make(ps, "ads", max_rows=20000)
        ps.push("ads", keys, None, np.ones((len(keys), 4), np.float32))
        if by == "checkpoint":
            ps.save()
        before = state(ps)
    with lives.live(4, end=Cluster.stop) as ps:
        assert state(ps) == before
        ps.push("ads", keys[:5], None, np.ones((5, 4), np.float32))
        ps.lookup("ads", keys)
        with pytest.raises(slotwise.ResourceExhausted, match="limits.max_rank_percent allows a rank"):
            ps.lookup("ads", more[:1])
