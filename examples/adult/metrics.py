"""How good a model's ranking is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data import People
from model import DeepFM


def auc(positive: NDArray[Any], score: NDArray[Any]) -> float:
    """The area under the ROC curve.

    It is the probability that a random positive has a higher score than a random negative, ties
    counting half, and follows from the positives' ranks (Mann-Whitney); tied scores share the
    mean of their ranks. NaN without a positive or without a negative.

    Args:
        positive: [n], 1 or True for a positive, 0 or False for a negative.
        score: [n], any numbers.
    """
    positive = positive.astype(bool)
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return float("nan")
    wins = rank[positive].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * negatives))


@torch.no_grad()
def evaluate(model: DeepFM, people: People) -> float:
    """The model's AUC; keys it has never seen count as zeros and stay unseen."""
    model.eval()
    logits = model(people.keys)
    model.train()
    return auc(people.rich.numpy(), logits.numpy())
