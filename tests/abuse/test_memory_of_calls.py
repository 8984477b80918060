"""Calls that would have a server hold much memory for long: it stays within its budget, and serves others.

No Slotwise package is used, and for unread replies not even gRPC (raw_http2.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import numpy as np
import pytest
from abuse_guard import ATTACKED, export_request, raw_connections, status
from raw_http2 import RawConnection
from slotwise_cluster import Cluster, StartCluster, wait_until

QUEUE = 64  # MiB
ROUND = 16
REPLY_TIMEOUT = 2000  # milliseconds
LIMITS = (
    f"limits {{ max_message_mib: 16 max_round_mib: {ROUND} max_queue_mib: {QUEUE}"
    f" reply_timeout_ms: {REPLY_TIMEOUT} }}"
)
# What a rank may take beside its tables, in MiB: docs/config.md, "Memory". The last is what malloc keeps.
RECEIVED = 2 * QUEUE
EXPORTS = QUEUE // 4
SPARE = 96
DIM = 4096
REFLECTION = "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
WAITING = 300.0  # seconds; these calls are not answered before the test ends


@contextmanager
def at_most(cluster: Cluster, mib: int, rank: int = 0) -> Iterator[None]:
    """Guards a rank's memory: it grows by no more than `mib`, not even for a moment."""
    pid = cluster.pid(rank)
    before = status(pid, "VmRSS")
    yield
    grown = (status(pid, "VmHWM") - before) // 1024
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
                assert "limits.max_queue_mib" in error.details()
            return False

    wait_until(served, "an answer for others")


def call_often(connections: list[RawConnection], method: str, request: bytes, times: int) -> None:
    """Calls a method so many times on each connection, and reads no reply."""
    for connection in connections:
        for _ in range(times):
            connection.call(method, request)


def await_end(connections: list[RawConnection], calls: int) -> None:
    """Returns once so many calls of each connection have ended."""

    def all_ended() -> bool:
        for connection in connections:
            connection.pump()
        return all(len(connection.ended) == calls for connection in connections)

    wait_until(all_ended, "the end of every call")


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
def test_unread_replies(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, LIMITS)
    table = cluster.create(dim=DIM)
    request = large_lookup(cluster, table)
    limit = at_most(cluster, QUEUE + 2 * ROUND + SPARE)
    with limit, raw_connections(cluster.ranks[:1], 8) as made:
        connections = list(made)
        call_often(connections, "slotwise.v1.Embedding/Lookup", request, 100)
        timeout = f"within limits.reply_timeout_ms, {REPLY_TIMEOUT} ms"
        cluster.await_messages(f"cut off ipv4:127.0.0.1:.*which did not take a reply {timeout}")
        others_are_served(cluster, table)
        await_end(connections, 100)


def test_unread_connections(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, LIMITS)
    table = cluster.create(dim=DIM)
    request = large_lookup(cluster, table)
    files = f"/proc/{cluster.pid(0)}/fd"
    others_are_served(cluster, table)
    limit = at_most(cluster, QUEUE + 2 * ROUND + SPARE)
    with limit, raw_connections(cluster.ranks, 40, reads=False) as made:
        connections = list(made)
        call_often(connections, "slotwise.v1.Embedding/Lookup", request, 20)
        most = len(os.listdir(files))
        others_are_served(cluster, table)
        # Few replies fill the queue. The other connections got refusals, which lie in the system's buffers.
        wait_until(lambda: len(os.listdir(files)) < most, "the end of a connection that is full")
        others_are_served(cluster, table)


@pytest.mark.parametrize("ranks", ATTACKED)
def test_messages_that_are_not_finished(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, LIMITS)
    table = cluster.create(dim=DIM)

    def stall(connection: RawConnection) -> None:
        for _ in range(10):
            connection.call("slotwise.v1.Embedding/Push", bytes(15 << 20), length=16 << 20, end=False)

    with at_most(cluster, RECEIVED + SPARE), raw_connections(cluster.ranks[:1], 6) as connections:
        with ThreadPoolExecutor(6) as attackers:
            list(attackers.map(stall, connections))
        others_are_served(cluster, table)


def test_a_message_of_the_largest_size_is_served(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, "limits { max_message_mib: 16 max_queue_mib: 16 }")
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
    with at_most(cluster, QUEUE + SPARE), raw_connections(cluster.ranks, 1) as (connection,):
        call_often([connection], "slotwise.v1.Embedding/Push", part, 40)
        others_are_served(cluster, table)
    assert cluster.digest(table)[1:] == (1, 0)


def test_waiting_parts_lie_in_memory_once(start_cluster: StartCluster) -> None:
    queue = 256
    cluster = start_cluster(1, f"limits {{ max_queue_mib: {queue} }}")
    table = cluster.create(dim=DIM)
    with at_most(cluster, queue + SPARE), raw_connections(cluster.ranks, 1) as (connection,):
        for number in range(1, 37):
            connection.call("slotwise.v1.Embedding/Push", part_of(cluster, table, 512, number))  # 8 MiB

        def refused() -> int:
            connection.pump()
            return len(connection.ended)

        wait_until(lambda: refused() >= 36 - queue // 8, "refusals")
    assert cluster.digest(table)[1:] == (0, 0)


def test_what_comes_with_a_part_of_the_step_that_waits_longest(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, LIMITS)
    table = cluster.create(dim=DIM)
    embedding = cluster.ranks[0].embedding
    push_request = cluster.protocol.PushRequest.FromString
    first = part_of(cluster, table, 1, number=1)
    calls = [embedding.Push.future(first, timeout=WAITING)]
    with at_most(cluster, 2 * QUEUE + ROUND + RECEIVED + SPARE):
        for number in range(2, 42):
            more = part_of(cluster, table, 480, number)  # 7.5 MiB
            pushes = [push_request(first), push_request(more)]
            both = cluster.protocol.PushManyRequest(pushes=pushes).SerializeToString()
            calls.append(embedding.PushMany.future(both, timeout=WAITING))
        wait_until(lambda: waits_or_is_refused(calls, "limits.max_queue_mib") > 0, "refusals")
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
    # The first is more than the queue has room for, and comes in while that is empty.
    with at_most(cluster, 6 * QUEUE):
        calls = [cluster.ranks[0].embedding.PushMany.future(r, timeout=WAITING) for r in requests]
        wait_until(lambda: waits_or_is_refused(calls, "limits.max_queue_mib") == len(calls) - 1, "refusals")
    for call in calls:
        call.cancel()


def test_unread_exports(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, LIMITS)
    table = cluster.create(dim=1)
    for first in range(0, 400_000, 100_000):  # 3 MiB of keys
        cluster.lookup(table, np.arange(first, first + 100_000, dtype=np.uint64), 100_000)
    with at_most(cluster, EXPORTS + SPARE), raw_connections(cluster.ranks, 4) as made:
        connections = list(made)
        call_often(connections, "slotwise.v1.Rows/Export", export_request(table), 25)
        await_end(connections, 25)


def test_a_connection_has_so_many_calls(start_cluster: StartCluster) -> None:
    for config, calls in (("", 256), ("limits { max_calls_per_connection: 7 }", 7)):
        with raw_connections(start_cluster(1, config).ranks, 1) as (connection,):
            assert connection.most_streams == calls


def test_calls_of_closed_connections_are_not_kept(start_cluster: StartCluster) -> None:
    """Of reflection, which asks no caller's name. gRPC's own service kept 9 KB of each: 260 MiB of 30,000."""
    cluster = start_cluster(1)

    def flood(connections: int) -> None:
        for _ in range(connections):
            with raw_connections(cluster.ranks, 1) as (connection,):
                for _ in range(60):
                    connection.call(REFLECTION, b"\x3a\x01*", end=False)

    flood(50)
    with at_most(cluster, 130):
        flood(500)
    cluster.topology()
