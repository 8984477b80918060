"""Embedding, weighted bags and several tables at once, against torch's own modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fake_server import FakeServer
from torch import Tensor, nn
from torchrec_stand_in import KeyedJaggedTensor, KeyedTensor
from twins import expect_equal_steps, first_rows

import slotwise
import slotwise.torch as st

KEYS = torch.tensor([3, 3, -1, 0, 7, 11, 5, 3, 3])
OFFSETS = torch.tensor([0, 2, 3, 3, 6, 7, 9])


def test_embedding_trains_as_torchs_own(any_ps: slotwise.Client) -> None:
    any_ps.create_table("words", dim=4, combiner="none", optimizer=slotwise.SGD(0.1))
    ours = st.Embedding(any_ps, "words")
    keys = KEYS.reshape(3, 1, 3)
    rows, numbers = first_rows(any_ps, "words", keys)
    theirs = nn.Embedding.from_pretrained(rows, freeze=False)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    expect_equal_steps(optimizer, lambda: ours(keys), lambda: theirs(numbers))
    assert any_ps.describe_table("words").steps == 3
    assert str(ours) == "Embedding('words', dim=4)"
    assert ours(torch.tensor(3)).shape == (4,) and ours(keys).shape == (3, 1, 3, 4)
    ours.eval()
    assert not ours(keys).requires_grad


def test_offsets_may_be_as_torchs_own_are_by_default(any_ps: slotwise.Client) -> None:
    """int32 ids and offsets, and offsets without an end, whatever the last bag has."""
    any_ps.create_table("ads", dim=4, optimizer=slotwise.SGD(0.1))
    ours = st.EmbeddingBag(any_ps, "ads", include_last_offset=False)
    keys = torch.tensor([3, 5, 3, 9], dtype=torch.int32)
    rows, numbers = first_rows(any_ps, "ads", keys.long())
    theirs = nn.EmbeddingBag.from_pretrained(rows, mode="sum")
    for last in (3, 4):  # the last bag has a key, or none
        offsets = torch.tensor([0, 2, last], dtype=torch.int32)
        torch.testing.assert_close(ours(keys, offsets), theirs(numbers.int(), offsets))
    with pytest.raises(slotwise.InvalidArgument, match=r"np.append\(offsets, len\(keys\)\)"):
        st.EmbeddingBag(any_ps, "ads")(keys, torch.tensor([0, 2, 3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_may_be_floats_of_any_type_that_want_no_gradient(
    fake_ps: slotwise.Client, dtype: torch.dtype
) -> None:
    fake_ps.create_table("ads", dim=4, optimizer=slotwise.SGD(0.1))
    bag = st.EmbeddingBag(fake_ps, "ads")
    weights = torch.linspace(-1, 2, len(KEYS)).to(dtype)
    torch.testing.assert_close(bag(KEYS, OFFSETS, weights), bag(KEYS, OFFSETS, weights.float()))
    with pytest.raises(slotwise.InvalidArgument, match="weights: dtype is int64"):
        bag(KEYS, OFFSETS, weights.long())
    weights.requires_grad_()
    with pytest.raises(slotwise.InvalidArgument, match="per_sample_weights .* is not computed"):
        bag(KEYS, None, weights)
    assert bag(KEYS, None, weights.detach()).shape == (9, 4)
    with torch.no_grad():
        assert bag(KEYS, None, weights).shape == (9, 4)


def test_padding_of_an_embedding_is_zeros_and_has_no_row(any_ps: slotwise.Client) -> None:
    any_ps.create_table("words", dim=4, combiner="none", optimizer=slotwise.AdaGrad(0.1))
    ours = st.Embedding(any_ps, "words", padding_idx=0)
    keys = torch.tensor([[3, 0, 7], [0, 0, 3]])
    theirs = nn.Embedding(8, 4, padding_idx=0)
    take_rows(any_ps, "words", theirs, torch.tensor([3, 7]))
    optimizer = torch.optim.Adagrad(theirs.parameters(), lr=0.1)
    expect_equal_steps(optimizer, lambda: ours(keys), lambda: theirs(keys))
    assert any_ps.describe_table("words").rows == 2
    assert not ours(torch.zeros(2, 5, dtype=torch.int64)).any()
    assert str(ours) == "Embedding('words', dim=4, padding_idx=0)"


def take_rows(ps: slotwise.Client, table: str, theirs: nn.Module, keys: Tensor) -> None:
    """Gives a module of torch's the server's rows of these keys."""
    rows, numbers = first_rows(ps, table, keys)
    with torch.no_grad():
        theirs.weight[keys] = rows[numbers]


@pytest.mark.parametrize("padding", [2**64 - 2, np.uint64(2**64 - 2), -2])
def test_padding_may_be_any_id(fake_ps: slotwise.Client, padding: Any) -> None:
    fake_ps.create_table("words", dim=2, combiner="none", optimizer=slotwise.SGD(0.1))
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.1))
    keys = torch.tensor([-2, 5])
    assert ours_of(st.Embedding(fake_ps, "words", padding_idx=padding), keys) == [False, True]
    assert ours_of(st.EmbeddingBag(fake_ps, "ads", padding_idx=padding), keys) == [False, True]
    bags = st.EmbeddingBags(fake_ps, ["ads"], padding_idx=padding)
    assert bags({"ads": keys})["ads"].any(1).tolist() == [False, True]


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_padding_is_no_other_id_of_a_narrow_type(fake_ps: slotwise.Client, dtype: torch.dtype) -> None:
    fake_ps.create_table("words", dim=2, combiner="none", optimizer=slotwise.SGD(0.1))
    keys = torch.tensor([5, 44], dtype=dtype)
    for padding in (2**32 + 5, 300):
        assert ours_of(st.Embedding(fake_ps, "words", padding_idx=padding), keys) == [True, True]
    for wrong in (2**64, -(2**63) - 1):
        with pytest.raises(slotwise.InvalidArgument, match="padding_idx is .*: must be an id of 64 bits"):
            st.Embedding(fake_ps, "words", padding_idx=wrong)


def ours_of(module: nn.Module, keys: Tensor) -> list[bool]:
    """Which keys have a row in a result."""
    return module(keys).any(1).tolist()


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["offsets", "one size"])
def test_padding_of_bags_counts_for_nothing(
    any_ps: slotwise.Client, mode: str, weighted: bool, form: str
) -> None:
    any_ps.create_table("ads", dim=4, combiner=mode, optimizer=slotwise.SGD(0.1))
    ours = st.EmbeddingBag(any_ps, "ads", padding_idx=9)
    keys, offsets = torch.tensor([[3, 9, 7], [9, 9, 9], [5, 3, 3]]), None
    theirs = nn.EmbeddingBag(10, 4, mode=mode, padding_idx=9, include_last_offset=form == "offsets")
    take_rows(any_ps, "ads", theirs, torch.tensor([3, 5, 7]))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    weights = torch.linspace(0.5, 2, 9).reshape(3, 3)
    if form == "offsets":
        keys, weights, offsets = keys.reshape(-1), weights.reshape(-1), torch.tensor([0, 3, 5, 9])
    if weighted and mode == "mean":  # torch has none; Slotwise divides by the weights' sum
        plain = ours(keys, offsets, torch.full_like(weights, 2.0))
        torch.testing.assert_close(plain, ours(keys, offsets))
    else:
        given = keys, offsets, weights if weighted else None
        expect_equal_steps(optimizer, lambda: ours(*given), lambda: theirs(*given), steps=2)
    assert any_ps.describe_table("ads").rows == 3
    assert str(ours) == "EmbeddingBag('ads', slots=1, dim=4, padding_idx=9)"


def test_bags_of_one_size_may_be_rows(any_ps: slotwise.Client) -> None:
    any_ps.create_table("one", dim=4, optimizer=slotwise.SGD(0.1))
    any_ps.create_table("two", dim=4, slots=2, optimizer=slotwise.SGD(0.1))
    keys = torch.arange(12)
    one, two = st.EmbeddingBag(any_ps, "one"), st.EmbeddingBag(any_ps, "two", padding_idx=5)
    expected = one(keys, torch.arange(0, 13, 3))
    torch.testing.assert_close(one(keys.reshape(4, 3)), expected)
    assert one(keys.reshape(12, 1)).shape == (12, 4) and one(keys.reshape(1, 12)).shape == (1, 4)
    assert not one(torch.zeros(3, 0, dtype=torch.int64)).any()
    kept, ends = keys[keys != 5], torch.tensor([0, 3, 5, 8, 11])
    torch.testing.assert_close(two(keys.reshape(2, 2, 3)), two(kept, ends))
    torch.testing.assert_close(two(keys, torch.tensor([0, 3, 6, 9])), two(kept, ends))  # without the end
    with pytest.raises(slotwise.InvalidArgument, match=r"offsets\[2\] is 6: must not be below"):
        two(keys, torch.tensor([0, 13, 6, 9, 12]))
    with pytest.raises(slotwise.InvalidArgument, match="keys: shape is"):
        two(keys.reshape(2, 3, 2))
    any_ps.create_table("words", dim=2, combiner="none", optimizer=slotwise.SGD(0.1))
    for module, tables in ((st.EmbeddingBag, "words"), (st.EmbeddingBags, ["one", "words"])):
        with pytest.raises(slotwise.InvalidArgument, match="words has no combiner, and a bag of 5"):
            module(any_ps, tables, padding_idx=5)  # type: ignore[arg-type]
    with pytest.raises(slotwise.InvalidArgument, match="'sum', so it is for EmbeddingBag"):
        st.Embedding(any_ps, "one")


class TestFeatures:
    """Several features of one table."""

    def make(self, ps: slotwise.Client) -> tuple[st.EmbeddingBags, nn.EmbeddingBag, torch.optim.Optimizer]:
        ps.create_table("items", dim=4, combiner="mean", optimizer=slotwise.AdaGrad(0.1))
        ps.create_table("users", dim=3, optimizer=slotwise.SGD(0.1))
        features = {"history": "items", "user": "users", "candidate": "items"}
        rows, _ = first_rows(ps, "items", torch.arange(12))
        theirs = nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode="mean", include_last_offset=True)
        return st.EmbeddingBags(ps, features), theirs, torch.optim.Adagrad(theirs.parameters(), lr=0.1)

    def test_they_train_as_torchs_own(self, any_ps: slotwise.Client) -> None:
        ours, theirs, optimizer = self.make(any_ps)
        history, ends = torch.tensor([3, 3, 5, 7, 0]), torch.tensor([0, 2, 2, 5])
        candidate, user = torch.tensor([3, 9, 11]), torch.tensor([1, 2, 3])

        def find() -> Tensor:
            found = ours({"candidate": candidate, "user": user, "history": (history, ends)})
            assert list(found) == ["candidate", "user", "history"]
            return torch.cat([found["history"], found["candidate"]])

        both = torch.cat([history, candidate]), torch.cat([ends, ends[-1] + torch.arange(1, 4)])
        expect_equal_steps(optimizer, find, lambda: theirs(*both))
        assert any_ps.describe_table("items").steps == 3
        assert str(ours).startswith("EmbeddingBags('history': [1, 4] of 'items', 'user': [1, 3] of 'users'")

    def test_they_are_looked_up_ahead_and_make_one_push_a_step(
        self, fake: FakeServer, fake_ps: slotwise.Client
    ) -> None:
        ours, _, _ = self.make(fake_ps)
        batches = [{"history": torch.arange(n + 1), "candidate": torch.arange(3)} for n in range(3)]
        for batch in st.Prefetch(batches, ours):
            found = ours(batch)
            (found["history"].sum() + found["candidate"].sum()).backward()
        assert len(fake.requests("Lookup")) == 1 + len(batches)  # the first of `make`, and none twice
        assert len(fake.requests("Push")) == len(batches)

    def test_weights_and_tables_without_a_combiner(self, fake_ps: slotwise.Client) -> None:
        fake_ps.create_table("words", dim=2, combiner="none", optimizer=slotwise.SGD(0.1))
        fake_ps.create_table("ads", dim=2, slots=2, optimizer=slotwise.SGD(0.1))
        ours = st.EmbeddingBags(fake_ps, {"a": "words", "b": "words", "c": "ads", "d": "ads"})
        keys = torch.arange(6)
        weights = torch.linspace(1, 2, 6)
        found = ours(
            {
                "a": keys.reshape(2, 3),
                "c": (keys, torch.tensor([0, 2, 3, 5])),  # without the end
                "b": keys,
                "d": (keys, torch.tensor([0, 1, 2, 6, 6]), weights),
            }
        )
        alone = st.EmbeddingBags(fake_ps, ["words", "ads"])
        expected = alone({"words": keys.reshape(2, 3), "ads": (keys, torch.tensor([0, 2, 3, 5, 6]))})
        torch.testing.assert_close(found["a"], expected["words"])
        torch.testing.assert_close(found["b"], expected["words"].reshape(6, 2))
        torch.testing.assert_close(found["c"], expected["ads"])
        expected = alone({"ads": (keys, torch.tensor([0, 1, 2, 6, 6]), weights)})
        torch.testing.assert_close(found["d"], expected["ads"])

    def test_a_table_that_is_named_twice_names_the_way_out(self, fake_ps: slotwise.Client) -> None:
        self.make(fake_ps)
        with pytest.raises(slotwise.InvalidArgument, match='items is named twice.*"history": "items"'):
            st.EmbeddingBags(fake_ps, ["items", "items"])
        ours = st.EmbeddingBags(fake_ps, {"history": "items"})
        with pytest.raises(slotwise.InvalidArgument, match="feature items is not one of history"):
            ours({"items": torch.tensor([1])})

    @pytest.mark.parametrize("weighted", [False, True])
    def test_keyed_jagged_tensors_go_in_and_keyed_tensors_come_out(
        self, fake_ps: slotwise.Client, weighted: bool
    ) -> None:
        ours, _, _ = self.make(fake_ps)
        lengths = torch.tensor([2, 0, 1, 1, 1, 3, 0, 2])
        values = torch.arange(10)
        weights = torch.linspace(1, 3, 10) if weighted else None
        features = KeyedJaggedTensor(["other", "history", "candidate", "user"], values, weights, lengths)
        found = ours(features)
        assert type(found) is KeyedTensor and found.keys() == ["history", "user", "candidate"]
        parts = {name: (each.values(), each.offsets(), each.weights_or_none())
                 for name, each in features.to_dict().items() if name != "other"}
        expected = ours(parts)
        for name, value in found.to_dict().items():
            torch.testing.assert_close(value, expected[name])
        with pytest.raises(slotwise.InvalidArgument, match="KeyedJaggedTensor has no user, but history"):
            ours(KeyedJaggedTensor(["history"], values[:3], None, lengths[:2]))
        with pytest.raises(slotwise.InvalidArgument, match="bags are Tensor, no mapping"):
            ours(values)


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
        rows = {name: first_rows(any_ps, name, some) for name, some in keys.items()}
        theirs = {
            "ads": nn.EmbeddingBag.from_pretrained(rows["ads"][0], freeze=False, mode="mean"),
            "users": nn.EmbeddingBag.from_pretrained(rows["users"][0], freeze=False, mode="sum"),
            "words": nn.Embedding.from_pretrained(rows["words"][0], freeze=False),
        }
        users = keys["users"], torch.arange(4), weights

        def flat(outputs: dict[str, Tensor]) -> Tensor:
            assert {name: output.shape for name, output in outputs.items()} == {
                "ads": (3, 8), "users": (3, 3), "words": (3, 2, 2)
            }
            return torch.cat([output.flatten() for output in outputs.values()])

        def find_theirs() -> Tensor:
            ads = theirs["ads"](rows["ads"][1], OFFSETS[:-1]).reshape(3, 8)
            of_users = theirs["users"](rows["users"][1], torch.arange(3), weights)
            return flat({"ads": ads, "users": of_users, "words": theirs["words"](rows["words"][1])})

        expect_equal_steps(
            torch.optim.SGD(nn.ModuleDict(theirs).parameters(), lr=0.1),
            lambda: flat(ours({"ads": (KEYS, OFFSETS), "users": users, "words": keys["words"]})),
            find_theirs,
        )
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

    def test_a_table_that_had_no_part_in_the_loss_makes_no_step(self, any_ps: slotwise.Client) -> None:
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
