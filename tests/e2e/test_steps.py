"""A step is applied once: whole, whoever sends its parts, and whatever is repeated."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest
from slotwise_cluster import Cluster, StartCluster, wait_until
from slotwise_wire import CALL_TIMEOUT

SEED = 20261121


@pytest.fixture
def random() -> np.random.Generator:
    """Seeded; a failing test shows this line."""
    print(f"seed {SEED}")
    return np.random.default_rng(SEED)


def whole_numbers(random: np.random.Generator, rows: int, dim: int = 4) -> np.ndarray:
    """Gradients that add up to the same in any order."""
    return random.integers(-8, 9, (rows, dim)).astype("<f4")


def test_step_trains(cluster: Cluster, random: np.random.Generator) -> None:
    table = cluster.create()
    keys = list(range(40))
    before = cluster.lookup(table, keys, 40)
    gradients = whole_numbers(random, 40)
    step = {"session": cluster.session(), "number": 1}
    assert cluster.push(cluster.push_request(table, keys, gradients, step), 1) == 1
    after = cluster.lookup(table, keys, 40, 2)
    np.testing.assert_array_equal(after, before - np.float32(0.5) * gradients)


def test_repeated_step_gets_the_same_answer_and_is_not_applied_again(cluster: Cluster) -> None:
    table = cluster.create()
    session = cluster.session()
    ones = np.ones((3, 4), "<f4")
    first = cluster.push_request(table, [1, 2, 3], ones, {"session": session, "number": 7})
    second = cluster.push_request(table, [1, 2, 3], ones, {"session": session, "number": 8})
    assert cluster.push(first) == 1
    assert cluster.push(second) == 2
    after = cluster.digest(table)
    for rank in range(len(cluster.ranks)):
        assert cluster.push(first, rank) == 1
        assert cluster.push(second, rank) == 2
        assert cluster.digest(table) == after


def test_same_step_sent_to_all_ranks_at_once_is_applied_once(cluster: Cluster) -> None:
    table = cluster.create()
    step = {"session": cluster.session(), "number": 1}
    request = cluster.push_request(table, [1], np.ones((1, 4), "<f4"), step)
    calls = [rank.embedding.Push.future(request, timeout=CALL_TIMEOUT) for rank in cluster.ranks * 4]
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
        request = cluster.push_request(split, keys[rows], gradients[rows], step)
        calls.append(cluster.rank(part).embedding.Push.future(request, timeout=CALL_TIMEOUT))
    assert {call.result().table_step for call in calls} == {1}
    assert cluster.digest(split) == cluster.digest(whole)


def test_part_that_comes_twice_counts_once(cluster: Cluster) -> None:
    table = cluster.create()
    session = cluster.session()
    before = cluster.lookup(table, [1, 2], 2)
    ones = np.ones((1, 4), "<f4")
    parts = [
        cluster.push_request(
            table, [1 + part], ones, {"session": session, "number": 1, "part": part, "parts": 2}
        )
        for part in range(2)
    ]
    calls = [cluster.rank(r).embedding.Push.future(parts[0], timeout=CALL_TIMEOUT) for r in range(3)]
    calls.append(cluster.rank(0).embedding.Push.future(parts[1], timeout=CALL_TIMEOUT))
    assert {call.result().table_step for call in calls} == {1}
    np.testing.assert_array_equal(cluster.lookup(table, [1, 2], 2), before - np.float32(0.5))


def test_sessions_count_their_steps_apart(cluster: Cluster) -> None:
    table = cluster.create()
    one = np.ones((1, 4), "<f4")
    steps = [{"session": cluster.session(), "number": 1} for _ in range(3)]
    assert [cluster.push(cluster.push_request(table, [1], one, step)) for step in steps] == [1, 2, 3]


def test_step_far_behind_its_session_is_refused(cluster: Cluster) -> None:
    table = cluster.create()
    session = cluster.session()
    one = np.ones((1, 4), "<f4")

    def request(number: int) -> Any:
        return cluster.push_request(table, [1], one, {"session": session, "number": number})

    assert cluster.push(request(10_000)) == 1
    assert cluster.push(request(10_000 - 4095)) == 2
    after = cluster.digest(table)
    for rank in range(len(cluster.ranks)):
        with pytest.raises(grpc.RpcError) as error:
            cluster.push(request(10_000 - 4097), rank)
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "4096" in error.value.details()
    assert cluster.digest(table) == after


def test_parts_that_disagree_on_their_number_are_refused(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2, "limits { step_timeout_ms: 1000 }")
    table = cluster.create()
    session = cluster.session()
    one = np.ones((1, 4), "<f4")
    first = cluster.push_request(table, [1], one, {"session": session, "number": 1, "part": 0, "parts": 3})
    other = cluster.push_request(table, [1], one, {"session": session, "number": 1, "part": 1, "parts": 2})
    calls = [
        cluster.rank(r).embedding.Push.future(m, timeout=CALL_TIMEOUT) for r, m in enumerate((first, other))
    ]
    codes = {call.code() for call in calls}  # which of the two came first is open
    assert codes == {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert cluster.digest(table)[1:] == (0, 0)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_incomplete_step_is_dropped_at_its_deadline(start_cluster: StartCluster, ranks: int) -> None:
    cluster = start_cluster(ranks, "limits { step_timeout_ms: 300 }")
    table = cluster.create()
    cluster.lookup(table, [1], 1)
    before = cluster.digest(table)
    session = cluster.session()
    one = np.ones((1, 4), "<f4")
    parts = [
        cluster.push_request(
            table, [1 + part], one, {"session": session, "number": 1, "part": part, "parts": 3}
        )
        for part in range(3)
    ]
    calls = [cluster.rank(r).embedding.Push.future(parts[r], timeout=CALL_TIMEOUT) for r in range(2)]
    for call in calls:
        assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert "300 ms" in call.details()
    assert cluster.digest(table) == before

    # The parts are forgotten: the step needs all of them again, and is then applied.
    calls = [
        cluster.rank(r).embedding.Push.future(part, timeout=CALL_TIMEOUT) for r, part in enumerate(parts)
    ]
    assert {call.result().table_step for call in calls} == {1}


def test_cancelled_and_expired_pushes_do_no_harm(cluster: Cluster) -> None:
    """Callers that leave before the step is whole; it is applied all the same once the rest comes."""
    table = cluster.create()
    session = cluster.session()
    one = np.ones((1, 4), "<f4")

    def part(number: int, part: int) -> Any:
        step = {"session": session, "number": number, "part": part, "parts": 2}
        return cluster.push_request(table, [number], one, step)

    for number in range(1, 21):
        call = cluster.rank(number).embedding.Push.future(part(number, 0), timeout=0.05)
        if number % 2:
            call.cancel()
        assert call.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
    # A cancelled call may never have been sent, so part 0 goes again; where it did arrive it counts once.
    for number in range(1, 21):
        again = cluster.rank(number).embedding.Push.future(part(number, 0), timeout=CALL_TIMEOUT)
        rest = cluster.rank(number + 1).embedding.Push.future(part(number, 1), timeout=CALL_TIMEOUT)
        assert again.result().table_step == rest.result().table_step == number
    assert cluster.digest(table)[1:] == (20, 20)


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
    step = {"session": 1, "number": 1, "part": 0, "parts": 2}
    request = cluster.push_request(table, [1], np.ones((1, 4), "<f4"), step)
    call = cluster.ranks[0].embedding.Push.future(request, timeout=CALL_TIMEOUT)
    # A later call on the same connection is answered: the push is at the server.
    wait_until(lambda: cluster.digest(table)[2] == 0, "the push is there")
    cluster.stop()
    assert call.code() == grpc.StatusCode.UNAVAILABLE
