"""DeepFM (Guo et al., IJCAI 2017): a factorisation machine and an MLP over the same embeddings."""

from __future__ import annotations

import slotwise
import slotwise.torch
import torch
from torch import Tensor, nn, zeros

from data import SLOTS

DIM = 8


def make_deterministic(seed: int) -> None:
    """The same seed gives the same bits: on a server of any number of ranks, too."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # sums in one order
    torch.use_deterministic_algorithms(True)


def create_table(ps: slotwise.Client, name: str, seed: int) -> None:
    """The server's half of the model, made anew.

    A row is the key's first-order weight and, behind it, its vector. One table instead of two: one lookup
    and one push a batch.
    """
    ps.drop_table(name, missing_ok=True)
    ps.create_table(
        name,
        dim=1 + DIM,
        slots=SLOTS,
        optimizer=slotwise.AdaGrad(lr=0.05),
        initializer=slotwise.Uniform(-0.05, 0.05),
        seed=seed,
    )


class DeepFM(nn.Module):
    """The trainer's half: the bias and the MLP; embedding rows are on the server only."""

    def __init__(self, ps: slotwise.Client, table: str, session: slotwise.Session | None = None) -> None:
        super().__init__()
        self.embedding = slotwise.torch.EmbeddingBag(ps, table, session=session)
        self.bias = nn.Parameter(zeros(()))
        self.mlp = nn.Sequential(
            nn.Linear(SLOTS * DIM, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, keys: Tensor) -> Tensor:
        """Logits, float32 [samples], of int64 keys [samples, SLOTS]."""
        return self.score(self.embedding(keys))

    def score(self, pooled: Tensor) -> Tensor:
        """Logits, float32 [samples], of looked-up rows [samples, SLOTS * (1 + DIM)]."""
        rows = pooled.reshape(-1, SLOTS, 1 + DIM)
        first_order, vectors = rows[:, :, 0].sum(1), rows[:, :, 1:]
        # The sum of all pairs' inner products: half of (the square of the sum - the sum of the squares).
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        deep = self.mlp(vectors.flatten(1)).squeeze(1)
        return self.bias + first_order + pairs + deep
