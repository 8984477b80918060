"""Torch modules whose rows live on the server.

The server's optimizer updates the rows, so the modules have no parameters. One outermost `backward()`
is one step of all tables that were looked up for its loss, by however many `forward()`s of however
many modules: all that a table gets back is one gradient, as in torch. The step is applied when
`backward()` returns; `backward()` raises the push's errors. One that raises otherwise pushes nothing,
nor does `torch.autograd.grad`; a second `backward()` over a graph is a second step. In `train()` mode a
lookup gives new keys rows; in `eval()` mode it inserts nothing, and its result takes no gradient.

What would train something else is refused (`FailedPrecondition`): `create_graph=True` through a
lookup, a `backward()` inside another one, as torch's reentrant checkpointing has, replicas of
`DataParallel`, training under float16 autocast, whose scaled gradients the rows would get, and
tracing, scripting or exporting a model, which would make constants of rows. Torch's non-reentrant
checkpointing gets the rows of the first time when it computes anew; of several forwards of the same
keys, those of the newest that was not computed anew yet, as passes go backwards.

Two limits. A `backward()` that a hook begins on a GPU's thread of autograd is not seen to be inside
another one, and makes a step of its own. Torch before 2.1 does not name its passes, so each thread of
autograd has its own there: a pass over lookups of a GPU and of the CPU is two steps, and trainers in
several threads cannot share a GPU.

`Prefetch` goes around a loader: it looks the next batches' rows up while the trainer computes, and
pushes in the background. A module made with `in_flight=True` pushes in the background without it.
Then the next `forward()` of its tables waits for the push, and raises its error; so do `flush()`,
`save`, `load`, `adopt`, `release`, `Client.close` and the client's calls that read or change whole
tables. A client's pushes in the background are applied one after the other, so trainers in one
process that share a step have a client each.

So the modules' `state_dict()` is empty: `save` writes the rest of the model and the server's
checkpoint as one, and `load` brings both back. Modules cannot be
copied or pickled, and do not survive a fork, because they hold connections. Thread-safe as
`Client` is.

A model that has torch's own embeddings already need not be written anew: `adopt` moves their
weights to tables, and `release` brings them back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from slotwise import _pair
from slotwise._adopt.adopt import adopt, release
from slotwise._export import left_to_python
from slotwise._optimizer import Optimizer
from slotwise._prefetch import Prefetch
from slotwise._remote import Remote
from slotwise._shared_session import shared_session
from slotwise._tensors import Lookups
from slotwise.checkpoint_calls import Checkpoint
from slotwise.client import Client
from slotwise.errors import InvalidArgument
from slotwise.session import Session

__all__ = [
    "Embedding",
    "EmbeddingBag",
    "EmbeddingBags",
    "Optimizer",
    "Prefetch",
    "adopt",
    "load",
    "release",
    "save",
    "shared_session",
]

# keys; (keys, offsets); (keys, offsets, per_sample_weights).
Bags = (
    Tensor
    | tuple[Tensor]
    | tuple[Tensor, Tensor | None]
    | tuple[Tensor, Tensor | None, Tensor | None]
)


class Embedding(Remote):
    """Looks up rows as `torch.nn.Embedding` does, in a table without a combiner ("none").

    Attributes:
        dim: the table's dim; a result has one dimension more than the keys, of this size.
    """

    def __init__(
        self, ps: Client, table: str, *, session: Session | None = None, in_flight: bool = False
    ) -> None:
        """Uses a table that exists already.

        Args:
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
        self.dim = options.dim
        self._table = table
        self._share_steps()

    @left_to_python
    def forward(self, keys: Tensor) -> Tensor:
        """Returns the keys' rows, float32 [*keys.shape, dim], on the keys' device.

        Args:
            keys: int64 of any shape, any 64 bits, or narrower integers.
        """
        return self._forward(self.lookups_of(keys))[0]

    def lookups_of(self, keys: Tensor) -> Lookups:
        """Is Slotwise's own."""
        return {self._table: (keys, None, None)}

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        return f"{self._table!r}, dim={self.dim}"


class EmbeddingBag(Remote):
    """Pools the rows of every bag, as `torch.nn.EmbeddingBag` does.

    Attributes:
        dim, slots: the table's dim and slots; a result has slots * dim columns.
    """

    def __init__(
        self,
        ps: Client,
        table: str,
        *,
        session: Session | None = None,
        include_last_offset: bool = True,
        in_flight: bool = False,
    ) -> None:
        """Uses a table that exists already.

        Args:
            session, in_flight: as for `Embedding`.
            include_last_offset: as in `torch.nn.EmbeddingBag`, whose default is False: whether
                `forward`'s offsets end with the number of keys.

        Raises:
            slotwise.NotFound: no such table.
        """
        super().__init__(ps, [table], session, in_flight)
        (options,) = self._tables.values()
        self.dim, self.slots = options.dim, options.slots
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
            keys: int64 [keys], any 64 bits, or narrower integers; without offsets also [samples,
                slots].
            offsets: integers [samples * slots + 1] from 0 to `len(keys)`, which is left out if
                `include_last_offset` is False. None: every bag has one key.
            per_sample_weights: float32 of the keys' shape; each key's row is multiplied by its
                weight. The weights' own gradient is not computed, so weights that require one are
                refused.
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
        return {self._table: (keys, offsets, per_sample_weights)}

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        return f"{self._table!r}, slots={self.slots}, dim={self.dim}"


class EmbeddingBags(Remote):
    """Looks up in several tables, of any dims, with one request a `forward()` or `backward()`.

    A table whose result had no part in the loss makes no step, unless trainers
    share the session: their steps have all tables.
    """

    def __init__(
        self,
        ps: Client,
        tables: Iterable[str],
        *,
        session: Session | None = None,
        in_flight: bool = False,
    ) -> None:
        """Uses tables that exist already.

        Args:
            session, in_flight: as for `Embedding`.

        Raises:
            slotwise.NotFound: no such table.
        """
        super().__init__(ps, tables, session, in_flight)
        self._share_steps()

    @left_to_python
    def forward(self, bags: Mapping[str, Bags]) -> dict[str, Tensor]:
        """Returns the pooled rows by table, float32 [samples, slots * dim], on their keys' devices.

        Args:
            bags: for each table, or for some, keys or a tuple of `EmbeddingBag.forward`'s
                arguments: (keys,), (keys, offsets) or (keys, offsets, per_sample_weights).
        """
        lookups = self.lookups_of(bags)
        return dict(zip(lookups, self._forward(lookups))) if lookups else {}

    def lookups_of(self, bags: Mapping[str, Bags]) -> Lookups:
        """Is Slotwise's own."""
        lookups: Lookups = {}
        for table, given in bags.items():
            if table not in self._tables:
                raise InvalidArgument(f"table {table} is not one of {', '.join(self._tables)}")
            tensors = tuple(given) if isinstance(given, (tuple, list)) else (given,)
            if not 1 <= len(tensors) <= 3:
                raise InvalidArgument(f"table {table}: {len(tensors)} tensors, not 1 to 3")
            lookups[table] = (*tensors, *[None] * (3 - len(tensors)))
        return lookups

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        return ", ".join(
            f"{table!r}: [{options.slots}, {options.dim}]"
            for table, options in self._tables.items()
        )


def save(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    loader_state: Any = None,
    *,
    delta: bool = False,
    timeout: float | None = None,
) -> Checkpoint:
    """Saves a model whole: its own weights in a file, and with it the server's checkpoint of its rows.

    The file names the checkpoint and appears, or replaces the one before, in one step, once both are
    on disk. After a crash there is the old pair or the new one, and never one's file with the other's
    rows. The checkpoint is pinned (`Client.pin_checkpoint`) until another `save` replaces the file;
    to delete the file, release the checkpoint too. One trainer saves, while nobody pushes.

    Args:
        path: the file.
        model: has modules of this module, all of one client.
        optimizer: of the model's own weights: one, or several.
        loader_state: what else the trainer needs to go on: where its data is, schedulers' states.
            It may have dicts, lists, tuples, sets, numbers, texts, bytes and tensors.
        delta: whether the checkpoint has only what has changed, as in `Client.save`.
        timeout: seconds to wait for the checkpoint; None: a day.

    Returns:
        The checkpoint.

    Raises:
        slotwise.InvalidArgument: the model has no module of this module, or modules of several
            clients; or something that is to be saved is of another kind; names it.
        slotwise.FailedPrecondition: the server has no data folder; or somebody has pushed meanwhile.
        slotwise.Error, OSError: the checkpoint, or the file, could not be written. The file is then
            as it was.
    """
    remote = _remote_of(model)
    remote.ps._pushes.wait()
    state = model.state_dict()
    content = {
        "model": state,
        "model_metadata": getattr(state, "_metadata", None),
        "optimizers": [each.state_dict() for each in _pair.optimizers_of(optimizer)],
        "loader_state": loader_state,
    }
    return _pair.save(path, remote, content, delta=delta, timeout=timeout)


def load(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    go_back: bool = False,
    all_tables: bool = False,
    timeout: float | None = None,
) -> Any:
    """Brings back what `save` has written, and returns its `loader_state`.

    The server must have the state of the file's checkpoint: the tables' lineages and steps, and the
    session's last step, are compared. What is compared does not show rows that were imported or
    erased since. Then the client goes on with the session that the file names, so that the next push
    is the step behind the last one. Modules that were given a session go on with it if it has the
    same id.

    Args:
        path: the file.
        model, optimizer: as they were saved; their weights and states are overwritten.
        go_back: a server of another state loads the model's tables from the file's checkpoint
            (`Client.load`): what anybody has pushed to them since is lost. All other tables stay as
            they are. The session goes on behind its newest step.
        all_tables: with `go_back`, the server loads all tables of the checkpoint, and its names of
            steps, in the place of all that it has.
        timeout: seconds to wait for that; None: a day.

    Raises:
        FileNotFoundError: there is no such file.
        slotwise.DataLoss: the file is damaged, or not one of `save`'s.
        slotwise.FailedPrecondition: the server has another state, and was not to go back. The message
            says in what it differs, and how to come by the right one. Nothing was changed.
        slotwise.InvalidArgument: there are other tables, weights or optimizers than were saved.
    """
    content = _pair.read(path)
    optimizers = _pair.optimizers_of(optimizer)
    if len(optimizers) != len(content["optimizers"]):
        raise InvalidArgument(
            f"{path} has the states of {len(content['optimizers'])} optimizers, not {len(optimizers)}"
        )
    state = content["model"]
    _check_fits(path, model.state_dict(), state)
    for each, saved in zip(optimizers, content["optimizers"]):
        _check_groups(path, each.state_dict()["param_groups"], saved["param_groups"])
    record, remote = content["slotwise"], _remote_of(model)
    remote.ps._pushes.wait()
    _pair.bring_back(
        path, remote, record, go_back=go_back, all_tables=all_tables, timeout=timeout
    )
    if content["model_metadata"] is not None:
        state._metadata = content["model_metadata"]
    model.load_state_dict(state)
    for each, state in zip(optimizers, content["optimizers"]):
        each.load_state_dict(state)
    return content["loader_state"]


def _check_fits(path: str | os.PathLike[str], mine: dict[str, Any], saved: dict[str, Any]) -> None:
    """Raises InvalidArgument unless a model has the weights that were saved, in their shapes."""
    for name in sorted(set(mine) ^ set(saved)):
        whose = "the model has and the file has not" if name in mine else "the file has and the model has not"
        raise InvalidArgument(f"{path} does not fit the model: {whose} {name}")
    for name, value in mine.items():
        if isinstance(value, torch.Tensor) and value.shape != saved[name].shape:
            raise InvalidArgument(
                f"{path} does not fit the model: {name} is {list(value.shape)} in the model and "
                f"{list(saved[name].shape)} in the file"
            )


def _check_groups(path: str | os.PathLike[str], mine: list[Any], saved: list[Any]) -> None:
    """Raises InvalidArgument unless an optimizer has as many parameters, in as many groups."""
    sizes = [[len(group["params"]) for group in groups] for groups in (mine, saved)]
    if sizes[0] != sizes[1]:
        raise InvalidArgument(
            f"{path} does not fit the optimizer: its groups have {sizes[0]} parameters, and in the file "
            f"{sizes[1]}"
        )


def _remote_of(model: nn.Module) -> _pair.Remote:
    modules = [module for module in model.modules() if isinstance(module, Remote)]
    return _pair.remote_of((module._ps, module._tables, module._of_steps.session) for module in modules)
