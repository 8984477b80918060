"""Debian's Prometheus with the files of deploy/observed, beside a server of a test's."""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from free_ports import free_ports
from programs import started
from slotwise_cluster import Cluster
from slotwise_metrics import address_of
from slotwise_wire import ROOT

OBSERVED = ROOT / "deploy" / "observed"


class Prometheus:
    """A Prometheus that scrapes a cluster's ranks each second."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **parameters: str) -> Any:
        """What its API answers."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[float]:
        """The values of the series of an expression, now."""
        return [float(each["value"][1]) for each in self.get("query", query=expression)["result"]]

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            return bool(self.get("targets"))
        except OSError:
            return False


@contextmanager
def prometheus_of(cluster: Cluster, folder: Path) -> Iterator[Prometheus]:
    """Starts Prometheus with the files of deploy/observed, but for the targets and the intervals."""
    shutil.copytree(OBSERVED, folder)
    ranks = [address_of(cluster, rank).split("/")[2] for rank in range(len(cluster.ranks))]
    (folder / "targets.yml").write_text(yaml.safe_dump([{"targets": ranks}]))
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_ports(1)}"
    options = ("--config.file", "prometheus.yml", "--storage.tsdb.path", folder / "data")
    command = ("prometheus", *options, "--web.listen-address", address)
    with started(folder / "log", *command, folder=folder) as process:
        found = Prometheus(address)
        process.wait(found.is_ready, "Prometheus answers")
        yield found
