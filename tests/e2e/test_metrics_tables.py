"""What a rank says of its tables, its journal and its checkpoints is what was done to them."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from slotwise_cluster import Cluster, StartCluster, wait_until
from slotwise_metrics import METRICS, scrape, total

import slotwise


@pytest.mark.parametrize("ranks", [1, 3])
def test_tables_are_what_was_done_to_them(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, METRICS)
    with slotwise.connect(cluster.ranks[0].address) as ps:
        ps.create_table("ads", dim=4, max_rows=5000, optimizer=slotwise.SGD(lr=0.1))
        ps.create_table("idle", dim=4, optimizer=slotwise.SGD(lr=0.1))
        keys = np.arange(600, dtype=np.uint64)
        for _ in range(2):
            ps.lookup("ads", keys)
        ps.lookup("ads", keys + 10_000, train=False)
        for first in (0, 300, 600):  # the last of them brings new keys
            ps.push("ads", keys[:300] + first, None, np.ones((300, 4), np.float32))
        erased = ps.erase("ads", np.arange(100, dtype=np.uint64))
        assert erased == 100
        described = ps.describe_table("ads")
    wait_until(
        lambda: total(cluster, "slotwise_table_erased_rows_total", table="ads") == 100, "the last round"
    )
    sums = {
        "rows": 800,
        "new_rows_total": 900,
        "erased_rows_total": 100,
        "bytes": sum(each.bytes for each in described.shards),
        "hash_cells": sum(each.cells for each in described.shards),
        "max_rows": 5000 * ranks,
        "steps_total": 3 * ranks,
    }
    for name, value in sums.items():
        assert total(cluster, f"slotwise_table_{name}", table="ads") == value, name
    batches = {"lookup": (1800, 1800), "push": (900, 900)}
    for method, (samples, of_keys) in batches.items():
        for name, value in (("samples", samples), ("keys", of_keys)):
            labels = {"table": "ads", "method": method}
            assert total(cluster, f"slotwise_table_{name}_total", **labels) == value, (name, method)
    travelled = total(cluster, "slotwise_table_batches_total", table="ads")
    assert travelled == 0 if ranks == 1 else travelled >= 6 * ranks
    for name in ("rows", "new_rows_total", "steps_total", "keys_total"):
        assert total(cluster, f"slotwise_table_{name}", table="idle") == 0, name
    free = total(cluster, "slotwise_device_memory_free_bytes")
    assert total(cluster, "slotwise_device_memory_bytes") > free > 0
    assert total(cluster, "process_resident_memory_bytes") > 1 << 20


@pytest.mark.parametrize("ranks", [1, 3])
def test_keys_that_repeat_in_a_step_are_fewer_rows(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, METRICS)
    with slotwise.connect(cluster.ranks[0].address) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.1))
        # Each key thrice, each once, and one so often that its sum has several blocks.
        for keys in (np.arange(600) // 3, np.arange(50), np.full(100, 7)):
            ps.push("ads", keys, None, np.ones((len(keys), 4), np.float32))
        ps.lookup("ads", np.arange(100) // 2)
    wait_until(
        lambda: total(cluster, "slotwise_table_keys_total", table="ads", method="lookup") > 0, "the lookup"
    )
    assert total(cluster, "slotwise_table_step_keys_total", table="ads") == 600 + 50 + 100
    assert total(cluster, "slotwise_table_step_rows_total", table="ads") == 200 + 50 + 1


@pytest.mark.parametrize("ranks", [1, 3])
def test_probes_are_of_the_first_batch_and_the_first_behind_a_rehash(
    start_cluster: StartCluster, ranks: int
) -> None:
    cluster = start_cluster(ranks, METRICS)
    table, idle = cluster.create(), cluster.create()
    few = np.arange(500, dtype=np.uint64)
    sampled = 256 if ranks == 1 else 500  # 256 of a rank's keys at most

    def probes(suffix: str, of: str = table, **labels: str) -> float:
        return total(cluster, f"slotwise_table_probe_length_{suffix}", table=of, **labels)

    def after(keys: np.ndarray, count: float) -> None:
        cluster.lookup(table, keys, len(keys))
        wait_until(lambda: probes("count") == count, f"{count} searches are counted")

    after(few, sampled)
    assert probes("sum") == probes("bucket", le="1") == sampled, "an empty table has no longer ones"
    for rank in range(4):
        cluster.lookup(table, few, len(few), rank=rank)
    cells = sum(shard.cells for shard in cluster.describe(table).shards)
    after(np.arange(10_000, 10_000 + 1500 * ranks, dtype=np.uint64), sampled)
    assert sum(shard.cells for shard in cluster.describe(table).shards) > cells, "the tables grew"
    after(few, 2 * sampled)
    assert probes("sum") >= 2 * sampled
    assert probes("bucket", le="+Inf") == 2 * sampled
    assert probes("count", of=idle) == 0


@pytest.mark.parametrize("ranks", [1, 3])
def test_exchanges_are_those_of_the_batches(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, METRICS)
    operations = ("all_gather", "reduce_scatter", "all_to_all")

    def counted(operation: str, suffix: str = "count") -> float:
        return total(cluster, f"slotwise_exchange_duration_seconds_{suffix}", operation=operation)

    # The ranks connect, and measure what a way of bags costs, as they start.
    at_start = {operation: counted(operation) for operation in operations}
    table = cluster.create(slots=2, combiner="COMBINER_MEAN")
    keys = np.arange(3000, dtype=np.uint64)
    for turn in range(4):
        cluster.lookup(table, keys, 500, rank=turn, offsets=np.arange(0, 3001, 3))

    def exchanges(operation: str) -> float:
        return counted(operation) - at_start[operation]

    def travelled(way: str) -> float:
        return total(cluster, "slotwise_table_batches_total", table=table, travel=way)

    expected = 0 if ranks == 1 else 4 * ranks
    wait_until(lambda: travelled("all_bags") + travelled("owned_bags") == expected, "the last round")
    assert exchanges("reduce_scatter") == travelled("all_bags"), "a lookup's partial sums"
    assert exchanges("all_to_all") == travelled("owned_bags")
    # Every lookup's keys are gathered, as are its offsets.
    assert expected <= exchanges("all_gather") <= 2 * expected
    for operation in operations:
        assert (counted(operation, "sum") > 0) == (counted(operation) > 0) == (ranks > 1)
        of_ranks = {
            scrape(cluster, rank)[
                "slotwise_exchange_duration_seconds_count", frozenset({("operation", operation)})
            ]
            for rank in range(ranks)
        }
        assert len(of_ranks) == 1, "every rank takes part in each"


@pytest.mark.parametrize("ranks", [1, 3])
def test_gradients_that_are_not_finite_are_counted(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, METRICS)
    table, idle = cluster.create(), cluster.create()
    gradients = np.ones((2, 4), np.float32)
    gradients[1, 2] = np.nan
    step = {"session": cluster.session(), "number": 1, "parts": 1}
    for _ in range(2):
        with pytest.raises(grpc.RpcError):
            cluster.push(cluster.push_request(table, [1, 2], gradients, step))
    cluster.push(cluster.push_request(idle, [1, 2], np.ones((2, 4), np.float32), step))
    without = cluster.push_request(table, [1, 2], np.ones((2, 4), np.float32), step)
    without.ClearField("gradients")
    with pytest.raises(grpc.RpcError):
        cluster.push(without)
    gradients[1, 2] = -np.inf
    with slotwise.connect(cluster.ranks[0].address) as ps, pytest.raises((slotwise.Error, ValueError)):
        ps.push(table, np.arange(1), None, gradients[1:])
    assert total(cluster, "slotwise_table_non_finite_pushes_total", table=table) == 3
    assert total(cluster, "slotwise_table_non_finite_pushes_total", table=idle) == 0
    assert total(cluster, "slotwise_table_steps_total", table=table) == 0


def drawn_keys(random: np.random.Generator, count: int) -> np.ndarray:
    """Half of the keys are one key, another quarter nine others, the rest are all different."""
    keys = random.integers(1 << 32, 1 << 63, count, dtype=np.uint64)
    choice = random.random(count)
    keys[choice < 0.75] = random.integers(1, 10, np.count_nonzero(choice < 0.75))
    keys[choice < 0.5] = 77
    return keys


@pytest.mark.parametrize("ranks", [1, 3])
def test_hot_keys_have_their_share(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, METRICS)
    random = np.random.default_rng(20261124)
    with slotwise.connect(cluster.ranks[0].address) as ps:
        for table in ("pushed", "looked_up", "even", "idle"):
            ps.create_table(table, dim=1, slots=1, combiner="sum", optimizer=slotwise.SGD(lr=0.1))
        count = 400_000 * ranks
        ones = np.ones((count, 1), np.float32)
        ps.push("pushed", drawn_keys(random, count), np.arange(count + 1), ones)
        # Of bags of one key the client would send each key once.
        ps.lookup("looked_up", drawn_keys(random, count), np.arange(0, count + 1, 2))
        ps.push("even", np.arange(count), np.arange(count + 1), ones)
    for rank in range(ranks):
        found = scrape(cluster, rank)

        def share(table: str, top: int) -> float:
            return found["slotwise_table_hot_keys_share", frozenset({("table", table), ("top", str(top))})]

        # A rank samples 400 keys or so: four standard deviations are 0.1.
        for table in ("pushed", "looked_up"):
            assert share(table, 1) == pytest.approx(0.5, abs=0.1), (rank, table)
            assert share(table, 10) == pytest.approx(0.75, abs=0.1), (rank, table)
            assert share(table, 10) < share(table, 100) <= 1, (rank, table)
        assert 0 < share("even", 1) < 0.01, rank
        for top in (1, 10, 100):
            assert share("idle", top) == 0, rank


def staleness(cluster: Cluster, table: str) -> dict[str, float]:
    """How many parts were at most so many steps stale, by some of the bounds, and the steps' sum."""
    name = "slotwise_table_staleness_steps"
    bounds = ["0", "1", "2", "4", "8", "4096", "+Inf"]
    found = {le: total(cluster, f"{name}_bucket", table=table, le=le) for le in bounds}
    assert found["+Inf"] == total(cluster, f"{name}_count", table=table)
    return {**found, "sum": total(cluster, f"{name}_sum", table=table)}


@pytest.mark.parametrize("door", ["best", "tcp", "grpc"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_staleness_is_how_many_steps_came_between_a_lookup_and_its_push(
    start_cluster: StartCluster, ranks: int, door: str
) -> None:
    cluster = start_cluster(ranks, METRICS)
    keys, ones = np.arange(10, dtype=np.uint64), np.ones((10, 4), np.float32)
    late = [0, 0]  # of the two trainers: the table's steps when each looked up
    steps = 0
    seen = Counter[int]()
    with (
        slotwise.connect(cluster.ranks[0].address, door=door) as one,
        slotwise.connect(cluster.ranks[-1].address, door=door) as two,
    ):
        trainers = (one, two)
        for table in ("ads", "idle"):
            one.create_table(table, dim=4, optimizer=slotwise.SGD(lr=0.1))
        two.push("ads", keys, None, ones)  # it has looked nothing up: this is not counted
        steps += 1
        # l and p: the trainer looks up, or pushes. Trainers take turns, then one is left behind.
        for who, what in [(0, "l"), (1, "l"), (0, "p"), (1, "p"), (0, "p"), (0, "l"), (0, "p")] * 3 + [
            (1, "l"),
            *[(0, "p")] * 5,
            (1, "p"),
        ]:
            if what == "l":
                trainers[who].lookup("ads", keys, train=who == 0)
                late[who] = steps
            else:
                assert trainers[who].push("ads", keys, None, ones) == steps + 1
                seen[steps - late[who]] += 1
                steps += 1
        both = {name: (keys, None, ones) for name in ("ads", "idle")}
        one.lookup_many({name: (keys,) for name in both})
        two.push("ads", keys, None, ones)
        seen[steps - late[1]] += 1
        one.push_many(both)
        seen[1] += 1
    found = staleness(cluster, "ads")
    for bound in (0, 1, 2, 4, 8):
        assert found[str(bound)] == sum(count for late_by, count in seen.items() if late_by <= bound)
    assert {0, 1, 2, 5} < set(seen)
    assert found["+Inf"] == seen.total()
    assert found["sum"] == sum(late_by * count for late_by, count in seen.items())
    assert staleness(cluster, "idle") == dict.fromkeys(found, 1) | {"sum": 0}


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_push_may_say_anything_of_its_lookup(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, METRICS)
    table, other = cluster.create(), cluster.create()
    session = cluster.session()
    most = 2**64 - 1
    request = cluster.lookup_request(table, [1, 2], 2)
    lineage = cluster.rank(0).embedding.Lookup(request, timeout=60).lineage
    request = cluster.lookup_request(other, [1], 1)
    foreign = cluster.rank(0).embedding.Lookup(request, timeout=60).lineage
    assert 0 not in (lineage, foreign) and lineage != foreign
    names = 0

    def push(lineage: int, step: int, rank: int = 0, number: int | None = None) -> Any:
        nonlocal names
        names += number is None
        name = {"session": session, "number": names if number is None else number, "parts": 1}
        message = cluster.push_request(table, [1, 2], np.ones((2, 4), np.float32), name)
        message.looked_up.lineage, message.looked_up.table_step = lineage, step
        return cluster.push(message, rank)

    for said in [(lineage, 1), (lineage, most), (lineage, 2**63), (most, 0), (foreign, 0), (0, 0), (0, 5)]:
        push(*said)  # the first of them: the table has no step 1 yet
    nothing = dict.fromkeys(staleness(cluster, table), 0)
    assert staleness(cluster, table) == nothing
    assert push(lineage, 7, ranks - 1) == 8
    assert push(lineage, 0) == 9  # eight steps late
    expected = nothing | {"0": 1, "1": 1, "2": 1, "4": 1, "8": 2, "4096": 2, "+Inf": 2, "sum": 8}
    assert staleness(cluster, table) == expected
    # The same part with another state is the same part, which is neither applied nor counted again.
    for state in [(lineage, 3), (foreign, most), (0, 0)]:
        assert push(*state, number=9) == 9
        assert push(*state, rank=ranks - 1, number=9) == 9
    assert staleness(cluster, table) == expected
    assert total(cluster, "slotwise_table_steps_total", table=table) == 9 * ranks


def sampled(gradients: np.ndarray, first: int) -> tuple[float, int]:
    """The sum of squares, and how many numbers, of one line of 64 bytes of every 17."""
    flat = gradients.ravel()
    lines = np.arange(flat.size) // (64 // flat.itemsize)
    taken = flat[lines % 17 == first % 17].astype(np.float64)
    return float(np.square(taken).sum()), taken.size


@pytest.mark.parametrize("wire", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("door", ["best", "tcp", "grpc"])
def test_a_sample_of_the_gradients_is_summed(start_cluster: StartCluster, door: str, wire: str) -> None:
    ranks = 2
    cluster = start_cluster(ranks, METRICS)
    random = np.random.default_rng(20261125)
    squares, elements = 0.0, 0
    with slotwise.connect(cluster.ranks[0].address, door=door, wire_dtype=wire) as ps:
        ps.create_table("ads", dim=24, slots=3, combiner="sum", optimizer=slotwise.SGD(lr=1e-3))
        ps.create_table("idle", dim=4, optimizer=slotwise.SGD(lr=0.1))
        session = ps.new_session(parts=1)
        itemsize = 4 if wire == "float32" else 2
        for samples in (1, 2, 7, 100, 1000, 1):
            # Such numbers travel unrounded, and their squares' sums are exact.
            gradients = random.integers(-8, 9, (samples, 72)).astype(np.float32)
            step = session.next()
            ps.push("ads", random.integers(0, 99, 3 * samples), None, gradients, step=step)
            on_the_wire = gradients.astype(np.float32 if itemsize == 4 else np.float16)
            sums = sampled(on_the_wire, step.number)
            squares, elements = squares + sums[0], elements + sums[1]
        # A step that comes again is not counted again, and one that is refused is not counted.
        assert ps.push("ads", [1, 2, 3], None, gradients[:1] * 0 + 3, step=(last := session.next())) == 7
        again = sampled(np.full(72, 3, on_the_wire.dtype), last.number)
        squares, elements = squares + again[0], elements + again[1]
        for _ in range(3):
            ps.push("ads", [1, 2, 3], None, gradients[:1] * 0 + 3, step=last)
        bad = np.full((1000, 72), 5, np.float32)
        bad[-1, -1] = np.nan
        with pytest.raises((slotwise.Error, ValueError)):
            ps.push("ads", np.arange(3000), None, bad)
    assert elements > 4000
    assert total(cluster, "slotwise_table_gradient_squares_total", table="ads") == squares
    assert total(cluster, "slotwise_table_gradient_elements_total", table="ads") == elements
    for name in ("squares", "elements"):
        assert total(cluster, f"slotwise_table_gradient_{name}_total", table="idle") == 0


def test_the_largest_gradients_leave_the_sum_finite(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, METRICS)
    table = cluster.create()
    largest = np.full((200, 4), np.finfo(np.float32).max)
    largest[::2] *= -1
    for number in range(1, 4):
        step = {"session": cluster.session(), "number": 17 * number, "parts": 1}
        cluster.push(cluster.push_request(table, np.arange(200) % 50, largest, step))
    elements = total(cluster, "slotwise_table_gradient_elements_total", table=table)
    squares = total(cluster, "slotwise_table_gradient_squares_total", table=table)
    assert elements == 3 * 48
    assert (squares / elements) ** 0.5 == pytest.approx(float(np.finfo(np.float32).max))


def test_a_table_that_is_dropped_is_gone(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2, METRICS)
    with slotwise.connect(cluster.ranks[0].address) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.1))
        ps.lookup("ads", [1, 2, 3])
        wait_until(lambda: total(cluster, "slotwise_table_rows", table="ads") == 3, "rows")
        ps.drop_table("ads")
        assert all("ads" not in dict(labels).values() for _, labels in scrape(cluster, 0))
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.1))
    wait_until(lambda: ("slotwise_table_rows", frozenset({("table", "ads")})) in scrape(cluster, 1), "it")
    assert total(cluster, "slotwise_table_new_rows_total", table="ads") == 0


def test_a_step_that_comes_again_is_counted_and_not_applied(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, METRICS)
    table = cluster.create()
    step = {"session": cluster.session(), "number": 1, "parts": 1}
    request = cluster.push_request(table, [1, 2], np.ones((2, 4), np.float32), step)
    assert cluster.push(request) == 1
    assert total(cluster, "slotwise_repeated_parts_total") == 0
    for _ in range(3):
        assert cluster.push(request) == 1
    assert total(cluster, "slotwise_repeated_parts_total") == 3
    assert total(cluster, "slotwise_table_steps_total", table=table) == 1


def test_a_step_that_lacks_parts_is_said(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2, METRICS)
    table = cluster.create()
    step = {"session": cluster.session(), "number": 1, "parts": 2}
    first = cluster.push_request(table, [1, 2], np.ones((2, 4), np.float32), step)
    second = cluster.push_request(table, [3], np.ones((1, 4), np.float32), {**step, "part": 1})
    waiting = cluster.rank(0).embedding.Push.future(first)
    wait_until(lambda: total(cluster, "slotwise_incomplete_steps") == 2, "both ranks know of it")
    cluster.push(second, rank=1)
    waiting.result(timeout=60)
    wait_until(lambda: total(cluster, "slotwise_incomplete_steps") == 0, "it is complete")


def test_journal_and_checkpoints(start_cluster: StartCluster, tmp_path: Path) -> None:
    durable = f'durability {{ mode: DURABILITY_MODE_SYNC folder: "{tmp_path}/data" }}\n'
    cluster = start_cluster(2, METRICS + durable)
    with slotwise.connect(cluster.ranks[0].address) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.1))
        before = total(cluster, "slotwise_journal_written_bytes_total")
        ps.push("ads", np.arange(1000), None, np.ones((1000, 4), np.float32))
        # A rank records the parts that it received, keys and gradients.
        assert total(cluster, "slotwise_journal_written_bytes_total") - before >= 1000 * (8 + 4 * 4)
        assert total(cluster, "slotwise_journal_failed") == 0
        for rank in range(2):
            found = scrape(cluster, rank)
            assert found["slotwise_journal_durable_round", frozenset()] == (
                found["slotwise_journal_appended_round", frozenset()]
            ) > 0
            assert found["slotwise_journal_sync_duration_seconds_count", frozenset()] >= 2
        assert total(cluster, "slotwise_checkpoint_age_seconds") > 0
        assert total(cluster, "slotwise_checkpoints_total") == 0
        assert total(cluster, "slotwise_checkpoint_bytes") == 0, "there is none"
        assert total(cluster, "slotwise_journal_blocked") == 0
        disk = total(cluster, "slotwise_data_folder_bytes")
        assert disk == 2 * shutil.disk_usage(tmp_path).total
        assert 0 < total(cluster, "slotwise_data_folder_free_bytes") <= disk
        saved = ps.save()
        wait_until(lambda: total(cluster, "slotwise_checkpoint_under_way") == 0, "it was read back")
        for rank in range(2):
            found = scrape(cluster, rank)
            assert found["slotwise_checkpoints_total", frozenset({("outcome", "written")})] == 1
            assert found["slotwise_checkpoint_bytes", frozenset()] == saved.bytes > 0
            assert found["slotwise_checkpoint_rows", frozenset()] == saved.rows == 1000
            assert found["slotwise_checkpoint_age_seconds", frozenset()] == 0
            assert found["slotwise_checkpoint_duration_seconds_count", frozenset()] == 1
    cluster.stop()
    again = start_cluster(2, METRICS + durable)
    assert total(again, "slotwise_table_rows", table="ads") == 1000
    assert total(again, "slotwise_table_new_rows_total", table="ads") == 0, "rows that were there"
    assert total(again, "slotwise_table_steps_total", table="ads") == 2
    assert total(again, "slotwise_checkpoint_bytes") == 2 * saved.bytes, "whoever wrote it"
    assert total(again, "slotwise_checkpoint_rows") == 2 * 1000
    assert total(again, "slotwise_checkpoint_age_seconds") == 0, "nothing has changed since"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_start_goes_by_the_time_of_what_it_finds(
    start_cluster: StartCluster, tmp_path: Path, ranks: int
) -> None:
    """Where there is no checkpoint, that is the folder's, which gets other times here."""
    data, hour = tmp_path / "data", 3600
    durable = f'durability {{ mode: DURABILITY_MODE_SYNC folder: "{data}" checkpoint_every_s: {2 * hour} }}\n'
    cluster = start_cluster(ranks, METRICS + durable)
    with slotwise.connect(cluster.ranks[0].address) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.1))
    names = ("age_seconds", "bytes")

    def restart(hours: float) -> list[dict[str, float]]:
        """Starts again, as so many hours after the folder's first use: what ranks say of checkpoints."""
        nonlocal cluster
        cluster.stop()
        at = time.time() - hours * hour
        os.utime(data / "lineage", (at, at))
        cluster = start_cluster(ranks, METRICS + durable)
        found = [scrape(cluster, rank) for rank in range(len(cluster.ranks))]
        return [{name: each[f"slotwise_checkpoint_{name}", frozenset()] for name in names} for each in found]

    for each in restart(1):
        assert hour <= each["age_seconds"] < 2 * hour and each["bytes"] == 0, "the journal has what it lacks"
    for each in restart(-24):
        assert 0 < each["age_seconds"] < hour, "a time in the future counts as now"
    restart(3)
    wait_until(
        lambda: total(cluster, "slotwise_checkpoints_total", outcome="written") == len(cluster.ranks)
        and total(cluster, "slotwise_checkpoint_under_way") == 0,
        "one that is overdue is made at once",
    )
    assert total(cluster, "slotwise_checkpoint_bytes") > 0
    assert total(cluster, "slotwise_checkpoint_age_seconds") == 0


def test_rows_of_the_journal_are_there_and_did_not_come(start_cluster: StartCluster, tmp_path: Path) -> None:
    durable = f'durability {{ mode: DURABILITY_MODE_SYNC folder: "{tmp_path}/data" }}\n'
    cluster = start_cluster(2, METRICS + durable)
    with slotwise.connect(cluster.ranks[0].address) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.1))
        ps.push("ads", np.arange(1000), None, np.ones((1000, 4), np.float32))
    cluster.stop()
    again = start_cluster(2, METRICS + durable)
    assert total(again, "slotwise_table_rows", table="ads") == 1000
    assert total(again, "slotwise_table_steps_total", table="ads") == 2
    assert total(again, "slotwise_table_step_keys_total", table="ads") == 0
    with slotwise.connect(again.ranks[0].address) as ps:
        ps.lookup("ads", np.arange(1010))
        wait_until(lambda: total(again, "slotwise_table_rows", table="ads") == 1010, "the new rows")
    assert total(again, "slotwise_table_new_rows_total", table="ads") == 10


def test_a_disk_that_refuses_a_checkpoint_is_counted(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(2, METRICS + f'durability {{ folder: "{tmp_path}/data" }}\n')
    with slotwise.connect(cluster.ranks[0].address) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.1))
        ps.lookup("ads", [1, 2, 3])
        # A file where the folder of checkpoints should be: nothing can be written below it.
        checkpoints = tmp_path / "data" / "checkpoints"
        if checkpoints.exists():
            checkpoints.rmdir()
        checkpoints.write_text("in the way")
        with pytest.raises(slotwise.Error):
            ps.save()
    assert total(cluster, "slotwise_checkpoints_total", outcome="failed") == 2
    assert total(cluster, "slotwise_checkpoints_total", outcome="written") == 0
    assert total(cluster, "slotwise_checkpoint_under_way") == 0
