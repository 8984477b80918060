"""Torch modules whose rows live on the server.

The server's optimizer updates the rows, so the modules have no parameters. One outermost `backward()` is one
step of all tables that were looked up for its loss, by any number of `forward()`s and modules, whose
gradients of a table are added up, as in torch. The step is applied when `backward()` returns; `backward()`
raises the push's errors. A `backward()` that raises another error pushes nothing, nor does
`torch.autograd.grad`; a second `backward()` over a graph is a second step. In `train()` mode a lookup gives
new keys rows; in `eval()` mode it inserts nothing, and its result takes no gradient.

Calls that would train something else are refused (`FailedPrecondition`): `create_graph=True` through a
lookup; a `backward()` inside another one, as of torch's reentrant checkpointing; replicas of `DataParallel`;
training under float16 autocast, whose scaled gradients the rows would get; and tracing, scripting or
exporting a model, which would make constants of rows. When torch's non-reentrant checkpointing computes a
forward anew, it gets the rows of the first time; of several forwards of the same keys, the rows of the
newest that was not computed anew yet, as passes go backwards.

Two limits. A `backward()` that a hook begins on a GPU's thread of autograd is not seen to be inside another
one, and makes a step of its own. Torch before 2.1 does not name its passes, so each thread of autograd has
its own pass: lookups of a GPU and of the CPU make two steps, and trainers in several threads cannot share a
GPU.

`Prefetch` wraps a loader: it looks the next batches' rows up while the trainer computes, and pushes in the
background. A module made with `in_flight=True` pushes in the background without `Prefetch`: then the next
`forward()` of its tables waits for the push, and raises its error; so do `flush()`, `save`, `load`, `adopt`,
`release`, `Client.close` and the client's calls that read or change whole tables. A client's pushes in the
background are applied one after the other, so trainers in one process that share a step have a client each.

The modules' `state_dict()` is empty: `save` writes the rest of the model and the server's checkpoint as one,
and `load` brings both back. Modules cannot be copied or pickled, and do not survive a fork, because they hold
connections. Thread-safe as `Client` is.

`adopt` moves the weights of torch's own embeddings in a model to tables, and `release` brings them back.
`export_module` makes a plain torch copy of a model, to serve it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from slotwise import _pair
from slotwise._adopt.adopt import adopt, release, tables_of
from slotwise._adopt.weight import names_of_adopted, rows_stay
from slotwise._bags import EmbeddingBag, EmbeddingBags
from slotwise._modules import Embedding, RemoteEmbedding
from slotwise._optimizer import Optimizer
from slotwise._prefetch import Prefetch
from slotwise._served.export import export_module
from slotwise._shared_session import shared_session
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
    "export_module",
    "load",
    "release",
    "save",
    "shared_session",
]


def save(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    loader_state: Any = None,
    *,
    delta: bool = False,
    timeout: float | None = None,
) -> Checkpoint:
    """Saves a model whole: its own weights in a file, and its rows in a checkpoint of the server.

    The file names the checkpoint. Once both are on disk, the file appears, or replaces the file before, in
    one step: after a crash there is the old pair or the new one. The checkpoint is pinned
    (`Client.pin_checkpoint`) until another `save` replaces the file; to delete the file, release the
    checkpoint too. One trainer saves, while no trainer pushes.

    Args:
        path: the file.
        model: has modules of this module, or adopted ones, all of one client.
        optimizer: of the model's own weights: one, or several.
        loader_state: what else the trainer needs to go on: its place in the data, schedulers' states. It may
            have dicts, lists, tuples, sets, deques, numbers, texts, bytes, tensors, NumPy's arrays, and all
            that torch's schedulers have in their `state_dict()`.
        delta: whether the checkpoint has only changes, as in `Client.save`.
        timeout: seconds to wait for the checkpoint; None: a day.

    Raises:
        slotwise.InvalidArgument: the model has no module of this module and no adopted one, or modules of
            several clients; or a value of another kind, which the message names.
        slotwise.FailedPrecondition: the server has no data folder; or a trainer has pushed meanwhile.
        slotwise.Error, OSError: the checkpoint, or the file, could not be written. The file is as it was.
    """
    remote = _remote_of(model)
    remote.ps._pushes.wait()
    with rows_stay():
        state = _own_state(model)
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

    The server must have the state of the file's checkpoint: the tables' generations and steps, and the
    session's last step, are compared, which does not show rows that were imported or erased since. Then the
    client goes on with the session that the file names, so that the next push is the step behind the last
    one. Modules that were given a session go on with it if it has the same id.

    Args:
        path: the file.
        model, optimizer: as they were saved; their weights and states are overwritten.
        go_back: whether a server of another state loads the model's tables from the file's checkpoint
            (`Client.load`), which loses all later pushes to them. All other tables stay as they are. The
            session goes on behind its newest step.
        all_tables: with `go_back`, the server replaces all that it has with all tables of the checkpoint and
            its names of steps.
        timeout: seconds to wait for the load; None: a day.

    Raises:
        FileNotFoundError: there is no such file.
        slotwise.DataLoss: the file is damaged, or not one of `save`'s.
        slotwise.FailedPrecondition: the server has another state, without `go_back`. The message names the
            differences and the ways to the right state. Nothing was changed.
        slotwise.InvalidArgument: there are other tables, weights or optimizers than were saved.
    """
    content = _pair.read(path)
    optimizers = _pair.optimizers_of(optimizer)
    if len(optimizers) != len(content["optimizers"]):
        raise InvalidArgument(
            f"{path} has the states of {len(content['optimizers'])} optimizers, not {len(optimizers)}"
        )
    state = content["model"]
    with rows_stay():
        _check_fits(path, _own_state(model), state)
        for each, saved in zip(optimizers, content["optimizers"]):
            _check_groups(path, each.state_dict()["param_groups"], saved["param_groups"])
    record, remote = content["slotwise"], _remote_of(model)
    remote.ps._pushes.wait()
    _pair.bring_back(path, remote, record, go_back=go_back, all_tables=all_tables, timeout=timeout)
    if content["model_metadata"] is not None:
        state._metadata = content["model_metadata"]
    with rows_stay():
        model.load_state_dict(state, strict=False)  # what is missing are the tables' weights
        for each, state in zip(optimizers, content["optimizers"]):
            each.load_state_dict(state)
    return content["loader_state"]


def _own_state(model: nn.Module) -> Any:
    """Returns a model's state_dict() without the weights that tables have."""
    state = model.state_dict()
    for name in names_of_adopted(model):
        state.pop(name, None)  # also for layers that share the weight
    return state


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


def _remote_of(model: nn.Module) -> _pair.RemoteEmbedding:
    own: list[tuple[Client, Iterable[str], Session | None]] = [
        (module._ps, module._tables, module._of_steps.session)
        for module in model.modules()
        if isinstance(module, RemoteEmbedding)
    ]
    return _pair.remote_of([*own, *((table.ps, [table.name], None) for table in tables_of(model))])
