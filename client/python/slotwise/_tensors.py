"""Copies and joins keys, offsets, weights, rows and gradients for the torch modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from slotwise.options import TableOptions

Lookup = tuple[Tensor | None, ...]  # keys, offsets and weights
Lookups = dict[str, Lookup]  # by table


def joined_lookups(table: TableOptions, lookups: Sequence[Lookup], bags: Sequence[int]) -> Lookup:
    """Returns lookups of so many bags each as one, in their order, on the device of the first one's keys."""
    first_keys = lookups[0][0]
    assert first_keys is not None
    device = first_keys.device
    keys, offsets, weights = [], [], []
    has_offsets = any(of_offsets is not None for _, of_offsets, _ in lookups)
    has_weights = any(of_weights is not None for _, _, of_weights in lookups)
    before = 0  # keys of the lookups before
    for (of_keys, of_offsets, of_weights), count in zip(lookups, bags):
        assert of_keys is not None
        flat = of_keys.detach().to(device, torch.int64).reshape(-1)
        keys.append(flat)
        if has_offsets:
            begins = torch.arange(flat.numel(), device=device)
            if of_offsets is not None:
                begins = of_offsets.detach().to(device, torch.int64)[:count]
            offsets.append(begins + before)
        if has_weights:
            ones = torch.ones(flat.numel(), dtype=torch.float32, device=device)
            weights.append(ones if of_weights is None else of_weights.to(device).reshape(-1))
        before += flat.numel()
    ends = [torch.tensor([before], device=device)]
    return (
        torch.cat(keys),
        torch.cat(offsets + ends) if has_offsets else None,
        torch.cat(weights) if has_weights else None,
    )


def joined(table: TableOptions, parts: Sequence[tuple[Lookup, Tensor]]) -> tuple[Lookup, Tensor]:
    """Returns lookups, and their results' gradients, as one, on the first one's devices, in their order."""
    device = parts[0][1].device
    gradients = [gradient.detach().to(device).reshape(-1, table.slots * table.dim) for _, gradient in parts]
    bags = [len(gradient) * table.slots for gradient in gradients]
    return joined_lookups(table, [lookup for lookup, _ in parts], bags), torch.cat(gradients)


def nothing_of(table: TableOptions, device: torch.device) -> tuple[Lookup, Tensor]:
    """Returns a lookup of no keys, and its gradient."""
    keys = torch.empty(0, dtype=torch.int64, device=device)
    return (keys, None, None), torch.empty(0, table.slots * table.dim, dtype=torch.float32, device=device)


def same_lookups(one: Lookups, other: Lookups) -> bool:
    """Whether two forwards look up the same."""
    return list(one) == list(other) and all(
        _equal(mine, others) for table in one for mine, others in zip(one[table], other[table])
    )


def own_copies(lookups: Lookups) -> Lookups:
    """Returns copies on the CPU, once they can be read."""
    copied, there = copies(lookups)
    there()
    return copied


def own_clones(lookups: Lookups, tables: Iterable[str]) -> Lookups:
    """Returns copies of some tables' lookups, on the devices where the tensors are."""
    return {table: tuple(map(_clone, lookups[table])) for table in tables}


def copies(lookups: Lookups, beside: torch.cuda.Stream | None = None) -> tuple[Lookups, Callable[[], None]]:
    """Copies tensors to the CPU, or by the stream `beside` on its GPU, and does not wait for a GPU.

    Returns the copies, contiguous, and a function that waits until they can be read on the CPU; the copies of
    `beside` can be read in its order.
    """
    if beside is not None:
        now = torch.cuda.current_stream(beside.device)
        beside.wait_stream(now)
        with torch.cuda.stream(beside):
            there = {table: tuple(map(_clone, tensors)) for table, tensors in lookups.items()}
        now.wait_stream(beside)  # before the trainer writes the tensors again
        return there, nothing
    copied: Lookups = {}
    events = []
    for table, tensors in lookups.items():
        copied[table] = tuple(map(_copy, tensors))
        for tensor in tensors:
            if tensor is not None and tensor.is_cuda:
                events.append(torch.cuda.current_stream(tensor.device).record_event())

    def wait() -> None:
        for event in events:
            event.synchronize()

    return copied, wait


def nothing() -> None:
    """There is nothing to wait for."""


def array(tensor: Tensor | None) -> Any:
    """Returns a tensor as NumPy's, on the CPU."""
    return None if tensor is None else tensor.detach().cpu().numpy()


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is other:
        return True
    return (
        one is not None
        and other is not None
        and one.shape == other.shape
        and one.dtype == other.dtype
        and bool(torch.equal(one.detach().cpu(), other.detach().cpu()))
    )


def _clone(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().clone(memory_format=torch.contiguous_format)


def _copy(tensor: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    return copy.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
