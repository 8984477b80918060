"""The public names of TorchRec that `adopt` and its tests use, for machines without TorchRec.

Written from TorchRec's documented interface: a jagged tensor has values, offsets and weights; a
collection has a configuration and an nn.EmbeddingBag for each table, and gives a KeyedTensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor, nn


class PoolingType(Enum):
    SUM = "sum"
    MEAN = "mean"


@dataclass
class EmbeddingBagConfig:
    num_embeddings: int
    embedding_dim: int
    name: str
    feature_names: list[str] = field(default_factory=list)
    pooling: PoolingType = PoolingType.SUM


@dataclass
class JaggedTensor:
    """One feature's bags."""

    _values: Tensor
    _offsets: Tensor
    _weights: Tensor | None

    def values(self) -> Tensor:
        return self._values

    def offsets(self) -> Tensor:
        return self._offsets

    def weights_or_none(self) -> Tensor | None:
        return self._weights

    def weights(self) -> Tensor:
        assert self._weights is not None
        return self._weights


class KeyedJaggedTensor:
    """The bags of several features: feature f owns `stride` lengths, one after the other."""

    def __init__(self, keys: list[str], values: Tensor, weights: Tensor | None, lengths: Tensor) -> None:
        self._keys, self._values, self._weights, self._lengths = keys, values, weights, lengths

    def keys(self) -> list[str]:
        return self._keys

    def stride(self) -> int:
        return len(self._lengths) // len(self._keys)

    def to_dict(self) -> dict[str, JaggedTensor]:
        features, first = {}, 0
        for key, lengths in zip(self._keys, self._lengths.split(self.stride())):
            some = slice(first, first + int(lengths.sum()))
            weights = None if self._weights is None else self._weights[some]
            offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            features[key] = JaggedTensor(self._values[some], offsets, weights)
            first = some.stop
        return features


@dataclass
class KeyedTensor:
    """Pooled features beside each other, [stride, sum of dims]."""

    _keys: list[str]
    _length_per_key: list[int]
    _values: Tensor

    def keys(self) -> list[str]:
        return self._keys

    def values(self) -> Tensor:
        return self._values

    def to_dict(self) -> dict[str, Tensor]:
        return dict(zip(self._keys, self._values.split(self._length_per_key, dim=1)))


class EmbeddingBagCollection(nn.Module):
    """Several tables, each of one or several features."""

    def __init__(self, tables: Sequence[EmbeddingBagConfig], is_weighted: bool = False) -> None:
        super().__init__()
        self._configs, self._is_weighted = list(tables), is_weighted
        self.embedding_bags = nn.ModuleDict(
            {
                table.name: nn.EmbeddingBag(
                    table.num_embeddings,
                    table.embedding_dim,
                    mode=table.pooling.value,
                    include_last_offset=True,
                )
                for table in tables
            }
        )

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        return self._configs

    def is_weighted(self) -> bool:
        return self._is_weighted

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        jagged, names, pooled = features.to_dict(), [], []
        for config in self._configs:
            for name in config.feature_names:
                feature = jagged[name]
                bag = self.embedding_bags[config.name]
                weights = feature.weights() if self._is_weighted else None
                pooled.append(bag(feature.values(), feature.offsets(), weights))
                names.append(name)
        return KeyedTensor(names, [each.shape[1] for each in pooled], torch.cat(pooled, dim=1))
