"""A server of this process's own: for notebooks, tests and machines without one.

    server = slotwise.serve()                  # one rank on this machine's processors
    ps = slotwise.connect(server.address)

    ps = slotwise.connect("local")             # the same in one line; every call gives the same server

The server ends with the process that started it, however that process ends. Under torchrun the processes of a
host share one server of "local", which the first process starts.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slotwise import _host_group
from slotwise.credentials import Credentials
from slotwise.errors import DeadlineExceeded, FailedPrecondition, InvalidArgument, Unavailable
from slotwise.programs import find_mpirun, find_server

_LOG = logging.getLogger("slotwise")
_SERVING = "serving "  # begins the line that `slotwise-server --attached` writes once it serves
_PATIENCE = 15.0  # seconds that a server may take to finish running calls, before it is killed
_LONGEST_POLL = 1e6  # seconds; poll() takes up to 2^31 ms
_LEAST_TIMEOUT = 0.001  # seconds for a call that begins when all the time is used up
_TAIL = 2000  # characters of the log that an error quotes

# Ranks may be more than processors, root may start them, and the loopback interface suffices.
_MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5's
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
_LAUNCHED_BY_MPI = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK")
_MPI_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_")


class _Inputs:
    """The ends for writing of the pipes that running servers read.

    A server ends when the last copy of its pipe's end is closed. A forked child closes its copy at once; a
    program that the child or this process starts gets none (close-on-exec).
    """

    def __init__(self) -> None:
        # A signal's handler may close a server while its thread is in here.
        self._lock = threading.RLock()
        self._open: set[int] = set()
        os.register_at_fork(
            before=lambda: self._lock.acquire(),
            after_in_parent=lambda: self._lock.release(),
            after_in_child=self._close_all,
        )

    def make(self) -> tuple[int, int]:
        """Returns a new pipe's end for reading, and its end for writing."""
        with self._lock:
            reader, writer = os.pipe()
            self._open.add(writer)
        return reader, writer

    def close(self, writer: int) -> None:
        with self._lock:
            if writer in self._open:
                self._open.remove(writer)
                os.close(writer)

    def _close_all(self) -> None:
        """Runs in a forked child, which has inherited the lock as taken."""
        self._lock = threading.RLock()
        for writer in self._open:
            os.close(writer)
        self._open.clear()


_inputs = _Inputs()


class Server:
    """A running server, made by `slotwise.serve`. Thread-safe.

    The server runs until `close`, or until the process that made it ends. A forked child may connect to the
    server if its parent had not connected to any server (gRPC does not survive a fork); `close` in the child
    does nothing. The server is a context manager that closes itself.

    Attributes:
        address: host:port of its first rank, for `slotwise.connect`.
        addresses: those of all ranks.
        log: the file of the server's log. If `serve` was given none, it is a temporary file, which is removed
            once the server has ended well.
        pid: the process of the rank, or of the mpirun that started several.
    """

    address: str
    addresses: tuple[str, ...]

    def __init__(self, command: list[str], log: Path | None, timeout: float) -> None:
        """Use `slotwise.serve`."""
        self._owner = os.getpid()
        # A signal's handler may call `close` while its thread is in `close`.
        self._lock = threading.RLock()
        self._closing = self._closed = False
        self._told_to_end = False
        self._why_ended: str | None = None
        self._log_is_ours = log is None
        self.log, output = _open_log(log)
        try:
            self._process = self._start(command, output)
        except OSError as error:
            self._remove_log()
            raise FailedPrecondition(f"cannot start {command[0]}: {error.strerror}") from None
        except BaseException:
            self._remove_log()
            raise
        finally:
            os.close(output)
        self.pid = self._process.pid
        try:
            self.addresses = self._await_addresses(time.monotonic() + timeout, timeout)
        except BaseException as error:
            self._end(patience=0.0)
            if not isinstance(error, Unavailable):  # which names the log
                self._remove_log()
            raise
        self.address = self.addresses[0]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<slotwise.Server of {', '.join(self.addresses)}>"

    def close(self) -> None:
        """Lets the server finish its calls, and returns when it has ended.

        In a signal's handler that interrupts `close`, another `close` returns at once, and the interrupted
        one goes on after the handler. If the handler raises, `close` may be called again.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._closing or self._closed:
                return
            self._closing = True
            try:
                self.why_ended()  # cannot be told once the server is told to end
                self._told_to_end = True
                self._end(_PATIENCE)
                self._judge_end()
                self._closed = True
            finally:
                self._closing = False
        _servers.discard(self)

    def why_ended(self) -> str | None:
        """Returns a sentence with the log's end if the server has ended by itself, else None."""
        if os.getpid() != self._owner:
            return None
        with self._lock:
            told = self._told_to_end or self._why_ended is not None
            if not told and self._process.poll() is not None:
                sentence = f"the server at {self.address} has ended, {self._status()}"
                self._why_ended = self._with_log(sentence)
            return self._why_ended

    def _start(self, command: list[str], output: int) -> subprocess.Popen[bytes]:
        """Starts the program, which logs to the file descriptor `output`."""
        reader, self._input = _inputs.make()
        try:
            # In a session of its own: a terminal's Ctrl-C is for this process, not for the server.
            return subprocess.Popen(
                command,
                env=_environment(os.environ),
                stdin=reader,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        except BaseException:
            _inputs.close(self._input)
            raise
        finally:
            os.close(reader)

    def _await_addresses(self, deadline: float, timeout: float) -> tuple[str, ...]:
        """Reads what the server writes until it names its addresses."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN)
        said = b""
        while True:
            for line in said.decode(errors="replace").splitlines(keepends=True):
                if line.startswith(_SERVING) and line.endswith("\n"):
                    return tuple(line.split()[1:])
            left = max(0.0, deadline - time.monotonic())
            if not poll.poll(min(left, _LONGEST_POLL) * 1000):
                if left > _LONGEST_POLL:
                    continue
                reason = f"is not serving after {timeout:g} s"
                raise Unavailable(self._with_log(f"slotwise-server {reason}"))
            read = os.read(output, 4096)
            if not read:
                self._end(min(_PATIENCE, max(0.0, deadline - time.monotonic())))
                reason = f"slotwise-server did not start: it ended {self._status()}"
                raise Unavailable(self._with_log(reason))
            said += read

    def _end(self, patience: float) -> None:
        """Ends the server's input; kills the server if it has not ended `patience` seconds later."""
        _inputs.close(self._input)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            if patience:
                _LOG.warning("slotwise-server has not ended within %g s: killing it", patience)
            for pid in [*_children(self.pid), self.pid]:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            self._process.wait()
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _judge_end(self) -> None:
        if self._process.returncode == 0:
            self._remove_log()
        else:
            _LOG.warning("slotwise-server ended %s: see %s", self._status(), self.log)

    def _remove_log(self) -> None:
        if self._log_is_ours:
            self.log.unlink(missing_ok=True)

    def _status(self) -> str:
        status = self._process.returncode
        return f"by signal {-status}" if status < 0 else f"with status {status}"

    def _with_log(self, sentence: str) -> str:
        try:
            with open(self.log, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL))
                tail = log.read().decode(errors="replace").strip()
        except OSError as error:
            return f"{sentence} (cannot read its log, {self.log}: {error.strerror})"
        return f"{sentence}; its log, {self.log}, ends with:\n{tail}" if tail else sentence


_servers: set[Server] = set()  # those to close when this process ends


@atexit.register
def _close_servers() -> None:
    for server in list(_servers):
        server.close()


def serve(
    ranks: int = 1,
    *,
    backend: str = "cpu",
    config: str | os.PathLike[str] | None = None,
    threads: int = 0,
    log: str | os.PathLike[str] | None = None,
    timeout: float = 60.0,
    data: str | os.PathLike[str] | None = None,
    durability: str | None = None,
) -> Server:
    """Starts a server on this machine, on free ports of 127.0.0.1, for the life of this process.

    The program is $SLOTWISE_SERVER if that is set. Else, for the CPU, the program is the installed package's,
    or the newest that was built in the package's checkout; for CUDA, the checkout's, or the `slotwise-server`
    on PATH.

    Args:
        ranks: processes that share the tables. More than one need Open MPI's mpirun on PATH.
        backend: "cpu" or "cuda".
        config: a configuration file (docs/config.md); its `listen` and `backend` do not count.
        threads: CPU threads of a rank; 0: all processors, divided by the ranks.
        log: the file of the server's log, made anew; None: a temporary file.
        timeout: seconds that the start may take.
        data: a folder for checkpoints and the journal, made if there is none; a server goes on from what lies
            there, on any number of ranks. None: `config`'s folder; without one nothing outlives the server.
        durability: the acknowledged updates that a crash loses: "none" (loses those since the last
            checkpoint), "interval" (may lose those of the last seconds: of the configuration's
            `durability.interval_s`, or of 30), or "sync" (loses none). None: as `config` says, else "none".

    Raises:
        InvalidArgument: an argument is none of these.
        FailedPrecondition: there is no such program, no mpirun, or no place for the log.
        Unavailable: the server did not start; the message quotes the end of its log.
    """
    if ranks < 1 or threads < 0 or not timeout > 0:
        raise InvalidArgument(
            f"serve() takes at least 1 rank, 0 threads or more and a timeout above 0: "
            f"ranks is {ranks}, threads {threads}, timeout {timeout}"
        )
    if backend not in ("cpu", "cuda"):
        raise InvalidArgument(f'backend is "{backend}", not "cpu" or "cuda"')
    if durability not in (None, "none", "interval", "sync"):
        raise InvalidArgument(f'durability is "{durability}", not "none", "interval" or "sync"')
    if durability in ("interval", "sync") and data is None and config is None:
        raise InvalidArgument(f'durability is "{durability}", which needs a folder: data=...')
    for name, path in (("config", config), ("log", log), ("data", data)):
        if path is not None and "\0" in os.fsdecode(path):
            raise InvalidArgument(f"{name} is {path!r}, and no path has a null character")
    command = [str(find_server(backend, ranks)), "--attached", "--listen", "127.0.0.1:0"]
    command += ["--backend", backend, "--threads", str(threads)]
    if config is not None:
        command += ["--config", os.fspath(config)]
    if data is not None:
        command += ["--data", os.path.abspath(data)]
    if durability is not None:
        command += ["--durability", durability]
    if ranks > 1:
        command = [find_mpirun(ranks), "-n", str(ranks), *command]
    server = Server(command, None if log is None else Path(log).absolute(), timeout)
    _servers.add(server)
    return server


_shared: Server | None = None
_shared_lock = threading.Lock()


def _renew_shared_lock() -> None:
    """Runs in a forked child, which does not have the thread that may have held the lock."""
    global _shared_lock
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_shared_lock)


def shared_server(timeout: float = 60.0) -> Server:
    """Returns the server of `slotwise.connect("local")`, which the first call starts.

    Args:
        timeout: seconds that this may take, with a start by this thread or by another.

    Raises:
        FailedPrecondition: once, if that server has ended by itself; the next call starts another server,
            without the tables.
        DeadlineExceeded: another thread has been starting the server for so long.
        Unavailable, FailedPrecondition: the server did not start: see `serve`.
    """
    global _shared
    deadline = time.monotonic() + timeout
    if not _shared_lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
        raise DeadlineExceeded(
            f"another thread has been starting the server of this process for {timeout:g} s"
        )
    try:
        if _shared is not None and (why := _shared.why_ended()):
            _shared.close()
            _shared = None
            raise FailedPrecondition(f"{why}\nIts tables are gone.")
        if _shared is None or _shared._closed:
            _shared = serve(timeout=max(_LEAST_TIMEOUT, deadline - time.monotonic()))
        return _shared
    finally:
        _shared_lock.release()


def shared_address(timeout: float, connect: Callable[..., Any]) -> str:
    """Returns the address of `shared_server()`, once the server answers.

    Of several processes that torchrun has started on this host, the first one has the server.

    Args:
        timeout: seconds that this may take.
        connect: `slotwise.connect`. A first client, for the rest of the time, only sees that the server
            answers, because the user's client has one timeout for connecting and for its calls.

    Raises:
        As `shared_server`; Unavailable, DeadlineExceeded: the server has not answered.
    """
    begin = time.monotonic()
    rank = _host_group.local_rank()
    if rank is not None and rank > 0:
        return _host_group.await_address(timeout)
    was_there = _shared is not None
    if rank == 0 and not was_there and (told := _host_group.told_address()) is not None:
        return told  # this is a child of the first process
    server = shared_server(timeout)
    if not was_there:
        left = max(_LEAST_TIMEOUT, timeout - (time.monotonic() - begin))
        connect(server.address, timeout=left, credentials=Credentials()).close()
    if rank == 0 and server._owner == os.getpid():
        _host_group.tell(server.address)
    return server.address


def _open_log(log: Path | None) -> tuple[Path, int]:
    """Returns the log's path and its file descriptor for writing."""
    try:
        if log is None:
            descriptor, name = tempfile.mkstemp(prefix="slotwise-server-", suffix=".log")
            return Path(name), descriptor
        return log, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    except OSError as error:
        where = "a temporary file" if log is None else str(log)
        raise FailedPrecondition(f"cannot write the server's log to {where}: {error.strerror}") from None


def _environment(ours: os._Environ[str]) -> dict[str, str]:
    """Returns the server's environment: mpirun's variables would make the server one of the trainers."""
    left_out = _MPI_PREFIXES if any(name in ours for name in _LAUNCHED_BY_MPI) else ()
    return {name: value for name, value in ours.items() if not name.startswith(left_out)} | _MPI_ENVIRONMENT


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
