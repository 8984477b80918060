"""Small requests for tables that want everything: each is served or refused by name, and others are served.

No Slotwise package is used: requests are made from the .proto files.
"""

from __future__ import annotations

import os

import grpc
import numpy as np
import pytest
import slotwise_cluster
from abuse_guard import ATTACKED
from judged_times import expect_time, seconds_of
from slotwise_cluster import Cluster, StartCluster

TOTAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refusal(cluster: Cluster, table: str, **options: object) -> str:
    """What the server says as it refuses the table."""
    return slotwise_cluster.refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, cluster.create, table, **options)


@pytest.mark.parametrize("ranks", ATTACKED)
def test_tables_take_neither_all_addresses_nor_all_memory(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks)
    keys = np.arange(300_000, dtype=np.uint64)
    ordinary = cluster.create("ordinary", dim=4, initial_rows=2 * len(keys))  # the rest may take all memory
    adam = cluster.protocol.Optimizer(adam=cluster.protocol.Adam(), learning_rate=0.1)
    refused = 0
    for number in range(200):
        try:
            cluster.create(f"wide_{number}", dim=4096, max_rows=1 << 40, optimizer=adam)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert f"wide_{number}" in error.details()
            refused += 1
    # Whatever was made, there are addresses for a large ordinary batch, at every rank.
    for rank in range(ranks):
        assert cluster.lookup(ordinary, keys, len(keys), rank=rank).shape == (len(keys), 4)
    print(f"{refused} of 200 were refused")


@pytest.mark.parametrize("ranks", ATTACKED)
def test_rows_that_no_memory_could_hold_are_refused_at_once(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks)
    for dim, what in ((64, "rows"), (1, "cells")):
        rows = 4 * TOTAL // (dim * 4 if what == "rows" else 32)

        def refused(dim: int = dim, rows: int = rows) -> None:
            said = refusal(cluster, "large", dim=dim, initial_rows=rows, max_rows=1 << 40)
            assert "no memory for table large" in said

        expect_time(f"the refusal of {what}", seconds_of(refused), 10)
    cluster.create("large", dim=64)
    assert cluster.lookup("large", [1, 2], 2).shape == (2, 64)


@pytest.mark.parametrize("ranks", ATTACKED)
def test_the_ranks_of_a_host_promise_no_more_than_there_is(start_cluster: StartCluster, ranks: int) -> None:
    """Each rank's share would fit, and all of them together are more than the machine has."""
    rows = TOTAL * 6 // 5 // (4 * 4096)
    said = refusal(start_cluster(ranks), "large", dim=4096, initial_rows=rows, max_rows=rows)
    assert "no memory for table large" in said


def test_there_are_at_most_so_many_tables(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2, "limits { max_tables: 3 }")
    names = [cluster.create() for _ in range(3)]
    said = refusal(cluster, "one_more")
    assert said == "the server has 3 tables, the most that limits.max_tables allows"
    cluster.drop(names[0], rank=1)
    cluster.create("one_more")
