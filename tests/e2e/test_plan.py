"""What `slotwise-ctl plan` says of a table is what real servers then have: memory, rounds, bytes, files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import programs
import pytest
import slotwise
from journal_files import records_of
from programs import CTL, output_of
from slotwise.optimizers import Optimizer
from slotwise_cluster import Cluster, StartCluster, refusal, wait_until
from slotwise_wire import ROOT
from test_limits_doc import evaluate, value_in_code

SEED = 20261124
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": slotwise.SGD(lr=0.1),
    "adagrad": slotwise.AdaGrad(lr=0.1),
    "rowwise_adagrad": slotwise.RowWiseAdaGrad(lr=0.1),
    "adam": slotwise.Adam(lr=0.1),
}
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def plan(**flags: object) -> Any:
    """What a plan for a server on the CPU says; `flags` without their dashes."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in ({"backend": "cpu"} | flags).items()]
    return json.loads(output_of(CTL, "--json", "plan", *words))


def distinct_keys(count: int) -> np.ndarray:
    print(f"seed {SEED}")
    keys = np.random.default_rng(SEED).integers(0, 2**64, count, dtype=np.uint64)
    assert len(np.unique(keys)) == count
    return keys


def create(ps: slotwise.Client, optimizer: str = "sgd", table: str = "planned", **options: Any) -> None:
    """Makes the table anew."""
    ps.drop_table(table, missing_ok=True)
    ps.create_table(table, optimizer=OPTIMIZERS[optimizer], **options)


def insert(ps: slotwise.Client, keys: np.ndarray, at_once: int, table: str = "planned") -> None:
    for first in range(0, len(keys), at_once):
        ps.lookup(table, keys[first : first + at_once])


SHAPES = [
    # rows, dim, optimizer, max_load, whether it evicts, row_dtype and rounding
    (1, 1, "sgd", 0.5, False, "float32"),
    (5_000, 24, "adam", 0.5, False, "float32"),
    (60_000, 33, "rowwise_adagrad", 0.9, True, "float32"),
    (100_000, 8, "adagrad", 0.25, False, "float32"),
    (33_000, 64, "sgd", 0.9375, True, "float32"),
    (40_000, 33, "rowwise_adagrad", 0.5, False, "bfloat16"),
    (30_000, 20, "adam", 0.5, True, "float16"),
    (50_000, 12, "sgd", 0.5, False, "float16 nearest"),
]


@pytest.mark.parametrize("rows, dim, optimizer, max_load, evicts, row_dtype", SHAPES)
def test_a_table_takes_what_was_planned(
    cluster: Cluster, rows: int, dim: int, optimizer: str, max_load: float, evicts: bool, row_dtype: str
) -> None:
    """To the byte if it is made ahead, and no more than that if it grows by itself."""
    shape: dict[str, Any] = {"dim": dim, "optimizer": optimizer, "max_load": max_load}
    shape |= dict(zip(("row_dtype", "rounding"), row_dtype.split()))
    keys, batch, ranks = distinct_keys(rows), 1_000, len(cluster.ranks)
    planned = plan(rows=rows, ranks=ranks, batch=batch, evicts=str(evicts).lower(), **shape)
    if evicts:
        shape["eviction"] = slotwise.Eviction()
    expected = (planned["made_ahead"]["cells"], planned["made_ahead"]["table_bytes"])
    with cluster.connect() as ps:
        create(ps, initial_rows=planned["initial_rows"], **shape)
        for inserted in (0, rows):
            insert(ps, keys[:inserted], 4_000)
            shards = ps.describe_table("planned").shards
            assert [(shard.cells, shard.bytes) for shard in shards] == [expected] * ranks
            assert sum(shard.rows for shard in shards) == inserted
            assert max(shard.rows for shard in shards) <= planned["rank"]["most_rows"]
        create(ps, **shape)
        insert(ps, keys, batch)
        shards = ps.describe_table("planned").shards
    most, least = planned["grown"], rows // ranks * planned["rank"]["row_bytes"] * 0.9
    for shard in shards:
        assert shard.cells in (most["cells"], most["cells"] // 2)
        assert least + 16 * shard.cells < shard.bytes <= most["table_bytes"]
        assert most["table_bytes"] < 4 * shard.bytes, "the bound is worth something"


@pytest.mark.parametrize("mib, max_load", [(1, 0.5), (3, 0.75), (8, 0.9)])
def test_a_bloom_counter_takes_what_was_planned(cluster: Cluster, mib: int, max_load: float) -> None:
    """From the start, to the byte, however many keys it counts."""
    shape: dict[str, Any] = {"dim": 1, "max_load": max_load}
    counter = slotwise.Frequency(200, counter="bloom", counter_mib=mib)
    ranks = len(cluster.ranks)
    planned = plan(rows=1, ranks=ranks, counter_mib=mib, **shape)["made_ahead"]
    assert planned["device_bytes"] == planned["table_bytes"] + planned["counter_bytes"]
    assert plan(rows=1, ranks=ranks, **shape)["made_ahead"]["counter_bytes"] == 0
    keys = distinct_keys(300_000)
    with cluster.connect() as ps:
        create(ps, admission=counter, **shape)
        for count in (0, len(keys)):
            for first in range(0, count, 20_000):
                some = keys[first : first + 20_000]
                ps.push("planned", some, None, np.ones((len(some), 1), np.float32))
            described = ps.describe_table("planned")
            assert [shard.bytes for shard in described.shards] == [
                planned["table_bytes"] + planned["counter_bytes"]
            ] * ranks
        assert described.rows == 0 and 0.8 < described.counter_blocks / (mib * 16384) <= 1
        ps.drop_table("planned")


def test_the_hash_table_doubles_where_and_as_it_was_planned(start_cluster: StartCluster) -> None:
    """The most memory that the process ever had shows the old hash table beside the new one."""
    rows, max_load = 600_000, 0.0625
    planned = plan(rows=rows, dim=1, max_load=max_load, batch=2_000)
    cluster = start_cluster(1)

    def most_memory() -> int:
        status = Path(f"/proc/{cluster.pid(0)}/status").read_text()
        return int(re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[0]) * 1024

    def cells() -> int:
        return ps.describe_table("edge").shards[0].cells

    keys = distinct_keys(rows)
    with cluster.connect() as ps:
        create(ps, table="small", dim=1, max_load=max_load)
        insert(ps, keys[:2_000], 2_000, "small")  # what a process takes for requests is there
        before = most_memory()
        create(ps, dim=1, max_load=max_load)
        insert(ps, keys, 2_000)
        peak = most_memory() - before
        grown, slack = planned["grown"], 48 << 20  # malloc keeps up to 32 MiB of what was freed
        assert grown["old_cells_bytes"] > 2 * slack
        assert abs(peak - grown["cells_bytes"] - grown["old_cells_bytes"]) < slack
        assert peak < grown["table_bytes"] + grown["old_cells_bytes"] + slack
        ahead, at = planned["made_ahead"]["cells"], planned["rank"]["doubles_at_rows"]
        create(ps, table="edge", dim=1, max_load=max_load, initial_rows=rows)
        insert(ps, keys, 50_000, "edge")
        assert cells() == ahead
        insert(ps, np.arange(at - rows, dtype=np.uint64), 50_000, "edge")  # none of them was drawn
        assert ps.describe_table("edge").shards[0].rows == at and cells() == ahead
        ps.lookup("edge", np.array([2**63], np.uint64))
        assert cells() == 2 * ahead


@pytest.mark.parametrize("slots, hot, dim", [(1, 1, 300), (3, 2, 200), (1, 500, 64)])
def test_a_round_and_a_step_count_as_was_planned(
    start_cluster: StartCluster, slots: int, hot: int, dim: int
) -> None:
    batch = 1_200
    planned = plan(rows=1_000, dim=dim, slots=slots, hot=hot, batch=batch)["step"]
    cluster = start_cluster(1, "limits { max_round_mib: 1 }")
    table = cluster.create(dim=dim, slots=slots)
    keys = np.arange(batch * slots * hot) % 1_000
    offsets = np.arange(batch * slots + 1) * hot
    gradients = np.zeros((batch, slots * dim), np.float32)
    push = cluster.push_request(table, keys, gradients, offsets=offsets)
    requests: dict[str, Callable[[], Any]] = {
        "round_bytes": lambda: cluster.lookup(table, keys, batch, offsets=offsets),
        "counts_as_bytes": lambda: cluster.push(push),
    }
    for name, send in requests.items():
        said = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, send)
        assert f"the batch takes {planned[name]} bytes in a round" in said


@pytest.mark.parametrize("hot, data_type", [(1, "float32"), (3, "float16")])
def test_a_steps_bytes_between_trainers_and_ranks_are_as_planned(
    cluster: Cluster, hot: int, data_type: str
) -> None:
    batch, slots, dim = 1_000, 2, 16
    planned = plan(rows=1_000, dim=dim, slots=slots, hot=hot, batch=batch, data_type=data_type)["network"]
    keys = distinct_keys(batch * slots * hot)
    offsets = None if hot == 1 else np.arange(batch * slots + 1, dtype=np.uint32) * hot
    with cluster.connect(wire_dtype=data_type) as ps:
        create(ps, dim=dim, slots=slots)
        before = ps.stats()
        ps.lookup("planned", keys, offsets)
        ps.push("planned", keys, offsets, np.zeros((batch, slots * dim), np.float32))

        def counted() -> list[slotwise.RankStats]:
            return [now.since(then) for now, then in zip(ps.stats(), before)]

        def samples() -> list[int]:
            return [sum(r.lookups.samples for r in counted()), sum(r.pushes.samples for r in counted())]

        # A call counts when its reply has left, which its caller may see before that.
        wait_until(lambda: samples() == [batch, batch], "both calls are counted")
        since = counted()
    came = sum(rank.lookups.bytes_in + rank.pushes.bytes_in for rank in since)
    went = sum(rank.lookups.bytes_out for rank in since)
    # Each request has a head, and offsets have one number more in each part.
    heads = 1024 * len(cluster.ranks)
    assert planned["to_server_bytes"] <= came <= planned["to_server_bytes"] + heads
    assert planned["from_server_bytes"] <= went <= planned["from_server_bytes"] + heads


def saved_files(folder: Path) -> int:
    """The bytes of a checkpoint's arrays."""
    return sum(path.stat().st_size for path in folder.glob("table-*/rank-*.npy"))


@pytest.mark.parametrize("ranks, optimizer", [(1, "sgd"), (2, "rowwise_adagrad"), (2, "adam")])
def test_a_checkpoints_files_are_as_large_as_planned(
    start_cluster: StartCluster, tmp_path: Path, ranks: int, optimizer: str
) -> None:
    rows, dim = 3_000, 12
    planned = plan(rows=rows, dim=dim, optimizer=optimizer, ranks=ranks)
    cluster = start_cluster(ranks, f'durability {{ folder: "{tmp_path}/data" }}')
    with cluster.connect() as ps:
        create(ps, optimizer, dim=dim)
        insert(ps, distinct_keys(rows), 1_000)
        made = ps.save()
    assert saved_files(tmp_path / "data" / "checkpoints" / made.id) == planned["checkpoint"]["bytes"]
    assert 0 <= made.bytes - planned["checkpoint"]["bytes"] < 4096, "the ledger comes on top"


def test_a_delta_of_distinct_keys_is_as_large_as_planned(start_cluster: StartCluster, tmp_path: Path) -> None:
    rows, batch, dim = 3_000, 700, 6
    flags = {"rows": rows, "dim": dim, "optimizer": "adam", "batch": batch, "steps": 1}
    planned = plan(**flags, durability="interval", checkpoint_every=1)["checkpoint"]["delta_bytes"]
    cluster = start_cluster(1, f'durability {{ folder: "{tmp_path}/data" }}')
    keys = distinct_keys(rows)
    with cluster.connect() as ps:
        create(ps, "adam", dim=dim)
        insert(ps, keys, 1_000)
        ps.save()
        ps.push("planned", keys[:batch], None, np.ones((batch, dim), np.float32))
        made = ps.save(delta=True)
    assert made.delta and made.rows == batch
    files = 3 + 2 + 2  # of keys, of state, and of erased keys
    assert saved_files(tmp_path / "data" / "checkpoints" / made.id) == planned + files * 128 + 2 * 4097 * 8


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("hot, data_type", [(1, "float32"), (5, "bfloat16")])
def test_a_step_takes_as_much_of_the_journal_as_planned(
    start_cluster: StartCluster, tmp_path: Path, ranks: int, hot: int, data_type: str
) -> None:
    batch, dim = 501, 7
    flags = {"dim": dim, "hot": hot, "batch": batch, "ranks": ranks, "data_type": data_type}
    planned = plan(rows=1_000, **flags, durability="sync")["journal"]["step_bytes"]
    cluster = start_cluster(ranks, f'durability {{ folder: "{tmp_path}/data" mode: DURABILITY_MODE_SYNC }}')
    offsets = None if hot == 1 else np.arange(batch + 1, dtype=np.uint32) * hot

    def journal() -> int:
        """The bytes of all records of all ranks."""
        files = (tmp_path / "data" / "journal").glob("rank-*/*.journal")
        return sum(places[-1] - places[0] for places in map(records_of, files))

    with cluster.connect(wire_dtype=data_type) as ps:
        create(ps, dim=dim)
        before = journal()
        ps.push("planned", distinct_keys(batch * hot), offsets, np.zeros((batch, dim), np.float32))
        wrote = journal() - before
    # A small step comes in one part, to one rank; the plan has a part a rank.
    assert wrote == planned if ranks == 1 else planned - 128 <= wrote <= planned


SET = "limits { max_round_mib: 8 max_queue_mib: 40 }"


@pytest.mark.parametrize("ranks, config", [(1, ""), (2, ""), (1, SET)])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_server_divides_its_memory_as_planned(
    start_cluster: StartCluster, tmp_path: Path, ranks: int, config: str, keeps: bool
) -> None:
    if keeps:
        config += f' durability {{ folder: "{tmp_path}/data" mode: DURABILITY_MODE_SYNC }}'
    cluster = start_cluster(ranks, config)
    line = next(m for m in cluster.messages(0) if "of the host's memory a rank has" in m)
    has, aside, tables = map(int, re.findall(r"(?:has|which|and) (\d+) ", line))
    flags = {"host_mib": has, "durability": "sync" if keeps else "none"}
    if "limits" in config:
        flags |= {"round_mib": 8, "queue_mib": 40}
    planned = plan(rows=1_000, dim=4, ranks=ranks, **flags)
    host, limits, mib = planned["host"], planned["limits"], 2**20
    assert host["tables_mib"] == tables and has - tables == aside
    assert host["bytes"] == aside * mib + planned["rank"]["most_rows"] * (40 if keeps else 8)
    with cluster.connect() as ps:
        (stats, *_), topology = ps.stats(), ps.topology()
    assert topology.max_round_bytes == limits["max_round_mib"] * mib
    assert topology.max_message_bytes == limits["max_message_mib"] * mib
    assert stats.max_queue_bytes == limits["max_queue_mib"] * mib
    assert stats.max_shared_bytes == limits["max_shared_mib"] * mib == host["shared_bytes"]
    assert 2 * stats.max_received_bytes == host["received_bytes"]
    exports = value_in_code("kExportShare", "server/rpc/rpc_server.cc")
    assert stats.max_queue_bytes / exports <= host["exports_bytes"] < stats.max_queue_bytes / exports + mib


# Constants of plan_numbers.cc that are another room's: there they have the same value.
COPIED = {
    "kGentleBytes": ("server/engine/checkpoint_pace.h", "kGentle"),
    "kStages": ("server/engine/stage.h", "kStages"),
    "kCellsAtOnce": ("kernels/row_store.inl", "kCellsAtOnce"),
    "kRecordHeaderBytes": ("server/durability/journal_format.h", "kRecordHeaderBytes"),
}


@pytest.mark.parametrize("name", COPIED)
def test_constants_of_the_plan_are_the_servers(name: str) -> None:
    path, there = COPIED[name]
    assert value_in_code(name, "client/ctl/plan_numbers.cc") == value_in_code(there, path)


def test_defaults_of_the_plan_are_the_servers() -> None:
    config = (ROOT / "server/ops/config.cc").read_text()
    header = (ROOT / "client/ctl/plan.h").read_text()
    (every,) = re.findall(r"checkpoint_every = (\d+);", header)
    assert re.findall(r"set_checkpoint_every_s\((\d+)\)", config) == [every]
    options = (ROOT / "server/engine/durability_options.h").read_text()
    (reserve,) = re.findall(r"journal_reserve_bytes = ([^;]+);", options)
    assert value_in_code("kJournalReserveMib", "client/ctl/plan_numbers.cc") == evaluate(reserve) / 2**20
    (deltas,) = re.findall(r"set_max_deltas\((\d+)\)", config)
    assert value_in_code("kMostDeltas", "client/ctl/plan_numbers.cc") == int(deltas)
    measured = value_in_code("kBytesOfGroupedKey", "client/ctl/plan_numbers.cc")
    assert f"about {measured:.0f} to " in (ROOT / "docs/config.md").read_text()


# --- the whole of a plan, worked out by hand with docs/operations.md


def test_every_line_of_a_plan_is_as_the_page_has_it() -> None:
    """8 ranks with a GPU each, 800 million rows of dim 16 with AdaGrad; every term by itself."""
    got = plan(
        rows=800_000_000, dim=16, optimizer="adagrad", ranks=8, slots=26, hot=3, batch=65_536, steps=4,
        durability="sync", backend="cuda", disk=2, network=25, checkpoint_every=300,
    )  # fmt: skip
    piece, mib = 2 << 20, 2**20
    bags, keys = 65_536 * 26, 65_536 * 26 * 3
    share, most = 100_000_000, 100_000_000 + 60_000
    assert got["rank"]["rows"] == share and got["rank"]["most_rows"] == most
    assert got["rank"]["row_bytes"] == 128 and got["initial_rows"] == 8 * most
    assert got["rank"]["load"] == pytest.approx(most / 2**28) and got["rank"]["doubles_at_rows"] == 2**27

    def pieces(size: int) -> int:
        return -(-size // piece) * piece

    ahead, grown = got["made_ahead"], got["grown"]
    step = max(keys * 8 + (bags + 1) * 4 + bags * 64, 32 * keys)
    stages = 2 * (step + bags * 64) + 55 * keys
    copies = 256 * mib // 132
    for line, rows, factor, old in ((ahead, most, 1.0, 0), (grown, most + keys, 1.25, (2**27 + 1) * 16)):
        assert line["cells"] == 2**28 and line["cells_bytes"] == (2**28 + 1) * 16
        assert line["rows_bytes"] == pieces(int(rows * 32 * factor) * 4)
        assert line["table_bytes"] == line["cells_bytes"] + line["rows_bytes"]
        assert line["old_cells_bytes"] == old
        assert line["marks_bytes"] == pieces(line["rows_bytes"] // 128)
        assert line["snapshot_bytes"] == most * 4 + copies * 132 + 2**20 * 12 + most // 32 * 4
        assert line["stages_bytes"] == stages
        tables = line["table_bytes"] + old + line["marks_bytes"] + line["snapshot_bytes"]
        assert line["device_bytes"] == max(-(-tables * 16 // 15), tables + stages)
        assert line["host_bytes"] == got["host"]["bytes"]
    queue, rounds = 1024 * mib, 512 * mib
    requests = (2 * queue + rounds + queue // 16) * 9 // 8
    assert got["host"] == {
        "process_bytes": (1024 + 128 + 320) * mib,
        "queue_bytes": requests,
        "inbox_bytes": requests,
        "received_bytes": 2 * 2 * queue,
        "shared_bytes": 0,
        "exports_bytes": queue // 4,
        "rounds_bytes": 4 * rounds,
        "ledger_bytes": 256 * mib,
        "evicted_bytes": 16 * mib,
        "checkpoint_bytes": 48 * mib + queue,
        "spare_bytes": 512 * mib,
        "lists_bytes": 36 * most,
        "tables_mib": 0,
        "bytes": requests + 5 * queue + queue // 4 + 4 * rounds + (1472 + 272 + 48 + 512) * mib + 36 * most,
    }
    assert got["step"] == {"keys": keys, "bags": bags, "round_bytes": step, "counts_as_bytes": step}
    network, batch, values = got["network"], keys * 8 + (bags + 1) * 4, bags * 64
    assert (network["to_server_bytes"], network["from_server_bytes"]) == (2 * batch + values, values)
    gathered, travel = 2 * 7 / 8 * (keys * 8 + bags * 4), 7 / 8 * bags * 16 * 8
    owned = 1 - (7 / 8) ** 3
    assert network["all_bags_bytes"] == pytest.approx(gathered + travel, abs=1)
    assert network["owned_bags_bytes"] == pytest.approx(gathered + travel * owned, abs=1)
    rank_bytes = (2 * batch + values) / 8 + gathered + travel * owned
    assert network["rank_bytes"] == pytest.approx(rank_bytes, abs=2)
    assert network["seconds"] == pytest.approx(rank_bytes / 25e9)
    assert network["share"] == pytest.approx(4 * rank_bytes / 25e9)
    checkpoint = 800_000_000 * 136 + 8 * (4 * 128 + 4097 * 8)
    delta = 800_000_000 * 136  # 300 s of 4 steps touch more keys than there are
    assert got["checkpoint"] == {
        "bytes": checkpoint,
        "seconds": pytest.approx(checkpoint / 2e9),
        "delta_bytes": delta,
        "training_seconds": pytest.approx(checkpoint / 2e9),
    }
    journal = 8 * (64 + 248 + 16) + keys * 8 + (bags + 8) * 4 + values
    assert got["journal"] == {"step_bytes": journal, "bytes_a_second": pytest.approx(4 * journal)}
    assert got["folder_bytes"] == pytest.approx(
        3 * (checkpoint + 16 * delta) + 3 * 300 * 4 * journal + 8 * 64 * mib
    )
    replay = max(300 * 4 * journal / 2e9, 300)
    assert got["recovery"]["replay_seconds"] == pytest.approx(replay)
    assert got["recovery"]["seconds"] == pytest.approx((checkpoint + 16 * delta) / 2e9 + replay)
    assert got["warnings"] == []


def test_on_a_processor_tables_are_the_hosts_and_checkpoints_are_gentle() -> None:
    got = plan(rows=10_000_000, dim=128, durability="interval", checkpoint_every=1_000, disk=10)
    assert got["made_ahead"]["host_bytes"] == got["host"]["bytes"] + got["made_ahead"]["device_bytes"]
    rows = 10_000_000 * 512
    a_second = max(48 * 1024 * 1000, 2 * rows / 1000)
    assert got["checkpoint"]["training_seconds"] == pytest.approx(rows / a_second)
    assert got["checkpoint"]["seconds"] == pytest.approx(got["checkpoint"]["bytes"] / 10e9)
    assert got["host"]["lists_bytes"] == 40 * 10_000_000
    stages = got["step"]["counts_as_bytes"] + 55 * got["step"]["keys"]
    assert got["made_ahead"]["stages_bytes"] == stages
    assert got["journal"]["step_bytes"] == 0 and got["recovery"]["replay_seconds"] == 0
    assert got["checkpoint"]["delta_bytes"] == 4096 * 1_000 * 520
    few = plan(rows=10_000, dim=128, durability="interval", checkpoint_every=1_000)
    assert few["checkpoint"]["delta_bytes"] == 10_000 * 520, "all rows"
    folder = 3 * (got["checkpoint"]["bytes"] + 16 * got["checkpoint"]["delta_bytes"])
    assert got["folder_bytes"] == folder
    assert got["recovery"]["seconds"] == pytest.approx(folder / 3 / 10e9)
    nothing = plan(rows=10_000_000, dim=128)
    assert nothing["made_ahead"]["marks_bytes"] == nothing["made_ahead"]["snapshot_bytes"] == 0
    assert nothing["host"]["checkpoint_bytes"] == nothing["folder_bytes"] == 0
    assert nothing["host"]["lists_bytes"] == 8 * 10_000_000
    assert nothing["made_ahead"]["device_bytes"] == nothing["made_ahead"]["table_bytes"]


def test_16_bit_types_halve_what_travels() -> None:
    flags = {"rows": 1_000, "dim": 64, "ranks": 4, "hot": 2}
    wide, narrow = plan(**flags)["network"], plan(**flags, data_type="bfloat16")["network"]
    assert narrow["from_server_bytes"] * 2 == wide["from_server_bytes"]
    assert wide["to_server_bytes"] - narrow["to_server_bytes"] == narrow["from_server_bytes"]
    assert narrow["all_bags_bytes"] == wide["all_bags_bytes"]
    sums = plan(**flags, partial_sums="float16")["network"]
    assert wide["all_bags_bytes"] - sums["all_bags_bytes"] == 3 * 4096 * 64 * 2 // 4


def test_a_plan_warns_of_what_cannot_be() -> None:
    flags = {"rows": 1_000_000, "dim": 128, "slots": 26, "batch": 65_536, "durability": "sync"}
    warnings = plan(**flags, steps=100, network=1, disk=0.1, checkpoint_every=1)["warnings"]
    named = [warning.split(":")[0] for warning in warnings]
    assert named == ["--network", "--batch", "--disk", "--disk"], warnings
    assert "the journal takes" in warnings[2] and "a delta takes up to" in warnings[3]
    assert plan(**flags, steps=0.1, network=25, disk=10, round_mib=2048)["warnings"] == []
    text = output_of(CTL, "plan", "--rows", 1000, "--dim", 8, "--steps", 1e6, "--network", 1e-3)
    assert "warning: --network: a step's bytes take " in text
    # What does not fit.
    flags = {"dim": 16, "host_mib": 1024}
    assert plan(rows=1_000_000, **flags)["warnings"] == []
    (warning,) = plan(rows=10_000_000, **flags)["warnings"]
    assert warning.startswith("--host-mib: ") and "are set aside beside tables" in warning
    (warning,) = plan(rows=1_000, round_mib=512, **flags)["warnings"]
    assert warning.startswith("--host-mib: ") and warning.endswith("a server does not start")


def test_the_text_has_every_line_for_people() -> None:
    arguments = ["--rows", 800_000_000, "--dim", 16, "--ranks", 8, "--optimizer", "adagrad"]
    text = output_of(CTL, "plan", *arguments, "--durability", "sync")
    for line in ("MEMORY OF A RANK", "rows and optimizer state", "hash table", "DEVICE", "HOST, AT MOST",
                 "trainers to ranks", "journal", "a checkpoint", "a recovery, at most"):  # fmt: skip
        assert line in text, text
    assert "a rank holds 100,000,000 rows on average, at most 100,060,000, of 128 bytes" in text
    assert "Bloom" not in text
    assert "the Bloom counter, with its hash table" in output_of(CTL, "plan", *arguments, "--counter-mib", 64)
    one = output_of(CTL, "plan", "--rows", 10, "--dim", 1)
    assert re.search(r"^a rank to others, all bags +-$", one, re.MULTILINE), one


BAD = {
    "--rows": "0 1099511627777 -1 many 1.5",
    "--dim": "0 4097 x",
    "--optimizer": "adamw ",
    "--row-dtype": "half ",
    "--rounding": "up nearest ",
    "--evicts": "maybe",
    "--counter-mib": "131073 -1 few",
    "--max-load": "0 0.99 nan -1",
    "--ranks": "0 4097",
    "--slots": "0 4097",
    "--hot": "0 1000001",
    "--batch": "0 4294967295",
    "--steps": "0 nan inf -1 1e7",
    "--data-type": "int8",
    "--partial-sums": "float64",
    "--backend": "auto",
    "--durability": "often",
    "--checkpoint-every": "0 2678401",
    "--copy-on-write-mib": "16777217 -1",
    "--round-mib": "4097 -1",
    "--queue-mib": "16777217 -1",
    "--host-mib": "16777217 -1",
    "--network": "0 nan inf 1e9",
    "--disk": "0 nan 1e-9",
}


@pytest.mark.parametrize("flag, value", [(flag, value) for flag in BAD for value in BAD[flag].split(" ")])
def test_every_refusal_names_its_flag(flag: str, value: str) -> None:
    flags = {"--rows": "1000", "--dim": "8"} | {flag: value}
    done = programs.run(CTL, "plan", *(f"{name}={text}" for name, text in flags.items()))
    assert done.returncode in (1, 2) and flag in done.stderr + done.stdout, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr and "what()" not in done.stderr


def test_flags_and_fields_have_their_names_in_0_1() -> None:
    shape = {"rows": 1000, "dim": 8, "round_mib": 8}
    planned = plan(queue_mib=40, copy_on_write_mib=9, **shape)
    assert plan(inbox_mib=40, preimage_mib=9, **shape) == planned != plan(**shape)
    limits, host = planned["limits"], planned["host"]
    assert limits["max_inbox_mib"] == limits["max_queue_mib"] == 40
    assert limits["max_preimage_mib"] == limits["max_copy_on_write_mib"] == 9
    assert host["inbox_bytes"] == host["queue_bytes"]


def test_every_flag_is_bounded_here_and_explained_on_the_page() -> None:
    flags = re.findall(r"^ +(--[a-z-]+)", output_of(CTL, "plan", "--help"), re.MULTILINE)
    assert len(flags) >= 19 and set(BAD) == set(flags)
    assert [flag for flag in flags if f"`{flag}" not in OPERATIONS] == []


@pytest.mark.parametrize(
    "flags, code, words",
    [
        ("--rows 10 --dim 1 --batch 4294967294 --slots 2", 1, "--batch x --slots is "),
        ("--rows 10 --dim 1 --batch 4294967294 --slots 4096 --hot 1000000", 1, "--batch x --slots is "),
        ("--rows 10 --dim 1 --batch 4294967294 --hot 2", 1, "--batch x --slots x --hot is "),
        (f"--rows {2**40} --dim 1 --ranks 2", 1, "--rows is 1099511627776.*--ranks"),
        ("--dim 1", 2, "--rows"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(flags: str, code: int, words: str) -> None:
    done = programs.run(CTL, "plan", *flags.split())
    assert done.returncode == code and re.search(words, done.stderr), done.stderr
