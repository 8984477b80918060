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
from slotwise_cluster import STOP_TIMEOUT, Cluster, StartCluster, run_server, wait_until
from slotwise_wire import Protocol


@pytest.mark.parametrize("ranks", [(1, 2), (2, 1), (2, 3)])
def test_a_killed_server_has_all_that_it_acknowledged(
    start_cluster: StartCluster, tmp_path: Path, ranks: tuple[int, int]
) -> None:
    print("seed", SEED)
    data, training = tmp_path / "data", Training()
    first = start_cluster(ranks[0], durability(data))
    with connect(first) as ps:
        training.begin(ps)
        training.run(ps, 10)
        ps.create_table("gone", dim=4, optimizer=slotwise.SGD(lr=1.0))
        ps.push("gone", [1, 2], None, np.ones((2, 4), np.float32))
        ps.drop_table("gone")
        before = state(ps)
    kill(first)
    second = start_cluster(ranks[1], durability(data))
    with connect(second) as ps:
        assert state(ps) == before
        training.run(ps, 3)
        # No table gets the id of one that was dropped: steps of the old would be taken for those of the new.
        ps.create_table("new", dim=4, optimizer=slotwise.SGD(lr=1.0))
        assert ps.push("new", [1], None, np.ones((1, 4), np.float32)) == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_that_comes_again_after_a_crash_is_applied_once(
    start_cluster: StartCluster, tmp_path: Path, ranks: int
) -> None:
    data = tmp_path / "data"
    ones = np.ones((3, 4), np.float32)
    first = start_cluster(ranks, durability(data))
    with connect(first) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))
        session = ps.new_session()
        steps = [session.next() for _ in range(5)]
        for step in steps:
            ps.push("ads", [1, 2, 3], None, ones, step=step)
        before = state(ps)
    kill(first)
    second = start_cluster(3 - ranks, durability(data))
    with connect(second) as ps:
        assert [ps.push("ads", [1, 2, 3], None, ones, step=step) for step in steps] == [1, 2, 3, 4, 5]
        assert state(ps) == before
        with pytest.raises(slotwise.FailedPrecondition, match="gradients or learning rate"):
            ps.push("ads", [1, 2, 3], None, 2 * ones, step=steps[2])
        assert ps.push("ads", [1, 2, 3], None, ones, step=session.next()) == 6


@pytest.mark.parametrize("ranks", [(1, 3), (2, 1)])
def test_checkpoints_are_made_while_steps_go_on(
    start_cluster: StartCluster, tmp_path: Path, ranks: tuple[int, int]
) -> None:
    """Bases and deltas with a journal behind them: the state after a crash is that before it."""
    print("seed", SEED)
    data, training = tmp_path / "data", Training()
    config = durability(data, more="checkpoint_every_s: 1 max_deltas: 2 max_preimage_mib: 1")
    first = start_cluster(ranks[0], config)
    with connect(first) as ps:
        training.begin(ps)

        def five_checkpoints() -> bool:
            training.step(ps)
            return len(checkpoints(data)) >= 5

        wait_until(five_checkpoints, "five checkpoints")
        before = state(ps)
    kill(first)
    second = start_cluster(ranks[1], config)
    with connect(second) as ps:
        assert state(ps) == before
        training.run(ps, 3)
        before = state(ps)
    kill(second)
    with connect(start_cluster(2, durability(data))) as ps:
        assert state(ps) == before


def test_what_four_ranks_saved_is_loaded_on_any_number(start_cluster: StartCluster, tmp_path: Path) -> None:
    """A base and two deltas of four ranks, by themselves: without a journal."""
    data, training = tmp_path / "data", Training()
    first = start_cluster(4, durability(data, "NONE"))
    with connect(first) as ps:
        training.begin(ps)
        session = ps.new_session()
        for delta in (False, True, True):
            training.run(ps, 4)
            named = session.next()
            number = ps.push("ads", [[1, 2]], None, np.ones((1, 16), np.float32), step=named)
            assert ps.save(delta=delta).delta == delta
        before = state(ps)
    kill(first)
    for ranks in (1, 2, 3, 8):
        loaded = start_cluster(ranks, durability(data, "NONE"))
        with connect(loaded) as ps:
            assert state(ps) == before, f"on {ranks} ranks"
            again = ps.push("ads", [[1, 2]], None, np.ones((1, 16), np.float32), step=named)
            assert again == number, f"on {ranks} ranks"
        kill(loaded)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture(scope="module")
def three_checkpoints(protocol: Protocol, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, State]:
    """The folder of a killed server, with three checkpoints and a journal, and what its tables were."""
    folder, training = tmp_path_factory.mktemp("three_checkpoints"), Training()
    data = folder / "data"
    config = durability(data, more="checkpoint_every_s: 1 max_deltas: 1 keep: 4")
    cluster = Cluster(1, folder / "cluster", protocol, config)
    with connect(cluster) as ps:
        training.begin(ps)

        def there_are_three() -> bool:
            training.step(ps)
            return len(checkpoints(data)) >= 3

        wait_until(there_are_three, "three checkpoints")
        was = state(ps)
    kill(cluster)
    return data, was


@pytest.mark.parametrize("spoil", [damage_a_byte, cut, os.remove])
@pytest.mark.parametrize("file", ["manifest.json", "ledger.bin", "table-1/rank-0.rows.npy"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_its_journal(
    start_cluster: StartCluster,
    three_checkpoints: tuple[Path, State],
    tmp_path: Path,
    spoil: Callable[[Path], None],
    file: str,
) -> None:
    data = shutil.copytree(three_checkpoints[0], tmp_path / "data")
    newest = checkpoints(data)[-1]
    spoil(newest / file)
    second = start_cluster(2, durability(data))
    with connect(second) as ps:
        assert state(ps) == three_checkpoints[1]
    said = second.messages(0) + second.messages(1)
    assert any(newest.name in line for line in said), said


def test_a_server_does_not_start_without_what_its_folder_had(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    data, training = tmp_path / "data", Training()
    first = start_cluster(1, durability(data, "NONE", "checkpoint_every_s: 1"))
    with connect(first) as ps:
        training.begin(ps)

        def a_checkpoint() -> bool:
            training.step(ps)
            return bool(checkpoints(data))

        wait_until(a_checkpoint, "a checkpoint")
    kill(first)
    for path in checkpoints(data):
        damage_a_byte(path / "table-1" / "rank-0.rows.npy")
    arguments = ["--backend", "cpu", "--listen", "127.0.0.1:0", "--data", str(data)]
    ended = run_server(*arguments)
    assert ended.returncode == 1
    assert "rank-0.rows.npy" in ended.stderr, ended.stderr
    # A folder whose state is of another lineage than it says.
    shutil.rmtree(data / "checkpoints")
    (data / "checkpoints" / "x").mkdir(parents=True)
    (data / "lineage").unlink()
    ended = run_server(*arguments)
    assert ended.returncode == 1
    assert "has a folder checkpoints, which is not empty, and no file lineage" in ended.stderr, ended.stderr


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (["journal"], ["journal is not there"]),
        (["journal", "checkpoints"], ["journal is not there", "checkpoints is not there"]),
        (["journal/rank-0", "journal/rank-1"], ["journal has no files"]),
        ([], []),
    ],
)
def test_a_server_warns_of_what_its_folder_has_lost(
    start_cluster: StartCluster, tmp_path: Path, gone: list[str], said: list[str]
) -> None:
    """It starts, as it has to with a restored backup, which has no journal."""
    data, training = tmp_path / "data", Training()
    first = start_cluster(2, durability(data))
    with connect(first) as ps:
        training.begin(ps)
        ps.save()
        then = state(ps)
        training.run(ps, 1)
        now = state(ps)
    assert not [line for line in first.messages(0) if "was used before" in line]
    kill(first)
    for name in gone:
        shutil.rmtree(data / name)
        if name.startswith("journal/"):
            (data / name).mkdir()
    second = start_cluster(1, durability(data))
    with connect(second) as ps:
        assert state(ps) == (now if not gone else {} if "checkpoints" in gone else then)
    warnings = [line for line in second.messages(0) if "was used before" in line]
    assert len(warnings) == len(said)
    for line, words in zip(warnings, said, strict=True):
        assert f"{data} was used before, and {data}/{words}" in line


def test_a_server_goes_back_to_an_older_checkpoint_only_if_told_to(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    """Without a journal behind it, the checkpoint before a damaged one lacks acknowledged updates."""
    data, training = tmp_path / "data", Training()
    config = durability(data, "INTERVAL", "interval_s: 2 keep: 5")
    first = start_cluster(1, config)
    with connect(first) as ps:
        training.begin(ps)

        def two_checkpoints() -> bool:
            training.step(ps)
            return len(checkpoints(data)) >= 2

        wait_until(two_checkpoints, "two checkpoints")
    kill(first)
    newest = checkpoints(data)[-1]
    damage_a_byte(newest / "ledger.bin")
    ended = run_server("--backend", "cpu", "--listen", "127.0.0.1:0", "--data", str(data))
    assert ended.returncode == 1
    assert f"move {newest} away to go on without the updates since" in ended.stderr, ended.stderr
    newest.rename(tmp_path / "away")
    with connect(start_cluster(2, config)) as ps:
        assert 0 < ps.describe_table("ads").steps


def test_a_clean_stop_keeps_all(start_cluster: StartCluster, tmp_path: Path) -> None:
    data, training = tmp_path / "data", Training()
    config = durability(data, "INTERVAL", "interval_s: 3600")
    first = start_cluster(1, config)
    with connect(first) as ps:
        training.begin(ps)
        training.run(ps, 5)
        before = state(ps)
    first.stop()
    with connect(start_cluster(2, config)) as ps:
        assert state(ps) == before


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_interval_bounds_what_a_crash_loses(
    start_cluster: StartCluster, tmp_path: Path, ranks: int
) -> None:
    data = tmp_path / "data"
    first = start_cluster(ranks, durability(data, "INTERVAL", "interval_s: 2"))
    # A step was applied between the two times.
    sent: list[float] = []
    answered: list[float] = []
    with connect(first) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))

        def five_seconds() -> bool:
            for _ in range(5):
                sent.append(time.monotonic())
                ps.push("ads", [len(answered)], None, np.ones((1, 4), np.float32))
                answered.append(time.monotonic())
            return answered[-1] - answered[0] > 5

        wait_until(five_seconds, "five seconds of steps")
    kill(first)
    with connect(start_cluster(3 - ranks, durability(data, "INTERVAL", "interval_s: 2"))) as ps:
        kept = ps.describe_table("ads").steps
    assert 0 < kept <= len(sent)
    lost = sent[-1] - answered[kept] if kept < len(sent) else 0.0  # at the least
    print(f"lost {len(sent) - kept} of {len(sent)} steps, of {lost:.2f} s")
    assert lost <= 2.0


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("mode", ["INTERVAL", "SYNC"])
def test_a_base_that_is_gone_is_replaced_while_steps_go_on(
    start_cluster: StartCluster, tmp_path: Path, ranks: int, mode: str
) -> None:
    data, training = tmp_path / "data", Training()
    config = durability(data, mode, "interval_s: 2" if mode == "INTERVAL" else "")
    first = start_cluster(ranks, config)
    with connect(first) as ps:
        training.begin(ps)
        training.run(ps, 3)
        ps.save()
        for path in checkpoints(data):
            shutil.rmtree(path)
        training.run(ps, 1)
        ps.save(delta=True)  # an answer comes before it was read back

        def usable() -> bool:
            listed = ps.checkpoints()
            return bool(listed) and listed[0].usable

        wait_until(usable, "a usable checkpoint")  # nobody asks for it, and nothing changes
        training.run(ps, 3)
        saved = ps.save(delta=True)
        assert next(listed for listed in ps.checkpoints() if listed.id == saved.id).usable
        before = state(ps)
    first.await_messages("cannot be restored, so the next one is a base")
    kill(first)
    with connect(start_cluster(3 - ranks, config)) as ps:
        assert state(ps) == before


def test_a_server_of_another_folder_has_nothing(start_cluster: StartCluster, tmp_path: Path) -> None:
    with connect(start_cluster(1, durability(tmp_path / "one"))) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))
    with connect(start_cluster(1, durability(tmp_path / "other"))) as ps:
        assert ps.list_tables() == []


def test_a_second_server_on_a_folder_does_not_start(start_cluster: StartCluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = start_cluster(2, durability(data))
    with connect(first) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))
        ended = run_server("--backend", "cpu", "--listen", "127.0.0.1:0", "--data", str(data))
        assert ended.returncode == 1
        assert f"{data} is held by slotwise-server on " in ended.stderr, ended.stderr
        assert f" pid {first.pid(0)} since " in ended.stderr, ended.stderr
        ps.push("ads", [1], None, np.ones((1, 4), np.float32))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("mode", ["SYNC", "NONE"])
def test_a_server_whose_lock_is_replaced_ends_before_it_acknowledges(
    start_cluster: StartCluster, tmp_path: Path, mode: str, ranks: int
) -> None:
    """Somebody removes the lock's file, so a second server starts on the folder."""
    data = tmp_path / "data"
    first = start_cluster(ranks, durability(data, mode))
    with connect(first) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))
        ps.push("ads", [1], None, np.ones((1, 4), np.float32))
        (data / "server.lock").unlink()
        with slotwise.connect(first.ranks[-1].address, timeout=3.0) as hasty, pytest.raises(slotwise.Error):
            if mode == "SYNC":
                hasty.push("ads", [1], None, np.ones((1, 4), np.float32))
            else:
                hasty.save()
        assert first.process.wait(timeout=STOP_TIMEOUT) != 0
    said = "\n".join(first.messages(0))
    assert f"{data}/server.lock is not the file that this process has locked" in said, said
    with connect(start_cluster(3 - ranks, durability(data, mode))) as ps:
        assert [table.name for table in ps.list_tables()] == (["ads"] if mode == "SYNC" else [])


@pytest.mark.parametrize("mode", ["SYNC", "INTERVAL"])
def test_rounded_rows_take_no_acknowledged_values_place(
    start_cluster: StartCluster, tmp_path: Path, mode: str
) -> None:
    """A restart would have taken those of a 16-bit checkpoint for the exact ones."""
    data = tmp_path / "data"
    first = start_cluster(1, durability(data, mode))
    with connect(first) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))
        ps.push("ads", [1], None, np.full((1, 4), 1e30, np.float32))
        with pytest.raises(slotwise.FailedPrecondition, match="durability.rounded_checkpoints allows it"):
            ps.save(value_dtype="float16")
        ps.save()
        before = state(ps)
    kill(first)
    config = durability(data, mode, "rounded_checkpoints: true")
    with connect(start_cluster(2, config)) as ps:
        assert state(ps) == before
        ps.save(value_dtype="float16")


def bucket(key: int) -> int:
    """docs/semantics.md: the bucket of a key, of 4096."""
    mask = 2**64 - 1
    key ^= key >> 33
    key = key * 0xFF51AFD7ED558CCD & mask
    key ^= key >> 33
    key = key * 0xC4CEB9FE1A85EC53 & mask
    return (key ^ key >> 33) >> 52


@pytest.mark.parametrize("by", ["journal", "checkpoint"])
def test_rows_come_back_even_if_they_are_all_of_one_rank(
    start_cluster: StartCluster, tmp_path: Path, by: str
) -> None:
    data = tmp_path / "data"
    of_first = [key for key in range(60000) if bucket(key) < 1024]
    keys, more = of_first[:12000], of_first[12000:]
    assert len(more) > 0
    first = start_cluster(1, durability(data))
    with connect(first) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0), max_rows=20000)
        ps.push("ads", keys, None, np.ones((len(keys), 4), np.float32))
        if by == "checkpoint":
            ps.save()
        before = state(ps)
    kill(first)
    with connect(start_cluster(4, durability(data))) as ps:
        assert state(ps) == before
        ps.push("ads", keys[:5], None, np.ones((5, 4), np.float32))
        ps.lookup("ads", keys)
        with pytest.raises(slotwise.ResourceExhausted, match="limits.max_rank_percent allows a rank"):
            ps.lookup("ads", more[:1])
