"""The plain torch module that stands in a served copy for `slotwise.torch.EmbeddingBags`."""

import sys
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from slotwise._served.modules import ServedEmbeddingBag

# Keys, offsets and weights of each feature.
Bags = Dict[str, Tuple[Tensor, Optional[Tensor], Optional[Tensor]]]
# What `forward` takes within a script, where all features have one type.
AnyBags = Union[
    Dict[str, Tensor], Dict[str, Tuple[Tensor, Tensor]], Dict[str, Tuple[Tensor, Tensor, Tensor]], Bags
]


class ServedEmbeddingBags(nn.Module):
    """Stands for a `slotwise.torch.EmbeddingBags`.

    Attributes:
        features: a `ServedEmbeddingBag` each; features of one table share its rows.
        padding_idx: as the original's.
    """

    __jit_unused_properties__ = ["ids"]

    def __init__(self, features: List[ServedEmbeddingBag], padding_idx: Optional[int]) -> None:
        """Takes the features in the original's order."""
        super().__init__()
        self.features, self.padding_idx = nn.ModuleList(features), padding_idx

    @property
    def ids(self) -> Dict[str, Tensor]:
        """Returns the ids of positions 0 and up by feature, int64 [rows], rising."""
        return {each.feature: each.ids for each in self.features}

    def forward(self, bags: AnyBags) -> Dict[str, Tensor]:
        """Returns the pooled rows by feature, float32 [samples, slots * dim].

        Args:
            bags: as `slotwise.torch.EmbeddingBags.forward` takes them, with ids or positions for keys. Within
                a script all features have one type: keys; keys and offsets; keys, offsets and weights; or
                `Tuple[Tensor, Optional[Tensor], Optional[Tensor]]`.

        Raises:
            ValueError: there is no such feature; or as `ServedEmbeddingBag.forward`.
        """
        if torch.jit.is_scripting():
            return self._pooled(_of_script(bags))
        return self._any_pooled(bags)

    def _pooled(self, bags: Bags) -> Dict[str, Tensor]:
        found: Dict[str, Tensor] = {}
        for one in self.features:
            if one.feature in bags:
                keys, offsets, weights = bags[one.feature]
                found[one.feature] = one(keys, offsets, weights)
        in_order: Dict[str, Tensor] = {}
        for feature in bags.keys():
            if feature not in found:
                raise ValueError("there is no feature " + feature)
            in_order[feature] = found[feature]
        return in_order

    @torch.jit.unused
    def _any_pooled(self, bags: Any) -> Any:
        """Pools also keys alone, shorter tuples and a KeyedJaggedTensor."""
        if type(bags).__name__ != "KeyedJaggedTensor":
            return self._pooled({feature: _three(given) for feature, given in bags.items()})
        jagged = bags.to_dict()
        found = self._pooled(
            {
                one.feature: (part.values(), part.offsets(), part.weights_or_none())
                for one in self.features
                for part in [jagged[one.feature]]
            }
        )
        keyed: Any = getattr(sys.modules[type(bags).__module__], "KeyedTensor")
        widths = [each.shape[1] for each in found.values()]
        return keyed(list(found), widths, torch.cat(list(found.values()), dim=1))


def _of_script(bags: AnyBags) -> Bags:
    """Returns keys, offsets and weights of each feature, from a script's arguments."""
    found: Bags = {}
    if torch.jit.isinstance(bags, Dict[str, Tensor]):
        for feature, keys in bags.items():
            found[feature] = (keys, None, None)  # type: ignore[assignment]
    elif torch.jit.isinstance(bags, Dict[str, Tuple[Tensor, Tensor]]):
        for feature, two in bags.items():
            found[feature] = (two[0], two[1], None)
    elif torch.jit.isinstance(bags, Dict[str, Tuple[Tensor, Tensor, Tensor]]):
        for feature, three in bags.items():
            found[feature] = (three[0], three[1], three[2])  # type: ignore[misc]
    else:
        for feature, given in bags.items():
            found[feature] = given  # type: ignore[assignment]
    return found


def _three(given: Any) -> Tuple[Tensor, Optional[Tensor], Optional[Tensor]]:
    """Returns keys, offsets and weights of a feature's argument."""
    tensors = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not 1 <= len(tensors) <= 3:
        raise ValueError(f"a feature has {len(tensors)} tensors, not 1 to 3")
    keys, offsets, weights = (*tensors, None, None)[:3]
    return keys, offsets, weights
