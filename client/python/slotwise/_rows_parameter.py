"""The parameter of one element that stands for a table's rows, and the rows' gathered gradients.

Frameworks clip, unscale and skip by the gradients of an optimizer's parameters. A table's rows are on the
server, so the table has a parameter of one element: its gradient is the norm of the rows' summed gradients.
What multiplies the parameter's gradient multiplies the rows' gradients.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import distributed as distributed_data_parallel
from torch.nn.utils import clip_grad

from slotwise._backward import Part, Tables, session_of
from slotwise._row_norms import RowGradients, norm, nothing, summed, summed_over
from slotwise._shared_session import group_of
from slotwise.errors import FailedPrecondition, InvalidArgument
from slotwise.options import TableOptions


class RowsOfTable(nn.Parameter):
    """Stands for a table's rows: its `grad` is the norm of their summed gradients, float32 [1].

    A read of `grad` computes the norm. A factor that multiplies the norm multiplies the rows' gradients.
    Until gradients are dropped the norm is one tensor, as torch's gradients are: after another backward pass
    the next read of `grad` writes the new norm to the tensor. The parameter's own value means nothing.
    """

    rows: Rows

    def __new__(cls, rows: Rows, device: torch.device) -> RowsOfTable:
        """Makes a parameter that needs no gradient by autograd, so that torch waits for none."""
        make: Any = torch.Tensor._make_subclass
        made: RowsOfTable = make(cls, torch.zeros(1, device=device), False)
        made.rows = rows
        return made

    def __init__(self, rows: Rows, device: torch.device) -> None:
        """`__new__` has made it."""

    @property
    def grad(self) -> Tensor | None:
        """Returns the norm, on the gradients' device; None if there are none.

        FailedPrecondition: the caller clips by values or by another norm than 2; or trainers share the
        session without a process group.
        """
        callers = _callers()
        if _ZEROES in callers[:1]:  # zero_grad() asks whether there is a gradient to forget
            self.rows.drop()
            return None
        if _CLIPS_VALUES in callers:
            raise FailedPrecondition(
                f"clip_grad_value_ would clip the norm of table {self.rows.table}'s gradients, and not each "
                f"of their elements, which are summed on the server: use clip_grad_norm_, or leave the "
                f"table's parameter out"
            )
        if _CLIPS_NORM in callers and _norm_type() != 2:
            raise FailedPrecondition(
                f"clip_grad_norm_ with another norm_type than 2 needs each element of table "
                f"{self.rows.table}'s gradients, which are summed on the server"
            )
        return self.rows.grad()

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            self.rows.drop()
        else:
            self.rows.set_grad(value)

    @grad.deleter
    def grad(self) -> None:
        self.rows.drop()

    @property
    def requires_grad(self) -> bool:
        """Whether the table takes gradients. DistributedDataParallel gets False: autograd gives none."""
        return self.rows.trains and _callers()[0][0] != _PARALLEL

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.rows.trains = bool(value)

    def requires_grad_(self, requires_grad: bool = True) -> RowsOfTable:
        """Sets whether the table takes gradients from now on."""
        self.rows.trains = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """True; InvalidArgument if another optimizer than Slotwise's takes the parameter in."""
        from slotwise._optimizer import Optimizer

        asks: Any = sys._getframe(1).f_locals.get("self")
        if _ADDS in _callers()[:1] and not isinstance(asks, Optimizer):
            raise InvalidArgument(
                f"{type(asks).__name__} was given the rows of table "
                f"{self.rows.table}, which a slotwise.torch.Optimizer steps: make the optimizer of the "
                f"dense weights first, from model.parameters(), and then slotwise.torch.Optimizer"
            )
        return True


_ADDS = sys.modules[torch.optim.Optimizer.__module__].__file__, "add_param_group"
_ZEROES = nn.modules.module.__file__, "zero_grad"
_CLIPS_VALUES = clip_grad.__file__, "clip_grad_value_"
_CLIPS_NORM = clip_grad.__file__, "clip_grad_norm_"
_PARALLEL = distributed_data_parallel.__file__


def _callers() -> list[tuple[str | None, str]]:
    """Returns the files and names of the two functions that ask for a parameter's property."""
    places: list[tuple[str | None, str]] = []
    frame: Any = sys._getframe(2)
    while frame is not None and len(places) < 2:
        places.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    return places


def _norm_type() -> float:
    """Returns what the function that clips, one of the two that ask, was given."""
    for depth in (2, 3):
        given = sys._getframe(depth).f_locals.get("norm_type")
        if given is not None:
            return float(given)
    return 2.0


class Rows:
    """A table, and the gradients that were gathered for its rows.

    Attributes:
        tables: the `Tables` of one of the modules that look it up.
        parts: what was gathered, in the order in which it came, each of this table alone.
        parameter: stands for its rows.
        lr: the table's own rate.
        trains: whether it takes what backward passes give.
    """

    def __init__(
        self, table: str, options: TableOptions, tables: Tables, lock: threading.RLock, device: torch.device
    ) -> None:
        self.table, self.options, self.tables = table, options, tables
        self.parts: list[Part] = []
        self.together: list[Rows] = [self]  # whose norms are computed together
        self.trains = True
        self.parameter = RowsOfTable(self, device)
        info = tables.ps.describe_table(table)
        self.lr = float(str(np.float32(info.base_learning_rate or options.optimizer.lr)))
        self.generation = info.generation
        self._lock = lock
        self._norm: Tensor | None = None  # as it was computed
        self._grad: Tensor | None = None  # what others may multiply; keeps its place until all is dropped
        self._version = 0  # of `_grad`, when its norm was no longer the gradients'
        self._asked = False  # whether the norm was computed, or found to be none, since the last gathering

    def begin(self) -> None:
        """Makes ready for a backward pass through this table or another table of its step."""
        factor = self._settle()
        if factor is not None and bool(factor == 0):  # as setting gradients to zero does
            self.parts = []

    def gather(self, part: Part) -> None:
        """Adds a part of a backward pass."""
        if self.trains:
            self.parts.append(part)

    def drop(self) -> None:
        """Forgets what was gathered."""
        with self._lock:
            self.parts, self._norm, self._grad, self._asked = [], None, None, False

    def grad(self) -> Tensor | None:
        """Returns the norm; see `RowsOfTable.grad`."""
        with self._lock:
            if not self._asked:
                for rows in self.together:
                    rows.begin()
                # Even where results are no tensors to write to, the norm may be clipped later.
                with torch.inference_mode(False), torch.no_grad():
                    _compute(self.together)
            return None if self._norm is None else self._grad

    def set_grad(self, value: Tensor) -> None:
        """Has `value` stand for the norm: the rows' gradients are multiplied by the quotient."""
        with self._lock:
            if self.grad() is None or value.numel() != 1:
                raise InvalidArgument(
                    f"the gradient of table {self.table}'s rows is a tensor of one element, after a "
                    f"backward() that gave them one"
                )
            with torch.inference_mode(False):
                self._grad = value.clone() if value.is_inference() else value.detach()

    def computed(self, total: Tensor | None) -> None:
        """Takes the norm; None: there are no gradients."""
        self._asked = True
        self._norm = total
        if total is not None and self._grad is not None and self._grad.device == total.device:
            self._grad.copy_(total)
        elif total is not None:
            self._grad = total.clone()

    def settled(self) -> list[Part]:
        """Returns the gathered parts, multiplied by what the norm was multiplied by."""
        with self._lock:
            self._settle()
            return list(self.parts)

    def _settle(self) -> Tensor | None:
        """Multiplies the gathered parts as the norm was multiplied; returns the factor, if there is one.

        FailedPrecondition: the norm was changed when it was no longer the gradients'.
        """
        original, now = self._norm, self._grad
        if now is None:
            self._asked = False
            return None
        if not self._asked and now._version != self._version:
            raise FailedPrecondition(
                f"the gradient of table {self.table}'s rows was changed, but a backward() had come since it "
                f"was asked for: ask for the parameter's grad after the last backward(), and change that"
            )
        self._norm, self._asked, self._version = None, False, now._version
        if original is None:
            return None
        if now.device.type == "cpu" and torch.equal(now, original):  # a GPU would have to be waited for
            return None
        now = now.to(original)
        factor: Tensor = torch.where(now == 0, torch.zeros_like(now), now / original)  # of NaN, too
        factor = torch.where(original == 0, torch.ones_like(now), factor)
        for place, part in enumerate(self.parts):
            given = {table: _times(each, factor.to(each.device)) for table, each in part.gradients.items()}
            self.parts[place] = replace(part, gradients=given)
        return factor


def _times(gradient: Tensor, factor: Tensor) -> Tensor:
    """Returns the product; 0 times infinity is 0 here, as of a gradient that was set to zero."""
    return torch.where(factor == 0, torch.zeros_like(factor), gradient * factor)


def _compute(all_rows: list[Rows]) -> None:
    """Computes the norms of tables, over all trainers if they share the tables' session."""
    first = all_rows[0]
    session = session_of(first.tables)
    if session is None or not session.is_shared:
        for rows in all_rows:
            own = _own_sums(rows)
            rows.computed(None if own is None else norm(own[1]))
        return
    group = group_of(session)
    if group is None:
        names = ", ".join(rows.table for rows in all_rows)
        raise FailedPrecondition(
            f"the gradients' norm of tables {names} is one over all trainers, which are not known: draw the "
            f"session by slotwise.torch.shared_session(ps), which knows them by their process group"
        )
    devices = [part.gradients[rows.table].device for rows in all_rows for part in rows.parts]
    device = devices[0] if devices else torch.device("cpu")
    mine: list[RowGradients] = []
    for rows in all_rows:
        keys, sums = _own_sums(rows) or nothing(rows.options, device)
        mine.append((keys.to(device), sums.to(device)))
    total = summed_over(group[0], mine)
    for place, rows in enumerate(all_rows):
        rows.computed(None if total is None else norm(total[place][1], session.divisor))


def _own_sums(rows: Rows) -> RowGradients | None:
    parts = [(part.lookups[rows.table], part.gradients[rows.table]) for part in rows.parts]
    return summed(rows.options, parts) if parts else None
