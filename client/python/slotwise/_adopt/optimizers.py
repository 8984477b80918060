"""The torch optimizers that a table's optimizer equals, number by number, and their state.

A table's optimizer leaves rows alone that a step does not touch. So it equals the torch optimizers that do so
too; with `lazy` it equals others on the rows that a step touches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import slotwise.optimizers as ours
from slotwise.errors import InvalidArgument

# The least learning rate that a server takes, which moves no row that float32 could show. A rate of 0, with
# which many warm-ups begin, becomes this rate.
_LEAST_RATE = float(np.finfo(np.float32).tiny)


class _Kind(NamedTuple):
    """One torch optimizer.

    Attributes:
        neutral: the settings that a table's optimizer lacks, with the values that make torch's formula the
            table's.
        state: the names of the tensors of a weight's state, in the order of a table's state.
        lazy: whether torch moves rows that a step does not touch, and the table does not.
        row_wise: whether the state has one number a row.
    """

    neutral: Mapping[str, Any]
    state: tuple[str, ...]
    lazy: bool = False
    row_wise: bool = False


_ADAM = _Kind({"amsgrad": False, "maximize": False}, ("exp_avg", "exp_avg_sq"), lazy=True)
_ADAGRAD = _Kind({"lr_decay": 0, "maximize": False}, ("sum",))
# By the names of their classes.
_KINDS: dict[str, _Kind] = {
    "torch.optim.SGD": _Kind({"momentum": 0, "maximize": False}, ()),
    "torch.optim.Adagrad": _ADAGRAD,
    "torch.optim.SparseAdam": _Kind({"maximize": False}, ("exp_avg", "exp_avg_sq")),
    "torch.optim.Adam": _ADAM,
    "torch.optim.AdamW": _ADAM,
    "torchrec.optim.RowWiseAdagrad": _ADAGRAD._replace(row_wise=True),
}
_WHY = {
    "momentum": "moves rows that a step does not touch",
    "lr_decay": "is not a schedule of a table's",
    "maximize": "is not an option of a table's optimizer",
    "amsgrad": "is not an option of a table's optimizer",
}
_ADVICE = "train embeddings with SGD without momentum, Adagrad, SparseAdam, or with lazy=True Adam or AdamW"


def table_optimizer(
    weight_name: str, optimizer: torch.optim.Optimizer, group: Mapping[str, Any], lazy: bool
) -> ours.Optimizer:
    """Returns the table's optimizer that equals `optimizer` with the settings of `group`.

    With `lazy` the two may be equal on the rows alone that a step touches. InvalidArgument: no table's
    optimizer equals it; the message names the weight and the setting.
    """
    kind = _KINDS.get(_name(optimizer))
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
    decay = float(group.get("weight_decay", 0))
    if not lazy and (kind.lazy or decay != 0):
        mover = _name(optimizer) if kind.lazy else f"weight_decay of {_name(optimizer)}, {decay:g},"
        raise InvalidArgument(
            f"{weight_name}: {mover} moves rows that a step does not touch, and a table leaves them alone: "
            f"adopt(model, ps, optimizer, lazy=True) has touched rows moved as it moves them, and the others "
            f"rest"
        )
    if not 0 <= decay < math.inf:
        raise InvalidArgument(f"{weight_name}: weight_decay of {_name(optimizer)} is {decay}, not 0 or above")
    lr = float(group["lr"])
    if not 0 <= lr < math.inf:
        raise InvalidArgument(f"{weight_name}: lr of {_name(optimizer)} is {lr}, not 0 or above")
    lr = max(lr, _LEAST_RATE)
    if isinstance(optimizer, torch.optim.SGD):
        return ours.SGD(lr, weight_decay=decay)
    if not group["eps"] > 0:
        raise InvalidArgument(f"{weight_name}: eps of {_name(optimizer)} is 0, not above 0")
    epsilon = float(group["eps"])
    if kind.state == ("sum",):
        begin = float(group["initial_accumulator_value"])
        if kind.row_wise:
            return ours.RowWiseAdaGrad(lr, epsilon, begin, decay)
        return ours.AdaGrad(lr, epsilon, begin, decay)
    beta1, beta2 = map(float, group["betas"])
    decoupled = isinstance(optimizer, torch.optim.AdamW)
    return ours.Adam(lr, beta1, beta2, epsilon, decay, corrected_epsilon=kind.lazy, decoupled_decay=decoupled)


def as_float32(optimizer: ours.Optimizer) -> ours.Optimizer:
    """Returns the optimizer with its numbers rounded to float32, as a server's table has them."""
    numbers = {
        field.name: float(np.float32(getattr(optimizer, field.name)))
        for field in fields(optimizer)
        if isinstance(getattr(optimizer, field.name), float)
    }
    return replace(optimizer, **numbers)


def unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Returns the optimizer that Accelerate has wrapped, or the same one."""
    wrapper: Any = optimizer
    is_wrapped = type(optimizer).__name__ == "AcceleratedOptimizer" and hasattr(optimizer, "optimizer")
    return wrapper.optimizer if is_wrapped else optimizer


def wants_sparse_gradients(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether the optimizer refuses dense gradients."""
    return isinstance(optimizer, torch.optim.SparseAdam)


def counts_steps(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether an update depends on how many there were before."""
    return _kind(optimizer).state == ("exp_avg", "exp_avg_sq")


def has_state(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether the optimizer keeps tensors beside a weight."""
    return bool(_kind(optimizer).state)


def state_tensors(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> list[Tensor]:
    """Returns a weight's state, [rows, dim] each, in a table's order; [] before the first step."""
    return [state[name] for name in _kind(optimizer).state if name in state]


def state_steps(state: Mapping[str, Any]) -> int:
    """Returns how many steps a weight's state has seen."""
    return int(state.get("step", 0))


def state_widths(optimizer: torch.optim.Optimizer, dim: int) -> list[int]:
    """Returns how many numbers of a row each tensor of a weight's state has."""
    kind = _kind(optimizer)
    return [1 if kind.row_wise else dim] * len(kind.state)


def make_state(
    optimizer: torch.optim.Optimizer, begun: Mapping[str, Any], tensors: list[Tensor], steps: int
) -> dict[str, Any]:
    """Returns the weight's state, `begun` at adoption, as `optimizer` would have it after so many steps."""
    if not begun and not steps:
        return {}
    kind = _kind(optimizer)
    is_tensor = isinstance(begun.get("step"), Tensor) or (not begun and kind.lazy)
    step = torch.tensor(float(steps)) if is_tensor else steps
    return {"step": step, **dict(zip(kind.state, tensors))}


def new_state(optimizer: torch.optim.Optimizer, weight: Tensor, begin: float) -> dict[str, Any]:
    """Returns the state of a weight before the first step; Adagrad's sums begin at `begin`."""
    kind = _kind(optimizer)
    if kind.state != ("sum",):
        return {}  # the first step makes it
    shape = (len(weight), 1) if kind.row_wise else weight.shape
    return {"step": torch.tensor(0.0), "sum": torch.full(shape, begin, device=weight.device)}


def _kind(optimizer: torch.optim.Optimizer) -> _Kind:
    return _KINDS[_name(optimizer)]


def _name(optimizer: torch.optim.Optimizer) -> str:
    kind = type(optimizer)
    for package in ("torch.", "torchrec."):
        if kind.__module__.startswith(package):
            return f"{package}optim.{kind.__name__}"
    return kind.__name__
