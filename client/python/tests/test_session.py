"""Steps have names that are never given twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from slotwise import InvalidArgument, Session, Step


def test_steps_are_numbered_from_one() -> None:
    session = Session(5)
    assert [session.next() for _ in range(2)] == [Step(5, 1), Step(5, 2)]


def test_sessions_are_drawn_at_random() -> None:
    ids = {Session().id for _ in range(100)}
    assert len(ids) == 100 and max(ids) > 2**56


def test_threads_never_get_one_number_twice() -> None:
    session = Session()
    with ThreadPoolExecutor(8) as pool:
        numbers = [step.number for step in pool.map(lambda _: session.next(), range(2000))]
    assert sorted(numbers) == list(range(1, 2001))


def test_trainers_of_one_session_cut_into_the_same_number_of_parts() -> None:
    assert Session(5, trainer=1, trainers=3).next() == Step(5, 1, trainer=1, trainers=3, parts=1)
    assert Session(5, trainer=1, trainers=3, parts=4).next().parts == 4


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="trainer is 2"):
        Session(1, trainer=2, trainers=2)
    with pytest.raises(InvalidArgument, match="id: several trainers"):
        Session(trainer=0, trainers=2)
    with pytest.raises(InvalidArgument, match="parts is 0"):
        Session(1, parts=0)
    with pytest.raises(InvalidArgument, match="id is -1"):
        Session(-1)
