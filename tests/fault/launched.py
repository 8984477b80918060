"""slotwise-launch with a server, or with a program in its place, for the tests to break."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

from programs import LAUNCH
from slotwise_cluster import MPI_ENVIRONMENT, STOP_TIMEOUT, server_binary, wait_until

BACKOFF = ["--backoff", "0.05", "--longest-backoff", "0.2", "--restarts", "1000"]


def is_gone(pid: int) -> bool:
    """Whether a process has ended. (Its parent may not have asked yet how.)"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill(*pids: int) -> None:
    """SIGKILL to those that are there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Launched:
    """A slotwise-launch on `data`. Its log, and its server's, is a file."""

    def __init__(self, data: Path, log: Path, options: list[str], server: list[str]) -> None:
        self.data = data
        self.log_file = log
        command = [str(LAUNCH), "--data", str(data), *options, "--", *server]
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                command, env=os.environ | MPI_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def log(self) -> str:
        """All that was written so far."""
        return self.log_file.read_text()

    def starts(self) -> int:
        """How often a server has come to serve."""
        return len(re.findall(r" launch serving at ", self.log()))

    def await_start(self, number: int = 1) -> None:
        """Returns when the server serves for the `number`th time."""
        wait_until(lambda: self.process.poll() is not None or self.starts() >= number, f"start {number}")
        assert self.starts() >= number, self.log()

    def await_end(self) -> int:
        """The launcher's exit code."""
        return self.process.wait(timeout=STOP_TIMEOUT)

    def stop(self) -> int:
        """SIGTERM to the launcher; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.await_end()

    def carriers(self) -> list[int]:
        """The processes that were started with this folder's id: mpirun and ranks."""
        file = self.data / "launch.id"
        if not file.exists():
            return []
        variable = f"SLOTWISE_LAUNCH_ID={file.read_text().strip()}:{self.data.resolve()}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if variable in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
            except OSError:
                continue
        return sorted(found)

    def named(self, *programs: str) -> list[int]:
        """Those of the carriers that run one of these programs."""
        found = []
        for pid in self.carriers():
            try:
                name = Path(f"/proc/{pid}/exe").resolve(strict=True).name
            except OSError:
                continue
            if name in programs:
                found.append(pid)
        return found

    def ranks(self) -> list[int]:
        """The ranks' processes."""
        return self.named(server_binary().name)

    def mpirun(self) -> list[int]:
        """The process of mpirun, by Open MPI 4's name and 5's."""
        return self.named("orterun", "prterun", "mpirun")

    def clean_up(self) -> None:
        """Leaves nothing behind, whatever the test did."""
        kill(self.process.pid)
        self.process.wait()

        def nothing_is_left() -> bool:
            kill(*self.carriers())
            return not self.carriers()

        wait_until(nothing_is_left, "nothing is left")
