"""Keys that somebody chose to fall on one rank, or into one place, harm no caller."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from hashes import unmix64
from slotwise_cluster import StartCluster, refusal


def keys_of_rank(rank: int, ranks: int, count: int) -> np.ndarray:
    """Keys of the rank's first bucket, whose hashes differ in their top bits below the bucket alone."""
    bucket = np.uint64(4096 // ranks * rank)
    return unmix64(bucket << np.uint64(52) | np.arange(count, dtype=np.uint64) << np.uint64(30))


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_refuses_by_name_what_is_too_much_for_it(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, "limits { max_rank_percent: 110 }")
    table = cluster.create(max_rows=20_000)
    limit = 22_000 // ranks + 1024
    crafted = keys_of_rank(1, ranks, limit + 1)
    cluster.lookup(table, crafted[:1000], 1000)
    before = cluster.digest(table)
    assert refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, cluster.lookup, table, crafted, limit + 1) == (
        f"table {table}: rank 1 would hold {limit + 1} rows, of which it has 1000, "
        f"and limits.max_rank_percent allows a rank {limit}"
    )
    assert cluster.digest(table) == before
    cluster.lookup(table, crafted[:limit], limit)  # as many as it may hold
    assert cluster.digest(table)[1] == limit


def test_a_table_may_be_filled_with_keys_that_were_not_chosen(start_cluster: StartCluster) -> None:
    cluster = start_cluster(4, "limits { max_rank_percent: 110 }")
    table = cluster.create(max_rows=200_000)
    cluster.lookup(table, np.arange(200_000, dtype=np.uint64), 200_000)
    assert cluster.digest(table)[1] == 200_000


def test_a_flood_of_keys_that_collide_in_public_is_served(start_cluster: StartCluster) -> None:
    # When places came from mix64, this lookup kept two ranks busy until their watchdogs ended them.
    cluster = start_cluster(2, "limits { collective_timeout_ms: 20000 }")
    table = cluster.create()
    crafted = keys_of_rank(1, 2, 350_000)
    pooled = cluster.lookup(table, crafted, 350_000)
    np.testing.assert_array_equal(cluster.lookup(table, crafted, 350_000, 1, mode=2), pooled)
    assert cluster.digest(table)[1] == 350_000
