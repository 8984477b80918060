"""Calls that fail are sent again, as the same step, until they are answered or the time is up."""

from __future__ import annotations

import random
import time
import grpc
import numpy as np
import pytest
from fake_server import FakeServer, Gate, refuse
from waiting import LIMIT, NO_ANSWER, PATIENT, connect_briefly

import slotwise

ONES = np.ones((1, 2), dtype=np.float32)
LARGE_KEYS = np.arange(17_000, dtype=np.uint64)  # 136 kB of reply: a part for each of two ranks


@pytest.fixture
def ps(fake_ps: slotwise.Client) -> slotwise.Client:
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
    return fake_ps


@pytest.mark.parametrize("code", ["UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"])
def test_a_push_is_sent_again_as_the_same_step(fake: FakeServer, ps: slotwise.Client, code: str) -> None:
    fake.before = refuse("Push", grpc.StatusCode[code], times=3)
    assert ps.push("ads", [1], None, ONES) == 1
    requests = fake.requests("Push")
    assert len(requests) == 4
    assert all(request == requests[0] for request in requests)
    assert requests[0].step.number == 1 and requests[0].step.session == ps.session.id


def test_a_push_whose_answer_was_lost_is_applied_once(fake: FakeServer, ps: slotwise.Client) -> None:
    before = ps.lookup("ads", [1])
    fake.after = refuse("Push", times=2)
    assert ps.push("ads", [1], None, ONES) == 1
    np.testing.assert_allclose(ps.lookup("ads", [1]), before - 0.5, atol=1e-6)


def test_parts_go_to_the_ranks_in_order_and_only_the_one_that_failed_is_sent_again(
    fake: FakeServer, ps: slotwise.Client
) -> None:
    ps.lookup("ads", LARGE_KEYS)
    to = {rank: request.keys for rank, method, request in fake.log if method == "Lookup"}
    assert to[0] + to[1] == LARGE_KEYS.tobytes()
    fake.before = refuse("Lookup", times=1)
    assert ps.lookup("ads", LARGE_KEYS).shape == (17_000, 2)
    keys = [request.keys for request in fake.requests("Lookup")][2:]
    assert len(keys) == 3 and len(set(keys)) == 2


def test_requests_stay_below_what_the_server_takes() -> None:
    with FakeServer(ranks=1, max_message_bytes=20_000) as fake, slotwise.connect(*fake.addresses) as ps:
        ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
        ps.lookup("ads", np.arange(5000))
        assert ps.push("ads", np.arange(5000), None, np.ones((5000, 2), dtype=np.float32)) == 1
    pushes = fake.requests("Push")
    assert len(fake.requests("Lookup")) > 1 and len(pushes) > 4
    assert max(len(push.SerializeToString()) for push in pushes) <= 20_000
    assert sorted(push.step.part for push in pushes) == list(range(len(pushes)))


def test_a_rank_that_is_gone_is_replaced_by_another(ps: slotwise.Client, fake: FakeServer) -> None:
    fake._servers[1].stop(grace=None).wait()
    for _ in range(3):
        assert ps.lookup("ads", LARGE_KEYS).shape == (17_000, 2)
    assert ps.push("ads", LARGE_KEYS, None, np.ones((17_000, 2), dtype=np.float32)) == 1


def test_a_definite_error_is_not_tried_again_and_cancels_the_other_parts(
    fake: FakeServer, ps: slotwise.Client
) -> None:
    fake.step_timeout = LIMIT

    invalid = grpc.StatusCode.INVALID_ARGUMENT
    fake.before = refuse("Push", invalid, "gradients[3] is nan", of=lambda _, request: request.step.part == 1)
    with slotwise.connect(fake.addresses[0], timeout=PATIENT) as patient:
        pushed = patient.push_async("ads", LARGE_KEYS, None, np.ones((17_000, 2), dtype=np.float32))
        with pytest.raises(slotwise.InvalidArgument, match=r"gradients\[3\] is nan") as caught:
            pushed.result(LIMIT)  # the first part waits for the second, but not for us
    assert caught.value.code is slotwise.StatusCode.INVALID_ARGUMENT
    assert [push.step.part for push in fake.requests("Push")].count(1) == 1
    assert fake.tables["ads"].steps == 0


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "NOT_FOUND", "INTERNAL"])
def test_errors_have_their_code_and_message_and_are_not_sent_again(
    fake: FakeServer, ps: slotwise.Client, code: str
) -> None:
    fake.before = refuse("Lookup", grpc.StatusCode[code], times=1)
    with pytest.raises(slotwise.Error, match="as the test wishes") as caught:
        ps.lookup("ads", [1])
    of_its_own = {"INTERNAL": slotwise.Error}.get(code) or getattr(slotwise, code.title().replace("_", ""))
    assert type(caught.value) is of_its_own and caught.value.code.name == code
    assert caught.value.retry_after is None and len(fake.requests("Lookup")) == 1


def test_a_busy_server_is_asked_again_when_it_said(fake: FakeServer, ps: slotwise.Client) -> None:
    """And the random numbers of a trainer stay as they are."""
    fake.before = refuse("Lookup", grpc.StatusCode.RESOURCE_EXHAUSTED, times=2, retry_after_ms=300)
    random.seed(1)
    state, started = random.getstate(), time.monotonic()
    ps.lookup("ads", [1])
    assert time.monotonic() - started >= 0.6, "and not before"
    assert len(fake.requests("Lookup")) == 3
    fake.before = refuse("Lookup", times=2)
    ps.lookup("ads", [1])
    assert random.getstate() == state


def test_a_busy_server_is_not_waited_for_past_the_timeout(fake: FakeServer) -> None:
    busy = round(2000 * PATIENT)
    fake.before = refuse("ListTables", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_ms=busy)
    with slotwise.connect(fake.addresses[0], timeout=PATIENT) as ps:
        started = time.monotonic()
        with pytest.raises(slotwise.ResourceExhausted, match="no answer from 127.0.0.1:.*") as caught:
            ps.list_tables()
        assert time.monotonic() - started < LIMIT, "it does not wait for what comes too late"
    assert caught.value.retry_after == busy / 1000
    assert len(fake.requests("ListTables")) == 1


def test_a_server_that_stays_unavailable_or_never_answers_is_given_up_in_time(fake: FakeServer) -> None:
    fake.before = refuse("ListTables")
    with connect_briefly(fake.addresses[0], timeout=1.0) as ps:
        with pytest.raises(NO_ANSWER, match="no answer from 127.0.0.1:.* within 1 s: as the test wishes"):
            ps.list_tables()
    assert len(fake.requests("ListTables")) > 1
    held = Gate(fake, "Digest")
    with connect_briefly(fake.addresses[0], timeout=0.5) as ps:
        with pytest.raises(slotwise.DeadlineExceeded, match="within 0.5 s"):
            ps.digest("ads")
    held.opened.set()


def test_a_save_is_tried_again_at_another_rank_for_the_clients_own_timeout(
    fake: FakeServer, fake_ps: slotwise.Client
) -> None:
    """The save itself may take a day."""
    fake.before = refuse("SaveCheckpoint", times=1)
    with pytest.raises(slotwise.FailedPrecondition, match="keeps nothing"):
        fake_ps.save()
    assert len({rank for rank, method, _ in fake.log if method == "SaveCheckpoint"}) == 2
    fake.before = refuse("SaveCheckpoint", grpc.StatusCode.RESOURCE_EXHAUSTED, times=1)
    with pytest.raises(slotwise.ResourceExhausted):
        fake_ps.save()
    fake.before = refuse("VerifyCheckpoint", grpc.StatusCode.DATA_LOSS, times=1)
    with pytest.raises(slotwise.DataLoss, match="^as the test wishes$"):
        fake_ps.verify("any")
    fake.before = refuse("SaveCheckpoint")
    with connect_briefly(fake.addresses[0], timeout=0.5) as ps:
        with pytest.raises(slotwise.Unavailable, match="as the test wishes"):
            ps.save()


def test_a_load_is_never_tried_again(fake: FakeServer) -> None:
    """It would take back what was pushed after the first."""
    fake.before = refuse("LoadCheckpoint")
    with slotwise.connect(fake.addresses[0], timeout=20) as ps:
        with pytest.raises(slotwise.Unavailable, match="as the test wishes"):
            ps.load("any")
        assert [method for _, method, _ in fake.log].count("LoadCheckpoint") == 1
