"""A client whose own session the server has forgotten goes on pushing, under a new one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from real_server import RealServer, empty_client

import slotwise

KEYS = np.arange(3)
ONES = np.ones((3, 4), np.float32)


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    """A server that remembers about 500 sessions."""
    running = RealServer(1, "limits { max_ledger_mib: 1 }")
    yield running
    assert running.stop() == 0


@pytest.fixture
def ps(server: RealServer) -> Iterator[slotwise.Client]:
    with empty_client(server) as client:
        client.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.5))
        client.create_table("users", dim=4, optimizer=slotwise.SGD(lr=0.5))
        yield client


def forget_all(server: RealServer) -> None:
    """Makes the server forget everybody's session, as anybody can by steps of other sessions."""
    with slotwise.connect(server.address) as other:
        epoch = other.topology().epoch
        for _ in range(1200):
            other.push("users", KEYS, None, ONES, step=other.new_session().next())
        assert other.topology().epoch > epoch


def test_a_push_without_a_step_goes_on(server: RealServer, ps: slotwise.Client) -> None:
    ps.push("ads", KEYS, None, ONES)
    before = ps.session.id
    forget_all(server)
    step = ps.push("ads", KEYS, None, ONES)
    assert ps.session.id != before and ps.session.epoch > 0
    others = ps.describe_table("users").steps
    assert ps.push_many({"ads": (KEYS, None, ONES), "users": (KEYS, None, ONES)}) == {
        "ads": step + 1,
        "users": 1 + others,
    }
    assert ps.push_async("ads", KEYS, None, ONES).result() == step + 2


def test_a_named_step_raises_and_the_next_one_does_not(server: RealServer, ps: slotwise.Client) -> None:
    shared = ps.new_session()
    ps.push("ads", KEYS, None, ONES, step=shared.next())
    ps.push("ads", KEYS, None, ONES)
    step = ps.session.next()
    forget_all(server)
    for named in (step, shared.next()):
        with pytest.raises(slotwise.FailedPrecondition, match="the server does not know the session"):
            ps.push("ads", KEYS, None, ONES, step=named)
    ps.push("ads", KEYS, None, ONES, step=ps.session.next())
    ps.push("ads", KEYS, None, ONES, step=ps.new_session().next())


def test_a_session_that_may_be_forgotten_is_not_gone_on_with(server: RealServer, ps: slotwise.Client) -> None:
    old = ps.new_session()
    ps.push("ads", KEYS, None, ONES, step=old.next())
    assert ps.describe_session(old).last_step == 1
    forget_all(server)
    info = ps.describe_session(old)
    assert (info.known, info.last_step, info.may_be_forgotten) == (False, 0, True)
    again = slotwise.Session(old.id, epoch=old.epoch)
    with pytest.raises(slotwise.FailedPrecondition, match=f"does not know session {old.id}"):
        ps.resume(again)
    with pytest.raises(slotwise.FailedPrecondition, match="nobody knows which"):
        slotwise.connect(server.address, session=again)
    assert not ps.describe_session(ps.new_session()).may_be_forgotten
