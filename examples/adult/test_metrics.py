"""The AUC against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metrics import auc


def by_definition(positive: np.ndarray, score: np.ndarray) -> float:
    difference = score[positive][:, None] - score[~positive][None, :]
    return float((np.sign(difference) / 2 + 0.5).mean())


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("values", [2, 5, 1000])
def test_auc_is_the_share_of_pairs_in_order(seed: int, values: int) -> None:
    random = np.random.default_rng(seed)
    positive = random.random(60) < 0.3
    positive[:2] = True, False
    score = random.integers(0, values, 60)
    assert auc(positive, score) == pytest.approx(by_definition(positive, score))


def test_ends_of_the_scale() -> None:
    positive = np.array([0, 0, 1, 1])
    assert auc(positive, np.array([1, 2, 3, 4])) == 1.0
    assert auc(positive, np.array([4, 3, 2, 1])) == 0.0
    assert auc(positive, np.array([7, 7, 7, 7])) == 0.5


def test_one_class_has_no_auc() -> None:
    assert math.isnan(auc(np.ones(3), np.arange(3)))
    assert math.isnan(auc(np.zeros(3), np.arange(3)))
