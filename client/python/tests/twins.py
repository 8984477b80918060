"""Modules of slotwise.torch, and torch's own that have the same rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import slotwise
import slotwise.torch as st
from slotwise.optimizers import Optimizer

ROWS, DIM = 12, 4
KEYS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
ENDS = torch.tensor([0, 3, 3, 8])  # of three bags, one of them empty
OPTIMIZERS: dict[str, tuple[Optimizer, Callable[[Any], torch.optim.Optimizer]]] = {
    "sgd": (slotwise.SGD(lr=0.1), lambda rows: torch.optim.SGD(rows, lr=0.1)),
    "adagrad": (slotwise.AdaGrad(lr=0.1), lambda rows: torch.optim.Adagrad(rows, lr=0.1)),
    "adam": (slotwise.Adam(lr=0.1), lambda rows: torch.optim.SparseAdam(rows, lr=0.1)),
}


class Modules:
    """An embedding of the table "items" and bags of "bags": ours, torch's, and an optimizer of torch's."""

    def __init__(self, ps: slotwise.Client, kind: str = "sgd", **options: Any) -> None:
        torch.manual_seed(11)
        optimizer, make = OPTIMIZERS[kind]
        sparse, rows = kind == "adam", {}
        for name, combiner in (("items", "none"), ("bags", "sum")):
            ps.create_table(name, dim=DIM, combiner=combiner, optimizer=optimizer)
            rows[name] = torch.randn(ROWS, DIM)
            ps.import_rows(name, np.arange(ROWS), rows[name].numpy())
        self.ps = ps
        self.ours: dict[str, Any] = {
            "items": st.Embedding(ps, "items", **options),
            "bags": st.EmbeddingBag(ps, "bags", **options),
        }
        bags = {"mode": "sum", "sparse": sparse, "include_last_offset": True}
        self.theirs: dict[str, Any] = {
            "items": nn.Embedding.from_pretrained(rows["items"], False, sparse=sparse),
            "bags": nn.EmbeddingBag.from_pretrained(rows["bags"], False, **bags),
        }
        self.optimizer = make([each.weight for each in self.theirs.values()])

    def compare(self, rtol: float) -> None:
        """Compares all rows, once pushes in flight have arrived."""
        for name, twin in self.theirs.items():
            self.ours[name].flush()
            rows = self.ps.lookup(name, np.arange(ROWS), train=False)
            expected = twin.weight.detach().numpy()
            np.testing.assert_allclose(rows, expected, rtol=rtol, atol=rtol / 10, err_msg=name)

    def steps(self) -> set[int]:
        """Returns the tables' counts of steps."""
        return {self.ps.describe_table(name).steps for name in self.ours}


def first_rows(ps: slotwise.Client, table: str, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the server's rows of the unique keys, and the keys as numbers of those rows."""
    unique, numbers = torch.unique(keys, return_inverse=True)
    options = ps.describe_table(table).options
    bags = -(-len(unique) // options.slots) * options.slots  # the last may be empty
    bag_a_key = np.minimum(np.arange(bags + 1), len(unique))
    rows = torch.from_numpy(ps.lookup(table, unique.numpy(), bag_a_key)).reshape(-1, options.dim)
    return rows[: len(unique)].clone(), numbers


def zeros(ps: slotwise.Client, optimizer: Optimizer, **options: Any) -> st.Embedding:
    """Makes the table "items" of rows of zeros, of one float, and its module."""
    begin = slotwise.Constant(0.0)
    ps.create_table("items", dim=1, combiner="none", optimizer=optimizer, initializer=begin)
    return st.Embedding(ps, "items", **options)


def expect_equal_steps(
    optimizer: torch.optim.Optimizer, ours: Callable[[], Tensor], theirs: Callable[[], Tensor], steps: int = 3
) -> None:
    """Trains by what modules of ours and torch's give, torch's by the optimizer, and compares that."""
    for _ in range(steps):
        outputs = ours(), theirs()
        torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-6)
        for output in outputs:
            (output * torch.linspace(-1, 2, output.numel()).reshape(output.shape)).sin().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
