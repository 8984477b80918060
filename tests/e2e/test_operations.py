"""docs/operations.md is true: its commands run as they stand there, in one shell, and do what it says."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import slotwise
from free_ports import free_ports
from programs import CTL, LAUNCH
from slotwise_cluster import MPI_ENVIRONMENT, STOP_TIMEOUT, server_binary, wait_until
from slotwise_wire import ROOT
from test_limits_doc import value_in_code

PAGE = (ROOT / "docs" / "operations.md").read_text()
SECTIONS: dict[str, str] = dict(re.findall(r"^## (.+?)\n(.+?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
RANKS = 4  # the most that the page starts


def commands(section: str) -> list[str]:
    """The indented blocks of a section, in order."""
    return re.findall(r"(?:^    .+\n)+", SECTIONS[section], re.MULTILINE)


class Shell:
    """A bash that runs the page's commands: the first that fails ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_ports(RANKS)
        self._blocks = 0
        programs = folder / "bin"
        programs.mkdir()
        for program in (server_binary(), LAUNCH, CTL, Path(sys.executable)):
            name = program.name if program.name.startswith("slotwise-") else "python3"
            script = programs / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} "$@"\n')
            script.chmod(0o755)
        environment = os.environ | MPI_ENVIRONMENT | {"PYTHONPATH": str(ROOT / "client" / "python")}
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        self._log = folder / "shell.log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-eu", "-o", "pipefail", "-x"],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def text(self, of_page: str) -> str:
        """A text of the page for this machine."""
        here = of_page.replace("/mnt/", f"{self.folder}/mnt/").replace("/backup/", f"{self.folder}/backup/")
        return re.sub(r"\b7070\b", str(self.port), here)

    def run(self, block: str) -> str:
        """Runs a block of the page; what it printed."""
        assert self.process.stdin is not None
        self._blocks += 1
        before, mark = len(self.log), f"block-{self._blocks}-is-done"
        # slotwise-ctl asks this server where the page leaves its address out.
        block = re.sub(r"\bslotwise-ctl (?!plan)", f"slotwise-ctl --server 127.0.0.1:{self.port} ", block)
        self.process.stdin.write(f"{self.text(block)}\n{{ echo {mark}; }} 2>/dev/null\n".encode())
        self.process.stdin.flush()
        done = re.compile(rf"^{mark}$", re.MULTILINE)
        wait_until(
            lambda: done.search(self.log) is not None or self.process.poll() is not None,
            f"the end of:\n{block}",
            timeout=4 * STOP_TIMEOUT,
        )
        assert self.process.poll() is None, self.log
        return self.log[before:]

    def section(self, name: str) -> str:
        """Runs all blocks of a section."""
        return "".join(self.run(block) for block in commands(name))

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def connect(self) -> slotwise.Client:
        return slotwise.connect(f"127.0.0.1:{self.port}", timeout=120)

    def push(self, seed: int) -> None:
        """Trains the table "ads"."""
        keys = np.random.default_rng(seed).integers(0, 5_000, 2_000, dtype=np.uint64)
        with self.connect() as ps:
            ps.push("ads", keys, None, np.ones((2_000, 16), np.float32))

    def digest(self) -> tuple[str, int]:
        """Of the table."""
        with self.connect() as ps:
            return digest_of(ps)

    def ranks(self) -> list[int]:
        """The processes of this server's ranks."""
        program, config = str(server_binary()), b"server.pbtxt"
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                there = (os.readlink(process / "exe"), os.readlink(process / "cwd"))
                if there == (program, str(self.folder)) and config in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
            except OSError:
                continue  # it is gone, or another user's
        return sorted(found)

    def end(self) -> None:
        """Ends whatever is left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=STOP_TIMEOUT)
        for rank in self.ranks():
            os.kill(rank, signal.SIGKILL)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "backup").mkdir()
    shell = Shell(tmp_path.resolve())
    yield shell
    shell.end()


def digest_of(ps: slotwise.Client) -> tuple[str, int]:
    said = ps.digest("ads")
    return said.digest, said.steps


def test_the_pages_commands_run_one_after_the_other(shell: Shell) -> None:
    done: list[str] = []

    def section(name: str) -> str:
        done.append(name)
        return shell.section(name)

    assert "800480000" in section("Sizing")

    (config,) = re.findall(r"^```\n(.+?)^```$", SECTIONS["First deployment"], re.MULTILINE | re.DOTALL)
    (shell.folder / "server.pbtxt").write_text(shell.text(config))
    said = section("First deployment")
    assert "server.pbtxt is right" in said and " is SERVING" in said and "ads is made" in said
    shell.push(1)
    backed_up = shell.digest()

    # What the backup does not have is gone after the restore, and what it has is there.
    backup, links, restore = commands("Backup and restore")
    done.append("Backup and restore")
    said = shell.run(backup)
    assert "stays until it is released" in said and " is whole: " in said
    shell.push(2)
    assert shell.digest() != backed_up
    said = shell.run(links)
    (linked,) = (shell.folder / "mnt").glob("ads.links-*/checkpoints/*")
    for file in linked.glob("*"):
        if file.is_file():
            assert (shell.folder / "mnt/ads/checkpoints" / linked.name / file.name).samefile(file)
    assert backed_up[0] in shell.run(restore)
    assert shell.digest() == backed_up
    with slotwise.serve(data=str(linked.parents[1])) as server, slotwise.connect(server.address) as ps:
        assert digest_of(ps) == backed_up

    shell.push(3)
    before = shell.digest()
    said = section("Upgrade")
    assert re.search(r"^slotwise-server \d+\.\d+\.\d+$", said, re.MULTILINE)
    assert shell.digest() == before

    said = section("Another number of ranks")
    assert len(re.findall(rf"^{before[0]}  ", said, re.MULTILINE)) == 2
    with shell.connect() as ps:
        assert len(ps.describe_table("ads").shards) == 3
    shell.push(4)
    before = shell.digest()

    ranks = shell.ranks()
    assert len(ranks) == 3
    os.kill(ranks[1], signal.SIGKILL)
    wait_until(lambda: not set(ranks) & set(shell.ranks()), "all ranks' ends")
    assert " is SERVING" in section("A rank that is gone")
    assert shell.digest() == before

    said = section("A full disk")
    assert "/mnt/ads/journal" in said and "PINNED" in said
    shell.push(5)
    assert "slowest stage: " in section("A slow trainer")

    *pressure, end = commands("Memory pressure")
    done.append("Memory pressure")
    with shell.connect() as ps:
        cells = {shard.cells for shard in ps.describe_table("ads").shards}
    said = "".join(shell.run(block) for block in pressure)
    assert "MEMORY OF A RANK" in said and all(f"{count:,}" in said for count in cells)
    shell.run(end)
    wait_until(lambda: not shell.ranks(), "the story's end")
    assert done == list(SECTIONS), "the sections have the page's order, and none is left out"


# --- words of the page


VERSIONS = re.findall(r"\| [^|]+ \| [^|]*?\b(\d+)[^|]*?\(`(\w+)` of `([\w/.]+)`\)", SECTIONS["Upgrade"])
NAMES = ["kDataVersion", "kManifestVersion", "kJournalVersion", "SLOTWISE_ABI"]
FILES = sorted(set(re.findall(r"`((?:server|include|kernels|client|wire|proto|tests)/[\w/.]+\.\w+)`", PAGE)))


def version_in_code(name: str, path: str) -> float:
    if not name.isupper():
        return value_in_code(name, path)
    (number,) = re.findall(rf"^#define {name} (\d+)$", (ROOT / path).read_text(), re.MULTILINE)
    return float(number)


def test_versions_are_the_codes() -> None:
    assert [name for _, name, _ in VERSIONS] == NAMES
    for number, name, path in VERSIONS:
        assert version_in_code(name, path) == int(number), name


def test_ranks_of_two_versions_do_not_start() -> None:
    assert "version than" in (ROOT / "server" / "start_up.cc").read_text()
    assert "^ std::hash<std::string>{}(SLOTWISE_VERSION)" in (ROOT / "server" / "rooms.cc").read_text()


@pytest.mark.parametrize("path", FILES)
def test_files_that_the_page_names_are_there(path: str) -> None:
    assert (ROOT / path).exists()
