"""slotwise-bench: every subcommand runs at a tiny size, checks itself, and reports what it found."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from judged_times import LONG_FORMS
from programs import BUILT, run
from slotwise_cluster import StartCluster

EMBEDDING = "embedding --rows 3000 --dim 20 --slots 3 --hot 4 --batch 50".split()
TABLE = "table --keys 20000 --batch 3000".split()
OPTIMIZERS = ["sgd", "momentum", "nesterov", "adagrad", "rowwise_adagrad", "rmsprop", "adam", "ftrl"]


def bench_binary() -> Path:
    """$SLOTWISE_BENCH, or the one that was built with the server."""
    named = os.environ.get("SLOTWISE_BENCH")
    path = Path(named) if named else BUILT / "bench" / "slotwise-bench"
    assert path.exists(), "there is no slotwise-bench: run ./dev build, or set SLOTWISE_BENCH"
    return path.resolve()


def run_bench(*arguments: str, ranks: int | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the benchmark to its end."""
    launcher = [] if ranks is None else ["mpirun", "-n", ranks]
    return run(*launcher, bench_binary(), *arguments, timeout=600)


def report_of(tmp_path: Path, *arguments: str, ranks: int | None = None) -> Any:
    """The JSON of a run that must succeed, with what holds of every report."""
    file = tmp_path / "report.json"
    ended = run_bench(*arguments, "--repeats", "2", "--threads", "1", "--json", str(file), ranks=ranks)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(file.read_text(encoding="utf-8"))
    said = {"benchmark": arguments[0], "checked": True, "device": "cpu", "ranks": ranks or 1, "threads": 1}
    assert report | said == report
    assert report["memory"]["copy_bytes_per_second"] > 0
    assert report["memory"]["random_lines_per_second"] > 0
    for result in report["results"]:
        assert result["name"] in ended.stdout
        assert result["seconds"] > 0
        assert result["keys_per_second"] == pytest.approx(result["keys"] / result["seconds"])
        assert result["floor"]["bytes"] > 0
        assert result["times_floor"] == pytest.approx(result["seconds"] / result["floor"]["seconds"])
        for peer in result["peers"]:
            assert peer["name"] in ended.stdout
            assert peer["speedup"] == pytest.approx(peer["seconds"] / result["seconds"])
    return report


@pytest.mark.parametrize("score", ["step", "step_lfu"])
def test_living_reports_churn_evictions_and_what_scores_cost(tmp_path: Path, score: str) -> None:
    sizes = ("--rows", "20000", "--dim", "4", "--batch", "500")
    report = report_of(tmp_path, "living", *sizes, "--score", score, "--grow-to", "100000")
    names = [result["name"] for result in report["results"]]
    churn = ["churn, 1 % new", "an eviction", "churn, all new"]
    unknown = [f"{what}, SGD, a tenth unknown" for what in ("push", "step")]
    assert names == [*churn, "lookup", "step, SGD", *unknown, "growth, all new"]
    peers = [peer["name"] for result in report["results"][-3:] for peer in result["peers"]]
    assert peers == ["counted by a Bloom counter", "without admission"] * 2


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.parametrize("alpha", ["0", "1.1"])
def test_embedding_reports_lookup_and_step(tmp_path: Path, ranks: int | None, alpha: str) -> None:
    report = report_of(tmp_path, *EMBEDDING, "--alpha", alpha, "--no-peers", ranks=ranks)
    assert [result["name"] for result in report["results"]] == ["lookup", "step"]
    assert all(result["keys"] == 3 * 4 * 50 for result in report["results"])
    assert report["options"]["dim"] == 20


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_embedding_knows_every_optimizer(tmp_path: Path, optimizer: str) -> None:
    report = report_of(tmp_path, *EMBEDDING, "--optimizer", optimizer, "--no-peers")
    assert report["options"]["optimizer"] == optimizer


HALVES = [("fp16", "all"), ("bf16", "owned")]
if LONG_FORMS:
    HALVES += [("fp16", "owned"), ("bf16", "all")]


@pytest.mark.parametrize("partials, travel", HALVES)
def test_embedding_lets_partial_sums_travel_as_halves(tmp_path: Path, partials: str, travel: str) -> None:
    odd = "embedding --rows 3000 --dim 21 --slots 3 --hot 4 --batch 50 --no-peers".split()
    halves = report_of(tmp_path, *odd, "--partials", partials, "--travel", travel, ranks=2)
    assert halves["options"]["partials"] == partials
    name = {"fp16": "float16", "bf16": "bfloat16"}[partials]
    assert any(f"Partial sums travel as {name}." in note for note in halves["notes"])
    floats = report_of(tmp_path, *odd, "--travel", travel, ranks=2)
    lookup = [report["results"][0]["floor"]["bytes"] for report in (floats, halves)]
    assert lookup[0] > lookup[1]


@pytest.mark.parametrize("row_dtype, rounding", [("float16", "stochastic"), ("bfloat16", "nearest")])
def test_embedding_has_rows_of_sixteen_bits(tmp_path: Path, row_dtype: str, rounding: str) -> None:
    types = ("--row-dtype", row_dtype, "--rounding", rounding)
    halves = report_of(tmp_path, *EMBEDDING, "--no-peers", "--optimizer", "adagrad", *types)
    assert halves["options"] | {"row_dtype": row_dtype, "rounding": rounding} == halves["options"]
    floats = report_of(tmp_path, *EMBEDDING, "--no-peers", "--optimizer", "adagrad")
    for half, whole in zip(halves["results"], floats["results"]):
        assert half["floor"]["bytes"] < whole["floor"]["bytes"]


@pytest.mark.parametrize("options", [[], ["--torch-python", "/bin/false"]], ids=["here", "without"])
def test_embedding_runs_beside_pytorch_or_says_that_it_is_missing(tmp_path: Path, options: list[str]) -> None:
    report = report_of(tmp_path, *EMBEDDING, *options)
    peers = {peer["name"] for result in report["results"] for peer in result["peers"]}
    is_missing = not peers and "not installed" in " ".join(report["notes"])
    assert is_missing or (peers == {"pytorch"} and not options)


@pytest.mark.parametrize("ranks", [None, 2])
def test_table_reports_its_three_operations(tmp_path: Path, ranks: int | None) -> None:
    report = report_of(tmp_path, *TABLE, ranks=ranks)
    results = report["results"]
    assert [result["name"] for result in results] == ["find", "find-or-insert, present", "insert, cold"]
    assert [result["keys"] for result in results] == [3000 * (ranks or 1)] * 2 + [20000]
    if ranks is None:
        assert "std::unordered_map" in {peer["name"] for peer in results[0]["peers"]}


def test_table_keeps_to_the_load_it_is_given(tmp_path: Path) -> None:
    report = report_of(tmp_path, *TABLE, "--load", "0.2", "--no-peers")
    assert 0.1 < report["options"]["load_of_table"] <= 0.2


def figures_of(report: Any) -> dict[str, float]:
    """A report's figures by name."""
    for figure in report["figures"]:
        goal = figure.get("at_least", 0) <= figure["value"] <= figure.get("at_most", float("inf"))
        assert figure.get("met", True) is goal
    return {figure["name"]: figure["value"] for figure in report["figures"]}


def test_journal_reports_every_mode_beside_the_disk(tmp_path: Path) -> None:
    small = "journal --rows 2000 --dim 4 --slots 2 --batch 8 --in-flight 4 --seconds 0.05 --interval 1"
    report = report_of(tmp_path, *small.split(), "--data", str(tmp_path))
    names = [f"push, {mode}, {n} in flight" for n in (1, 4) for mode in ("none", "interval", "sync")]
    disks = [f"disk, {n} a sync" for n in (1, 4)]
    assert [r["name"] for r in report["results"]] == names[:3] + disks[:1] + names[3:] + disks[1:]
    assert report["results"][0]["keys"] == 16
    figures = figures_of(report)
    for n in (1, 4):
        assert figures[f"sync of the slower of none and a record a sync, {n} in flight"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_checkpoint_reports_saving_recovering_and_training_beside_it(tmp_path: Path) -> None:
    small = "checkpoint --rows 3000 --dim 4 --slots 3 --batch 8 --seconds 0.1 --touched 0.1".split()
    report = report_of(tmp_path, *small, "--data", str(tmp_path))
    keys = {result["name"]: result["keys"] for result in report["results"]}
    whole = ["base, idle", "direct writes of its bytes", "recovery", "direct reads of its bytes"]
    steps = ["step, control", "step beside a checkpoint"]
    assert keys == dict.fromkeys(whole, 3000) | {"delta, idle": 300} | dict.fromkeys(steps, 24)
    base = report["results"][0]["floor"]["bytes"]
    assert base > 3000 * (8 + 4 * 4)
    figures = figures_of(report)
    assert figures["checkpoints beside steps"] >= 2
    assert figures["p99 of a step beside a checkpoint, ms"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("subcommand", ["journal", "checkpoint"])
def test_benchmarks_of_a_folder_need_one_that_is_there_and_one_rank(subcommand: str) -> None:
    assert run_bench(subcommand, "--data", "/nowhere").returncode != 0
    ended = run_bench(subcommand, "--rows", "100", ranks=2)
    assert ended.returncode != 0
    assert "measures one rank" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    ["", "nonsense", "embedding --optimizer magic", "embedding --partials fp8", "table --load 0.95"],
)
def test_options_that_make_no_sense_are_refused(arguments: str) -> None:
    assert run_bench(*arguments.split()).returncode != 0


def test_a_report_that_cannot_be_written_is_an_error() -> None:
    ended = run_bench(*TABLE, "--no-peers", "--repeats", "1", "--json", "/nowhere/report.json")
    assert ended.returncode == 1
    assert "/nowhere/report.json" in ended.stderr


def test_rpc_reports_rows_and_redis_where_it_is(tmp_path: Path) -> None:
    small = "rpc --rows 5000 --request 100 --requests 30".split()
    report = report_of(tmp_path, *small)
    assert report["results"][0]["keys"] == 3000
    peers = [peer["name"] for peer in report["results"][0]["peers"]]
    assert any("TCP" in peer for peer in peers)
    assert any("Redis" in peer for peer in peers) or any("no Redis" in note for note in report["notes"])


def test_rpc_measures_a_server_that_is_named(tmp_path: Path, start_cluster: StartCluster) -> None:
    server = start_cluster(2).ranks[0].address
    small = "rpc --rows 5000 --request 700 --requests 30 --no-peers".split()
    assert report_of(tmp_path, *small, "--server", server)["options"]["server"] == server
