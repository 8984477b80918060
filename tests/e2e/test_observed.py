"""Prometheus, with the files of deploy/observed: every query has a series, and every alert can fire."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from observed_prometheus import OBSERVED, prometheus_of
from programs import output_of
from slotwise_cluster import StartCluster, wait_until
from slotwise_metrics import METRICS
from slotwise_wire import ROOT

import slotwise

DASHBOARD = json.loads((OBSERVED / "grafana" / "dashboard.json").read_text())
RULES = yaml.safe_load((OBSERVED / "alerts.yml").read_text())["groups"][0]["rules"]
COMPARISON = re.compile(r" (==|<|>) [0-9.]+$")

# Of each alert: series, with values that fire it and that do not ("": there is no such series). There is a
# sample a minute over two hours.
CASES: dict[str, list[tuple[str, str, str]]] = {
    "SlotwiseRankDown": [('up{job="slotwise"}', "0x120", "1x120")],
    # When it is quiet, one of the restarts was earlier.
    "SlotwiseRestarts": [("slotwise_start_time_seconds", "1x97 2x2 3x2 4x20", "1x90 2x9 3x2 4x20")],
    "SlotwiseRanksMissing": [
        ('slotwise_ranks{rank="0"}', "3x120", ""),
        ('slotwise_ranks{rank="1"}', "3x120", ""),
        ('slotwise_ranks{rank="0",instance="a"}', "", "2x120"),
        ('slotwise_ranks{rank="1",instance="b"}', "", "2x120"),
    ],
    "SlotwiseRoundStuck": [("slotwise_round_busy_seconds", "31+60x120", "29x120")],
    "SlotwiseJournalBlocked": [("slotwise_journal_blocked", "0x60 1x60", "0x109 1 0x10")],
    "SlotwiseJournalFailed": [("slotwise_journal_failed", "1x120", "0x120")],
    "SlotwiseRefusals": [
        ('slotwise_requests_total{method="push",code="UNAVAILABLE"}', "0+7x120", "0+5x120"),
        ('slotwise_requests_total{method="push",code="BUSY"}', "", "0+700x120"),
        ('slotwise_requests_total{method="push",code="INVALID_ARGUMENT"}', "", "0+700x120"),
    ],
    "SlotwiseBusy": [
        ('slotwise_requests_total{code="BUSY"}', "0+12x120", "0+9x120"),
        ('slotwise_requests_total{code="OK"}', "0+88x120", "0+91x120"),
    ],
    "SlotwiseTableNearlyFull": [
        ('slotwise_table_rows{table="a",rank="0"}', "46x120", ""),
        ('slotwise_table_rows{table="a",rank="1"}', "45x120", ""),
        ('slotwise_table_max_rows{table="a",rank="0"}', "100x120", ""),
        ('slotwise_table_max_rows{table="a",rank="1"}', "100x120", ""),
        ("slotwise_ranks", "2x120", "1x120"),
        ('slotwise_table_rows{table="a"}', "", "89x120"),
        ('slotwise_table_max_rows{table="a"}', "", "100x120"),
        ('slotwise_table_rows{table="b",rank="0"}', "", "99x120"),
        ('slotwise_table_max_rows{table="b",rank="0"}', "", "100x120"),
        ('slotwise_table_evicts{table="a",rank="0"}', "0x120", "0x120"),
        ('slotwise_table_evicts{table="b",rank="0"}', "", "1x120"),
    ],
    "SlotwiseTableTooSmall": [
        # Old rows went before the last hour. Of two ranks, one evicts young rows and fewer of them.
        ('slotwise_table_evicted_age_steps_bucket{table="a",rank="0",le="63"}', "0x40 0+9x80", "0x40 0+4x80"),
        ('slotwise_table_evicted_age_steps_bucket{table="a",rank="0",le="127"}', "90x40 90+9x80", "0+4x120"),
        ('slotwise_table_evicted_age_steps_bucket{table="a",rank="0",le="+Inf"}', "90x40 90+9x80", "0+4x120"),
        ('slotwise_table_evicted_age_steps_bucket{table="a",rank="1",le="63"}', "0x120", "0x120"),
        ('slotwise_table_evicted_age_steps_bucket{table="a",rank="1",le="127"}', "0x120", "0x120"),
        ('slotwise_table_evicted_age_steps_bucket{table="a",rank="1",le="+Inf"}', "0+4x120", "0+9x120"),
        # A table that evicts nothing any more.
        ('slotwise_table_evicted_age_steps_bucket{table="b",rank="0",le="63"}', "", "90x120"),
        ('slotwise_table_evicted_age_steps_bucket{table="b",rank="0",le="+Inf"}', "", "90x120"),
    ],
    "SlotwiseRanksUneven": [
        # Of so few rows a share says nothing.
        ('slotwise_table_rows{table="a",rank="0"}', "900000x120", "900x120"),
        ('slotwise_table_rows{table="a",rank="1"}', "100000x120", "100x120"),
        ('slotwise_table_rows{table="b",rank="0"}', "", "290000x120"),
        ('slotwise_table_rows{table="b",rank="1"}', "", "110000x120"),
    ],
    "SlotwiseMemoryShort": [
        ("slotwise_device_memory_for_tables_bytes", "1x120", "3x120"),
        ('slotwise_table_bytes{table="a"}', "50x120", "50x120"),
        ('slotwise_table_bytes{table="b"}', "49x120", "47x120"),
        ("slotwise_device_memory_bytes", "", "1000x120"),  # tables may take less than the device has
    ],
    "SlotwiseDiskShort": [
        ("slotwise_data_folder_free_bytes", "9x120", "11x120"),
        ("slotwise_data_folder_bytes", "100x120", "100x120"),
    ],
    "SlotwiseDiskFillsUp": [("slotwise_data_folder_free_bytes", "3000-10x120", "5000-10x120")],
    "SlotwiseJournalBehind": [("slotwise_journal_queued_bytes", "300000000x120", "200000000x120")],
    "SlotwiseCheckpointOld": [("slotwise_checkpoint_age_seconds", "3601+60x120", "3599x120")],
    "SlotwiseCheckpointFailed": [
        ('slotwise_checkpoints_total{outcome="unreadable"}', "0x100 1x20", "1x120"),
        ('slotwise_checkpoints_total{outcome="written"}', "", "0+1x120"),
    ],
    "SlotwiseFilesShort": [
        ('process_open_fds{job="slotwise"}', "81x120", "79x120"),
        ('process_max_fds{job="slotwise"}', "100x120", "100x120"),
    ],
}


# Of a server of three ranks, of which two are scraped: its table is full all the same.
THIRD_MISSING = {
    f'{name}{{{labels}rank="{rank}"}}': f"{value}x120"
    for name, labels, value in (
        ("slotwise_table_rows", 'table="a",', 33),
        ("slotwise_table_max_rows", 'table="a",', 100),
        ("slotwise_ranks", "", 3),
    )
    for rank in range(2)
}


def test_promtool_takes_the_files() -> None:
    for arguments in (("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml")):
        output_of("promtool", *arguments, folder=OBSERVED)


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "is quiet"])
@pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
def test_each_alert_fires_and_is_quiet(alert: str, fires: bool, tmp_path: Path) -> None:
    series = {name: yes if fires else no for name, yes, no in CASES[alert]}
    expect(alert, {name: values for name, values in series.items() if values}, fires, tmp_path)


@pytest.mark.parametrize("alert", ["SlotwiseTableNearlyFull", "SlotwiseRanksMissing"])
def test_a_rank_that_is_not_scraped_hides_nothing(alert: str, tmp_path: Path) -> None:
    expect(alert, THIRD_MISSING, True, tmp_path)


def expect(alert: str, series: dict[str, str], fires: bool, folder: Path) -> None:
    """Lets promtool see whether these series fire an alert."""
    fired = {
        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
        "eval_time": "110m",
        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
    }
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    unit = {
        "rule_files": [str(OBSERVED / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": [fired]}],
    }
    (folder / "unit.yml").write_text(yaml.safe_dump(unit))
    output_of("promtool", "test", "rules", folder / "unit.yml", folder=OBSERVED)


def test_each_alert_says_what_to_do() -> None:
    document = (ROOT / "docs" / "alerts.md").read_text()
    # Of each chapter the first paragraph, which is all that a woken operator may have at hand.
    chapters = re.findall(r"^## (\w+)\n\n((?:.+\n)+)", document, re.MULTILINE)
    paragraphs = {name: re.sub(r"\[(.*?)\]\(.*?\)", r"\1", " ".join(text.split())) for name, text in chapters}
    assert len(paragraphs) == len(chapters) == document.count("\n## ")
    assert sorted(paragraphs) == sorted(rule["alert"] for rule in RULES) == sorted(CASES)
    for rule in RULES:
        assert rule["annotations"]["description"] == paragraphs[rule["alert"]]
        assert rule["annotations"]["runbook"] == f"docs/alerts.md, {rule['alert']}"
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert COMPARISON.search(rule["expr"]), "its left side is evaluated below"


def documented_queries() -> list[str]:
    """The queries of docs/metrics.md."""
    document = (ROOT / "docs" / "metrics.md").read_text()
    (block,) = re.findall(r"\n```\n(# lookups a second.*?)```", document, re.S)
    return [line for line in block.splitlines() if line and not line.startswith("#")]


def dashboard_queries() -> list[str]:
    """The queries of the dashboard, with an interval in the place of the one that Grafana chooses."""
    targets = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [target["expr"].replace("$__rate_interval", "30s") for target in targets]


def test_the_dashboards_panels_lie_beside_each_other() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"]) > 15
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        assert panel["title"] and panel["datasource"]["uid"] == "${prometheus}"
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells


def test_every_query_has_a_series(start_cluster: StartCluster, tmp_path: Path) -> None:
    durable = f'durability {{ mode: DURABILITY_MODE_SYNC folder: "{tmp_path}/data" }}\n'
    cluster = start_cluster(2, METRICS + durable)
    keys = np.arange(400, dtype=np.uint64)

    with cluster.connect() as ps, prometheus_of(cluster, tmp_path / "p") as found:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.1))
        # Rows that are old when they go: young ones would make an alert pend.
        evicts = slotwise.Eviction("step")
        ps.create_table("cache", dim=4, optimizer=slotwise.SGD(0.1), max_rows=400, eviction=evicts)
        ps.lookup("cache", keys)
        for _ in range(130):
            ps.push("cache", keys[:1], None, np.ones((1, 4), np.float32))
        ps.lookup("cache", keys[:1] + 1000)

        def has_series(query: str) -> bool:
            ps.lookup("ads", keys)
            ps.push("ads", keys, None, np.ones((400, 4), np.float32))
            return len(found.query(query)) > 0

        has_series("up")
        ps.save()
        queries = documented_queries()
        assert len(queries) >= 6
        # A share of no rows has no series, by the rule's own words.
        sides = {rule["alert"]: COMPARISON.sub("", rule["expr"]) for rule in RULES}
        sides["SlotwiseRanksUneven"] = sides["SlotwiseRanksUneven"].replace("100000", "100")
        # `rate` wants two scrapes.
        for query in [*queries, *sides.values(), *dashboard_queries()]:
            wait_until(partial(has_series, query), query)
        stats = ps.stats()
        lookups = sum(rank.lookups.calls for rank in stats)
        answered = 'sum(slotwise_requests_total{method="lookup", code="OK"})'
        wait_until(lambda: found.query(answered) == [lookups], "the last scrape")
        assert found.query('sum(slotwise_table_rows{table="ads"})') == [400]
        assert found.query("slotwise_table_youngest_evicted_age_steps") == [128, 128]
        assert found.query('sum(slotwise_checkpoints_total{outcome="written"})') == [2]
        assert found.query("count(up == 1)") == [2]
        assert found.query("sum(slotwise_no_such_metric)") == []

        def rules() -> list[Any]:
            return [each for group in found.get("rules")["groups"] for each in group["rules"]]

        # Prometheus evaluates the rules itself.
        wait_until(lambda: all(each["health"] == "ok" for each in rules()), "the rules")
        assert sorted(each["name"] for each in rules()) == sorted(sides)

        def active() -> set[str]:
            # What the disk of this machine has, and how fast it fills, is not the server's.
            names = {each["name"] for each in rules() if each["state"] != "inactive"}
            return names - {"SlotwiseDiskShort", "SlotwiseDiskFillsUp"}

        assert not active(), rules()
        cluster.stop()
        wait_until(lambda: active() == {"SlotwiseRankDown"}, "the end of a server is seen")
