"""A rank's health over HTTP, as an orchestrator's probes ask for it: /livez and /readyz."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from free_ports import free_ports
from programs import started
from slotwise_cluster import StartCluster, server_binary
from slotwise_wire import CALL_TIMEOUT
from test_access import principals


def ask(port: int, path: str) -> int:
    """The status of an answer; 0: no answer came."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=CALL_TIMEOUT) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_that_serve_say_so_to_anybody(start_cluster: StartCluster, tmp_path: Path, ranks: int) -> None:
    port = free_ports(2)
    # Whom the server knows does not matter: probes have no token.
    config = principals(tmp_path / "tokens") + f'health_listen: "127.0.0.1:{port}"\n'
    cluster = start_cluster(ranks, config)
    for rank in range(ranks):
        assert ask(port + rank, "/livez") == ask(port + rank, "/readyz") == 200
        for path in ("/", "/metrics", "/rank.json", "/readyz/"):
            assert ask(port + rank, path) == 404
    cluster.stop()
    assert ask(port, "/livez") == 0


def test_a_rank_that_waits_to_start_is_alive_and_not_ready(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    durable = f'durability {{ folder: "{tmp_path}/data" }}\n'
    first = start_cluster(1, durable)
    port = free_ports(1)
    command = (server_binary(), "--listen", "127.0.0.1:0", "--data", f"{tmp_path}/data")
    health = ("--health-listen", f"127.0.0.1:{port}")
    with started(tmp_path / "second.log", *command, *health) as second:
        # It waits for the folder, which the first one has.
        second.wait(lambda: ask(port, "/livez") == 200, "the rank is alive")
        assert ask(port, "/readyz") == 503
        first.stop()
        second.wait(lambda: ask(port, "/readyz") == 200, "the rank serves")
        second.stop()
        assert ask(port, "/readyz") == 0
