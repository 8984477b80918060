"""Clients that begin calls and end none, whatever they acknowledge. Others go on, and memory has a bound.

gRPC keeps 12 to 50 KB for each call that is open, and bounds their number only for clients that have
acknowledged its SETTINGS. No Slotwise package is used.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import pytest
from abuse_guard import SMALL, Guard, raw_connections, status
from certificates import Authority
from raw_http2 import Frame, RawConnection
from slotwise_cluster import RankClient, StartCluster, wait_until

CALLS = 5_000  # that a connection would begin: 60 MB, if the server did not end it
CONNECTIONS = 8
DATA, HEADERS, RST_STREAM, CONTINUATION = 0, 1, 3, 9
END_HEADERS = 4
ONE_MESSAGE_OF_MANY = b"\0\0\1\0\0" + bytes(10)
MOST_FIELDS = 230  # as gRPC counts them, with a call's own they have a few bytes less than 8 KiB
TOO_MANY = "it opened more calls than the 256 that limits.max_calls_per_connection allows"

# The flags of the first frame of headers, and what follows.
CALL: dict[str, tuple[int, Sequence[Frame]]] = {
    "headers": (END_HEADERS, []),
    "headers_in_two_frames": (0, [(CONTINUATION, END_HEADERS, b"")]),
    "half_a_message": (END_HEADERS, [(DATA, 0, ONE_MESSAGE_OF_MANY)]),
}
ACKNOWLEDGEMENTS = (0, 1, 3, None)  # early, and as one should


class Tls:
    """What a server by TLS needs, gRPC's clients of it, and others."""

    def __init__(self, folder: Path) -> None:
        ours = Authority(folder, "ours")
        certificate, key = ours.issue("server", "server", ("127.0.0.1", "localhost"))
        self.config = f'security {{ tls {{ certificate_file: "{certificate}" key_file: "{key}" }} }}'
        self.credentials = grpc.ssl_channel_credentials(ours.ca_file.read_bytes())
        self.context = ssl.create_default_context(cafile=str(ours.ca_file))
        self.context.set_alpn_protocols(["h2"])


def test_open_calls_of_a_connection_have_a_bound(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, f"limits {{ {SMALL} }}")
    with Guard(cluster):
        for early in ACKNOWLEDGEMENTS:
            for flags, more in CALL.values():
                with raw_connections(cluster.ranks, 1, early_acknowledgements=early) as (connection,):
                    connection.begin_calls(CALLS, flags, more)
                    assert connection.is_cut_off()
    wait_until(lambda: TOO_MANY in cluster.logs(), "the log names the bound")


def test_calls_that_are_reset_in_between_have_a_bound(start_cluster: StartCluster) -> None:
    """gRPC may keep the memory of a call that was reset for a while."""
    cluster = start_cluster(1, f"limits {{ {SMALL} }}")
    with Guard(cluster):
        for _ in range(CONNECTIONS):
            with raw_connections(cluster.ranks, 1, early_acknowledgements=0) as (connection,):
                for _ in range(CALLS // 200):
                    connection.begin_calls(100)
                    connection.calls_given_up(100, 100)
                assert connection.is_cut_off()


def test_open_calls_of_all_connections_have_a_bound(start_cluster: StartCluster) -> None:
    """However many connections take what they may, others find room for as much."""
    most = 2048
    cluster = start_cluster(1, f"limits {{ {SMALL} max_calls: {most} }}")
    with (
        Guard(cluster, busy=10),
        raw_connections(cluster.ranks, 50, early_acknowledgements=0) as none,
        raw_connections(cluster.ranks, 50, early_acknowledgements=1) as one,
    ):
        connections = [connection for pair in zip(none, one) for connection in pair]
        for _ in range(2):
            for connection in connections:
                connection.begin_calls(200)
        named = "it opened more calls than are left for it of the 2048 that limits.max_calls"
        wait_until(lambda: named in cluster.logs(), "the log names the bound")


def test_calls_with_the_most_metadata_take_50_kb_each(start_cluster: StartCluster) -> None:
    """gRPC keeps 165 bytes for a field, however short, and counts as many bytes of it as there may be."""
    cluster = start_cluster(1, f"limits {{ {SMALL} }}")
    pid, connections, calls = cluster.pid(0), 10, 250

    before = status(pid, "VmRSS")
    with raw_connections(cluster.ranks, connections) as opened:
        for connection in opened:
            connection.calls_given_up(1, 1, MOST_FIELDS)  # gRPC takes as much at once for the next
            connection.begin_calls(calls, fields=MOST_FIELDS)
            connection.await_server()
            assert not connection.closed
        grown = status(pid, "VmRSS") - before
        print(f"grew by {grown / (connections * calls):.1f} KB a call")
        assert grown <= 50 * connections * calls + 16 * 1024
        connection.begin_calls(1, fields=MOST_FIELDS + 10)
        assert connection.is_cut_off(), "gRPC takes no more"


@pytest.mark.parametrize("by_tls", [False, True])
def test_few_connections_keep_no_other_from_its_first_calls(
    start_cluster: StartCluster, tmp_path: Path, by_tls: bool
) -> None:
    """Half of all calls are kept for two of each connection, here as by default."""
    limits = "limits { max_connections: 64 max_calls_per_connection: 64 max_calls: 256 }"
    tls = Tls(tmp_path) if by_tls else None
    cluster = start_cluster(1, limits + (tls.config if tls else ""), tls=tls.credentials if tls else None)
    address = cluster.ranks[0].address

    def connect(stack: ExitStack) -> RawConnection:
        connection = RawConnection(address, tls=tls.context if tls else None)
        return stack.enter_context(closing(connection))

    table = cluster.create(dim=1)
    with ExitStack() as stack:
        greedy: list[RawConnection] = []
        left = 128
        while left > 0:
            further = min(62, (left + 1) // 2)
            greedy.append(connect(stack))
            greedy[-1].begin_calls(2 + further)
            greedy[-1].await_server()
            left -= further
        assert "cut off" not in cluster.logs(), "they take no more than they may"
        for _ in range(20):
            cluster.describe(table)  # by a connection that was there before
            newcomer = RankClient(address, cluster.protocol, tls.credentials if tls else None)
            newcomer.admin.GetTopology(cluster.protocol.GetTopologyRequest(), timeout=60)
            newcomer.channel.close()
        several = connect(stack)
        several.begin_calls(2)
        several.await_server()
        assert not several.closed
        several.begin_calls(1)
        assert several.is_cut_off(), "they have taken all further calls"
        wait_until(lambda: "left for it of the 256" in cluster.logs(), "the log names the bound")
        for connection in greedy:
            connection.pump()
            assert not connection.closed


def test_open_calls_have_a_bound_by_tls(start_cluster: StartCluster, tmp_path: Path) -> None:
    tls = Tls(tmp_path)
    cluster = start_cluster(1, f"limits {{ {SMALL} }} {tls.config}", tls=tls.credentials)
    for early in (0, 1):
        made = raw_connections(cluster.ranks, 1, tls=tls.context, early_acknowledgements=early)
        with made as (connection,):
            connection.begin_calls(CALLS)
            assert connection.is_cut_off()
    wait_until(lambda: f"a connection by TLS: {TOO_MANY}" in cluster.logs(), "the log names the bound")
    table = cluster.create(dim=1)
    for _ in range(300):  # each call of a connection ends, so there is room for the next
        cluster.describe(table)
