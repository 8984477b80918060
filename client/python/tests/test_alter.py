"""Tables whose options are altered, by the client: what changes, what stays, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slotwise


def make(ps: slotwise.Client, **options: Any) -> dict[str, Any]:
    options = {"dim": 2, "optimizer": slotwise.AdaGrad(1.0), "max_rows": 10, **options}
    ps.create_table("ads", **options)
    return options


def push(ps: slotwise.Client, *keys: int) -> None:
    ps.push("ads", list(keys), None, np.ones((len(keys), 2), np.float32))


def rows(ps: slotwise.Client) -> dict[int, int]:
    """Returns the rows' scores, if they have some."""
    found: dict[int, int] = {}
    for chunk in ps.export_rows("ads", with_state=True):
        assert chunk.state is not None
        if chunk.state.shape[1] > 2:  # AdaGrad's state
            found |= dict(zip(chunk.keys.tolist(), chunk.scores.tolist()))
    return found


def scores(ps: slotwise.Client) -> dict[int, tuple[int, int]]:
    """Returns (count, step) of each row."""
    return {key: divmod(score, 2**36) for key, score in rows(ps).items()}


def test_max_rows_rises_and_falls(real_ps: slotwise.Client) -> None:
    made = make(real_ps)
    push(real_ps, *range(10))
    before = real_ps.digest("ads")
    with pytest.raises(slotwise.ResourceExhausted, match="full"):
        push(real_ps, 10)
    with pytest.raises(slotwise.FailedPrecondition, match="max_rows is 9, and table ads has 10 rows: evict"):
        real_ps.alter_table("ads", max_rows=9)
    assert real_ps.alter_table("ads", max_rows=300_000).max_rows == 300_000
    assert real_ps.digest("ads") == before
    push(real_ps, *range(10, 200_000))
    assert real_ps.describe_table("ads").rows == 200_000
    assert real_ps.erase("ads", range(20, 200_000)) == 199_980
    assert real_ps.alter_table("ads", max_rows=20).max_rows == 20
    with pytest.raises(slotwise.ResourceExhausted, match="has 20 of at most 20 rows"):
        push(real_ps, 10, 77)
    assert real_ps.create_table("ads", **made).max_rows == 20, "by its old options"
    assert real_ps.create_table("ads", **made | {"max_rows": 20}).max_rows == 20, "and by its new ones"
    with pytest.raises(slotwise.AlreadyExists, match="max_rows is 20, not 300000"):
        real_ps.create_table("ads", **made | {"max_rows": 300_000})
    assert real_ps.list_tables()[0].max_rows == real_ps.describe_table("ads").options.max_rows == 20


def test_initial_rows_are_bounded_by_max_rows_and_come_back(real_ps: slotwise.Client) -> None:
    made = make(real_ps, initial_rows=8)
    assert real_ps.alter_table("ads", max_rows=5).initial_rows == 5
    assert real_ps.create_table("ads", **made).initial_rows == 5
    altered = real_ps.alter_table("ads", max_rows=100)
    assert (altered.initial_rows, altered.max_rows) == (8, 100)


def test_eviction_comes_changes_and_goes(real_ps: slotwise.Client) -> None:
    make(real_ps)
    push(real_ps, 1, 2, 3, 3)
    push(real_ps, 3)
    assert rows(real_ps) == {}, "without scores"
    some = slotwise.Eviction(to=0.4)
    assert real_ps.alter_table("ads", eviction=some).eviction == some
    assert scores(real_ps) == {1: (0, 3), 2: (0, 3), 3: (0, 3)}, "of the next step"
    push(real_ps, 3, 4)
    push(real_ps, *range(10, 17))
    assert real_ps.describe_table("ads").evicted_rows == 4
    real_ps.alter_table("ads", eviction=slotwise.Eviction("lfu"))
    push(real_ps, 10, 10)
    known = scores(real_ps)
    assert known[10] == (2, 5) and all(count == 0 for key, (count, _) in known.items() if key != 10)
    real_ps.alter_table("ads", eviction=slotwise.Eviction("step_lfu", half_life_steps=7, to=0.5))
    assert scores(real_ps) == known, "the same scores are in another order"
    real_ps.alter_table("ads", eviction=slotwise.Eviction())
    assert scores(real_ps) == {key: (0, step) for key, (_, step) in known.items()}, "counts are gone"
    assert real_ps.alter_table("ads", eviction=None).eviction is None
    assert rows(real_ps) == {}
    with pytest.raises(slotwise.ResourceExhausted, match="full"):
        push(real_ps, *range(100, 110))
    with pytest.raises(slotwise.FailedPrecondition, match="keeps no scores"):
        real_ps.evict("ads", keep=0)


def test_a_time_to_live_comes_and_goes(real_ps: slotwise.Client) -> None:
    make(real_ps, max_rows=100)
    push(real_ps, 1, 2)
    for _ in range(3):
        push(real_ps, 2)
    real_ps.alter_table("ads", ttl_steps=3)
    assert scores(real_ps) == {1: (0, 5), 2: (0, 5)}
    for key in range(10, 15):
        push(real_ps, key)
    described = real_ps.describe_table("ads")
    assert described.expired_rows == 4 and set(scores(real_ps)) == {12, 13, 14}
    real_ps.alter_table("ads", ttl_steps=1, eviction=slotwise.Eviction("lfu"))
    assert scores(real_ps) == {12: (0, 7), 13: (0, 8), 14: (0, 9)}, "it was swept at this step"
    push(real_ps, 14)
    assert scores(real_ps) == {14: (1, 10)}
    real_ps.alter_table("ads", ttl_steps=0)
    for _ in range(5):
        push(real_ps, 15)
    assert scores(real_ps) == {14: (1, 10), 15: (5, 15)}
    with pytest.raises(slotwise.FailedPrecondition, match="no time to live"):
        real_ps.expire("ads")
    assert real_ps.alter_table("ads", ttl_seconds=3600, eviction=None).ttl_seconds == 3600
    assert scores(real_ps) == {14: (0, 10), 15: (0, 15)}
    real_ps.alter_table("ads", ttl_seconds=0)
    assert rows(real_ps) == {}


def test_admission_comes_changes_and_goes(real_ps: slotwise.Client) -> None:
    def state() -> tuple[int, int]:
        described = real_ps.describe_table("ads")
        return described.rows, described.candidates

    make(real_ps)
    push(real_ps, 1)
    real_ps.create_table("behind", dim=2, optimizer=slotwise.SGD(1.0))  # has the next id
    real_ps.alter_table("ads", admission=slotwise.Frequency(3, max_keys=20))
    push(real_ps, 1, *range(2, 12), 2)
    assert state() == (1, 10)
    real_ps.alter_table("ads", admission=slotwise.Frequency(2, max_keys=20, absent="zeros"))
    push(real_ps, 3)
    assert state() == (2, 9), "counts stay, and the threshold is another"
    assert real_ps.lookup("ads", [7]).tolist() == [[0, 0]]
    real_ps.alter_table("ads", admission=slotwise.Frequency(2, max_keys=4))
    assert state() == (2, 3), "the others are forgotten: 0.95 of 4 are left"
    real_ps.alter_table("ads", admission=slotwise.Probability(1.0))
    push(real_ps, 4)
    assert state() == (3, 0)
    real_ps.alter_table("ads", admission=slotwise.Frequency(2))
    push(real_ps, 5)
    assert state() == (3, 1), "counts begin anew"
    assert real_ps.alter_table("ads", admission=None).admission is None
    push(real_ps, 5)
    assert state() == (4, 0)
    assert [table.name for table in real_ps.list_tables()] == ["ads", "behind"]


def test_what_is_not_given_stays_and_again_changes_nothing(real_ps: slotwise.Client) -> None:
    options = {
        "eviction": slotwise.Eviction("lfu", to=0.5),
        "admission": slotwise.Probability(0.5),
        "ttl_steps": 7,
        "ttl_seconds": 70,
    }
    make(real_ps, **options)
    other: dict[str, Any] = {
        "max_rows": 11,
        "eviction": slotwise.Eviction("step_lfu", at=0.9, to=0.25),
        "admission": slotwise.Frequency(2),
        "ttl_steps": 8,
        "ttl_seconds": 80,
    }
    expected = real_ps.describe_table("ads").options
    for name, value in other.items():
        altered = real_ps.alter_table("ads", **{name: value})
        expected = type(expected)(**{**vars(expected), name: value})
        assert altered == expected
        reply = real_ps._ask("AlterTable", {"table": "ads", "ttl_steps": altered.ttl_steps})
        assert not reply.get("altered", False)
    assert real_ps.alter_table("ads", **other) == expected == real_ps.describe_table("ads").options


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "nothing is to be altered: give max_rows"),
        ({"max_rows": 0}, "max_rows is 0: must be 1 to"),
        ({"max_rows": 2**41}, "max_rows is 2199023255552: must be 1 to"),
        ({"max_rows": -1}, "max_rows is -1: must be an integer"),
        ({"max_rows": None}, "max_rows is None: must be an integer"),
        ({"ttl_steps": 2**40}, "ttl_steps is 1099511627776: must be 0 to"),
        ({"ttl_seconds": 0.5}, "ttl_seconds is 0.5: must be an integer"),
        ({"eviction": "step"}, "eviction is 'step', not an Eviction or None"),
        ({"eviction": slotwise.Eviction(at=0.5, to=0.5)}, "eviction.to is 0.5: must be below eviction.at"),
        ({"eviction": slotwise.Eviction(half_life_steps=5)}, "half_life_steps is 5: must be 0"),
        ({"eviction": slotwise.Eviction(at=0.01, to=0.001)}, "eviction.at is 0.01: must leave room for"),
        ({"admission": slotwise.Frequency(0)}, "admission.threshold is 0"),
        ({"admission": slotwise.Probability(0.0)}, "admission.p is 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    real_ps: slotwise.Client, given: dict[str, Any], what: str
) -> None:
    make(real_ps, eviction=slotwise.Eviction("step"))
    push(real_ps, 1, 2)
    before = real_ps.digest("ads"), real_ps.describe_table("ads")
    with pytest.raises(slotwise.InvalidArgument, match=what):
        real_ps.alter_table("ads", **given)
    assert (real_ps.digest("ads"), real_ps.describe_table("ads")) == before


def test_hostile_requests_are_refused(real_ps: slotwise.Client) -> None:
    make(real_ps)
    with pytest.raises(slotwise.NotFound):
        real_ps.alter_table("none", max_rows=5)
    with pytest.raises(slotwise.NotFound):
        real_ps.alter_table("ads/.candidates", max_rows=5)
    real_ps.alter_table("ads", admission=slotwise.Frequency(2))
    with pytest.raises(slotwise.NotFound):
        real_ps.alter_table("ads/.candidates", max_rows=5)
    for message, what in [
        ({"no_eviction": False}, "no_eviction is false: must be true"),
        ({"no_admission": False}, "no_admission is false: must be true"),
        ({"eviction": {"score": 9}}, "eviction.score is 9"),
        ({"admission": {}}, "admission has no kind"),
        ({"admission": {"absent": 7, "probability": {"p": 0.5}}}, "admission.absent is 7"),
    ]:
        with pytest.raises(slotwise.InvalidArgument, match=what):
            real_ps._ask("AlterTable", {"table": "ads", **message})
    long = "n" * 250
    real_ps.create_table(long, dim=1, optimizer=slotwise.SGD(1.0))
    with pytest.raises(slotwise.InvalidArgument, match="must have at most 243 characters"):
        real_ps.alter_table(long, admission=slotwise.Frequency(2))


def test_rows_are_imported_by_the_options_of_the_moment(real_ps: slotwise.Client) -> None:
    make(real_ps, max_rows=100)
    push(real_ps, 1, 2, 3)
    (plain,) = real_ps.export_rows("ads", [1], with_state=True)
    real_ps.alter_table("ads", eviction=slotwise.Eviction())
    real_ps.import_rows("ads", plain.keys, plain.values, plain.state)  # without scores: the next step's
    (scored,) = real_ps.export_rows("ads", [1], with_state=True)
    assert scores(real_ps)[1] == (0, 2) and scored.state.shape[1] == plain.state.shape[1] + 2
    real_ps.alter_table("ads", eviction=None)
    with pytest.raises(slotwise.InvalidArgument, match="state ends with scores, and table ads keeps none"):
        real_ps.import_rows("ads", scored.keys, scored.values, scored.state)
