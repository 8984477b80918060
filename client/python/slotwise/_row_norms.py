"""The norm of what backward passes have given to a table's rows: of the gradients' sums, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from slotwise.options import TableOptions

_MOST = 1 << 24  # floats of bags' gradients that are copied to their rows at once

# Keys, int64 [rows], and the sum of each one's gradients, float32 [rows, dim].
RowGradients = tuple[Tensor, Tensor]


def summed(table: TableOptions, parts: Sequence[tuple[tuple[Tensor | None, ...], Tensor]]) -> RowGradients:
    """Returns the gradients of pooled rows, each row once, from lookups and their results' gradients."""
    device = parts[0][1].device
    keys_of, bags_of, factors_of, gradients_of = [], [], [], []
    bags_before, has_factors = 0, False
    for (keys, offsets, weights), gradient in parts:
        assert keys is not None
        flat = keys.detach().to(device, torch.int64).reshape(-1)
        of_bags = gradient.detach().to(device).reshape(-1, table.dim)
        bags, factors = _occurrences(table, flat, offsets, weights, len(of_bags))
        keys_of.append(flat)
        bags_of.append(bags + bags_before)
        has_factors = has_factors or factors is not None
        factors_of.append(flat.new_ones(len(flat), dtype=torch.float32) if factors is None else factors)
        gradients_of.append(of_bags)
        bags_before += len(of_bags)
    rows, row_of = torch.unique(torch.cat(keys_of), return_inverse=True)
    bags, gradients = torch.cat(bags_of), torch.cat(gradients_of)
    all_factors = torch.cat(factors_of) if has_factors else None
    return rows, _summed(len(rows), row_of, gradients, bags, all_factors)


def nothing(table: TableOptions, device: torch.device) -> RowGradients:
    """Returns the gradients of no rows."""
    return (torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, table.dim, device=device))


def norm(of_rows: Tensor, trainers_of_mean: int = 1) -> Tensor:
    """Returns the Euclidean norm, float32 [1], of rows' gradients that a mean divides by so many."""
    total: Tensor = torch.linalg.vector_norm(of_rows, dtype=torch.float64)
    return (total / trainers_of_mean).to(torch.float32).reshape(1)


def over_trainers(group: Any, mine: Tensor) -> list[Tensor]:
    """Returns every trainer's small integers, int64 on the CPU; a collective of a process group."""
    return [each.cpu() for each in _gathered(group, mine.to(_device_of(group)), mine.numel())]


def summed_over(group: Any, of_tables: Sequence[RowGradients]) -> list[RowGradients] | None:
    """Returns the sums over all trainers of a process group, equal for all; None if no trainer has rows.

    A collective, of the same tables in all trainers. A trainer's rows travel once to every other trainer.
    """
    home, device = of_tables[0][0].device, _device_of(group)
    rows = torch.tensor([len(keys) for keys, _ in of_tables], dtype=torch.int64, device=device)
    counts = [each.tolist() for each in _gathered(group, rows, rows.numel())]
    if not any(map(sum, counts)):
        return None
    widths = [gradients.shape[1] for _, gradients in of_tables]
    floats = [sum(n * width for n, width in zip(count, widths)) for count in counts]
    all_keys = _gathered(group, torch.cat([keys for keys, _ in of_tables]).to(device), max(map(sum, counts)))
    flat = torch.cat([gradients.reshape(-1) for _, gradients in of_tables]).to(device)
    all_gradients = _gathered(group, flat, max(floats))
    of_trainers = []
    for count, keys, gradients in zip(counts, all_keys, all_gradients):
        sizes = [n * width for n, width in zip(count, widths)]
        of_trainers.append(list(zip(_cut(keys, count), _cut(gradients, sizes))))
    sums = []
    for table, width in enumerate(widths):
        keys = torch.cat([each[table][0] for each in of_trainers])
        unique, inverse = torch.unique(keys, return_inverse=True)
        total = torch.zeros(len(unique), width, device=device)
        places = _cut(inverse, [count[table] for count in counts])
        # One trainer at a time, whose keys are unique: so a GPU adds in the same order for each trainer.
        for place, (_, gradients) in zip(places, (each[table] for each in of_trainers)):
            total.index_add_(0, place, gradients.reshape(-1, width))
        sums.append((unique.to(home), total.to(home)))
    return sums


def _device_of(group: Any) -> torch.device:
    """Returns where a process group's collectives take tensors."""
    on_gpu = distributed.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def _cut(array: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Returns an array's beginning, in pieces of these sizes."""
    pieces: Sequence[Tensor] = torch.split(array[: sum(sizes)], list(sizes))
    return pieces


def _gathered(group: Any, mine: Tensor, most: int) -> list[Tensor]:
    """Returns every trainer's array, each filled up to `most`."""
    padded = mine.new_zeros(most)
    padded[: mine.numel()] = mine
    gathered = [torch.empty_like(padded) for _ in range(distributed.get_world_size(group))]
    collectives: Any = distributed
    collectives.all_gather(gathered, padded, group=group)
    return gathered


def _occurrences(
    table: TableOptions, keys: Tensor, offsets: Tensor | None, weights: Tensor | None, bags: int
) -> tuple[Tensor, Tensor | None]:
    """Returns each key's bag, and the factors of the bags' gradients for the keys' rows; None: all are 1."""
    device, count = keys.device, keys.numel()
    if offsets is None:
        bag_of = torch.arange(bags, device=device)
        sizes = torch.ones(bags, device=device)
    else:
        begins = offsets.detach().to(device, torch.int64)[:bags]
        sizes = torch.diff(begins, append=begins.new_tensor([count]))
        bag_of = torch.repeat_interleave(torch.arange(bags, device=device), sizes, output_size=count)
    is_sum = table.combiner not in ("mean", "sqrtn")
    if weights is None and is_sum:
        return bag_of, None
    factors = torch.ones(count, device=device)
    if weights is not None:
        factors = weights.detach().to(device).reshape(-1)
    if not is_sum:
        squared = table.combiner == "sqrtn"
        divisors = sizes.to(torch.float32)
        if weights is not None:
            terms = factors * factors if squared else factors
            divisors = torch.zeros(bags, device=device).index_add_(0, bag_of, terms)
        divisors = (divisors.sqrt() if squared else divisors)[bag_of]
        factors = torch.where(divisors == 0, 0.0, factors / divisors)  # as in a push
    return bag_of, factors


def _summed(rows: int, row_of: Tensor, gradients: Tensor, bags: Tensor, factors: Tensor | None) -> Tensor:
    """Returns for each row the sum over its occurrences of their bags' gradients, times their factors."""
    sums = torch.zeros(rows, gradients.shape[1], device=gradients.device)
    at_once = max(1, _MOST // max(1, gradients.shape[1]))
    for first in range(0, row_of.numel(), at_once):
        some = slice(first, first + at_once)
        of_rows = gradients[bags[some]]
        if factors is not None:
            of_rows *= factors[some, None]
        sums.index_add_(0, row_of[some], of_rows)
    return sums
