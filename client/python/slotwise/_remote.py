"""What the modules of `slotwise.torch` have in common: they look up, and push gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from slotwise._gpu import gpu_of
from slotwise.batch import make_batch
from slotwise.client import Client
from slotwise.core import LookedUp
from slotwise.errors import Cancelled, FailedPrecondition, InvalidArgument, ResourceExhausted
from slotwise.options import TableOptions
from slotwise.session import Session

# The keys, offsets and weights of each table.
Lookups = dict[str, tuple[Tensor | None, ...]]


@dataclass(frozen=True)
class Found:
    """The rows of a forward(), and what its backward() has to tell.

    Attributes:
        rows: by table, float32.
        owned: copies of the keys, offsets and weights that nobody changes, if there are such.
        iteration, batch: in which the forward() was, if in one that trains, and in which batch.
        looked_up: what the rows were read of, by table; of others, by the client's latest lookup.
    """

    rows: tuple[Tensor, ...]
    owned: Lookups | None = None
    iteration: Ahead | None = None
    batch: int = 0
    looked_up: Mapping[str, LookedUp] = field(default_factory=dict)


class Ahead(Protocol):
    """Looks up ahead: an iteration of `slotwise.torch.Prefetch`.

    Attributes:
        trains: whether it is under way and its lookups insert rows.
        batch: the number of the batch that the trainer has.
    """

    trains: bool
    batch: int

    def find(self, module: Remote, lookups: Lookups) -> Found | None:
        """Returns the rows of a module's forward(), or None if it has others, or too old ones."""

    def pushed(self, module: Remote, batch: int, numbers: Mapping[str, int]) -> None:
        """Is told each table's number of a push of a batch that was handed over."""


class Remote(nn.Module):
    """A module whose rows are on the server; it looks up in all its tables, and pushes to them."""

    def __init__(
        self, ps: Client, tables: Iterable[str], session: Session | None, in_flight: bool
    ) -> None:
        super().__init__()
        self._ps = ps
        self._session = session
        self._in_flight = in_flight
        self._tables: dict[str, TableOptions] = {
            table: ps.describe_table(table).options for table in tables
        }
        self._ahead: tuple[Ahead, ...] = ()  # the iterations that are under way; the newest is last
        # Keys take no gradient; autograd calls backward() because of this tensor. It is not a
        # Parameter, because nobody trains it.
        self._anchor = torch.zeros(0, requires_grad=True)

    def flush(self) -> None:
        """Waits until all that `backward()` has handed over is applied.

        Raises:
            slotwise.Error: a push in the background has failed, of this module or of another one of
                its client. Those behind it were not sent. The error is raised once.
        """
        self._ps._usable()
        self._ps._pushes.wait()

    def lookups_of(self, *arguments: Any) -> Lookups:
        """Returns what `forward(*arguments)` looks up; InvalidArgument if that makes no sense."""
        raise NotImplementedError

    def fetch(
        self, lookups: Lookups, train: bool, pinned: bool = False
    ) -> tuple[Tensor, ...]:
        """Looks up; returns the values by table, float32, on the GPU that the server shares or the CPU.

        Args:
            pinned: whether what lies on the CPU is to be copied to a GPU from there.
        """
        gpu = gpu_of(self._ps)
        device = gpu.device_of(lookups.values())
        if device is not None:
            found = gpu.lookup(device, lookups, self._tables, train)
            if found is not None:
                return found
        return self._fetch_by_host(lookups, train, pinned)

    def _fetch_by_host(self, lookups: Lookups, train: bool, pinned: bool) -> tuple[Tensor, ...]:
        wanted: Any = {table: tuple(map(_array, tensors)) for table, tensors in lookups.items()}
        if len(wanted) == 1:  # a request of one table is smaller
            ((table, (keys, offsets, weights)),) = wanted.items()
            out = None
            if pinned:
                batch = make_batch(self._tables[table], keys, offsets, weights)
                out = torch.empty((*batch.shape, batch.width), pin_memory=True)
            result = self._ps.lookup(
                table,
                keys,
                offsets,
                weights=weights,
                train=train,
                out=None if out is None else out.numpy(),
            )
            return (torch.from_numpy(result) if out is None else out,)
        results = tuple(map(torch.from_numpy, self._ps.lookup_many(wanted, train=train).values()))
        return tuple(each.pin_memory() for each in results) if pinned else results

    def _forward(self, lookups: Lookups) -> tuple[Tensor, ...]:
        """Looks up (keys, offsets, weights) of each table; returns the values by table."""
        for table, (_, _, weights) in lookups.items():
            if weights is not None and weights.requires_grad:
                raise InvalidArgument(
                    f"per_sample_weights of table {table} require a gradient, which is not "
                    f"computed: detach() them"
                )
        if not self.training or not torch.is_grad_enabled():
            return self._find(lookups).rows
        flat = [tensor for tensors in lookups.values() for tensor in tensors]
        outputs: tuple[Tensor, ...] = _LookupAndPush.apply(
            self._anchor, self, tuple(lookups), *flat
        )
        return outputs

    def _find(self, lookups: Lookups) -> Found:
        """Returns the rows that were looked up ahead, or looks up when nothing is in flight."""
        for ahead in reversed(self._ahead):
            found = ahead.find(self, lookups)
            if found is not None:
                return found
        rows = self._fetch_behind_pushes(lookups)
        moved = tuple(
            values.to(keys.device)
            for values, (keys, _, _) in zip(rows, lookups.values())
            if keys is not None
        )
        for ahead in reversed(self._ahead):
            if ahead.trains and self.training:  # other lookups come before the push
                return Found(moved, None, ahead, ahead.batch, self._ps._looked_up(lookups))
        return Found(moved)

    def _fetch_behind_pushes(self, lookups: Lookups) -> tuple[Tensor, ...]:
        """Looks up; what is looked up sees all that was pushed before."""
        pushes, gpu = self._ps._pushes, gpu_of(self._ps)
        behind = pushes.under_way(lookups)
        device = None if behind is None else gpu.device_of(lookups.values())
        if behind is None or device is None:
            pushes.wait(lookups)
            return self.fetch(lookups, self.training)
        started = gpu.start_lookup(device, lookups, self._tables, self.training, behind)
        try:
            pushes.wait(lookups)
        except BaseException:
            gpu.end(started)
            raise
        try:
            found = gpu.finish_lookup(started)
        except (Cancelled, ResourceExhausted):
            # The push went another way, or had the room that there is.
            return self.fetch(lookups, self.training)
        return self._fetch_by_host(lookups, self.training, False) if found is None else found

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Refuses copies and pickles, which would be further views of the same rows."""
        kind, tables = type(self).__name__, ", ".join(self._tables)
        raise TypeError(
            f"{kind} of {tables} cannot be copied or pickled, because its rows are on the server: "
            f"make another {kind} where you need one, and save rows with slotwise.rows.save_npy"
        )

    def _push(self, lookups: Lookups, gradients: dict[str, Tensor], found: Found) -> None:
        """Pushes one step of every table that has a gradient, or hands it over."""
        in_flight, iteration = self._ps._pushes, found.iteration
        trains = iteration is not None and iteration.trains
        if not trains and not self._in_flight:
            in_flight.wait()  # for what comes first; what fails there has no step behind it
            self._send(lookups, gradients, self._next_step(), found.looked_up)
            return
        keys = found.owned or {table: lookups[table] for table in gradients}
        gpu = gpu_of(self._ps)
        device = gpu.device_of((*keys[table], each) for table, each in gradients.items())
        if not trains and device is not None and self._start_push(device, keys, gradients):
            return
        beside = None if device is None or device.type == "cpu" else gpu.beside(device)
        keys, keys_there = (keys, _nothing) if found.owned else _copies(keys, beside)
        copied, gradients_there = _copies({table: (each,) for table, each in gradients.items()}, beside)
        own = {table: each for table, (each,) in copied.items() if each is not None}
        with in_flight.lock:
            in_flight.raise_error()  # before a step is drawn
            step = self._next_step()

            def send() -> None:
                keys_there()
                gradients_there()
                on_stream: AbstractContextManager[object] = nullcontext()
                if beside is not None:
                    on_stream = torch.cuda.stream(beside)
                with on_stream:
                    self._send(keys, own, step, found.looked_up)

            numbers = in_flight.hand_over(own, send)
            if trains and iteration is not None:
                iteration.pushed(self, found.batch, numbers)

    def _start_push(
        self, device: torch.device, lookups: Lookups, gradients: dict[str, Tensor]
    ) -> bool:
        """Pushes by a GPU's memory, and does not wait for the end; False if others are in flight.

        Their arrays are copied in the order of the trainer's stream, so the trainer may overwrite
        them. Only if the server refuses to take them from there are they wanted once more.
        """
        gpu, pushes = gpu_of(self._ps), self._ps._pushes
        with pushes.lock:
            if not pushes.is_idle():
                return False
            step = self._next_step()
            if step is None and self._ps._door != "gpu":
                step = self._ps.session.next()
            started = gpu.start_push(device, lookups, gradients, self._tables, step, {})
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
                self._push_by_host(lookups, gradients, step, {})

            if gpu.has_arrays(started):
                pushes.begin(gradients, started, lambda: gpu.wait(started), finish)
            else:
                finish()  # there is no connection yet, which reads them later
        return True

    def _next_step(self) -> Any:
        return None if self._session is None else self._session.next()

    def _send(
        self,
        lookups: Lookups,
        gradients: dict[str, Tensor],
        step: Any,
        looked_up: Mapping[str, LookedUp],
    ) -> None:
        gpu = gpu_of(self._ps)
        device = gpu.device_of((*lookups[table], each) for table, each in gradients.items())
        if device is not None:
            if step is None and self._ps._door != "gpu":
                step = self._ps.session.next()
            started = gpu.start_push(device, lookups, gradients, self._tables, step, looked_up)
            if gpu.finish_push(started):
                return
        self._push_by_host(lookups, gradients, step, looked_up)

    def _push_by_host(
        self,
        lookups: Lookups,
        gradients: dict[str, Tensor],
        step: Any,
        looked_up: Mapping[str, LookedUp],
    ) -> None:
        pushes: dict[str, Any] = {}
        for table, gradient in gradients.items():
            keys, offsets, weights = map(_array, lookups[table])
            pushes[table] = (keys, offsets, _array(gradient), weights)
        if looked_up:
            self._ps._push_of(pushes, looked_up, step)
        elif len(pushes) == 1:
            ((table, (keys, offsets, values, weights)),) = pushes.items()
            self._ps.push(table, keys, offsets, values, weights=weights, step=step)
        else:
            self._ps.push_many(pushes, step=step)


class _LookupAndPush(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, _anchor: Tensor, module: Remote, tables: tuple[str, ...], *flat: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.module, ctx.tables = module, tables
        ctx.set_materialize_grads(False)
        # The tensors are saved by autograd, which then refuses a backward() after the keys were
        # overwritten.
        ctx.save_for_backward(*flat)
        found = module._find(_by_table(tables, flat))
        ctx.found = replace(found, rows=())  # which nobody needs any more
        return found.rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, ...]:
        lookups = _by_table(ctx.tables, ctx.saved_tensors)
        given = {table: each for table, each in zip(ctx.tables, gradients) if each is not None}
        if given:
            ctx.module._push(lookups, given, ctx.found)
        return (None,) * (3 + 3 * len(ctx.tables))


def own_copies(lookups: Lookups) -> Lookups:
    """Returns copies on the CPU that nobody else has."""
    copied, there = _copies(lookups)
    there()
    return copied


def _copies(
    lookups: Lookups, beside: torch.cuda.Stream | None = None
) -> tuple[Lookups, Callable[[], None]]:
    """Copies tensors, and does not wait for a GPU.

    Args:
        beside: a stream whose GPU has all of them, and keeps the copies; None: they go to the CPU.

    Returns:
        The copies, contiguous, and what waits until they can be read: on the CPU, or in the order of
        `beside`.
    """
    if beside is not None:
        now = torch.cuda.current_stream(beside.device)
        beside.wait_stream(now)
        with torch.cuda.stream(beside):
            there = {table: tuple(map(_clone, tensors)) for table, tensors in lookups.items()}
        now.wait_stream(beside)  # for who writes the tensors next
        return there, _nothing
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


def _clone(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().clone(memory_format=torch.contiguous_format)


def _copy(tensor: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    return copy.copy_(tensor.detach(), non_blocking=tensor.is_cuda)


def _nothing() -> None:
    """There is nothing to wait for."""


def _by_table(tables: tuple[str, ...], flat: tuple[Tensor | None, ...]) -> Lookups:
    return {table: flat[3 * i : 3 * i + 3] for i, table in enumerate(tables)}


def _array(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.detach().cpu().numpy()
