"""What a rank says of its tables, its journal and its checkpoints is what was done to them."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from slotwise_cluster import Cluster, StartCluster, refusal, wait_until
from slotwise_metrics import METRICS, scrape, total
from slotwise_wire import Protocol

import slotwise


@pytest.fixture(scope="module", params=[1, 3], ids=lambda ranks: f"{ranks}_ranks")
def with_metrics(
    request: pytest.FixtureRequest, protocol: Protocol, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    cluster = Cluster(request.param, tmp_path_factory.mktemp("measured"), protocol, METRICS)
    yield cluster
    cluster.stop()


@pytest.fixture
def measured(with_metrics: Cluster) -> Iterator[Cluster]:
    """A server with metrics that a module's tests share, without another test's tables."""
    yield with_metrics
    for table in with_metrics.tables():
        with_metrics.drop(table.name)


def on(ranks: int) -> pytest.MarkDecorator:
    """Runs a test on so many ranks alone."""
    return pytest.mark.parametrize("with_metrics", [ranks], indirect=True, ids=[f"{ranks}_ranks"])


def of_table(cluster: Cluster, table: str, name: str, **labels: str) -> float:
    """A metric of a table, of all ranks together."""
    return total(cluster, f"slotwise_table_{name}", table=table, **labels)


def train(cluster: Cluster, table: str, keys: Any) -> None:
    """Pushes a gradient of ones for each key."""
    with cluster.connect() as ps:
        ps.push(table, np.asarray(keys, np.uint64), None, np.ones((len(keys), 4), np.float32))


def test_tables_are_what_was_done_to_them(measured: Cluster) -> None:
    ranks, keys = len(measured.ranks), np.arange(600, dtype=np.uint64)
    ads, idle = measured.create(max_rows=5000), measured.create()
    with measured.connect() as ps:
        for _ in range(2):
            ps.lookup(ads, keys)
        ps.lookup(ads, keys + 10_000, train=False)
        for first in (0, 300, 600):  # the last of them brings new keys
            train(measured, ads, keys[:300] + first)
        assert ps.erase(ads, keys[:100]) == 100
        described = ps.describe_table(ads)
    wait_until(lambda: of_table(measured, ads, "erased_rows_total") == 100, "the last round")
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
        assert of_table(measured, ads, name) == value, name
    for method, count in {"lookup": 1800, "push": 900}.items():
        for name in ("samples", "keys"):
            assert of_table(measured, ads, f"{name}_total", method=method) == count, (name, method)
    travelled = of_table(measured, ads, "batches_total")
    assert travelled == 0 if ranks == 1 else travelled >= 6 * ranks
    for name in ("rows", "new_rows_total", "steps_total", "keys_total"):
        assert of_table(measured, idle, name) == 0, name
    free = total(measured, "slotwise_device_memory_free_bytes")
    assert total(measured, "slotwise_device_memory_bytes") > free > 0
    assert total(measured, "process_resident_memory_bytes") > 1 << 20


def test_rows_that_a_full_table_evicts_have_ages(measured: Cluster) -> None:
    ranks = len(measured.ranks)
    with measured.connect() as ps:
        options: dict[str, Any] = {"max_rows": 100, "eviction": slotwise.Eviction("step", to=0.9)}
        ps.create_table("cache", dim=4, optimizer=slotwise.SGD(0.1), **options)

        def gone(suffix: str, **labels: str) -> float:
            return of_table(measured, "cache", f"evicted_age_steps_{suffix}", **labels)

        for first in range(0, 100, 10):  # rows of the steps 1 to 10
            train(measured, "cache", np.arange(first, first + 10))
        assert gone("count") == 0
        assert of_table(measured, "cache", "youngest_evicted_age_steps") == 0, "no rank has it yet"
        # 11 rows go: 10 are of the first step, which was 9 steps ago, and one is of the second.
        train(measured, "cache", [1000])
        wait_until(lambda: gone("count") == 11, "the eviction")
        assert gone("sum") == 10 * 9 + 8
        assert gone("bucket", le="7") == 0 and gone("bucket", le="15") == 11
        assert of_table(measured, "cache", "youngest_evicted_age_steps") == 8 * ranks, "all ranks know"
        assert of_table(measured, "cache", "evicted_rows_total") == 11
        # Not those of a refused batch, nor those that somebody removes.
        with pytest.raises(slotwise.ResourceExhausted):
            train(measured, "cache", np.arange(2000, 2101))
        assert ps.evict("cache", keep=10) == 80
        wait_until(lambda: of_table(measured, "cache", "evicted_rows_total") == 91, "the request")
        assert gone("count") == 11
        described = ps.describe_table("cache", ages=True)
        assert described.new_rows == 101 and described.evicted_rows == 91
        spread = dict.fromkeys(("p0", "p10", "p50", "p90", "p99", "p100"), 15)
        assert described.evicted_ages == slotwise.Quantiles(rows=11, **spread)
        assert described.youngest_evicted_age == 8
        # 1000 is of step 11, and 9 of the 10 rows of the last step but one are left.
        assert described.ages == slotwise.Quantiles(10, 0, 0, 1, 1, 1, 1)


def test_keys_that_repeat_in_a_step_are_fewer_rows(measured: Cluster) -> None:
    table = measured.create()
    # Each key thrice, each once, and one so often that its sum has several blocks.
    for keys in (np.arange(600) // 3, np.arange(50), np.full(100, 7)):
        train(measured, table, keys)
    measured.lookup(table, np.arange(100) // 2, 100)
    wait_until(lambda: of_table(measured, table, "keys_total", method="lookup") > 0, "the lookup")
    assert of_table(measured, table, "step_keys_total") == 600 + 50 + 100
    assert of_table(measured, table, "step_rows_total") == 200 + 50 + 1


def test_probes_are_of_the_first_batch_and_the_first_behind_a_rehash(measured: Cluster) -> None:
    cluster, ranks = measured, len(measured.ranks)
    table, idle = cluster.create(), cluster.create()
    few = np.arange(500, dtype=np.uint64)
    sampled = 256 if ranks == 1 else 500  # 256 of a rank's keys at most

    def probes(suffix: str, of: str = table, **labels: str) -> float:
        return of_table(cluster, of, f"probe_length_{suffix}", **labels)

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


def test_exchanges_are_those_of_the_batches(measured: Cluster) -> None:
    cluster, ranks = measured, len(measured.ranks)
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
        return of_table(cluster, table, "batches_total", travel=way)

    expected = 0 if ranks == 1 else 4 * ranks
    wait_until(lambda: travelled("all_bags") + travelled("owned_bags") == expected, "the last round")
    assert exchanges("reduce_scatter") == travelled("all_bags"), "a lookup's partial sums"
    assert exchanges("all_to_all") == travelled("owned_bags")
    # Every lookup's keys are gathered, as are its offsets.
    assert expected <= exchanges("all_gather") <= 2 * expected
    for operation in operations:
        assert (counted(operation, "sum") > 0) == (counted(operation) > 0) == (ranks > 1)
        name = "slotwise_exchange_duration_seconds_count", frozenset({("operation", operation)})
        of_ranks = {scrape(cluster, rank)[name] for rank in range(ranks)}
        assert len(of_ranks) == 1, "every rank takes part in each"


def test_gradients_that_are_not_finite_are_counted(measured: Cluster) -> None:
    table, idle = measured.create(), measured.create()
    ones, step = np.ones((2, 4), np.float32), {"session": measured.session(), "number": 1, "parts": 1}
    with_nan = ones.copy()
    with_nan[1, 2] = np.nan
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    for _ in range(2):
        refusal(invalid, measured.push, measured.push_request(table, [1, 2], with_nan, step))
    measured.push(measured.push_request(idle, [1, 2], ones, step))
    without = measured.push_request(table, [1, 2], ones, step)
    without.ClearField("gradients")
    refusal(invalid, measured.push, without)
    with measured.connect() as ps, pytest.raises((slotwise.Error, ValueError)):
        ps.push(table, np.arange(1), None, np.full((1, 4), -np.inf, np.float32))
    assert of_table(measured, table, "non_finite_pushes_total") == 3
    assert of_table(measured, idle, "non_finite_pushes_total") == 0
    assert of_table(measured, table, "steps_total") == 0


def drawn_keys(random: np.random.Generator, count: int) -> np.ndarray:
    """Half of the keys are one key, another quarter nine others, the rest are all different."""
    keys = random.integers(1 << 32, 1 << 63, count, dtype=np.uint64)
    choice = random.random(count)
    keys[choice < 0.75] = random.integers(1, 10, np.count_nonzero(choice < 0.75))
    keys[choice < 0.5] = 77
    return keys


def test_hot_keys_have_their_share(measured: Cluster) -> None:
    cluster, ranks = measured, len(measured.ranks)
    random = np.random.default_rng(20261124)
    pushed, looked_up, even, idle = (cluster.create(dim=1) for _ in range(4))
    count = 400_000 * ranks
    ones = np.ones((count, 1), np.float32)
    with cluster.connect() as ps:
        ps.push(pushed, drawn_keys(random, count), np.arange(count + 1), ones)
        # Of bags of one key the client would send each key once.
        ps.lookup(looked_up, drawn_keys(random, count), np.arange(0, count + 1, 2))
        ps.push(even, np.arange(count), np.arange(count + 1), ones)
    for rank in range(ranks):
        found = scrape(cluster, rank)

        def share(table: str, top: int) -> float:
            return found["slotwise_table_hot_keys_share", frozenset({("table", table), ("top", str(top))})]

        # A rank samples 400 keys or so: four standard deviations are 0.1.
        for table in (pushed, looked_up):
            assert share(table, 1) == pytest.approx(0.5, abs=0.1), (rank, table)
            assert share(table, 10) == pytest.approx(0.75, abs=0.1), (rank, table)
            assert share(table, 10) < share(table, 100) <= 1, (rank, table)
        assert 0 < share(even, 1) < 0.01, rank
        for top in (1, 10, 100):
            assert share(idle, top) == 0, rank


def staleness(cluster: Cluster, table: str) -> dict[str, float]:
    """How many parts were at most so many steps stale, by some of the bounds, and the steps' sum."""
    bounds = ["0", "1", "2", "4", "8", "4096", "+Inf"]
    found = {le: of_table(cluster, table, "staleness_steps_bucket", le=le) for le in bounds}
    assert found["+Inf"] == of_table(cluster, table, "staleness_steps_count")
    return {**found, "sum": of_table(cluster, table, "staleness_steps_sum")}


@pytest.mark.parametrize("transport", ["best", "tcp", "grpc"])
def test_staleness_is_how_many_steps_came_between_a_lookup_and_its_push(
    measured: Cluster, transport: str
) -> None:
    keys, ones = np.arange(10, dtype=np.uint64), np.ones((10, 4), np.float32)
    late = [0, 0]  # of the two trainers: the table's steps when each looked up
    seen = Counter[int]()
    ads, idle = measured.create(), measured.create()
    with measured.connect(0, transport=transport) as one, measured.connect(-1, transport=transport) as two:
        trainers = (one, two)
        two.push(ads, keys, None, ones)  # it has looked nothing up: this is not counted
        steps = 1
        # l and p: the trainer looks up, or pushes. Trainers take turns, then one is left behind.
        in_turn = [(0, "l"), (1, "l"), (0, "p"), (1, "p"), (0, "p"), (0, "l"), (0, "p")] * 3
        for who, what in [*in_turn, (1, "l"), *[(0, "p")] * 5, (1, "p")]:
            if what == "l":
                trainers[who].lookup(ads, keys, train=who == 0)
                late[who] = steps
            else:
                assert trainers[who].push(ads, keys, None, ones) == steps + 1
                seen[steps - late[who]] += 1
                steps += 1
        one.lookup_many({name: (keys,) for name in (ads, idle)})
        two.push(ads, keys, None, ones)
        seen[steps - late[1]] += 1
        one.push_many({name: (keys, None, ones) for name in (ads, idle)})
        seen[1] += 1
    found = staleness(measured, ads)
    for bound in (0, 1, 2, 4, 8):
        assert found[str(bound)] == sum(count for late_by, count in seen.items() if late_by <= bound)
    assert {0, 1, 2, 5} < set(seen)
    assert found["+Inf"] == seen.total()
    assert found["sum"] == sum(late_by * count for late_by, count in seen.items())
    assert staleness(measured, idle) == dict.fromkeys(found, 1) | {"sum": 0}


def test_a_push_may_say_anything_of_its_lookup(measured: Cluster) -> None:
    cluster, last = measured, len(measured.ranks) - 1
    table, session, most, names = cluster.create(), cluster.session(), 2**64 - 1, 0

    def lineage_of(table: str) -> int:
        request = cluster.lookup_request(table, [1, 2], 2)
        return int(cluster.rank(0).embedding.Lookup(request, timeout=60).lineage)

    lineage, foreign = lineage_of(table), lineage_of(cluster.create())
    assert 0 not in (lineage, foreign) and lineage != foreign

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
    assert push(lineage, 7, last) == 8
    assert push(lineage, 0) == 9  # eight steps late
    expected = nothing | {"0": 1, "1": 1, "2": 1, "4": 1, "8": 2, "4096": 2, "+Inf": 2, "sum": 8}
    assert staleness(cluster, table) == expected
    # The same part with another state is the same part, which is neither applied nor counted again.
    repeated = total(cluster, "slotwise_repeated_parts_total")
    for state in [(lineage, 3), (foreign, most), (0, 0)]:
        assert push(*state, number=9) == 9
        assert push(*state, rank=last, number=9) == 9
    assert staleness(cluster, table) == expected
    assert of_table(cluster, table, "steps_total") == 9 * len(cluster.ranks)
    assert total(cluster, "slotwise_repeated_parts_total") == repeated + 6


def sampled(gradients: np.ndarray, first: int) -> tuple[float, int]:
    """The sum of squares, and how many numbers, of one line of 64 bytes of every 17."""
    flat = gradients.ravel()
    lines = np.arange(flat.size) // (64 // flat.itemsize)
    taken = flat[lines % 17 == first % 17].astype(np.float64)
    return float(np.square(taken).sum()), taken.size


@on(2)
@pytest.mark.parametrize("wire", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("transport", ["best", "tcp", "grpc"])
def test_a_sample_of_the_gradients_is_summed(measured: Cluster, transport: str, wire: str) -> None:
    random = np.random.default_rng(20261125)
    ads, idle = measured.create(dim=24, slots=3), measured.create()
    sums: list[tuple[float, int]] = []
    on_the_wire = np.float32 if wire == "float32" else np.float16
    with measured.connect(transport=transport, wire_dtype=wire) as ps:
        session = ps.new_session(parts=1)
        for samples in (1, 2, 7, 100, 1000, 1):
            # Such numbers travel unrounded, and their squares' sums are exact.
            gradients = random.integers(-8, 9, (samples, 72)).astype(np.float32)
            step = session.next()
            ps.push(ads, random.integers(0, 99, 3 * samples), None, gradients, step=step)
            sums.append(sampled(gradients.astype(on_the_wire), step.number))
        # A step that comes again is not counted again, and one that is refused is not counted.
        last = session.next()
        for _ in range(4):
            assert ps.push(ads, [1, 2, 3], None, np.full((1, 72), 3, np.float32), step=last) == 7
        sums.append(sampled(np.full(72, 3, on_the_wire), last.number))
        bad = np.full((1000, 72), 5, np.float32)
        bad[-1, -1] = np.nan
        with pytest.raises((slotwise.Error, ValueError)):
            ps.push(ads, np.arange(3000), None, bad)
    squares, elements = map(sum, zip(*sums))
    assert elements > 4000
    for name, value in (("squares", squares), ("elements", elements)):
        assert of_table(measured, ads, f"gradient_{name}_total") == value
        assert of_table(measured, idle, f"gradient_{name}_total") == 0


@on(1)
def test_the_largest_gradients_leave_the_sum_finite(measured: Cluster) -> None:
    table = measured.create()
    largest = np.full((200, 4), np.finfo(np.float32).max)
    largest[::2] *= -1
    for number in range(1, 4):
        step = {"session": measured.session(), "number": 17 * number, "parts": 1}
        measured.push(measured.push_request(table, np.arange(200) % 50, largest, step))
    elements, squares = (of_table(measured, table, f"gradient_{n}_total") for n in ("elements", "squares"))
    assert elements == 3 * 48
    assert (squares / elements) ** 0.5 == pytest.approx(float(np.finfo(np.float32).max))


@on(2)
def test_a_table_that_is_dropped_is_gone(measured: Cluster) -> None:
    table = measured.create()
    measured.lookup(table, [1, 2, 3], 3)
    wait_until(lambda: of_table(measured, table, "rows") == 3, "rows")
    measured.drop(table)
    assert all(table not in dict(labels).values() for _, labels in scrape(measured, 0))
    measured.create(table)
    rows = ("slotwise_table_rows", frozenset({("table", table)}))
    wait_until(lambda: rows in scrape(measured, len(measured.ranks) - 1), "it")
    assert of_table(measured, table, "new_rows_total") == 0


@on(2)
def test_a_step_that_lacks_parts_is_said(measured: Cluster) -> None:
    table, ranks = measured.create(), len(measured.ranks)
    step = {"session": measured.session(), "number": 1, "parts": 2}
    first = measured.push_request(table, [1, 2], np.ones((2, 4), np.float32), step)
    second = measured.push_request(table, [3], np.ones((1, 4), np.float32), {**step, "part": 1})
    waiting = measured.begin_push(first)
    wait_until(lambda: total(measured, "slotwise_incomplete_steps") == ranks, "all ranks know of it")
    measured.push(second, rank=1)
    waiting.result(timeout=60)
    wait_until(lambda: total(measured, "slotwise_incomplete_steps") == 0, "it is complete")


DURABLE = 'durability {{ mode: DURABILITY_MODE_SYNC folder: "{}/data" {} }}\n'


def of_rank(cluster: Cluster, rank: int) -> dict[str, float]:
    """A rank's metrics that have no labels."""
    found = scrape(cluster, rank).items()
    return {name.removeprefix("slotwise_"): value for (name, labels), value in found if not labels}


def test_journal_and_checkpoints(start_cluster: StartCluster, tmp_path: Path) -> None:
    config = METRICS + DURABLE.format(tmp_path, "")
    cluster = start_cluster(2, config)
    with cluster.connect() as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.1))
        before = total(cluster, "slotwise_journal_written_bytes_total")
        train(cluster, "ads", np.arange(1000))
        # A rank records the parts that it received, keys and gradients.
        assert total(cluster, "slotwise_journal_written_bytes_total") - before >= 1000 * (8 + 4 * 4)
        assert total(cluster, "slotwise_journal_failed") == 0
        for rank in range(2):
            found = of_rank(cluster, rank)
            assert found["journal_durable_round"] == found["journal_appended_round"] > 0
            assert found["journal_sync_duration_seconds_count"] >= 2
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
            written = ("slotwise_checkpoints_total", frozenset({("outcome", "written")}))
            assert scrape(cluster, rank)[written] == 1
            found = of_rank(cluster, rank)
            assert found["checkpoint_bytes"] == saved.bytes > 0
            assert found["checkpoint_rows"] == saved.rows == 1000
            assert found["checkpoint_age_seconds"] == 0
            assert found["checkpoint_duration_seconds_count"] == 1
    cluster.stop()
    again = start_cluster(2, config)
    assert of_table(again, "ads", "rows") == 1000
    assert of_table(again, "ads", "new_rows_total") == 0, "rows that were there"
    assert of_table(again, "ads", "steps_total") == 2
    assert total(again, "slotwise_checkpoint_bytes") == 2 * saved.bytes, "though an earlier start wrote it"
    assert total(again, "slotwise_checkpoint_rows") == 2 * 1000
    assert total(again, "slotwise_checkpoint_age_seconds") == 0, "nothing has changed since"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_start_goes_by_the_time_of_what_it_finds(
    start_cluster: StartCluster, tmp_path: Path, ranks: int
) -> None:
    """Where there is no checkpoint, that is the folder's, which gets other times here."""
    hour = 3600
    config = METRICS + DURABLE.format(tmp_path, f"checkpoint_every_s: {2 * hour}")
    cluster = start_cluster(ranks, config)
    cluster.create()

    def restart(hours: float) -> list[dict[str, float]]:
        """Starts again, as so many hours after the folder's first use: what ranks say."""
        nonlocal cluster
        cluster.stop()
        at = time.time() - hours * hour
        os.utime(tmp_path / "data" / "lineage", (at, at))
        cluster = start_cluster(ranks, config)
        return [of_rank(cluster, rank) for rank in range(ranks)]

    for each in restart(1):
        assert hour <= each["checkpoint_age_seconds"] < 2 * hour
        assert each["checkpoint_bytes"] == 0, "the journal has what it lacks"
    for each in restart(-24):
        assert 0 < each["checkpoint_age_seconds"] < hour, "a time in the future counts as now"
    restart(3)
    wait_until(
        lambda: total(cluster, "slotwise_checkpoints_total", outcome="written") == ranks
        and total(cluster, "slotwise_checkpoint_under_way") == 0,
        "one that is overdue is made at once",
    )
    assert total(cluster, "slotwise_checkpoint_bytes") > 0
    assert total(cluster, "slotwise_checkpoint_age_seconds") == 0


def test_rows_of_the_journal_are_there_and_did_not_come(start_cluster: StartCluster, tmp_path: Path) -> None:
    config = METRICS + DURABLE.format(tmp_path, "")
    cluster = start_cluster(2, config)
    table = cluster.create()
    train(cluster, table, np.arange(1000))
    cluster.stop()
    again = start_cluster(2, config)
    assert of_table(again, table, "rows") == 1000
    assert of_table(again, table, "steps_total") == 2
    assert of_table(again, table, "step_keys_total") == 0
    again.lookup(table, np.arange(1010), 1010)
    wait_until(lambda: of_table(again, table, "rows") == 1010, "the new rows")
    assert of_table(again, table, "new_rows_total") == 10


def test_a_disk_that_refuses_a_checkpoint_is_counted(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(2, METRICS + f'durability {{ folder: "{tmp_path}/data" }}\n')
    cluster.lookup(cluster.create(), [1, 2, 3], 3)
    # A file where the folder of checkpoints should be: nothing can be written below it.
    checkpoints = tmp_path / "data" / "checkpoints"
    if checkpoints.exists():
        checkpoints.rmdir()
    checkpoints.write_text("in the way")
    with cluster.connect() as ps, pytest.raises(slotwise.Error):
        ps.save()
    assert total(cluster, "slotwise_checkpoints_total", outcome="failed") == 2
    assert total(cluster, "slotwise_checkpoints_total", outcome="written") == 0
    assert total(cluster, "slotwise_checkpoint_under_way") == 0
