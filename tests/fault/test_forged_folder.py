"""A server's data folder as somebody left it who can write there.

What no server writes is refused by its name, or skipped at once, and nothing that was acknowledged is lost
without a word.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import slotwise
from crashing_server import CrashingServer
from journal_files import RECORD_HEADER, records_of
from launched import Launched
from slotwise_cluster import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CrashingServer]:
    with CrashingServer(tmp_path, 2) as server:
        yield server


def push(ps: slotwise.Client, steps: int) -> int:
    """Pushes so many steps, and returns which step of the table the last was."""
    ones = np.ones((3, 4), np.float32)
    return [ps.push("ads", [1, 2, 3], None, ones) for _ in range(steps)][-1]


def train(server: CrashingServer, ranks: int, steps: int = 5) -> None:
    """Makes a table and pushes to it; the server goes on."""
    assert server.start(ranks), server.log
    with slotwise.connect(*server.addresses) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))
        assert push(ps, steps) == steps


def steps(server: CrashingServer) -> int:
    with slotwise.connect(*server.addresses) as ps:
        return ps.describe_table("ads").steps


def segments(server: CrashingServer, rank: int = 0) -> list[Path]:
    return sorted((server.data / "journal" / f"rank-{rank}").glob("*.journal"))


def last_record(path: Path) -> int:
    """Where the last record of a segment begins."""
    return records_of(path)[-2]


def is_marked(path: Path) -> bool:
    """Whether the file says of its last record that all ranks had it on disk."""
    end = records_of(path)[-1]
    return path.read_bytes()[end : end + 4] == b"SLWM"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[last_record(path) + RECORD_HEADER] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, last_record(path))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("damage", [flip, cut])
def test_the_last_acknowledged_step_is_not_lost_without_a_word(
    server: CrashingServer, ranks: int, damage: Callable[[Path], None]
) -> None:
    """No record comes behind it that would say that it was on disk: a mark says so, or another rank's."""
    train(server, ranks)
    newest = [segments(server, rank)[-1] for rank in range(ranks)]
    wait_until(lambda: all(is_marked(path) for path in newest), "marks")
    server.kill_all()
    whole = newest[-1].read_bytes()
    damage(newest[-1])
    started = server.start(ranks)
    if ranks == 1 and damage is cut:  # docs/durability.md: with the mark, all that said so is gone
        assert started and steps(server) == 4
        return
    assert not started
    assert str(newest[-1]) in server.log, server.log
    newest[-1].write_bytes(whole)  # a person brings it back
    assert server.start(ranks), server.log
    assert steps(server) == 5


def test_what_looks_torn_is_said(server: CrashingServer) -> None:
    """Nothing tells a record that a crash tore from one that the disk has damaged, so the log names both."""
    train(server, 1)
    (path,) = segments(server)
    wait_until(lambda: is_marked(path), "a mark")
    server.kill_all()
    data = bytearray(path.read_bytes())
    at = last_record(path)
    data[at + RECORD_HEADER] ^= 1
    end = data.index(b"SLWM", at)
    data[end : end + RECORD_HEADER] = bytes(RECORD_HEADER)
    path.write_bytes(data)
    assert server.start(1), server.log
    assert f"the journal's file {path} ends at byte {at} with round " in server.log, server.log
    assert "whose body does not have its checksum" in server.log
    assert steps(server) == 4


def test_a_journals_file_of_a_terabyte_is_refused_by_its_size(server: CrashingServer) -> None:
    train(server, 1)
    server.kill_all()
    path = segments(server)[-1]
    size = path.stat().st_size
    os.truncate(path, 1 << 40)
    assert not server.start(1)
    assert f"{path} has {1 << 40} bytes" in server.log, server.log
    os.truncate(path, size)
    assert server.start(1), server.log
    assert steps(server) == 5


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_twenty_thousand_files_without_a_header_are_skipped(server: CrashingServer, size: int) -> None:
    train(server, 1)
    server.kill_all()
    folder = server.data / "journal" / "rank-0"
    for number in range(20_000):
        path = folder / f"{number:020d}-{0xABCD_0000 + number:016x}.journal"
        with open(path, "wb") as file:
            file.truncate(size)
    assert server.start(1), server.log  # or it takes longer than `start` waits
    assert steps(server) == 5


class Planted:
    """A symbolic link in the place of a file, to something outside of the folder."""

    def __init__(self, link: Path, kind: str, outside: Path) -> None:
        outside.mkdir()
        self._kind, self._target = kind, outside / "target"
        if kind == "file":
            self._target.write_bytes(b"somebody's")
        elif kind == "folder":
            self._target.mkdir()
        link.symlink_to(self._target)

    def check(self) -> None:
        """Checks that nothing was written through the link."""
        if self._kind == "file":
            assert self._target.read_bytes() == b"somebody's"
        elif self._kind == "folder":
            assert not list(self._target.iterdir())
        else:
            assert not self._target.exists()


KINDS = ["file", "dangling", "folder"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_that_is_a_link_is_refused(server: CrashingServer, tmp_path: Path, kind: str) -> None:
    server.data.mkdir()
    planted = Planted(server.data / "server.lock", kind, tmp_path / "outside")
    assert not server.start(1)
    assert f"{server.data}/server.lock: it is a symbolic link" in server.log, server.log
    planted.check()
    (server.data / "server.lock").unlink()
    assert server.start(1), server.log


@pytest.mark.parametrize("kind", KINDS)
def test_a_journals_file_that_is_a_link_is_refused(
    server: CrashingServer, tmp_path: Path, kind: str
) -> None:
    """Also one to what was there: recovery writes the last records again."""
    train(server, 1)
    server.kill_all()
    (path,) = segments(server)
    moved = tmp_path / "moved"
    path.rename(moved)
    if kind == "file":
        path.symlink_to(moved)
        before = moved.read_bytes(), moved.stat().st_mtime_ns
        assert not server.start(1)
        assert f"{path}: it is a symbolic link" in server.log, server.log
        assert (moved.read_bytes(), moved.stat().st_mtime_ns) == before
        path.unlink()
    else:
        planted = Planted(path, kind, tmp_path / "outside")
        assert not server.start(1)
        assert str(path) in server.log, server.log
        planted.check()
        path.unlink()
    moved.rename(path)
    assert server.start(1), server.log
    assert steps(server) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_server_makes_anew_takes_a_links_place(
    server: CrashingServer, tmp_path: Path, kind: str
) -> None:
    """A link where a file is to be made is removed, or refused; what it leads to stays."""
    server.data.mkdir()
    planted = Planted(server.data / ".lineage.partial", kind, tmp_path / "outside")
    train(server, 1)
    planted.check()
    assert not (server.data / "lineage").is_symlink()
    with slotwise.connect(*server.addresses) as ps:
        saved = ps.save().id
        pin = Planted(server.data / "checkpoints" / saved / "pinned", kind, tmp_path / "pin")
        if kind == "file":
            ps.pin_checkpoint(saved)  # it is there
        else:
            with pytest.raises(slotwise.FailedPrecondition, match="pins nothing"):
                ps.pin_checkpoint(saved)
        pin.check()


@pytest.mark.parametrize("name", ["launch.lock", ".launch.id.partial"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_launchers_file_that_is_a_link_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    planted = Planted(data / name, kind, tmp_path / "outside")
    launched = Launched(data, tmp_path / "log", [], ["/bin/false"])
    try:
        assert launched.await_end() != 0
        assert f"{data}/{name}: it is a symbolic link" in launched.log(), launched.log()
        planted.check()
    finally:
        launched.clean_up()
