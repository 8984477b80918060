"""`slotwise.torch.export_module`: what the copy gives, beside the original in eval() mode."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from fake_server import FakeServer
from served import DIM, KNOWN, PADDING, UNKNOWN, Draw, close, make_table, positions_of
from torch import Tensor, nn
from torchrec_stand_in import KeyedJaggedTensor, KeyedTensor

import slotwise
import slotwise.torch as st

COMBINERS = ["sum", "mean", "sqrtn"]


def both(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The copies that take ids, and positions."""
    return st.export_module(model), st.export_module(model, ids="positions")


def expect_the_same(model: Any, copies: tuple[Any, Any], keys: Tensor, *rest: Tensor | None) -> None:
    expected = model(keys, *rest)
    close(copies[0](keys, *rest), expected)
    close(copies[1](positions_of(keys, copies[1].ids), *rest), expected)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("padding", [None, PADDING])
def test_bags_are_what_the_server_gives(
    any_ps: slotwise.Client, combiner: str, slots: int, padding: int | None
) -> None:
    make_table(any_ps, "ads", combiner, slots)
    bag = st.EmbeddingBag(any_ps, "ads", padding_idx=padding).eval()
    copies, draw = both(bag), Draw()
    rows = any_ps.describe_table("ads").rows
    for samples in (1, 4):
        keys, offsets = draw.ids(17), draw.offsets(17, samples * slots)
        expect_the_same(bag, copies, keys, offsets)
        expect_the_same(bag, copies, keys, offsets.int(), draw.weights(17))
        matrix = draw.ids(samples, slots, 5) if slots > 1 else draw.ids(samples, 5)
        expect_the_same(bag, copies, matrix)
        expect_the_same(bag, copies, matrix, None, draw.weights(*matrix.shape))
        expect_the_same(bag, copies, draw.ids(samples * slots))
        if slots > 1:
            expect_the_same(bag, copies, draw.ids(samples, slots))
            expect_the_same(bag, copies, keys, offsets[:-1])
    assert any_ps.describe_table("ads").rows == rows


@pytest.mark.parametrize("combiner", COMBINERS)
def test_bags_of_nothing_are_zeros(ps: slotwise.Client, combiner: str) -> None:
    make_table(ps, "ads", combiner)
    bag = st.EmbeddingBag(ps, "ads", padding_idx=PADDING).eval()
    copies = both(bag)
    expect_the_same(bag, copies, torch.empty(0, dtype=torch.int64), torch.tensor([0, 0, 0]))
    expect_the_same(bag, copies, torch.full((3, 2), PADDING))
    expect_the_same(bag, copies, torch.tensor([3, 7]), torch.tensor([0, 2]), torch.tensor([1.5, -1.5]))
    ps.create_table("empty", dim=2, combiner=combiner, optimizer=slotwise.SGD(0.1))
    empty = st.EmbeddingBag(ps, "empty").eval()
    expect_the_same(empty, both(empty), Draw().ids(2, 3))
    for each in copies:
        assert each(torch.empty(0, 4, dtype=torch.int64)).shape == (0, DIM)
        assert not each(torch.empty(2, 0, dtype=torch.int64)).any()
        assert each(torch.empty(0, dtype=torch.int64), torch.tensor([0])).shape == (0, DIM)


def test_unknown_ids_count_and_padding_does_not(fake_ps: slotwise.Client) -> None:
    make_table(fake_ps, "ads", "mean")
    copied = st.export_module(st.EmbeddingBag(fake_ps, "ads", padding_idx=PADDING))
    (row,) = copied(torch.tensor([3]))
    close(copied(torch.tensor([[3, UNKNOWN[0]], [3, PADDING]])), torch.stack([row / 2, row]))


def test_offsets_without_their_end_are_taken_as_the_module_takes_them(ps: slotwise.Client) -> None:
    make_table(ps, "ads", "sum")
    bag = st.EmbeddingBag(ps, "ads", include_last_offset=False).eval()
    keys = Draw().ids(6)
    for last in (4, 6):
        expect_the_same(bag, both(bag), keys, torch.tensor([0, 2, last]))


@pytest.mark.parametrize("padding", [None, PADDING, 3, 2**63])
def test_embeddings_are_what_the_server_gives(ps: slotwise.Client, padding: int | None) -> None:
    make_table(ps, "words", "none")
    words = st.Embedding(ps, "words", padding_idx=padding).eval()
    copies, draw = both(words), Draw()
    for shape in ((), (9,), (2, 3, 4), (0,)):
        expect_the_same(words, copies, draw.ids(*shape))
    pooled = st.EmbeddingBag(ps, "words").eval()
    expect_the_same(pooled, both(pooled), draw.ids(2, 3), None, draw.weights(2, 3))
    expect_the_same(pooled, both(pooled), draw.ids(4), torch.arange(5))


def test_ids_may_be_narrow(fake_ps: slotwise.Client) -> None:
    make_table(fake_ps, "words", "none")
    words = st.Embedding(fake_ps, "words", padding_idx=2**32 + 7).eval()
    copied = st.export_module(words)
    for dtype in (torch.int32, torch.uint8, torch.int64):
        keys = torch.tensor([3, 7, 200], dtype=dtype)
        close(copied(keys), words(keys))
        assert copied(keys)[:2].any(1).all()
    for wrong in (torch.tensor([-5], dtype=torch.int32), torch.tensor([3.0]), torch.tensor([True])):
        with pytest.raises(ValueError, match="ids"):
            copied(wrong)


def test_several_features_are_what_the_server_gives(ps: slotwise.Client) -> None:
    make_table(ps, "shop/items.v2", "mean")
    make_table(ps, "ads", "sum", slots=2, dim=2)
    make_table(ps, "words", "none")
    tables = {"history": "shop/items.v2", "ads": "ads", "a.candidate": "shop/items.v2"}
    bags = st.EmbeddingBags(ps, tables).eval()
    copies, draw = both(bags), Draw()
    keys = {"a.candidate": draw.ids(3), "ads": draw.ids(3, 2, 4), "history": draw.ids(11)}
    given = {**keys, "history": (keys["history"], draw.offsets(11, 3), draw.weights(11))}
    expected = bags(given)
    found = copies[0](given)
    assert list(found) == list(expected) == list(given)
    ids = copies[1].ids
    at = {name: positions_of(each, ids[name]) for name, each in keys.items()}
    by_position = copies[1]({**at, "history": (at["history"], *given["history"][1:])})
    for name, values in expected.items():
        close(found[name], values)
        close(by_position[name], values)
    assert copies[0].features[0].table is copies[0].features[2].table
    assert copies[0]({}) == {} and list(copies[0]({"ads": keys["ads"]})) == ["ads"]
    with pytest.raises(ValueError, match="no feature others"):
        copies[0]({"others": keys["ads"]})
    words = st.EmbeddingBags(ps, ["words"]).eval()
    several = {"words": draw.ids(3, 2).T}
    close(st.export_module(words)(several)["words"], words(several)["words"])


def test_a_keyed_jagged_tensor_is_taken(fake_ps: slotwise.Client) -> None:
    make_table(fake_ps, "items", "mean")
    make_table(fake_ps, "ads", "sum", dim=2)
    bags = st.EmbeddingBags(fake_ps, {"b": "items", "a": "ads"}, padding_idx=PADDING).eval()
    draw = Draw()
    jagged = KeyedJaggedTensor(["a", "b"], draw.ids(7), draw.weights(7), torch.tensor([2, 0, 1, 4]))
    expected, found = bags(jagged), st.export_module(bags)(jagged)
    assert isinstance(found, KeyedTensor) and found.keys() == expected.keys()
    close(found.values(), expected.values())


class Model(nn.Module):
    """A model whose two bags share a table, of which one is in two places."""

    def __init__(self, ps: slotwise.Client) -> None:
        super().__init__()
        self.ps = ps
        self.ads = st.EmbeddingBag(ps, "ads", padding_idx=PADDING)
        self.others = nn.ModuleList([st.EmbeddingBag(ps, "ads", padding_idx=3), self.ads])
        self.bags = st.EmbeddingBags(ps, ["items"])
        self.top = nn.Sequential(nn.Linear(4 * DIM, 2), nn.Dropout(0.5))
        self.register_buffer("shift", torch.tensor([0.5, -0.5]))

    def forward(self, keys: Tensor) -> Tensor:
        bags = [self.ads(keys), *(other(keys) for other in self.others), self.bags({"items": keys})["items"]]
        return self.top(torch.cat(bags, 1)) + self.shift


def make_model(ps: slotwise.Client) -> Model:
    make_table(ps, "ads", "mean")
    make_table(ps, "items", "sum")
    torch.manual_seed(0)
    return Model(ps)


def test_the_original_stays_as_it_is_and_goes_on(ps: slotwise.Client) -> None:
    model = make_model(ps)
    optimizer = st.Optimizer(model, dense=torch.optim.SGD(model.top.parameters(), lr=0.1))
    model.optimizer = optimizer
    before, keys = dict(model.named_modules()), Draw().ids(5, 4)
    copied = st.export_module(model)
    assert dict(model.named_modules()) == before and model.ps is ps and model.training
    assert copied.ps is None and copied.optimizer is None and not copied.training
    model.eval()
    close(copied(keys), model(keys))
    kept = copied(keys)
    model.train()
    model(keys).sum().backward()
    optimizer.step()
    assert not torch.equal(model.eval()(keys), kept)
    assert torch.equal(copied(keys), kept)
    close(st.export_module(model)(keys), model(keys))


def test_a_copy_is_plain_and_shares_what_the_modules_share(fake_ps: slotwise.Client) -> None:
    """It is moved, cast, deep-copied, pickled and saved as any module, and asks no server."""
    model = make_model(fake_ps)
    keys = Draw().ids(5, 4)
    copied = st.export_module(model)
    expected = copied(keys)
    assert copied.others[1] is copied.ads and copied.others[0] is not copied.ads
    assert copied.others[0].table is copied.ads.table
    assert copied.ads.ids.tolist() == sorted([*KNOWN.tolist(), PADDING])
    assert {name for name, _ in copied.named_parameters()} == {"top.0.weight", "top.0.bias"}
    assert copied.ads.table.rows.dtype == torch.float32 and not copied.ads(keys).requires_grad
    fake_ps.close()
    for again in (copy.deepcopy(copied), pickle.loads(pickle.dumps(copied))):
        close(again(keys), expected)
    torch.testing.assert_close(copied.double()(keys), expected.double(), rtol=1e-5, atol=1e-6)


def test_some_ids_of_some_tables_are_taken(ps: slotwise.Client) -> None:
    model = make_model(ps).eval()
    some = np.array([[-5, 9], [9, PADDING]]).astype(np.uint64)
    for given in (some, some.view(np.int64).tolist(), torch.from_numpy(some.view(np.int64))):
        copied = st.export_module(model, tables={"ads": given})
        assert copied.ads.ids.tolist() == [-5, 3, PADDING, 9]  # 3 is a padding, too
        assert copied.bags.ids["items"].tolist() == sorted(KNOWN.tolist())
        keys = torch.tensor([[-5], [9], [3], [7]])
        expected = model.ads(keys)
        expected[2:] = 0  # which are not among the ids
        close(copied.ads(keys), expected)
    with pytest.raises(slotwise.InvalidArgument, match="2 of the ids given for ads have no row, .* -1: "):
        st.export_module(model, tables={"ads": [-5, *UNKNOWN[:2]]})
    with pytest.raises(slotwise.InvalidArgument, match="the model has no table 'Ads', but ads, items"):
        st.export_module(model, tables={"Ads": [-5]})
    with pytest.raises(slotwise.InvalidArgument, match="dtype is float64"):
        st.export_module(model, tables={"ads": [0.5]})


def test_pushes_in_flight_are_in_the_copy(fake_ps: slotwise.Client, fake: FakeServer) -> None:
    make_table(fake_ps, "ads", "sum")
    bag = st.EmbeddingBag(fake_ps, "ads", in_flight=True)
    keys = torch.tensor([[3, 7]])
    for _ in range(3):
        bag(keys).sum().backward()
    copied = st.export_module(bag)
    assert fake_ps.describe_table("ads").steps == 3
    close(copied(keys), bag.eval()(keys))


def test_what_cannot_be_copied_is_refused(fake_ps: slotwise.Client, fake: FakeServer) -> None:
    make_table(fake_ps, "ads", "sum")

    class Scaled(st.EmbeddingBag):
        def forward(self, *arguments: Any) -> Tensor:
            return super().forward(*arguments) * 2

    def refused(model: nn.Module, why: str, **options: Any) -> None:
        with pytest.raises(slotwise.InvalidArgument, match=why):
            st.export_module(model, **options)

    bag = st.EmbeddingBag(fake_ps, "ads")
    refused(nn.Linear(1, 1), "no module of slotwise.torch, and none that was adopted: copy.deepcopy")
    refused(bag, "ids is 'both': must be 'map' or 'positions'", ids="both")
    refused(Scaled(fake_ps, "ads"), "Scaled of ads has a forward\\(\\) of its own")
    given: Any = st.EmbeddingBag(fake_ps, "ads")
    given.forward = lambda keys: keys
    refused(given, "EmbeddingBag of ads has a forward\\(\\) of its own")
    refused(nn.DataParallel(nn.Sequential(bag)), "within a DataParallel, .* its .module")
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        hooked = st.EmbeddingBag(fake_ps, "ads")
        getattr(hooked, register)(lambda *_: None)
        refused(hooked, "EmbeddingBag of ads has forward hooks, which its copy would not have")
    with slotwise.connect(fake.addresses[0]) as other:
        twice = nn.ModuleList([bag, st.EmbeddingBag(other, "ads")])
        refused(twice, "table ads is looked up by modules of two clients")


def test_wrong_shapes_are_refused_in_words(fake_ps: slotwise.Client) -> None:
    make_table(fake_ps, "ads", "sum")
    make_table(fake_ps, "pairs", "sum", slots=2)
    make_table(fake_ps, "words", "none")
    make_table(fake_ps, "triples", "sum", slots=3)
    keys = torch.tensor([3, 7, 9])
    originals = {name: st.EmbeddingBag(fake_ps, name) for name in ("ads", "pairs", "triples", "words")}
    one, two, three, none = map(st.export_module, originals.values())
    wrong: list[tuple[str, Any, tuple[Any, ...]]] = [
        ("must rise from 0 to the number of keys", one, (keys, torch.tensor([0, 2]))),
        ("must rise from 0 to the number of keys", one, (keys, torch.tensor([1, 3]))),
        ("must rise from 0 to the number of keys", one, (keys, torch.tensor([0, 2, 1, 3]))),
        ("samples \\* slots \\+ 1", one, (keys, torch.tensor([], dtype=torch.int64))),
        ("samples \\* slots \\+ 1", three, (keys, torch.tensor([0, 1, 1, 2, 3]))),
        ("must be 1-D", one, (keys[None], torch.tensor([0, 3]))),
        ("must be 1-D", one, (keys, torch.tensor([0.0, 3.0]))),
        ("per_sample_weights must be floats of the shape of keys", one, (keys, None, torch.ones(2))),
        ("per_sample_weights must be floats of the shape of keys", one, (keys, None, torch.ones(3).long())),
        ("\\[keys\\] or samples of all slots", one, (keys[None, None],)),
        ("\\[keys\\] or samples of all slots", two, (keys[None],)),
        ("a whole number of samples of all slots", two, (keys,)),
        ("takes bags of one key each", none, (keys, torch.tensor([0, 2, 3]))),
        ("takes bags of one key each", none, (keys, torch.tensor([0, 2, 2, 3]))),
    ]
    for why, module, arguments in wrong:
        with pytest.raises(ValueError, match=why):
            module(*arguments)
        with pytest.raises(slotwise.InvalidArgument):
            originals[module.feature].eval()(*arguments)
    by_position = st.export_module(st.EmbeddingBag(fake_ps, "ads"), ids="positions")
    for position in (-1, len(KNOWN) + 1):
        with pytest.raises(IndexError):
            by_position(torch.tensor([position]))
