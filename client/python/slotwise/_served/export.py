"""`export_module`: the copy, and the rows in it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from slotwise._adopt.adopt import tables_of
from slotwise._bags import EmbeddingBag, EmbeddingBags
from slotwise._modules import Embedding, RemoteEmbedding
from slotwise._served.bags import ServedEmbeddingBags
from slotwise._served.modules import ServedEmbedding, ServedEmbeddingBag, ServedTable
from slotwise.batch import as_keys
from slotwise.client import Client
from slotwise.errors import InvalidArgument

Module = TypeVar("Module", bound=nn.Module)


def export_module(
    model: Module, *, tables: Mapping[str, ArrayLike] | None = None, ids: str = "map"
) -> Module:
    """Returns a plain torch copy of a model whose rows are on a server, to serve it.

    The copy has the rows in buffers, no client, and is in `eval()` mode; the original stays as it is. The
    copy's modules give the original's results in `eval()` mode, to float32's rounding: zeros for an id
    without a row. `torch.jit.trace` and `torch.jit.script` take the copy's embeddings. Adopted modules become
    the former torch modules again, with all their rows. Copies of modules share what the modules share. A
    client, or a `slotwise.torch.Optimizer`, that the model has as an attribute is None in the copy.

    The call waits for the client's own pushes in the background. If other clients push meanwhile, the copy's
    rows may be of several steps. Rows lie on the CPU: `to()` moves the copy as any module.

    Args:
        model: has modules of `slotwise.torch`, or adopted ones, or is one.
        tables: for some tables of `slotwise.torch` modules, the ids whose rows the copy has, int64 or uint64
            of any shape. Of all other tables the copy has all rows.
        ids: "map": the copy takes ids, and has the sorted ids to find their rows. "positions": the copy takes
            positions, and exports to ONNX: `slotwise.positions(ids, known)` makes them, where `known` is a
            module's `ids`. A padding is among those ids.

    Raises:
        slotwise.InvalidArgument: the model has nothing of Slotwise; a name or an id of `tables` is not there;
            or a module has hooks, or a class of its own, that a copy would lose; or an adopted weight's
            table has rows of new ids (`grow`).
        slotwise.Error: the rows could not be fetched.
    """
    if ids not in ("map", "positions"):
        raise InvalidArgument(f"ids is {ids!r}: must be 'map' or 'positions'")
    modules = [module for module in model.modules() if isinstance(module, RemoteEmbedding)]
    adopted = tables_of(model)
    if not modules and not adopted:
        raise InvalidArgument(
            "the model has no module of slotwise.torch, and none that was adopted: copy.deepcopy(model) is "
            "a plain copy of it"
        )
    for module in model.modules():
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            raise InvalidArgument(
                f"the model is within a {type(module).__name__}, which cannot be served: give "
                f"export_module() its .module"
            )
    for module in modules:
        _check(module)
    wanted = _ids_by_table(modules, {table.name for table in adopted}, tables or {})
    clients = [*(module._ps for module in modules), *(table.ps for table in adopted)]
    for ps in dict.fromkeys(clients):
        ps._usable()
        ps._pushes.wait()
    for table in adopted:
        if table.new_rows() > 0:
            raise InvalidArgument(
                f"table {table.name} has grown beyond its weight, whose copy has no place for new ids: "
                f"release(model, keep_tables=True), and export a model of slotwise.torch modules"
            )
    memo = _stand_ins(modules, wanted, ids == "positions")
    copied: Module = copy.deepcopy(model, memo)
    return copied.eval()


def _check(module: RemoteEmbedding) -> None:
    """Raises InvalidArgument if a copy of the module would do less than the module."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    if hooks:
        raise InvalidArgument(
            f"{module._name()} has forward hooks, which its copy would not have: remove them, or make what "
            f"they do a module of the model"
        )
    kind = next((each for each in _KINDS if isinstance(module, each)), None)
    kept = ("forward", "lookups_of", "__call__")
    is_changed = kind is None or "forward" in vars(module)
    if is_changed or any(getattr(type(module), name) is not getattr(kind, name) for name in kept):
        raise InvalidArgument(
            f"{module._name()} has a forward() of its own, which its copy would not have: put a module of "
            f"slotwise.torch into yours, instead of deriving from it"
        )


def _ids_by_table(
    modules: list[RemoteEmbedding], adopted: set[str], given: Mapping[str, ArrayLike]
) -> dict[str, NDArray[np.uint64]]:
    """Returns the given ids by table, sorted; InvalidArgument if a table cannot have ids given."""
    own: dict[str, Client] = {}
    for module in modules:
        for table in module._tables:
            if own.setdefault(table, module._ps) is not module._ps:
                raise InvalidArgument(
                    f"table {table} is looked up by modules of two clients, and its rows are taken once: "
                    f"make the modules of one client"
                )
    for table in given:
        if table in own:
            continue
        if table in adopted:
            raise InvalidArgument(
                f"tables: {table} is an adopted weight's, whose copy has all rows: leave it out of tables"
            )
        others = ", ".join(own) or "adopted ones"
        raise InvalidArgument(f"tables: the model has no table {table!r}, but {others}")
    return {table: np.unique(as_keys(_array(each))) for table, each in given.items()}


def _array(ids: Any) -> Any:
    return ids.detach().cpu().numpy() if isinstance(ids, torch.Tensor) else ids


def _stand_ins(
    modules: list[RemoteEmbedding], wanted: Mapping[str, NDArray[np.uint64]], takes_positions: bool
) -> dict[int, Any]:
    """Returns the copy's objects in the place of modules, clients and optimizers, by the id of each."""
    paddings: dict[str, set[int]] = {}
    clients: dict[str, Client] = {}
    memo: dict[int, Any] = {}
    for module in modules:
        memo[id(module._ps)] = None
        if module._optimizer is not None:
            memo[id(module._optimizer)] = None
        for table in module._tables:
            clients[table] = module._ps
            paddings.setdefault(table, set()).update(_padding_of(module))
    served = {
        table: _served_table(ps, table, wanted.get(table), paddings[table], takes_positions)
        for table, ps in clients.items()
    }
    for module in modules:
        memo[id(module)] = _stand_in(module, served)
    return memo


def _padding_of(module: Any) -> list[int]:
    return [] if module.padding_idx is None else [module.padding_idx]


def _stand_in(module: Any, served: Mapping[str, ServedTable]) -> nn.Module:
    """Returns the module that a copy has in the place of one of ours."""
    padding: int | None = module.padding_idx
    if isinstance(module, Embedding):
        return ServedEmbedding(served[module._table], padding)

    def bag(feature: str, table: str, include_last_offset: bool) -> ServedEmbeddingBag:
        options = module._tables[table]
        return ServedEmbeddingBag(
            served[table], feature, options.slots, options.combiner, padding, include_last_offset
        )

    if isinstance(module, EmbeddingBag):
        return bag(module._table, module._table, module._include_last_offset)
    features = [bag(feature, table, True) for feature, table in module._features.items()]
    return ServedEmbeddingBags(features, padding)


def _served_table(
    ps: Client, table: str, wanted: NDArray[np.uint64] | None, paddings: set[int], takes_positions: bool
) -> ServedTable:
    """Fetches the rows of a table's wanted keys, or all; InvalidArgument if a wanted key has no row.

    The int64 ids `paddings` are among the ids of the copy, with zeros if they have no row.
    """
    padded = np.array(sorted(paddings), np.int64)
    chunks = list(ps.export_rows(table, wanted))
    found = np.concatenate([np.zeros(0, np.uint64), *(chunk.keys for chunk in chunks)]).view(np.int64)
    if wanted is not None:
        missing = np.setdiff1d(wanted.view(np.int64), np.concatenate([found, padded]))
        if len(missing):
            raise InvalidArgument(
                f"tables: {len(missing)} of the ids given for {table} have no row, for example "
                f"{missing[0]}: leave them out, and the copy gives zeros for them"
            )
    known = np.concatenate([found, np.setdiff1d(padded, found)])
    order = np.argsort(known)
    places = np.empty(len(known), np.int64)  # of each row that was found among the sorted ids
    places[order] = np.arange(len(known))
    rows = np.zeros((len(known) + 1, ps.describe_table(table).options.dim), np.float32)
    end = len(found)
    while chunks:  # from the last one on, so that each is freed once its rows are there
        chunk = chunks.pop()
        end, after = end - len(chunk.keys), end
        rows[places[end:after]] = chunk.values
    return ServedTable(table, torch.from_numpy(known[order]), torch.from_numpy(rows), takes_positions)


_KINDS: tuple[type[RemoteEmbedding], ...] = (Embedding, EmbeddingBag, EmbeddingBags)
