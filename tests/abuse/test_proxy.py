"""deploy/proxy/haproxy.cfg in front of a rank: clients work through it, and half calls stay outside.

No Slotwise package is used.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from free_ports import free_ports
from programs import started
from raw_http2 import RawConnection
from slotwise_cluster import Cluster, RankClient, StartCluster
from slotwise_wire import ROOT

CONFIG = ROOT / "deploy" / "proxy" / "haproxy.cfg"
CONNECTIONS, CALLS = 8, 2000  # of the attack; a connection may have 100 open
# A call of the attack that came to the rank would be one too many there.
TIGHT = "limits { max_calls_per_connection: 100 max_calls: 400 }"

pytestmark = pytest.mark.skipif(
    shutil.which("haproxy") is None, reason="there is no haproxy: ./dev setup test installs it"
)


@contextmanager
def proxy(cluster: Cluster, folder: Path) -> Iterator[str]:
    """HAProxy in front of a rank; where clients come."""
    address = f"127.0.0.1:{free_ports(1)}"
    command, rank = ("haproxy", "-db", "-f", CONFIG), cluster.ranks[0].address
    log = folder / "haproxy.log"
    with started(log, *command, SLOTWISE_PROXY_BIND=address, SLOTWISE_RANK=rank) as process:
        yield address
        assert process.popen.poll() is None, process.log()


def works(client: RankClient, cluster: Cluster, table: str) -> None:
    """Looks up and pushes, small and large, several at once."""
    keys = np.arange(30_000)
    lookup = cluster.lookup_request(table, keys, len(keys), mode=2)
    calls = [client.embedding.Lookup.future(lookup, timeout=60, wait_for_ready=True) for _ in range(20)]
    for call in calls:
        assert len(call.result().values) == 4 * 8 * len(keys)
    step = {"session": cluster.session(), "number": 1, "parts": 1}
    push = cluster.push_request(table, keys, np.ones((len(keys), 8), np.float32), step)
    assert client.embedding.Push(push, timeout=60).table_step > 0


def test_clients_work_through_the_proxy_and_calls_that_never_come_stay_outside(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(1, TIGHT)
    table = cluster.create(dim=8)
    with proxy(cluster, tmp_path) as address, ExitStack() as stack:
        client = RankClient(address, cluster.protocol)
        works(client, cluster, table)
        connections = [
            stack.enter_context(closing(RawConnection(address, early_acknowledgements=number % 2)))
            for number in range(CONNECTIONS)
        ]
        for connection in connections:
            connection.begin_calls(CALLS)
        works(client, cluster, table)
        client.channel.close()
    assert "cut off " not in cluster.logs()
