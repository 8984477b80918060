"""The stream drifts: ids come, become popular, fade and stay away. A seed always gives the same batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drift import FIELDS, DriftingClicks

from clicks import auc  # of examples/synthetic, whose folder drift.py adds to the path

ITEMS, USERS, CAMPAIGNS, COUNTRIES, HOURS = range(len(FIELDS))


def keys(steps: range, field: int) -> NDArray[np.uint64]:
    """Returns a field's keys, [steps, samples]."""
    stream = DriftingClicks(seed=3, batch_size=512)
    return np.stack([stream.batch(step).keys.reshape(-1, len(FIELDS))[:, field] for step in steps])


def share_known(seen: range, then: range, field: int) -> float:
    """Returns the share of the samples of `then` whose id came in `seen`."""
    return float(np.isin(keys(then, field), keys(seen, field)).mean())


def test_a_seed_gives_the_same_batches_and_another_seed_others() -> None:
    first, again, other = (DriftingClicks(seed=seed, batch_size=64).batch(5) for seed in (1, 1, 2))
    assert (first.keys == again.keys).all() and (first.labels == again.labels).all()
    assert not (first.keys == other.keys).any()


def test_ids_stay_away_once_their_time_is_over_but_for_those_that_stay() -> None:
    past, next_steps, later = range(0, 30), range(30, 35), range(600, 605)
    assert share_known(past, next_steps, ITEMS) > 0.6
    assert share_known(past, later, ITEMS) < FIELDS[ITEMS].stays
    assert share_known(past, next_steps, USERS) > 0.4 and share_known(past, later, USERS) < 0.001
    for field in (COUNTRIES, HOURS):
        assert share_known(past, later, field) == 1


def test_an_items_popularity_rises_and_then_fades() -> None:
    life = int(FIELDS[ITEMS].life)
    items = keys(range(20 * life), ITEMS)
    ids, counts = np.unique(items, return_counts=True)
    there_from_the_start_or_staying = np.union1d(items[:life], keys(range(1000, 1040), ITEMS))
    popular = np.setdiff1d(ids[counts >= 20], there_from_the_start_or_staying)
    popular = np.setdiff1d(popular, items[-8 * life :])  # their time is over
    assert len(popular) > 50
    ages = np.concatenate([came - came[0] for came in (np.nonzero(items == item)[0] for item in popular)])
    a_step = np.bincount(ages[ages > 0], minlength=20 * life) / len(popular)
    peak = a_step[life // 2 : life].mean()
    assert a_step[1:3].mean() < 0.9 * peak and a_step[3 * life : 4 * life].mean() < 0.5 * peak
    assert a_step[6 * life : 7 * life].mean() < 0.1 * peak


def test_a_few_items_of_each_cohort_get_most_of_the_clicks() -> None:
    _, counts = np.unique(keys(range(200), ITEMS), return_counts=True)
    counts = np.sort(counts)[::-1]
    assert counts[: len(counts) // 10].sum() > 0.5 * counts.sum()


def test_ids_decide_clicks() -> None:
    stream = DriftingClicks(seed=3, batch_size=512)
    batches = [stream.batch(step) for step in range(20)]
    labels = np.concatenate([clicks.labels for clicks in batches])
    assert auc(labels, np.concatenate([clicks.probabilities for clicks in batches])) > 0.78
