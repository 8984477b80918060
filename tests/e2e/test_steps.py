"""A step is applied once: whole, whichever client sends its parts, and whatever is repeated."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest
from slotwise_cluster import Cluster, StartCluster, refusal, wait_until

SEED = 20261121
ONE = np.ones((1, 4), "<f4")


@pytest.fixture
def random() -> np.random.Generator:
    """Seeded; a failing test shows this line."""
    print(f"seed {SEED}")
    return np.random.default_rng(SEED)


def whole_numbers(random: np.random.Generator, rows: int, dim: int = 4) -> np.ndarray:
    """Gradients that add up to the same in any order."""
    return random.integers(-8, 9, (rows, dim)).astype("<f4")


def parts_of(cluster: Cluster, table: str, parts: int, session: int, number: int = 1) -> list[Any]:
    """The parts of a step, each of which moves a row of its own."""
    step = {"session": session, "number": number, "parts": parts}
    return [cluster.push_request(table, [1 + n], ONE, step | {"part": n}) for n in range(parts)]


def test_step_trains(cluster: Cluster, random: np.random.Generator) -> None:
    table = cluster.create()
    keys = list(range(40))
    before = cluster.lookup(table, keys, 40)
    gradients = whole_numbers(random, 40)
    assert cluster.push(cluster.push_request(table, keys, gradients), 1) == 1
    after = cluster.lookup(table, keys, 40, 2)
    np.testing.assert_array_equal(after, before - np.float32(0.5) * gradients)


def test_repeated_step_gets_the_same_answer_and_is_not_applied_again(cluster: Cluster) -> None:
    table, session, ones = cluster.create(), cluster.session(), np.ones((3, 4), "<f4")
    names = ({"session": session, "number": number} for number in (7, 8))
    steps = [cluster.push_request(table, [1, 2, 3], ones, name) for name in names]
    assert [cluster.push(step) for step in steps] == [1, 2]
    after = cluster.digest(table)
    for rank in range(len(cluster.ranks)):
        assert [cluster.push(step, rank) for step in steps] == [1, 2]
        assert cluster.digest(table) == after


def test_same_step_sent_to_all_ranks_at_once_is_applied_once(cluster: Cluster) -> None:
    table = cluster.create()
    request = cluster.push_request(table, [1], ONE)
    calls = [cluster.begin_push(request, rank) for rank in range(4 * len(cluster.ranks))]
    assert {call.result().table_step for call in calls} == {1}
    assert cluster.digest(table)[2] == 1


def test_parts_add_up_whichever_ranks_they_reach(cluster: Cluster, random: np.random.Generator) -> None:
    """Eight parts, sent last first and to ranks in turn, do what one push of the whole batch does."""
    parts, samples = 8, 5
    keys = random.integers(0, 30, parts * samples)  # with duplicates within and across parts
    gradients = random.standard_normal((parts * samples, 4)).astype("<f4")
    session = cluster.session()
    whole, split = cluster.create(), cluster.create()
    for table in (whole, split):
        cluster.lookup(table, range(30), 30)
    cluster.push(cluster.push_request(whole, keys, gradients, {"session": session, "number": 1}))
    calls = []
    for part in reversed(range(parts)):
        rows = slice(part * samples, (part + 1) * samples)
        step = {"session": session, "number": 1, "part": part, "parts": parts}
        calls.append(cluster.begin_push(cluster.push_request(split, keys[rows], gradients[rows], step), part))
    assert {call.result().table_step for call in calls} == {1}
    assert cluster.digest(split) == cluster.digest(whole)


def test_part_that_comes_twice_counts_once(cluster: Cluster) -> None:
    table = cluster.create()
    before = cluster.lookup(table, [1, 2], 2)
    first, second = parts_of(cluster, table, 2, cluster.session())
    calls = [cluster.begin_push(first, rank) for rank in range(3)]
    calls.append(cluster.begin_push(second))
    assert {call.result().table_step for call in calls} == {1}
    np.testing.assert_array_equal(cluster.lookup(table, [1, 2], 2), before - np.float32(0.5))


def test_sessions_count_their_steps_apart(cluster: Cluster) -> None:
    table = cluster.create()
    assert [cluster.push(cluster.push_request(table, [1], ONE)) for _ in range(3)] == [1, 2, 3]


def test_step_far_behind_its_session_is_refused(cluster: Cluster) -> None:
    table, session = cluster.create(), cluster.session()

    def request(number: int) -> Any:
        return cluster.push_request(table, [1], ONE, {"session": session, "number": number})

    assert cluster.push(request(10_000)) == 1
    assert cluster.push(request(10_000 - 4095)) == 2
    after, behind = cluster.digest(table), request(10_000 - 4097)
    for rank in range(len(cluster.ranks)):
        assert "4096" in refusal(grpc.StatusCode.FAILED_PRECONDITION, cluster.push, behind, rank)
    assert cluster.digest(table) == after


def test_parts_that_disagree_on_their_number_are_refused(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2, "limits { step_timeout_ms: 1000 }")
    table, session = cluster.create(), cluster.session()
    parts = [parts_of(cluster, table, 3, session)[0], parts_of(cluster, table, 2, session)[1]]
    calls = [cluster.begin_push(part, rank) for rank, part in enumerate(parts)]
    codes = {call.code() for call in calls}  # which of the two came first is open
    assert codes == {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert cluster.digest(table)[1:] == (0, 0)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_incomplete_step_is_dropped_at_its_deadline(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, "limits { step_timeout_ms: 300 }")
    table = cluster.create()
    cluster.lookup(table, [1], 1)
    before = cluster.digest(table)
    parts = parts_of(cluster, table, 3, cluster.session())
    for call in [cluster.begin_push(parts[rank], rank) for rank in range(2)]:
        assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "300 ms" in call.details()
    assert cluster.digest(table) == before

    # The parts are forgotten: the step needs all of them again, and is then applied.
    calls = [cluster.begin_push(part, rank) for rank, part in enumerate(parts)]
    assert {call.result().table_step for call in calls} == {1}


def test_cancelled_and_expired_pushes_do_no_harm(cluster: Cluster) -> None:
    """Callers that leave before the step is whole; it is applied all the same once the rest comes."""
    table, session = cluster.create(), cluster.session()
    steps = {number: parts_of(cluster, table, 2, session, number) for number in range(1, 21)}
    for number, (first, _) in steps.items():
        call = cluster.rank(number).embedding.Push.future(first, timeout=0.05)
        if number % 2:
            call.cancel()
        assert call.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
    # A cancelled call may never have been sent, so part 0 goes again; where it did arrive it counts once.
    for number, parts in steps.items():
        again, rest = map(cluster.begin_push, parts, (number, number + 1))
        assert again.result().table_step == rest.result().table_step == number
    assert cluster.digest(table)[1:] == (2, 20)


def test_many_steps_give_the_same_digest_on_any_number_of_ranks(
    start_cluster: StartCluster, random: np.random.Generator
) -> None:
    """With one key a slot: rows, values and optimizer state are equal to the bit."""
    batches = [
        (random.integers(0, 2**64, 64, dtype="<u8") % 97, random.standard_normal((32, 8)).astype("<f4"))
        for _ in range(10)
    ]
    digests = set()
    for ranks, within in ((1, []), (1, ["mpirun", "-n", "1"]), (2, []), (4, [])):
        cluster = start_cluster(ranks, within=within)
        adagrad = cluster.protocol.Optimizer(learning_rate=0.1, adagrad=cluster.protocol.AdaGrad())
        table = cluster.create(slots=2, optimizer=adagrad)
        for number, (keys, gradients) in enumerate(batches):
            cluster.lookup(table, keys, 32, number)
            step = {"session": 1, "number": number}
            cluster.push(cluster.push_request(table, keys, gradients, step), number + 1)
        digests.add(cluster.digest(table))
        cluster.stop()
    assert len(digests) == 1
    assert digests.pop()[2] == 10


def test_steps_in_flight_when_the_server_stops_are_answered(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2)
    table = cluster.create()
    call = cluster.begin_push(parts_of(cluster, table, 2, 1)[0])
    # A later call on the same connection is answered: the push is at the server.
    wait_until(lambda: cluster.digest(table)[2] == 0, "the push is there")
    cluster.stop()
    assert call.code() == grpc.StatusCode.UNAVAILABLE
