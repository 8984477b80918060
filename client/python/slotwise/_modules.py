"""`Embedding`, and the base of all modules whose rows are on the server."""

from __future__ import annotations

import gc
import itertools
import operator
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from slotwise._backward import Part, Tables, collect, session_of, share
from slotwise._export import is_autocast_to_float16, is_exporting, left_to_python, refuse_export
from slotwise._gpu import gpu_of
from slotwise._recompute import KeptRows, Phase, phase
from slotwise._tensors import Lookups, array
from slotwise.batch import make_batch
from slotwise.client import Client
from slotwise.core import LookedUp
from slotwise.errors import Cancelled, FailedPrecondition, InvalidArgument, ResourceExhausted
from slotwise.options import TableOptions
from slotwise.session import Session

if TYPE_CHECKING:
    from slotwise._prefetch import Iteration


@dataclass(frozen=True)
class Found:
    """The rows of a forward(), and what its backward() needs.

    Attributes:
        rows: by table, float32.
        owned: copies of the keys, offsets and weights that do not change, if there are copies.
        iteration, batch: the iteration that trains, and the batch, in which the forward() was; None: in none.
        looked_up: the state that a table's rows were read of; of other tables, the latest lookup's.
    """

    rows: tuple[Tensor, ...]
    owned: Lookups | None = None
    iteration: Iteration | None = None
    batch: int = 0
    looked_up: Mapping[str, LookedUp] = field(default_factory=dict)


class RemoteEmbedding(nn.Module):
    """A module whose rows are on the server; it looks up in all its tables, and pushes to them."""

    def __init__(self, ps: Client, tables: Iterable[str], session: Session | None, in_flight: bool) -> None:
        super().__init__()
        self._ps = ps
        self._tables: dict[str, TableOptions] = {table: ps.describe_table(table).options for table in tables}
        self._of_steps = Tables(ps, session, in_flight, self._tables)
        self._kept = KeptRows()
        self._optimizer: Any = None  # steps the tables; None: backward() does
        self._ahead: tuple[Iteration, ...] = ()  # the iterations that are under way; the newest is last
        # Autograd calls backward() because of this tensor, as keys take no gradient. It is never trained, so
        # it is no Parameter.
        self._anchor = torch.zeros(0, requires_grad=True)

    def _share_steps(self) -> None:
        """Adds this module's tables to every step of the session, if other trainers share the session."""
        session = session_of(self._of_steps)
        if session is not None and session.is_shared:
            share(session, self._of_steps)

    def flush(self) -> None:
        """Waits until all that `backward()` has handed over is applied.

        Raises:
            slotwise.Error: a push in the background has failed, of this module or of another module of the
                client. The pushes behind it were not sent. The error is raised once.
        """
        self._ps._usable()
        self._ps._pushes.wait()

    def lookups_of(self, *arguments: Any) -> Lookups:
        """Returns what `forward(*arguments)` looks up; InvalidArgument if the arguments make no sense."""
        raise NotImplementedError

    def fetch(self, lookups: Lookups, train: bool, pinned: bool = False) -> tuple[Tensor, ...]:
        """Returns the looked-up values by table, float32, on the GPU that the server shares or the CPU.

        Args:
            pinned: whether values on the CPU lie in pinned memory, to be copied to a GPU.
        """
        gpu = gpu_of(self._ps)
        device = gpu.device_of(lookups.values())
        if device is not None:
            found = gpu.lookup(device, lookups, self._tables, train)
            if found is not None:
                return found
        return self._fetch_by_host(lookups, train, pinned)

    def _fetch_by_host(self, lookups: Lookups, train: bool, pinned: bool) -> tuple[Tensor, ...]:
        wanted: Any = {table: tuple(map(array, tensors)) for table, tensors in lookups.items()}
        if len(wanted) == 1:  # a request of one table is smaller
            ((table, (keys, offsets, weights)),) = wanted.items()
            out = None
            if pinned:
                batch = make_batch(self._tables[table], keys, offsets, weights)
                out = torch.empty(batch.shape, pin_memory=True)
            result = self._ps.lookup(
                table, keys, offsets, weights=weights, train=train, out=None if out is None else out.numpy()
            )
            return (torch.from_numpy(result) if out is None else out,)
        results = tuple(map(torch.from_numpy, self._ps.lookup_many(wanted, train=train).values()))
        return tuple(each.pin_memory() for each in results) if pinned else results

    def _forward(self, lookups: Lookups) -> tuple[Tensor, ...]:
        """Looks up (keys, offsets, weights) of each table; returns the values by table."""
        if any(is_exporting(keys) for keys, _, _ in lookups.values()):
            raise refuse_export(self._name())
        for table, (_, _, weights) in lookups.items():
            if weights is not None and weights.requires_grad and torch.is_grad_enabled():
                raise InvalidArgument(
                    f"per_sample_weights of table {table} require a gradient, which is not "
                    f"computed: detach() them"
                )
        if not self.training or not torch.is_grad_enabled():
            return self._find(lookups).rows
        if self._optimizer is None:
            self._check_not_stepped()
        if self._optimizer is None and is_autocast_to_float16():
            raise FailedPrecondition(
                f"{self._name()} is trained under float16 autocast, whose losses are scaled (GradScaler), "
                f"and its rows would get the scaled gradient: hold it in a slotwise.torch.Optimizer, which "
                f"the scaler steps, or use bfloat16 autocast, which needs no scaling"
            )
        flat = [tensor for tensors in lookups.values() for tensor in tensors]
        outputs: tuple[Tensor, ...] = _LookupAndPush.apply(self._anchor, self, tuple(lookups), phase(), *flat)
        return outputs

    def _find(self, lookups: Lookups) -> Found:
        """Returns the rows that were looked up ahead, or looks up behind the pushes in flight."""
        for ahead in reversed(self._ahead):
            found = ahead.find(self, lookups)
            if found is not None:
                return found
        rows = self._fetch_behind_pushes(lookups)
        moved = tuple(
            values.to(keys.device) for values, (keys, _, _) in zip(rows, lookups.values()) if keys is not None
        )
        for ahead in reversed(self._ahead):
            if ahead.trains and self.training:  # other lookups come before the push
                return Found(moved, None, ahead, ahead.batch, self._ps._looked_up(lookups))
        return Found(moved)

    def _fetch_behind_pushes(self, lookups: Lookups) -> tuple[Tensor, ...]:
        """Looks up once all pushes to these tables are applied, or behind them on their GPU."""
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
            # The push went another way, or took all the room.
            return self.fetch(lookups, self.training)
        return self._fetch_by_host(lookups, self.training, False) if found is None else found

    def _be_stepped_by(self, optimizer: Any, parameters: Iterable[nn.Parameter]) -> None:
        """Gives an optimizer all gradients from now on; `parameters` stand for the tables' rows."""
        self._optimizer = optimizer
        _stepped.setdefault(self._ps, weakref.WeakValueDictionary()).update(dict.fromkeys(self._tables, self))
        self._parameters.clear()
        for number, (table, parameter) in enumerate(zip(self._tables, parameters)):
            self._parameters[f"rows_of_{table}_{number}".replace(".", "_")] = parameter

    def _check_not_stepped(self) -> None:
        """Refuses to push a table's gradients in backward() while an optimizer gathers others."""
        stepped: Mapping[str, RemoteEmbedding] = _stepped.get(self._ps, {})
        if any(table in stepped for table in self._tables):
            gc.collect()  # that model may be garbage
        taken = [table for table in self._tables if table in stepped]
        if taken:
            raise FailedPrecondition(
                f"{self._name()} was made after the slotwise.torch.Optimizer that steps table {taken[0]}, "
                f"and is not in it: make the Optimizer of all modules, once they are there"
            )

    def _save_to_state_dict(self, *_: Any) -> None:
        """Saves nothing: the rows are on the server."""

    def _load_from_state_dict(self, *_: Any) -> None:
        """Loads nothing, and misses nothing."""

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Refuses copies and pickles, which would be further views of the same rows."""
        kind, tables = type(self).__name__, ", ".join(self._tables)
        raise TypeError(
            f"{kind} of {tables} cannot be copied or pickled, because its rows are on the server: "
            f"make another {kind} where you need one, save the model with slotwise.torch.save or rows with "
            f"slotwise.rows.save_npy, and make a plain copy to serve with slotwise.torch.export_module"
        )

    def _replicate_for_data_parallel(self) -> Any:
        """Refuses replicas, whose gradients would be steps of their own."""
        raise FailedPrecondition(
            f"{self._name()} cannot be replicated by torch.nn.DataParallel: use one process for each GPU "
            f"with DistributedDataParallel, and a session that they share"
        )

    def __prepare_scriptable__(self) -> Any:
        """Refuses `torch.jit.script`, which asks for this."""
        raise refuse_export(self._name())

    def _name(self) -> str:
        return f"{type(self).__name__} of {', '.join(self._tables)}"


# The module that an optimizer steps, by client and table.
_stepped: weakref.WeakKeyDictionary[Client, weakref.WeakValueDictionary[str, RemoteEmbedding]]
_stepped = weakref.WeakKeyDictionary()


class _LookupAndPush(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        _anchor: Tensor,
        module: RemoteEmbedding,
        tables: tuple[str, ...],
        during: Phase,
        *flat: Tensor | None,
    ) -> tuple[Tensor, ...]:
        ctx.module, ctx.tables, ctx.number = module, tables, next(_numbers)
        ctx.set_materialize_grads(False)
        # Autograd saves the tensors, and then refuses a backward() after the keys were overwritten.
        ctx.save_for_backward(*flat)
        lookups = _by_table(tables, flat)
        ctx.found = Found(())
        if during is Phase.AGAIN:
            return module._kept.rows_of(lookups)
        found = module._find(lookups)
        if during is Phase.FIRST:
            ctx.kept = module._kept.keep(lookups, found.rows)
        ctx.found = replace(found, rows=())  # backward() does not need the rows
        return found.rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, ...]:
        lookups = _by_table(ctx.tables, ctx.saved_tensors)
        given = {table: each for table, each in zip(ctx.tables, gradients) if each is not None}
        if given:
            module = ctx.module
            collect(Part(ctx.number, module, module._of_steps, lookups, given, ctx.found))
        if not _keeps_graph():
            ctx.kept = None  # or a loss that is kept would keep the rows
        return (None,) * (4 + 3 * len(ctx.tables))


_numbers = itertools.count()  # of forwards


def _keeps_graph() -> bool:
    """Whether the graph is there after this backward pass; torch before 2.1 does not tell."""
    tell = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return tell is None or bool(tell())


def _by_table(tables: tuple[str, ...], flat: tuple[Tensor | None, ...]) -> Lookups:
    return {table: flat[3 * i : 3 * i + 3] for i, table in enumerate(tables)}


class Embedding(RemoteEmbedding):
    """Looks up rows as `torch.nn.Embedding` does, in a table without a combiner ("none").

    Attributes:
        dim: the table's dim; a result has one dimension more than the keys, of this size.
        padding_idx: the key that stands for nothing; None: there is none.
    """

    def __init__(
        self,
        ps: Client,
        table: str,
        *,
        padding_idx: int | None = None,
        session: Session | None = None,
        in_flight: bool = False,
    ) -> None:
        """Uses a table that exists already.

        Args:
            padding_idx: a key that is not looked up: its result is zeros, and takes no gradient.
            session: names the steps. None: `ps.session`. Data-parallel trainers pass a session that they
                share.
            in_flight: whether `backward()` returns before its push is applied.

        Raises:
            slotwise.NotFound: no such table.
            slotwise.InvalidArgument: the table has a combiner.
        """
        super().__init__(ps, [table], session, in_flight)
        (options,) = self._tables.values()
        if options.combiner != "none":
            raise InvalidArgument(
                f"table {table} has the combiner {options.combiner!r}, so it is for EmbeddingBag"
            )
        self.dim, self.padding_idx = options.dim, as_key(padding_idx)
        self._table = table
        self._share_steps()

    @left_to_python
    def forward(self, keys: Tensor) -> Tensor:
        """Returns the keys' rows, float32 [*keys.shape, dim], on the keys' device.

        Args:
            keys: int64 of any shape, any 64 bits, or narrower integers.
        """
        (found,) = self._forward(self.lookups_of(keys))
        if self.padding_idx is None:
            return found
        padded = found.new_zeros((*keys.shape, self.dim))
        padded[is_not(keys, self.padding_idx)] = found
        return padded

    def lookups_of(self, keys: Tensor) -> Lookups:
        """Is Slotwise's own."""
        if self.padding_idx is not None:
            keys = keys[is_not(keys, self.padding_idx)]
        return {self._table: (keys, None, None)}

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self._table!r}, dim={self.dim}{padding}"


def as_key(padding: Any) -> int | None:
    """Returns a padding's id as int64 has it; InvalidArgument if the id has no 64 bits."""
    if padding is None:
        return None
    key = operator.index(padding)
    if not -(1 << 63) <= key < 1 << 64:
        raise InvalidArgument(f"padding_idx is {key}: must be an id of 64 bits")
    return key - (1 << 64) if key >= 1 << 63 else key


def is_not(keys: Tensor, padding: int) -> Tensor:
    """Returns which keys are not the padding, whatever type they have."""
    return keys.detach().to(torch.int64) != padding
