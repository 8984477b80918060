"""In a container with little memory tables take what is left of it, and a full table ends no server.

The kernel ends a process that takes more than the group has. So each test fills a table until it is refused
more, and then sends what may take the most memory, from many callers at once.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from memory_group import MemoryGroup, memory_group
from slotwise_cluster import Cluster, StartCluster, run_server
from slotwise_wire import CALL_TIMEOUT, CHANNEL_OPTIONS

CALLERS = 12
MANY = 10_000_000  # bytes of a large request
EXPECTED = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}
SEED = 31


def for_tables_mib(cluster: Cluster) -> int:
    """What the log says that a rank's tables may take."""
    (line,) = cluster.await_messages("of the host's memory a rank has")
    (mib,) = re.findall(r"and (\d+) are for tables", line)
    return int(mib)


def constant(cluster: Cluster) -> Any:
    """Initial values that take no time to draw."""
    initializer = cluster.protocol.Initializer()
    initializer.constant.value = 1
    return initializer


def fill(cluster: Cluster, table: str) -> int:
    """Adds rows until there is no memory for more; the bytes of the table, of all ranks."""
    random = np.random.default_rng(SEED)
    row = 4 * cluster.describe(table).options.dim
    keys = min(100_000, (64 << 20) // row)
    while keys >= 100:
        try:
            more = random.integers(0, 2**64, keys, dtype=np.uint64)
            cluster.lookup(table, more, 1, offsets=[0, keys])
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
            keys //= 10
    return sum(int(shard.bytes) for shard in cluster.describe(table).shards)


def large_requests(cluster: Cluster, table: str, dim: int, size: int) -> list[Any]:
    """Lookups and pushes of about so many bytes: one key a bag and many, new keys and repeated ones."""
    random = np.random.default_rng(SEED)

    def push(keys: np.ndarray, bags: int) -> Any:
        offsets = np.linspace(0, len(keys), bags + 1).astype(np.uint32)
        return cluster.push_request(table, keys, np.ones((bags, dim), np.float32), offsets=offsets)

    def new_keys(count: int) -> np.ndarray:
        return random.integers(0, 2**64, count, dtype=np.uint64)

    many, wide = size // 8, size // (12 + 4 * dim)
    return [
        cluster.lookup_request(table, new_keys(many), 1, offsets=[0, many]),
        cluster.lookup_request(table, new_keys(2 * wide), 2 * wide),
        push(new_keys(wide), wide),
        push(random.integers(0, 1000, many, dtype=np.uint64), 1000),
    ]


def besiege(cluster: Cluster, table: str, dim: int) -> Counter[str]:
    """Sends large calls of many callers at once, of several sizes; how often each outcome was."""
    sizes = (MANY, MANY // 4, MANY // 16)
    requests = [r for size in sizes for r in large_requests(cluster, table, dim, size)]

    def call(caller: int) -> Counter[str]:
        outcomes = Counter[str]()
        address = cluster.rank(caller).address
        with grpc.insecure_channel(address, options=[*CHANNEL_OPTIONS, ("caller", caller)]) as channel:
            embedding = cluster.protocol.stub(channel, "Embedding")
            for n in range(len(requests)):
                request = requests[(caller + n) % len(requests)]
                try:
                    if isinstance(request, cluster.protocol.PushRequest):
                        mine = cluster.protocol.PushRequest.FromString(request.SerializeToString())
                        mine.step.session, mine.step.number = 1000 + caller, n + 1
                        embedding.Push(mine, timeout=CALL_TIMEOUT)
                    else:
                        embedding.Lookup(request, timeout=CALL_TIMEOUT)
                    outcomes["answered"] += 1
                except grpc.RpcError as error:
                    assert error.code() in EXPECTED, error
                    outcomes[error.code().name] += 1
        return outcomes

    with ThreadPoolExecutor(CALLERS) as callers:
        return sum(callers.map(call, range(CALLERS)), Counter())


@contextmanager
def serving(
    start_cluster: StartCluster, mib: int, ranks: int, config: str = ""
) -> Iterator[tuple[Cluster, MemoryGroup]]:
    """A server in a group of `mib`, of which no process is killed."""
    with memory_group(mib) as group:
        cluster = start_cluster(ranks, config, within=group.enter())
        try:
            yield cluster, group
            assert group.killed() == 0, f"{group.killed()} killed:\n{cluster.logs()}"
            assert cluster.process.poll() is None, cluster.logs()
        finally:
            print(f"at most {group.peak_mib():.0f} of {mib} MiB")
            if cluster.process.poll() is None:
                cluster.stop()


def test_a_start_and_check_config_are_of_one_mind_on_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    config = tmp_path / "server.pbtxt"
    config.write_text("")
    with memory_group(1024) as group:  # as of a server below
        checked = run_server("--config", str(config), "--check-config", wrapper=group.enter())
        assert (checked.returncode, checked.stdout) == (0, f"{config} is right: 0 table(s)\n"), checked
        config.write_text("limits { max_round_mib: 512 max_queue_mib: 1024 }")
        arguments = ("--config", str(config), "--backend", "cpu", "--listen", "127.0.0.1:0")
        ended = run_server(*arguments, wrapper=group.enter())
    assert ended.returncode == 1
    named = "limits.max_round_mib: 512, limits.max_queue_mib: 1024: with this a rank sets aside"
    assert named in ended.stderr
    assert "a rank's share of its host's memory is 1024 MiB" in ended.stderr


@pytest.mark.parametrize(
    "mib, ranks, dim, config",
    [
        (1024, 1, 64, ""),
        (2048, 2, 256, ""),
        (1024, 1, 16, "limits { max_queue_mib: 64 max_round_mib: 32 }"),
        (512, 1, 1, ""),
    ],
)
def test_a_full_table_and_large_calls(
    start_cluster: StartCluster, mib: int, ranks: int, dim: int, config: str
) -> None:
    with serving(start_cluster, mib, ranks, config) as (cluster, group):
        table = cluster.create(dim=dim, initializer=constant(cluster))
        may_take = for_tables_mib(cluster) * ranks
        if not config:
            assert 2 * may_take >= mib, "half is for tables where nothing else is said"
        took = fill(cluster, table) / 2**20
        assert took > 0.4 * may_take, "what is for tables is theirs to take"
        outcomes = besiege(cluster, table, dim)
        print(f"tables took {took:.0f} MiB of {may_take}; {outcomes}")
        assert outcomes["answered"] > 0
        keys = np.arange(100, dtype=np.uint64)
        assert cluster.lookup(table, keys, 100, mode=2).shape == (100, dim)


def test_a_full_table_is_saved_and_exported(start_cluster: StartCluster, tmp_path: Path) -> None:
    """Lists of keys and rows, and rows that change meanwhile, take memory too; short rows have long lists."""
    config = f'durability {{ folder: "{tmp_path}/data" mode: DURABILITY_MODE_SYNC }}'
    with serving(start_cluster, 1024, 1, config) as (cluster, _):
        table = cluster.create(dim=1, initializer=constant(cluster))
        fill(cluster, table)
        rows = cluster.describe(table).shards[0].rows
        assert rows > 1_000_000
        channel = cluster.ranks[0].channel
        save = cluster.ranks[0].admin.SaveCheckpoint.future(cluster.protocol.SaveCheckpointRequest())
        export = cluster.protocol.stub(channel, "Rows").Export
        request = cluster.protocol.ExportRequest(table=table)
        streams = [export(request, timeout=CALL_TIMEOUT) for _ in range(4)]
        outcomes = besiege(cluster, table, 1)
        assert outcomes["answered"] > 0
        for stream in streams:
            try:
                assert sum(len(message.keys) // 8 for message in stream) >= rows
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
                assert str(error.details()).startswith("the server is busy: "), error
        exported = sum(len(message.keys) // 8 for message in export(request, timeout=CALL_TIMEOUT))
        assert exported == cluster.describe(table).shards[0].rows >= rows
        assert save.result(timeout=CALL_TIMEOUT).rows >= rows


@pytest.mark.parametrize("saved", [False, True], ids=["journal", "checkpoint"])
def test_tables_that_fill_the_memory_come_back_into_it(
    start_cluster: StartCluster, tmp_path: Path, saved: bool
) -> None:
    """The group has the pages of the journal's files, too, which the recovery reads twice."""
    config = f'durability {{ folder: "{tmp_path}/data" mode: DURABILITY_MODE_SYNC }}'
    random = np.random.default_rng(SEED)
    with memory_group(512) as group:
        cluster = start_cluster(1, config, within=group.enter())
        growing = [cluster.create(dim=dim, initializer=constant(cluster)) for dim in (1, 16, 7, 16)]
        tables = list(growing)
        while growing:  # each takes a little of what is left, in turn
            for table in list(growing):
                try:
                    cluster.lookup(table, random.integers(0, 2**64, 20_000, dtype=np.uint64), 20_000)
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
                    why = r"beside the \d+ rows of this rank: \d+ MiB are left for tables"
                    assert re.search(why, str(error.details())), error
                    growing.remove(table)
        if saved:
            saving = cluster.ranks[0].admin.SaveCheckpoint(cluster.protocol.SaveCheckpointRequest())
            print(f"{saving.rows} rows are saved")
        before = [cluster.digest(table) for table in tables]
        os.kill(cluster.pid(0), signal.SIGKILL)
        cluster.process.wait()
        cluster = start_cluster(1, config, within=group.enter())
        assert [cluster.digest(table) for table in tables] == before
        assert sum(rows for _, rows, _ in before) > 1_000_000
        outcomes = besiege(cluster, tables[1], 16)
        assert outcomes["answered"] > 0
        assert group.killed() == 0, cluster.logs()
        cluster.stop()
        group.limit(256)
        listen = ("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--durability", "sync")
        ended = run_server("--backend", "cpu", *listen, wrapper=group.enter())
        assert ended.returncode == 1
        assert f"what {tmp_path}/data holds needs more memory, or higher limits" in ended.stderr


@pytest.mark.parametrize("durable", [False, True], ids=["", "replayed"])
def test_many_tables_work_in_the_memory_of_one(
    start_cluster: StartCluster, tmp_path: Path, durable: bool
) -> None:
    """A table keeps what its largest batch was worked on in, and all may keep no more than a round needs."""
    config = f'durability {{ folder: "{tmp_path}/data" mode: DURABILITY_MODE_SYNC }}' if durable else ""
    with serving(start_cluster, 1024, 1, config) as (cluster, group):
        tables = [cluster.create(dim=1) for _ in range(24)]
        most = cluster.topology().max_round_bytes
        keys = np.arange(most // 32, dtype=np.uint64) % 1000
        offsets = np.linspace(0, len(keys), 1001).astype(np.uint32)

        def push(table: str) -> None:
            gradients = np.ones((1000, 1), np.float32)
            cluster.push(cluster.push_request(table, keys, gradients, offsets=offsets))

        push(tables[0])
        one = group.own_mib()
        for table in tables * 2:
            push(table)
        # The rest is what is kept for requests. Each table's own would be 24 times more than a round.
        assert group.own_mib() < one + 3 * most / 2**20, "memory for each table's batch"
    if not durable:
        return
    with serving(start_cluster, 1024, 1, config) as (cluster, group):
        assert [cluster.describe(table).steps for table in tables] == [3] + [2] * 23
        assert group.own_mib() < one + 3 * most / 2**20, "memory for each table that was replayed"
