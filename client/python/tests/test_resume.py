"""A trainer that was started again goes on with its session, behind the last step that was applied."""

from __future__ import annotations

import numpy as np
import pytest
from real_server import RealServer, StartReal, empty_client

import slotwise

KEYS = np.arange(300, dtype=np.uint64)
ONES = np.ones((len(KEYS), 4), np.float32)
SGD = slotwise.SGD(lr=1.0)
ZEROS = slotwise.Constant(0.0)


@pytest.fixture(params=[1, 4])
def server(request: pytest.FixtureRequest, start_real: StartReal) -> RealServer:
    return start_real(request.param)


def begin(server: RealServer, *tables: str) -> slotwise.Client:
    ps = empty_client(server)
    for table in tables:
        ps.create_table(table, dim=4, optimizer=SGD, initializer=ZEROS)
    return ps


def applied(ps: slotwise.Client, table: str = "ads") -> float:
    """How many steps of ones every row has."""
    values = ps.lookup(table, KEYS, train=False)
    assert (values == values[0, 0]).all()
    return -float(values[0, 0])


def test_a_session_is_known_by_its_last_applied_steps(server: RealServer) -> None:
    with begin(server, "ads", "users") as ps:
        session = ps.new_session()
        incarnation = ps.topology().incarnation
        assert ps.describe_session(session) == slotwise.SessionInfo(False, 0, 0, False, {}, incarnation)
        for table in ("ads", "ads", "users", "ads"):
            ps.push(table, KEYS, None, ONES, step=session.next())
        both = {"ads": (KEYS, None, ONES), "users": (KEYS, None, ONES)}
        ps.push_many(both, step=session.next())
        ps.push("users", KEYS, None, ONES, step=session.next())
        session.next()  # is drawn, and never pushed
        expected = slotwise.SessionInfo(
            True, 6, session.epoch, False, {"": 5, "ads": 4, "users": 6}, incarnation
        )
        for rank in ps.topology().ranks:
            with slotwise.connect(rank.address) as other:
                assert other.describe_session(session) == expected
        ps.drop_table("users")
        assert ps.describe_session(session).tables == {"": 5, "ads": 4}
        assert ps.describe_session().known is False  # its own has pushed nothing


def test_a_trainer_goes_on_behind_its_last_step(server: RealServer) -> None:
    with begin(server, "ads") as before:
        drawn = before.new_session()
        assert before.resume(drawn).last_step == 0
        for _ in range(3):
            before.push("ads", KEYS, None, ONES)
    session = slotwise.Session(drawn.id, epoch=drawn.epoch)
    with slotwise.connect(server.address, session=session) as after:
        assert after.session is session and after.describe_session().last_step == 3
        assert after.push("ads", KEYS, None, ONES) == 4
        assert after.push_async("ads", KEYS, None, ONES).result() == 5
        assert after.push_many({"ads": (KEYS, None, ONES)}) == {"ads": 6}
        assert after.describe_session().last_step == 6 and applied(after) == 6


def test_a_step_that_was_applied_is_not_applied_again(server: RealServer) -> None:
    """A trainer that ended before it heard of its last step sends it again; pushes come in any order."""
    with begin(server, "ads") as ps:
        session = ps.new_session()
        steps = [session.next() for _ in range(3)]
        ps.push("ads", KEYS, None, ONES, step=steps[2])
        assert ps.describe_session(session).last_step == 3
        for step in steps:
            ps.push("ads", KEYS, None, ONES, step=step)
        assert applied(ps) == 3
        again = slotwise.Session(session.id, epoch=session.epoch)
        ps.push("ads", KEYS, None, ONES, step=again.next())
        with pytest.raises(slotwise.FailedPrecondition, match="came before with other keys"):
            ps.push("ads", KEYS, None, 2 * ONES, step=slotwise.Session(session.id).next())
        assert applied(ps) == 3


def test_what_is_no_session_of_before_is_refused(server: RealServer) -> None:
    with begin(server) as ps:
        with pytest.raises(slotwise.InvalidArgument, match="not a slotwise.Session"):
            ps.resume(ps.session)
        for last in (-1, (1 << 64) - 1):
            with pytest.raises(slotwise.InvalidArgument, match=f"last is {last}"):
                slotwise.Session(5, last=last)
        assert slotwise.Session(5, last=7).next().number == 8
