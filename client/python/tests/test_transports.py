"""Every transport means the same, to the byte: memory shared with the server, sockets, and gRPC."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import numpy as np
import pytest
from fake_server import FakeServer
from judged_times import LONG_FORMS
from numpy.typing import NDArray
from real_server import RealServer, make_anew
from waiting import NO_ANSWER, connect_briefly, wait_until

import slotwise

TRANSPORTS = ["best", "shm", "tcp", "grpc"]
DIM = 16
SLOTS = 3
SEED = 20261123


@pytest.fixture(scope="module", params=[1, 3] if LONG_FORMS else [3])
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """A server that shares less memory with its clients than a large batch has."""
    server = RealServer(request.param, config="limits { max_shared_mib: 8 }")
    yield server
    assert server.stop() == 0


def batch(
    random: np.random.Generator, samples: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float32]]:
    """Keys, offsets and weights of bags of 0 to 3 keys."""
    lengths = random.integers(0, 4, samples * SLOTS)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)
    keys = random.integers(0, 5000, offsets[-1]).astype(np.uint64)
    return keys, offsets, random.normal(size=len(keys)).astype(np.float32)


def train(ps: slotwise.Client, wire_dtype: str) -> tuple[list[NDArray[np.float32]], str]:
    """Trains a table, by batches of none to many samples; returns what it saw, and the digest."""
    print(f"seed {SEED}")
    random = np.random.default_rng(SEED)
    make_anew(ps, "transports", dim=DIM, slots=SLOTS, combiner="mean", optimizer=slotwise.AdaGrad(lr=0.1))
    make_anew(ps, "others", dim=5, combiner="none", optimizer=slotwise.SGD(lr=0.1))
    seen, ones = [], np.ones((2000, 5), np.float32)
    for samples in (1, 0, 7, 300, 40_000, 2):
        keys, offsets, weights = batch(random, samples)
        found = ps.lookup("transports", keys, offsets, weights=weights, wire_dtype=wire_dtype)
        seen.append(found)
        gradients = random.normal(size=found.shape).astype(np.float32)
        ps.push("transports", keys, offsets, gradients, weights=weights, wire_dtype=wire_dtype)
        others = random.integers(0, 900, 2000).astype(np.uint64)
        lookups = {"transports": (keys, offsets), "others": (others,)}
        seen += ps.lookup_many(lookups, wire_dtype=wire_dtype).values()
        pushes = {"others": (others, None, ones), "transports": (keys, offsets, gradients)}
        ps.push_many(pushes, wire_dtype=wire_dtype)
    return seen, ps.digest("transports").digest + ps.digest("others").digest


@pytest.mark.parametrize("wire_dtype", ["float32", "bfloat16"])
def test_all_transports_give_the_same_bytes(server: RealServer, wire_dtype: str) -> None:
    expected = None
    for transport in TRANSPORTS:
        with slotwise.connect(server.address, transport=transport) as ps:
            seen, digest = train(ps, wire_dtype)
        if expected is None:
            expected = seen, digest
        assert digest == expected[1], transport
        for one, other in zip(seen, expected[0]):
            np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32), err_msg=transport)


def counted(ps: slotwise.Client, calls: int) -> tuple[int, int]:
    """All ranks' lookups and the bytes of their replies, once there are so many lookups.

    A rank counts a call a little after its answer.
    """
    lookups = [rank.lookups for rank in ps.stats()]
    if sum(count.calls for count in lookups) < calls:
        wait_until(lambda: sum(rank.lookups.calls for rank in ps.stats()) >= calls, "all calls' counts")
        lookups = [rank.lookups for rank in ps.stats()]
    return sum(count.calls for count in lookups), sum(count.bytes_out for count in lookups)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_key_that_comes_often_travels_once(server: RealServer, transport: str) -> None:
    """Rows that are not pooled come to all places of their keys, and each is sent once."""
    print(f"seed {SEED}")
    random = np.random.default_rng(SEED)
    distinct = random.integers(0, 2**63, 700, dtype=np.uint64)
    keys = np.concatenate([distinct, random.choice(distinct, 5300)])
    random.shuffle(keys)
    with slotwise.connect(server.address, transport=transport) as ps:
        make_anew(ps, "often", dim=DIM, slots=SLOTS, combiner="mean", optimizer=slotwise.SGD(lr=0.1))
        start, _ = counted(ps, 0)
        rows = ps.lookup("often", np.concatenate([distinct, distinct[:2]])).reshape(-1, DIM)
        row_of = dict(zip(distinct.tolist(), rows))
        expected = np.stack([row_of[key] for key in keys.tolist()])
        _, before = counted(ps, start + 1)
        found = ps.lookup("often", keys, np.arange(len(keys) + 1)).reshape(-1, DIM)
        sent = counted(ps, start + 2)[1] - before
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
        assert sent < 702 * DIM * 4 + 1000
        assert sum(shard.rows for shard in ps.describe_table("often").shards) == 700


def shared_by(pid: int) -> int:
    """How many shared buffers a process has mapped."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        return sum("slotwise-shared" in line for line in maps)


def test_the_best_transport_on_this_host_is_shared_memory(server: RealServer) -> None:
    before = shared_by(os.getpid())
    for transport, shares in (("best", True), ("shm", True), ("tcp", False), ("grpc", False)):
        with slotwise.connect(server.address, transport=transport) as ps:
            train(ps, "float32")
            assert (shared_by(os.getpid()) > before) == shares, transport
        # It is closed, though `ps` is there.
        wait_until(lambda: shared_by(os.getpid()) == before, "a shared buffer that is unmapped")


def test_clients_for_whom_no_memory_is_left_are_served_by_sockets(server: RealServer) -> None:
    """A rank shares 8 MiB here, of which a connection gets an eighth."""
    with contextlib.ExitStack() as stack:
        holders = []
        for _ in range(8):
            holders.append(stack.enter_context(slotwise.connect(server.address, channels_per_rank=1)))
            expected = train(holders[-1], "float32")
        assert all(rank.shared_bytes == rank.max_shared_bytes for rank in holders[0].stats())
        with slotwise.connect(server.address) as late:
            assert train(late, "float32")[1] == expected[1]
            make_anew(late, "words", dim=4, combiner="none", optimizer=slotwise.SGD(lr=1))
            with connect_briefly(server.address, transport="shm", timeout=2) as none:
                with pytest.raises(NO_ANSWER, match="max_shared_mib"):
                    none.lookup("words", [1, 2])


def test_shared_memory_of_another_host_is_unavailable(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    """A server that names no socket of this host."""
    fake_ps.create_table("words", dim=4, combiner="none", optimizer=slotwise.SGD(lr=1))
    with connect_briefly(*fake.addresses, transport="shm", timeout=1) as ps:
        with pytest.raises(NO_ANSWER, match="no server on this host"):
            ps.lookup("words", [1, 2])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_of_several_tables_is_refused_at_the_full_ones_place(
    server: RealServer, transport: str
) -> None:
    keys = np.arange(10, dtype=np.uint64)
    ones = np.ones((10, 2), np.float32)
    with slotwise.connect(server.address, transport=transport) as ps:
        for name, most in (("roomy", 0), ("full", 3), ("also", 0)):
            make_anew(ps, name, dim=2, max_rows=most, optimizer=slotwise.SGD(lr=0.1))
        for names in (["roomy", "full", "also"], ["full", "roomy"], ["also", "roomy", "full"]):
            refused = rf"\[{names.index('full')}\]: table full is full"
            with pytest.raises(slotwise.ResourceExhausted, match="^pushes" + refused):
                ps.push_many({name: (keys, None, ones) for name in names})
            with pytest.raises(slotwise.ResourceExhausted, match="^lookups" + refused):
                ps.lookup_many({name: (keys,) for name in names})
            assert {ps.describe_table(name).steps for name in names} == {0}
