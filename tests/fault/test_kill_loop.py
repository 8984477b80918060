"""What a server acknowledged is there after every crash; a disk that is full, fails or is damaged."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import slotwise
from crashing_server import CrashingServer
from journal_files import records_of
from judged_times import LONG_FORMS
from kill_run import KillRun, Options
from programs import output_of
from slotwise_cluster import wait_until

KEYS_A_PUSH, DIM = 1024, 512  # 2 MiB of gradients


# --- crashes

# Each seed is a data folder that lives through two crashes; half of the disks forget what was not synced.
@pytest.mark.parametrize("seed", range(1, 7 if LONG_FORMS else 4))
def test_a_crash_loses_nothing_acknowledged(seed: int, tmp_path: Path) -> None:
    run = KillRun(Options(seed, ranks=(1, 2), crashes=2, forget=seed % 2 == 0), tmp_path)
    run.go()
    assert run.found.acknowledged > 0
    assert sum(run.crashes.values()) >= 2


@pytest.mark.parametrize("seed", range(40, 42 if LONG_FORMS else 41))
def test_a_crash_loses_no_more_than_the_interval(seed: int, tmp_path: Path) -> None:
    run = KillRun(Options(seed, ranks=(1, 2), mode="interval", crashes=2, forget=seed % 2 == 0), tmp_path)
    run.go()
    assert run.found.acknowledged > 0
    assert run.found.longest_loss <= run.options.interval


# After a record was written, after it was synced, amid the rounds that come then, before a name is there,
# before a manifest and its checkpoint are.
@pytest.mark.parametrize(
    ("points", "power"),
    [
        (("after:pwritev:9", "amid:pwritev:12"), 0.0),  # the power fails only after the recovery
        (("after:fdatasync:9", "before:fdatasync:12"), 1.0),
        (("after:fdatasync:8:400", "before:pwritev:12"), 1.0),
        (("before:rename:1@lineage", "before:fsync:4"), 1.0),
        (("before:rename:1@manifest.json", "after:rename:1@checkpoints/0"), 1.0),
        (("before:rename:1@checkpoints/0", "before:unlink:1@journal"), 0.0),
    ],
    ids=["write", "sync", "apply", "name", "manifest", "checkpoint"],
)
def test_a_crash_at_named_points_loses_nothing_acknowledged(
    points: tuple[str, ...], power: float, tmp_path: Path
) -> None:
    run = KillRun(Options(20, ranks=(1, 2), kinds=points, forget=True, power=power), tmp_path)
    run.go()
    assert run.found.acknowledged > 0


def test_the_loop_says_what_it_found(tmp_path: Path) -> None:
    options = ["--runs", 1, "--seed", 30, "--ranks", 1, "--crashes", 1, "--work-folder", tmp_path]
    printed = output_of(sys.executable, Path(__file__).with_name("kill_loop"), *options, timeout=120)
    assert re.match(r"acknowledged [1-9]\d* lost 0 doubled 0\nseeds 30 to 30; \d+ crashes:\n", printed)


# --- disks

@pytest.fixture
def server(tmp_path: Path) -> Iterator[CrashingServer]:
    with CrashingServer(tmp_path, 2) as server:
        yield server


class Pusher:
    """Pushes steps of 2 MiB, each of which adds KEYS_A_PUSH to the row of its own number."""

    def __init__(self, server: CrashingServer, timeout: float = 20) -> None:
        self._client = slotwise.connect(*server.addresses, timeout=timeout)
        zeros = slotwise.Constant(0.0)
        self._client.create_table("big", dim=DIM, optimizer=slotwise.SGD(lr=1.0), initializer=zeros)
        self.acknowledged: list[int] = []

    def begin(self, number: int) -> slotwise.Future[int]:
        keys = np.full((KEYS_A_PUSH, 1), number, np.uint64)
        return self._client.push_async("big", keys, None, np.full((KEYS_A_PUSH, DIM), -1, np.float32))

    def push(self, number: int) -> None:
        self.begin(number).result()
        self.acknowledged.append(number)

    def has(self, numbers: range, train: bool = False) -> list[int]:
        """Returns which of the steps are applied, each once; asserts that none is more often."""
        values = self._client.lookup("big", np.array(numbers, np.uint64).reshape(-1, 1), train=train)
        assert set(np.unique(values)) <= {0, KEYS_A_PUSH}
        return [number for number, row in zip(numbers, values) if row.all()]

    def close(self) -> None:
        self._client.close()


def recovered(server: CrashingServer, ranks: int, numbers: range) -> list[int]:
    """Starts the server again; returns which of the steps it has."""
    assert server.start(ranks), server.log
    pusher = Pusher(server)
    has = pusher.has(numbers)
    pusher.close()
    return has


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_full_disk_refuses_pushes_and_serves_lookups(
    server: CrashingServer, ranks: int, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    assert server.start(ranks, {"SLOTWISE_FULL_WHILE": str(full)}), server.log
    # A refused push is tried again until its timeout.
    pusher = Pusher(server, timeout=6)
    pusher.push(1)
    full.touch()
    number = 1
    with pytest.raises(slotwise.ResourceExhausted) as refused:
        while number < 200:  # until the space is used up that was taken ahead
            number += 1
            pusher.push(number)
    assert "journal" in refused.value.message
    if ranks == 1:
        assert str(server.data / "journal" / "rank-0") in refused.value.message
    applied = [1, *pusher.acknowledged[1:]]
    for train in (False, True):
        assert pusher.has(range(1, number), train) == applied
    with pytest.raises(slotwise.ResourceExhausted):
        pusher.push(number)
    assert pusher.has(range(1, number + 1)) == applied

    pusher.close()
    full.unlink()
    pusher = Pusher(server)
    pusher.push(number)
    pusher.push(number + 1)
    pusher.close()
    server.kill_all()
    assert recovered(server, 1, range(1, number + 3)) == list(range(1, number + 2))


def test_an_error_of_a_sync_ends_the_server(server: CrashingServer) -> None:
    # EIO, behind those of the start, and of the marks that a slow machine's first pushes leave time for.
    assert server.start(1, {"SLOTWISE_FAIL_AT": "fdatasync:14:5"}), server.log
    pusher = Pusher(server)
    with pytest.raises(slotwise.Error):
        for number in range(1, 20):
            push = pusher.begin(number)
            wait_until(lambda: push.done() or server.ended, "an answer, or the end")
            if server.ended:
                pusher.close()
            push.result()
            pusher.acknowledged.append(number)
    assert server.exit_code() == 1
    critical = [line for line in server.log.splitlines() if " critical " in line]
    assert len(critical) == 1, server.log
    assert "cannot sync" in critical[0] and "Input/output error" in critical[0]
    assert str(server.data / "journal" / "rank-0") in critical[0]
    has = recovered(server, 1, range(1, 21))
    assert pusher.acknowledged and has[: len(pusher.acknowledged)] == pusher.acknowledged


def journal_of(server: CrashingServer, pushes: int) -> Path:
    """Has the server acknowledge pushes, kills it, and returns its journal."""
    assert server.start(1), server.log
    pusher = Pusher(server)
    for number in range(1, pushes + 1):
        pusher.push(number)
    pusher.close()
    server.kill_all()
    (journal,) = (server.data / "journal" / "rank-0").iterdir()
    return journal


def test_a_flipped_byte_in_a_journal_stops_the_start(server: CrashingServer) -> None:
    journal = journal_of(server, 4)
    record = records_of(journal)[2]
    whole = journal.read_bytes()
    for at in (record, record + 1000):  # in its header, in its body
        journal.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert not server.start(1)
        assert server.exit_code() == 1
        assert f"{journal} is damaged at byte {record}:" in server.log
        journal.write_bytes(whole)
    assert recovered(server, 2, range(1, 6)) == [1, 2, 3, 4]


def test_a_torn_tail_of_a_journal_is_cut_off(server: CrashingServer) -> None:
    journal = journal_of(server, 4)
    os.truncate(journal, records_of(journal)[-1] - 100)
    assert recovered(server, 2, range(1, 6)) == [1, 2, 3]


def test_a_journal_of_another_lineage_is_refused(server: CrashingServer, tmp_path: Path) -> None:
    own = journal_of(server, 1)
    other = CrashingServer(tmp_path / "other", 1)
    foreign = journal_of(other, 1)
    copy = own.with_name(foreign.name)
    shutil.copy(foreign, copy)
    assert not server.start(1)
    assert server.exit_code() == 1
    assert str(copy) in server.log and "lineage" in server.log
    copy.unlink()
    assert recovered(server, 1, range(1, 3)) == [1]
