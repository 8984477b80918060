"""What several of these files start: servers on a data folder, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crashing_server import CrashingServer
from durable_training import Lives
from slotwise_cluster import StartCluster


@pytest.fixture
def lives(start_cluster: StartCluster, tmp_path: Path) -> Lives:
    """The lives of a server on the folder `data`."""
    return Lives(start_cluster, tmp_path / "data")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CrashingServer]:
    """A server of up to two ranks that keeps a journal, and is to be started."""
    server = CrashingServer(tmp_path, 2)
    yield server
    if not server.ended:
        server.kill_all()
