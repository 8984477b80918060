"""Finds the weights of a model's embeddings, and refuses what cannot be adopted; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from slotwise._adopt.modules import adopted_class, changed_method, is_adopted
from slotwise._adopt.optimizers import wants_sparse_gradients
from slotwise.errors import InvalidArgument

# Public names of TorchRec's EmbeddingBagCollection and EmbeddingCollection: the method that lists the tables'
# configurations, and the nn.ModuleDict that has a torch module for each.
_COLLECTIONS = (("embedding_bag_configs", "embedding_bags"), ("embedding_configs", "embeddings"))


@dataclass
class FoundWeight:
    """One weight, which one or several modules share.

    Attributes:
        name: the path of its first module, or its name in TorchRec's collection.
        modules: by path in the model.
        optimizer: the given optimizer that has the weight; None if none has.
        group: the optimizer's group of the weight; empty without an optimizer.
    """

    name: str
    weight: nn.Parameter
    modules: dict[str, nn.Module] = field(default_factory=dict)
    optimizer: torch.optim.Optimizer | None = None
    group: Mapping[str, Any] = field(default_factory=dict)

    @property
    def combiner(self) -> str:
        """Returns the combiner that serves all modules: theirs, or "sum" where they differ."""
        kinds = {
            "none" if isinstance(module, nn.Embedding) else str(module.mode)
            for module in self.modules.values()
        }
        return kinds.pop() if len(kinds) == 1 else "sum"


def find_weights(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> list[FoundWeight]:
    """Returns the weights of all embeddings of a model; InvalidArgument names what cannot be adopted."""
    names = _names_in_collections(model)
    found: dict[int, FoundWeight] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.parallel.DistributedDataParallel):
            raise InvalidArgument(
                f"{path or 'the model'} is a DistributedDataParallel, which has taken its weights in: "
                f"adopt the model in each trainer before it is wrapped"
            )
        if isinstance(module, nn.DataParallel):
            raise InvalidArgument(
                f"{path or 'the model'} is a DataParallel, whose replicas are made anew for each batch: "
                f"have a process for each GPU, and DistributedDataParallel"
            )
        if not isinstance(module, (nn.Embedding, nn.EmbeddingBag)) or is_adopted(module):
            continue
        name = names.get(id(module), path or "embedding")
        _check_module(path or "the model", module)
        parameter: Any = module.weight
        found.setdefault(id(parameter), FoundWeight(name, parameter)).modules[path] = module
    if not found and any(is_adopted(module) for module in model.modules()):
        raise InvalidArgument("the model is adopted already: release() it first")
    if not found:
        raise InvalidArgument("the model has no nn.Embedding or nn.EmbeddingBag to adopt")
    _check_other_uses(model, found)
    for weight in found.values():
        _find_optimizer(weight, optimizers)
    return list(found.values())


def _names_in_collections(model: nn.Module) -> dict[int, str]:
    """Returns the names that TorchRec's collections in the model give their modules, by id."""
    names: dict[int, str] = {}
    for path, collection in model.named_modules():
        for configs, modules in _COLLECTIONS:
            members = getattr(collection, modules, None)
            if not callable(getattr(collection, configs, None)) or members is None:
                continue
            for config in getattr(collection, configs)():
                member = members[config.name]
                if not is_adopted(member) and adopted_class(type(member)) is None:
                    raise InvalidArgument(
                        f"{path or 'the model'}: table {config.name} is a {type(member).__name__}, "
                        f"not an nn.EmbeddingBag: adopt a collection before it is sharded, fused "
                        f"or quantized"
                    )
                names[id(member)] = config.name
    return names


def _check_module(path: str, module: Any) -> None:
    """Raises InvalidArgument unless the module and its weight can be adopted."""

    def refuse(why: str) -> InvalidArgument:
        return InvalidArgument(f"{path}: {why}, so the model is not adopted")

    if adopted_class(type(module)) is None:
        raise refuse(
            f"its class is {type(module).__name__}, which changes {changed_method(type(module))} of torch's"
        )
    if [name for name, _ in module.named_parameters(recurse=False)] != ["weight"]:
        raise refuse("its weight is not its one parameter, but computed from others")
    if getattr(module, "mode", "sum") not in ("sum", "mean"):
        raise refuse(f"mode is {module.mode!r}, and the server's combiners are sum and mean")
    if module.max_norm is not None:
        raise refuse(f"max_norm is {module.max_norm}, and the server does not renormalize rows")
    if module.scale_grad_by_freq:
        raise refuse("scale_grad_by_freq is True, and the server does not scale gradients")
    weight = module.weight
    if type(weight) is not nn.Parameter:
        raise refuse(f"its weight is a {type(weight).__name__}, and no plain nn.Parameter")
    if weight.dtype != torch.float32:
        raise refuse(f"its weight is {weight.dtype}, and the server's rows are float32")
    if weight.device.type == "meta":
        raise refuse("its weight is on the device meta and has no values")


def _check_other_uses(model: nn.Module, found: Mapping[int, FoundWeight]) -> None:
    """Raises InvalidArgument if another tensor of the model uses memory of a weight.

    Other modules may have the weight itself, as a tied output layer has, which reads it.
    """
    others: dict[int, tuple[str, Tensor]] = {}
    for path, module in model.named_modules():
        own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        for name, tensor in own:
            if tensor.layout == torch.strided and not nn.parameter.is_lazy(tensor):
                others[id(tensor)] = (f"{path}.{name}" if path else name, tensor)
    for weight in found.values():
        begin, end = _memory_of(weight.weight)
        for key, (where, tensor) in others.items():
            theirs = _memory_of(tensor)
            if key != id(weight.weight) and begin < theirs[1] and theirs[0] < end:
                raise InvalidArgument(
                    f"{weight.name}: its weight shares memory with {where}, which is another tensor, so the "
                    f"model is not adopted"
                )


def _memory_of(tensor: Tensor) -> tuple[int, int]:
    """Returns where a tensor's elements begin and end; two equal places if there are none."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * tensor.element_size()


def _find_optimizer(found: FoundWeight, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Fills in the optimizer and group that have the weight, or raises InvalidArgument."""
    holders = list(_groups_with(found.weight, optimizers))
    if len(holders) > 1:
        raise InvalidArgument(f"{found.name}: {len(holders)} groups of optimizers have its weight")
    if not holders:
        if found.weight.requires_grad:
            raise InvalidArgument(
                f"{found.name}: its weight requires a gradient, but no optimizer given to adopt() "
                f"has it: give the optimizer, or freeze the weight with requires_grad_(False)"
            )
        return
    found.optimizer, found.group = holders[0]
    dense = [path for path, module in found.modules.items() if not module.sparse]
    if wants_sparse_gradients(found.optimizer) and dense:
        raise InvalidArgument(
            f"{dense[0] or 'the model'}: torch.optim.{type(found.optimizer).__name__} wants "
            f"sparse=True, and the module has sparse=False: set that, or take Adam and lazy=True"
        )


def _groups_with(
    weight: nn.Parameter, optimizers: Sequence[torch.optim.Optimizer]
) -> Iterator[tuple[torch.optim.Optimizer, Mapping[str, Any]]]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if any(parameter is weight for parameter in group["params"]):
                yield optimizer, group
