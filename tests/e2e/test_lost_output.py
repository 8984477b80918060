"""Programs that could not write their standard output do not exit with 0."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

import pytest
from programs import CTL, LAUNCH
from slotwise_cluster import StartCluster, server_binary

SERVER = server_binary()
FULL = "standard output cannot be written, and some of it is lost: No space left on device"


def run(*command: str | Path, stdout: int | IO[str] = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)


def run_closed(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """With a closed standard output, whose number the first file that the program opens would get."""
    return run("sh", "-c", '"$@" >&-', "sh", *command)


def fails_on_a_full_disk_and_when_closed(*command: str | Path) -> None:
    with open("/dev/full", "w") as full:
        lost = run(*command, stdout=full)
    said = lost.stderr.splitlines()[-1]
    assert (lost.returncode, said) == (1, f"{Path(command[0]).name}: {FULL}"), command
    closed = run_closed(*command)
    assert closed.returncode == 1 and "Bad file descriptor" in closed.stderr, (command, closed.stderr)


@pytest.mark.parametrize(
    "command",
    [
        [CTL, "--help"],
        [CTL, "create", "--help"],
        [CTL, "plan", "--rows", "1000", "--dim", "16"],
        [CTL, "plan", "--rows", "1000", "--dim", "16", "--json"],
        [SERVER, "--version"],
        [SERVER, "--help"],
        [LAUNCH, "--help"],
    ],
    ids=lambda command: " ".join([command[0].name, *command[1:]]),
)
def test_output_that_is_lost_is_an_error(command: list[str | Path]) -> None:
    assert run(*command).returncode == 0
    fails_on_a_full_disk_and_when_closed(*command)


def test_a_checked_configuration_whose_output_is_lost_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / "server.pbtxt"
    config.write_text("")
    fails_on_a_full_disk_and_when_closed(SERVER, "--check-config", "--config", config)


def test_answers_that_are_lost_are_errors(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(1, f'durability {{ folder: "{tmp_path}/data" }}')
    cluster.create("ad")
    server = ["--server", cluster.ranks[0].address]
    commands = ["tables", "tables --json", "describe ad", "digest ad", "stats", "status", "health"]
    commands += ["top --interval 0.1"]  # which would show its last interval never
    commands += ["create new --dim 4 --learning-rate 1", "checkpoint save --json", "checkpoint list"]
    for command in commands:
        fails_on_a_full_disk_and_when_closed(CTL, *command.split(), *server)
    # The first file that `export` opens gets the lowest free number, which was a closed standard output's.
    rows = tmp_path / "rows"
    assert run(CTL, "export", "ad", rows, *server).returncode == 0
    there = {path.name: path.read_bytes() for path in rows.iterdir()}
    fails_on_a_full_disk_and_when_closed(CTL, "export", "ad", rows, *server)
    assert {path.name: path.read_bytes() for path in rows.iterdir()} == there
    # A refusal is one whether somebody reads it or not, and who asked for no words lost none.
    fails_on_a_full_disk_and_when_closed(CTL, "digest", "none", "--json", *server)
    with open("/dev/full", "w") as full:
        assert run(CTL, "status", "--quiet", *server, stdout=full).returncode == 0
    assert run_closed(CTL, "status", "--quiet", *server).returncode == 0


@pytest.mark.parametrize("ignores", [False, True], ids=["killed_by_SIGPIPE", "ignores_SIGPIPE"])
def test_a_reader_that_had_enough_has_lost_nothing(ignores: bool) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [CTL, "--help"], stdout=write, stderr=subprocess.PIPE, timeout=60, restore_signals=not ignores
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0 if ignores else -13, b"")
