"""Tables with rows, and batches of ids that have rows or none, for tests of served copies."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import slotwise

SEED = 20261127
DIM = 3
# Ids with rows, among them those of 64 bits: 2**63 and up are below 0 in int64.
KNOWN = np.array([7, -5, 3, 9, 2**62, -(2**63)], np.int64)
UNKNOWN = [1, -1, 2**62 + 1]
PADDING = 8


def make_table(ps: slotwise.Client, name: str, combiner: str, slots: int = 1, dim: int = DIM) -> None:
    """Makes a table whose KNOWN ids have rows."""
    ps.create_table(name, dim=dim, slots=slots, combiner=combiner, optimizer=slotwise.SGD(0.1))
    values = np.random.default_rng(SEED).normal(size=(len(KNOWN), dim)).astype(np.float32)
    ps.import_rows(name, KNOWN, values)


class Draw:
    """Draws what modules look up; the same for the same seed."""

    def __init__(self, seed: int = SEED) -> None:
        print(f"seed {seed}")
        self._random = torch.Generator().manual_seed(seed)

    def ids(self, *shape: int) -> Tensor:
        """Returns known ids, unknown ones and the padding."""
        all_ids = torch.tensor([*KNOWN.tolist(), *UNKNOWN, PADDING])
        return all_ids[torch.randint(0, len(all_ids), shape, generator=self._random)]

    def offsets(self, keys: int, bags: int) -> Tensor:
        """Returns offsets with their end; some bags are empty."""
        begins = torch.randint(0, keys + 1, (bags - 1,), generator=self._random).sort().values
        return torch.cat([torch.tensor([0]), begins, torch.tensor([keys])])

    def weights(self, *shape: int) -> Tensor:
        """Returns weights, of which every fourth is 0."""
        drawn = torch.rand(shape, generator=self._random) - 0.25
        return drawn * (torch.rand(shape, generator=self._random) > 0.25)


def positions_of(ids: Tensor, known: Tensor) -> Tensor:
    """Returns the positions that stand for ids."""
    found: NDArray[np.int64] = slotwise.positions(ids.numpy(), known.numpy())
    return torch.from_numpy(found)


def close(ours: Tensor, theirs: Tensor) -> None:
    """Compares to float32's rounding."""
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
