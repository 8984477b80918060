"""A server with a data folder, of one or several ranks of this machine, that is killed and started again."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from free_ports import free_ports
from slotwise_cluster import MPI_ENVIRONMENT, STOP_TIMEOUT, server_binary, wait_until

READY = re.compile(r"ready at (\S+): rank (\d+) of (\d+)")


def crash_library() -> Path:
    """Returns crash_at.c, built for LD_PRELOAD: beside the server, or $SLOTWISE_CRASH_LIBRARY."""
    beside = server_binary().parents[1] / "tests/fault/libcrash_at.so"
    library = Path(os.environ.get("SLOTWISE_CRASH_LIBRARY", beside))
    assert library.exists(), f"{library} is not built: run ./dev build"
    return library


class CrashingServer:
    """The server of one data folder. It always listens on the same ports, for at most `most_ranks` ranks.

    As a context manager it leaves each start to its user, and kills the server in the end.
    """

    def __init__(
        self, folder: Path, most_ranks: int, mode: str = "sync", config: str = "", backend: str = "cpu"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self.data = self.folder / "disk" / "data"
        self.data.parent.mkdir(exist_ok=True)
        self.mode = mode
        self.ranks = 0
        self.addresses: list[str] = []
        self.starts = 0
        self._port = free_ports(most_ranks)
        self._process: subprocess.Popen[bytes] | None = None
        place = f"backend: BACKEND_{backend.upper()}\nthreads: 1\n"
        (self.folder / "server.pbtxt").write_text(f"{config}\n{place}")

    def __enter__(self) -> CrashingServer:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            self.kill_all()

    @property
    def log(self) -> str:
        """What the last start's processes said."""
        return self._log_path.read_text(errors="replace")

    @property
    def _log_path(self) -> Path:
        return self.folder / f"server-{self.starts}.log"

    def start(self, ranks: int, environment: dict[str, str] | None = None) -> bool:
        """Starts the server; `environment` is crash_at.c's. Returns whether all ranks are ready: the other
        outcome is that all have ended."""
        running = not self.ended
        assert not running
        self.starts += 1
        self.ranks = ranks
        command = [] if ranks == 1 else ["mpirun", "-n", str(ranks)]
        if environment is not None:  # the ranks get it, and mpirun does not
            more = {"LD_PRELOAD": str(crash_library()), "SLOTWISE_CRASH_BELOW": str(self.data.parent)}
            asan = os.environ.get("ASAN_OPTIONS", "")  # which wants to be the first library
            more["ASAN_OPTIONS"] = f"{asan}:verify_asan_link_order=0"
            command += ["env", *(f"{name}={value}" for name, value in (more | environment).items())]
        command += [str(server_binary()), "--config", str(self.folder / "server.pbtxt")]
        command += ["--listen", f"127.0.0.1:{self._port}"]
        command += ["--data", str(self.data), "--durability", self.mode]
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                command, env=os.environ | MPI_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(lambda: self.ended or len(READY.findall(self.log)) == ranks, "ready or ended")
        self.addresses = [at for at, _, _ in sorted(READY.findall(self.log), key=lambda ready: int(ready[1]))]
        return len(self.addresses) == ranks and not self.ended

    @property
    def ended(self) -> bool:
        """Whether there is no process of the server."""
        return self._process is None or self._process.poll() is not None

    def exit_code(self) -> int:
        """Waits for the end of mpirun, or of the only rank."""
        assert self._process is not None
        return self._process.wait(STOP_TIMEOUT)

    def pids(self) -> list[int]:
        """Returns the ranks' processes that live, in no order."""
        if self.ended:
            return []
        assert self._process is not None
        if self.ranks == 1:
            return [self._process.pid]
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        try:
            pids = [int(pid) for pid in children.read_text().split()]
        except FileNotFoundError:
            return []
        return [pid for pid in pids if _is_program(pid, server_binary())]

    def kill(self, pids: Sequence[int], with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to processes that may have ended."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, with_signal)

    def kill_all(self) -> None:
        """Kills all ranks at once, and returns when they have ended."""
        self.kill(self.pids())
        self.await_end()

    def await_end(self, patience: float = STOP_TIMEOUT) -> None:
        """Returns when all have ended by themselves; kills them after so many seconds."""
        deadline = time.monotonic() + patience
        while not self.ended and time.monotonic() < deadline:
            time.sleep(0.005)
        self.kill(self.pids())
        self.exit_code()


def _is_program(pid: int, program: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/exe") == str(program)
    except OSError:
        return False
