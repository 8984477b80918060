"""Attacks below gRPC: HTTP/2 frames of no message. No other caller notices, and memory has a bound.

No Slotwise package is used.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing

import grpc
import numpy as np
import pytest
from abuse_guard import ATTACKED, SMALL, Guard
from judged_times import LONG_FORMS
from raw_http2 import RawConnection
from slotwise_cluster import Cluster, RankClient, StartCluster, wait_until

MIB = 1 << 20
PIECE = MIB  # of an attack: what a connection sends at a time
PIECES = 60 if LONG_FORMS else 20
AT_ONCE = 4  # connections
DATA, PRIORITY, SETTINGS, PING, WINDOW_UPDATE, UNKNOWN = 0, 2, 4, 6, 8, 77

# gRPC frees the memory of calls that were given up when it comes to it, which a busy machine puts off. The
# meter lets through 3,277 such calls a second (FrameMeter::kReset of SharedFrames::kASecond), of 20 KB each.
GIVEN_UP_MIB_A_SECOND = 64

Attack = Callable[[RawConnection], None]


def header(name: bytes, size: int) -> bytes:
    """A field of a header, of up to 16 KiB, as HPACK's literal."""
    more = size - 127
    return b"\0" + bytes([len(name)]) + name + bytes([127, more & 127 | 128, more >> 7]) + b"y" * size


def frames(kind: int, payload: bytes = b"") -> Attack:
    return lambda connection: connection.frames(kind, PIECE // (9 + len(payload)), payload)


def data(payload: bytes) -> Attack:
    def attack(connection: RawConnection) -> None:
        stream = connection.call("slotwise.v1.Rows/Import")
        connection.frames(DATA, PIECE // (9 + len(payload)), payload, stream)

    return attack


ATTACKS: dict[str, Attack] = {
    "pings": frames(PING, bytes(8)),
    "settings": frames(SETTINGS),
    "many_settings": frames(SETTINGS, bytes([0, 4, 0, 0, 255, 255]) * 2000),
    "priorities": frames(PRIORITY, bytes(5)),
    "window_updates": frames(WINDOW_UPDATE, bytes([0, 0, 0, 1])),
    "unknown_frames": frames(UNKNOWN),
    "empty_data": data(b""),
    "data_by_the_byte": data(b"\0"),
    "headers_without_end": lambda connection: connection.headers_without_end(PIECE, header(b"x", 16_000)),
    "headers_of_nothing": lambda connection: connection.headers_without_end(PIECE, b""),
    "calls_given_up_at_once": lambda connection: connection.calls_given_up(PIECE // 160, 1),
    "calls_given_up_together": lambda connection: connection.calls_given_up(PIECE // 160, 200),
}


@pytest.mark.parametrize("ranks", ATTACKED)
@pytest.mark.parametrize("attack", ATTACKS)
def test_frames_without_messages_cost_others_nothing(
    start_cluster: StartCluster, ranks: int, attack: str
) -> None:
    cluster = start_cluster(ranks, f"limits {{ {SMALL} }}")
    with Guard(cluster, mib_a_second=GIVEN_UP_MIB_A_SECOND if "given_up" in attack else 0):
        flood(cluster, ATTACKS[attack])


def flood(cluster: Cluster, attack: Attack) -> None:
    """The attack from several connections by turns, each again once it is cut off, as all are in the end."""
    with ExitStack() as stack:

        def connect(number: int) -> RawConnection:
            return stack.enter_context(closing(RawConnection(cluster.rank(number).address)))

        connections = [connect(number) for number in range(AT_ONCE)]
        for piece in range(PIECES):
            place = piece % AT_ONCE
            attack(connections[place])
            if connections[place].closed:
                connections[place] = connect(piece)
        for connection in connections:
            # A busy machine may take so long over one piece that it is within the bounds of a second.
            for _ in range(10):
                if not connection.closed:
                    attack(connection)
            assert connection.is_cut_off()


def test_many_tiny_calls_are_no_attack(start_cluster: StartCluster) -> None:
    """Of a connection, with as many under way as it may have; some are given up."""
    cluster = start_cluster(1, f"limits {{ {SMALL} }}")
    table = cluster.create(dim=1)
    client = RankClient(cluster.ranks[0].address, cluster.protocol)
    request = cluster.lookup_request(table, np.zeros(1), 1, mode=2)
    for _ in range(20):
        calls = [client.embedding.Lookup.future(request, timeout=60) for _ in range(500)]
        for call in calls[::50]:
            call.cancel()
        codes = {call.code() for call in calls}
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}, codes
    client.channel.close()
    assert "cut off " not in cluster.logs()


def test_a_connection_is_cut_off_by_name(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, f"limits {{ {SMALL} }}")
    with closing(RawConnection(cluster.ranks[0].address)) as connection:
        host, port = connection.socket.getsockname()[:2]
        ATTACKS["settings"](connection)
        assert connection.is_cut_off()
    words = f"cut off ipv4:{host}:{port}: it sent more frames without messages, or gave up more calls, than"
    wait_until(lambda: words in cluster.logs(), "a line of the log")
