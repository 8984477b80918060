"""An optimizer to hold: `slotwise.torch.Optimizer` gathers what backward passes give, until `step()`.

Frameworks clip, unscale and skip by the gradients of an optimizer's parameters. A table's rows are on the
server, so the table has a parameter of one element that stands for them: its gradient is the norm of the
rows' summed gradients. Whatever multiplies the parameter's gradient multiplies the rows' gradients.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import distributed as distributed_data_parallel
from torch.nn.utils import clip_grad

from slotwise._backward import Part, StepOfTables, Tables, session_of, share
from slotwise._row_norms import RowGradients, norm, nothing, summed, summed_over
from slotwise._shared_session import group_of
from slotwise._tensors import Lookups, own_clones
from slotwise.errors import FailedPrecondition, InvalidArgument
from slotwise.options import TableOptions
from slotwise.session import Session

_Dense = torch.optim.Optimizer


class RowsOfTable(nn.Parameter):
    """Stands for a table's rows: its `grad` is the norm of their summed gradients, float32 [1].

    The norm is computed when somebody asks for it. What is done to it by multiplication is done to the rows'
    gradients. Its own value means nothing.
    """

    rows: _Rows

    def __new__(cls, rows: _Rows, device: torch.device) -> RowsOfTable:
        """Makes one that needs no gradient by autograd, so that nobody waits for one."""
        make: Any = torch.Tensor._make_subclass
        made: RowsOfTable = make(cls, torch.zeros(1, device=device), False)
        made.rows = rows
        return made

    def __init__(self, rows: _Rows, device: torch.device) -> None:
        """Has been made."""

    @property
    def grad(self) -> Tensor | None:
        """Returns the norm, on the gradients' device; None if there are none.

        Raises:
            FailedPrecondition: `clip_grad_value_` asks; or trainers share the session, and not by a
                process group.
        """
        callers = _callers()
        if _ZEROES in callers[:1]:  # asks whether there is something to forget
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
        """Returns whether the table takes gradients; to DistributedDataParallel that autograd gives none."""
        return self.rows.trains and _callers()[0][0] != _PARALLEL

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.rows.trains = bool(value)

    def requires_grad_(self, requires_grad: bool = True) -> RowsOfTable:
        """Says whether the table takes what backward passes give from now on."""
        self.rows.trains = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Is asked by optimizers that take it in.

        Raises:
            InvalidArgument: another optimizer than Slotwise's does.
        """
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


class _Rows:
    """A table, and what was gathered for its rows.

    Attributes:
        table: its name.
        options: its options.
        tables: of one of the modules that look it up.
        parts: what was gathered, in the order in which it came, each of this table alone.
        parameter: stands for its rows.
        lr: the table's own rate.
        lineage: of the table.
        trains: whether it takes what backward passes give.
    """

    def __init__(
        self,
        table: str,
        options: TableOptions,
        tables: Tables,
        lock: threading.RLock,
        device: torch.device,
    ) -> None:
        self.table, self.options, self.tables = table, options, tables
        self.parts: list[Part] = []
        self.together: list[_Rows] = [self]  # whose norms are computed together
        self.trains = True
        self.parameter = RowsOfTable(self, device)
        info = tables.ps.describe_table(table)
        self.lr = float(str(np.float32(info.base_learning_rate or options.optimizer.lr)))
        self.lineage = info.lineage
        self._lock = lock
        self._norm: Tensor | None = None  # as it was computed
        self._grad: Tensor | None = None  # what others may have multiplied
        self._asked = False  # whether it was computed, or found to be nothing, since something was gathered

    def begin(self) -> None:
        """Makes ready for what a backward pass gives to this table or another one of its step."""
        factor = self._settle()
        if factor is not None and bool(factor == 0):  # as setting gradients to zero does
            self.parts = []

    def gather(self, part: Part) -> None:
        """Adds what a backward pass gave."""
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
                _compute(self.together)
            return self._grad

    def set_grad(self, value: Tensor) -> None:
        """Has `value` stand for the norm: the rows' gradients are multiplied by the quotient."""
        with self._lock:
            if self.grad() is None or value.numel() != 1:
                raise InvalidArgument(
                    f"the gradient of table {self.table}'s rows is a tensor of one element, after a "
                    f"backward() that gave them one"
                )
            self._grad = value.detach()

    def computed(self, total: Tensor | None) -> None:
        """Takes the norm; None: there are no gradients."""
        self._asked = True
        self._norm = total
        self._grad = None if total is None else total.clone()

    def settled(self) -> list[Part]:
        """Returns what was gathered, multiplied by what the norm was multiplied by."""
        with self._lock:
            self._settle()
            return list(self.parts)

    def _settle(self) -> Tensor | None:
        """Multiplies what was gathered as the norm was; returns the factor, if there is one."""
        original, now = self._norm, self._grad
        self._norm = self._grad = None
        self._asked = False
        if original is None or now is None:
            return None
        if now.device.type == "cpu" and torch.equal(now, original):  # a GPU would have to be waited for
            return None
        now = now.to(original)
        factor: Tensor = torch.where(now == 0, torch.zeros_like(now), now / original)  # of NaN, too
        factor = torch.where(original == 0, torch.ones_like(now), factor)
        for place, part in enumerate(self.parts):
            given = {
                table: _times(each, factor.to(each.device)) for table, each in part.gradients.items()
            }
            self.parts[place] = replace(part, gradients=given)
        return factor


def _times(gradient: Tensor, factor: Tensor) -> Tensor:
    """Returns the product; 0 times infinity is 0 here, as of a gradient that was set to zero."""
    return torch.where(factor == 0, torch.zeros_like(factor), gradient * factor)


def _compute(all_rows: list[_Rows]) -> None:
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


def _own_sums(rows: _Rows) -> RowGradients | None:
    parts = [(part.lookups[rows.table], part.gradients[rows.table]) for part in rows.parts]
    return summed(rows.options, parts) if parts else None


class Optimizer(torch.optim.Optimizer):
    """Steps the rows of modules of `slotwise.torch`, as torch's optimizers step their weights.

    `backward()` then pushes nothing: gradients gather, over as many as there are, until `step()` pushes
    them as one step of all tables. The tables' own optimizers apply it, each once, at the `lr` of the table's
    group, which torch's schedulers may move. `GradScaler` unscales the rows' gradients and skips steps,
    and `clip_grad_norm_(model.parameters(), ...)` counts and clips them. `step()` of a client whose modules
    were made with `in_flight=True` returns before its push is applied.

    The first Optimizer that a module is given steps it until another one is made; modules without one push
    in `backward()`.

    Attributes:
        param_groups: a group for each table ("table", "lr"), and then those of `dense`.

    As thread-safe as torch's: `backward()` may come from several threads, all else from one.
    """

    def __init__(
        self, modules: nn.Module | Iterable[nn.Module], *, dense: _Dense | None = None
    ) -> None:
        """Takes the modules of `slotwise.torch` in a model, or in several.

        Args:
            modules: a model, or several.
            dense: the optimizer of the other weights, for frameworks that take one optimizer: this one
                then stands for both.

        Raises:
            slotwise.InvalidArgument: there is no module of `slotwise.torch`; or modules of one client
                have several sessions, or those of several clients a table; or `dense` cannot stand beside.
        """
        from slotwise._remote import Remote

        if isinstance(dense, (Optimizer, torch.optim.LBFGS)):
            raise InvalidArgument(
                f"dense is a {type(dense).__name__}, which cannot be stepped beside tables: give the "
                f"optimizer of dense weights that takes one step a call"
            )
        models = [modules] if isinstance(modules, nn.Module) else list(modules)
        if not all(isinstance(model, nn.Module) for model in models):
            raise InvalidArgument("Optimizer: takes a model, or several, and not their parameters")
        found: dict[int, Remote] = {}
        for model in models:
            found.update((id(each), each) for each in model.modules() if isinstance(each, Remote))
        if not found:
            raise InvalidArgument("Optimizer: there is no module of slotwise.torch in what it is to step")
        # The parameters lie where the dense weights do: DistributedDataParallel wants devices of one type.
        dense_weights = (
            each for model in models for each in model.parameters() if not isinstance(each, RowsOfTable)
        )
        device = next((weight.device for weight in dense_weights), torch.device("cpu"))
        self._lock = threading.RLock()
        self._modules = list(found.values())
        self._rows: dict[tuple[int, str], _Rows] = {}
        self._dense: _Dense | None = None
        self._own_groups: list[dict[str, Any]] = []
        self._own_state: Any = defaultdict(dict)
        for module in self._modules:
            for table, options in module._tables.items():
                key = id(module._ps), table
                if key not in self._rows:
                    self._rows[key] = _Rows(table, options, module._of_steps, self._lock, device)
        self._steps = self._check_sessions()
        self._check_tables()
        groups = [
            {"params": [rows.parameter], "table": rows.table, "lr": rows.lr}
            for rows in self._rows.values()
        ]
        super().__init__(groups, {"lr": next(iter(self._rows.values())).lr})
        self._dense = dense
        for module in self._modules:
            of_module = [self._rows[id(module._ps), table] for table in module._tables]
            before = module._optimizer
            module._be_stepped_by(self, [rows.parameter for rows in of_module])
            for rows in of_module if before is not None else []:  # the gradients are the model's
                gathered = before._rows[id(module._ps), rows.table]
                rows.parts += gathered.settled()
                gathered.drop()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Returns the tables' groups, and then those of the dense weights' optimizer."""
        return self._own_groups + self._dense.param_groups if self._dense else self._own_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self._own_groups = groups

    @property
    def state(self) -> Any:
        """Returns the state of the dense weights' optimizer; the tables' is on the server."""
        return self._dense.state if self._dense else self._own_state

    @state.setter
    def state(self, state: Any) -> None:
        self._own_state = state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of dense weights.

        Raises:
            slotwise.InvalidArgument: there is no optimizer of dense weights.
        """
        if len(self._own_groups) < len(self._rows):
            return super().add_param_group(param_group)
        if self._dense is None:
            raise InvalidArgument("a slotwise.torch.Optimizer without dense= has no dense weights")
        self._dense.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Forgets what was gathered.

        Args:
            set_to_none: for the dense weights, as torch's; None: torch's default.
        """
        for rows in self._rows.values():
            rows.drop()
        if self._dense is not None:
            self._dense.zero_grad(*([] if set_to_none is None else [set_to_none]))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Pushes what was gathered, as one step of all tables that have something, and steps `dense`.

        Where trainers share the session, every call is a step, of all its tables. What was gathered stays
        until `zero_grad()`, as torch's gradients do.

        Args:
            closure: is called first; its result is returned.

        Raises:
            slotwise.Error: the push was refused, for example because a gradient is not finite. Then no weight
                has moved; of several clients, those before it have. If no answer came, the step may have been
                applied, and calling this again would be another step. Of modules made with `in_flight=True`
                the error comes later, and the dense weights have moved.
            slotwise.FailedPrecondition: another Optimizer was made of one of the modules since.
            slotwise.InvalidArgument: the `lr` of a table with a `Schedule` was moved.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        taken = [module for module in self._modules if module._optimizer is not self]
        if taken:
            raise FailedPrecondition(
                f"{taken[0]._name()} is stepped by another slotwise.torch.Optimizer, which was made since"
            )
        rates = self._rates()
        for all_rows in self._steps:
            parts = [part for rows in all_rows for part in rows.settled()]
            session = session_of(all_rows[0].tables)
            if parts or (session is not None and session.is_shared):
                of_step = {rows.table: rates[id(rows)] for rows in all_rows}
                StepOfTables(all_rows[0].tables, parts, of_step).push()
        if self._dense is not None:
            self._dense.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Returns the tables' groups without their parameters, and all of `dense`."""
        of_dense: dict[str, Any] = {"state": {}, "param_groups": []}
        if self._dense is not None:
            of_dense = self._dense.state_dict()
        own: list[dict[str, Any]] = [
            {**group, "params": [], "table_lr": rows.lr}
            for group, rows in zip(self._own_groups, self._rows.values())
        ]
        return {**of_dense, "param_groups": own + of_dense["param_groups"]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what `state_dict` returned.

        Raises:
            slotwise.InvalidArgument: it is of other tables, or of an optimizer with or without `dense`.
        """
        groups = state_dict["param_groups"]
        own = [group for group in groups if "table" in group]
        rest = [group for group in groups if "table" not in group]
        names = [[group["table"] for group in each] for each in (own, self._own_groups)]
        if names[0] != names[1]:
            raise InvalidArgument(
                f"the state is of an Optimizer of tables {', '.join(names[0]) or 'none'}, and this is one "
                f"of {', '.join(names[1])}"
            )
        if self._dense is None and rest:
            raise InvalidArgument("the state has dense weights' groups, and this Optimizer has no dense=")
        if self._dense is not None:
            self._dense.load_state_dict({**state_dict, "param_groups": rest})
        for mine, saved, rows in zip(self._own_groups, own, self._rows.values()):
            left_out = {"params", "table_lr"}
            if saved["lr"] == saved["table_lr"]:  # it was the table's own, which may be another one now
                left_out.add("lr")
                mine["lr"] = rows.lr
            mine.update({name: value for name, value in saved.items() if name not in left_out})

    def _gather(self, parts: list[Part]) -> None:
        """Takes what a backward pass gave to modules of this optimizer."""
        with self._lock:
            self._gather_locked(parts)

    def _gather_locked(self, parts: list[Part]) -> None:
        clients = {id(part.tables.ps) for part in parts}
        for (ps, _), rows in self._rows.items():
            if ps in clients:  # where trainers share its step, all of them ask anew for all norms
                rows.begin()
        for part in parts:
            lookups = part.found.owned or own_clones(part.lookups, part.gradients)
            for table, gradient in part.gradients.items():
                owned: Lookups = {table: lookups[table]}
                self._rows[id(part.tables.ps), table].gather(
                    replace(
                        part,
                        lookups=owned,
                        gradients={table: gradient.detach().clone()},
                        found=replace(part.found, owned=owned),
                    )
                )

    def _check_sessions(self) -> list[list[_Rows]]:
        """Returns the tables of each client, which make a step."""
        sessions: dict[int, Session | None] = {}
        for module in self._modules:
            session = session_of(module._of_steps)
            if sessions.setdefault(id(module._ps), session) is not session:
                raise InvalidArgument(
                    f"{module._name()} has another session than a module of the same client before it: an "
                    f"Optimizer makes one step of a client's tables"
                )
        steps: dict[int, list[_Rows]] = defaultdict(list)
        for (ps, _), rows in self._rows.items():
            steps[ps].append(rows)
        for all_rows in steps.values():
            session = session_of(all_rows[0].tables)
            if session is None or not session.is_shared:
                continue
            for rows in all_rows:
                rows.together = all_rows
            mine = {rows.table for rows in all_rows}
            others = [table for table in share(session, all_rows[0].tables) if table not in mine]
            if others:
                raise InvalidArgument(
                    f"tables {', '.join(others)} are of the same shared session, whose steps have all its "
                    f"tables, and not in the Optimizer: give it all models that use the session"
                )
        return list(steps.values())

    def _check_tables(self) -> None:
        by_lineage: dict[int, _Rows] = {}
        for rows in self._rows.values():
            if rows.lineage and by_lineage.setdefault(rows.lineage, rows) is not rows:
                raise InvalidArgument(
                    f"table {rows.table} is looked up by modules of two clients, and its gradients have one "
                    f"norm and one step: make them of one client"
                )

    def _rates(self) -> dict[int, float | None]:
        """Returns the rate of each table's next step, by the rows' id; None: the table's own."""
        rates: dict[int, float | None] = {}
        for group, rows in zip(self._own_groups, self._rows.values()):
            rate = float(group["lr"])
            if not math.isfinite(rate) or rate < 0:
                raise InvalidArgument(f"table {rows.table}: lr is {rate}: must be finite, and at least 0")
            rates[id(rows)] = None if rate == rows.lr else rate
            schedule = rows.options.optimizer.schedule
            if rate != rows.lr and (schedule.warmup_steps or schedule.decay_steps):
                raise InvalidArgument(
                    f"table {rows.table}: lr was moved from {rows.lr:g} to {rate:g}, but the table has a "
                    f"Schedule, which decides its rate: make the table without one, or leave its group alone"
                )
        return rates
