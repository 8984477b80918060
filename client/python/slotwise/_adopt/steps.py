"""A torch optimizer's step(), state_dict() and load_state_dict() while some weights are adopted."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from slotwise._adopt.gradient import nothing
from slotwise._adopt.table import AdoptedTable
from slotwise._adopt.weight import do_rows_stay
from slotwise._export import left_to_python
from slotwise._shared_session import group_of
from slotwise.client import Client
from slotwise.errors import FailedPrecondition, InvalidArgument
from slotwise.session import Session, Step

_METHODS = ("step", "state_dict", "load_state_dict")


class _Replaced(NamedTuple):
    """A method as it is now, and what the instance had in its place; None: the class's own."""

    method: types.MethodType
    before: Callable[..., Any] | None


class _Push(NamedTuple):
    """A push whose outcome is not known yet; the same gradients, of the same versions, go again as `step`."""

    step: Step
    gradients: list[Tensor | None]
    versions: list[int | None]

    def is_of(self, gradients: list[Tensor | None]) -> bool:
        """Returns whether these gradients are those that were pushed, unchanged."""
        same = [one is other for one, other in zip(gradients, self.gradients)]
        return all(same) and _versions(gradients) == self.versions


def _versions(gradients: list[Tensor | None]) -> list[int | None]:
    return [None if gradient is None else gradient._version for gradient in gradients]


class OptimizerOfTables:
    """Makes an optimizer's step() push the gradients of adopted weights.

    The weights stay in the optimizer's groups, so that `zero_grad()` and learning-rate schedulers find them.
    The methods are replaced on the instance, because torch has had hooks for them since 2.0 only. Not
    thread-safe, as torch's optimizers.
    """

    def __init__(
        self,
        ps: Client,
        optimizer: torch.optim.Optimizer,
        tables: list[AdoptedTable],
        session: Session | None = None,
    ) -> None:
        """Changes nothing until `attach`; `session`: of all trainers of a step, None: the client's own."""
        self._ps, self._optimizer, self._tables = ps, optimizer, tables
        self._session = ps.session if session is None else session
        for table in tables:
            table.gradient.group = group_of(self._session)
        self._replaced: dict[str, _Replaced] = {}
        self._in_doubt: _Push | None = None

    def attach(self) -> None:
        """Replaces the optimizer's methods."""
        for name in _METHODS:
            original = getattr(self._optimizer, name)
            function = functools.wraps(original)(self._replacement(name, original))
            # Learning-rate schedulers wrap what has a __func__, as a bound method has.
            method = types.MethodType(function, self._optimizer)
            before = self._optimizer.__dict__.get(name)
            self._replaced[name] = _Replaced(method, before)
            setattr(self._optimizer, name, method)

    def detach(self) -> None:
        """Gives the optimizer its methods back.

        Where a learning-rate scheduler has wrapped a method of ours, ours stays and only calls the original.
        """
        self._tables = []
        for name, (method, before) in self._replaced.items():
            if self._optimizer.__dict__.get(name) is not method:
                continue
            delattr(self._optimizer, name)
            if before is not None:
                setattr(self._optimizer, name, before)
        self._replaced = {}

    def _replacement(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(_: Any, closure: Callable[[], Any] | None = None, **options: Any) -> Any:
            loss = None
            if closure is not None and self._tables:
                with torch.enable_grad():
                    loss = closure()
                closure = None
            with self._pushed_behind_hooks():
                done = original(**options) if closure is None else original(closure, **options)
            return done if loss is None else loss

        def state_dict(_: Any, *args: Any, **options: Any) -> Any:
            if do_rows_stay():
                return original(*args, **options)
            fetched = [(table.weight, table.fetch_with_state()[1]) for table in self._tables]
            state = self._optimizer.state
            state.update({weight: of_weight for weight, of_weight in fetched if of_weight})
            try:
                return original(*args, **options)
            finally:
                for weight, _state in fetched:
                    state.pop(weight, None)

        def load_state_dict(_: Any, state_dict: Any, **options: Any) -> None:
            if do_rows_stay():
                original(state_dict, **options)
                return
            for table in self._tables:
                table.check_state(self._saved_state(table, state_dict))
            original(state_dict, **options)
            for table in self._tables:
                table.store_state(self._optimizer.state.pop(table.weight, {}))

        functions: tuple[Callable[..., Any], ...] = (step, state_dict, load_state_dict)
        return functions[_METHODS.index(name)]

    def _saved_state(self, table: AdoptedTable, state_dict: Any) -> Any:
        """Returns a weight's state in an optimizer's state_dict(), or {}."""
        for group, saved in zip(self._optimizer.param_groups, state_dict["param_groups"]):
            for weight, number in zip(group["params"], saved["params"]):
                if weight is table.weight:
                    return state_dict["state"].get(number, {})
        return {}

    @left_to_python
    def _push(self) -> None:
        """Pushes the weights' gradients as one step of each table that has one here or in another trainer."""
        groups = {id(weight): group for group in self._optimizer.param_groups for weight in group["params"]}
        for table in self._tables:
            table.check_weight()
        pushes: dict[str, tuple[Any, None, Any]] = {}
        rates: dict[str, float] = {}
        for table in self._tables:
            try:
                touched = table.gradient.touched()
            except InvalidArgument:
                if self._session.is_shared:
                    self._session.next_of(lambda _: 1)  # all trainers draw as many steps
                raise
            if touched is None and not self._session.is_shared:
                continue
            if id(table.weight) not in groups:
                raise InvalidArgument(
                    f"{table.name}: the optimizer has no longer the weight that it had when the "
                    f"model was adopted"
                )
            rates[table.name] = table.rate(groups[id(table.weight)])
            keys, values = nothing(table.weight) if touched is None else touched
            pushes[table.name] = (keys, None, values)
        if not pushes:
            return
        gradients = [table.gradient.value for table in self._tables]
        if self._in_doubt is None or not self._in_doubt.is_of(gradients):
            largest = max(keys.nbytes + values.nbytes for keys, _, values in pushes.values())
            step = self._session.next_of(lambda most: max(1, -(-largest // most)))
            self._in_doubt = _Push(step, gradients, _versions(gradients))
        try:
            self._ps.push_many(pushes, step=self._in_doubt.step, learning_rates=rates)
        finally:  # a step whose end is not known may have moved rows, too
            for table in self._tables:
                table.forget()
        self._in_doubt = None

    @contextmanager
    def _pushed_behind_hooks(self) -> Iterator[None]:
        """Has the gradients pushed, and then hidden, when the optimizer's step() begins.

        From 2.0 on torch's step() first calls hooks, which may change gradients: the push is the last hook.
        """
        register = getattr(self._optimizer, "register_step_pre_hook", None)
        if register is None or not self._tables:
            self._push()
            with self._without_gradients():
                yield
            return
        pushed = False
        with ExitStack() as hidden:

            def push(*_: Any) -> None:
                nonlocal pushed
                self._push()
                hidden.enter_context(self._without_gradients())
                pushed = True

            handle = register(push)
            try:
                yield
            finally:
                handle.remove()
        if not pushed:
            raise FailedPrecondition(
                f"step() of this {type(self._optimizer).__name__} calls no hooks, by which the gradients of "
                f"table {self._tables[0].name} would be pushed"
            )

    @contextmanager
    def _without_gradients(self) -> Iterator[None]:
        """Hides the weights' gradients, so that the optimizer leaves the weights alone."""
        gradients = [table.gradient for table in self._tables]
        values = [gradient.value for gradient in gradients]
        for gradient in gradients:
            gradient.value, gradient.is_hidden = None, True
        try:
            yield
        finally:
            for gradient, value in zip(gradients, values):
                gradient.value, gradient.is_hidden = value, False
