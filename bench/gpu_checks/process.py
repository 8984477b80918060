"""Child processes that cannot outlive their check.

mpirun gives its ranks process groups of their own, and setsid a session of its own, so neither names all that
a child has started. An environment variable does: every descendant inherits it, whichever its parent is by
then.
"""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MARK = "SLOTWISE_GPU_CHECK"
_KILL_TIMEOUT = 20.0  # seconds
_numbers = itertools.count()


@dataclass
class Ended:
    """How a child ended: its exit status (None: it was killed after `seconds`), and all that it printed."""

    status: int | None
    seconds: float
    output: str


@dataclass
class Child:
    """A child that was started, with the mark that all it starts have too."""

    process: subprocess.Popen[bytes]
    mark: str

    def family(self) -> list[int]:
        """The living processes among itself and its descendants."""
        return _marked(self.mark)


@contextmanager
def started(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str], folder: Path
) -> Iterator[Child]:
    """A child that runs in `folder`, its output appended to `log`. Kills what is left of it at the end."""
    mark = f"{os.getpid()}.{next(_numbers)}"
    words = [str(word) for word in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as out:
        out.write(f"$ {shlex.join(words)}\n".encode())
        out.flush()
        child = subprocess.Popen(
            words,
            env={**environment, _MARK: mark},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a terminal's Ctrl-C is for the parent, which then ends its children
        )
    try:
        yield Child(child, mark)
    finally:
        _kill_marked(mark)
        child.wait()


def run(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str], folder: Path, timeout: float
) -> Ended:
    """Runs a child to its end, or for `timeout` seconds. A command that is not there ends with status 127."""
    before = log.stat().st_size if log.exists() else 0
    since = time.monotonic()
    status: int | None
    try:
        with started(command, log, environment, folder) as child:
            try:
                status = child.process.wait(timeout)
            except subprocess.TimeoutExpired:
                status = None
    except OSError as error:
        status = 127
        with open(log, "ab") as out:
            out.write(f"{error}\n".encode())
    seconds = time.monotonic() - since
    with open(log, "rb") as written:
        written.seek(before)
        return Ended(status, seconds, written.read().decode(errors="replace"))


def _kill_marked(mark: str) -> None:
    """Kills every process that has the mark, and what they start meanwhile; but not for ever."""
    give_up = time.monotonic() + _KILL_TIMEOUT
    while (processes := _marked(mark)) and time.monotonic() < give_up:
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


def _marked(mark: str) -> list[int]:
    """The living processes that have the mark; a zombie's environment is empty."""
    found = []
    wanted = f"{_MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                found.append(int(entry))
        except OSError:  # it has ended, or is another user's
            continue
    return found
