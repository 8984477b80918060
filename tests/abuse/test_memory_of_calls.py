"""Calls that would have a server hold much memory for long: it stays within its budget, and serves others.

No Slotwise package is used, and for replies that nobody reads not even gRPC (raw_http2.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import grpc
import numpy as np
import pytest
from abuse_guard import ATTACKED
from raw_http2 import RawConnection
from slotwise_cluster import Cluster, StartCluster, wait_until

INBOX = 64  # MiB
ROUND = 16
REPLY_TIMEOUT = 2000  # milliseconds
LIMITS = (
    f"limits {{ max_message_mib: 16 max_round_mib: {ROUND} max_inbox_mib: {INBOX}"
    f" reply_timeout_ms: {REPLY_TIMEOUT} }}"
)
# What a rank may take beside its tables, in MiB: docs/config.md, "Memory". The last is what malloc keeps.
RECEIVED = 2 * INBOX
EXPORTS = INBOX // 4
SPARE = 96
DIM = 4096
REFLECTION = "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
WAITING = 300.0  # seconds; these calls are not answered before the test ends


def status(pid: int, field: str) -> int:
    """A size of /proc/PID/status, in MiB."""
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(field))


@contextmanager
def at_most(cluster: Cluster, mib: int, rank: int = 0) -> Iterator[None]:
    """Guards a rank's memory: it grows by no more than `mib`, not even for a moment."""
    pid = cluster.pid(rank)
    before = status(pid, "VmRSS")
    yield
    grown = status(pid, "VmHWM") - before
    print(f"grew by {grown} MiB of {mib}")
    assert grown <= mib


def large_lookup(cluster: Cluster, table: str) -> bytes:
    """A request of 1 KiB, whose reply has 2 MiB."""
    keys = np.zeros(128, "<u8").tobytes()
    return bytes(cluster.protocol.LookupRequest(table=table, keys=keys, samples=128).SerializeToString())


def others_are_served(cluster: Cluster, table: str, rank: int = 0) -> None:
    """Returns once a lookup of somebody else's has an answer.

    It is sent again as clients do: gRPC without memory for messages closes connections that have no call.
    """

    def served() -> bool:
        try:
            return cluster.lookup(table, np.zeros(128, np.uint64), 128, rank=rank).size == 128 * DIM
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
                assert "limits.max_inbox_mib" in error.details()
            return False

    wait_until(served, "an answer for others")


def part_of(cluster: Cluster, table: str, samples: int, number: int) -> bytes:
    """The first of the two parts of a step; a sample has 16 KiB."""
    step = {"session": 1, "number": number, "part": 0, "parts": 2}
    keys = np.arange(samples, dtype=np.uint64)
    request = cluster.push_request(table, keys, np.ones((samples, DIM), np.float32), step)
    return bytes(request.SerializeToString())


def waits_or_is_refused(calls: list[grpc.Future], limit: str) -> int:
    """How many of the calls were refused, each with the limit's name."""
    refused = [call for call in calls if call.done()]
    for call in refused:
        assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, call.details()
        assert limit in call.details()
    return len(refused)


@pytest.mark.parametrize("ranks", ATTACKED)
def test_replies_that_nobody_reads(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, LIMITS)
    table = cluster.create(dim=DIM)
    request = large_lookup(cluster, table)
    with at_most(cluster, INBOX + 2 * ROUND + SPARE):
        connections = [RawConnection(cluster.ranks[0].address) for _ in range(8)]
        for connection in connections:
            for _ in range(100):
                connection.call("slotwise.v1.Embedding/Lookup", request)
        cut_off = "cut off ipv4:127.0.0.1:"
        reason = f"which did not take a reply within limits.reply_timeout_ms, {REPLY_TIMEOUT} ms"
        wait_until(
            lambda: any(cut_off in line and reason in line for line in cluster.messages(0)), "the log's line"
        )
        others_are_served(cluster, table)

        def all_ended() -> bool:
            for connection in connections:
                connection.pump()
            return all(len(connection.ended) == 100 for connection in connections)

        wait_until(all_ended, "the end of every call")
    for connection in connections:
        connection.close()


def test_connections_that_nobody_reads(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, LIMITS)
    table = cluster.create(dim=DIM)
    request = large_lookup(cluster, table)
    files = f"/proc/{cluster.pid(0)}/fd"
    others_are_served(cluster, table)
    with at_most(cluster, INBOX + 2 * ROUND + SPARE):
        connections = [RawConnection(cluster.ranks[0].address, reads=False) for _ in range(40)]
        for connection in connections:
            for _ in range(20):
                connection.call("slotwise.v1.Embedding/Lookup", request)
        most = len(os.listdir(files))
        others_are_served(cluster, table)
        # Few replies fill the inbox. The other connections got refusals, which lie in the system's buffers.
        wait_until(lambda: len(os.listdir(files)) < most, "the end of a connection that is full")
        others_are_served(cluster, table)
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("ranks", ATTACKED)
def test_messages_that_are_not_finished(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, LIMITS)
    table = cluster.create(dim=DIM)
    connections = []

    def stall() -> None:
        connection = RawConnection(cluster.ranks[0].address)
        connections.append(connection)
        for _ in range(10):
            connection.call("slotwise.v1.Embedding/Push", bytes(15 << 20), length=16 << 20, end=False)

    with at_most(cluster, RECEIVED + SPARE):
        attackers = [threading.Thread(target=stall) for _ in range(6)]
        for attacker in attackers:
            attacker.start()
        for attacker in attackers:
            attacker.join()
        others_are_served(cluster, table)
    for connection in connections:
        connection.close()


def test_a_message_of_the_largest_size_is_served(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, "limits { max_message_mib: 16 max_inbox_mib: 16 }")
    table = cluster.create(dim=DIM)
    gradients = np.ones((1023, DIM), np.float32)
    keys = np.arange(1023, dtype=np.uint64)
    for number in range(1, 20):
        step = {"session": 1, "number": number, "parts": 1}
        assert cluster.push(cluster.push_request(table, keys, gradients, step)) == number


@pytest.mark.parametrize("ranks", ATTACKED)
def test_a_waiting_part_that_comes_again_and_again(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, LIMITS)
    table = cluster.create(dim=DIM)
    part = part_of(cluster, table, 700, number=1)  # 11 MiB
    connection = RawConnection(cluster.ranks[0].address)
    with at_most(cluster, INBOX + SPARE):
        for _ in range(40):
            connection.call("slotwise.v1.Embedding/Push", part)
        others_are_served(cluster, table)
    connection.close()
    assert cluster.digest(table)[1:] == (1, 0)


def test_waiting_parts_lie_in_memory_once(start_cluster: StartCluster) -> None:
    inbox = 256
    cluster = start_cluster(1, f"limits {{ max_inbox_mib: {inbox} }}")
    table = cluster.create(dim=DIM)
    connection = RawConnection(cluster.ranks[0].address)
    with at_most(cluster, inbox + SPARE):
        for number in range(1, 37):
            connection.call("slotwise.v1.Embedding/Push", part_of(cluster, table, 512, number))  # 8 MiB

        def refused() -> int:
            connection.pump()
            return len(connection.ended)

        wait_until(lambda: refused() >= 36 - inbox // 8, "refusals")
    connection.close()
    assert cluster.digest(table)[1:] == (0, 0)


def test_what_comes_with_a_part_of_the_step_that_waits_longest(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, LIMITS)
    table = cluster.create(dim=DIM)
    embedding = cluster.ranks[0].embedding
    push_request = cluster.protocol.PushRequest.FromString
    first = part_of(cluster, table, 1, number=1)
    calls = [embedding.Push.future(first, timeout=WAITING)]
    with at_most(cluster, 2 * INBOX + ROUND + RECEIVED + SPARE):
        for number in range(2, 42):
            more = part_of(cluster, table, 480, number)  # 7.5 MiB
            pushes = [push_request(first), push_request(more)]
            both = cluster.protocol.PushManyRequest(pushes=pushes).SerializeToString()
            calls.append(embedding.PushMany.future(both, timeout=WAITING))
        wait_until(lambda: waits_or_is_refused(calls, "limits.max_inbox_mib") > 0, "refusals")
        cluster.digest(table)
    for call in calls:
        call.cancel()


def test_a_message_of_very_many_requests(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, LIMITS)
    table = cluster.create(dim=4)
    message = cluster.protocol.PushManyRequest

    def steps(session: int) -> bytes:
        pushes = message()
        for number in range(1, 65_537):
            push = pushes.pushes.add(table=table)
            push.step.session, push.step.number, push.step.parts = session, number, 2
        return bytes(pushes.SerializeToString())

    requests = [steps(session) for session in range(1, 6)]  # 1.4 MB each
    # The first is more than the inbox has room for, and comes in while that is empty.
    with at_most(cluster, 6 * INBOX):
        calls = [cluster.ranks[0].embedding.PushMany.future(r, timeout=WAITING) for r in requests]
        wait_until(lambda: waits_or_is_refused(calls, "limits.max_inbox_mib") == len(calls) - 1, "refusals")
    for call in calls:
        call.cancel()


def test_exports_that_nobody_reads(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, LIMITS)
    table = cluster.create(dim=1)
    for first in range(0, 400_000, 100_000):  # 3 MiB of keys
        cluster.lookup(table, np.arange(first, first + 100_000, dtype=np.uint64), 100_000)
    request = b"\x0a" + bytes([len(table)]) + table.encode()
    with at_most(cluster, EXPORTS + SPARE):
        connections = [RawConnection(cluster.ranks[0].address) for _ in range(4)]
        for connection in connections:
            for _ in range(25):
                connection.call("slotwise.v1.Rows/Export", request)

        def all_ended() -> bool:
            for connection in connections:
                connection.pump()
            return all(len(connection.ended) == 25 for connection in connections)

        wait_until(all_ended, "the end of every call")
    for connection in connections:
        connection.close()


def test_a_connection_has_so_many_calls(start_cluster: StartCluster) -> None:
    for config, calls in (("", 256), ("limits { max_calls_per_connection: 7 }", 7)):
        connection = RawConnection(start_cluster(1, config).ranks[0].address)
        assert connection.most_streams == calls
        connection.close()


def test_calls_of_closed_connections_are_not_kept(start_cluster: StartCluster) -> None:
    """Of reflection, which asks nobody who calls. gRPC's own service kept 9 KB of each: 260 MiB of 30,000."""
    cluster = start_cluster(1)

    def flood(connections: int) -> None:
        for _ in range(connections):
            with closing(RawConnection(cluster.ranks[0].address)) as connection:
                for _ in range(60):
                    connection.call(REFLECTION, b"\x3a\x01*", end=False)

    flood(50)
    with at_most(cluster, 130):
        flood(500)
    cluster.topology()
