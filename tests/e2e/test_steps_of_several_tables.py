"""A step of several tables is applied to all of them or to none, as one step with one name."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
from slotwise_cluster import Cluster, StartCluster, wait_until
from slotwise_wire import CALL_TIMEOUT

ONES = np.ones((6, 4), "<f4")


def parts_of(
    cluster: Cluster, tables: Sequence[str], session: int, number: int, parts: int = 1, keys: int = 6
) -> list[Any]:
    """The step's parts, of all tables, each of which adds up the same keys."""
    requests = []
    name = {"session": session, "number": number, "parts": parts, "tables": len(tables)}
    for place, table in enumerate(tables):
        for part in range(parts):
            rows = slice(part * 6 // parts, (part + 1) * 6 // parts)
            step = name | {"part": part, "place": place}
            requests.append(cluster.push_request(table, list(range(keys))[rows], ONES[rows], step))
    return requests


def begin_push_many(cluster: Cluster, requests: Sequence[Any], rank: int = 0) -> Any:
    """Sends a PushManyRequest; its call."""
    message = cluster.protocol.PushManyRequest(pushes=requests)
    return cluster.rank(rank).embedding.PushMany.future(message, timeout=CALL_TIMEOUT)


def push_many(cluster: Cluster, requests: Sequence[Any], rank: int = 0) -> list[int]:
    """The steps of their tables that they are."""
    return [reply.table_step for reply in begin_push_many(cluster, requests, rank).result().replies]


def test_all_tables_move_by_one_step(cluster: Cluster) -> None:
    tables = [cluster.create(dim=4) for _ in range(3)]
    alone = cluster.create()
    session = cluster.session()
    for number in (1, 2):
        assert push_many(cluster, parts_of(cluster, tables, session, number)) == [number] * 3
        cluster.push(cluster.push_request(alone, list(range(6)), ONES))
    assert {cluster.digest(table) for table in tables} == {cluster.digest(alone)}
    for rank in range(len(cluster.ranks)):  # the same name gets the same answer
        assert push_many(cluster, parts_of(cluster, tables, session, 1), rank) == [1] * 3
    assert {cluster.digest(table) for table in tables} == {cluster.digest(alone)}


def test_parts_of_tables_may_come_apart_and_by_any_rank(cluster: Cluster) -> None:
    tables = [cluster.create(), cluster.create()]
    requests = parts_of(cluster, tables, cluster.session(), 1, parts=3)
    calls = [cluster.begin_push(request, i) for i, request in enumerate(reversed(requests[1:]))]
    assert cluster.digest(tables[0])[2] == 0
    last = cluster.begin_push(requests[0], 1)
    assert {call.result().table_step for call in [*calls, last]} == {1}
    assert [cluster.digest(table)[1:] for table in tables] == [(6, 1), (6, 1)]


def test_a_table_that_is_full_refuses_the_step_of_all(cluster: Cluster) -> None:
    roomy, full = cluster.create(), cluster.create(max_rows=3)
    cluster.lookup(roomy, [0, 1], 2)
    before = [cluster.digest(table) for table in (roomy, full)]
    call = begin_push_many(cluster, parts_of(cluster, [roomy, full], cluster.session(), 1), 1)
    assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert call.details().startswith(f"pushes[1]: table {full} is full")
    assert [cluster.digest(table) for table in (roomy, full)] == before


def test_a_step_is_refused_at_the_place_of_the_table_that_is_why(cluster: Cluster) -> None:
    tables = [cluster.create(), cluster.create(max_rows=3), cluster.create()]
    full = tables[1]
    is_full = f"table {full} is full: it has 0 of at most 3 rows, and the batch brings 6 new keys"
    for order in itertools.permutations(range(3)):
        step = parts_of(cluster, tables, cluster.session(), 1, parts=2)
        requests = [step[2 * place + part] for place in order for part in range(2)]
        refused = begin_push_many(cluster, requests, order[0])
        assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.details() == f"pushes[{2 * order.index(1)}]: {is_full}"
    # A caller that did not send that table's part hears which table it is, and no place.
    step = parts_of(cluster, tables, cluster.session(), 1)
    calls = [begin_push_many(cluster, [step[0], step[2]]), begin_push_many(cluster, [step[1]], 1)]
    assert [call.details() for call in calls] == [is_full, f"pushes[0]: {is_full}"]
    assert [cluster.digest(table)[1:] for table in tables] == [(0, 0)] * 3


def test_a_step_ends_at_the_place_of_the_table_that_is_dropped(cluster: Cluster) -> None:
    stays, goes = cluster.create(), cluster.create()
    step = parts_of(cluster, [stays, goes], cluster.session(), 1, parts=2)

    def waiting() -> int:
        stats = [rank.admin.GetStats(cluster.protocol.GetStatsRequest()) for rank in cluster.ranks]
        return sum(rank.announced_requests for rank in stats)

    here = begin_push_many(cluster, [step[0], step[2]])
    there = cluster.begin_push(step[1], 1)
    wait_until(lambda: waiting() == 3, "three parts wait for the fourth")
    cluster.drop(goes, rank=1)
    gone = f"table {goes} was dropped while the request waited"
    assert (here.code(), here.details()) == (grpc.StatusCode.NOT_FOUND, f"pushes[1]: {gone}")
    assert (there.code(), there.details()) == (grpc.StatusCode.NOT_FOUND, gone)


def test_a_name_stands_for_its_tables_in_their_order(cluster: Cluster) -> None:
    one, other, third = (cluster.create() for _ in range(3))
    session = cluster.session()
    assert push_many(cluster, parts_of(cluster, [one, other], session, 1)) == [1, 1]
    for tables in ([other, one], [one, third], [one, other, third]):
        call = begin_push_many(cluster, parts_of(cluster, tables, session, 1), 1)
        assert call.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "other tables" in call.details()
    # The server does not wait for a part that cannot be.
    call = begin_push_many(cluster, parts_of(cluster, [one, one], session, 2))
    assert call.code() == grpc.StatusCode.INVALID_ARGUMENT  # and not DEADLINE_EXCEEDED
    assert call.details().startswith("pushes[1]: the table has place 1 ")
    assert [cluster.digest(table)[2] for table in (one, other, third)] == [1, 1, 0]


def test_a_step_of_several_tables_ends_with_any_of_them(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2)
    stays, goes = cluster.create(), cluster.create()
    waiting = cluster.begin_push(parts_of(cluster, [stays, goes], 1, 1)[1])
    also = cluster.begin_push(parts_of(cluster, [goes, stays], 1, 2)[1], 1)
    # The first waits with its part of the table that goes; the second does not name that table yet.
    cluster.drop(goes, rank=1)
    assert waiting.code() == grpc.StatusCode.NOT_FOUND
    assert not also.done()
    also.cancel()


def test_lookups_of_many_tables_are_those_of_each(cluster: Cluster) -> None:
    tables = [cluster.create(max_rows=4 if i == 7 else 0) for i in range(20)]
    requests = [cluster.lookup_request(table, [i, i + 1], 2) for i, table in enumerate(tables)]
    message = cluster.protocol.LookupManyRequest(lookups=requests)
    replies = cluster.rank(1).embedding.LookupMany(message, timeout=CALL_TIMEOUT).replies
    for i, (table, reply) in enumerate(zip(tables, replies, strict=True)):
        assert reply.values == cluster.lookup(table, [i, i + 1], 2).tobytes()
    # One that is full fails alone, and the others are served.
    requests[7] = cluster.lookup_request(tables[7], list(range(100, 110)), 10)
    requests[8] = cluster.lookup_request(tables[8], [1000], 1)
    message = cluster.protocol.LookupManyRequest(lookups=requests)
    call = cluster.rank(0).embedding.LookupMany.future(message, timeout=CALL_TIMEOUT)
    assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert call.details().startswith("lookups[7]")
    assert cluster.digest(tables[7])[1] == 2
    assert cluster.digest(tables[8])[1] == 3
