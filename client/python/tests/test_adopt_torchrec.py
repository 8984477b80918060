"""TorchRec's EmbeddingBagCollection is adopted by its public names: a stand-in's, and its own."""

from __future__ import annotations

import copy
import types
from typing import Any

import pytest
import torch
import torchrec_stand_in
from adopted import expect_equal_models, step_each
from torch import Tensor, nn

import slotwise
import slotwise.torch as st

SAMPLES = 6


@pytest.fixture(params=["stand-in", "torchrec"])
def rec(request: pytest.FixtureRequest) -> types.ModuleType:
    """A module with TorchRec's names."""
    if request.param == "stand-in":
        return torchrec_stand_in
    return pytest.importorskip("torchrec")


class Ranker(nn.Module):
    """A collection of a table of two features and one of one, and a dense layer."""

    def __init__(self, rec: Any, weighted: bool) -> None:
        super().__init__()
        pooling = rec.PoolingType.SUM if weighted else rec.PoolingType.MEAN
        self.bags = rec.EmbeddingBagCollection(
            tables=[
                rec.EmbeddingBagConfig(
                    name=name, embedding_dim=dim, num_embeddings=rows, feature_names=features, pooling=kind
                )
                for name, dim, rows, features, kind in (
                    ("goods", 4, 30, ["seen", "bought"], pooling),
                    ("users", 2, 9, ["user"], rec.PoolingType.SUM),
                )
            ],
            is_weighted=weighted,
        )
        self.top = nn.Linear(2 * 4 + 2, 1)

    def forward(self, features: Any) -> Tensor:
        found = self.bags(features)
        assert found.keys() == ["seen", "bought", "user"]
        return self.top(found.values().tanh())[:, 0]


def draw(rec: Any, generator: torch.Generator, weighted: bool) -> Any:
    """A batch: 0 to 3 items seen and bought, and one user."""
    lengths = torch.randint(0, 4, (3 * SAMPLES,), generator=generator)
    lengths[2 * SAMPLES :] = 1
    items = int(lengths[: 2 * SAMPLES].sum())
    values = torch.cat(
        [
            torch.randint(0, 30, (items,), generator=generator),
            torch.randint(0, 9, (SAMPLES,), generator=generator),
        ]
    )
    weights = torch.rand(len(values), generator=generator) if weighted else None
    return rec.KeyedJaggedTensor(
        keys=["seen", "bought", "user"], values=values, weights=weights, lengths=lengths
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_a_collection_trains_as_before(ps: slotwise.Client, rec: types.ModuleType, weighted: bool) -> None:
    torch.manual_seed(5)
    theirs = Ranker(rec, weighted)
    ours = copy.deepcopy(theirs)
    twins = [(model, torch.optim.Adagrad(model.parameters(), lr=0.1)) for model in (theirs, ours)]
    tables = st.adopt(ours.bags, ps, twins[1][1], prefix="rec.")
    assert tables == {"embedding_bags.goods": "rec.goods", "embedding_bags.users": "rec.users"}
    assert isinstance(ours.bags, rec.EmbeddingBagCollection)
    generator = torch.Generator().manual_seed(6)
    for step in range(40):
        if step == 20:
            st.release(ours)
        features, labels = draw(rec, generator, weighted), torch.randn(SAMPLES, generator=generator)
        step_each(twins, lambda model: (model(features) - labels).square().mean())
        if step == 19:
            assert ps.describe_table("rec.goods").steps == 20
    expect_equal_models(ours, theirs)


def test_a_sharded_collection_and_two_tables_of_one_name_are_refused(fake_ps: slotwise.Client) -> None:
    sharded = nn.ModuleDict({"top": nn.Embedding(3, 2), "rec": Ranker(torchrec_stand_in, False)})
    bags = sharded["rec"].bags.embedding_bags
    bags["users"] = nn.Module()  # what TorchRec's sharded collections have
    bags["users"].register_parameter("weight", nn.Parameter(torch.zeros(9, 2)))
    twice = nn.ModuleList([Ranker(torchrec_stand_in, False) for _ in range(2)])
    no_bag = r"rec\.bags: table users is a Module, not an nn.EmbeddingBag: .* before it is sharded"
    for model, said in ((sharded, no_bag), (twice, "two weights would both be the table goods")):
        with pytest.raises(slotwise.InvalidArgument, match=said):
            st.adopt(model, fake_ps, torch.optim.SGD(model.parameters(), lr=0.1))
    assert fake_ps.list_tables() == []
