"""A control group in which what is started has so much memory and no more, as in a container."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class MemoryGroup:
    """One group; version 1 and version 2 name their files otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._first = (path / "memory.limit_in_bytes").exists()

    def limit(self, mib: int) -> None:
        """From now on the group has so much memory."""
        name = "memory.limit_in_bytes" if self._first else "memory.max"
        (self.path / name).write_text(str(mib << 20))

    def killed(self) -> int:
        """How many processes the kernel has ended for want of memory."""
        text = (self.path / ("memory.oom_control" if self._first else "memory.events")).read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")))

    def peak_mib(self) -> float:
        """The most that the group has had, pages of files included."""
        name = "memory.max_usage_in_bytes" if self._first else "memory.peak"
        path = self.path / name
        return int(path.read_text()) / 2**20 if path.exists() else float("nan")

    def own_mib(self) -> float:
        """What the group has now of memory that is no file's."""
        name = "rss " if self._first else "anon "
        lines = (self.path / "memory.stat").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) / 2**20

    def enter(self) -> list[str]:
        """What to put before a command that is to live in the group."""
        return ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self.path)]


def _own_path() -> Path:
    """Where groups of this process's group may be made."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return V1 / path.lstrip("/")
    return V2 / next(path for _, controllers, path in lines if not controllers).lstrip("/")


@contextmanager
def memory_group(mib: int) -> Iterator[MemoryGroup]:
    """A group of `mib`; the test is skipped where this process may make none."""
    for parent in (_own_path(), V1, V2):
        path = parent / f"slotwise-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            group = MemoryGroup(path)
            group.limit(mib)
        except OSError:
            path.rmdir()
            continue
        try:
            yield group
        finally:
            path.rmdir()
        return
    pytest.skip("this process may make no memory control groups")
