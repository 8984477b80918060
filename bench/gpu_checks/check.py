"""A check, its outcome, and the place that all checks run in."""

from __future__ import annotations

import fnmatch
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpu_checks import process
from gpu_checks.sizes import Sizes

RANKS = (1, 2, 4)  # the numbers of ranks that are checked, each on as many GPUs
_MPIRUN = "mpirun --allow-run-as-root --oversubscribe --bind-to none".split()


class Failed(Exception):
    """The check found something; says what."""


class NotRun(Exception):
    """The check cannot run on this machine; says why."""


@dataclass
class Check:
    """`run` says in a line what was seen, or raises Failed or NotRun. `report`: JSON that it writes."""

    section: str
    name: str
    run: Callable[[], str]
    report: Path | None = None

    @property
    def path(self) -> str:
        return f"{self.section}/{self.name}"

    def is_among(self, patterns: Sequence[str]) -> bool:
        """Whether one of the patterns, each a section or a glob over section/name, names this check."""
        return any(pattern == self.section or fnmatch.fnmatch(self.path, pattern) for pattern in patterns)


@dataclass
class Outcome:
    """What became of a check: `status` is "passed", "failed" or "not run"."""

    check: Check
    status: str
    detail: str
    seconds: float


@dataclass
class Place:
    """A bundle, a folder for what comes out, and this machine's part in it."""

    bundle: Path
    out: Path
    device: str  # "cuda" or "cpu"
    gpus: int  # with the device cpu: ranks that take the place of GPUs
    sizes: Sizes
    deadline: float = float("inf")  # of time.monotonic()
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def program(self, name: str) -> Path:
        return self.bundle / "bin" / name

    def log(self, section: str, name: str) -> Path:
        return self.out / section / f"{name}.log"

    def native(self) -> dict[str, str]:
        """The environment of the bundle's programs: its libraries, Open MPI as root, no NVLink multicast."""
        libraries = [str(self.bundle / "lib"), self.environment.get("LD_LIBRARY_PATH", "")]
        return self.environment | {
            "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "NCCL_NVLS_ENABLE": "0",
        }

    def python(self) -> dict[str, str]:
        """The environment of Python programs: the client, and the host's own libraries, not the bundle's."""
        return self.environment | {"PYTHONPATH": str(self.bundle / "python"), "PYTHONUNBUFFERED": "1"}

    def needs_gpus(self, count: int) -> None:
        """Raises NotRun where there are fewer."""
        if count > self.gpus:
            raise NotRun(f"needs {count} GPUs, and this run has {self.gpus}")

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def run_native(
        self, command: Sequence[str | Path], log: Path, timeout: float, ranks: int | None = None
    ) -> process.Ended:
        """Runs a program of the bundle, with `ranks` under mpirun. Raises Failed unless it exits with 0."""
        if ranks is not None:
            command = [*_MPIRUN, "-n", str(ranks), *command]
        return self._must_end_well(command, log, self.native(), timeout)

    def run_python(self, arguments: Sequence[str | Path], log: Path, timeout: float) -> process.Ended:
        """Runs a Python program that uses the client. Raises Failed unless it exits with 0."""
        return self._must_end_well([sys.executable, *arguments], log, self.python(), timeout)

    def _must_end_well(
        self, command: Sequence[str | Path], log: Path, environment: dict[str, str], timeout: float
    ) -> process.Ended:
        allowed = max(0.1, min(timeout, self.seconds_left()))
        ended = process.run(command, log, environment, self.bundle, allowed)
        if ended.status is None:
            raise Failed(f"not done after {ended.seconds:.0f} s, and killed")
        if ended.status != 0:
            raise Failed(f"exit status {ended.status}: {last_line(ended.output)}")
        return ended


def needs_command(name: str, place: Place) -> None:
    """Raises NotRun where there is no such command."""
    if shutil.which(name, path=place.environment.get("PATH")) is None:
        raise NotRun(f"there is no {name} here")


def last_line(output: str) -> str:
    """The last line that the program printed: not its command, nor mpirun's words below a line of dashes."""
    said = output.split("\n-----", 1)[0]
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("$ ")]
    return lines[-1] if lines else "nothing was printed"
