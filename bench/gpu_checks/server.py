"""A server over several ranks, as deploy/entrypoint.sh starts it, for as long as it is needed."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpu_checks import process
from gpu_checks.check import Failed, Place, last_line

_START_TIMEOUT = 90.0
_STOP_TIMEOUT = 60.0
_RANK = b"OMPI_COMM_WORLD_RANK="  # in the environment of a process that Open MPI started


@dataclass
class Server:
    """A server whose ranks are all ready, at these addresses."""

    entrypoint: process.Child
    addresses: list[str]

    def ranks(self) -> dict[int, int]:
        """The process of each rank that still lives."""
        found = {}
        for pid in self.entrypoint.family():
            try:
                environment = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
                name = Path("/proc", str(pid), "comm").read_text(encoding="utf-8").strip()
            except OSError:  # it has ended meanwhile
                continue
            rank = [word.partition(b"=")[2] for word in environment if word.startswith(_RANK)]
            if rank and name == "slotwise-server":
                found[int(rank[0])] = pid
        return found


@contextmanager
def started(place: Place, backend: str, ranks: int, log: Path, *flags: str) -> Iterator[Server]:
    """A server that is ready; what is left of it at the end is killed. Raises Failed if it does not start."""
    log.unlink(missing_ok=True)  # an earlier run's server was ready too
    entrypoint = place.bundle / "deploy" / "entrypoint.sh"
    command: list[str | Path] = [entrypoint, "--backend", backend, "--listen", "127.0.0.1:0", *flags]
    of_server = {"SLOTWISE_RANKS": str(ranks), "SLOTWISE_SERVER": str(place.program("slotwise-server"))}
    with process.started(command, log, place.native() | of_server, place.bundle) as child:
        deadline = time.monotonic() + min(_START_TIMEOUT, place.seconds_left())
        while len(addresses := _ready(log)) < ranks:
            if child.process.poll() is not None:
                raise Failed(f"the server ended as it started: {last_line(log.read_text(errors='replace'))}")
            if time.monotonic() > deadline:
                raise Failed(f"{len(addresses)} of {ranks} ranks were ready in time: see {log.name}")
            time.sleep(0.05)
        yield Server(child, addresses)


@contextmanager
def serving(place: Place, backend: str, ranks: int, log: Path) -> Iterator[str]:
    """The address of a rank, once all are ready. Raises Failed if the server does not start or end well."""
    with started(place, backend, ranks, log) as server:
        entrypoint = server.entrypoint.process
        yield server.addresses[0]
        if entrypoint.poll() is not None:
            raise Failed(f"the server ended by itself: {last_line(log.read_text(errors='replace'))}")
        entrypoint.terminate()  # one rank hears of it, and so all finish and stop
        try:
            status = entrypoint.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Failed(f"the server did not stop within {_STOP_TIMEOUT:.0f} s") from None
        if status != 0:
            raise Failed(f"the server's exit status is {status}: see {log.name}")


def _ready(log: Path) -> list[str]:
    return re.findall(r"ready at (\S+): rank", log.read_text(encoding="utf-8", errors="replace"))
