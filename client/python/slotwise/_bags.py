"""`EmbeddingBag` and `EmbeddingBags`: modules that pool the rows of bags, of a table or of several."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from slotwise._export import left_to_python
from slotwise._modules import RemoteEmbedding, as_key, is_not
from slotwise._tensors import Lookup, Lookups, joined_lookups
from slotwise.client import Client
from slotwise.errors import InvalidArgument
from slotwise.options import TableOptions
from slotwise.session import Session


class EmbeddingBag(RemoteEmbedding):
    """Pools the rows of every bag, as `torch.nn.EmbeddingBag` does.

    Attributes:
        dim, slots: the table's dim and slots; a result has slots * dim columns.
        padding_idx: the key that stands for nothing; None: there is none.
    """

    def __init__(
        self,
        ps: Client,
        table: str,
        *,
        padding_idx: int | None = None,
        session: Session | None = None,
        include_last_offset: bool = True,
        in_flight: bool = False,
    ) -> None:
        """Uses a table that exists already.

        Args:
            padding_idx: a key that is in no bag, as if it had not been given.
            session, in_flight: as for `Embedding`.
            include_last_offset: as in `torch.nn.EmbeddingBag`, whose default is False: whether
                `forward`'s offsets end with the number of keys.

        Raises:
            slotwise.NotFound: no such table.
            slotwise.InvalidArgument: the table has no combiner, and there is a `padding_idx`.
        """
        super().__init__(ps, [table], session, in_flight)
        (options,) = self._tables.values()
        if padding_idx is not None and options.combiner == "none":
            raise InvalidArgument(
                f"table {table} has no combiner, and a bag of {padding_idx} would be empty: use Embedding"
            )
        self.dim, self.slots, self.padding_idx = options.dim, options.slots, as_key(padding_idx)
        self._table = table
        self._include_last_offset = include_last_offset
        self._share_steps()

    @left_to_python
    def forward(
        self, keys: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Returns the pooled rows, float32 [samples, slots * dim], on the keys' device.

        Args:
            keys: int64 [keys], any 64 bits, or narrower integers; without offsets also [samples, slots], or
                bags of one size: [samples, keys], and [samples, slots, keys] with several slots.
            offsets: integers [samples * slots + 1] from 0 to `len(keys)`. The end is left out if
                `include_last_offset` is False. None: every bag has one key, or the row of keys.
            per_sample_weights: floats of the keys' shape; each key's row is multiplied by its weight. Their
                own gradient is not computed: where gradients are, weights that require one are refused.
        """
        return self._forward(self.lookups_of(keys, offsets, per_sample_weights))[0]

    def lookups_of(
        self, keys: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Lookups:
        """Is Slotwise's own."""
        if offsets is not None and not self._include_last_offset:
            offsets = torch.cat([offsets, offsets.new_tensor([keys.numel()])])
        (options,) = self._tables.values()
        return {self._table: bags_of(options, keys, offsets, per_sample_weights, self.padding_idx)}

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self._table!r}, slots={self.slots}, dim={self.dim}{padding}"


class EmbeddingBags(RemoteEmbedding):
    """Looks up in several tables, of any dims, with one request a `forward()` or `backward()`.

    A table whose result had no part in the loss makes no step, unless trainers share the session: their
    steps have all tables.
    """

    def __init__(
        self,
        ps: Client,
        tables: Iterable[str] | Mapping[str, str],
        *,
        padding_idx: int | None = None,
        session: Session | None = None,
        in_flight: bool = False,
    ) -> None:
        """Uses tables that exist already.

        Args:
            tables: their names; or the tables by the names of features, of which several may have one table:
                {"history": "items", "candidate": "items"}.
            padding_idx: a key that is in no bag, of any feature.
            session, in_flight: as for `Embedding`.

        Raises:
            slotwise.NotFound: no such table.
            slotwise.InvalidArgument: a table is named twice without names of features; or as `EmbeddingBag`.
        """
        names = list(tables)
        features = dict(tables) if isinstance(tables, Mapping) else dict(zip(names, names))
        if len(features) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgument(
                f"table {twice} is named twice: name the features that have it, as in "
                f'{{"history": "{twice}", "candidate": "{twice}"}}'
            )
        super().__init__(ps, dict.fromkeys(features.values()), session, in_flight)
        for table, options in self._tables.items():
            if padding_idx is not None and options.combiner == "none":
                raise InvalidArgument(
                    f"table {table} has no combiner, and a bag of {padding_idx} would be empty"
                )
        self._features, self.padding_idx = features, as_key(padding_idx)
        self._are_tables = all(feature == table for feature, table in features.items())
        self._share_steps()

    @left_to_python
    def forward(self, bags: Any) -> Any:
        """Returns the pooled rows by feature, float32 [samples, slots * dim], on their keys' devices.

        Args:
            bags: for all features or some, keys or a tuple of `EmbeddingBag.forward`'s arguments: (keys,),
                (keys, offsets) or (keys, offsets, per_sample_weights). Or TorchRec's `KeyedJaggedTensor` of
                all features: then a `KeyedTensor` of them is returned.
        """
        given = self._bags_by_feature(bags)
        lookups = self._lookups(given)
        values = dict(zip(lookups, self._forward(lookups))) if lookups else {}
        results: dict[str, Tensor] = {}
        features = Counter(self._features[feature] for feature in given)  # of each table
        read = dict.fromkeys(values, 0)
        for feature, lookup in given.items():
            table = self._features[feature]
            begin, read[table] = read[table], read[table] + self._samples(table, lookup)
            results[feature] = values[table]
            if features[table] > 1:
                results[feature] = values[table][begin : read[table]]
                if self._tables[table].combiner == "none" and lookup[0] is not None:
                    results[feature] = results[feature].reshape(*lookup[0].shape, -1)
        if not isinstance(bags, Mapping):
            keyed: Any = getattr(sys.modules[type(bags).__module__], "KeyedTensor")
            widths = [each.shape[1] for each in results.values()]
            return keyed(list(results), widths, torch.cat(list(results.values()), dim=1))
        return results

    def lookups_of(self, bags: Any) -> Lookups:
        """Is Slotwise's own."""
        return self._lookups(self._bags_by_feature(bags))

    def _bags_by_feature(self, bags: Any) -> dict[str, Lookup]:
        """Returns the lookup of each feature; InvalidArgument if the bags make no sense."""
        if not isinstance(bags, Mapping):
            return self._bags_of_keyed(bags)
        found: dict[str, Lookup] = {}
        for feature, given in bags.items():
            what = "table" if self._are_tables else "feature"
            if feature not in self._features:
                known = ", ".join(self._features)
                raise InvalidArgument(f"{what} {feature} is not one of {known}")
            tensors = tuple(given) if isinstance(given, (tuple, list)) else (given,)
            if not 1 <= len(tensors) <= 3:
                raise InvalidArgument(f"{what} {feature}: {len(tensors)} tensors, not 1 to 3")
            options = self._tables[self._features[feature]]
            offsets, weights = (*tensors[1:], None, None)[:2]
            found[feature] = bags_of(options, tensors[0], offsets, weights, self.padding_idx)
        return found

    def _bags_of_keyed(self, bags: Any) -> dict[str, Lookup]:
        if type(bags).__name__ != "KeyedJaggedTensor":
            raise InvalidArgument(f"bags are {type(bags).__name__}, no mapping and no KeyedJaggedTensor")
        jagged = bags.to_dict()
        found: dict[str, Lookup] = {}
        for feature, table in self._features.items():
            if feature not in jagged:
                raise InvalidArgument(f"the KeyedJaggedTensor has no {feature}, but {', '.join(jagged)}")
            one = jagged[feature]
            found[feature] = bags_of(
                self._tables[table], one.values(), one.offsets(), one.weights_or_none(), self.padding_idx
            )
        return found

    def _lookups(self, given: Mapping[str, Lookup]) -> Lookups:
        """Returns one lookup of each table, of all its features in their order."""
        by_table: dict[str, list[Lookup]] = {}
        for feature, lookup in given.items():
            by_table.setdefault(self._features[feature], []).append(lookup)
        return {
            table: of_table[0] if len(of_table) == 1 else self._joined(table, of_table)
            for table, of_table in by_table.items()
        }

    def _joined(self, table: str, lookups: list[Lookup]) -> Lookup:
        options = self._tables[table]
        bags = [self._samples(table, lookup) * options.slots for lookup in lookups]
        return joined_lookups(options, lookups, bags)

    def _samples(self, table: str, lookup: Lookup) -> int:
        keys, offsets, _ = lookup
        assert keys is not None
        slots = self._tables[table].slots
        # With several slots the offsets' number tells whether they have their end; with one slot they must.
        bags = keys.numel() if offsets is None else len(offsets) - 1 if slots == 1 else len(offsets)
        return bags // slots

    def extra_repr(self) -> str:
        """Returns what `print(module)` shows."""
        return ", ".join(
            f"{feature!r}: {_shape_of(feature, table, self._tables[table])}"
            for feature, table in self._features.items()
        )


def _shape_of(feature: str, table: str, options: TableOptions) -> str:
    shape = f"[{options.slots}, {options.dim}]"
    return shape if feature == table else f"{shape} of {table!r}"


def bags_of(
    table: TableOptions, keys: Tensor, offsets: Tensor | None, weights: Tensor | None, padding: int | None
) -> Lookup:
    """Returns the lookup of bags that are given as `EmbeddingBag.forward` takes them, without the padding."""
    if weights is not None and weights.is_floating_point():
        weights = weights.to(torch.float32)
    is_pooled, several = table.combiner != "none", table.slots > 1
    of_one_size = is_pooled and keys.dim() == (3 if several else 2)
    of_one_size = of_one_size and keys.shape[1:-1] == ((table.slots,) if several else ())
    if offsets is None and of_one_size:
        size = keys.shape[-1]
        bags = keys.numel() // size if size else keys.shape[0]
        offsets = torch.arange(bags + 1, device=keys.device) * size
        weights = weights.reshape(-1) if weights is not None and weights.shape == keys.shape else weights
        keys = keys.reshape(-1)
    refused = keys.dim() > 2 or (keys.dim() == 2 and keys.shape[1] != table.slots)
    if padding is None or (offsets is None and refused):  # the client refuses that shape
        return keys, offsets, weights
    kept = is_not(keys.reshape(-1), padding)
    if offsets is None:
        offsets = torch.arange(keys.numel() + 1, device=keys.device)
    if bool(((offsets < 0) | (offsets > keys.numel())).any()):
        return keys, offsets, weights  # the client refuses these offsets
    before = nn.functional.pad(kept.cumsum(0), (1, 0))
    if weights is not None and weights.shape == keys.shape:
        weights = weights.reshape(-1)[kept]
    return keys.reshape(-1)[kept], before[offsets.to(before.device, torch.int64)], weights
