"""An adopted module takes, returns and refuses what torch's own does, and makes its gradient."""

from __future__ import annotations

import abc
import copy
from typing import Any

import pytest
import torch
from adopted import expect_equal_models, step_each
from fake_server import FakeServer
from torch import Tensor, nn

import slotwise
import slotwise.torch as st

ROWS, DIM = 12, 3


def make_twins(
    ps: slotwise.Client, module: nn.Module, prefix: str = "t."
) -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
    """torch's module, its adopted twin, and the twin's optimizer."""
    twin = copy.deepcopy(module)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.5)
    st.adopt(twin, ps, optimizer, prefix=prefix)
    return module, twin, optimizer


def make_seen(ps: slotwise.Client, module: nn.Module, prefix: str = "t.") -> tuple[nn.Module, nn.Module]:
    """torch's module and its twin, whose padding rows, of which torch makes zeros, are to be seen."""
    with torch.no_grad():
        module.weight.normal_(generator=torch.Generator().manual_seed(11))
    theirs, ours, _ = make_twins(ps, module, prefix)
    return theirs, ours


def expect_equal_use(theirs: nn.Module, ours: nn.Module, *arguments: Any, **named: Any) -> None:
    """Compares what both return and the gradients of their weights, layout and all."""
    outputs = [module(*arguments, **named) for module in (theirs, ours)]
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-6)
    for module, output in zip((theirs, ours), outputs):
        module.zero_grad(set_to_none=True)
        (output.sin() * torch.arange(output.numel()).reshape(output.shape)).sum().backward()
    their_gradient, our_gradient = theirs.weight.grad, ours.weight.grad
    assert our_gradient.layout == their_gradient.layout
    torch.testing.assert_close(our_gradient.to_dense(), their_gradient.to_dense(), rtol=1e-5, atol=1e-5)


BAGS: dict[str, tuple[Tensor, Tensor | None]] = {
    "offsets": (torch.tensor([1, 2, 4, 2, 9, 11, 0, 2]), torch.tensor([0, 3, 3, 7])),
    "empty bags at both ends": (torch.tensor([2, 2, 5]), torch.tensor([0, 0, 3, 3])),
    "offsets that are all there is": (torch.tensor([7, 7]), torch.tensor([0])),
    "2-D": (torch.tensor([[1, 2, 4], [2, 2, 2], [11, 0, 2]]), None),
    "int32": (torch.tensor([1, 2, 4], dtype=torch.int32), torch.tensor([0, 2]).int()),
    "no keys": (torch.tensor([], dtype=torch.long), torch.tensor([0, 0])),
    "nothing": (torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long)),
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_all_forms(ps: slotwise.Client, mode: str, padding: int | None, sparse: bool) -> None:
    for last in (False, True):
        options: dict[str, Any] = {"mode": mode, "padding_idx": padding, "include_last_offset": last}
        bag = nn.EmbeddingBag(ROWS, DIM, sparse=sparse, **options)
        theirs, ours = make_seen(ps, bag, prefix=f"{last}.")
        for name, (keys, offsets) in BAGS.items():
            print(name)
            if offsets is not None and last:
                offsets = torch.cat([offsets[:1], offsets[1:], offsets.new_tensor([len(keys)])])
            elif offsets is None and last:
                keys, offsets = keys.reshape(-1), torch.tensor([0, 3, 6, 9])
            if len(keys) == 0 and padding is not None:
                continue  # torch 1.13 cannot do that
            expect_equal_use(theirs, ours, keys, offsets)
            if mode == "sum":
                weights = torch.linspace(-1, 2, keys.numel()).reshape(keys.shape)
                expect_equal_use(theirs, ours, input=keys, offsets=offsets, per_sample_weights=weights)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_embeddings_of_all_shapes(ps: slotwise.Client, padding: int | None, sparse: bool) -> None:
    theirs, ours = make_seen(ps, nn.Embedding(ROWS, DIM, padding_idx=padding, sparse=sparse))
    for keys in (
        torch.tensor([[1, 2], [2, 11], [4, 4]]),
        torch.tensor(7),
        torch.tensor([2, 11, 0], dtype=torch.int32).reshape(3, 1, 1),
        torch.zeros(0, 2, dtype=torch.long),
    ):
        if keys.dim() == 0 and sparse and padding is not None:
            continue  # torch's own backward() fails
        expect_equal_use(theirs.train(), ours.train(), keys)
        expect_equal_use(theirs.eval(), ours.eval(), keys)


TWO, BEGIN = torch.tensor([1, 2]), torch.tensor([0])


@pytest.mark.parametrize(
    "arguments, error",
    [
        ((torch.tensor([1, ROWS]), BEGIN), IndexError),
        ((torch.tensor([-1, 1]), BEGIN), IndexError),
        ((TWO, None), ValueError),
        ((TWO[None], BEGIN), ValueError),
        ((torch.tensor([[[1]]]), None), ValueError),
        ((TWO, BEGIN[None]), ValueError),
        ((TWO, torch.tensor([1])), ValueError),
        ((TWO, torch.tensor([0, 3])), ValueError),
        ((TWO, BEGIN, torch.ones(3)), ValueError),
        ((TWO, BEGIN, torch.ones(2)), NotImplementedError),
        ((TWO.float(), BEGIN), TypeError),
    ],
)
def test_what_torch_refuses_is_refused(
    fake_ps: slotwise.Client, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    theirs, ours, _ = make_twins(fake_ps, nn.EmbeddingBag(ROWS, DIM, mode="mean"))
    with pytest.raises((error, RuntimeError)):
        theirs(*arguments)
    with pytest.raises(error):
        ours(*arguments)
    _, embedding, _ = make_twins(fake_ps, nn.Embedding(ROWS, DIM), prefix="e.")
    with pytest.raises(IndexError, match=r"index 12 is not in 0 \.\. 11, .* e\.embedding"):
        embedding(torch.tensor([3, 12]))
    assert fake_ps.describe_table("t.embedding").rows == ROWS


def test_weights_that_require_a_gradient_are_refused(fake_ps: slotwise.Client) -> None:
    _, ours, _ = make_twins(fake_ps, nn.EmbeddingBag(ROWS, DIM, mode="sum"))
    weights = torch.ones(2, requires_grad=True)
    keys, offsets = torch.tensor([1, 2]), torch.tensor([0])
    with pytest.raises(slotwise.InvalidArgument, match="per_sample_weights .* detach"):
        ours(keys, offsets, weights)
    with torch.no_grad():
        assert ours(keys, offsets, weights).shape == (1, DIM)


def test_modules_that_share_a_weight_share_a_table(ps: slotwise.Client) -> None:
    def make() -> nn.ModuleDict:
        torch.manual_seed(3)
        model = nn.ModuleDict(
            {
                "words": nn.Embedding(ROWS, DIM, padding_idx=1),
                "sum": nn.EmbeddingBag(ROWS, DIM, mode="sum"),
                "mean": nn.EmbeddingBag(ROWS, DIM, mode="mean", padding_idx=4),
                "own": nn.Embedding(ROWS, DIM),
            }
        )
        model["sum"].weight = model["mean"].weight = model["words"].weight
        return model

    theirs, ours = make(), make()
    twins = [(model, torch.optim.Adagrad(model.parameters(), lr=0.3)) for model in (theirs, ours)]
    tables = st.adopt(ours, ps, twins[1][1])
    assert tables == {"words": "words", "sum": "words", "mean": "words", "own": "own"}
    keys, offsets = torch.tensor([1, 4, 5, 1, 4]), torch.tensor([0, 2, 5])

    def loss_of(model: Any) -> Tensor:
        bags = model["sum"](keys, offsets) * model["mean"](keys, offsets)
        return bags.sin().sum() + (model["words"](keys) + model["own"](keys)).cos().sum()

    for _ in range(3):
        step_each(twins, loss_of)
    assert ps.describe_table("words").steps == 3
    st.release(ours)
    assert ours["sum"].weight is ours["mean"].weight is ours["words"].weight
    expect_equal_models(ours, theirs)


def test_modules_in_containers_and_used_twice_are_adopted_once(fake_ps: slotwise.Client) -> None:
    shared = nn.Embedding(ROWS, DIM)
    model = nn.Sequential(nn.ModuleList([shared, nn.Identity()]), nn.ModuleDict({"again": shared}))
    hidden = [shared]  # not even a submodule
    assert st.adopt(model, fake_ps, torch.optim.SGD(model.parameters(), lr=0.1)) == {"0.0": "0.0"}
    assert model[0][0] is model[1]["again"] is hidden[0] is shared
    assert isinstance(shared, nn.Embedding) and "table='0.0'" in str(model)
    st.release(model)
    assert type(shared) is nn.Embedding


def test_parts_are_adopted_and_released_one_by_one(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    model = nn.ModuleList([nn.Embedding(ROWS, DIM), nn.Embedding(ROWS, DIM)])
    before = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for number, part in enumerate(model):
        st.adopt(part, fake_ps, optimizer, prefix=f"part{number}.")
    for number in range(2):
        (model[0](torch.tensor([1])) + model[1](torch.tensor([1]))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        st.release(model[number])  # the first's step() stays inside the second's
    assert fake_ps.list_tables() == []
    requests = len(fake.log)
    model[0](torch.tensor([2])).sum().backward()
    optimizer.step()
    assert len(fake.log) == requests
    for part, old in zip(model, before):
        torch.testing.assert_close(part.weight[1], old.weight[1] - 1)
    torch.testing.assert_close(model[0].weight[2], before[0].weight[2] - 0.5)
    torch.testing.assert_close(model[1].weight[2], before[1].weight[2])


def test_no_grad_looks_up_and_remembers_nothing(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    _, ours, optimizer = make_twins(fake_ps, nn.Embedding(ROWS, DIM))
    with torch.no_grad():
        assert not ours(torch.tensor([1])).requires_grad
    with torch.inference_mode():
        ours(torch.tensor([1]))
    ours(torch.tensor([1])).sum()  # without backward()
    optimizer.step()
    assert ours.weight.grad is None
    assert fake.requests("Push") == fake.requests("PushMany") == []


def test_a_graph_wants_to_be_retained_and_its_indices_as_they_were(fake_ps: slotwise.Client) -> None:
    _, ours, _ = make_twins(fake_ps, nn.Embedding(ROWS, DIM))
    keys = torch.tensor([1, 2])
    loss, other = ours(keys.clone()).sum(), ours(keys).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert ours.weight.grad.sum() == 2 * 2 * DIM
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    keys.fill_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        other.backward()


def test_gradients_of_other_tensors_alone_leave_the_weight_alone(fake_ps: slotwise.Client) -> None:
    _, ours, _ = make_twins(fake_ps, nn.Embedding(ROWS, DIM))
    factor = torch.ones(1, requires_grad=True)
    (gradient,) = torch.autograd.grad((ours(torch.tensor([1])) * factor).sum(), factor)
    assert gradient.shape == (1,) and ours.weight.grad is None
    (gradient,) = torch.autograd.grad(ours(torch.tensor([1])).sum(), ours.weight)
    assert gradient.sum() == DIM


def test_a_frozen_weight_is_looked_up_and_stays_until_it_is_thawed(fake_ps: slotwise.Client) -> None:
    frozen = nn.EmbeddingBag.from_pretrained(torch.randn(ROWS, DIM), mode="sum")
    expected = frozen(TWO[None])
    st.adopt(frozen, fake_ps)
    torch.testing.assert_close(frozen(TWO[None]), expected)
    assert not frozen(TWO[None]).requires_grad
    st.release(frozen)
    torch.testing.assert_close(frozen(TWO[None]), expected)
    _, ours, optimizer = make_twins(fake_ps, nn.Embedding(ROWS, DIM))
    ours.requires_grad_(False)
    assert not ours(TWO).requires_grad
    ours.requires_grad_(True)
    ours(TWO).sum().backward()
    optimizer.step()
    assert fake_ps.describe_table("t.embedding").steps == 1


def test_the_weight_keeps_its_shape_and_needs_no_memory(fake_ps: slotwise.Client) -> None:
    _, ours, _ = make_twins(fake_ps, nn.Embedding(ROWS, DIM))
    assert ours.weight.shape == (ROWS, DIM)
    assert ours.weight.stride() == (0, 0)  # one element in memory
    with pytest.raises(TypeError, match="float32 rows, so its module cannot become torch.float16"):
        ours.half()
    assert ours.to(torch.float32).to("cpu").weight.stride() == (0, 0)


class Normal(nn.Embedding):
    """Begins otherwise than torch's."""

    def reset_parameters(self) -> None:
        """Draws narrow rows."""
        nn.init.normal_(self.weight, std=0.01)


class Named(Normal):
    """Has a name, and is derived from a class that is adopted, too."""

    name = "named"


class WithMetaclass(nn.Embedding, metaclass=abc.ABCMeta):
    """A class of a metaclass of its own that changes nothing of torch's."""


@pytest.mark.parametrize("plain", [nn.Embedding, nn.EmbeddingBag, WithMetaclass])
def test_the_type_equals_what_it_was(fake_ps: slotwise.Client, plain: type[nn.Module]) -> None:
    others = {nn.Embedding, nn.EmbeddingBag, WithMetaclass, nn.Linear} - {plain}
    _, ours, _ = make_twins(fake_ps, plain(ROWS, DIM))
    adopted = type(ours)
    assert adopted is not plain and adopted == plain and plain == adopted
    assert not adopted != plain and adopted in [plain] and {plain: 1}[adopted] == 1
    assert all(adopted != other and other != adopted for other in others) and adopted not in others
    st.release(ours)
    assert type(ours) is plain


def test_an_l2_term_by_type_is_of_the_adopted_weights(fake_ps: slotwise.Client) -> None:
    theirs = nn.Sequential(nn.Embedding(ROWS, DIM), nn.Linear(DIM, 1))
    _, ours, _ = make_twins(fake_ps, theirs)

    def penalty(model: nn.Module) -> Tensor:
        factors = {nn.Embedding: 2.0, nn.Linear: 3.0}
        parts = [factors[type(m)] * m.weight.square().sum() for m in model.modules() if type(m) in factors]
        return torch.stack(parts).sum()

    torch.testing.assert_close(penalty(ours), penalty(theirs))
