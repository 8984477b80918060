"""Checkpoints of a real server with a data folder: saving, listing, verifying, starting from them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_server import serving
from waiting import LIMIT, wait_until

import slotwise
from slotwise import checkpoint_files

_SEED = 20261122


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def kept(data: Path) -> Iterator[slotwise.Client]:
    """A client of a server of two ranks that keeps what is saved in `data`."""
    with serving(data=data) as ps:
        yield ps


def fill(ps: slotwise.Client, name: str = "ads", steps: int = 3, keys: int = 500, **options: Any) -> None:
    """Makes a table, if it is not there, and trains it."""
    options.setdefault("optimizer", slotwise.Adam(lr=0.05))
    ps.create_table(name, dim=4, **options)
    train(ps, name, steps, keys)


def train(ps: slotwise.Client, name: str = "ads", steps: int = 1, keys: int = 500) -> None:
    generator = np.random.default_rng(_SEED)
    for _ in range(steps):
        batch = generator.integers(0, 1 << 40, keys, dtype=np.uint64)
        values = ps.lookup(name, batch)
        ps.push(name, batch, None, values + 1)


def digests(ps: slotwise.Client) -> dict[str, slotwise.TableDigest]:
    return {table.name: ps.digest(table.name) for table in ps.list_tables()}


def folder_of(data: Path, id: str) -> Path:
    return data / "checkpoints" / id


def test_a_server_without_a_folder_and_wrong_arguments_are_refused(ps: slotwise.Client) -> None:
    for call in (ps.save, ps.checkpoints, lambda: ps.verify("a"), lambda: ps.describe_checkpoint("a")):
        with pytest.raises(slotwise.FailedPrecondition, match="without a data folder"):
            call()
    with pytest.raises(slotwise.InvalidArgument, match="value_dtype is 'int8'"):
        ps.save(value_dtype="int8")
    with pytest.raises(slotwise.InvalidArgument, match="timeout is 0"):
        ps.save(timeout=0)
    for mode in ("interval", "sync"):
        with pytest.raises(slotwise.InvalidArgument, match=f'"{mode}", which needs a folder'):
            slotwise.serve(durability=mode)
    with pytest.raises(slotwise.InvalidArgument, match='durability is "often"'):
        slotwise.serve(durability="often", data="x")


def test_what_was_saved_is_listed_and_verified(kept: slotwise.Client, data: Path) -> None:
    assert kept.checkpoints() == []
    fill(kept)
    rows = kept.describe_table("ads").rows
    base = kept.save()
    assert (base.delta, base.rows) == (False, rows) and base.bytes > rows * 4 * 12
    train(kept, keys=7)
    delta = kept.save(delta=True)
    assert (delta.delta, delta.rows) == (True, 7)

    newest, first = kept.checkpoints()
    assert (newest.id, newest.parent, newest.delta, newest.usable) == (delta.id, base.id, True, True)
    assert newest.tables == {"ads": 7} and newest.ranks == 2 and newest.round == delta.round
    assert (first.id, first.parent, first.rows, first.bytes) == (base.id, "", rows, base.bytes)
    assert abs(first.created - time.time()) < LIMIT

    details = kept.describe_checkpoint(delta.id)
    assert details.chain == (base.id, delta.id) and details.checkpoint == newest
    assert Path(details.folder) == folder_of(data, delta.id)
    assert [table["options"]["name"] for table in details.manifest["tables"]] == ["ads"]
    assert (details.manifest["round"], details.manifest["parent"]["id"]) == (newest.round, base.id)

    verified = kept.verify(delta.id)
    assert verified.chain == (base.id, delta.id)
    assert verified.bytes == base.bytes + delta.bytes
    with pytest.raises(slotwise.NotFound, match="nowhere"):
        kept.verify("nowhere")


def test_training_goes_on_while_a_checkpoint_is_written(kept: slotwise.Client, data: Path) -> None:
    """Rows never change but by a whole step, so a checkpoint has equal rows: those of one step."""
    keys = np.arange(2000, dtype=np.uint64)
    kept.create_table("sum", dim=8, optimizer=slotwise.SGD(lr=1.0), initializer=slotwise.Constant(0.0))
    ones = np.ones((len(keys), 8), np.float32)
    end = threading.Event()

    def push() -> int:
        steps = 0
        while not end.is_set() or steps < 5:
            kept.push("sum", keys, None, -ones)
            steps += 1
        return steps

    with ThreadPoolExecutor() as pool:
        steps = pool.submit(push)
        try:
            ids = [kept.save(delta=i % 2 == 1).id for i in range(4)]
        finally:
            end.set()
        assert steps.result() >= 5
    counts = []
    for id in ids:
        if not folder_of(data, id).exists():
            continue  # newer ones are kept
        table = checkpoint_files.open(folder_of(data, id))["sum"]
        rows = table.read()
        counts.append(table.info.steps)
        if table.info.steps:
            np.testing.assert_array_equal(rows.keys, keys)
            np.testing.assert_array_equal(rows.values, np.full((2000, 8), table.info.steps))
    assert counts == sorted(counts) and counts


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_goes_on_from_it(data: Path, ranks: int) -> None:
    with serving(data=data) as ps:
        fill(ps)
        fill(ps, "users", optimizer=slotwise.RowWiseAdaGrad(lr=0.1), seed=3)
        ps.save()
        train(ps, "ads", keys=50)
        ps.erase("users", np.asarray(next(ps.export_rows("users")).keys[:20]))
        ps.save(delta=True)
        before = digests(ps)
        train(ps, "users", 2)  # is lost: nothing has saved it
    with serving(ranks, data=data) as ps:
        assert digests(ps) == before
        train(ps)
        assert ps.save(delta=True).delta


def test_a_damaged_file_is_named(kept: slotwise.Client, data: Path) -> None:
    fill(kept)
    base = kept.save()
    train(kept)
    delta = kept.save(delta=True)
    rows = folder_of(data, base.id) / "table-1" / "rank-1.rows.npy"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    for id in (base.id, delta.id):
        with pytest.raises(slotwise.DataLoss, match=f"{rows}"):
            kept.verify(id)
    rows.write_bytes(whole[:-1])
    assert [checkpoint.usable for checkpoint in kept.checkpoints()] == [False, False]
    assert f"{rows} has {len(whole) - 1} bytes, not {len(whole)}" in kept.checkpoints()[0].why_not
    with pytest.raises(slotwise.DataLoss, match="rank-1.rows.npy has"):
        list(checkpoint_files.open(folder_of(data, delta.id))["ads"].chunks())
    rows.write_bytes(whole)
    assert kept.verify(delta.id).chain == (base.id, delta.id)
    path = folder_of(data, delta.id) / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"ranks": 2', b'"ranks": 3'))
    (broken,) = (each for each in kept.checkpoints() if not each.usable)
    assert broken.id == delta.id and "is damaged" in broken.why_not
    for call in (kept.verify, kept.describe_checkpoint):
        with pytest.raises(slotwise.DataLoss, match="manifest.json is damaged"):
            call(delta.id)


def test_the_rank_that_cannot_write_is_named(kept: slotwise.Client, data: Path) -> None:
    fill(kept)
    # A checkpoint's id is its round and the server's start: in the next rounds, something is in rank 1's way.
    start = kept.topology().incarnation
    for round in range(100):
        name = f".{round:012}-{start:016x}.partial"
        (data / "checkpoints" / name / "table-1" / "rank-1.rows.npy").mkdir(parents=True)
    with pytest.raises(slotwise.Error, match="could not be written: rank 1: .*rank-1.rows.npy") as failed:
        kept.save()
    assert failed.value.code == slotwise.StatusCode.INTERNAL
    assert kept.checkpoints() == []
    train(kept)  # goes on


def test_a_table_that_is_dropped_meanwhile(data: Path) -> None:
    with serving(data=data) as ps:
        fill(ps)
        kept = ps.digest("ads")
        with ThreadPoolExecutor() as pool:
            for _ in range(4):
                fill(ps, "gone", keys=20000, steps=1)
                before = len(ps.checkpoints())
                saving = pool.submit(ps.save)
                while (path := data / "checkpoints").exists() and len(list(path.iterdir())) == before:
                    if saving.done():
                        break  # it was too fast to be seen
                ps.drop_table("gone")
                made = saving.result()
                assert ps.verify(made.id).bytes == made.bytes
        last = ps.save(delta=True)
        assert checkpoint_files.open(folder_of(data, last.id)).keys() == {"ads"}
    with serving(1, data=data) as ps:
        assert digests(ps) == {"ads": kept}


def test_sync_keeps_what_no_checkpoint_has(data: Path) -> None:
    with serving(data=data, durability="sync") as ps:
        fill(ps)
        ps.save()
        train(ps)
        before = digests(ps)
    with serving(1, data=data, durability="sync") as ps:
        assert digests(ps) == before


def test_interval_makes_checkpoints_by_itself(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "server.pbtxt"
    config.write_text("durability { interval_s: 1 }")
    with serving(1, data=data, durability="interval", config=config) as ps:
        fill(ps)
        before = digests(ps)
        wait_until(ps.checkpoints, "a checkpoint")
    with serving(data=data, durability="interval", config=config) as ps:
        assert digests(ps) == before


def test_saving_waits_no_longer_than_its_timeout(kept: slotwise.Client) -> None:
    fill(kept, keys=20000, steps=1)
    begin = time.monotonic()
    # On a busy machine, one or two of them are over before the server has heard of a save.
    for attempt, timeout in enumerate((0.001, 0.002, 0.004, 0.008, 0.016)):
        try:
            kept.save(timeout=timeout)
        except slotwise.DeadlineExceeded:
            pass
        while not kept.checkpoints() and time.monotonic() < begin + 10 * (attempt + 1):
            time.sleep(0.01)
        if kept.checkpoints():
            break  # it went on
    assert kept.checkpoints()[0].usable
