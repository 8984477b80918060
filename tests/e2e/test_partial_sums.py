"""Partial sums that travel between ranks as 16-bit numbers: what lookups say, and what stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
from hashes import buckets_of
from slotwise_cluster import Cluster, StartCluster

DIM = 5
SAMPLES = 300
UNIT_ROUNDOFF = {"FLOAT16": 2.0**-11, "BFLOAT16": 2.0**-8}


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    """To the nearest number of that type, ties to even; as float32."""
    if name == "FLOAT16":
        return values.astype(np.float16).astype(np.float32)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def bags() -> tuple[np.ndarray, np.ndarray]:
    """Keys and offsets of bags of 0 to 11 keys, many of them in several."""
    random = np.random.default_rng(5)
    offsets = np.concatenate([[0], np.cumsum(random.integers(0, 12, SAMPLES))]).astype(np.uint32)
    return random.integers(0, 700, offsets[-1]).astype(np.uint64), offsets


def create(cluster: Cluster) -> str:
    """The same table on every server."""
    return cluster.create("ads", dim=DIM, combiner="COMBINER_MEAN")


def partial_sums(cluster: Cluster, table: str, ranks: int) -> np.ndarray:
    """[ranks, samples, dim]: what each of `ranks` ranks would send, unrounded; `cluster` has one rank."""
    keys, offsets = bags()
    rows = cluster.lookup(table, keys, len(keys))
    owners = buckets_of(keys) * np.uint64(ranks) // np.uint64(4096)
    sums = np.zeros((ranks, SAMPLES, DIM), np.float32)
    for bag in range(SAMPLES):
        for i in range(offsets[bag], offsets[bag + 1]):
            sums[owners[i], bag] += rows[i]
    return sums


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["FLOAT16", "BFLOAT16"])
def test_each_ranks_sum_is_rounded_once(start_cluster: StartCluster, name: str, ranks: int) -> None:
    alone = start_cluster(1)
    cluster = start_cluster(ranks, f"partial_sums: DATA_TYPE_{name}")
    partials = partial_sums(alone, create(alone), ranks)
    keys, offsets = bags()
    table = create(cluster)
    looked_up = [cluster.lookup(table, keys, SAMPLES, rank=rank, offsets=offsets) for rank in range(ranks)]

    expected = np.zeros((SAMPLES, DIM), np.float32)
    for of_rank in rounded(partials, name):
        expected += of_rank
    size = np.maximum(np.diff(offsets), 1).astype(np.float32)[:, None]
    for values in looked_up:
        assert values.tobytes() == (expected / size).tobytes()

    exact = partials.astype(np.float64).sum(0) / size
    bound = UNIT_ROUNDOFF[name] * np.abs(partials).sum(0) / size
    error = np.abs(looked_up[0] - exact)
    assert (error <= bound + 1e-7).all()
    assert error.max() > 1e-6, "nothing was rounded"


def test_steps_and_rows_are_what_they_are_without_and_the_log_says_which(start_cluster: StartCluster) -> None:
    keys, offsets = bags()
    gradients = np.random.default_rng(6).normal(size=(SAMPLES, DIM)).astype(np.float32)
    digests = []
    for config, name in (("", "float32"), ("partial_sums: DATA_TYPE_BFLOAT16", "bfloat16")):
        cluster = start_cluster(2, config)
        said = [[line for line in cluster.messages(rank) if "partial sums" in line] for rank in range(2)]
        assert said == [[f"partial sums of bags travel as {name}"], []]
        table = create(cluster)
        for _ in range(2):
            cluster.lookup(table, keys, SAMPLES, offsets=offsets)
            cluster.push(cluster.push_request(table, keys, gradients, offsets=offsets))
        digests.append(cluster.digest(table))
    assert digests[0] == digests[1]


def test_one_rank_rounds_nothing(start_cluster: StartCluster) -> None:
    keys, offsets = bags()
    values = []
    for config in ("", "partial_sums: DATA_TYPE_FLOAT16"):
        cluster = start_cluster(1, config)
        values.append(cluster.lookup(create(cluster), keys, SAMPLES, offsets=offsets).tobytes())
        assert not [line for line in cluster.messages(0) if line.startswith("partial sums")]
    assert values[0] == values[1]
