"""The real server, `mpirun -n N slotwise-server`, for the tests that want it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import slotwise

_ROOT = Path(__file__).resolve().parents[3]
_START_TIMEOUT = 60.0  # seconds; a busy machine of two cores
_READY = re.compile(rb"ready at (\S+): rank (\d+)\b")


class NoServer(Exception):
    """The server is not built, or did not start; the text is for people."""


def find_binary() -> Path:
    """$SLOTWISE_SERVER, or the newest that was built here."""
    named = os.environ.get("SLOTWISE_SERVER")
    if named:
        if not os.access(named, os.X_OK):
            raise NoServer(f"SLOTWISE_SERVER={named} is not a program")
        return Path(named).resolve()
    built = [_ROOT / f"build/{preset}/server/slotwise-server" for preset in ("cuda", "cpu")]
    there = [path for path in built if os.access(path, os.X_OK)]
    if not there:
        raise NoServer("there is no slotwise-server: run `./dev build`, or set SLOTWISE_SERVER")
    return max(there, key=lambda path: path.stat().st_mtime)


# Where SLOTWISE_TEST_GPU is set, servers keep tables in GPUs' memory: a GPU a rank.
_BACKEND = "cuda" if os.environ.get("SLOTWISE_TEST_GPU") else "cpu"


class RealServer:
    """`ranks` ranks on ports of 127.0.0.1, a lone one without mpirun; ready once constructed."""

    def __init__(self, ranks: int = 2, config: str = "", port: int = 0) -> None:
        """`config` is in the form of server.pbtxt; with `port` 0 each rank takes one that is free."""
        binary = find_binary()
        self._ranks = ranks
        command = [str(binary), "--listen", f"127.0.0.1:{port}", "--backend", _BACKEND]
        if ranks > 1:
            command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", *command]
        self._config = tempfile.NamedTemporaryFile("w", suffix=".pbtxt")
        self._config.write(config)
        self._config.flush()
        command += ["--config", self._config.name]
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self._output = tempfile.TemporaryFile()
        to = {"stdin": subprocess.DEVNULL, "stdout": self._output, "stderr": subprocess.STDOUT}
        self._process = subprocess.Popen(command, env=environment, **to)
        try:
            self.address = self._wait_until_ready(ranks)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> int:
        """Asks all ranks to finish and returns the exit status."""
        # A signal to one rank ends all of them in good order; one to mpirun would kill them.
        if self._process.poll() is None:
            os.kill((self._rank_processes() or [self._process.pid])[0], signal.SIGTERM)
        try:
            return self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._output.close()
            self._config.close()

    def kill(self) -> None:
        """Ends all ranks at once, as a power cut would."""
        for process in {*self._rank_processes(), self._process.pid}:
            os.kill(process, signal.SIGKILL)
        self._process.wait()

    def _rank_processes(self) -> list[int]:
        process = self._process.pid
        if self._ranks == 1:
            return [process]
        return [*map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]

    def _wait_until_ready(self, ranks: int) -> str:
        """The address of rank 0, once all say that they are ready."""
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            ready = {int(rank): address.decode() for address, rank in _READY.findall(self._said())}
            if len(ready) == ranks:
                return ready[0]
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._said()[-2000:].decode(errors="replace")
                raise NoServer(f"slotwise-server did not start:\n{said}")
            time.sleep(0.02)

    def _said(self) -> bytes:
        # Not by seek() and read(): the server writes where this process's file stands.
        return os.pread(self._output.fileno(), 1 << 20, 0)


def empty_client(server: RealServer) -> slotwise.Client:
    """A client of a server whose tables are all dropped first."""
    client = slotwise.connect(server.address)
    for table in client.list_tables():
        client.drop_table(table.name)
    return client


@contextmanager
def serving(ranks: int = 2, **options: Any) -> Iterator[slotwise.Client]:
    """A client of a server of this process; the options are those of slotwise.serve()."""
    with slotwise.serve(ranks, threads=1, **options) as server, slotwise.connect(server.address) as ps:
        yield ps


def all_rows(ps: slotwise.Client, table: str, **options: Any) -> slotwise.Rows:
    """What export_rows() gives as one, in the order of keys."""
    chunks = list(ps.export_rows(table, **options))
    assert all(len(chunk.keys) for chunk in chunks)
    order = np.argsort(np.concatenate([chunk.keys for chunk in chunks]))
    arrays = zip(*chunks, strict=True)
    return slotwise.Rows(*(None if part[0] is None else np.concatenate(part)[order] for part in arrays))


def make_anew(ps: slotwise.Client, table: str, **options: Any) -> None:
    """Makes a table, and drops what has its name."""
    ps.drop_table(table, missing_ok=True)
    ps.create_table(table, **options)


StartReal = Callable[[int], RealServer]
