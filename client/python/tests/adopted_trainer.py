"""Trains an adopted model, and goes on where it was if it was killed: ADDRESS FILE STEPS.

Prints each step's number once it was made, and at the end a digest of the dense weights.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import slotwise
import slotwise.torch as st

ITEMS, DIM, EACH = 30, 4, 4


class Recommender(nn.Module):
    """Scores all items by a history of items, with the items' own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM, padding_idx=0)
        self.tags = nn.EmbeddingBag(ITEMS, DIM, mode="mean")
        self.dense = nn.Linear(DIM, DIM)

    def forward(self, items: Tensor) -> Tensor:
        """Returns the loss of the last item of each row."""
        history = self.dense(self.items(items[:, :-1]).sum(1) + self.tags(items[:, :-1])).tanh()
        return nn.functional.cross_entropy(history @ self.items.weight.T, items[:, -1])


def batch(number: int) -> Tensor:
    return torch.randint(0, ITEMS, (8, 5), generator=torch.Generator().manual_seed(number))


def make(ps: slotwise.Client) -> tuple[Recommender, torch.optim.Optimizer]:
    torch.manual_seed(7)
    model = Recommender()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    st.adopt(model, ps, optimizer, prefix="killed/", lazy=True, attach=True)
    return model, optimizer


def train(model: Recommender, optimizer: torch.optim.Optimizer, number: int) -> None:
    optimizer.zero_grad()
    model(batch(number)).backward()
    optimizer.step()


def digest(model: Recommender) -> str:
    weights = b"".join(weight.detach().numpy().tobytes() for weight in model.dense.parameters())
    return hashlib.sha256(weights).hexdigest()


def main(address: str, file: str, steps: int) -> None:
    path = Path(file)
    with slotwise.connect(address) as ps:
        model, optimizer = make(ps)
        if path.exists():
            done = st.load(path, model, optimizer, go_back=True)
        else:
            done = 0
            st.save(path, model, optimizer, done)
        for number in range(done, steps):
            train(model, optimizer, number)
            print(number + 1, flush=True)
            if (number + 1) % EACH == 0:
                st.save(path, model, optimizer, number + 1)
        print(digest(model), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
