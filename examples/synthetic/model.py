"""A factorisation machine (Rendle, ICDM 2010) over the ids, and weights for the numbers."""

from __future__ import annotations

import slotwise
import slotwise.torch
from torch import Tensor, from_numpy, nn, zeros

from clicks import ClickModel, Clicks


def create_table(
    ps: slotwise.Client, name: str, planted: ClickModel, factors: int, rate: float, seed: int
) -> None:
    """The server's half of the model, made anew: a row is an id's weight and its vector.

    Only the planted model's shape is used: how many slots, and how a bag is pooled.
    """
    ps.drop_table(name, missing_ok=True)
    ps.create_table(
        name,
        dim=1 + factors,
        slots=len(planted.slots),
        combiner=planted.combiner,
        # An id is believed by degrees: from the first meeting a step is at most rate / sqrt(5).
        optimizer=slotwise.AdaGrad(lr=rate, initial_accumulator=4.0),
        # A vector of zeros would stay so: its gradient is of other vectors.
        initializer=slotwise.Uniform(-0.01, 0.01) if factors else slotwise.Constant(0.0),
        seed=seed,
    )


class FactorizationMachine(nn.Module):
    """The trainer's half: the bias and the numbers' weights; the ids' rows are on the server."""

    def __init__(self, ps: slotwise.Client, table: str, features: int) -> None:
        super().__init__()
        self.embedding = slotwise.torch.EmbeddingBag(ps, table)
        self.bias = nn.Parameter(zeros(()))
        self.weights = nn.Parameter(zeros(features))

    def forward(self, clicks: Clicks) -> Tensor:
        """Log-odds, float32 [samples]."""
        # torch has no uint64: the same 64 bits as int64.
        keys = from_numpy(clicks.keys.view("int64"))
        offsets = from_numpy(clicks.offsets.astype("int64"))
        rows = self.embedding(keys, offsets)
        rows = rows.reshape(-1, self.embedding.slots, self.embedding.dim)
        first_order, vectors = rows[:, :, 0].sum(1), rows[:, :, 1:]
        # All pairs' inner products: half of (the square of the sum - the sum of the squares).
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return self.bias + first_order + pairs + from_numpy(clicks.dense) @ self.weights
