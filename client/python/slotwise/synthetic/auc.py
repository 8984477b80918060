"""The area under the ROC curve: of labels, of probabilities, and the best there can be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def auc(labels: NDArray[Any], scores: NDArray[Any]) -> float:
    """The share of pairs of a positive and a negative in which the positive has the higher score.

    Ties count half (Mann-Whitney). NaN without a positive or without a negative.

    Args:
        labels: [n], 1 for a positive, 0 for a negative.
        scores: [n], any numbers.
    """
    return expected_auc(labels, scores)


def expected_auc(probabilities: NDArray[Any], scores: NDArray[Any]) -> float:
    """The AUC of scores over samples whose labels are not drawn but known in probability.

    The sum of p_i (1 - p_j) over pairs i != j with s_i > s_j, ties counting half, over its sum
    over all pairs: the expected pairs in order over the expected pairs. It differs from the mean
    AUC over all draws of the labels by something of the order 1 / n, and lacks the noise of one
    draw. One sort and one pass, O(n log n). NaN if no pair can be of a positive and a negative.

    Args:
        probabilities: [n], of a click.
        scores: [n], any numbers; only their order counts.
    """
    positive = np.asarray(probabilities, dtype=np.float64)
    negative = 1 - positive
    place = np.unique(np.asarray(scores), return_inverse=True)[1].reshape(-1)
    positives = np.bincount(place, weights=positive)  # a score
    negatives = np.bincount(place, weights=negative)
    below = np.cumsum(negatives) - negatives
    own = float(positive @ negative)  # a sample is no pair with itself
    won = float(positives @ (below + negatives / 2)) - own / 2
    pairs = float(positive.sum() * negative.sum()) - own
    return won / pairs if pairs > 0 else float("nan")


def best_auc(probabilities: NDArray[Any]) -> float:
    """The best AUC that any scores can be expected to have over these samples.

    It is that of the true probabilities themselves: in each pair the likelier one comes first, and
    no other order of the pair has more in expectation (Neyman and Pearson).

    Args:
        probabilities: [n], the true ones.
    """
    return expected_auc(probabilities, probabilities)
