"""The plain torch modules that stand in a served copy for `slotwise.torch.Embedding` and `EmbeddingBag`.

The modules need torch alone. `torch.jit.script` compiles them, so annotations are those of `typing`, and
errors are ValueErrors. Where torch records a forward (`torch.jit.trace`, ONNX), the values of offsets and ids
are not checked.
"""

from typing import List, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

from slotwise._served.pooling import (
    are_values_there,
    bag_of_each_key,
    divided,
    fixed_shape,
    shares,
    sum_by_bag,
    sum_fused,
    whole_offsets,
)


class ServedTable(nn.Module):
    """The rows that a table had, and the place of each id's row.

    Attributes:
        ids: int64 [rows], rising; an id of 2**63 or more is below 0 here.
        rows: float32 [rows + 1, dim]; the last row is zeros, and stands for ids that have no row.
        table: the table's name.
        count: how many rows there are.
        takes_positions: whether `forward` gets positions, or ids and searches for them.
    """

    ids: Tensor
    rows: Tensor

    def __init__(self, table: str, ids: Tensor, rows: Tensor, takes_positions: bool) -> None:
        """Takes ids and rows as they are, without a copy."""
        super().__init__()
        self.table, self.takes_positions, self.count = table, takes_positions, len(ids)
        self.register_buffer("ids", ids)
        self.register_buffer("rows", rows)

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the positions of ids' rows, int64 of their shape; an id without a row has the last one.

        Args:
            ids: integers; int64 may have any 64 bits, and narrower ones are 0 and up.

        Raises:
            ValueError: the ids are no integers, or some of a narrower type are below 0.
        """
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise ValueError("ids must be integers")
        wide = ids.to(torch.int64)
        if self.takes_positions:
            return wide
        if ids.dtype != torch.int64 and are_values_there(ids):
            if bool((ids < 0).any()):
                raise ValueError("ids below 0 must be int64, whose 64 bits are the id")
        count = self.count
        if count == 0:
            return torch.zeros_like(wide)
        found = torch.searchsorted(self.ids, wide.contiguous()).clamp(max=count - 1)
        return found.masked_fill(self.ids[found] != wide, count)

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        takes = "positions" if self.takes_positions else "ids"
        return f"{self.table!r}, rows={self.count}, dim={self.rows.shape[1]}, takes {takes}"


class ServedEmbedding(nn.Module):
    """Stands for a `slotwise.torch.Embedding`.

    Attributes:
        table: the rows, which other modules of the copy may share.
        dim, padding_idx: as the original's.
    """

    __jit_unused_properties__ = ["ids"]

    def __init__(self, table: ServedTable, padding_idx: Optional[int]) -> None:
        """Uses a table that has the padding among its ids."""
        super().__init__()
        self.table, self.dim, self.padding_idx = table, int(table.rows.shape[1]), padding_idx
        self._padding = position_of(table, padding_idx)

    @property
    def ids(self) -> Tensor:
        """Returns the ids of positions 0 and up, int64 [rows], rising."""
        return self.table.ids

    def forward(self, keys: Tensor) -> Tensor:
        """Returns rows, float32 [*keys.shape, dim]; zeros for padding and for ids without a row.

        Args:
            keys: ids as `ServedTable.forward` takes them, or positions, of any shape.
        """
        positions = without(self.table(keys), self._padding, self.table.count)
        return functional.embedding(positions, self.table.rows)


class ServedEmbeddingBag(nn.Module):
    """Stands for a `slotwise.torch.EmbeddingBag`, or for one feature of `EmbeddingBags`.

    Attributes:
        table: the rows, which other modules of the copy may share.
        feature: the feature's name; of an `EmbeddingBag` the table's.
        dim, slots, padding_idx, combiner: as the original's or its table's.
    """

    __jit_unused_properties__ = ["ids"]

    def __init__(
        self,
        table: ServedTable,
        feature: str,
        slots: int,
        combiner: str,
        padding_idx: Optional[int],
        include_last_offset: bool,
    ) -> None:
        """Uses a table that has the padding among its ids."""
        super().__init__()
        self.table, self.dim, self.padding_idx = table, int(table.rows.shape[1]), padding_idx
        self.feature, self.slots, self.combiner = feature, slots, combiner
        self._padding = position_of(table, padding_idx)
        self._include_last_offset = include_last_offset

    @property
    def ids(self) -> Tensor:
        """Returns the ids of positions 0 and up, int64 [rows], rising."""
        return self.table.ids

    def forward(
        self, keys: Tensor, offsets: Optional[Tensor] = None, per_sample_weights: Optional[Tensor] = None
    ) -> Tensor:
        """Returns the pooled rows, float32 [samples, slots * dim].

        Args:
            keys, offsets, per_sample_weights: as `slotwise.torch.EmbeddingBag.forward` takes them; the keys
                are ids as for `ServedTable.forward`, or positions.

        Raises:
            ValueError: a shape or a type is wrong, or offsets do not rise from 0 to the number of keys.
        """
        positions = self.table(keys)
        weights = per_sample_weights
        if weights is not None:
            if not weights.is_floating_point() or fixed_shape(weights) != fixed_shape(keys):
                raise ValueError("per_sample_weights must be floats of the shape of keys")
            weights = weights.to(device=self.table.rows.device, dtype=self.table.rows.dtype)
        whole: Optional[Tensor] = None
        if offsets is not None:
            whole = whole_offsets(offsets, keys, self.slots, self._include_last_offset)
        if self.combiner == "none":
            return self._rows(positions, whole, weights)
        if whole is None:
            size = self._of_one_size(positions)
            positions = positions.reshape(size)
            weights = None if weights is None else weights.reshape(size)
        pooled = self._pool(positions, whole, weights)
        return pooled.reshape(-1, self.slots * self.dim)

    def _rows(self, positions: Tensor, offsets: Optional[Tensor], weights: Optional[Tensor]) -> Tensor:
        """Returns each key's row, multiplied by its weight: there is no combiner."""
        if offsets is not None:
            if fixed_shape(offsets)[0] != fixed_shape(positions)[0] + 1:
                raise ValueError("a table without a combiner takes bags of one key each")
            if are_values_there(offsets) and bool((offsets[1:] - offsets[:-1] != 1).any()):
                raise ValueError("a table without a combiner takes bags of one key each")
        return self._weighted(positions, weights)

    def _of_one_size(self, positions: Tensor) -> List[int]:
        """Returns the shape [bags, keys] of positions without offsets."""
        several, dims = self.slots > 1, positions.dim()
        if dims == 1:
            if several and fixed_shape(positions)[0] % self.slots != 0:
                raise ValueError("keys without offsets must be a whole number of samples of all slots")
            return [positions.shape[0], 1]
        if dims == 2 and not several:
            return [positions.shape[0], positions.shape[1]]
        if not several or dims > 3 or dims == 0 or fixed_shape(positions)[1] != self.slots:
            raise ValueError("keys without offsets must be [keys] or samples of all slots")
        return [positions.shape[0] * self.slots, 1 if dims == 2 else positions.shape[2]]

    def _pool(self, positions: Tensor, offsets: Optional[Tensor], weights: Optional[Tensor]) -> Tensor:
        """Returns the pooled rows, [bags, dim], of positions [bags, keys], or [keys] with offsets."""
        rows, is_sum = self.table.rows, self.combiner == "sum"
        real = without(positions, self._padding, self.table.count)
        counts = torch.ones_like(positions) if self._padding < 0 else (positions != self._padding)
        of_keys = shares(counts.to(rows.dtype), weights, self.combiner)
        if offsets is None:
            sums = self._weighted(real, weights).sum(1)
            return sums if is_sum else divided(sums, of_keys.sum(1, keepdim=True), self.combiner)
        if is_sum and not self.table.takes_positions:
            return sum_fused(rows, real, offsets, weights)
        bag, bags = bag_of_each_key(offsets, positions), offsets.shape[0] - 1
        if self.table.takes_positions:  # embedding_bag does not export to ONNX with sizes that vary
            sums = sum_by_bag(self._weighted(real, weights), self.dim, bag, bags)
        else:
            sums = sum_fused(rows, real, offsets, weights)
        if is_sum:
            return sums
        return divided(sums, sum_by_bag(of_keys.unsqueeze(1), 1, bag, bags), self.combiner)

    def _weighted(self, positions: Tensor, weights: Optional[Tensor]) -> Tensor:
        """Returns each key's row, multiplied by its weight, [*positions.shape, dim]."""
        rows = functional.embedding(positions, self.table.rows)
        return rows if weights is None else rows * weights.unsqueeze(-1)

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        return f"{self.feature!r}, slots={self.slots}, combiner={self.combiner!r}"


def position_of(table: ServedTable, padding_idx: Optional[int]) -> int:
    """Returns where the padding is among a table's ids; -1: there is none."""
    return -1 if padding_idx is None else int(torch.searchsorted(table.ids, padding_idx))


def without(positions: Tensor, padding: int, unknown: int) -> Tensor:
    """Returns positions in which padding stands for no row."""
    return positions if padding < 0 else positions.masked_fill(positions == padding, unknown)
