"""A disk that is really full, with pages of the journal or of a checkpoint on it: a small tmpfs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import slotwise
from crashing_server import CrashingServer
from programs import output_of, run
from slotwise_cluster import wait_until

MIB = 1 << 20
DISK = 32  # MiB
REFUSED = (
    r"updates are refused, 1 of them in 0 s: the journal in (\S+) has no space: cannot take space for \S+: "
    r"No space left on device \(\d+ bytes were wanted\)"
)
GOES_ON = r"the journal goes on: it had no room for \d+ s, in which \d+ updates were refused"
ROWS, DIM = 2048, 512  # of 4 MiB


@pytest.fixture
def small(tmp_path: Path) -> Iterator[CrashingServer]:
    """A server whose data folder lies on a disk of DISK MiB, and is to be started."""
    server = CrashingServer(tmp_path, 2)
    disk = server.data.parent
    try:
        mounted = run("mount", "-t", "tmpfs", "-o", f"size={DISK}m", "tmpfs", disk)
        why_not = mounted.stderr.strip() if mounted.returncode else ""
    except OSError as error:
        why_not = str(error)
    if why_not:
        pytest.skip(f"no small disk can be had, which takes root: {why_not}")
    with server:
        yield server
    output_of("umount", disk)


def filler(server: CrashingServer, mib: int) -> Path:
    """Takes so much of the disk; space is there again once the file is removed."""
    path = server.data.parent / "filler"
    path.write_bytes(bytes(mib * MIB))
    return path


def make_table(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=DIM, optimizer=slotwise.SGD(lr=1.0), initializer=slotwise.Constant(0.0))


def push(ps: slotwise.Client, rows: int = ROWS) -> None:
    """Adds 1 to the first rows: 2 KiB each."""
    keys = np.arange(rows, dtype=np.uint64)
    ps.push("ads", keys, None, np.full((rows, DIM), -1, np.float32))


def value(ps: slotwise.Client) -> float:
    """What all rows hold: how many pushes there were."""
    values = ps.lookup("ads", np.arange(ROWS, dtype=np.uint64), train=False)
    assert (values == values[0, 0]).all()
    return float(values[0, 0])


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_disk_that_a_journal_fills_refuses_pushes_until_it_has_space(
    small: CrashingServer, ranks: int
) -> None:
    assert small.start(ranks), small.log
    # The server says when to try again, and a client waits for that until its timeout.
    with (
        slotwise.connect(*small.addresses, timeout=60) as ps,
        slotwise.connect(*small.addresses, timeout=4) as hasty,
    ):
        make_table(ps)
        taken = filler(small, DISK // 2)
        pushes = 0
        with pytest.raises(slotwise.ResourceExhausted) as refused:
            while pushes < 100:
                push(hasty)
                pushes += 1
        assert pushes > 0 and "journal" in refused.value.message
        assert refused.value.retry_after == 5
        assert value(ps) == pushes
        with ThreadPoolExecutor() as threads:
            patient = threads.submit(push, ps)
            with pytest.raises(slotwise.ResourceExhausted):
                push(hasty)
            assert value(ps) == pushes
            refusals = re.findall(REFUSED, small.log)
            assert refusals, small.log
            assert all(Path(folder).parent == small.data / "journal" for folder in refusals)
            assert len(set(refusals)) == len(refusals), "a rank says so once a minute"
            taken.unlink()
            patient.result(timeout=60)
        push(hasty)
        assert value(ps) == pushes + 2
        wait_until(lambda: len(re.findall(GOES_ON, small.log)) == len(refusals), "it says that it goes on")
    small.kill_all()
    assert small.start(3 - ranks), small.log
    with slotwise.connect(*small.addresses, timeout=60) as ps:
        assert value(ps) == pushes + 2


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("delta", [False, True], ids=["base", "delta"])
def test_a_disk_that_a_checkpoint_fills_fails_that_checkpoint_alone(
    small: CrashingServer, ranks: int, delta: bool
) -> None:
    small.mode = "none"
    assert small.start(ranks), small.log
    with slotwise.connect(*small.addresses, timeout=60) as ps:
        make_table(ps)
        push(ps)
        before = [ps.save().id] if delta else []
        push(ps)
        taken = filler(small, DISK - (7 if delta else 3))
        with pytest.raises(slotwise.ResourceExhausted) as refused:
            ps.save(delta=delta)
        assert str(small.data / "checkpoints") in refused.value.message
        assert "No space left" in refused.value.message
        assert [checkpoint.id for checkpoint in ps.checkpoints()] == before
        push(ps)
        assert value(ps) == 3
        taken.unlink()
        saved = ps.save(delta=delta)
        assert saved.delta == delta
        assert ps.verify(saved.id).bytes > 0
        assert sorted(path.name for path in (small.data / "checkpoints").iterdir()) == [*before, saved.id]
    small.kill_all()
    assert small.start(3 - ranks), small.log
    with slotwise.connect(*small.addresses, timeout=60) as ps:
        assert value(ps) == 3
