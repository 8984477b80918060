"""One adopted weight, whose rows go to the server and come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from slotwise._adopt import optimizers
from slotwise._adopt.gradient import WeightGradient, most_ids
from slotwise._adopt.weight import as_plain, become_adopted, become_plain
from slotwise._export import functions_are_transformed, is_exporting, left_to_python, refuse_export
from slotwise.client import Client
from slotwise.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from slotwise.optimizers import SGD, Constant, Normal, Optimizer
from slotwise.options import TableInfo

# Rows go to the client in chunks of about this many bytes, which the client cuts into messages.
_CHUNK_BYTES = 16 << 20
_UNTOUCHED = (
    "the rows on the server are as they were: load_state_dict() overwrites them, and "
    "model.load_state_dict(model.state_dict()) takes them as they are"
)


class How(NamedTuple):
    """The arguments of `adopt` that apply to all tables."""

    lazy: bool = False
    read_mib: float = 64.0
    grow: bool = False


class _Read(NamedTuple):
    """Rows that a read has fetched.

    Attributes:
        values: float32 [rows, dim], on the weight's device.
        state: the generation and the steps of the table when the rows were read, or earlier.
        states: `Pushes.states` at that time.
    """

    values: Tensor
    state: tuple[int, int]
    states: int


class AdoptedTable:
    """A table that holds a weight [rows, dim]: the key of row i is i.

    While the table holds it, the weight keeps its shape, device and gradient, but has no memory: all its
    elements are one NaN. After a read (`AdoptedWeight`) the weight has the rows until the next step. By NaN
    and rows the table notices writes to the weight, which cannot reach the rows. Thread-safe as torch's
    modules are: lookups and reads may run in several threads, all else in one.

    Attributes:
        weight: the parameter, which stays the same object.
        optimizer: the torch optimizer that has the weight; None if none has.
    """

    def __init__(
        self,
        ps: Client,
        name: str,
        weight: nn.Parameter,
        combiner: str,
        optimizer: torch.optim.Optimizer | None,
        group: Mapping[str, Any],
        how: How,
    ) -> None:
        """Names a table that `create` makes; InvalidArgument if no table's optimizer equals `optimizer`."""
        self.ps, self.name, self.weight, self.combiner = ps, name, weight, combiner
        self.optimizer = optimizer
        self.gradient = WeightGradient(name, weight, how.grow)
        self._modules: list[nn.Module] = []  # those that have the weight
        self._how = how
        self._reading = threading.Lock()
        self._read: _Read | None = None  # the weight's data is a copy of these rows; None: of one NaN
        self._left = weight.detach()  # the weight's data as the table left it
        self._version = 0  # of the weight, then
        # A weight that no optimizer has is frozen, so its table's optimizer never runs.
        self._applied: Optimizer = SGD(1.0)
        self._begun: dict[str, Any] = {}  # the weight's state in the optimizer, when adopted
        if optimizer is not None:
            self._applied = optimizers.table_optimizer(name, optimizer, group, how.lazy)
            self._begun = dict(optimizer.state.get(weight, {}))

    def create(self) -> None:
        """Makes the table, with the weight's rows and the optimizer's state; an error may leave a table."""
        rows, dim = self.weight.shape
        self.ps.create_table(
            self.name,
            dim=dim,
            combiner=self.combiner,
            optimizer=self._applied,
            initializer=_initial_values(self.weight.detach()) if self._how.grow else Constant(0.0),
            initial_rows=rows,
        )
        self._store(self.weight.detach(), self._begun)

    def attach(self, info: TableInfo) -> None:
        """Raises FailedPrecondition if the table has other options than `create` gives it, or lacks rows."""
        rows, dim = self.weight.shape
        options = info.options
        pairs: list[tuple[str, Any, Any]] = [
            ("dim", options.dim, dim),
            ("combiner", options.combiner, self.combiner),
        ]
        if self.optimizer is not None:  # a frozen weight's never runs
            there, wanted = map(optimizers.as_float32, (options.optimizer, self._applied))
            if replace(there, lr=wanted.lr) != wanted:  # the rate travels in the pushes
                pairs.append(("optimizer", there, wanted))
        for what, is_, mine in pairs:
            if is_ != mine:
                raise FailedPrecondition(
                    f"adopt(attach=True): {what} of table {self.name} is {is_}, and the model wants {mine}"
                )
        if info.rows < rows:
            raise FailedPrecondition(
                f"adopt(attach=True): table {self.name} has {info.rows} of the weight's {rows} rows, as an "
                f"adopt() leaves it that is killed: drop the table, and adopt anew"
            )

    def hold(self, modules: list[nn.Module]) -> None:
        """Frees the memory of the weight of `modules`, and of the weight's state in the optimizer."""
        self._modules = modules
        self.gradient.hold(all(bool(module.sparse) for module in modules))
        become_adopted(self.weight, self)
        self._free_weight(self.weight.device)
        if self.optimizer is not None:
            self.optimizer.state.pop(self.weight, None)

    def restore(self, values: Tensor, state: dict[str, Any]) -> None:
        """Gives the weight and the optimizer what `fetch_with_state` returned."""
        become_plain(self.weight)
        self.gradient.let_go()
        self.weight.data = values.to(self.weight.device)
        if self.optimizer is not None and state:
            self.optimizer.state[self.weight] = state

    def restore_without_rows(self) -> None:
        """Gives the weight zeros, and the optimizer the state of a new weight."""
        values = torch.zeros(self.weight.shape, device=self.weight.device)
        begin = getattr(self._applied, "initial_accumulator", 0.0)
        state = optimizers.new_state(self.optimizer, values, begin) if self.optimizer else {}
        self.restore(values, state)

    @left_to_python
    def read(self) -> None:
        """Gives the weight its rows, at least as new as this trainer's newest step.

        Under `no_grad` the rows are also as new as the client's latest lookup of the table; where gradients
        are computed, the rows stay the same between two steps, as torch's do.

        Raises:
            slotwise.ResourceExhausted: the rows have more bytes than may be read.
            slotwise.FailedPrecondition: the model is traced, or within a transform of torch.func; or the
                weight was written to.
            slotwise.Error: the rows could not be fetched.
        """
        if is_exporting(None):
            raise refuse_export(f"the weight of table {self.name}")
        rows, dim = self.weight.shape
        if rows * dim * 4 > self._how.read_mib * 2**20:
            raise ResourceExhausted(
                f"the weight of table {self.name} is read as a whole, and its {rows} x {dim} floats are "
                f"{rows * dim * 4 / 2**20:.1f} MiB, above read_mib = {self._how.read_mib:g}: read some rows "
                f"by module.rows(ids), or release() the model and adopt() it with a larger read_mib"
            )
        with self._reading:
            if self._read is not None and not self._is_old(self._read):
                return
            if functions_are_transformed():
                raise FailedPrecondition(
                    f"the weight of table {self.name} is read within a transform of torch.func, where its "
                    f"rows cannot be fetched: read it once before, as by weight.sum()"
                )
            self.check_weight()
            with torch.inference_mode(False), torch.no_grad():
                values = torch.from_numpy(self.ps.lookup(self.name, np.arange(rows), train=False))
                lookup = self.ps._looked_up([self.name])[self.name]
                values = values.reshape(rows, dim).to(self.weight.device)
                self._set(values.clone())
            state = lookup.generation, lookup.table_step
            self._read = _Read(values, state, self.ps._pushes.states)

    @property
    def grows(self) -> bool:
        """Whether ids without a row in the weight get one."""
        return self._how.grow

    def check_ids(self, keys: Tensor) -> None:
        """Raises IndexError if one of some ids, int64 [keys], can have no row."""
        rows, dim = self.weight.shape
        most = most_ids(dim) if self.grows else rows
        if len(keys) and not 0 <= int(keys.min()) <= int(keys.max()) < most:
            wrong = int(keys[(keys < 0) | (keys >= most)][0])
            which = "the ids that" if self.grows else "the rows of"
            raise IndexError(
                f"index {wrong} is not in 0 .. {most - 1}, {which} table {self.name}{' takes' * self.grows}"
            )

    def new_rows(self) -> int:
        """Returns how many rows the table has for ids without a row in the weight."""
        return max(0, self.ps.describe_table(self.name).rows - len(self.weight)) if self.grows else 0

    def forget(self) -> None:
        """Drops the rows that were read: another step has begun."""
        self.gradient.lose_mean()  # a weight that had no gradient at adoption has no hook
        if self._read is not None:
            self._free_weight(self.weight.device)

    def check_weight(self, *, values: bool = True) -> None:
        """Raises FailedPrecondition if the weight is not as the table left it.

        Args:
            values: whether to look at the elements, for which the host waits for a GPU. Without, writes by
                torch are noticed all the same, except to a weight without rows on a GPU.
        """
        if any(module._parameters.get("weight") is not self.weight for module in self._modules):
            raise FailedPrecondition(
                f"a module of table {self.name} has got another weight, but {_UNTOUCHED}"
            )
        with as_plain():
            data, version = self.weight.data, self.weight._version
        ours = self._left
        same = data.data_ptr() == ours.data_ptr() and data.stride() == ours.stride()
        if same and self._read is not None and (values or version != self._version):
            same = torch.equal(data.view(torch.int32), self._read.values.view(torch.int32))  # NaN, too
        elif same and self._read is None and (values or data.device.type == "cpu") and data.numel():
            same = bool(data[0, 0].isnan())
        if not same:
            raise FailedPrecondition(f"the weight of table {self.name} has been written to, but {_UNTOUCHED}")
        self._version = version

    def move(self, device: torch.device) -> None:
        """Moves the weight, without rows, and its gradient to another device."""
        value, self.gradient.value = self.gradient.value, None
        self._free_weight(device)
        self.gradient.move(value, device)

    def fetch(self) -> Tensor:
        """Returns the rows, float32 [rows, dim], on the CPU."""
        return self._fetch(with_state=False)[0]

    def fetch_with_state(self) -> tuple[Tensor, dict[str, Any]]:
        """Returns the rows, and the state as the optimizer would have it, on the weight's device, or {}."""
        if self.optimizer is None or not optimizers.has_state(self.optimizer):
            return self.fetch(), dict(self._begun)
        steps = self.ps.describe_table(self.name).steps
        values, *state = self._fetch(with_state=True)
        tensors = [tensor.to(self.weight.device) for tensor in state]
        return values, optimizers.make_state(self.optimizer, self._begun, tensors, steps)

    def store(self, values: Tensor) -> None:
        """Overwrites the rows, keeps their optimizer's state, and undoes writes to the weight or modules."""
        for keys in self._chunks():
            chunks = list(self.ps.export_rows(self.name, keys, with_state=True))
            found = np.concatenate([np.zeros(0, np.uint64), *(chunk.keys for chunk in chunks)])
            if len(found) != len(keys):
                raise self._erased(len(keys) - len(found))
            state = np.concatenate([chunk.state for chunk in chunks])[np.argsort(found)]
            some = _numpy(values[int(keys[0]) : int(keys[-1]) + 1])
            self.ps.import_rows(self.name, keys, some, state)
        self._free_weight(self.weight.device)
        for module in self._modules:
            module._parameters["weight"] = self.weight

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raises FailedPrecondition if `store_state` cannot bring the table to this state."""
        counts = self.optimizer is not None and optimizers.counts_steps(self.optimizer)
        new, made = optimizers.state_steps(state), self.ps.describe_table(self.name).steps
        if counts and new < made:
            raise FailedPrecondition(
                f"table {self.name} has made {made} steps and cannot go back to {new}: release() "
                f"the model, load the state, and adopt() the model again"
            )

    def store_state(self, state: Mapping[str, Any]) -> None:
        """Overwrites the optimizer's state of the rows, and keeps the rows; {}: the state of new rows."""
        if self.optimizer is not None and optimizers.has_state(self.optimizer):
            self._store(self.fetch(), state)

    def rate(self, group: Mapping[str, Any]) -> float:
        """Returns the group's learning rate; InvalidArgument if another of its settings has changed."""
        assert self.optimizer is not None
        wanted = optimizers.table_optimizer(self.name, self.optimizer, group, self._how.lazy)
        if replace(wanted, lr=1.0) != replace(self._applied, lr=1.0):
            raise InvalidArgument(
                f"{self.name}: the optimizer's settings have changed to {wanted}, and a table can "
                f"follow the learning rate only: release() the model and adopt() it again"
            )
        return float(group["lr"])

    def _is_old(self, read: _Read) -> bool:
        """Whether the table has other rows by now, as far as this client knows."""
        if read.states != self.ps._pushes.states:
            return True
        if torch.is_grad_enabled():
            return False
        lookup = self.ps._looked_up([self.name])[self.name]
        generation, steps = read.state
        return lookup.generation != 0 and (lookup.generation != generation or lookup.table_step > steps)

    def _free_weight(self, device: torch.device) -> None:
        nan = torch.full((1, 1), float("nan"), device=device)
        self._read = None
        self._set(nan.expand(self.weight.shape))

    def _set(self, data: Tensor) -> None:
        """Sets the weight's data; a backward() of what was computed of other data raises, as torch's does."""
        self._left = data
        with as_plain(), torch.no_grad():
            self.weight.data = data
            self.weight.detach()[:0].zero_()  # counts as a write
            self._version = self.weight._version

    def _store(self, values: Tensor, state: Mapping[str, Any]) -> None:
        tensors = optimizers.state_tensors(self.optimizer, state) if self.optimizer else []
        steps = optimizers.state_steps(state)
        for keys in self._chunks():
            some = slice(int(keys[0]), int(keys[-1]) + 1)
            parts = [_numpy(tensor[some]) for tensor in tensors]
            rows_state = np.concatenate(parts, axis=1) if parts else None
            self.ps.import_rows(self.name, keys, _numpy(values[some]), rows_state, table_steps=steps)

    def _chunks(self) -> Iterator[NDArray[np.int64]]:
        """Yields all keys, some at a time."""
        rows, dim = self.weight.shape
        each = max(1, _CHUNK_BYTES // (8 + 12 * dim))  # a key, a row and at most two of state
        for first in range(0, rows, each):
            yield np.arange(first, min(first + each, rows))

    def _fetch(self, with_state: bool) -> list[Tensor]:
        """Returns the rows and, if asked, the tensors of their state, [rows, dim] each."""
        rows, dim = self.weight.shape
        values, state, found = np.empty((rows, dim), np.float32), None, 0
        for chunk in self.ps.export_rows(self.name, with_state=with_state):
            ours = chunk.keys < rows  # other users of the table may have brought other keys
            keys = chunk.keys[ours].astype(np.int64)
            values[keys] = chunk.values[ours]
            if chunk.state is not None:
                if state is None:
                    state = np.empty((rows, chunk.state.shape[1]), np.float32)
                state[keys] = chunk.state[ours]
            found += len(keys)
        if found != rows:
            raise self._erased(rows - found)
        parts = [values]
        if state is not None and state.size:
            assert self.optimizer is not None
            widths = optimizers.state_widths(self.optimizer, dim)
            parts += np.split(state, np.cumsum(widths)[:-1], axis=1)
        return [torch.from_numpy(np.ascontiguousarray(part)) for part in parts]

    def _erased(self, count: int) -> FailedPrecondition:
        return FailedPrecondition(
            f"{count} of the rows that table {self.name} holds for its weight have been erased"
        )


def _numpy(tensor: Tensor) -> Any:
    return tensor.detach().cpu().float().contiguous().numpy()


def _initial_values(weight: Tensor) -> Constant | Normal:
    """Returns an initializer with the mean and deviation of the weight's own rows."""
    mean = float(weight.double().mean()) if weight.numel() else 0.0
    deviation = float(weight.double().std(unbiased=False)) if weight.numel() else 0.0
    return Normal(mean, deviation) if deviation > 0 else Constant(mean)
