"""Reads ranks' metrics as Prometheus does."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from slotwise_cluster import Cluster

METRICS = 'metrics_listen: "127.0.0.1:0"\n'


def address_of(cluster: Cluster, rank: int) -> str:
    """Where a rank says that its metrics are."""
    (said,) = [each for each in cluster.messages(rank) if each.startswith("metrics at ")]
    return said.removeprefix("metrics at ")


def scrape(
    cluster: Cluster, rank: int, token: str | None = None
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """A rank's metrics by their names and labels, but for the label `rank`, which is checked."""
    fields = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(address_of(cluster, rank), headers=fields)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            labels = dict(sample.labels)
            if sample.name.startswith("slotwise_"):
                assert labels.pop("rank") == str(rank), sample
            key = (sample.name, frozenset(labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def total(cluster: Cluster, name: str, token: str | None = None, **labels: str) -> float:
    """The sum of a metric over all ranks, and over the labels that are not named."""
    wanted = set(labels.items())
    return sum(
        value
        for rank in range(len(cluster.ranks))
        for (its, its_labels), value in scrape(cluster, rank, token).items()
        if its == name and wanted <= its_labels
    )
