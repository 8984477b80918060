"""26 features of 64 numbers and an MLP 512-256-1; rows on a server, or torch's own."""

from __future__ import annotations

import numpy as np
import slotwise
import slotwise.torch
import torch
from torch import Tensor, nn

SLOTS, DIM = 26, 64
_INITIAL_VALUES = slotwise.Uniform(-0.05, 0.05)


def create_table(ps: slotwise.Client, name: str, rate: float, seed: int) -> None:
    """Makes the server's half of the model anew."""
    ps.drop_table(name, missing_ok=True)
    ps.create_table(
        name,
        dim=DIM,
        slots=SLOTS,
        combiner="sum",
        optimizer=slotwise.AdaGrad(lr=rate),
        initializer=_INITIAL_VALUES,
        seed=seed,
    )


def first_rows(ps: slotwise.Client, name: str, keys: Tensor, seed: int) -> Tensor:
    """Returns the rows that a table of that seed gives to new keys, float32 [keys, DIM].

    They depend on the key and the seed alone, so a table that is dropped again tells them.
    """
    ps.drop_table(name, missing_ok=True)
    ps.create_table(
        name, dim=DIM, combiner="none", optimizer=slotwise.SGD(lr=1.0), initializer=_INITIAL_VALUES, seed=seed
    )
    rows = np.concatenate([ps.lookup(name, some.numpy()) for some in keys.split(1 << 16)])
    ps.drop_table(name)
    return torch.from_numpy(rows)


class ClickModel(nn.Module):
    """Pooled rows of 26 slots, side by side, through an MLP."""

    def __init__(self, embedding: nn.Module, device: str) -> None:
        super().__init__()
        self.embedding = embedding
        layers = [nn.Linear(SLOTS * DIM, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU()]
        self.dense = nn.Sequential(*layers, nn.Linear(256, 1)).to(device)
        self._device = device

    def forward(self, keys: Tensor, offsets: Tensor) -> Tensor:
        """Returns log-odds, float32 [samples]."""
        rows = self.embedding(keys, offsets).to(self._device)
        log_odds: Tensor = self.dense(rows.reshape(-1, SLOTS * DIM))[:, 0]
        return log_odds
