"""examples/online: tables that evict stay near an unbounded one, on any number of ranks; full ones do not."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from programs import output_of, run
from slotwise_cluster import StartCluster
from slotwise_wire import ROOT

TRAIN = ROOT / "examples" / "online" / "train.py"
Points = dict[str, list[dict[str, str]]]  # by table: the lines of online.csv


def train(address: str, out: Path, tables: str) -> tuple[Points, str]:
    """A small stream; what was written, and what was printed."""
    size = ("--steps", 500, "--batch-size", 128, "--window", 20)
    options = ("--server", address, "--out", out, "--tables", tables, *size)
    printed = output_of(sys.executable, TRAIN, *options, timeout=300)
    with open(out / "online.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    return {name: [line for line in lines if line["table"] == name] for name in tables.split(",")}, printed


def test_tables_that_evict_stay_near_the_unbounded_one(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(1)
    points, printed = train(cluster.ranks[0].address, tmp_path / "1", "unbounded,step,lfu,earned,full")
    cluster.stop()
    (numbers,) = re.findall(r"([\d,]+) ids; max_rows is ([\d,]+)", printed)
    ids, most = (int(number.replace(",", "")) for number in numbers)
    rows = {name: [int(point["rows"]) for point in line] for name, line in points.items()}
    assert most == ids // 10 and rows["unbounded"][-1] == ids
    for name in ("step", "lfu", "earned", "full"):
        assert len(rows[name]) == 25 and 0.9 * most < max(rows[name]) <= most
        assert rows["unbounded"][-1] >= 10 * rows[name][-1]
    aucs = {name: float(auc) for name, auc in re.findall(r"^(\w+) +(0\.\d+) ", printed, re.M)}
    # A tenth of so short a stream's ids is less than those in use.
    assert min(aucs["step"], aucs["lfu"]) > aucs["unbounded"] - 0.015 and aucs["full"] < aucs["step"] - 0.015
    assert int(points["step"][-1]["gone"]) > ids - most and points["full"][-1]["gone"] == "0"
    assert (tmp_path / "1" / "online.png").read_bytes().startswith(b"\x89PNG")

    on_two, _ = train(start_cluster(2).ranks[1].address, tmp_path / "2", "step,earned")
    for name, line in on_two.items():
        for one, two in zip(points[name], line):
            assert {**one, "bytes": ""} == {**two, "bytes": ""}


def test_a_table_that_is_none_is_refused() -> None:
    ended = run(sys.executable, TRAIN, "--tables", "step,lru", timeout=300)
    assert ended.returncode == 2 and "--tables is step,lru: some of unbounded,step,lfu," in ended.stderr
