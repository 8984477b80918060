"""Which torch optimizers a table's optimizer equals, number by number, and their state.

A table's optimizer leaves the rows alone that a step does not touch. So it equals the torch
optimizers that do so too, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import slotwise.optimizers as ours
from slotwise.errors import InvalidArgument

# The least learning rate that a server takes. A rate of 0, with which many warm-ups begin, becomes
# this one, and moves no row that float32 could show.
_LEAST_RATE = float(np.finfo(np.float32).tiny)


class _Kind(NamedTuple):
    """What there is to know of one torch optimizer.

    Attributes:
        neutral: the settings that a table's optimizer does not have, with the values that make
            torch's formula the table's.
        state: the names of the tensors of a weight's state, in the order of a table's state.
    """

    neutral: Mapping[str, Any]
    state: tuple[str, ...]


_KINDS: dict[type[torch.optim.Optimizer], _Kind] = {
    torch.optim.SGD: _Kind({"momentum": 0, "weight_decay": 0, "maximize": False}, ()),
    torch.optim.Adagrad: _Kind({"lr_decay": 0, "weight_decay": 0, "maximize": False}, ("sum",)),
    torch.optim.SparseAdam: _Kind({"maximize": False}, ("exp_avg", "exp_avg_sq")),
}
_WHY = {
    "momentum": "moves rows that a step does not touch",
    "weight_decay": "moves rows that a step does not touch",
    "lr_decay": "is not a schedule of a table's",
    "maximize": "is not an option of a table's optimizer",
}
_ADVICE = "train embeddings with SGD without momentum, Adagrad or SparseAdam"


def table_optimizer(
    weight_name: str, optimizer: torch.optim.Optimizer, group: Mapping[str, Any]
) -> ours.Optimizer:
    """Returns the table's optimizer that equals `optimizer` with the settings of `group`.

    Raises:
        InvalidArgument: no table's optimizer equals it; the message names the weight and the
            setting.
    """
    kind = _KINDS.get(type(optimizer))
    if kind is None:
        raise InvalidArgument(
            f"{weight_name}: no table's optimizer equals {_name(optimizer)}, step by step and row "
            f"by row: {_ADVICE}"
        )
    for setting, neutral in kind.neutral.items():
        if group.get(setting, neutral) != neutral:
            raise InvalidArgument(
                f"{weight_name}: {setting} of {_name(optimizer)} is {group[setting]}, not "
                f"{neutral}, and {setting} {_WHY[setting]}"
            )
    lr = float(group["lr"])
    if not 0 <= lr < math.inf:
        raise InvalidArgument(f"{weight_name}: lr of {_name(optimizer)} is {lr}, not 0 or above")
    lr = max(lr, _LEAST_RATE)
    if isinstance(optimizer, torch.optim.SGD):
        return ours.SGD(lr)
    if not group["eps"] > 0:
        raise InvalidArgument(f"{weight_name}: eps of {_name(optimizer)} is 0, not above 0")
    if isinstance(optimizer, torch.optim.Adagrad):
        begin = float(group["initial_accumulator_value"])
        return ours.AdaGrad(lr, epsilon=float(group["eps"]), initial_accumulator=begin)
    beta1, beta2 = map(float, group["betas"])
    return ours.Adam(lr, beta1=beta1, beta2=beta2, epsilon=float(group["eps"]))


def wants_sparse_gradients(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether the optimizer refuses dense gradients."""
    return isinstance(optimizer, torch.optim.SparseAdam)


def counts_steps(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether an update depends on how many there were before."""
    return isinstance(optimizer, torch.optim.SparseAdam)


def has_state(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether the optimizer keeps tensors beside a weight."""
    return bool(_KINDS[type(optimizer)].state)


def state_tensors(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> list[Tensor]:
    """Returns a weight's state, [rows, dim] each, in a table's order; [] before the first step."""
    return [state[name] for name in _KINDS[type(optimizer)].state if name in state]


def state_steps(state: Mapping[str, Any]) -> int:
    """Returns how many steps a weight's state has seen."""
    return int(state.get("step", 0))


def make_state(
    optimizer: torch.optim.Optimizer, begun: Mapping[str, Any], tensors: list[Tensor], steps: int
) -> dict[str, Any]:
    """Returns the weight's state as `optimizer` would have it after so many steps.

    Args:
        begun: the state when the weight was adopted.
        tensors: as `state_tensors` gives them.
    """
    if not begun and not steps:
        return {}
    step = torch.tensor(float(steps)) if isinstance(begun.get("step"), Tensor) else steps
    return {"step": step, **dict(zip(_KINDS[type(optimizer)].state, tensors))}


def new_state(optimizer: torch.optim.Optimizer, weight: Tensor, begin: float) -> dict[str, Any]:
    """Returns the state of a weight for which `optimizer` has made no step.

    Args:
        begin: what Adagrad's sums begin at.
    """
    if not isinstance(optimizer, torch.optim.Adagrad):
        return {}  # the first step makes it
    return {"step": torch.tensor(0.0), "sum": torch.full_like(weight, begin)}


def _name(optimizer: torch.optim.Optimizer) -> str:
    kind = type(optimizer)
    return f"torch.optim.{kind.__name__}" if kind.__module__.startswith("torch.") else kind.__name__
