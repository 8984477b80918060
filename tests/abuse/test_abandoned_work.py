"""Calls that cost the server much and the caller nothing, many at once or given up: others are served.

No Slotwise package is used.
"""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest
from abuse_guard import ATTACKED, SMALL, Guard, export_request
from judged_times import expect_time, seconds_of
from slotwise_cluster import Cluster, RankClient, StartCluster

ROWS, PART = 2_000_000, 250_000  # of a table that takes a moment to go over
CALLS = 60  # of a connection: as many about tables as one may have waiting


def start(start_cluster: StartCluster, ranks: int, limits: str = SMALL) -> tuple[Cluster, str]:
    """A server of small limits, and its large table."""
    cluster = start_cluster(ranks, f"limits {{ {limits} }}")
    table = cluster.create(dim=1)
    for first in range(0, ROWS, PART):
        cluster.lookup(table, np.arange(first, first + PART), PART)
    return cluster, table


@pytest.mark.parametrize("ranks", ATTACKED)
def test_digests_that_wait_share_their_work(start_cluster: StartCluster, ranks: int) -> None:
    cluster, table = start(start_cluster, ranks)
    one = seconds_of(lambda: cluster.digest(table))
    expected = cluster.digest(table)
    request = cluster.protocol.DigestRequest(table=table)
    callers = [RankClient(cluster.rank(n).address, cluster.protocol) for n in range(4)]
    with Guard(cluster, busy=3 * one + 1):
        calls = [caller.admin.Digest.future(request, timeout=60) for caller in callers for _ in range(CALLS)]
        replies: list[grpc.Future] = []
        seconds = seconds_of(lambda: replies.extend(call.result() for call in calls))
        assert {(each.digest, each.rows, each.steps) for each in replies} == {expected}
        expect_time(f"{len(calls)} digests", seconds, len(calls) * one / 4)


@pytest.mark.parametrize("ranks", ATTACKED)
def test_digests_that_are_given_up_keep_no_caller_waiting(start_cluster: StartCluster, ranks: int) -> None:
    cluster, table = start(start_cluster, ranks)
    one = seconds_of(lambda: cluster.digest(table))
    request = cluster.protocol.DigestRequest(table=table)
    with Guard(cluster, busy=3 * one + 1):
        for wave in range(4 * ranks):
            caller = RankClient(cluster.rank(wave).address, cluster.protocol)
            calls = [caller.admin.Digest.future(request, timeout=60) for _ in range(CALLS)]
            calls[0].result()  # the others are at the server by now
            for call in calls:
                call.cancel()
            caller.channel.close()
    expect_time("the server's end", seconds_of(cluster.stop), 15)


def refusal_of_first_message(export: Any) -> tuple[grpc.StatusCode, str] | None:
    """Takes the first message of an export; how it was refused, if it was."""
    try:
        next(export)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return None


@pytest.mark.parametrize("ranks", ATTACKED)
def test_exports_that_are_given_up_keep_no_caller_waiting(start_cluster: StartCluster, ranks: int) -> None:
    cluster, table = start(start_cluster, ranks, "max_message_mib: 4 max_round_mib: 8")
    request = export_request(table)
    export = [rank.channel.unary_stream("/slotwise.v1.Rows/Export") for rank in cluster.ranks]
    with Guard(cluster, busy=1):
        for _ in range(10):
            calls = [export[n % ranks](request, timeout=60) for n in range(10 * ranks)]
            refusal_of_first_message(calls[-1])  # the others are at the server by now
            for call in calls:
                call.cancel()
    expect_time("the server's end", seconds_of(cluster.stop), 15)


def test_exports_of_whole_tables_are_few_at_a_time(start_cluster: StartCluster) -> None:
    cluster, table = start(start_cluster, 1, "max_message_mib: 4 max_round_mib: 8")
    request = export_request(table)
    export = cluster.ranks[0].channel.unary_stream("/slotwise.v1.Rows/Export")
    calls = [export(request, timeout=60) for _ in range(20)]
    refused = [refusal for refusal in map(refusal_of_first_message, calls) if refusal]
    for call in calls:
        call.cancel()
    words = "the server is busy: 4 exports of whole tables are under way at this rank, the most at a time"
    assert refused == [(grpc.StatusCode.RESOURCE_EXHAUSTED, words)] * 16
