"""Attacks by small requests: the server lives, others are served as before, and memory has a bound.

No Slotwise package is used. Attacks that a server does not withstand yet are marked with what they need; with
SLOTWISE_ABUSE=all in the environment they run all the same.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest
from abuse_guard import ATTACKED, SMALL, Guard, export_request, needs, raw_connections
from hashes import unmix64
from judged_times import expect_time, seconds_of
from slotwise_cluster import Cluster, RankClient, StartCluster, refusal

SEED = 20261122
MIB = 1 << 20


@pytest.fixture(params=ATTACKED, ids=lambda ranks: f"{ranks}_ranks")
def attacked(request: pytest.FixtureRequest, start_cluster: StartCluster) -> Iterator[Cluster]:
    """A server of small limits, which must stop in good order after the attack, and soon."""
    cluster = start_cluster(request.param, f"limits {{ {SMALL} }}")
    yield cluster
    expect_time("the server's end", seconds_of(cluster.stop), 15)


def refusals(calls: list[Any]) -> set[grpc.StatusCode]:
    """Waits for calls' ends; the codes of those that were refused, of which a call of each is printed."""
    refused = {call.code(): call.details() for call in calls if call.code() != grpc.StatusCode.OK}
    print(refused)
    return set(refused)


# --- messages that are small on the wire, or lie about what they are


def test_a_compressed_message_is_not_unpacked(attacked: Cluster) -> None:
    request = attacked.protocol.LookupRequest(table=attacked.create(), keys=bytes(256 * MIB))
    lookup = request.SerializeToString()
    with Guard(attacked):
        for algorithm in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            call = partial(attacked.ranks[0].embedding.Lookup, timeout=60, compression=algorithm)
            refusal(grpc.StatusCode.UNIMPLEMENTED, call, lookup)


def mutate(message: bytes, draw: random.Random) -> bytes:
    """Some bytes other than they were, left out, or there twice."""
    data = bytearray(message)
    for _ in range(draw.randint(1, 4)):
        first, last = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
        if draw.random() < 0.5 and data:
            data[draw.randrange(len(data))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif draw.random() < 0.5:
            del data[first : min(last, first + 20)]
        else:
            data[first:first] = data[first : min(last, first + 20)]
    return bytes(data)


def test_mutated_messages_are_served_or_refused(attacked: Cluster) -> None:
    table, draw = attacked.create(dim=2, slots=2, max_rows=10_000), random.Random(SEED)
    lookup = attacked.lookup_request(table, [1, 2, 3], 1, offsets=[0, 1, 3], weights=bytes(12))
    step = {"session": 1, "number": 1, "parts": 2}
    push = attacked.push_request(table, [1, 2, 3], np.ones((1, 4)), step, offsets=[0, 1, 3])
    many = attacked.protocol.LookupManyRequest(lookups=[lookup] * 3)
    pushes = attacked.protocol.PushManyRequest(pushes=[push] * 3)
    seeds = {"Lookup": lookup, "Push": push, "LookupMany": many, "PushMany": pushes}
    allowed = {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.DEADLINE_EXCEEDED,  # a part of a step whose other part never comes
    }
    with Guard(attacked):
        for _ in range(20):
            calls = []
            for method, seed in seeds.items():
                for _ in range(25):
                    send = getattr(attacked.rank(draw.randrange(2)).embedding, method).future
                    calls.append(send(mutate(seed.SerializeToString(), draw), timeout=0.3))
            codes = {call.code() for call in calls}
            assert codes <= allowed, codes


def test_offsets_and_counts_that_lie_are_refused(attacked: Cluster) -> None:
    table = attacked.create(dim=4096, slots=1)
    with Guard(attacked):
        for samples in (1, 1000, 2**31, 2**32 - 1):
            for offsets in (b"", np.array([0, 2**32 - 1], "<u4").tobytes(), bytes(4 * 1000)):
                request = attacked.protocol.LookupRequest(table=table, samples=samples, offsets=offsets)
                call = partial(attacked.ranks[0].embedding.Lookup, timeout=60)
                refusal(grpc.StatusCode.INVALID_ARGUMENT, call, request)


# --- incomplete steps


MOST = 65_536  # requests that one message may have


def incomplete_steps(cluster: Cluster, table: str, session: int, count: int = MOST) -> Any:
    """A PushMany of so many steps, of each of which a part is missing."""
    step, push = cluster.protocol.StepId, cluster.protocol.PushRequest
    numbers = range(1, count + 1)
    parts = [push(table=table, step=step(session=session, number=n, parts=2)) for n in numbers]
    return cluster.protocol.PushManyRequest(pushes=parts)


def test_incomplete_steps_stop_no_other_caller(attacked: Cluster) -> None:
    """Thousands of requests in a message take others' turn once; no round is slower for them afterwards."""
    table = attacked.create(dim=1)
    # 8 MiB are charged for them, a quarter of the queue.
    message = incomplete_steps(attacked, table, attacked.session(), 4096).SerializeToString()
    with Guard(attacked):
        call = attacked.ranks[0].embedding.PushMany.future(message, timeout=5)
        assert refusals([call]) == {grpc.StatusCode.DEADLINE_EXCEEDED}


def test_incomplete_steps_leave_room_for_others(attacked: Cluster) -> None:
    """Without arrays, but by their number they would fill each rank's queue, to the last place."""
    table, ranks = attacked.create(dim=1), len(attacked.ranks)
    counts = [count for count in [2048] * 16 + [64] * 40 + [1] * 64 for _ in range(ranks)]
    parts = [incomplete_steps(attacked, table, attacked.session(), count) for count in counts]
    messages = [message.SerializeToString() for message in parts]
    with Guard(attacked):
        calls = [attacked.rank(n).embedding.PushMany.future(m, timeout=5) for n, m in enumerate(messages)]
        refused = refusals(calls)
        assert refused == {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_a_message_of_more_steps_than_the_queue_holds_is_refused(attacked: Cluster) -> None:
    message = incomplete_steps(attacked, attacked.create(dim=1), attacked.session()).SerializeToString()
    with Guard(attacked):
        call = partial(attacked.ranks[0].embedding.PushMany, timeout=60)
        said = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, call, message)
        assert "limits.max_queue_mib never leaves room" in said


def test_a_message_of_thousands_of_steps_keeps_no_other_caller_waiting(attacked: Cluster) -> None:
    """Each step is complete and takes a round; callers take turns."""
    table, session, count = attacked.create(dim=1), attacked.session(), 8192
    step, push = attacked.protocol.StepId, attacked.protocol.PushRequest
    steps = [step(session=session, number=n, parts=1) for n in range(1, count + 1)]
    message = attacked.protocol.PushManyRequest(pushes=[push(table=table, step=s) for s in steps])
    with Guard(attacked):
        reply = attacked.ranks[-1].embedding.PushMany(message.SerializeToString(), timeout=300)
        assert [each.table_step for each in reply.replies] == list(range(1, count + 1))


def test_copies_of_a_waiting_part_take_no_memory(attacked: Cluster) -> None:
    """The part waits once; its copies let go of their arrays, and wait for the same answer."""
    table, ranks = attacked.create(dim=64), len(attacked.ranks)
    keys = np.arange(10_000)
    step = {"session": 3, "number": 1, "parts": 2}
    part = attacked.push_request(table, keys, np.ones((len(keys), 64)), step).SerializeToString()
    assert 2 * MIB < len(part) < 4 * MIB
    with Guard(attacked):
        pending = [attacked.rank(n).embedding.Push.future(part, timeout=10) for n in range(120 * ranks)]
        # gRPC without memory for messages closes connections that have no call: UNAVAILABLE.
        expected = {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
        assert {code.name for code in refusals(pending)} <= expected


# --- tables


def test_tables_without_number_slow_no_caller_down(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2, f"limits {{ {SMALL} max_tables: 500 }}")
    made = [cluster.create()]
    with Guard(cluster):
        with pytest.raises(grpc.RpcError) as refused:
            while True:
                made.append(cluster.create())
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(made) == 499, "the guard has one"
        assert "limits.max_tables" in refused.value.details()
        for name in made:
            cluster.drop(name)


def test_wide_tables_take_no_memory_before_they_have_rows(attacked: Cluster) -> None:
    adam = attacked.protocol.Optimizer(adam=attacked.protocol.Adam(), learning_rate=0.1)
    with Guard(attacked):
        for number in range(60):
            try:
                attacked.create(f"wide_{number}", dim=4096, max_rows=1 << 40, optimizer=adam)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


# --- connections


def test_connections_that_say_nothing_or_nonsense_leave_room(start_cluster: StartCluster) -> None:
    limit = 64
    cluster = start_cluster(1, f"limits {{ {SMALL} max_connections: {limit} }}")
    host, _, port = cluster.ranks[0].address.rpartition(":")
    beginnings = [b"", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(512)]
    with Guard(cluster):
        for wave in range(5):
            with ExitStack() as stack:
                for number in range(2 * limit):
                    try:
                        flood = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
                        flood.sendall(beginnings[(wave + number) % len(beginnings)])
                    except OSError:
                        pass  # closed as it came, as it should be
            newcomer = RankClient(cluster.ranks[0].address, cluster.protocol)
            request = cluster.protocol.ListTablesRequest()
            reply = newcomer.admin.ListTables(request, timeout=60, wait_for_ready=True)
            assert len(reply.tables) == 1
            newcomer.channel.close()


# --- callers that do not end what they begin, or do not take what they asked for


@needs("a bound on what a connection has sent that is still unread: past gRPC's own, others' calls end too")
def test_messages_that_stall_half_way_are_bounded(attacked: Cluster) -> None:
    message, length = bytes(4 * MIB - 2000), 4 * MIB - 1000
    with raw_connections(attacked.ranks, 120 * len(attacked.ranks)) as connections, Guard(attacked):
        for connection in connections:
            connection.call("slotwise.v1.Embedding/Lookup", message, length=length, end=False)


@pytest.mark.parametrize("method", ["slotwise.v1.Embedding/Lookup", "grpc.health.v1.Health/Watch"])
def test_streams_without_number_are_bounded(attacked: Cluster, method: str) -> None:
    """Calls that are begun and not made, and unread watches of the health."""
    messages = [b""] if method.endswith("Watch") else []
    with raw_connections(attacked.ranks, 4 * len(attacked.ranks)) as connections, Guard(attacked):
        for connection in connections:
            for _ in range(10_000):
                if not connection.closed:  # cut off, as it should be
                    connection.call(method, *messages)


@pytest.mark.parametrize("method", ["Lookup", "LookupMany"])
def test_unread_replies_are_bounded(attacked: Cluster, method: str) -> None:
    table = attacked.create(dim=4096)
    lookup = attacked.lookup_request(table, np.zeros(200), 200, mode=2)  # a reply of 3 MiB
    many = attacked.protocol.LookupManyRequest(lookups=[lookup] * 4)
    message = (lookup if method == "Lookup" else many).SerializeToString()
    with raw_connections(attacked.ranks, 10 * len(attacked.ranks)) as connections, Guard(attacked):
        for connection in connections:
            for _ in range(20 if method == "Lookup" else 5):  # 600 MiB of replies to a rank
                connection.call(f"slotwise.v1.Embedding/{method}", message)


def test_unread_exports_are_bounded(attacked: Cluster) -> None:
    table = attacked.create(dim=1)
    for first in range(0, 1_000_000, 250_000):
        attacked.lookup(table, np.arange(first, first + 250_000), 250_000)
    with raw_connections(attacked.ranks, 100) as connections, Guard(attacked):
        for connection in connections:
            connection.call("slotwise.v1.Rows/Export", export_request(table))


# --- keys


def test_keys_that_are_crafted_for_one_place_are_as_fast_as_others(attacked: Cluster) -> None:
    table = attacked.create(dim=1)
    keys = colliding_keys(60_000)
    with Guard(attacked):
        assert attacked.lookup(table, keys, len(keys)).shape == (60_000, 1)


def colliding_keys(count: int) -> np.ndarray:
    """Keys whose searches begin at one cell and go one way, in a table of up to 2^20 cells (hash_table.h)."""
    numbers = np.arange(count, dtype=np.uint64)
    low, high = numbers & np.uint64(0xFFF), numbers >> np.uint64(12)
    keys = unmix64(low << np.uint64(20) | high << np.uint64(50))
    assert len(np.unique(keys)) == count
    return keys
