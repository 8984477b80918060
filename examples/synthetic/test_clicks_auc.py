"""AUCs against their definition, pair by pair."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from clicks import auc, best_auc, expected_auc


def pair_by_pair(probabilities: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> float:
    won = pairs = 0.0
    for i, positive in enumerate(probabilities):
        for j, other in enumerate(probabilities):
            if i != j:
                weight = positive * (1 - other)
                pairs += weight
                won += weight * (0.5 + 0.5 * np.sign(scores[i] - scores[j]))
    return won / pairs


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("values", [2, 7, 10**9])
def test_it_is_the_expected_share_of_pairs_in_order(seed: int, values: int) -> None:
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    probabilities, scores = random.random(60), random.integers(0, values, 60)
    assert expected_auc(probabilities, scores) == pytest.approx(pair_by_pair(probabilities, scores))
    coarse = np.round(probabilities, 1)  # ties, zeros and ones
    assert best_auc(coarse) == pytest.approx(pair_by_pair(coarse, coarse))
    labels = (random.random(60) < 0.3).astype(np.float32)
    assert auc(labels, scores) == pytest.approx(pair_by_pair(labels, scores))


def test_no_scores_are_better_than_the_probabilities_and_any_rising_function_is_as_good() -> None:
    random = np.random.default_rng(3)
    probabilities = random.random(500)
    best = best_auc(probabilities)
    assert expected_auc(probabilities, np.log(probabilities)) == pytest.approx(best)
    for noise in (0.01, 0.1, 1.0):
        assert expected_auc(probabilities, probabilities + noise * random.random(500)) < best
    assert expected_auc(probabilities, -probabilities) == pytest.approx(1 - best)


def test_drawn_labels_have_the_expected_auc_on_average() -> None:
    random = np.random.default_rng(4)
    probabilities = random.beta(1, 3, 2000)
    drawn = [auc(random.random(2000) < probabilities, probabilities) for _ in range(200)]
    assert np.mean(drawn) == pytest.approx(best_auc(probabilities), abs=0.003)


def test_ends_of_the_scale() -> None:
    labels = np.array([0, 0, 1, 1])
    assert auc(labels, np.array([1, 2, 3, 4])) == 1.0
    assert auc(labels, np.array([4, 3, 2, 1])) == 0.0
    assert auc(labels, np.array([7, 7, 7, 7])) == 0.5


def test_one_class_has_no_auc() -> None:
    assert math.isnan(auc(np.ones(3), np.arange(3)))
    assert math.isnan(auc(np.zeros(3), np.arange(3)))
    assert math.isnan(best_auc(np.zeros(0)))
