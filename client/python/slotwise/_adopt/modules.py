"""The classes that `nn.Embedding` and `nn.EmbeddingBag` modules have while they are adopted.

`adopt` changes the class of the model's own modules, and `release` changes it back. So a module stays the
same object: its uses in several places, its hooks, and `isinstance(module, nn.EmbeddingBag)` stay as they
were.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from slotwise._adopt.table import AdoptedTable
from slotwise._adopt.weight import do_rows_stay
from slotwise._export import is_exporting, left_to_python, refuse_export
from slotwise.errors import FailedPrecondition, InvalidArgument


class _Bags(NamedTuple):
    """A lookup's bags, on the CPU.

    Attributes:
        keys: int64 [keys].
        offsets: int64 [bags + 1]; None: every bag has one key.
        weights: float32 [keys], or None.
        mean: whether a bag's sum is divided by the number of its keys.
        trained: bool [keys]: whether a key's row takes a gradient. None: all do.
    """

    keys: Tensor
    offsets: Tensor | None
    weights: Tensor | None = None
    mean: bool = False
    trained: Tensor | None = None

    def divisors(self) -> Tensor:
        """Returns how many keys each bag has, at least 1, float32 [bags, 1]."""
        assert self.offsets is not None
        return self.offsets.diff().clamp(min=1).float()[:, None]


class _EqualsPlainClass(type):
    """The metaclass of adopted classes, each of which equals the class that its modules had before.

    So `type(module) == nn.Embedding` and `type(module) in [nn.Embedding, ...]` stay true. Frameworks choose
    the modules of an L2 term or a reset so.
    """

    _slotwise_plain: type[nn.Module] | None = None

    def __eq__(cls, other: object) -> bool:
        return cls is other or (cls._slotwise_plain is not None and cls._slotwise_plain is other)

    def __hash__(cls) -> int:
        return type.__hash__(cls) if cls._slotwise_plain is None else hash(cls._slotwise_plain)


class _Adopted(nn.Module, metaclass=_EqualsPlainClass):
    """The common base of the adopted modules."""

    _slotwise_table: AdoptedTable
    _slotwise_adoption: object  # what `release` ends
    weight: Tensor
    sparse: bool

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses another weight: the table would not have its rows."""
        if name == "weight" and value is not self._slotwise_table.weight:
            raise self._refuse_change()
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Refuses to delete the weight, as parametrizations would."""
        if name == "weight":
            raise self._refuse_change()
        super().__delattr__(name)

    def __prepare_scriptable__(self) -> Any:
        """Refuses `torch.jit.script`, which asks for this."""
        raise refuse_export(self._slotwise_name())

    def _refuse_recording(self, keys: Tensor) -> None:
        """Raises FailedPrecondition if torch records the lookup of these keys."""
        if is_exporting(keys):
            raise refuse_export(self._slotwise_name())

    def _slotwise_name(self) -> str:
        return f"the module of table {self._slotwise_table.name}"

    def _refuse_change(self) -> FailedPrecondition:
        return FailedPrecondition(
            f"the weight of table {self._slotwise_table.name} cannot be replaced: "
            f"load_state_dict() writes its rows, or slotwise.torch.release() the model first"
        )

    @left_to_python
    def rows(self, ids: Tensor) -> Tensor:
        """Returns some rows of the weight, float32 [*ids.shape, dim], with a gradient, as `weight[ids]`.

        Args:
            ids: int64 or int32 of any shape.

        Raises:
            IndexError, slotwise.Error: as `forward`.
        """
        self._refuse_recording(ids)
        found = self._look_up(_Bags(_keys(ids.reshape(-1)), None), ids)
        return found.reshape(*ids.shape, self.weight.shape[1])

    def _look_up(self, bags: _Bags, *sources: Tensor | None) -> Tensor:
        """Returns a row a bag, float32 [bags, dim]; `sources` are the tensors that the bags came from."""
        table = self._slotwise_table
        table.check_weight(values=False)  # step() and release() look at all of it
        table.check_ids(bags.keys)
        inserts = table.grows and self.training and torch.is_grad_enabled()
        sparse = table.grows or bool(self.sparse)
        source = table.gradient.source()
        result: Tensor = _LookUp.apply(source, table, bags, sparse, inserts, *sources)
        return result

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Moves the weight as `to()`, `cuda()` and others ask; only its device can change."""
        self._slotwise_table.check_weight()
        moved = fn(torch.empty(0, device=self.weight.device))
        if moved.dtype != torch.float32:
            raise TypeError(
                f"table {self._slotwise_table.name} has float32 rows, so its module cannot become "
                f"{moved.dtype}: slotwise.torch.release() the model first"
            )
        if moved.device != self.weight.device:
            self._slotwise_table.move(moved.device)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        weight: Any = self._parameters.pop("weight")
        try:
            super()._save_to_state_dict(destination, prefix, keep_vars)
        finally:
            self._parameters["weight"] = weight
        if not do_rows_stay():
            new = self._slotwise_table.new_rows()
            if new > 0:
                warnings.warn(
                    f"state_dict() leaves out {new} rows of table {self._slotwise_table.name}, of ids that "
                    f"the weight has no row for: slotwise.torch.save() keeps all rows",
                    stacklevel=2,
                )
            destination[prefix + "weight"] = self._slotwise_table.fetch().to(weight.device)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        name = prefix + "weight"
        weight: Any = self._parameters.pop("weight")
        try:
            super()._load_from_state_dict(
                state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
            )
        finally:
            self._parameters["weight"] = weight
        if name in unexpected_keys:
            unexpected_keys.remove(name)
        if do_rows_stay():
            return
        if name not in state_dict:
            if strict:
                missing_keys.append(name)
        elif state_dict[name].shape != self._slotwise_table.weight.shape:
            error_msgs.append(
                f"size mismatch for {name}: {tuple(state_dict[name].shape)}, not "
                f"{tuple(self._slotwise_table.weight.shape)}"
            )
        else:
            self._slotwise_table.store(state_dict[name])

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Copies and pickles as the former torch module, with the rows as they are now."""
        plain = self.__dict__.copy()
        table, _ = plain.pop("_slotwise_table"), plain.pop("_slotwise_adoption")
        plain["_parameters"] = {**self._parameters, "weight": table.weight}  # whose copies are plain
        return object.__new__, (plain_class(type(self)),), plain

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        return f"{super().extra_repr()}, table={self._slotwise_table.name!r}"


class AdoptedEmbedding(_Adopted, nn.Embedding):
    """An `nn.Embedding` whose weight is a table."""

    _slotwise_plain = nn.Embedding

    @left_to_python
    def forward(self, input: Tensor) -> Tensor:
        """Returns the rows, float32 [*input.shape, dim], as `nn.Embedding` does.

        Raises:
            IndexError: an index is not below `num_embeddings`, or below 0.
            slotwise.FailedPrecondition: the model is traced or exported.
            slotwise.Error: the lookup failed.
        """
        self._refuse_recording(input)
        keys = _keys(input.reshape(-1))
        trained = None if self.padding_idx is None else keys != self.padding_idx
        rows = self._look_up(_Bags(keys, None, trained=trained), input)
        return rows.reshape(*input.shape, self.embedding_dim)


class AdoptedEmbeddingBag(_Adopted, nn.EmbeddingBag):
    """An `nn.EmbeddingBag` whose weight is a table."""

    _slotwise_plain = nn.EmbeddingBag

    @left_to_python
    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Returns the pooled rows, float32 [bags, dim], with the arguments of `nn.EmbeddingBag`.

        Raises:
            ValueError, NotImplementedError: as `nn.EmbeddingBag` does.
            slotwise.InvalidArgument: `per_sample_weights` require a gradient.
            IndexError, slotwise.Error: as `AdoptedEmbedding.forward`.
        """
        self._refuse_recording(input)
        weights = self._check_weights(input, per_sample_weights)
        keys, ends = _keys(input.reshape(-1)), self._offsets(input, offsets)
        if self.padding_idx is not None:
            kept = keys != self.padding_idx
            ends = nn.functional.pad(kept.cumsum(0), (1, 0))[ends]
            keys = keys[kept]
            weights = None if weights is None else weights[kept]
        bags = _Bags(keys, ends, weights, mean=self.mode == "mean")
        return self._look_up(bags, input, offsets, per_sample_weights)

    def _offsets(self, input: Tensor, offsets: Tensor | None) -> Tensor:
        """Returns int64 [bags + 1], from 0 to the number of indices, on the CPU."""
        if input.dim() == 2:
            if offsets is not None:
                raise ValueError("offsets has to be None if input is 2D: every row is a bag")
            return torch.arange(input.shape[0] + 1) * input.shape[1]
        if input.dim() != 1:
            raise ValueError(f"input has to be 1D or 2D, but has {input.dim()} dimensions")
        if offsets is None or offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor if input is 1D")
        starts = offsets.detach().cpu().long()
        end = torch.tensor([input.numel()])
        ends = starts if self.include_last_offset else torch.cat([starts, end])
        if len(ends) == 0 or ends[0] != 0 or ends[-1] != end or (ends.diff() < 0).any():
            raise ValueError(
                f"offsets has to rise from 0 to at most {int(end)}, the number of indices"
                f"{', and end with it' if self.include_last_offset else ''}"
            )
        return ends

    def _check_weights(self, input: Tensor, weights: Tensor | None) -> Tensor | None:
        """Returns the weights as float32 [keys], on the CPU."""
        if weights is None:
            return None
        if weights.shape != input.shape:
            raise ValueError(
                f"per_sample_weights has the shape {tuple(weights.shape)}, not "
                f"{tuple(input.shape)} as input"
            )
        if self.mode != "sum":
            raise NotImplementedError(
                f"per_sample_weights are for mode='sum' only, not for mode={self.mode!r}"
            )
        if weights.requires_grad and torch.is_grad_enabled():
            raise InvalidArgument(
                f"per_sample_weights of table {self._slotwise_table.name} require a gradient, "
                f"which is not computed: detach() them"
            )
        return weights.detach().reshape(-1).cpu().float()


_ADOPTED: dict[type[nn.Module], type[_Adopted]] = {
    nn.Embedding: AdoptedEmbedding,
    nn.EmbeddingBag: AdoptedEmbeddingBag,
}
# A class may have these of its own in torch's place: they begin a module, or are only looked at.
_HARMLESS = {"__init__", "reset_parameters", "extra_repr"}


def is_adopted(module: nn.Module) -> bool:
    """Returns whether a module is one that was adopted."""
    return isinstance(module, _Adopted)


def adopted_class(plain: type[nn.Module]) -> type[nn.Module] | None:
    """Returns the adopted class of a class; None: the class does something else than torch's own."""
    if plain not in _ADOPTED and issubclass(plain, tuple(_ADOPTED)) and changed_method(plain) is None:
        base = AdoptedEmbedding if issubclass(plain, nn.Embedding) else AdoptedEmbeddingBag
        own = {"__module__": base.__module__, "_slotwise_plain": plain}
        # A class may have a metaclass of its own, as ABCs have.
        kinds: Any = (_EqualsPlainClass,) if type(plain) is type else (_EqualsPlainClass, type(plain))
        kind: Any = type("_Kind", kinds, {})
        _ADOPTED[plain] = kind(f"Adopted{plain.__name__}", (base, plain), own)
    return _ADOPTED.get(plain)


def plain_class(adopted: Any) -> type[nn.Module]:
    """Returns the class that modules of an adopted class had before."""
    plain: type[nn.Module] = adopted._slotwise_plain
    return plain


def changed_method(plain: type[nn.Module]) -> str | None:
    """Returns which method or setting of torch's embedding a class derived from it has changed, if any."""
    torchs = nn.Embedding if issubclass(plain, nn.Embedding) else nn.EmbeddingBag
    for each in plain.__mro__[: plain.__mro__.index(torchs)]:
        for name, value in vars(each).items():
            is_text = name.startswith("__") and not callable(value)  # as __doc__ and __module__
            if name not in _HARMLESS and not is_text and hasattr(torchs, name):
                return name
    return None


class _LookUp(torch.autograd.Function):
    """Looks bags up. Its gradient is the weight's, as torch's own modules compute it."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        table: AdoptedTable,
        bags: _Bags,
        sparse: bool,
        inserts: bool,
        *sources: Tensor | None,
    ) -> Tensor:
        ctx.bags, ctx.sparse, ctx.shape, ctx.device = bags, sparse, weight.shape, weight.device
        # Autograd refuses a backward() after one of these was overwritten, and one more without retain_graph.
        ctx.save_for_backward(*sources)
        device = sources[0].device if sources[0] is not None else weight.device
        if len(bags.keys) == 0:
            count = 0 if bags.offsets is None else len(bags.offsets) - 1
            return torch.zeros(count, weight.shape[1], device=device)
        arrays: list[Any] = [None if part is None else part.numpy() for part in bags[:3]]
        found = table.ps.lookup(table.name, arrays[0], arrays[1], weights=arrays[2], train=inserts)
        values = torch.from_numpy(found)
        if bags.mean and table.combiner != "mean":
            values = values / bags.divisors()
        return values.to(device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        sources, bags = ctx.saved_tensors, ctx.bags
        keys, gradients = bags.keys.to(ctx.device), gradient.to(ctx.device)
        if bags.mean:
            gradients = gradients / bags.divisors().to(ctx.device)
        if bags.offsets is not None:
            bag_of_key = torch.arange(len(gradients)).repeat_interleave(bags.offsets.diff())
            gradients = gradients[bag_of_key.to(ctx.device)]
        if bags.weights is not None:
            gradients = gradients * bags.weights.to(ctx.device)[:, None]
        if bags.trained is not None:
            trained = bags.trained.to(ctx.device)
            keys, gradients = keys[trained], gradients[trained]
        if ctx.sparse:
            of_weight = torch.sparse_coo_tensor(keys[None], gradients, ctx.shape)
        else:
            of_weight = gradients.new_zeros(ctx.shape).index_add_(0, keys, gradients)
        return (of_weight, None, None, None, None, *[None] * len(sources))


def _keys(input: Tensor) -> Tensor:
    if input.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"indices are {input.dtype}, not int64 or int32")
    return input.detach().cpu().long()
