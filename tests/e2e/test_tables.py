"""Tables: made once, described, dropped, full."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
from slotwise_cluster import Cluster, refusal
from slotwise_wire import CALL_TIMEOUT


def create(cluster: Cluster, options: Any, rank: int = 0) -> Any:
    """The reply to CreateTable."""
    request = cluster.protocol.CreateTableRequest(options=options)
    return cluster.rank(rank).admin.CreateTable(request, timeout=CALL_TIMEOUT)


def names(cluster: Cluster, rank: int) -> list[str]:
    """The tables that a rank lists."""
    return [table.name for table in cluster.tables(rank)]


def test_created_table_is_there_on_every_rank_with_its_defaults(cluster: Cluster) -> None:
    options = cluster.options("defaults")
    reply = create(cluster, options)
    assert reply.created
    assert reply.options.slots == 1
    assert reply.options.max_rows == 1 << 30
    assert reply.options.combiner == 1
    assert reply.options.optimizer.HasField("sgd")
    assert reply.options.initializer.uniform.high == np.float32(0.05)
    for rank in range(len(cluster.ranks)):
        assert "defaults" in names(cluster, rank)
        described = cluster.describe("defaults", rank)
        assert described.options == reply.options
        assert described.steps == 0
        assert [shard.rows for shard in described.shards] == [0] * len(cluster.ranks)
        assert all(shard.cells >= 1024 for shard in described.shards)  # of the hash table of an empty slice


def test_rounds_are_counted_by_how_bags_travelled(cluster: Cluster) -> None:
    table, ranks = cluster.create(), len(cluster.ranks)

    def rounds() -> tuple[int, int]:
        """Of all bags, and of owned ones: the same on every rank."""
        told = [cluster.describe(table, rank).rounds for rank in range(ranks)]
        assert all(each == told[0] for each in told)
        return told[0].all_bags, told[0].owned_bags

    for turn in range(3):
        cluster.lookup(table, range(10), 10, rank=turn % ranks)
    all_bags, owned_bags = rounds()
    assert all_bags + owned_bags == (3 if ranks > 1 else 0)
    # The gradients of parts that come against the order of the ranks go to every rank.
    calls = []
    for part in range(ranks):
        step = {"session": 1, "number": 1, "part": part, "parts": ranks}
        push = cluster.push_request(table, [part], np.ones((1, 4)), step)
        calls.append(cluster.begin_push(push, ranks - 1 - part))
    assert [call.result().table_step for call in calls] == [1] * ranks
    assert rounds() == (all_bags + (1 if ranks > 1 else 0), owned_bags)


def test_creating_it_again_changes_nothing_and_another_of_its_name_is_refused(cluster: Cluster) -> None:
    options, other = cluster.options("again", slots=2), cluster.options("again", slots=3)
    assert create(cluster, options).created
    cluster.lookup("again", range(10), 5)
    before = cluster.digest("again")
    for rank in range(len(cluster.ranks)):
        reply = create(cluster, options, rank)
        assert not reply.created
        assert reply.options.slots == 2
        assert "again" in refusal(grpc.StatusCode.ALREADY_EXISTS, create, cluster, other, rank)
    assert cluster.digest("again") == before


def test_all_ranks_may_create_it_at_once(cluster: Cluster) -> None:
    request = cluster.protocol.CreateTableRequest(options=cluster.options("at_once"))
    calls = [rank.admin.CreateTable.future(request, timeout=CALL_TIMEOUT) for rank in cluster.ranks * 3]
    assert sum(call.result().created for call in calls) == 1


def test_dropped_table_is_gone_with_its_rows(cluster: Cluster) -> None:
    options = cluster.options("dropped")
    create(cluster, options)
    empty = cluster.digest("dropped")
    cluster.lookup("dropped", [1, 2, 3], 3)
    assert cluster.digest("dropped") != empty
    cluster.drop("dropped", rank=-1)
    for rank in range(len(cluster.ranks)):
        assert "dropped" not in names(cluster, rank)
        refusal(grpc.StatusCode.NOT_FOUND, cluster.lookup, "dropped", [1], 1, rank)
    assert create(cluster, options).created
    assert cluster.digest("dropped") == empty


def test_training_lookup_makes_rows_and_evaluation_does_not(cluster: Cluster) -> None:
    table = cluster.create()
    empty = cluster.digest(table)
    values = cluster.lookup(table, [5, 6], 2, mode=2)
    assert not values.any()
    assert cluster.digest(table) == empty
    trained = cluster.lookup(table, [5, 6], 2, mode=1)
    assert trained.any()
    assert cluster.digest(table)[1] == 2
    for rank in range(len(cluster.ranks)):
        np.testing.assert_array_equal(cluster.lookup(table, [5, 6], 2, rank, mode=2), trained)


def test_zero_samples_get_zero_values_from_every_rank(cluster: Cluster) -> None:
    table = cluster.create(slots=3)
    for rank in range(len(cluster.ranks)):
        assert cluster.lookup(table, [], 0, rank).shape == (0, 12)
        assert cluster.lookup(table, [], 0, rank, offsets=[0]).shape == (0, 12)
    no_gradients = np.zeros((0, 12), "<f4")
    assert cluster.push(cluster.push_request(table, [], no_gradients)) == 1
    assert cluster.digest(table)[1:] == (0, 1)


def test_every_64_bit_key_is_a_legal_key(cluster: Cluster) -> None:
    table = cluster.create()
    keys = [0, 1, 2**63, 2**63 - 1, 2**64 - 1, 2**64 - 2]
    trained = cluster.lookup(table, keys, len(keys))
    assert len(np.unique(trained, axis=0)) == len(keys)
    assert cluster.digest(table)[1] == len(keys)
    np.testing.assert_array_equal(cluster.lookup(table, keys, len(keys), mode=2), trained)


def test_full_table_refuses_the_whole_batch_and_stays_as_it_was(cluster: Cluster) -> None:
    table = cluster.create(max_rows=100)
    cluster.lookup(table, range(90), 90)
    before = cluster.digest(table)
    exhausted, ones = grpc.StatusCode.RESOURCE_EXHAUSTED, np.ones((21, 4), "<f4")
    for rank in range(len(cluster.ranks)):
        said = refusal(exhausted, cluster.lookup, table, range(80, 101), 21, rank)  # 11 of them are new
        assert table in said and "100" in said
        refusal(exhausted, cluster.push, cluster.push_request(table, range(80, 101), ones), rank)
        assert cluster.digest(table) == before
    assert cluster.lookup(table, range(80, 100), 20).shape == (20, 4)  # the last ten still fit
    assert cluster.digest(table)[1] == 100
