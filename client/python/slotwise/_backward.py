"""Makes one step of all tables that one outermost `backward()` touches.

While autograd works, each lookup of the loss gets a gradient. The gradients are collected, and pushed as one
step when the whole pass is over. A table that was looked up several times gets its gradients in the order of
the lookups.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from slotwise._gpu import Started, gpu_of
from slotwise._tensors import Lookups, array, copies, joined, nothing, nothing_of
from slotwise.client import Client
from slotwise.core import LookedUp
from slotwise.session_calls import OwnSession
from slotwise.errors import FailedPrecondition
from slotwise.options import TableOptions
from slotwise.session import Session

if TYPE_CHECKING:
    from slotwise._modules import Found


@dataclass(frozen=True)
class Tables:
    """The tables of one module, and how steps of them are pushed.

    Attributes:
        session: names the steps; None: the client's.
        in_flight: whether `backward()` returns before its push is applied.
        options: by table.
    """

    ps: Client
    session: Session | None
    in_flight: bool
    options: Mapping[str, TableOptions]


@dataclass(frozen=True)
class Part:
    """The gradients of one forward(), by table, and the tables' lookups; `number` orders all forwards."""

    number: int
    module: Any
    tables: Tables
    lookups: Lookups
    gradients: Mapping[str, Tensor]
    found: Found


# Each session that trainers share has the tables of all their modules, also of modules that are gone.
_OptionsOf = weakref.WeakKeyDictionary[Client, dict[str, TableOptions]]
_shared: weakref.WeakKeyDictionary[Session, _OptionsOf] = weakref.WeakKeyDictionary()


def session_of(tables: Tables) -> Session | None:
    """Returns the session that names a module's steps; None: the client's own, which the client renews."""
    session = tables.session or tables.ps.session
    return None if isinstance(session, OwnSession) else session


def share(session: Session, tables: Tables) -> dict[str, TableOptions]:
    """Adds a module's tables to every step of a session that trainers share; returns all tables of a step.

    All trainers make their modules in the same order, so they agree on the tables of a step and on their
    order, whichever tables a trainer has gradients of.
    """
    with _lock:
        of_client = _shared.setdefault(session, weakref.WeakKeyDictionary())
        options = of_client.setdefault(tables.ps, {})
        options.update(tables.options)
        return dict(options)


def collect(part: Part) -> None:
    """Takes what a forward() gets back in the pass that this thread works at.

    FailedPrecondition: the pass is inside another one, or is to be differentiated itself.
    """
    names = ", ".join(part.gradients)
    if torch.is_grad_enabled():
        raise FailedPrecondition(
            f"backward(create_graph=True) goes through a lookup of {names}, whose gradient has no gradient "
            f"of its own: leave create_graph away, or detach() what was looked up"
        )
    if _is_nested():
        raise FailedPrecondition(
            f"a backward() inside another one goes through a lookup of {names}, as with "
            f"torch.utils.checkpoint(use_reentrant=True): what it pushes would be a step of its own. Use "
            f"use_reentrant=False"
        )
    name = _name_of_pass()
    with _lock:
        under_way = _passes.get(name)
        if under_way is None or under_way.ended:
            under_way = _passes[name] = _Pass()
            # Autograd alone keeps it, and drops it with a pass that raises.
            torch.autograd.Variable._execution_engine.queue_callback(under_way.push)
        under_way.parts.append(part)


class _Pass:
    """A backward pass that is under way, and the parts that were collected."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.ended = False

    def push(self) -> None:
        """Pushes a step of each client and session, or gives optimizers their parts, at the pass's end."""
        self.ended = True
        parts, self.parts = sorted(self.parts, key=lambda part: part.number), []
        steps: dict[tuple[int, int], list[Part]] = {}
        held: dict[Any, list[Part]] = {}
        for part in parts:
            if part.module._optimizer is not None:
                held.setdefault(part.module._optimizer, []).append(part)
                continue
            key = id(part.tables.ps), id(session_of(part.tables))
            steps.setdefault(key, []).append(part)
        for optimizer, of_optimizer in held.items():
            optimizer._gather(of_optimizer)
        for of_step in steps.values():
            StepOfTables(of_step[0].tables, of_step).push()


_lock = threading.Lock()
_passes: weakref.WeakValueDictionary[int, _Pass] = weakref.WeakValueDictionary()
# torch from 2.1 on names its passes. Before that each thread of autograd has its own.
_name_of_pass: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", threading.get_ident)


def _is_nested() -> bool:
    """Whether this thread's backward pass was begun inside another one.

    Torch does not tell. But such a pass stands in the stack above the other pass, or above a Function's
    backward() that another thread of autograd works at.
    """
    begun = 0
    frame: Any = sys._getframe(2)  # behind the Function that collects
    while frame is not None:
        if frame.f_code in _BEGINS:
            begun += 1
        elif begun > 0 and frame.f_code is _FUNCTION:
            return True
        frame = frame.f_back
    return begun > 1


_BEGINS = (torch.autograd.backward.__code__, torch.autograd.grad.__code__)
_FUNCTION = BackwardCFunction.apply.__code__


class StepOfTables:
    """One step of all tables of a client that passes have given gradients of."""

    def __init__(
        self, tables: Tables, parts: list[Part], rates: Mapping[str, float | None] | None = None
    ) -> None:
        """Takes parts of one client and session, in the order of their forwards.

        Args:
            tables: of one of their modules; without parts, of any module of the session.
            rates: the learning rates of the step, by table; a table that is left out keeps its own.
        """
        self._parts = parts
        self._ps, self._session = tables.ps, session_of(tables)
        self._in_flight = all(part.tables.in_flight for part in parts) if parts else tables.in_flight
        self._rates = rates or {}
        self._options = {table: part.tables.options[table] for part in parts for table in part.gradients}
        if self._session is not None and self._session.is_shared:
            self._options = share(self._session, tables)
            for part in parts:  # also those that were made before the client got this session
                self._options = share(self._session, part.tables)
        self._lookups: Lookups = {}
        self._gradients: dict[str, Tensor] = {}
        self._looked_up: dict[str, LookedUp] = {}
        self._owned = True  # whether the keys, offsets and weights are copies that do not change
        by_table: dict[str, list[Part]] = {table: [] for table in self._options}
        for part in parts:
            for table in part.gradients:
                by_table[table].append(part)
        for table, options in self._options.items():
            of_table = by_table[table]
            for part in of_table:
                if table in part.found.looked_up:  # the oldest counts
                    self._looked_up.setdefault(table, part.found.looked_up[table])
            if not of_table:  # another trainer may have gradients of it
                device = torch.device("cpu")
                if parts:
                    device = next(iter(parts[0].gradients.values())).device
                self._lookups[table], self._gradients[table] = nothing_of(options, device)
                continue
            if len(of_table) > 1:
                whole = [(part.lookups[table], part.gradients[table]) for part in of_table]
                self._lookups[table], self._gradients[table] = joined(options, whole)
                continue
            (part,) = of_table
            self._owned = self._owned and part.found.owned is not None
            self._lookups[table] = (part.found.owned or part.lookups)[table]
            self._gradients[table] = part.gradients[table]

    def push(self) -> None:
        """Pushes the step: now, or in flight, by a GPU's memory or by copies of the arrays."""
        trains = any(_trains(part) for part in self._parts)
        if not trains and not self._in_flight:
            return self._push_now()
        device = self._device_of(self._lookups, self._gradients)
        if trains or device is None or not self._push_by_gpu(device):
            self._push_in_flight(device)

    def _push_now(self) -> None:
        self._ps._pushes.wait()  # raises if a push in flight has failed; this step is not sent then
        self._send(self._lookups, self._gradients, self._next())

    def _push_in_flight(self, device: torch.device | None) -> None:
        """Copies the arrays, and hands the push over to the client's thread of pushes."""
        pushes, gpu = self._ps._pushes, gpu_of(self._ps)
        beside = None if device is None or device.type == "cpu" else gpu.beside(device)
        keys, keys_there = self._lookups, nothing
        if not self._owned:
            keys, keys_there = copies(self._lookups, beside)
        gradients: Lookups = {table: (each,) for table, each in self._gradients.items()}
        copied, gradients_there = copies(gradients, beside)
        own = {table: each for table, (each,) in copied.items() if each is not None}
        with pushes.lock:
            pushes.raise_error()  # before a step is drawn
            step = self._next()

            def send() -> None:
                keys_there()
                gradients_there()
                on_stream: AbstractContextManager[object] = nullcontext()
                if beside is not None:
                    on_stream = torch.cuda.stream(beside)
                with on_stream:
                    self._send(keys, own, step)

            # The tensors that were copied would else live until the push's end.
            parts, self._parts, self._lookups, self._gradients = self._parts, [], {}, {}
            numbers = pushes.hand_over(own, send)
            for part in parts:
                iteration = part.found.iteration
                if iteration is not None and iteration.trains:
                    of_module = {table: numbers[table] for table in part.gradients}
                    iteration.pushed(part.module, part.found.batch, of_module)

    def _push_by_gpu(self, device: torch.device) -> bool:
        """Pushes by a GPU's memory, and does not wait for the end; False if other pushes are in flight.

        The arrays are copied in the order of the trainer's stream, so the trainer may overwrite them. They
        are read again only if the server refuses to take them from there.
        """
        gpu, pushes = gpu_of(self._ps), self._ps._pushes
        lookups, gradients = self._lookups, self._gradients
        with pushes.lock:
            if not pushes.is_idle():
                return False
            started, step = self._start_by_gpu(device, lookups, gradients, self._next(), {})
            read = [each for tensors in lookups.values() for each in tensors if each is not None]
            read += gradients.values()
            versions = [each._version for each in read]

            def finish() -> None:
                if gpu.finish_push(started):
                    return
                if [each._version for each in read] != versions:
                    raise FailedPrecondition(
                        "a push in flight was refused by the GPU's memory, and could not go by the "
                        "host's: its tensors were written meanwhile"
                    )
                self._send_by_host(lookups, gradients, step, {})

            if gpu.has_arrays(started):
                pushes.begin(gradients, started, lambda: gpu.wait(started), finish)
            else:
                finish()  # there is no connection yet, which reads them later
        return True

    def _next(self) -> Any:
        return None if self._session is None else self._session.next_of(self._parts_wanted)

    def _parts_wanted(self, most: int) -> int:
        """Returns how many parts of at most so many bytes the largest table's share needs."""
        sizes = [
            sum(each.numel() * 8 for each in self._lookups[table] if each is not None) + gradient.numel() * 4
            for table, gradient in self._gradients.items()
        ]
        return max(-(-size // most) for size in [1, *sizes])

    def _send(self, lookups: Lookups, gradients: Mapping[str, Tensor], step: Any) -> None:
        device = self._device_of(lookups, gradients)
        if device is not None:
            started, step = self._start_by_gpu(device, lookups, gradients, step, self._looked_up)
            if gpu_of(self._ps).finish_push(started):
                return
        self._send_by_host(lookups, gradients, step, self._looked_up)

    def _device_of(self, lookups: Lookups, gradients: Mapping[str, Tensor]) -> torch.device | None:
        """Returns the GPU by whose memory these arrays can go; None: there is none."""
        return gpu_of(self._ps).device_of((*lookups[table], each) for table, each in gradients.items())

    def _start_by_gpu(
        self,
        device: torch.device,
        lookups: Lookups,
        gradients: Mapping[str, Tensor],
        step: Any,
        looked_up: Mapping[str, LookedUp],
    ) -> tuple[Started, Any]:
        """Starts a push, and returns it with its step, which has a name if the push may go another way."""
        if step is None and self._ps._transport != "gpu":
            step = self._ps.session.next()
        gpu, rates = gpu_of(self._ps), self._own_rates()
        return gpu.start_push(device, lookups, gradients, self._options, step, looked_up, rates), step

    def _send_by_host(
        self, lookups: Lookups, gradients: Mapping[str, Tensor], step: Any, looked_up: Mapping[str, LookedUp]
    ) -> None:
        pushes: dict[str, Any] = {}
        for table, gradient in gradients.items():
            keys, offsets, weights = map(array, lookups[table])
            pushes[table] = (keys, offsets, array(gradient), weights)
        self._ps._push_all(pushes, looked_up, self._own_rates(), step)

    def _own_rates(self) -> dict[str, float | None]:
        return {table: self._rates.get(table) for table in self._options}


def _trains(part: Part) -> bool:
    return part.found.iteration is not None and part.found.iteration.trains
