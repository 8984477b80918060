"""`adopt` and `release`, the two calls that users make."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from slotwise._adopt.find import FoundWeight, find_weights
from slotwise._adopt.modules import adopted_class, is_adopted, plain_class
from slotwise._adopt.optimizers import unwrapped
from slotwise._adopt.steps import OptimizerOfTables
from slotwise._adopt.table import AdoptedTable, How
from slotwise._adopt.trainers import Trainers
from slotwise.client import Client
from slotwise.errors import AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument, NotFound
from slotwise.options import TableInfo


class _Adoption:
    """What one call of `adopt` changed."""

    def __init__(
        self, ps: Client, tables: list[AdoptedTable], found: list[FoundWeight], trainers: Trainers
    ) -> None:
        self.tables, self.trainers = tables, trainers
        self._modules = [list(weight.modules.values()) for weight in found]
        optimizers = {id(t.optimizer): t.optimizer for t in tables if t.optimizer is not None}
        self._optimizers = [
            OptimizerOfTables(
                ps, optimizer, [t for t in tables if t.optimizer is optimizer], trainers.session(ps)
            )
            for optimizer in optimizers.values()
        ]

    def begin(self) -> None:
        """Changes the model and the optimizers."""
        for table, modules in zip(self.tables, self._modules):
            for module in modules:
                module.__class__ = adopted_class(type(module)) or type(module)
                module.__dict__.update(_slotwise_table=table, _slotwise_adoption=self)
            table.hold(modules)
        for optimizer in self._optimizers:
            optimizer.attach()

    def fetch(self, keep_tables: bool) -> list[tuple[Tensor, dict[str, Any]]]:
        """Returns rows and state of all tables, and changes nothing; raises as `release`."""
        for table in self.tables:
            table.check_weight()
            new = 0 if keep_tables else table.new_rows()
            if new > 0:
                raise FailedPrecondition(
                    f"table {table.name} has {new} rows of ids that the weight has no row for, which would "
                    f"be lost: release(model, keep_tables=True) leaves the tables to native modules"
                )
        return [table.fetch_with_state() for table in self.tables]

    def end(self, fetched: list[tuple[Tensor, dict[str, Any]]] | None) -> None:
        """Gives the model and the optimizers back what `fetch` returned; None: zeros."""
        for optimizer in self._optimizers:
            optimizer.detach()
        for number, (table, modules) in enumerate(zip(self.tables, self._modules)):
            for module in modules:
                module.__class__ = plain_class(type(module))
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
    names: Mapping[str, str] | None = None,
    lazy: bool = False,
    attach: bool = False,
    grow: bool = False,
    read_mib: float = 64,
) -> dict[str, str]:
    """Moves a model's embeddings to tables on a server; the training loop stays as it is.

    Every `nn.Embedding` and `nn.EmbeddingBag` of the model, also in TorchRec's unsharded
    `EmbeddingBagCollection`, and of classes derived from them that change nothing, becomes a table with the
    weight's rows and the optimizer's state of the rows. The keys are the indices. The modules stay the same
    objects, with the same arguments, results and gradients. Their weights keep shape, device and `grad`, but
    no memory. A read of a weight, by the module or by another reference, gets the rows, which are fetched
    once a step, with autograd: tied output layers, L2 terms and averaged models train as before. A write to
    a weight raises. `optimizer.step()` pushes the weights' gradients, as one step, before it steps the other
    parameters. `state_dict()`, `load_state_dict()`, `copy.deepcopy` and `pickle` of the model move the rows
    as they are on the server; copies are ordinary torch modules.

    A model is adopted whole or not at all: after an exception it is as it was, and so is the server.

    In a process group of several trainers each trainer adopts its replica, before DistributedDataParallel
    wraps the replica. All trainers get the first trainer's rows, DistributedDataParallel leaves the adopted
    weights alone, and a step of an optimizer in all trainers is one step of its tables, with the mean of the
    trainers' gradients. A read of `weight.grad`, as by clip_grad_norm_, gets that mean. The read is a
    collective of the process group: all trainers make it, in the same order. A step in which no trainer has a
    gradient of a table counts for the table all the same, and moves no row.

    Args:
        model: the model, or a part of it.
        optimizer: the optimizer, or several, that have the embeddings' weights: `torch.optim.SGD` without
            momentum, `Adagrad` without lr_decay, `SparseAdam`, TorchRec's `RowWiseAdagrad`, all without
            weight decay; their tables' optimizers give the same numbers. With `lazy` also `Adam` and `AdamW`
            without amsgrad, and weight decay. None: the weights are frozen.
        prefix: the beginning of the tables' names. The path of the module follows, as `named_modules()` has
            the path, or the name of the table in TorchRec's collection; "_" stands for characters that no
            table's name has.
        names: whole names of tables, by the paths of their modules, instead.
        lazy: whether rows that a step does not touch may rest where the optimizer would move them, by old
            momentum or by weight decay. Touched rows move as by the optimizer.
        attach: whether a table that exists is the weight's, with the server's rows and optimizer's state; the
            model's own values are then dropped. So a trainer that was killed comes back.
        grow: whether ids that a weight has no row for get one, when a module looks them up in training, with
            the mean and the deviation of the weight's rows at adoption; in `eval()` mode ids without a row
            are zeros. The weights' gradients are then sparse, and have a row for every id below
            2**62 / dim. A read of a whole weight, by `state_dict()` too, gets the weight's own rows alone.
        read_mib: the most MiB of rows that a read of a weight may fetch; a module's `rows(ids)` returns some
            rows of a larger weight.

    Returns:
        The names of the tables, by the paths of their modules.

    Raises:
        slotwise.InvalidArgument: something would not be the same on the server; the message names
            module and setting.
        slotwise.AlreadyExists: there is a table of such a name, and `attach` is False.
        slotwise.FailedPrecondition: a table that exists has other options than the weight, or lacks rows; or
            another trainer of the process group has failed.
        slotwise.Error: the server cannot take the tables.
    """
    ps._pushes.wait()
    trainers = Trainers()

    def find() -> tuple[list[FoundWeight], list[AdoptedTable]]:
        given = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer or ())
        found = find_weights(model, [unwrapped(each) for each in given])
        how = How(lazy, read_mib, grow)
        chosen = _names_of(found, prefix, names or {})
        return found, [
            AdoptedTable(ps, name, w.weight, w.combiner, w.optimizer, w.group, how)
            for name, w in zip(chosen, found)
        ]

    found, tables = trainers.agree(find)
    created: list[AdoptedTable] = []

    def make() -> None:
        if trainers.number == 0:
            _make(ps, tables, attach, created)

    try:
        trainers.agree(make)
        made = trainers.told_by_first([table.name for table in created])
        trainers.agree(lambda: _find_made(ps, tables, made, trainers))
    except BaseException:
        for table in created:
            ps.drop_table(table.name, missing_ok=True)
        raise
    _Adoption(ps, tables, found, trainers).begin()
    return {path: t.name for t, weight in zip(tables, found) for path in weight.modules}


def _make(ps: Client, tables: list[AdoptedTable], attach: bool, created: list[AdoptedTable]) -> None:
    """Makes the tables that are not there, and adds them to `created`; raises as `adopt`."""
    there = _tables_that_are_there(ps, tables, attach)
    for table in tables:
        if table.name in there:
            table.attach(there[table.name])
    for table in tables:
        if table.name in there:
            continue
        created.append(table)
        try:
            table.create()
        except AlreadyExists:
            created.pop()  # another client has made this table meanwhile
            raise


def _find_made(ps: Client, tables: list[AdoptedTable], made: list[str], trainers: Trainers) -> None:
    """Finds the tables that the first trainer found or `made`; FailedPrecondition if they do not fit here."""
    for table in tables:
        try:
            if trainers.number > 0:
                table.attach(ps.describe_table(table.name))
        except (FailedPrecondition, NotFound) as error:
            raise FailedPrecondition(
                f"this trainer's model, optimizer or names are not the first trainer's: {error}"
            ) from error
        if trainers.count > 1 and table.name in made:
            with suppress(DataLoss):  # of another table of that name, which another trainer has dropped
                ps.lookup(table.name, [0], train=False)


def tables_of(model: nn.Module) -> list[AdoptedTable]:
    """Returns the tables of the adopted modules of a model."""
    tables: dict[AdoptedTable, None] = {}  # in their order
    for module in model.modules():
        if is_adopted(module):
            table: Any = module._slotwise_table
            tables[table] = None
    return list(tables)


def release(model: nn.Module, *, keep_tables: bool = False, discard: bool = False) -> None:
    """Brings the embeddings of an adopted model back, with their optimizer's state.

    Training goes on as if it had been torch's from the start. All embeddings that one call of `adopt` moved
    come back together. If the rows cannot be fetched, the model stays adopted. Of several trainers each
    releases its replica, and the last one drops the tables. To train on, wrap the model in another
    DistributedDataParallel, because the former one leaves the weights out.

    Args:
        model: what was adopted, or something that contains it.
        keep_tables: leaves the tables on the server; otherwise they are dropped.
        discard: for a server or tables that are gone: gives the rows up, and sends the server nothing. The
            weights become zeros, with the optimizer's state of new weights: load a checkpoint by
            `load_state_dict()`. Tables that exist stay.

    Raises:
        slotwise.InvalidArgument: nothing in the model is adopted.
        slotwise.FailedPrecondition: rows of a table were erased, or a weight was written to; or a table that
            is not kept has rows of new ids (`grow`), which the weight has no place for.
        slotwise.Error: the rows could not be fetched; or, when the model has them, a table could not be
            dropped.
    """
    adopted = [module for module in model.modules() if is_adopted(module)]
    adoptions: dict[int, Any] = {
        id(module._slotwise_adoption): module._slotwise_adoption for module in adopted
    }
    if not adoptions:
        raise InvalidArgument("nothing in the model is adopted")
    for ps in {table.ps for adoption in adoptions.values() for table in adoption.tables}:
        if not discard:
            ps._pushes.wait()
    with torch.inference_mode(False):  # or the weights could not be trained any more
        fetched = {key: None if discard else one.fetch(keep_tables) for key, one in adoptions.items()}
        for key, adoption in adoptions.items():
            adoption.end(fetched[key])
    for adoption in adoptions.values():
        if any(table.gradient.is_left_out for table in adoption.tables):
            warnings.warn(
                "a DistributedDataParallel has left out the weights that release() has brought back, and "
                "would let them part from the other trainers': wrap the model in another one first",
                stacklevel=2,
            )
        if keep_tables or discard:
            continue
        if not adoption.trainers.is_last("released"):
            continue  # another trainer has yet to fetch the rows
        for table in adoption.tables:
            table.ps.drop_table(table.name, missing_ok=True)


def _names_of(found: list[FoundWeight], prefix: str, names: Mapping[str, str]) -> list[str]:
    """Returns the name of each weight's table."""
    unknown = sorted(set(names) - {path for weight in found for path in weight.modules})
    if unknown:
        raise InvalidArgument(f"names: there is no embedding {unknown[0]!r} in the model")
    chosen = []
    for weight in found:
        given = [names[path] for path in weight.modules if path in names]
        if len(set(given)) > 1:
            raise InvalidArgument(f"names: {given[0]} and {given[1]} are of one weight, which is one table")
        legal = re.sub(r"[^A-Za-z0-9_.\-/]", "_", prefix + weight.name)
        legal = re.sub(r"(?:^|(?<=/))(?=[.\-/]|$)", "_", legal)  # parts that are empty, or begin so
        chosen.append(given[0] if given else legal)
    for name in chosen:
        if chosen.count(name) > 1:
            raise InvalidArgument(f"two weights would both be the table {name}")
    return chosen


def _tables_that_are_there(ps: Client, tables: list[AdoptedTable], attach: bool) -> dict[str, TableInfo]:
    """Describes the tables that exist, by name; AlreadyExists if they must not exist."""
    there: dict[str, TableInfo] = {}
    for table in tables:
        try:
            there[table.name] = ps.describe_table(table.name)
        except NotFound:
            continue
        if not attach:
            raise AlreadyExists(
                f"there is a table {table.name} already: adopt(attach=True) goes on with its rows; or drop "
                f"the table, or give adopt() another prefix"
            )
    return there
