"""Servers for the end-to-end tests, each of 1, 2 and 4 ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slotwise_cluster import Cluster, StartCluster
from slotwise_wire import ROOT, Protocol

sys.path.insert(0, str(ROOT / "bench"))  # for tests of gpu_checks and plot

# Small limits, so that the tests can go past them.
SHARED_CONFIG = "limits { max_message_mib: 4 max_round_mib: 8 }"


@pytest.fixture(scope="session")
def protocol(tmp_path_factory: pytest.TempPathFactory) -> Protocol:
    """The protocol, from the .proto files."""
    return Protocol(tmp_path_factory.mktemp("protocol"))


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda ranks: f"{ranks}_ranks")
def cluster(
    request: pytest.FixtureRequest, protocol: Protocol, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A server that a module's tests share; each makes tables of its own."""
    cluster = Cluster(request.param, tmp_path_factory.mktemp("cluster"), protocol, SHARED_CONFIG)
    yield cluster
    cluster.stop()


@pytest.fixture
def start_cluster(protocol: Protocol, tmp_path: Path) -> Iterator[StartCluster]:
    """Starts servers for one test: start_cluster(ranks, config, listen). All are stopped after it."""
    clusters: list[Cluster] = []

    def start(ranks: int, config: str = "", **more: Any) -> Cluster:
        clusters.append(Cluster(ranks, tmp_path / f"cluster_{len(clusters)}", protocol, config, **more))
        return clusters[-1]

    yield start
    for cluster in clusters:
        if cluster.process.poll() is None:
            cluster.stop()
