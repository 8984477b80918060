"""Calls that fail are sent again, as the same step, until they are answered or the time is up."""

from __future__ import annotations

import threading
import time
from typing import Any

import grpc
import numpy as np
import pytest
from fake_server import FakeServer, Fault, Refused
from waiting import LIMIT, NO_ANSWER, PATIENT, connect_briefly

import slotwise

ONES = np.ones((1, 2), dtype=np.float32)
LARGE_KEYS = np.arange(17_000, dtype=np.uint64)  # 136 kB of reply: a part for each of two ranks


def fail_first(times: int, method: str, code: grpc.StatusCode, retry_after_ms: int | None = None) -> Fault:
    """Refuses the first calls of a method."""
    lock, left = threading.Lock(), times

    def fault(_: int, name: str, __: Any) -> None:
        nonlocal left
        with lock:
            if name != method or left == 0:
                return
            left -= 1
        raise Refused(code, retry_after_ms=retry_after_ms)

    return fault


@pytest.fixture
def ps(fake_ps: slotwise.Client) -> slotwise.Client:
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
    return fake_ps


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED],
)
def test_a_push_is_sent_again_as_the_same_step(
    fake: FakeServer, ps: slotwise.Client, code: grpc.StatusCode
) -> None:
    fake.before = fail_first(3, "Push", code)
    assert ps.push("ads", [1], None, ONES) == 1
    requests = fake.requests("Push")
    assert len(requests) == 4
    assert all(request == requests[0] for request in requests)
    assert requests[0].step.number == 1 and requests[0].step.session == ps.session.id


def test_a_push_whose_answer_was_lost_is_applied_once(fake: FakeServer, ps: slotwise.Client) -> None:
    before = ps.lookup("ads", [1])
    fake.after = fail_first(2, "Push", grpc.StatusCode.UNAVAILABLE)
    assert ps.push("ads", [1], None, ONES) == 1
    np.testing.assert_allclose(ps.lookup("ads", [1]), before - 0.5, atol=1e-6)


def test_only_the_part_that_failed_is_sent_again(fake: FakeServer, ps: slotwise.Client) -> None:
    fake.before = fail_first(1, "Lookup", grpc.StatusCode.UNAVAILABLE)
    assert ps.lookup("ads", LARGE_KEYS).shape == (17_000, 2)
    keys = [request.keys for request in fake.requests("Lookup")]
    assert len(keys) == 3 and len(set(keys)) == 2


def test_parts_go_to_the_ranks_in_order(fake: FakeServer, ps: slotwise.Client) -> None:
    ps.lookup("ads", LARGE_KEYS)
    to = {rank: request.keys for rank, method, request in fake.log if method == "Lookup"}
    assert to[0] + to[1] == LARGE_KEYS.tobytes()


def test_requests_stay_below_what_the_server_takes() -> None:
    fake = FakeServer(ranks=1, max_message_bytes=20_000)
    with slotwise.connect(*fake.addresses) as ps:
        ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
        keys = np.arange(5000)
        ps.lookup("ads", keys)
        assert ps.push("ads", keys, None, np.ones((5000, 2), dtype=np.float32)) == 1
    pushes = fake.requests("Push")
    assert len(fake.requests("Lookup")) > 1 and len(pushes) > 4
    assert max(len(push.SerializeToString()) for push in pushes) <= 20_000
    assert sorted(push.step.part for push in pushes) == list(range(len(pushes)))
    fake.stop()


def test_a_rank_that_is_gone_is_replaced_by_another(ps: slotwise.Client, fake: FakeServer) -> None:
    fake._servers[1].stop(grace=None).wait()
    for _ in range(3):
        assert ps.lookup("ads", LARGE_KEYS).shape == (17_000, 2)
    assert ps.push("ads", LARGE_KEYS, None, np.ones((17_000, 2), dtype=np.float32)) == 1


def test_a_definite_error_is_not_tried_again_and_cancels_the_other_parts(
    fake: FakeServer, ps: slotwise.Client
) -> None:
    fake.step_timeout = LIMIT

    def refuse_second(_: int, method: str, request: Any) -> None:
        if method == "Push" and request.step.part == 1:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "gradients[3] is nan")

    fake.before = refuse_second
    with slotwise.connect(fake.addresses[0], timeout=PATIENT) as patient:
        pushed = patient.push_async("ads", LARGE_KEYS, None, np.ones((17_000, 2), dtype=np.float32))
        with pytest.raises(slotwise.InvalidArgument, match=r"gradients\[3\] is nan") as caught:
            pushed.result(LIMIT)  # the first part waits for the second, but not for us
    assert caught.value.code is slotwise.StatusCode.INVALID_ARGUMENT
    assert [push.step.part for push in fake.requests("Push")].count(1) == 1
    assert fake.tables["ads"].steps == 0


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, slotwise.ResourceExhausted),
        (grpc.StatusCode.FAILED_PRECONDITION, slotwise.FailedPrecondition),
        (grpc.StatusCode.NOT_FOUND, slotwise.NotFound),
        (grpc.StatusCode.INTERNAL, slotwise.Error),
    ],
)
def test_errors_have_their_code_and_message(
    fake: FakeServer, ps: slotwise.Client, code: grpc.StatusCode, kind: type[slotwise.Error]
) -> None:
    fake.before = fail_first(1, "Lookup", code)
    with pytest.raises(slotwise.Error, match="as the test wishes") as caught:
        ps.lookup("ads", [1])
    assert type(caught.value) is kind and caught.value.code.name == code.name


def test_a_busy_server_is_asked_again_when_it_said(fake: FakeServer, ps: slotwise.Client) -> None:
    fake.before = fail_first(2, "Lookup", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_ms=300)
    started = time.monotonic()
    ps.lookup("ads", [1])
    assert time.monotonic() - started >= 0.6, "and not before"
    assert len(fake.requests("Lookup")) == 3


def test_a_busy_server_is_not_waited_for_past_the_timeout(fake: FakeServer) -> None:
    busy = round(2000 * PATIENT)
    fake.before = fail_first(10**9, "ListTables", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_ms=busy)
    with slotwise.connect(fake.addresses[0], timeout=PATIENT) as ps:
        started = time.monotonic()
        with pytest.raises(slotwise.ResourceExhausted, match="no answer from 127.0.0.1:.*") as caught:
            ps.list_tables()
        assert time.monotonic() - started < LIMIT, "it does not wait for what comes too late"
    assert caught.value.retry_after == busy / 1000
    assert len(fake.requests("ListTables")) == 1


def test_what_is_refused_without_a_time_is_not_sent_again(fake: FakeServer, ps: slotwise.Client) -> None:
    fake.before = fail_first(1, "Lookup", grpc.StatusCode.RESOURCE_EXHAUSTED)
    with pytest.raises(slotwise.ResourceExhausted) as caught:
        ps.lookup("ads", [1])
    assert caught.value.retry_after is None
    assert len(fake.requests("Lookup")) == 1


def test_a_server_that_stays_unavailable_is_given_up_in_time(fake: FakeServer) -> None:
    fake.before = fail_first(10**9, "ListTables", grpc.StatusCode.UNAVAILABLE)
    with connect_briefly(fake.addresses[0], timeout=1.0) as ps:
        with pytest.raises(NO_ANSWER, match="no answer from 127.0.0.1:.* within 1 s: as the test wishes"):
            ps.list_tables()
    assert len(fake.requests("ListTables")) > 1


def test_a_server_that_never_answers_is_given_up_in_time(fake: FakeServer) -> None:
    fake.before = lambda rank, method, request: time.sleep(2 if method == "Digest" else 0)
    with connect_briefly(fake.addresses[0], timeout=0.5) as ps:
        with pytest.raises(slotwise.DeadlineExceeded, match="within 0.5 s"):
            ps.digest("ads")


def test_a_save_is_tried_again_at_another_rank_for_the_clients_own_timeout(
    fake: FakeServer, fake_ps: slotwise.Client
) -> None:
    """The save itself may take a day."""
    fake.before = fail_first(1, "SaveCheckpoint", grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(slotwise.FailedPrecondition, match="keeps nothing"):
        fake_ps.save()
    assert len({rank for rank, method, _ in fake.log if method == "SaveCheckpoint"}) == 2
    fake.before = fail_first(1, "SaveCheckpoint", grpc.StatusCode.RESOURCE_EXHAUSTED)
    with pytest.raises(slotwise.ResourceExhausted):
        fake_ps.save()
    fake.before = fail_first(1, "VerifyCheckpoint", grpc.StatusCode.DATA_LOSS)
    with pytest.raises(slotwise.DataLoss, match="^as the test wishes$"):
        fake_ps.verify("any")
    fake.before = fail_first(10**9, "SaveCheckpoint", grpc.StatusCode.UNAVAILABLE)
    with connect_briefly(fake.addresses[0], timeout=0.5) as ps:
        with pytest.raises(slotwise.Unavailable, match="as the test wishes"):
            ps.save()


def test_a_load_is_never_tried_again(fake: FakeServer) -> None:
    """It would take back what was pushed after the first."""
    fake.before = fail_first(10**9, "LoadCheckpoint", grpc.StatusCode.UNAVAILABLE)
    with slotwise.connect(fake.addresses[0], timeout=20) as ps:
        with pytest.raises(slotwise.Unavailable, match="as the test wishes"):
            ps.load("any")
        assert [method for _, method, _ in fake.log].count("LoadCheckpoint") == 1


def test_retries_leave_the_random_numbers_of_a_trainer_alone(fake: FakeServer, ps: slotwise.Client) -> None:
    import random

    random.seed(1)
    state = random.getstate()
    fake.before = fail_first(2, "Lookup", grpc.StatusCode.UNAVAILABLE)
    ps.lookup("ads", [1])
    assert random.getstate() == state
