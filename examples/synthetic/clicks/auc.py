"""The area under the ROC curve: over labels, over probabilities, and the best possible."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def auc(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    """Returns the share of pairs of a positive and a negative that the scores order rightly.

    Ties count half (Mann-Whitney). Returns NaN without a positive or without a negative.

    Args:
        labels: [n], 1 for a positive, 0 for a negative.
        scores: [n], any numbers.
    """
    return expected_auc(labels, scores)


def expected_auc(probabilities: NDArray[Any], scores: NDArray[Any]) -> float:
    """Returns the AUC of scores over samples whose labels' probabilities are known.

    The result is the sum of p_i (1 - p_j) over pairs i != j with s_i > s_j, ties counting half,
    divided by the sum over all pairs: the expected pairs in order over the expected pairs. It
    differs from the mean AUC over all draws of the labels by the order of 1 / n, and lacks the
    noise of one draw. One sort and one pass take O(n log n). Returns NaN if no pair can have a
    positive and a negative.

    Args:
        probabilities: [n], each sample's probability of a click.
        scores: [n], any numbers; only their order counts.
    """
    positive = np.asarray(probabilities, dtype=np.float64)
    negative = 1 - positive
    place = np.unique(np.asarray(scores), return_inverse=True)[1].reshape(-1)
    positives = np.bincount(place, weights=positive)  # for each score
    negatives = np.bincount(place, weights=negative)
    below = np.cumsum(negatives) - negatives
    own = float(positive @ negative)  # a sample makes no pair with itself
    won = float(positives @ (below + negatives / 2)) - own / 2
    pairs = float(positive.sum() * negative.sum()) - own
    return won / pairs if pairs > 0 else float("nan")


def best_auc(probabilities: NDArray[Any]) -> float:
    """Returns the best AUC that any scores can be expected to have over these samples.

    The true probabilities themselves have this AUC: in each pair the likelier sample comes first,
    and no other order of the pair is better in expectation (Neyman and Pearson).

    Args:
        probabilities: [n], the true probabilities.
    """
    return expected_auc(probabilities, probabilities)
