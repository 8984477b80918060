"""`slotwise.torch.export_module` of adopted models, and of models that have both kinds of modules."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from adopted import ADS, WORDS, batches, embedding_weights, make_twins
from served import DIM, Draw, close, make_table
from torch import nn

import slotwise
import slotwise.torch as st


@pytest.mark.parametrize("ids", ["map", "positions"])
def test_an_adopted_model_becomes_what_it_was(ps: slotwise.Client, ids: str) -> None:
    ours, theirs = make_twins("adagrad")
    st.adopt(ours.model, ps, ours.optimizers[0])
    for batch in batches(4):
        ours.step(batch), theirs.step(batch)
    copied: Any = st.export_module(ours.model, ids=ids)
    assert [type(copied.ads["sum"]), type(copied.words)] == [nn.EmbeddingBag, nn.Embedding]
    assert all(type(weight) is nn.Parameter for weight in embedding_weights(copied))
    (batch,) = batches(1, seed=3)
    close(copied(batch), theirs.model.eval()(batch))
    close(copied(batch), ours.model.eval()(batch))
    ours.model.train()
    ours.step(batch), theirs.step(batch)
    close(st.export_module(ours.model)(batch), theirs.model.eval()(batch))
    st.release(ours.model)
    assert type(copied.words.weight) is nn.Parameter


class Both(nn.Module):
    """A native bag, an adopted embedding, and an output layer that has its weight."""

    def __init__(self, ps: slotwise.Client) -> None:
        super().__init__()
        self.ads = st.EmbeddingBag(ps, "ads")
        self.words = nn.Embedding(WORDS, DIM)
        self.out = nn.Linear(DIM, WORDS, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ads: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.ads(ads) + self.words(words))


def test_native_and_adopted_modules_are_copied_together(ps: slotwise.Client) -> None:
    make_table(ps, "ads", "mean")
    torch.manual_seed(0)
    model = Both(ps)
    optimizer = torch.optim.SGD(model.words.parameters(), lr=0.1)
    st.adopt(model, ps, optimizer, names={"words": "words"})
    ads, words = Draw().ids(4, 3), torch.tensor([0, 3, 3, WORDS - 1])
    model(ads, words).square().sum().backward()
    optimizer.step()
    copied: Any = st.export_module(model, tables={"ads": [3, 7]})
    assert copied.out.weight is copied.words.weight and type(copied.words.weight) is nn.Parameter
    assert copied.ads.ids.tolist() == [3, 7]
    close(st.export_module(model)(ads, words), model.eval()(ads, words))
    close(torch.jit.script(st.export_module(model))(ads, words), model(ads, words))
    with pytest.raises(slotwise.InvalidArgument, match="words is an adopted weight's, .* leave it out"):
        st.export_module(model, tables={"words": [1]})


def test_a_released_model_is_plain_already(fake_ps: slotwise.Client) -> None:
    model = nn.Sequential(nn.Embedding(ADS, DIM))
    st.adopt(model, fake_ps, torch.optim.SGD(model.parameters(), lr=0.1))
    expected = st.export_module(model)(torch.tensor([3]))
    st.release(model)
    with pytest.raises(slotwise.InvalidArgument, match="none that was adopted: copy.deepcopy"):
        st.export_module(model)
    close(copy.deepcopy(model)(torch.tensor([3])), expected)


def test_a_weight_that_has_grown_is_left_to_native_modules(fake_ps: slotwise.Client) -> None:
    model = nn.Sequential(nn.Embedding(ADS, DIM))
    st.adopt(model, fake_ps, torch.optim.SGD(model.parameters(), lr=0.1), names={"0": "grown"}, grow=True)
    ids = torch.tensor([3, ADS + 5])
    close(st.export_module(model)(ids[:1]), model.eval()(ids[:1]))
    expected = model.train()(ids)
    with pytest.raises(slotwise.InvalidArgument, match="table grown has grown .* keep_tables=True"):
        st.export_module(model)
    st.release(model, keep_tables=True)
    close(st.export_module(st.Embedding(fake_ps, "grown"))(ids), expected)
