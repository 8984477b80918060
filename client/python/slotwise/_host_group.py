"""The processes that torchrun has started on this host, which have one server of `connect("local")`.

The first of them (LOCAL_RANK 0) starts the server and writes its address to a file of this user's; the others
wait for that file. A file that a former group has left names a process that is gone.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

from slotwise.errors import DeadlineExceeded, FailedPrecondition

_NAMES = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "GROUP_RANK")
_PAUSE = 0.02  # seconds between two looks for the file
_told: dict[Path, tuple[int, str]] = {}  # by which process, which address


def local_rank() -> int | None:
    """Returns this process's number among those that torchrun has started on this host; None: it is alone.

    FailedPrecondition: torchrun has started processes on other hosts, too.
    """
    try:
        rank, size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        everywhere = int(os.environ.get("WORLD_SIZE", size))
    except (KeyError, ValueError):
        return None
    if everywhere > size:
        raise FailedPrecondition(
            f'connect("local") is for the processes of one host, and torchrun has started {everywhere}, of '
            f"which {size} are here: start a server, and give its address to all"
        )
    return rank if size > 1 else None


def tell(address: str) -> None:
    """Tells this host's group the address of this process's server; FailedPrecondition if it cannot write."""
    path = _path()
    if _told.get(path) == (os.getpid(), address):
        return
    said = {"address": address, "pid": os.getpid(), "began": _began(os.getpid())}
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(said, file)
        os.rename(temporary, path)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            temporary.unlink(missing_ok=True)
        raise FailedPrecondition(
            f'connect("local") cannot tell the other processes of torchrun its server\'s address: {error}'
        ) from None
    _told[path] = os.getpid(), address
    atexit.register(_forget, path, os.getpid())


def await_address(timeout: float) -> str:
    """Waits `timeout` seconds for the address that the first process of this host's group tells.

    DeadlineExceeded: the process told none. FailedPrecondition: another user or program made the file.
    """
    deadline = time.monotonic() + timeout
    while True:
        address = told_address()
        if address is not None:
            return address
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(
                f'connect("local") in process {local_rank()} of torchrun waits for the server of process 0 '
                f"of this host, which has told no address in {timeout:g} s: every process calls it, process "
                f"0 too; or start a server, and give its address to all"
            )
        time.sleep(_PAUSE)


def told_address() -> str | None:
    """Returns the address that a living process of this host's group has told, if one has."""
    return _read(_path())


def _path() -> Path:
    """Returns the file of this group: torchrun gives each group a port, and each start of it a number."""
    group = json.dumps([os.getuid(), *(os.environ.get(name, "") for name in _NAMES)])
    name = hashlib.sha256(group.encode()).hexdigest()[:16]
    folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(folder) / f"slotwise-local-{os.getuid()}-{name}"


def _read(path: Path) -> str | None:
    """Returns the address of a server whose process lives."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FailedPrecondition(f"{path}: {error.strerror}") from None
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise FailedPrecondition(f"{path} is another user's: remove it")
        try:
            said = json.loads(os.read(descriptor, 4096))
            lives = _began(int(said["pid"])) == said["began"]
            return str(said["address"]) if lives else None
        except (OSError, ValueError, KeyError, TypeError):
            raise FailedPrecondition(f"{path} does not name a server: remove it") from None
    finally:
        os.close(descriptor)


def _began(pid: int) -> str | None:
    """Returns when a process began, in the system's ticks; None: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _forget(path: Path, pid: int) -> None:
    if os.getpid() == pid:
        path.unlink(missing_ok=True)
