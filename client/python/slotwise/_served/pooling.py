"""Sums and divisors of bags, as docs/semantics.md has them.

`torch.jit.script` compiles all functions, and their operations export to ONNX with sizes that vary. So
annotations are those of `typing`, and a size is taken from a shape, never from a value. Branches of a trace
are decided by a `fixed_shape`, in what does not vary between the batches of one trace.
"""

import warnings
from typing import List, Optional

import torch
from torch import Tensor


def are_values_there(given: Tensor) -> bool:
    """Whether a tensor has values to check, because torch does not record the operations on it."""
    if torch.jit.is_scripting():
        return True
    if hasattr(torch, "compiler") and torch.compiler.is_compiling():  # torch.compile, torch.export
        return False
    return not torch.jit.is_tracing() and type(given).__name__ not in ("FakeTensor", "FunctionalTensor")


def fixed_shape(given: Tensor) -> List[int]:
    """Returns a shape to decide branches by, whose numbers a trace does not follow."""
    if torch.jit.is_scripting():
        return list(given.shape)
    if not torch.jit.is_tracing():
        return list(given.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        return [int(size) for size in given.shape]


def whole_offsets(offsets: Tensor, keys: Tensor, slots: int, have_end: bool) -> Tensor:
    """Returns offsets with their end, int64 [samples * slots + 1].

    Args:
        offsets: integers [samples * slots], or one more.
        keys: [keys].
        have_end: whether the offsets end with the number of keys. With several slots the length decides.

    Raises:
        ValueError: the offsets have another shape, or do not rise from 0 to the number of keys.
    """
    if keys.dim() != 1 or offsets.dim() != 1 or offsets.is_floating_point():
        raise ValueError("with offsets, keys and offsets must be 1-D, and offsets integers")
    whole = offsets.to(device=keys.device, dtype=torch.int64)
    if not have_end:
        whole = torch.cat([whole, _length_of(keys)])
    if slots > 1 and fixed_shape(whole)[0] % slots == 0:
        whole = torch.cat([whole, _length_of(keys)])
    count = fixed_shape(whole)[0]
    if count == 0 or count % slots != 1 % slots:
        raise ValueError("offsets must have samples * slots + 1 elements")
    if are_values_there(whole):
        rises = bool((whole[1:] >= whole[:-1]).all())
        if not rises or int(whole[0]) != 0 or int(whole[-1]) != keys.shape[0]:
            raise ValueError("offsets must rise from 0 to the number of keys")
    return whole


def bag_of_each_key(offsets: Tensor, keys: Tensor) -> Tensor:
    """Returns the number of each key's bag, int64 [keys]; offsets are int64 [bags + 1], with their end."""
    ends = offsets[1:]  # several bags end at one place where some are empty
    marks = torch.zeros_like(torch.arange(keys.shape[0] + 1, device=keys.device))
    return marks.scatter_add(0, ends, torch.ones_like(ends)).cumsum(0)[:-1]


def sum_by_bag(values: Tensor, columns: int, bag: Tensor, bags: int) -> Tensor:
    """Returns the sums [bags, columns] of each bag's values [keys, columns]; `bag` is int64 [keys]."""
    zeros = torch.zeros([bags, columns], dtype=values.dtype, device=values.device)
    return zeros.scatter_add(0, bag.unsqueeze(1).expand(-1, columns), values)


def divided(sums: Tensor, totals: Tensor, combiner: str) -> Tensor:
    """Returns sums [bags, dim] divided by totals, or for "sqrtn" by roots; zeros where the divisor is 0.

    The totals [bags, 1] are sums of weights, for "sqrtn" of their squares.
    """
    divisor = totals.sqrt() if combiner == "sqrtn" else totals
    return (sums / divisor).masked_fill(divisor == 0, 0.0)


def shares(counts: Tensor, weights: Optional[Tensor], combiner: str) -> Tensor:
    """Returns what each key adds to its bag's total; `counts` are float32, 1 a key, and 0 for padding."""
    mine = counts if weights is None else counts * weights
    return mine * mine if combiner == "sqrtn" else mine


def sum_fused(rows: Tensor, positions: Tensor, offsets: Tensor, weights: Optional[Tensor]) -> Tensor:
    """Returns the sums of bags of rows, [bags, dim], without a copy of every key's row.

    The rows are [rows, dim], positions int64 [keys], offsets int64 [bags + 1], weights [keys] of rows' type.
    """
    # torch.nn.functional's function warns of a trace. 0 is the mode "sum"; the last True means that offsets
    # have their end.
    return torch.embedding_bag(rows, positions, offsets, False, 0, False, weights, True)[0]


def _length_of(keys: Tensor) -> Tensor:
    """Returns the number of keys as int64 [1]; a trace follows it."""
    return torch.arange(keys.shape[0] + 1, device=keys.device)[-1:]
