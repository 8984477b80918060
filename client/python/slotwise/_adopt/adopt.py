"""`adopt` and `release`, the two calls that users make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, distributed, nn

from slotwise._adopt.find import FoundWeight, find_weights
from slotwise._adopt.modules import ADOPTED, PLAIN
from slotwise._adopt.steps import OptimizerOfTables
from slotwise._adopt.table import AdoptedTable
from slotwise.client import Client
from slotwise.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound


class _Adoption:
    """What one call of `adopt` changed."""

    def __init__(self, ps: Client, tables: list[AdoptedTable], found: list[FoundWeight]) -> None:
        self.tables = tables
        self._modules = [list(weight.modules.values()) for weight in found]
        optimizers = {id(t.optimizer): t.optimizer for t in tables if t.optimizer is not None}
        self._optimizers = [
            OptimizerOfTables(ps, optimizer, [t for t in tables if t.optimizer is optimizer])
            for optimizer in optimizers.values()
        ]

    def begin(self) -> None:
        """Changes the model and the optimizers."""
        for table, modules in zip(self.tables, self._modules):
            for module in modules:
                module.__class__ = ADOPTED[type(module)]
                module.__dict__.update(_slotwise_table=table, _slotwise_adoption=self)
            table.hold(modules)
        for optimizer in self._optimizers:
            optimizer.attach()

    def fetch(self) -> list[tuple[Tensor, dict[str, Any]]]:
        """Returns rows and state of all tables, and changes nothing.

        Raises:
            slotwise.FailedPrecondition: rows are erased, or somebody has written to a weight.
            slotwise.Error: the rows could not be fetched.
        """
        for table in self.tables:
            table.check_weight()
        return [table.fetch_with_state() for table in self.tables]

    def end(self, fetched: list[tuple[Tensor, dict[str, Any]]] | None) -> None:
        """Gives the model and the optimizers back what `fetch` returned; None: zeros."""
        for optimizer in self._optimizers:
            optimizer.detach()
        for number, (table, modules) in enumerate(zip(self.tables, self._modules)):
            for module in modules:
                module.__class__ = PLAIN[type(module)]
                del module._slotwise_table, module._slotwise_adoption
                module._parameters["weight"] = table.weight
            if fetched is None:
                table.restore_without_rows()
            else:
                table.restore(*fetched[number])


def adopt(
    model: nn.Module,
    ps: Client,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    prefix: str = "",
) -> dict[str, str]:
    """Moves a model's embeddings to tables on a server; the training loop stays as it is.

    Every `nn.Embedding` and `nn.EmbeddingBag` of the model, also in TorchRec's unsharded
    `EmbeddingBagCollection`, becomes a table with the weight's rows, whose keys are the indices,
    and with the optimizer's state of them. The modules stay the same objects, with the same
    arguments, results and gradients. Their weights keep shape, device and `grad`, but no memory:
    reading one gives NaN. `optimizer.step()` pushes the weights' gradients, as one step, before it
    does the other parameters'. `state_dict()`, `load_state_dict()`, `copy.deepcopy` and `pickle`
    of the model move the rows as they are on the server; copies are ordinary torch modules.

    A model is adopted whole or not at all: after an exception it is as it was, and so is the
    server.

    Args:
        model: the model, or a part of it.
        optimizer: the optimizer, or several, that have the embeddings' weights:
            `torch.optim.SGD` without momentum, `Adagrad` without lr_decay, or `SparseAdam`, all
            without weight decay; their tables' optimizers give the same numbers. None: the weights
            are frozen.
        prefix: what the tables' names begin with. The path of the module follows, as
            `named_modules()` has it, or the name of the table in TorchRec's collection.

    Returns:
        The names of the tables, by the paths of their modules.

    Raises:
        slotwise.InvalidArgument: something would not be the same on the server; the message names
            module and setting.
        slotwise.AlreadyExists: there is a table of such a name.
        slotwise.FailedPrecondition: the process is one of several trainers of a process group.
        slotwise.Error: the server cannot take the tables.
    """
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise FailedPrecondition(
            f"adopt() in one of {distributed.get_world_size()} trainers of a process group: an adopted model "
            f"has one replica, and each of DistributedDataParallel's would be another model. Use the modules "
            f"of slotwise.torch with a slotwise.torch.shared_session"
        )
    ps._pushes.wait()
    given = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer or ())
    found = find_weights(model, given)
    tables = [
        AdoptedTable(ps, prefix + w.name, w.weight, w.combiner, w.optimizer, w.group) for w in found
    ]
    _check_names(ps, tables)
    created: list[AdoptedTable] = []
    try:
        for table in tables:
            created.append(table)
            table.create()
    except BaseException as error:
        if isinstance(error, AlreadyExists):
            created.pop()  # somebody else has made this one meanwhile
        for table in created:
            ps.drop_table(table.name, missing_ok=True)
        raise
    _Adoption(ps, tables, found).begin()
    return {path: t.name for t, weight in zip(tables, found) for path in weight.modules}


def release(model: nn.Module, *, keep_tables: bool = False, discard: bool = False) -> None:
    """Brings the embeddings of an adopted model back, with their optimizer's state.

    Training goes on as if it had been torch's from the start. Whatever the same call of `adopt`
    moved comes back together. If the rows cannot be fetched, the model stays adopted.

    Args:
        model: what was adopted, or something that contains it.
        keep_tables: leaves the tables on the server; otherwise they are dropped.
        discard: for a server or tables that are gone: gives the rows up, and sends the server
            nothing. The weights become zeros, because nobody has kept what they were when they
            were adopted, and their optimizer's state is that of new weights; `load_state_dict()`
            of a checkpoint follows. Tables that are there stay.

    Raises:
        slotwise.InvalidArgument: nothing in the model is adopted.
        slotwise.FailedPrecondition: somebody has erased rows of a table, or written to a weight.
        slotwise.Error: the rows could not be fetched; or, when the model has them, a table could
            not be dropped.
    """
    adopted = [module for module in model.modules() if type(module) in PLAIN]
    adoptions: dict[int, Any] = {
        id(module._slotwise_adoption): module._slotwise_adoption for module in adopted
    }
    if not adoptions:
        raise InvalidArgument("nothing in the model is adopted")
    for ps in {table.ps for adoption in adoptions.values() for table in adoption.tables}:
        if not discard:
            ps._pushes.wait()
    fetched = {key: None if discard else one.fetch() for key, one in adoptions.items()}
    for key, adoption in adoptions.items():
        adoption.end(fetched[key])
    if keep_tables or discard:
        return
    for adoption in adoptions.values():
        for table in adoption.tables:
            table.ps.drop_table(table.name, missing_ok=True)


def _check_names(ps: Client, tables: list[AdoptedTable]) -> None:
    """Raises unless every table can be made anew."""
    names = [table.name for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"two weights would both be the table {name}")
        try:
            ps.describe_table(name)
        except NotFound:
            continue
        raise AlreadyExists(
            f"there is a table {name} already: drop it, or give adopt() another prefix"
        )
