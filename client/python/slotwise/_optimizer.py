"""An optimizer to hold: `slotwise.torch.Optimizer` gathers what backward passes give, until `step()`."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from slotwise._backward import Part, StepOfTables, session_of, share
from slotwise._rows_parameter import Rows, RowsOfTable
from slotwise._tensors import Lookups, own_clones
from slotwise.errors import FailedPrecondition, InvalidArgument
from slotwise.session import Session

_Dense = torch.optim.Optimizer


class Optimizer(torch.optim.Optimizer):
    """Steps the rows of modules of `slotwise.torch`, as torch's optimizers step their weights.

    `backward()` then pushes nothing: gradients gather, over several passes too, until `step()` pushes them as
    one step of all tables. The tables' own optimizers apply the step, each once, at the `lr` of the table's
    group, which torch's schedulers may move. `GradScaler` unscales the rows' gradients and skips steps,
    and `clip_grad_norm_(model.parameters(), ...)` counts and clips the gradients. `step()` of a client whose
    modules were made with `in_flight=True` returns before the push is applied.

    The newest Optimizer of a module steps it; modules without an Optimizer push in `backward()`.

    Attributes:
        param_groups: a group for each table ("table", "lr"), and then those of `dense`.

    As thread-safe as torch's: `backward()` may come from several threads, all else from one.
    """

    def __init__(self, modules: nn.Module | Iterable[nn.Module], *, dense: _Dense | None = None) -> None:
        """Takes the modules of `slotwise.torch` in a model, or in several.

        Args:
            modules: a model, or several.
            dense: the optimizer of the other weights, for frameworks that take one optimizer: the new one
                then stands for both.

        Raises:
            slotwise.InvalidArgument: there is no module of `slotwise.torch`; modules of one client have
                several sessions; modules of several clients have one table; or `dense` is an Optimizer of
                Slotwise or an LBFGS.
        """
        from slotwise._modules import RemoteEmbedding

        if isinstance(dense, (Optimizer, torch.optim.LBFGS)):
            raise InvalidArgument(
                f"dense is a {type(dense).__name__}, which cannot be stepped beside tables: give the "
                f"optimizer of dense weights that takes one step a call"
            )
        models = [modules] if isinstance(modules, nn.Module) else list(modules)
        if not all(isinstance(model, nn.Module) for model in models):
            raise InvalidArgument("Optimizer: takes a model, or several, and not their parameters")
        found: dict[int, RemoteEmbedding] = {}
        for model in models:
            found.update((id(each), each) for each in model.modules() if isinstance(each, RemoteEmbedding))
        if not found:
            raise InvalidArgument("Optimizer: there is no module of slotwise.torch in what it is to step")
        # The parameters lie where the dense weights do: DistributedDataParallel wants devices of one type.
        dense_weights = (
            each for model in models for each in model.parameters() if not isinstance(each, RowsOfTable)
        )
        device = next((weight.device for weight in dense_weights), torch.device("cpu"))
        self._lock = threading.RLock()
        self._modules = list(found.values())
        self._rows: dict[tuple[int, str], Rows] = {}
        self._dense: _Dense | None = None
        self._own_groups: list[dict[str, Any]] = []
        self._own_state: Any = defaultdict(dict)
        for module in self._modules:
            for table, options in module._tables.items():
                key = id(module._ps), table
                if key not in self._rows:
                    self._rows[key] = Rows(table, options, module._of_steps, self._lock, device)
        self._steps = self._check_sessions()
        self._check_tables()
        groups = [
            {"params": [rows.parameter], "table": rows.table, "lr": rows.lr} for rows in self._rows.values()
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
            slotwise.InvalidArgument: there is no `dense`.
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
                has moved; of several clients, the clients' before have. If no answer came, the step may have
                been applied, and another call would be another step. Of modules made with `in_flight=True`
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
            slotwise.InvalidArgument: it is of other tables, or has dense weights though `dense` is None.
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

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Refuses copies and pickles, which would step no module."""
        tables = ", ".join(rows.table for rows in self._rows.values())
        raise TypeError(
            f"a slotwise.torch.Optimizer of {tables} cannot be copied or pickled, because it steps rows on a "
            f"server: keep its state_dict(), or save it with the model by slotwise.torch.save"
        )

    def _gather(self, parts: list[Part]) -> None:
        """Takes the parts that a backward pass gave to modules of this optimizer."""
        with self._lock:
            self._gather_locked(parts)

    def _gather_locked(self, parts: list[Part]) -> None:
        clients = {id(part.tables.ps) for part in parts}
        for (ps, _), rows in self._rows.items():
            if ps in clients:  # trainers that share a step ask anew for all norms together
                rows.begin()
        for part in parts:
            lookups = part.found.owned or own_clones(part.lookups, part.gradients)
            for table, gradient in part.gradients.items():
                owned: Lookups = {table: lookups[table]}
                gradients, found = {table: gradient.detach().clone()}, replace(part.found, owned=owned)
                own = replace(part, lookups=owned, gradients=gradients, found=found)
                self._rows[id(part.tables.ps), table].gather(own)

    def _check_sessions(self) -> list[list[Rows]]:
        """Returns the tables of each client, which make a step."""
        sessions: dict[int, Session | None] = {}
        for module in self._modules:
            session = session_of(module._of_steps)
            if sessions.setdefault(id(module._ps), session) is not session:
                raise InvalidArgument(
                    f"{module._name()} has another session than a module of the same client before it: an "
                    f"Optimizer makes one step of a client's tables"
                )
        steps: dict[int, list[Rows]] = defaultdict(list)
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
        by_generation: dict[int, Rows] = {}
        for rows in self._rows.values():
            if rows.generation and by_generation.setdefault(rows.generation, rows) is not rows:
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
