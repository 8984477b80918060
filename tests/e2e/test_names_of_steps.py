"""A name stands for one step: never for a second body, and never again once it was forgotten."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest
from slotwise_cluster import Cluster, StartCluster, refusal
from slotwise_wire import CALL_TIMEOUT

ONE = np.ones((1, 4), "<f4")


PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def test_a_step_that_comes_again_with_another_body_is_refused(cluster: Cluster) -> None:
    table = cluster.create()
    step = {"session": cluster.session(), "number": 1}
    assert cluster.push(cluster.push_request(table, [1], ONE, step)) == 1
    before = cluster.digest(table)
    for others in (
        cluster.push_request(table, [2], ONE, step),
        cluster.push_request(table, [1], 2 * ONE, step),
        cluster.push_request(table, [1, 1], np.ones((2, 4), "<f4"), step),
    ):
        for rank in range(len(cluster.ranks)):
            said = refusal(PRECONDITION, cluster.push, others, rank)
            assert "a new step needs a new number" in said
    assert cluster.digest(table) == before
    assert cluster.push(cluster.push_request(table, [1], ONE, step), 1) == 1


def test_the_log_says_who_sent_another_body_and_made_and_dropped_a_table(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1)
    table = cluster.create()
    step = {"session": cluster.session(), "number": 1}
    cluster.push(cluster.push_request(table, [1], ONE, step))
    refusal(PRECONDITION, cluster.push, cluster.push_request(table, [2], ONE, step))
    cluster.drop(table)
    said = [
        r"table \S+ is made, as ipv4:127\.0\.0\.1:\d+ asked",
        r"refused to ipv4:127\.0\.0\.1:\d+: part 0 of step 1 of session \d+ came before with other keys",
        r"table \S+ is dropped, as ipv4:127\.0\.0\.1:\d+ asked",
    ]
    for pattern in said:
        cluster.await_messages(pattern)


def test_a_body_is_the_same_however_its_numbers_travelled(cluster: Cluster) -> None:
    request = cluster.push_request(cluster.create(), [1], ONE)
    assert cluster.push(request) == 1
    half = cluster.protocol.PushRequest()
    half.CopyFrom(request)
    half.data_type = 2
    half.gradients = ONE.astype("<f2").tobytes()
    assert cluster.push(half, 1) == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_session_that_was_forgotten_is_not_taken_for_a_new_one(
    start_cluster: StartCluster, ranks: int
) -> None:
    """A ledger of one MiB remembers some hundreds of sessions."""
    cluster = start_cluster(ranks, "limits { max_ledger_mib: 1 }")
    table, epoch = cluster.create(), cluster.topology().epoch

    def step_of(session: int, epoch: int = epoch, key: int = 1) -> Any:
        return cluster.push_request(table, [key], ONE, {"session": session, "number": 1, "epoch": epoch})

    old = step_of(5)
    assert cluster.push(old) == 1
    codes = []
    for first in range(100, 1100, 20):
        calls = [cluster.begin_push(step_of(session, key=2), session) for session in range(first, first + 20)]
        codes += [call.code() for call in calls]
    refused = [code for code in codes if code != grpc.StatusCode.OK]
    # Those that come after the first was forgotten have an epoch that does not show that they are new.
    assert 0 < len(refused) < 1000
    assert set(refused) == {PRECONDITION}

    before, later = cluster.digest(table), cluster.topology().epoch
    assert later > epoch
    for rank in range(ranks):
        said = refusal(PRECONDITION, cluster.push, old, rank)
        assert "may have been applied before" in said and f"which is {later}" in said
    assert cluster.digest(table) == before
    for other in (step_of(6, 0), step_of(6), step_of(7, later + 1)):
        refusal(PRECONDITION, cluster.push, other)
    assert cluster.push(step_of(6, later)) == before[2] + 1


def test_replies_name_the_state_that_they_are_of(cluster: Cluster) -> None:
    table, other = cluster.create(), cluster.create()
    session = cluster.session()
    incarnations = {cluster.topology(rank).incarnation for rank in range(len(cluster.ranks))}
    assert len(incarnations) == 1 and incarnations != {0}

    def push(name: str, number: int) -> tuple[int, int, int, int]:
        request = cluster.push_request(name, [1], ONE, {"session": session, "number": number})
        reply = cluster.rank(number).embedding.Push(request, timeout=CALL_TIMEOUT)
        return reply.incarnation, reply.lineage, reply.table_step, reply.newest_step

    incarnation, lineage, *steps = push(table, 1)
    assert {incarnation} == incarnations
    assert steps == [1, 1]
    assert push(table, 2) == (incarnation, lineage, 2, 2)
    assert push(table, 1) == (incarnation, lineage, 1, 2)
    assert push(other, 1)[1] not in (0, lineage)
    for rank in range(len(cluster.ranks)):
        request = cluster.lookup_request(table, [1], 1)
        reply = cluster.rank(rank).embedding.Lookup(request, timeout=CALL_TIMEOUT)
        assert (reply.incarnation, reply.lineage, reply.table_step) == (incarnation, lineage, 2)
    assert cluster.describe(table).lineage == lineage
