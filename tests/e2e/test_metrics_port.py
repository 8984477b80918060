"""A rank's metrics: what a scripted load did is what they say, exactly, and Prometheus can read them."""

from __future__ import annotations

import os
import re
import signal
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from slotwise_cluster import Cluster, StartCluster, wait_until
from slotwise_metrics import METRICS, address_of, scrape, total
from slotwise_wire import ROOT
from test_access import TOKENS, principals

import slotwise


@pytest.mark.parametrize("transport", ["tcp", "grpc"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_they_are_what_a_scripted_load_did(start_cluster: StartCluster, ranks: int, transport: str) -> None:
    cluster = start_cluster(ranks, METRICS)
    expected: Counter[str] = Counter()
    with cluster.connect(transport=transport) as ps:
        ps.create_table("ads", dim=4, slots=2, combiner="sum", optimizer=slotwise.SGD(lr=0.1))
        random = np.random.default_rng(20261124)
        for samples in (1, 5, 64, 3):
            keys = random.integers(0, 1000, 6 * samples, dtype=np.uint64)
            offsets = np.arange(0, 6 * samples + 1, 3)
            ps.lookup("ads", keys, offsets)
            ps.push("ads", keys, offsets, np.ones((samples, 8), np.float32))
            expected["samples"] += samples
            expected["keys"] += 6 * samples
        for _ in range(3):
            with pytest.raises(slotwise.InvalidArgument):
                ps.push("ads", keys, offsets, np.full((samples, 8), np.inf, np.float32))
        # A call is counted once it is over, which its caller may hear a little earlier.
        wait_until(
            lambda: total(cluster, "slotwise_calls_under_way") == 0
            and total(cluster, "slotwise_requests_total", code="INVALID_ARGUMENT") >= 3,
            "the calls are over",
        )
        stats = ps.stats()
    for method in ("lookup", "push"):
        for name in ("samples", "keys"):
            assert total(cluster, f"slotwise_request_{name}_total", method=method) == expected[name]
        counts = [getattr(rank, {"lookup": "lookups", "push": "pushes"}[method]) for rank in stats]
        calls = sum(each.calls for each in counts)
        assert calls >= 4
        assert total(cluster, "slotwise_requests_total", method=method, code="OK") == calls
        assert total(cluster, "slotwise_request_duration_seconds_count", method=method) == calls
        seconds = sum(each.latency.sum_ns for each in counts) / 1e9
        latency = total(cluster, "slotwise_request_duration_seconds_sum", method=method)
        assert latency == pytest.approx(seconds)
        stages = total(cluster, "slotwise_request_stage_duration_seconds_sum", method=method)
        assert stages == pytest.approx(seconds), "the stages are the whole call"
        for said, name in (("received", "bytes_in"), ("sent", "bytes_out")):
            counted = sum(getattr(each, name) for each in counts)
            assert total(cluster, f"slotwise_request_{said}_bytes_total", method=method) == counted > 0
    assert total(cluster, "slotwise_requests_total", code="INVALID_ARGUMENT", method="push") == 3
    assert total(cluster, "slotwise_requests_total", method="lookup") == calls_of(cluster, "lookup")
    assert total(cluster, "slotwise_rounds_total") >= 8 * ranks


def calls_of(cluster: Cluster, method: str) -> float:
    """The calls of a method that were not refused."""
    return total(cluster, "slotwise_requests_total", method=method, code="OK")


def test_buckets_are_cumulative_and_end_with_all(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, METRICS)
    with cluster.connect() as ps:
        ps.create_table("words", dim=4, combiner="none", optimizer=slotwise.SGD(lr=0.1))
        for _ in range(20):
            ps.lookup("words", [1, 2, 3])
    # A call is counted once it is over, which its caller may hear a little earlier.
    wait_until(lambda: calls_of(cluster, "lookup") >= 20, "the calls are over")
    found = scrape(cluster, 0)
    buckets: dict[Any, dict[float, float]] = {}
    for (name, labels), value in found.items():
        if name.endswith("_bucket") and name.startswith("slotwise_"):
            own = dict(labels)
            bound = float(own.pop("le"))
            buckets.setdefault((name, frozenset(own.items())), {})[bound] = value
    # Of calls and their stages, by method; of a table's probes and staleness; of exchanges, by operation.
    assert len(buckets) == 2 * (1 + 7) + 2 + 3
    for (name, labels), counts in buckets.items():
        ordered = [counts[bound] for bound in sorted(counts)]
        assert ordered == sorted(ordered)
        assert ordered[-1] == found[name.replace("_bucket", "_count"), labels]
    lookups = buckets["slotwise_request_duration_seconds_bucket", frozenset({("method", "lookup")})]
    assert lookups[float("inf")] == 20


def test_all_are_documented(start_cluster: StartCluster, tmp_path: Path) -> None:
    durable = f'durability {{ mode: DURABILITY_MODE_SYNC folder: "{tmp_path}/data" }}\n'
    cluster = start_cluster(1, METRICS + durable)
    cluster.create()
    with cluster.connect() as ps:
        evicts = slotwise.Eviction("step")
        ps.create_table("cache", dim=1, optimizer=slotwise.SGD(0.1), max_rows=2, eviction=evicts)
        for key in range(3):
            ps.lookup("cache", [key])
    bounds = {value for name, labels in scrape(cluster, 0) for label, value in labels if label == "le"}
    assert all(len(re.sub(r"e.*|\D", "", bound)) <= 15 for bound in bounds), "as few digits as name them"
    assert "8.192e-06" in bounds
    names = {name for name, _ in scrape(cluster, 0) if name.startswith("slotwise_")}
    found = {re.sub("_(bucket|count|sum)$", "", name) for name in names}
    document = (ROOT / "docs" / "metrics.md").read_text()
    assert set(re.findall(r"^\| `(slotwise_\w+)`", document, re.MULTILINE)) == found
    for name in re.findall(r"slotwise_\w+(?=[{\[])", document):
        assert name in names, "of a query"


def test_no_rank_serves_them_unless_told_to(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1)
    assert not [each for each in cluster.messages(0) if "metrics" in each]


def get(url: str, token: str | None = None) -> tuple[int, str]:
    """An answer's status and text."""
    fields = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=fields), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_any_rank_says_what_all_count(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(3, principals(tmp_path / "tokens") + METRICS)
    watcher = TOKENS["watcher"]
    credentials = slotwise.Credentials(token_file=tmp_path / "tokens/trainer.token")
    with slotwise.connect(*(rank.address for rank in cluster.ranks), credentials=credentials) as ps:
        keys = np.arange(900, dtype=np.uint64)
        for _ in range(3):
            ps.lookup("ads", keys)
            ps.push("ads", keys, None, np.ones((900, 2), np.float32))
    wait_until(lambda: total(cluster, "slotwise_calls_under_way", watcher) == 0, "the calls are over")
    servers = [address_of(cluster, rank).removesuffix("metrics") + "server" for rank in range(3)]
    for url in servers:
        status, text = get(url, watcher)
        assert status == 200
        assert get(url)[0] == 401 and get(url, TOKENS["trainer"])[0] == 403
        assert get(url, TOKENS["admin"])[0] == 403, "other rights on all tables do not matter"
        found = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        ranks = [scrape(cluster, rank, watcher) for rank in range(3)]
        names = {name for name, _ in ranks[0]} - {"slotwise_table_hot_keys_share"}
        assert {name for name, _ in found} == names
        alike = {
            f"slotwise_table_{name}" for name in ("steps_total", "batches_total", "max_rows", "evicts")
        }
        for (name, labels), value in found.items():
            values = [rank[name, labels] for rank in ranks if (name, labels) in rank]
            if name in alike:
                assert value == max(values), name
            elif name.startswith(("slotwise_table_", "slotwise_request")):
                assert value == pytest.approx(sum(values)), name
        assert found["slotwise_table_rows", frozenset({("table", "ads")})] == 900
        assert found["slotwise_table_steps_total", frozenset({("table", "ads")})] == 3
    # A rank that does not answer is named.
    os.kill(cluster.pid(2), signal.SIGSTOP)
    try:
        status, text = get(servers[0], watcher)
    finally:
        os.kill(cluster.pid(2), signal.SIGCONT)
    assert status == 503
    assert text.startswith("rank 2 does not say what it counts, at 127.0.0.1:")
    secrets = cluster.logs() + text
    assert not any(token in secrets for token in TOKENS.values())
