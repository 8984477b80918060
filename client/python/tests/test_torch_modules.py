"""Embedding, weighted bags and several tables at once, against torch's own modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_server import FakeServer
from torch import Tensor, nn

import slotwise
import slotwise.torch as st

KEYS = torch.tensor([3, 3, -1, 0, 7, 11, 5, 3, 3])
OFFSETS = torch.tensor([0, 2, 3, 3, 6, 7, 9])


def twin(ps: slotwise.Client, table: str, keys: Tensor) -> tuple[Tensor, Tensor]:
    """The server's rows of the unique keys, and the keys as numbers of those rows."""
    unique, numbers = torch.unique(keys, return_inverse=True)
    options = ps.describe_table(table).options
    bags = -(-len(unique) // options.slots) * options.slots  # the last may be empty
    bag_a_key = np.minimum(np.arange(bags + 1), len(unique))
    rows = torch.from_numpy(ps.lookup(table, unique.numpy(), bag_a_key)).reshape(-1, options.dim)
    return rows[: len(unique)].clone(), numbers


def test_embedding_trains_as_torchs_own(any_ps: slotwise.Client) -> None:
    any_ps.create_table("words", dim=4, combiner="none", optimizer=slotwise.SGD(0.1))
    ours = st.Embedding(any_ps, "words")
    keys = KEYS.reshape(3, 1, 3)
    rows, numbers = twin(any_ps, "words", keys)
    theirs = nn.Embedding.from_pretrained(rows, freeze=False)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for step in range(3):
        our_output, their_output = ours(keys), theirs(numbers)
        assert our_output.shape == (3, 1, 3, 4)
        torch.testing.assert_close(our_output, their_output, rtol=1e-5, atol=1e-6)
        (our_output.sin().sum() * (step + 1)).backward()
        optimizer.zero_grad()
        (their_output.sin().sum() * (step + 1)).backward()
        optimizer.step()
    assert any_ps.describe_table("words").steps == 3
    assert str(ours) == "Embedding('words', dim=4)"
    assert ours(torch.tensor(3)).shape == (4,)
    ours.eval()
    assert not ours(keys).requires_grad


def test_embedding_wants_a_table_without_a_combiner(fake_ps: slotwise.Client) -> None:
    fake_ps.create_table("ads", dim=4, optimizer=slotwise.SGD(0.1))
    with pytest.raises(slotwise.InvalidArgument, match="'sum', so it is for EmbeddingBag"):
        st.Embedding(fake_ps, "ads")


def test_offsets_may_be_as_torchs_own_are_by_default(any_ps: slotwise.Client) -> None:
    """int32 ids and offsets, and offsets without an end, whatever the last bag has."""
    any_ps.create_table("ads", dim=4, optimizer=slotwise.SGD(0.1))
    ours = st.EmbeddingBag(any_ps, "ads", include_last_offset=False)
    keys = torch.tensor([3, 5, 3, 9], dtype=torch.int32)
    rows, numbers = twin(any_ps, "ads", keys.long())
    theirs = nn.EmbeddingBag.from_pretrained(rows, mode="sum")
    for last in (3, 4):  # the last bag has a key, or none
        offsets = torch.tensor([0, 2, last], dtype=torch.int32)
        torch.testing.assert_close(ours(keys, offsets), theirs(numbers.int(), offsets))
    with pytest.raises(slotwise.InvalidArgument, match=r"np.append\(offsets, len\(keys\)\)"):
        st.EmbeddingBag(any_ps, "ads")(keys, torch.tensor([0, 2, 3]))


def test_weighted_bags_train_as_torchs_own(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=4, slots=2, optimizer=slotwise.AdaGrad(0.1))
    ours = st.EmbeddingBag(any_ps, "ads")
    rows, numbers = twin(any_ps, "ads", KEYS)
    theirs = nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode="sum")
    optimizer = torch.optim.Adagrad(theirs.parameters(), lr=0.1)
    torch.manual_seed(0)
    weights = torch.randn(len(KEYS))
    for _ in range(3):
        our_output = ours(KEYS, OFFSETS, weights)
        their_output = theirs(numbers, OFFSETS[:-1], weights).reshape(3, 8)
        torch.testing.assert_close(our_output, their_output, rtol=1e-5, atol=1e-6)
        our_output.sin().sum().backward()
        optimizer.zero_grad()
        their_output.sin().sum().backward()
        optimizer.step()


def test_weights_that_require_a_gradient_are_refused(fake_ps: slotwise.Client) -> None:
    fake_ps.create_table("ads", dim=4, optimizer=slotwise.SGD(0.1))
    bag = st.EmbeddingBag(fake_ps, "ads")
    weights = torch.ones(len(KEYS), requires_grad=True)
    with pytest.raises(slotwise.InvalidArgument, match="per_sample_weights .* is not computed"):
        bag(KEYS, None, weights)
    assert bag(KEYS, None, weights.detach()).shape == (9, 4)


class TestEmbeddingBags:
    """Two tables of different dims and one without a combiner."""

    def make(self, ps: slotwise.Client) -> st.EmbeddingBags:
        ps.create_table("ads", dim=4, slots=2, combiner="mean", optimizer=slotwise.SGD(0.1))
        ps.create_table("users", dim=3, optimizer=slotwise.SGD(0.1))
        ps.create_table("words", dim=2, combiner="none", optimizer=slotwise.SGD(0.1))
        return st.EmbeddingBags(ps, ["ads", "users", "words"])

    def test_it_trains_as_torchs_own_modules(self, any_ps: slotwise.Client) -> None:
        ours = self.make(any_ps)
        keys = {"ads": KEYS, "users": KEYS[:3], "words": KEYS[:6].reshape(3, 2)}
        weights = torch.tensor([0.5, -2.0, 3.0])
        rows = {name: twin(any_ps, name, some) for name, some in keys.items()}
        theirs = {
            "ads": nn.EmbeddingBag.from_pretrained(rows["ads"][0], freeze=False, mode="mean"),
            "users": nn.EmbeddingBag.from_pretrained(rows["users"][0], freeze=False, mode="sum"),
            "words": nn.Embedding.from_pretrained(rows["words"][0], freeze=False),
        }
        optimizer = torch.optim.SGD(nn.ModuleDict(theirs).parameters(), lr=0.1)
        for _ in range(3):
            our_outputs = ours(
                {
                    "ads": (KEYS, OFFSETS),
                    "users": (keys["users"], torch.arange(4), weights),
                    "words": keys["words"],
                }
            )
            their_outputs = {
                "ads": theirs["ads"](rows["ads"][1], OFFSETS[:-1]).reshape(3, 8),
                "users": theirs["users"](rows["users"][1], torch.arange(3), weights),
                "words": theirs["words"](rows["words"][1]),
            }
            assert our_outputs.keys() == their_outputs.keys()
            optimizer.zero_grad()
            for outputs in (our_outputs, their_outputs):
                torch.cat([output.flatten() for output in outputs.values()]).sin().sum().backward()
            optimizer.step()
            for name, output in our_outputs.items():
                torch.testing.assert_close(output, their_outputs[name], rtol=1e-5, atol=1e-6)
        assert {any_ps.describe_table(name).steps for name in keys} == {3}
        assert list(ours.parameters()) == []
        assert str(ours) == "EmbeddingBags('ads': [2, 4], 'users': [1, 3], 'words': [1, 2])"

    def test_a_forward_and_a_backward_are_one_request_each(
        self, fake: FakeServer, fake_ps: slotwise.Client
    ) -> None:
        outputs = self.make(fake_ps)({"ads": (KEYS, OFFSETS), "users": KEYS, "words": KEYS})
        (outputs["ads"].sum() + outputs["users"].sum() + outputs["words"].sum()).backward()
        data = [method for _, method, _ in fake.log if method.startswith(("Lookup", "Push"))]
        assert data == ["LookupMany", "PushMany"]

    def test_a_table_that_had_no_part_in_the_loss_makes_no_step(
        self, any_ps: slotwise.Client
    ) -> None:
        outputs = self.make(any_ps)({"ads": (KEYS, OFFSETS), "users": KEYS, "words": KEYS})
        (outputs["ads"].sum() + outputs["words"].sum()).backward()
        steps = {name: any_ps.describe_table(name).steps for name in ("ads", "users", "words")}
        assert steps == {"ads": 1, "users": 0, "words": 1}

    def test_some_of_the_tables_may_be_asked_and_none(self, fake_ps: slotwise.Client) -> None:
        bags = self.make(fake_ps)
        assert bags({}) == {}
        bags.eval()
        outputs = bags({"users": (KEYS,)})
        assert list(outputs) == ["users"] and not outputs["users"].requires_grad
        with pytest.raises(slotwise.InvalidArgument, match="table cars is not one of ads, users"):
            bags({"cars": KEYS})
        with pytest.raises(slotwise.InvalidArgument, match="table users: 4 tensors"):
            bags({"users": (KEYS,) * 4})
