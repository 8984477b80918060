"""The page of a rank in a browser: its numbers are those of a scripted load, and it does nothing else."""

from __future__ import annotations

import base64
import concurrent.futures
import html
import os
import re
import shutil
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from certificates import write
from free_ports import free_ports
from judged_times import LONG_FORMS
from programs import output_of
from slotwise_cluster import Cluster, StartCluster
from slotwise_metrics import METRICS, address_of
from slotwise_wire import CALL_TIMEOUT
from test_access import TOKENS, principals

import slotwise

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SAMPLES, STEPS = 64, 5


def browse(folder: Path, address: str, *options: str, seconds: float = 4.5) -> str:
    """What a browser makes of the page, after some readings; as markup.

    By virtual time a browser waits only for answers: its seconds are shorter than the server's.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    assert browser, "there is no chromium: ./dev setup test installs it"
    command = [
        *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *(f"--user-data-dir={folder}/profile", f"--virtual-time-budget={seconds * 1e3:.0f}"),
        *(*options, address),
    ]
    return output_of(*command, timeout=2 * CALL_TIMEOUT, HOME=str(folder), XDG_RUNTIME_DIR=str(folder))


def dom_of(folder: Path, cluster: Cluster, rank: int = 0, query: str = "") -> str:
    """The markup that a browser has made of a rank's page."""
    return browse(folder, page_of(cluster, rank) + query, "--dump-dom")


def cells(dom: str, table: str) -> list[list[str]]:
    """The texts of a table, a list a row."""
    (inside,) = re.findall(f'<table id="{table}">(.*?)</table>', dom, re.DOTALL)
    rows = re.findall("<tr>(.*?)</tr>", inside, re.DOTALL)
    texts = [re.findall("<t[dh]>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    return [[html.unescape(text) for text in row] for row in texts]


CURVES = ["calls a second", "median time of a lookup", "rows", "device memory"]


def curves(dom: str) -> list[tuple[str, list[tuple[float, float]]]]:
    """The page's curves: their names, and their points as (x, y); y is 38 for 0 and 2 for the most."""
    drawn = re.findall(r'<small>([^<]+)</small><b>[^<]*</b><svg.*?<polyline points="(.*?)">', dom)
    return [(name, [(float(x), float(y)) for x, y in re.findall(r"(\S+),(\S+)", at)]) for name, at in drawn]


def test_its_curves_are_those_of_the_last_minute(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(1, METRICS)
    load(cluster)
    stop = threading.Event()

    def go_on() -> None:
        with cluster.connect(transport="grpc") as ps:
            while not stop.is_set():
                ps.lookup("ads", np.arange(2 * SAMPLES, dtype=np.uint64), np.arange(2 * SAMPLES + 1))

    with concurrent.futures.ThreadPoolExecutor() as threads:
        loading = threads.submit(go_on)
        try:
            drawn = dict(curves(dom_of(tmp_path, cluster)))
        finally:
            stop.set()
        loading.result()
    assert list(drawn) == CURVES
    rows = drawn["rows"]
    assert len(rows) >= 2 and {y for _, y in rows} == {2}, "rows stay as many as they are"
    for name in ("calls a second", "median time of a lookup"):
        assert min(y for _, y in drawn[name]) == 2, f"{name}: lookups went on"
    for name in ("calls a second", "rows", "device memory"):
        places = [x for x, _ in drawn[name]]
        assert places == list(range(60 - len(places), 60)), "the newest is at the right"


def page_of(cluster: Cluster, rank: int) -> str:
    """The page's address."""
    return address_of(cluster, rank).removesuffix("metrics")


def load(cluster: Cluster) -> None:
    """Five lookups and pushes of 64 samples of 2 keys, by gRPC through rank 0 alone."""
    with cluster.connect(transport="grpc") as ps:
        ps.create_table("ads", dim=4, slots=2, combiner="sum", optimizer=slotwise.SGD(lr=0.1))
        keys = np.arange(2 * SAMPLES, dtype=np.uint64)
        offsets = np.arange(2 * SAMPLES + 1)
        for _ in range(STEPS):
            ps.lookup("ads", keys, offsets)
            ps.push("ads", keys, offsets, np.ones((SAMPLES, 8), np.float32))


def test_it_shows_what_a_scripted_load_did(start_cluster: StartCluster, tmp_path: Path) -> None:
    first = free_ports(2)
    cluster = start_cluster(2, f'metrics_listen: "127.0.0.1:{first}"\n')
    load(cluster)
    rows = 0
    for rank in range(2):
        dom = dom_of(tmp_path, cluster, rank)
        (readings,) = re.findall(r'data-readings="(\d+)"', dom)
        assert int(readings) >= 3, "it is live"
        assert '<div id="trouble" role="status"></div>' in dom
        assert f"rank {rank} on cpu, version" in dom
        other = f'<a href="http://127.0.0.1:{first + 1 - rank}/">rank {1 - rank}</a>'
        assert other in dom and f"<b>rank {rank}</b>" in dom
        head, row = cells(dom, "tables")
        assert head[0] == "table" and row[0] == "ads"
        rows += int(row[1])
        assert row[head.index("steps")] == str(STEPS)
        calls = {line[0]: line for line in cells(dom, "calls")[1:]}
        stages = cells(dom, "stages")
        assert stages[0][1:] == ["decode", "request queue", "round", "exchange", "journal", "encode", "send"]
        assert [name for name, _ in curves(dom)] == CURVES
        assert all(len(points) == int(readings) - 1 for name, points in curves(dom) if "time" not in name)
        for method in ("lookup", "push"):
            assert int(calls[method][1]) <= STEPS and calls[method][2] == "0", "none is refused"
    assert rows == 2 * SAMPLES, "every key has one row on one of the ranks"


def test_it_shows_rows_that_come_and_go(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(1, METRICS)
    load(cluster)
    assert "evicted a second" not in cells(dom_of(tmp_path / "1", cluster), "tables")[0], "none can go"
    stop = threading.Event()

    def go_on() -> None:
        with cluster.connect() as ps:
            evicts = slotwise.Eviction("step", to=0.5)
            ps.create_table("cache", dim=4, optimizer=slotwise.SGD(0.1), max_rows=100, eviction=evicts)
            key = 0
            while not stop.is_set():
                ps.push("cache", [key], None, np.ones((1, 4), np.float32))
                key += 1

    with concurrent.futures.ThreadPoolExecutor() as threads:
        loading = threads.submit(go_on)
        try:
            table = cells(dom_of(tmp_path / "2", cluster), "tables")
        finally:
            stop.set()
        loading.result()
    rows = {row[0]: dict(zip(table[0], row)) for row in table[1:]}
    assert rows["cache"]["evicted a second"] not in {"0", "–"} and rows["ads"]["evicted a second"] == "0"
    assert rows["cache"]["new rows a second"] not in {"0", "–"}
    assert rows["cache"]["expired a second"] == rows["cache"]["refused keys a second"] == "0"
    # By steps, a row goes 50 to 100 steps after its own.
    age, unit = rows["cache"]["evicted at age, median"].split()
    assert 50 <= float(age) <= 127 and unit == "steps"
    assert rows["ads"]["evicted at age, median"] == "–"


def test_it_loads_nothing_from_elsewhere_and_shows_no_markup(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(1, METRICS)
    with urllib.request.urlopen(page_of(cluster, 0), timeout=CALL_TIMEOUT) as answer:
        page, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    with urllib.request.urlopen(page_of(cluster, 0), timeout=CALL_TIMEOUT) as answer:
        assert answer.headers["Content-Security-Policy"] != policy, "a nonce is drawn for each answer"
    (nonce,) = set(re.findall(r"'nonce-([0-9a-f]{32})'", policy))
    assert policy.startswith("default-src 'none'; connect-src 'self'; ")
    assert page.count(f'nonce="{nonce}"') == 2 and "@NONCE@" not in page
    assert not re.search(r"https?://(?!\")|<link|<img|@import|url\(|innerHTML|outerHTML|eval\(", page)
    network = tmp_path / "network.json"
    browse(tmp_path, page_of(cluster, 0), "--dump-dom", f"--log-net-log={network}")
    hosts = set(re.findall(r'"url":"(?:https?|wss?)://([^/":]+)', network.read_text()))
    assert "127.0.0.1" in hosts
    asked_by_page = re.findall(r'"initiator":"http://127[^"]*"[^}]*"url":"([^"]+)"', network.read_text())
    assert all(url.startswith(page_of(cluster, 0)) for url in asked_by_page)
    for path in ("page.html", "metrics/x", "../etc/passwd", "rank.json/"):
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(page_of(cluster, 0) + path, timeout=CALL_TIMEOUT)
        assert missing.value.code == 404


def test_it_asks_for_the_token_of_somebody_who_may_observe(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    reads_all = "a-token-that-reads-all-tables"
    write(tmp_path / "reads", reads_all.encode())
    more = f'name: "reads" token_file: "{tmp_path}/reads" grants {{ table: "*" rights: RIGHT_READ }}'
    config = principals(tmp_path / "tokens").replace("security {", f"security {{ principals {{ {more} }}", 1)
    cluster = start_cluster(1, METRICS + config)

    def code(path: str, authorization: str | None) -> int:
        fields = {} if authorization is None else {"Authorization": authorization}
        request = urllib.request.Request(page_of(cluster, 0) + path, headers=fields)
        try:
            with urllib.request.urlopen(request, timeout=CALL_TIMEOUT) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            if error.code == 401:
                assert error.headers["WWW-Authenticate"].startswith('Basic realm="slotwise"')
            return int(error.code)

    # "admin" has another right on all tables, too; "other" has all rights on one.
    tokens = {"an-unknown-token-0123": 401, TOKENS["watcher"]: 200}
    tokens |= dict.fromkeys([reads_all, TOKENS["admin"], TOKENS["other"]], 403)
    for path in ("", "metrics", "rank.json", "server"):
        assert code(path, None) == 401
        for token, expected in tokens.items():
            basic = base64.b64encode(f"anybody:{token}".encode()).decode()
            assert code(path, f"Basic {basic}") == code(path, f"Bearer {token}") == expected


SCREENS = [("phone", ["--window-size=500,1500", "--force-dark-mode"])]
if LONG_FORMS:
    SCREENS.append(("desktop", ["--window-size=1180,800"]))


@pytest.mark.parametrize(("name", "options"), SCREENS)
def test_its_pictures(start_cluster: StartCluster, tmp_path: Path, name: str, options: list[str]) -> None:
    """A browser draws it under load, on each kind of screen; SLOTWISE_SCREENSHOTS names a folder for them."""
    cluster = start_cluster(2, METRICS + f'durability {{ folder: "{tmp_path}/data" }}\n')
    load(cluster)
    stop = threading.Event()

    def go_on() -> None:
        random = np.random.default_rng(20261124)
        with cluster.connect() as ps:
            ps.create_table("users", dim=32, slots=26, combiner="mean", optimizer=slotwise.AdaGrad(lr=0.1))
            ps.save()
            while not stop.is_set():
                keys = random.zipf(1.2, 26 * 256).astype(np.uint64)
                offsets = np.arange(26 * 256 + 1)
                ps.lookup("users", keys, offsets)
                ps.push("users", keys, offsets, np.ones((256, 26 * 32), np.float32))

    picture = tmp_path / f"{name}.png"
    with concurrent.futures.ThreadPoolExecutor() as threads:
        loading = threads.submit(go_on)
        try:
            browse(tmp_path, page_of(cluster, 0), f"--screenshot={picture}", *options, seconds=60)
        finally:
            stop.set()
        loading.result()
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 20_000, "it shows more than a background"
    if kept := os.environ.get("SLOTWISE_SCREENSHOTS"):
        shutil.copy(picture, Path(kept) / f"page-{name}.png")


def card(dom: str, name: str) -> str:
    """What the card of that name says."""
    (found,) = re.findall(f"<small>{name}</small><b>(.*?)</b>", dom)
    return html.unescape(found)


def test_it_says_which_checkpoint_there_is(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(1, METRICS + f'durability {{ folder: "{tmp_path}/data" }}\n')
    load(cluster)
    dom = dom_of(tmp_path, cluster)
    assert card(dom, "last checkpoint") == "none yet"
    assert re.fullmatch(r"[\d.]+ % of [\d.]+ [MGT]B", card(dom, "disk in use"))
    with cluster.connect() as ps:
        ps.save()
    dom = dom_of(tmp_path, cluster)
    assert re.fullmatch(r"as of now, [\d.]+ kB", card(dom, "last checkpoint"))
    load(cluster)
    dom = dom_of(tmp_path, cluster)
    assert re.fullmatch(r"\d+ (s|min) ago, [\d.]+ kB", card(dom, "last checkpoint"))


def test_any_rank_shows_all_ranks_together(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(2, METRICS)
    load(cluster)
    for rank in range(2):
        dom = dom_of(tmp_path, cluster, rank, "?all")
        assert '<div id="trouble" role="status"></div>' in dom
        assert "all ranks on 2 × cpu, version" in dom
        assert f'<a href="/">rank {rank}</a>' in dom and "<b>all ranks</b>" in dom
        head, row = cells(dom, "tables")
        assert [row[0], int(row[1]), int(row[head.index("steps")])] == ["ads", 2 * SAMPLES, STEPS]
        calls = {line[0]: line for line in cells(dom, "calls")[1:]}
        assert int(calls["lookup"][1]) == int(calls["push"][1]) == STEPS
