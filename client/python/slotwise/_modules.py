"""The modules that look rows up as torch's embeddings do, and what they have in common."""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from slotwise._backward import Part, Tables, collect, session_of, share
from slotwise._export import is_autocast_to_float16, is_exporting, left_to_python, refuse_export
from slotwise._gpu import gpu_of
from slotwise._recompute import KeptRows, Phase, phase
from slotwise._tensors import (
    Ahead,
    Found,
    Lookup,
    Lookups,
    array,
    as_key,
    bags_of,
    is_not,
    joined_lookups,
)
from slotwise.batch import make_batch
from slotwise.client import Client
from slotwise.errors import Cancelled, FailedPrecondition, InvalidArgument, ResourceExhausted
from slotwise.options import TableOptions
from slotwise.session import Session


class Remote(nn.Module):
    """A module whose rows are on the server; it looks up in all its tables, and pushes to them."""

    def __init__(
        self, ps: Client, tables: Iterable[str], session: Session | None, in_flight: bool
    ) -> None:
        super().__init__()
        self._ps = ps
        self._tables: dict[str, TableOptions] = {
            table: ps.describe_table(table).options for table in tables
        }
        self._of_steps = Tables(ps, session, in_flight, self._tables)
        self._kept = KeptRows()
        self._optimizer: Any = None  # steps the tables; None: backward() does
        self._ahead: tuple[Ahead, ...] = ()  # the iterations that are under way; the newest is last
        # Keys take no gradient; autograd calls backward() because of this tensor. It is not a
        # Parameter, because nobody trains it.
        self._anchor = torch.zeros(0, requires_grad=True)

    def _share_steps(self) -> None:
        """Makes this module's tables part of every step of the session that it shares with other trainers."""
        session = session_of(self._of_steps)
        if session is not None and session.is_shared:
            share(session, self._of_steps)

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
        wanted: Any = {table: tuple(map(array, tensors)) for table, tensors in lookups.items()}
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
            self._check_nobody_steps()
        if self._optimizer is None and is_autocast_to_float16():
            raise FailedPrecondition(
                f"{self._name()} is trained under float16 autocast, whose losses are scaled (GradScaler), "
                f"and its rows would get the scaled gradient: hold it in a slotwise.torch.Optimizer, which "
                f"the scaler steps, or use bfloat16 autocast, which needs no scaling"
            )
        flat = [tensor for tensors in lookups.values() for tensor in tensors]
        outputs: tuple[Tensor, ...] = _LookupAndPush.apply(
            self._anchor, self, tuple(lookups), phase(), *flat
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

    def _be_stepped_by(self, optimizer: Any, parameters: Iterable[nn.Parameter]) -> None:
        """Gives an optimizer what backward passes give from now on.

        Args:
            parameters: stand for the tables' rows.
        """
        self._optimizer = optimizer
        _stepped.setdefault(self._ps, weakref.WeakValueDictionary()).update(
            dict.fromkeys(self._tables, self)
        )
        self._parameters.clear()
        for number, (table, parameter) in enumerate(zip(self._tables, parameters)):
            self._parameters[f"rows_of_{table}_{number}".replace(".", "_")] = parameter

    def _check_nobody_steps(self) -> None:
        """Refuses to push a table's gradients in backward() while an optimizer gathers others of it."""
        stepped: Mapping[str, Remote] = _stepped.get(self._ps, {})
        if any(table in stepped for table in self._tables):
            gc.collect()  # nobody may have that model any more
        taken = [table for table in self._tables if table in stepped]
        if taken:
            raise FailedPrecondition(
                f"{self._name()} was made after the slotwise.torch.Optimizer that steps table {taken[0]}, "
                f"and is not in it: make the Optimizer of all modules, once they are there"
            )

    def _save_to_state_dict(self, *_: Any) -> None:
        """Saves nothing: rows are on the server, and their parameters mean nothing."""

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


# Says, for each client and table, which module an optimizer steps.
_stepped: weakref.WeakKeyDictionary[Client, weakref.WeakValueDictionary[str, Remote]]
_stepped = weakref.WeakKeyDictionary()


class _LookupAndPush(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        _anchor: Tensor,
        module: Remote,
        tables: tuple[str, ...],
        during: Phase,
        *flat: Tensor | None,
    ) -> tuple[Tensor, ...]:
        ctx.module, ctx.tables, ctx.number = module, tables, next(_numbers)
        ctx.set_materialize_grads(False)
        # The tensors are saved by autograd, which then refuses a backward() after the keys were
        # overwritten.
        ctx.save_for_backward(*flat)
        lookups = _by_table(tables, flat)
        ctx.found = Found(())
        if during is Phase.AGAIN:
            return module._kept.rows_of(lookups)
        found = module._find(lookups)
        if during is Phase.FIRST:
            ctx.kept = module._kept.keep(lookups, found.rows)
        ctx.found = replace(found, rows=())  # which nobody needs any more
        return found.rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, ...]:
        lookups = _by_table(ctx.tables, ctx.saved_tensors)
        given = {table: each for table, each in zip(ctx.tables, gradients) if each is not None}
        if given:
            module = ctx.module
            collect(Part(ctx.number, module, module._of_steps, lookups, given, ctx.found))
        if not _keeps_graph():
            ctx.kept = None  # or a loss that somebody keeps would keep the rows
        return (None,) * (4 + 3 * len(ctx.tables))


_numbers = itertools.count()  # of forwards


def _keeps_graph() -> bool:
    """Whether the graph is there after this backward pass; torch before 2.1 does not tell."""
    tell = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return tell is None or bool(tell())


def _by_table(tables: tuple[str, ...], flat: tuple[Tensor | None, ...]) -> Lookups:
    return {table: flat[3 * i : 3 * i + 3] for i, table in enumerate(tables)}


class Embedding(Remote):
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
            session: names the steps. None: `ps.session`. Data-parallel trainers pass a session that
                they share.
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


class EmbeddingBag(Remote):
    """Pools the rows of every bag, as `torch.nn.EmbeddingBag` does.

    Attributes:
        dim, slots: the table's dim and slots; a result has slots * dim columns.
        padding_idx: the key that stands for nothing; None: there is none.
    """

    def __init__(
        self,
        ps: Client,
        table: str,
        *,
        padding_idx: int | None = None,
        session: Session | None = None,
        include_last_offset: bool = True,
        in_flight: bool = False,
    ) -> None:
        """Uses a table that exists already.

        Args:
            padding_idx: a key that is in no bag, as if it had not been given.
            session, in_flight: as for `Embedding`.
            include_last_offset: as in `torch.nn.EmbeddingBag`, whose default is False: whether
                `forward`'s offsets end with the number of keys.

        Raises:
            slotwise.NotFound: no such table.
            slotwise.InvalidArgument: the table has no combiner, and there is a `padding_idx`.
        """
        super().__init__(ps, [table], session, in_flight)
        (options,) = self._tables.values()
        if padding_idx is not None and options.combiner == "none":
            raise InvalidArgument(
                f"table {table} has no combiner, and a bag of {padding_idx} would be empty: use Embedding"
            )
        self.dim, self.slots, self.padding_idx = options.dim, options.slots, as_key(padding_idx)
        self._table = table
        self._include_last_offset = include_last_offset
        self._share_steps()

    @left_to_python
    def forward(
        self,
        keys: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Returns the pooled rows, float32 [samples, slots * dim], on the keys' device.

        Args:
            keys: int64 [keys], any 64 bits, or narrower integers; without offsets also [samples, slots], or
                bags of one size: [samples, keys], and [samples, slots, keys] with several slots.
            offsets: integers [samples * slots + 1] from 0 to `len(keys)`, which is left out if
                `include_last_offset` is False. None: every bag has one key, or the row of keys.
            per_sample_weights: floats of the keys' shape; each key's row is multiplied by its
                weight. The weights' own gradient is not computed, so weights that require one are
                refused where gradients are computed.
        """
        return self._forward(self.lookups_of(keys, offsets, per_sample_weights))[0]

    def lookups_of(
        self,
        keys: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Lookups:
        """Is Slotwise's own."""
        if offsets is not None and not self._include_last_offset:
            offsets = torch.cat([offsets, offsets.new_tensor([keys.numel()])])
        (options,) = self._tables.values()
        return {self._table: bags_of(options, keys, offsets, per_sample_weights, self.padding_idx)}

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self._table!r}, slots={self.slots}, dim={self.dim}{padding}"


class EmbeddingBags(Remote):
    """Looks up in several tables, of any dims, with one request a `forward()` or `backward()`.

    A table whose result had no part in the loss makes no step, unless trainers
    share the session: their steps have all tables.
    """

    def __init__(
        self,
        ps: Client,
        tables: Iterable[str] | Mapping[str, str],
        *,
        padding_idx: int | None = None,
        session: Session | None = None,
        in_flight: bool = False,
    ) -> None:
        """Uses tables that exist already.

        Args:
            tables: their names; or, by the names of features, the table of each, and several features may
                have one: {"history": "items", "candidate": "items"}.
            padding_idx: a key that is in no bag, of any feature.
            session, in_flight: as for `Embedding`.

        Raises:
            slotwise.NotFound: no such table.
            slotwise.InvalidArgument: a table is named twice without names of features; or a table has no
                combiner, and there is a `padding_idx`.
        """
        names = list(tables)
        features = dict(tables) if isinstance(tables, Mapping) else dict(zip(names, names))
        if len(features) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgument(
                f"table {twice} is named twice: name the features that have it, as in "
                f'{{"history": "{twice}", "candidate": "{twice}"}}'
            )
        super().__init__(ps, dict.fromkeys(features.values()), session, in_flight)
        for table, options in self._tables.items():
            if padding_idx is not None and options.combiner == "none":
                raise InvalidArgument(
                    f"table {table} has no combiner, and a bag of {padding_idx} would be empty"
                )
        self._features, self.padding_idx = features, as_key(padding_idx)
        self._are_tables = all(feature == table for feature, table in features.items())
        self._share_steps()

    @left_to_python
    def forward(self, bags: Any) -> Any:
        """Returns the pooled rows by feature, float32 [samples, slots * dim], on their keys' devices.

        Args:
            bags: for each feature, or for some, keys or a tuple of `EmbeddingBag.forward`'s
                arguments: (keys,), (keys, offsets) or (keys, offsets, per_sample_weights). Or TorchRec's
                `KeyedJaggedTensor` that has all features: then a `KeyedTensor` of them is returned.
        """
        given = self._bags_by_feature(bags)
        lookups = self._lookups(given)
        values = dict(zip(lookups, self._forward(lookups))) if lookups else {}
        results: dict[str, Tensor] = {}
        features = Counter(self._features[feature] for feature in given)  # of each table
        read = dict.fromkeys(values, 0)
        for feature, lookup in given.items():
            table = self._features[feature]
            begin, read[table] = read[table], read[table] + self._samples(table, lookup)
            results[feature] = values[table]
            if features[table] > 1:
                results[feature] = values[table][begin : read[table]]
                if self._tables[table].combiner == "none" and lookup[0] is not None:
                    results[feature] = results[feature].reshape(*lookup[0].shape, -1)
        if not isinstance(bags, Mapping):
            keyed: Any = getattr(sys.modules[type(bags).__module__], "KeyedTensor")
            widths = [each.shape[1] for each in results.values()]
            return keyed(list(results), widths, torch.cat(list(results.values()), dim=1))
        return results

    def lookups_of(self, bags: Any) -> Lookups:
        """Is Slotwise's own."""
        return self._lookups(self._bags_by_feature(bags))

    def _bags_by_feature(self, bags: Any) -> dict[str, Lookup]:
        """Returns what is looked up for each feature; InvalidArgument if that makes no sense."""
        if not isinstance(bags, Mapping):
            return self._bags_of_keyed(bags)
        found: dict[str, Lookup] = {}
        for feature, given in bags.items():
            what = "table" if self._are_tables else "feature"
            if feature not in self._features:
                known = ", ".join(self._features)
                raise InvalidArgument(f"{what} {feature} is not one of {known}")
            tensors = tuple(given) if isinstance(given, (tuple, list)) else (given,)
            if not 1 <= len(tensors) <= 3:
                raise InvalidArgument(f"{what} {feature}: {len(tensors)} tensors, not 1 to 3")
            options = self._tables[self._features[feature]]
            offsets, weights = (*tensors[1:], None, None)[:2]
            found[feature] = bags_of(options, tensors[0], offsets, weights, self.padding_idx)
        return found

    def _bags_of_keyed(self, bags: Any) -> dict[str, Lookup]:
        if type(bags).__name__ != "KeyedJaggedTensor":
            raise InvalidArgument(f"bags are {type(bags).__name__}, no mapping and no KeyedJaggedTensor")
        jagged = bags.to_dict()
        found: dict[str, Lookup] = {}
        for feature, table in self._features.items():
            if feature not in jagged:
                raise InvalidArgument(f"the KeyedJaggedTensor has no {feature}, but {', '.join(jagged)}")
            one = jagged[feature]
            found[feature] = bags_of(
                self._tables[table], one.values(), one.offsets(), one.weights_or_none(), self.padding_idx
            )
        return found

    def _lookups(self, given: Mapping[str, Lookup]) -> Lookups:
        """Returns one lookup of each table, of all its features in their order."""
        by_table: dict[str, list[Lookup]] = {}
        for feature, lookup in given.items():
            by_table.setdefault(self._features[feature], []).append(lookup)
        return {
            table: of_table[0] if len(of_table) == 1 else self._joined(table, of_table)
            for table, of_table in by_table.items()
        }

    def _joined(self, table: str, lookups: list[Lookup]) -> Lookup:
        options = self._tables[table]
        bags = [self._samples(table, lookup) * options.slots for lookup in lookups]
        return joined_lookups(options, lookups, bags)

    def _samples(self, table: str, lookup: Lookup) -> int:
        keys, offsets, _ = lookup
        assert keys is not None
        slots = self._tables[table].slots
        # Several slots tell whether offsets have their end; one slot's have it, or the client refuses them.
        bags = keys.numel() if offsets is None else len(offsets) - 1 if slots == 1 else len(offsets)
        return bags // slots

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        return ", ".join(
            f"{feature!r}: {_shape_of(feature, table, self._tables[table])}"
            for feature, table in self._features.items()
        )


def _shape_of(feature: str, table: str, options: TableOptions) -> str:
    shape = f"[{options.slots}, {options.dim}]"
    return shape if feature == table else f"{shape} of {table!r}"
