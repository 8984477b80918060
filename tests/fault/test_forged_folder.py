"""A server's data folder as somebody left it who can write there.

What no server writes is refused by its name, or skipped at once, and nothing that was acknowledged is lost
without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import slotwise
from crashing_server import CrashingServer
from launched import Launched


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CrashingServer]:
    """A server with a journal, and is to be started."""
    server = CrashingServer(tmp_path, 2)
    yield server
    if not server.ended:
        server.kill_all()


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
        """Nobody has written through the link."""
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
