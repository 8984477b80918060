"""Learning rates that change: set by hand, and by a schedule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracle import OracleTable

import slotwise

KEYS = np.arange(3, dtype=np.uint64)
ONES = np.ones((3, 2), dtype=np.float32)
SCHEDULE = slotwise.Schedule(warmup_steps=3, decay_start=5, decay_steps=4, decay_power=1.5, end_lr=0.1)


def by_the_formula(lr: float, schedule: slotwise.Schedule, step: int) -> float:
    if step <= schedule.warmup_steps:
        return lr * step / schedule.warmup_steps
    if not schedule.decay_steps or step <= schedule.decay_start:
        return lr
    done = min(step - schedule.decay_start, schedule.decay_steps) / schedule.decay_steps
    return schedule.end_lr + (lr - schedule.end_lr) * (1 - done) ** schedule.decay_power


def moved(ps: slotwise.Client, own_rate: float | None = None) -> float:
    """How far one step of SGD with gradients of 1 moves the rows: the learning rate."""
    before = ps.lookup("ads", KEYS).astype(np.float64)
    ps.push("ads", KEYS, None, ONES, learning_rate=own_rate)
    differences = before - ps.lookup("ads", KEYS)
    assert np.ptp(differences) < 1e-5
    return float(differences.mean())


@pytest.mark.parametrize(
    "schedule",
    [
        SCHEDULE,
        slotwise.Schedule(warmup_steps=4),
        slotwise.Schedule(decay_steps=3),
        slotwise.Schedule(decay_start=2, decay_steps=5, decay_power=1, end_lr=2),
    ],
)
def test_a_schedule_is_followed(any_ps: slotwise.Client, schedule: slotwise.Schedule) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5, schedule=schedule))
    for step in range(1, 13):
        expected = by_the_formula(0.5, schedule, step)
        assert any_ps.describe_table("ads").learning_rate == pytest.approx(expected, rel=1e-6)
        assert moved(any_ps) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_the_oracle_follows_the_same_schedule(any_ps: slotwise.Client) -> None:
    optimizer = slotwise.Adam(0.5, schedule=SCHEDULE)
    options = any_ps.create_table("ads", dim=2, optimizer=optimizer)
    oracle = OracleTable.with_rows_of(any_ps, options, KEYS)
    for _ in range(12):
        any_ps.push("ads", KEYS, None, ONES)
        oracle.push(KEYS, np.arange(4, dtype=np.uint32), ONES)
        rows = np.stack([oracle.rows[key] for key in KEYS.tolist()])
        np.testing.assert_allclose(any_ps.lookup("ads", KEYS), rows, rtol=1e-6, atol=1e-6)


def test_a_rate_that_is_set_counts_from_the_next_step(any_ps: slotwise.Client) -> None:
    options = any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    assert any_ps.describe_table("ads").learning_rate == 0.5
    assert moved(any_ps) == pytest.approx(0.5, rel=1e-5)
    any_ps.set_learning_rate("ads", 0.25)
    assert any_ps.describe_table("ads").learning_rate == 0.25
    assert moved(any_ps, own_rate=0.125) == pytest.approx(0.125, rel=1e-5)
    assert moved(any_ps) == pytest.approx(0.25, rel=1e-5)
    # It is no option: the table is found as it was made.
    assert any_ps.describe_table("ads").options == options
    assert any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5)) == options
    assert any_ps.describe_table("ads").learning_rate == 0.25


def test_a_schedule_goes_on_from_a_rate_that_is_set(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5, schedule=SCHEDULE))
    moved(any_ps)
    any_ps.set_learning_rate("ads", 2.0)
    for step in range(2, 11):
        expected = by_the_formula(2.0, SCHEDULE, step)
        assert moved(any_ps) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_rates_that_are_none_are_refused(any_ps: slotwise.Client, rate: float) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    with pytest.raises(slotwise.InvalidArgument, match="learning_rate"):
        any_ps.set_learning_rate("ads", rate)
    assert any_ps.describe_table("ads").learning_rate == 0.5


def test_schedules_come_back_as_they_were_given(any_ps: slotwise.Client) -> None:
    for i, schedule in enumerate((slotwise.Schedule(), SCHEDULE, slotwise.Schedule(decay_steps=1))):
        made = any_ps.create_table(
            f"ads{i}", dim=1, optimizer=slotwise.FTRL(0.1, schedule=schedule)
            if schedule.end_lr or not schedule.decay_steps
            else slotwise.SGD(0.1, schedule=schedule),
        )
        assert made.optimizer.schedule == schedule
        assert any_ps.describe_table(f"ads{i}").options == made


def test_ftrl_wants_an_end_of_its_decay(any_ps: slotwise.Client) -> None:
    falls = slotwise.Schedule(decay_steps=5)  # to 0
    with pytest.raises(slotwise.InvalidArgument, match="ftrl divides by the rate"):
        any_ps.create_table("ads", dim=1, optimizer=slotwise.FTRL(0.1, schedule=falls))
    for schedule in (slotwise.Schedule(warmup_steps=5), slotwise.Schedule(decay_steps=5, end_lr=1e-3)):
        any_ps.create_table("ads", dim=1, optimizer=slotwise.FTRL(0.1, schedule=schedule))
        any_ps.drop_table("ads")


def test_bad_schedules_are_refused(any_ps: slotwise.Client) -> None:
    with pytest.raises(slotwise.InvalidArgument, match="schedule is 3, not a Schedule"):
        any_ps.create_table("ads", dim=1, optimizer=slotwise.SGD(0.1, schedule=3))  # type: ignore
    for end in (float("nan"), float("inf"), -1.0):  # of a rate that never falls, too
        with pytest.raises(slotwise.InvalidArgument, match="end_learning_rate is"):
            never = slotwise.Schedule(end_lr=end)
            any_ps.create_table("ads", dim=1, optimizer=slotwise.SGD(0.1, schedule=never))
    with pytest.raises(slotwise.InvalidArgument, match=r"warmup_steps\): invalid value -1"):
        schedule = slotwise.Schedule(warmup_steps=-1)
        any_ps.create_table("ads", dim=1, optimizer=slotwise.SGD(0.1, schedule=schedule))
