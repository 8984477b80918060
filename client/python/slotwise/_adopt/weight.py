"""A model's weight while a table holds it: a read gives the rows, and a write is refused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed import utils as distributed_utils
from torch.nn.parallel import distributed as distributed_data_parallel
from torch.nn.utils import clip_grad

from slotwise.errors import FailedPrecondition

if TYPE_CHECKING:
    from slotwise._adopt.table import AdoptedTable

# Within this context torch's functions see the weight as an ordinary tensor.
as_plain: Callable[[], Any] = getattr(torch._C, "DisableTorchFunctionSubclass", torch._C.DisableTorchFunction)


class _RowsStay(threading.local):
    """Whether this thread saves or loads a model without the rows of its tables."""

    active = False


_rows_stay = _RowsStay()


@contextmanager
def rows_stay() -> Iterator[None]:
    """Makes state_dict() and load_state_dict() of models and optimizers leave out what tables have."""
    before, _rows_stay.active = _rows_stay.active, True
    try:
        yield
    finally:
        _rows_stay.active = before


def do_rows_stay() -> bool:
    """Returns whether this thread is within `rows_stay`."""
    return _rows_stay.active


def names_of_adopted(model: nn.Module) -> set[str]:
    """Returns the names of weights that tables have in a model's state_dict(), also for tied layers."""
    return {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules(remove_duplicate=False)
        for name, weight in module._parameters.items()
        if isinstance(weight, AdoptedWeight)
    }


class AdoptedWeight(nn.Parameter):
    """An `nn.Parameter` whose rows are a table's.

    An operation that needs values fetches the rows first, and is then torch's own: its gradient is the
    parameter's. One that needs none, as `shape` or `grad`, sends nothing. `adopt` makes parameters of this
    class by setting `__class__`, so that each stays the object that optimizers and models know.
    """

    slotwise_rows: AdoptedTable

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Does what torch does, with rows where it reads them."""
        given = kwargs or {}
        first = args[0] if func in _SPECIAL else None
        if isinstance(first, AdoptedWeight) and first.slotwise_rows.gradient.is_special:
            told, value = _tell_specially(func, sys._getframe(1), *args)
            if told:
                return value
        if func in (Tensor.copy_, _SET_DATA) and isinstance(args[0], AdoptedWeight):
            return _overwrite(func, *args, **given)
        if func not in _WITHOUT_VALUES and not _asks_for_type(func, args, given) and not _rows_stay.active:
            for weight in _written(func, args, given):
                raise _refuse_write(weight, func.__name__)
            for weight in _adopted_in((args, given)):
                weight.slotwise_rows.read()
        if func == _GET_DATA:
            func = Tensor.detach  # whose versions are the weight's, so that a write to it shows
        with as_plain():
            return func(*args, **given)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Parameter:
        """Returns an ordinary parameter with the rows as they are now."""
        if id(self) not in memo:
            memo[id(self)] = self._plain()
        copied: nn.Parameter = memo[id(self)]
        return copied

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Pickles as an ordinary parameter with the rows as they are now."""
        plain = self._plain()
        return nn.Parameter, (plain.data, plain.requires_grad)

    def __repr__(self) -> str:  # type: ignore[override]
        """Says where the rows are, and sends nothing."""
        return f"AdoptedWeight(table={self.slotwise_rows.name!r}, shape={tuple(self.shape)})"

    def _plain(self) -> nn.Parameter:
        return nn.Parameter(self.slotwise_rows.fetch().to(self.device), self.requires_grad)


def _tell_specially(func: Any, caller: Any, weight: AdoptedWeight, value: Any = None) -> tuple[bool, Any]:
    """Makes a weight's gradient that of all trainers and all ids, and hides the weight from DDP.

    Returns whether the caller, whose frame is given, gets something else than torch would return, and what.
    """
    gradient, asks = weight.slotwise_rows.gradient, caller.f_code
    if func == _GET_REQUIRES_GRAD:
        hidden = gradient.group is not None and asks.co_filename == _PARALLEL
        gradient.is_left_out |= hidden
        return hidden, False
    if func is Tensor.detach:  # to send the first trainer's values to the others
        return gradient.group is not None and asks.co_filename in (_PARALLEL, _SENDS), weight.new_empty(0)
    if func != _GET_GRAD:
        gradient.lose_mean()
        if gradient.anchor is not None:
            gradient.value = value
        return gradient.anchor is not None, None
    if asks.co_name != "zero_grad":  # asks only whether there is a gradient at all
        gradient.gather()
    if gradient.anchor is None:
        return False, None
    found = gradient.value
    if found is not None and asks.co_filename == _CLIPS:  # takes no sparse gradients from torch 2 on
        return True, found._values()
    return True, found


def become_adopted(weight: nn.Parameter, rows: AdoptedTable) -> None:
    """Makes a parameter an adopted weight, until `become_plain`."""
    weight.__class__ = AdoptedWeight
    weight.slotwise_rows = rows  # type: ignore[attr-defined]


def become_plain(weight: nn.Parameter) -> None:
    """Makes an adopted weight an ordinary parameter again."""
    if isinstance(weight, AdoptedWeight):
        del weight.slotwise_rows
        weight.__class__ = nn.Parameter  # type: ignore[assignment]


def _properties() -> Iterator[Any]:
    """Yields the getters and setters of tensors' properties that are not values."""
    values = {"data", "T", "mT", "H", "mH", "real", "imag", "_base"}
    for name in dir(torch._C._TensorBase):
        found = getattr(torch._C._TensorBase, name)
        if type(found).__name__ == "getset_descriptor" and name not in values:
            yield from (found.__get__, found.__set__, found.__delete__)


# Methods and functions that need no values, of all versions of torch.
_NAMES = """
    size stride dim ndimension numel nelement element_size storage_offset data_ptr get_device is_contiguous
    is_floating_point is_complex is_signed is_conj is_neg is_inference is_pinned is_shared is_same_size
    is_set_to has_names is_distributed is_sparse_csr retain_grad requires_grad_ register_hook
    register_post_accumulate_grad_hook __len__
    new_empty new_zeros new_ones new_full new_empty_strided
"""
_FUNCTIONS = """
    numel is_floating_point is_complex is_signed is_conj is_neg is_inference is_same_size is_distributed
    result_type can_cast get_device is_storage empty_like zeros_like ones_like full_like rand_like randn_like
    randint_like
"""


def _without_values() -> Iterator[Any]:
    yield from _properties()
    for name in _NAMES.split():
        yield getattr(Tensor, name, None)
    for name in _FUNCTIONS.split():
        yield getattr(torch, name, None)
    yield torch.autograd.grad  # of what was read before
    yield torch.autograd.backward


_WITHOUT_VALUES = {each for each in _without_values() if each is not None}


def _asks_for_type(func: Any, args: Any, given: Any) -> bool:
    """Whether this is `tensor.type()`, which returns a name, and converts if it is told one."""
    return func is Tensor.type and len(args) == 1 and not given


def _written(func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Iterator[AdoptedWeight]:
    """Yields the weights that a function of torch's writes to."""
    name = getattr(func, "__name__", "")
    if (name.endswith("_") and not name.startswith("__")) or name in _IN_PLACE:
        yield from _adopted_in(args[:1] or list(given.values())[:1])  # torch.nn.init names its tensor
    yield from _adopted_in(given.get("out"))


_IN_PLACE = {
    "__setitem__",
    *(
        f"__i{operation}__"
        for operation in "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift".split()
    ),
}
_GRAD: Any = torch._C._TensorBase.__dict__["grad"]
_GET_GRAD = _GRAD.__get__
_GET_REQUIRES_GRAD = torch._C._TensorBase.__dict__["requires_grad"].__get__
# These differ from torch's where there are several trainers, or where the weight grows.
_SPECIAL = {_GET_GRAD, _GRAD.__set__, _GRAD.__delete__, _GET_REQUIRES_GRAD, Tensor.detach}
_CLIPS = clip_grad.__file__
_PARALLEL, _SENDS = distributed_data_parallel.__file__, distributed_utils.__file__
_GET_DATA: Any = torch._C._TensorBase.__dict__["data"].__get__
_SET_DATA: Any = torch._C._TensorBase.__dict__["data"].__set__


def _overwrite(func: Any, weight: AdoptedWeight, value: Any, *_: Any, **__: Any) -> Any:
    """Loads or moves the weight for other modules that have it; FailedPrecondition for any other write."""
    if not isinstance(value, Tensor) or value.shape != weight.shape or value.dtype != weight.dtype:
        raise _refuse_write(weight, "another shape or type")
    if func is Tensor.copy_:
        if torch.is_grad_enabled():
            raise _refuse_write(weight, "copy_ where gradients are computed")
        weight.slotwise_rows.store(value)
        return weight
    weight.slotwise_rows.read()
    with as_plain():
        same = torch.equal(value.to(weight.device), weight.detach())
    if not same:
        raise _refuse_write(weight, "other data")
    if value.device != weight.device:
        weight.slotwise_rows.move(value.device)
    return None


def _refuse_write(weight: AdoptedWeight, how: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"the weight of table {weight.slotwise_rows.name} cannot be written to ({how}): load_state_dict() "
        f"writes its rows, or slotwise.torch.release() the model first"
    )


def _adopted_in(value: Any) -> Iterator[AdoptedWeight]:
    """Yields the adopted weights among a function's arguments."""
    if isinstance(value, AdoptedWeight):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _adopted_in(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _adopted_in(each)
