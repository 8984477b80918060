"""The processes that torchrun starts on a host have one server of connect("local")."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from free_ports import free_ports
from waiting import LIMIT

import slotwise
from slotwise import _host_group, local_server

PUSH = """
import os, sys, time
import numpy as np
import slotwise
ps = slotwise.connect("local", timeout=60)
ps.create_table("ads", dim=1, optimizer=slotwise.SGD(1.0), initializer=slotwise.Constant(0.0))
ps.push("ads", [1], None, np.ones((1, 1), np.float32))
assert slotwise.connect("local").topology().incarnation == ps.topology().incarnation
deadline = time.monotonic() + 60
while ps.describe_table("ads").steps < int(os.environ["LOCAL_WORLD_SIZE"]):
    assert time.monotonic() < deadline
    time.sleep(0.01)
print(ps.topology().ranks[0].address, flush=True)
sys.stdin.read()  # the first one's server is there until all have seen it
"""


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What torchrun tells the three processes of a group."""
    told = {
        "LOCAL_WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_ports(1)),
        "TORCHELASTIC_RUN_ID": "none",
        "XDG_RUNTIME_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    return told


def test_they_have_one_server_and_leave_nothing(group: dict[str, str], tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PUSH],
            env=os.environ | {"LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (2, 1, 0)  # the others may be first
    ]
    try:
        addresses = [process.stdout.readline() for process in processes if process.stdout is not None]
        assert len(set(addresses)) == 1 and addresses[0] != "", addresses
        for process in processes:
            process.communicate(timeout=LIMIT)
        assert [process.returncode for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
    assert not list(tmp_path.glob("slotwise-*"))


def test_a_process_that_waits_in_vain_and_processes_on_several_hosts_are_refused(
    group: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    waits = "process 1 of torchrun waits for the server of process 0"
    with pytest.raises(slotwise.DeadlineExceeded, match=waits):
        slotwise.connect("local", timeout=0.1)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "6")
    with pytest.raises(slotwise.FailedPrecondition, match="torchrun has started 6, of which 3 are here"):
        slotwise.connect("local")


def test_a_former_groups_file_does_not_count(group: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    _host_group.tell("127.0.0.1:1")
    path = _host_group._path()
    assert _host_group.await_address(1) == "127.0.0.1:1"
    monkeypatch.setattr(_host_group, "_began", lambda pid: "another start")
    with pytest.raises(slotwise.DeadlineExceeded):
        _host_group.await_address(0.1)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert _host_group._path() != path


def test_a_child_of_the_first_process_uses_the_groups_server(
    group: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(local_server, "_shared", None)
    with slotwise.serve() as server:
        _host_group.tell(server.address)
        with slotwise.connect("local") as ps:
            assert ps.topology().ranks[0].address == server.address
        assert local_server._shared is None


@pytest.mark.parametrize("kind", ["link", "other words", "folder"])
def test_what_is_no_such_file_is_refused(group: dict[str, str], tmp_path: Path, kind: str) -> None:
    path = _host_group._path()
    if kind == "link":
        (tmp_path / "other").write_text('{"address": "evil:1"}')
        path.symlink_to(tmp_path / "other")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text('{"address": "evil:1"}')
    with pytest.raises(slotwise.FailedPrecondition, match=str(path)):
        _host_group.await_address(1)


@pytest.mark.parametrize("of", [None, ("0", "1"), ("x", "2")])
def test_a_process_alone_is_in_no_group(monkeypatch: pytest.MonkeyPatch, of: tuple[str, str] | None) -> None:
    for name, value in zip(("LOCAL_RANK", "LOCAL_WORLD_SIZE"), of or ()):
        monkeypatch.setenv(name, value)
    assert _host_group.local_rank() is None
