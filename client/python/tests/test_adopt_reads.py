"""An adopted weight can be read, by any reference, and what is computed of it trains as in torch."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from adopted import expect_equal_states, step_each
from fake_server import FakeServer
from real_server import RealServer, empty_client, serving
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import slotwise
import slotwise.torch as st

USERS, ITEMS, DIM = 9, 14, 4


class Recommender(nn.Module):
    """Embeds users and items, whose weights its losses read, too."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, DIM)
        self.items = nn.Embedding(ITEMS, DIM, padding_idx=0)
        self.dense = nn.Linear(DIM, DIM)


def tied_output(model: Recommender, users: Tensor, items: Tensor) -> Tensor:
    found = model.dense(model.items(items[:, :-1]).sum(1) + model.users(users)).tanh()
    return nn.functional.cross_entropy(found @ model.items.weight.T, items[:, -1])


def regularized(model: Recommender, users: Tensor, items: Tensor) -> Tensor:
    score = (model.dense(model.users(users)) * model.items(items[:, 0])).sum(1)
    penalty = sum(weight.square().sum() for weight in model.parameters())
    return nn.functional.softplus(-score).mean() + 0.01 * penalty


def graph(model: Recommender, users: Tensor, items: Tensor) -> Tensor:
    """Propagates over edges from users to items, and back, as graph convolutions do."""
    everything = torch.cat([model.users.weight, model.items.weight])
    edges = torch.stack([users, USERS + items[:, 0]])
    edges = torch.cat([edges, edges.flip(0)], 1)
    size = USERS + ITEMS
    adjacent = torch.sparse_coo_tensor(edges, torch.full((edges.shape[1],), 0.3), (size, size))
    passed = everything + torch.sparse.mm(adjacent, everything)
    return -(passed[users] * passed[USERS + items[:, 1]]).sum(1).sigmoid().log().mean()


def functional(model: Recommender, users: Tensor, items: Tensor) -> Tensor:
    """Reads some rows by torch's functions, and normalized ones."""
    some = nn.functional.embedding(items, model.items.weight) + model.items.weight[items]
    normed = nn.functional.normalize(model.users.weight, dim=1)
    return (torch.einsum("bkd,bd->bk", some, normed[users]) + model.items(items).sum(2)).tanh().sum()


LOSSES: dict[str, Callable[[Recommender, Tensor, Tensor], Tensor]] = {
    each.__name__: each for each in (tied_output, regularized, graph, functional)
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.3),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.2),
}


# These move rows that a step does not touch, so every step touches all rows below. Their epsilon shows.
LAZY: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.05, eps=1e-3),
    "adam-decay": lambda weights: torch.optim.Adam(weights, lr=0.05, eps=1e-3, weight_decay=0.1),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=0.05, eps=1e-3, weight_decay=0.5),
    "sgd-decay": lambda weights: torch.optim.SGD(weights, lr=0.1, weight_decay=0.3),
    "adagrad-decay": lambda weights: torch.optim.Adagrad(weights, lr=0.1, weight_decay=0.3),
}


def make_twins(kind: str) -> list[tuple[Recommender, torch.optim.Optimizer]]:
    """Returns torch's model and ours, with their optimizers."""
    torch.manual_seed(41)
    theirs = Recommender()
    ours = copy.deepcopy(theirs)
    make = {**OPTIMIZERS, **LAZY}[kind]
    return [(model, make(model.parameters())) for model in (theirs, ours)]


def adopt_twins(
    ps: slotwise.Client, kind: str, **options: Any
) -> list[tuple[Recommender, torch.optim.Optimizer]]:
    """As make_twins(), and ours is adopted."""
    twins = make_twins(kind)
    st.adopt(twins[1][0], ps, twins[1][1], **options)
    return twins


def batch(number: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    users = torch.randint(0, USERS, (6,), generator=generator)
    return users, torch.randint(1, ITEMS, (6, 3), generator=generator)


def train(
    twins: list[tuple[Recommender, torch.optim.Optimizer]],
    loss_of: Callable[[Recommender, Tensor, Tensor], Tensor],
    number: int,
) -> None:
    """Makes a step of both, and compares the losses."""
    print(f"step {number}")
    step_each(twins, lambda model: loss_of(model, *batch(number)))


def compare(theirs: nn.Module, ours: nn.Module) -> None:
    for (name, weight), other in zip(theirs.named_parameters(), ours.parameters()):
        torch.testing.assert_close(other.detach(), weight.detach(), rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_that_read_weights_train_as_in_torch(real_ps: slotwise.Client, loss: str, kind: str) -> None:
    (theirs, _), (ours, _) = twins = adopt_twins(real_ps, kind)
    for number in range(30):
        train(twins, LOSSES[loss], number)
    compare(theirs, ours)  # by model.parameters()
    assert real_ps.describe_table("items").steps == 30  # dense and lookups' gradients were one step


@pytest.mark.parametrize("kind", LAZY)
def test_lazy_optimizers_are_torchs_where_every_row_is_touched(real_ps: slotwise.Client, kind: str) -> None:
    twins = make_twins(kind)
    (theirs, their_optimizer), (ours, optimizer) = twins
    with pytest.raises(slotwise.InvalidArgument, match="lazy=True"):
        st.adopt(ours, real_ps, optimizer)
    st.adopt(ours, real_ps, optimizer, lazy=True)
    for number in range(20):
        for _, each in twins:
            each.param_groups[0]["lr"] = 0.05 / (1 + number)
        train(twins, regularized, number)
    compare(theirs, ours)
    expect_equal_states(optimizer, their_optimizer)
    st.release(ours)  # and torch's own goes on
    train(twins, regularized, 20)
    compare(theirs, ours)


def test_rows_that_a_lazy_step_does_not_touch_rest(fake_ps: slotwise.Client) -> None:
    (_, (model, optimizer)) = make_twins("adamw")
    before = model.items.weight.detach().clone()
    st.adopt(model, fake_ps, optimizer, lazy=True)
    for ids in ([3, 4], [5], [4]):
        optimizer.zero_grad()
        model.items(torch.tensor(ids)).sum().backward()
        optimizer.step()
    moved = (model.items.weight.detach() != before).any(1)
    assert moved.nonzero()[:, 0].tolist() == [3, 4, 5]


def test_gradients_of_reads_and_lookups_add_up(ps: slotwise.Client) -> None:
    twins = make_twins("sgd")
    for model, _ in twins:
        model.items.sparse = True
    st.adopt(twins[1][0], ps, twins[1][1])
    for model, _ in twins:
        (model.items(torch.tensor([3, 3, 5])).sum() + 0.5 * model.items.weight.square().sum()).backward()
    gradients = [model.items.weight.grad for model, _ in twins]
    assert gradients[0] is not None and gradients[1] is not None
    torch.testing.assert_close(gradients[1].to_dense(), gradients[0].to_dense())


def test_averages_of_models_and_scores_of_every_item_are_torchs(ps: slotwise.Client) -> None:
    twins = adopt_twins(ps, "adagrad")
    averages = [AveragedModel(model) for model, _ in twins]
    for number in range(8):
        train(twins, tied_output, number)
        for average, (model, _) in zip(averages, twins):
            average.update_parameters(model)
        with torch.no_grad():
            scores = [model.users.weight[:3] @ model.items.weight.T for model, _ in twins]
        torch.testing.assert_close(scores[1], scores[0], rtol=1e-4, atol=1e-5)
    assert type(averages[1].module.items) is nn.Embedding
    compare(*averages)


def test_rows_are_fetched_once_a_step_and_only_if_read(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    _, (model, optimizer) = adopt_twins(fake_ps, "sgd")

    def fetches() -> int:
        return len(fake.requests("Lookup"))

    optimizer.zero_grad()
    model.items(batch(0)[1]).sum().backward()
    before, weight = fetches(), model.items.weight
    assert before == 1
    assert weight.shape == (ITEMS, DIM) and weight.grad is not None and weight.requires_grad
    assert (weight.numel(), weight.dim(), weight.dtype) == (ITEMS * DIM, 2, torch.float32)
    assert (len(weight), weight.size(1), weight.is_leaf) == (ITEMS, DIM, True)
    assert torch.zeros_like(weight).abs().sum() == 0 and weight.new_zeros(3).sum() == 0
    assert sum(each.numel() for each in model.parameters()) > 0
    assert "table='items'" in repr(weight) and weight in {weight}
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert fetches() == before
    for _ in range(3):
        for _ in range(3):
            (model.items.weight.sum() + sum(each.sum() for each in model.parameters())).backward()
        optimizer.step()
    assert fetches() - before == 3 * 2  # of two tables, in three steps


def test_a_weight_that_is_too_large_to_be_read_names_the_way_out(fake_ps: slotwise.Client) -> None:
    just_enough = ITEMS * DIM * 4 / 2**20
    (theirs, _), (ours, _) = adopt_twins(fake_ps, "sgd", read_mib=just_enough)
    torch.testing.assert_close(ours.items.weight.detach(), theirs.items.weight.detach())
    (theirs, _), (ours, _) = adopt_twins(fake_ps, "sgd", prefix="big.", read_mib=just_enough - 1e-6)
    message = r"table big\.items .* 14 x 4 floats .*read_mib.*module\.rows\(ids\)"
    for read in (
        lambda: ours.items.weight.sum(),
        lambda: ours.users.weight @ ours.items.weight.T,
        lambda: torch.stack([*ours.items.weight]),
        lambda: list(ours.parameters())[1].data,
        lambda: ours.items.weight.tolist(),
    ):
        with pytest.raises(slotwise.ResourceExhausted, match=message):
            read()
    torch.testing.assert_close(ours.users.weight.detach(), theirs.users.weight.detach())
    ids = torch.tensor([[0, 5], [13, 5]])
    for model in (theirs, ours):
        (model.items.weight[ids] if model is theirs else ours.items.rows(ids)).cos().sum().backward()
        (model.items.weight[ids] if model is theirs else ours.items.rows(ids)).sum().backward()
    torch.testing.assert_close(ours.items.weight.grad, theirs.items.weight.grad)
    assert ours.items.weight.grad is not None and ours.items.weight.grad[0].any()  # of the padding, too
    with pytest.raises(IndexError):
        ours.items.rows(torch.tensor([ITEMS]))
    ours.state_dict()  # is no read


def test_writing_to_a_weight_is_refused_by_what_writes(fake_ps: slotwise.Client) -> None:
    _, (model, optimizer) = adopt_twins(fake_ps, "sgd")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weight: Any = model.items.weight
    values = torch.ones(ITEMS, DIM)

    def item() -> None:
        weight[1] = 3

    def own() -> None:
        nonlocal weight
        weight += 1

    writes: list[Callable[[], Any]] = [
        weight.zero_, lambda: weight.copy_(values[:1]), lambda: nn.init.uniform_(weight), item, own,
        lambda: torch.add(values, 1, out=weight), lambda: setattr(weight, "data", values),
    ]
    for write in writes:
        refused = pytest.raises(slotwise.FailedPrecondition, match="table items cannot be written")
        with torch.no_grad(), refused:
            write()
    model.items(torch.tensor([1])).sum().backward()
    optimizer.zero_grad()
    optimizer.step()
    torch.testing.assert_close(model.state_dict(), before)
    with pytest.raises(slotwise.FailedPrecondition, match="copy_ where gradients are computed"):
        weight.copy_(values)
    with torch.no_grad():
        weight.copy_(values)  # as load_state_dict() does of another module that has the weight
    torch.testing.assert_close(model.items(torch.arange(ITEMS)), values)


def test_a_backward_of_rows_of_an_earlier_step_raises_as_in_torch(fake_ps: slotwise.Client) -> None:
    twins = adopt_twins(fake_ps, "sgd")
    for model, optimizer in twins:
        loss = model.items.weight.square().sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_an_evaluation_reads_what_others_have_trained(real: RealServer) -> None:
    with empty_client(real) as ps, slotwise.connect(real.address) as other:
        _, (model, optimizer) = adopt_twins(ps, "sgd")
        expected = model.items.weight.detach().clone()
        change = torch.ones(1, DIM).numpy()
        other.push("items", [3], None, change)
        expected[3] -= 0.3
        with torch.no_grad():
            model.items(torch.tensor([5]))  # from this lookup on the client knows
            torch.testing.assert_close(model.items.weight.clone(), expected)
        other.push("items", [3], None, change)
        model.items(torch.tensor([5]))
        torch.testing.assert_close(model.items.weight.detach(), expected)  # the same until the next step


def test_rows_of_another_state_are_fetched_anew(tmp_path: Path) -> None:
    with serving(1, data=tmp_path) as ps:
        _, (model, optimizer) = adopt_twins(ps, "sgd")
        before = model.items.weight.detach().clone()
        saved = ps.save()
        model.items.weight.sum().backward()
        optimizer.step()
        assert not torch.equal(model.items.weight.detach(), before)
        ps.load(saved.id)
        torch.testing.assert_close(model.items.weight.detach(), before)


class Tied(nn.Module):
    """An output layer that has the weight of an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM)
        self.scores = nn.Linear(DIM, ITEMS)
        self.scores.weight = self.items.weight

    def forward(self, items: Tensor) -> Tensor:
        """Returns the loss of the last item given those before it."""
        scores = self.scores(self.items(items[:, :-1]).mean(1))
        return nn.functional.cross_entropy(scores, items[:, -1])


def test_a_layer_may_have_an_embeddings_weight(real_ps: slotwise.Client) -> None:
    torch.manual_seed(3)
    models = [Tied()]
    models.append(copy.deepcopy(models[0]))
    twins: Any = [(model, torch.optim.Adagrad(model.parameters(), lr=0.1)) for model in models]

    def step(number: int) -> None:
        train(twins, lambda model, _, items: model(items), number)

    assert st.adopt(models[1], real_ps, twins[1][1]) == {"items": "items"}
    for number in range(10):
        step(number)
    saved = [copy.deepcopy(model.state_dict()) for model in models]
    torch.testing.assert_close(saved[1], saved[0])
    copied = copy.deepcopy(models[1])
    assert type(copied.items) is nn.Embedding and copied.scores.weight is copied.items.weight
    step(10)
    for model in models:
        model.to("cpu").load_state_dict(saved[0])
    step(11)
    compare(*models)
    st.release(models[1])
    assert models[1].scores.weight is models[1].items.weight
    compare(*models)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch before 2.0")
def test_what_reads_a_weight_may_be_compiled(fake_ps: slotwise.Client) -> None:
    twins = adopt_twins(fake_ps, "adagrad")
    compiled: Any = torch.compile(tied_output, backend="eager")
    for number in range(3):
        train(twins, compiled, number)
    rows: Any = torch.compile(lambda module, ids: module.rows(ids).sum(), backend="eager")
    rows(twins[1][0].items, torch.tensor([1, 2])).backward()
    compare(twins[0][0], twins[1][0])


@pytest.mark.skipif(not hasattr(torch, "func"), reason="torch before 2.0")
def test_a_first_read_within_a_transform_names_the_way_out(fake_ps: slotwise.Client) -> None:
    _, (model, optimizer) = adopt_twins(fake_ps, "sgd")
    grad: Any = torch.func.grad(lambda x: (x * model.items.weight).sum())
    with pytest.raises(slotwise.FailedPrecondition, match="within a transform of torch.func.*read it once"):
        grad(torch.ones(DIM))
    rows = model.items.weight.sum(0).detach()
    torch.testing.assert_close(grad(torch.ones(DIM)), rows)


def test_a_release_in_inference_mode_gives_weights_that_train(fake_ps: slotwise.Client) -> None:
    _, (model, optimizer) = adopt_twins(fake_ps, "sgd")
    with torch.inference_mode():
        st.release(model)
    before = model.items.weight.detach().clone()
    model.items(torch.tensor([3])).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.items.weight.detach()[3], before[3] - 0.3)


@pytest.mark.parametrize("inference", [False, True])
def test_copies_and_pickles_of_a_weight_are_torchs_own(fake_ps: slotwise.Client, inference: bool) -> None:
    (theirs, _), (ours, optimizer) = adopt_twins(fake_ps, "sgd")
    weight = ours.items.weight
    file = io.BytesIO()
    with torch.inference_mode(inference):
        weight.sum()
        torch.save(weight, file)
    file.seek(0)
    for copied in (copy.deepcopy(weight), pickle.loads(pickle.dumps(weight)), torch.load(file)):
        assert type(copied) is nn.Parameter and copied.requires_grad
        torch.testing.assert_close(copied.detach(), theirs.items.weight.detach())
    (2 * weight).sum().backward()
    optimizer.step()
    st.release(ours)
    assert type(weight) is nn.Parameter and ours.items.weight is weight
    torch.testing.assert_close(weight.detach(), theirs.items.weight.detach() - 0.6)
