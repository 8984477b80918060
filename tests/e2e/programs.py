"""Programs that a test runs to their end, or stops; and where the built ones are."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slotwise_cluster import MPI_ENVIRONMENT, STOP_TIMEOUT, server_binary, wait_until
from slotwise_wire import CALL_TIMEOUT

BUILT = server_binary().parents[1]
CTL = BUILT / "client/ctl/slotwise-ctl"
LAUNCH = Path(os.environ.get("SLOTWISE_LAUNCH", BUILT / "server/launch/slotwise-launch"))


def run(
    *command: object, timeout: float = CALL_TIMEOUT, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program, which may fail."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | MPI_ENVIRONMENT | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def output_of(
    *command: object, timeout: float = CALL_TIMEOUT, folder: Path | None = None, **environment: str
) -> str:
    """Runs a program that must end well; what it printed."""
    ended = run(*command, timeout=timeout, folder=folder, **environment)
    assert ended.returncode == 0, f"{command}:\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Started:
    """A program that runs until it is stopped; its log is a file."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen, self._log = popen, log

    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Returns once the condition holds; the program must not end before."""
        wait_until(lambda: self.popen.poll() is not None or condition(), what)
        assert self.popen.poll() is None, self.log()

    def await_serving(self, times: int = 1) -> None:
        """Returns once slotwise-launch has said so often that the server serves."""
        self.wait(lambda: self.log().count(" launch serving at ") == times, f"serving {times}")

    def kill_a_rank(self) -> None:
        """Of the mpirun that it has started."""
        (mpirun,) = children(self.popen.pid)
        os.kill(children(mpirun)[0], signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, as `docker stop` sends it; the program must end well."""
        self.popen.send_signal(signal.SIGTERM)
        assert self.popen.wait(timeout=STOP_TIMEOUT) == 0, self.log()


@contextmanager
def started(log: Path, *command: object, folder: Path | None = None, **environment: str) -> Iterator[Started]:
    """Starts a program, which gets SIGTERM in the end if it still runs."""
    with open(log, "wb") as output:
        popen = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env=os.environ | MPI_ENVIRONMENT | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield Started(popen, log)
    finally:
        popen.terminate()
        popen.wait(timeout=STOP_TIMEOUT)
