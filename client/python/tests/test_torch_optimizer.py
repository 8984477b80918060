"""slotwise.torch.Optimizer is one as torch's are: it gathers, clips, unscales, skips, and has rates."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loops
import numpy as np
import pytest
import torch
from real_server import StartReal, empty_client, serving
from torch import Tensor, nn
from twins import DIM, ENDS, KEYS, OPTIMIZERS, ROWS, Modules, zeros

import slotwise
import slotwise.torch as st
from slotwise import _rows_parameter


class Model(nn.Module):
    """Looks up items twice and pools bags, and has a dense weight."""

    def __init__(self, items: nn.Module, bags: nn.Module) -> None:
        super().__init__()
        self.items, self.bags = items, bags
        self.dense = nn.Linear(DIM, DIM, bias=False)
        with torch.no_grad():
            self.dense.weight.copy_(torch.linspace(-1, 1, DIM * DIM).reshape(DIM, DIM))

    def forward(self, step: int) -> Tensor:
        """Returns the loss."""
        history = self.items(KEYS).sum(0)
        candidates = self.items((KEYS[:3] + step) % ROWS)
        bags = self.dense(self.bags(KEYS.flip(0), ENDS))
        return (candidates @ history).tanh().sum() + 0.3 * (bags * bags.sin()).sum()


Optimizers = list[torch.optim.Optimizer]
Train = Callable[[Model, Optimizers, int], object]


class Twins:
    """A model of ours, whose tables an Optimizer steps, and the same one of torch's."""

    def __init__(self, ps: slotwise.Client, kind: str = "sgd", one: bool = False, **options: Any) -> None:
        """`one` optimizer of ours steps rows and dense weights."""
        self.modules = Modules(ps, kind, **options)
        self.ours, self.theirs = Model(**self.modules.ours), Model(**self.modules.theirs)
        models = (self.ours, self.theirs)
        self.dense = [torch.optim.Adam(model.dense.parameters(), lr=0.05) for model in models]
        self.optimizer = st.Optimizer(self.ours)
        self.of_ours: Optimizers = [self.optimizer, self.dense[0]]
        if one:
            self.of_ours = [st.Optimizer(self.ours, dense=self.dense[0])]
        self.of_theirs: Optimizers = [self.modules.optimizer, self.dense[1]]

    def run(self, train: Train, steps: int = 5) -> None:
        """Trains both, and compares all that they compute and have."""
        for number in range(steps):
            theirs, ours = (
                train(model, optimizers, number)
                for model, optimizers in ((self.theirs, self.of_theirs), (self.ours, self.of_ours))
            )
            if theirs is not None:
                np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6, err_msg=f"step {number}")
        self.compare()

    def compare(self) -> None:
        self.modules.compare(rtol=2e-4)
        torch.testing.assert_close(self.ours.dense.weight, self.theirs.dense.weight, rtol=2e-4, atol=2e-5)

    def steps(self) -> int:
        (steps,) = self.modules.steps()
        return steps


def call_each(optimizers: Optimizers, method: str) -> None:
    """Calls `zero_grad` or `step` of each."""
    for optimizer in optimizers:
        getattr(optimizer, method)()


def stepping(backward: Callable[[Model, int], object]) -> Train:
    """Is a step of the usual loop; `backward` makes its gradients, and returns what is to be compared."""

    def train(model: Model, optimizers: Optimizers, number: int) -> object:
        call_each(optimizers, "zero_grad")
        told = backward(model, number)
        call_each(optimizers, "step")
        return told

    return train


def accumulate(model: Model, number: int) -> None:
    for i in range(3):
        (model(3 * number + i) / 3).backward()


def clip_after(model: Model, number: int) -> float:
    model(number).backward()
    return loops.clip(model, 1.0 + number)


@pytest.mark.parametrize("backward", [accumulate, clip_after], ids=lambda each: each.__name__)
@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_gradients_gather_until_step(
    any_ps: slotwise.Client, kind: str, in_flight: bool, backward: Any
) -> None:
    twins = Twins(any_ps, kind, in_flight=in_flight)
    twins.run(stepping(backward))
    assert twins.steps() == 5


def clip_amid_accumulation(model: Model, number: int) -> list[float]:
    norms = []
    for i in range(3):
        model(number + i).backward()
        norms.append(loops.clip(model, 0.5))
    return norms


def zero_infinities_by_hand(model: Model, number: int) -> None:
    (model(number) * float("inf")).backward()
    for weight in model.parameters():
        gradient: Any = weight.grad
        gradient.zero_()
    model(number).backward()


def retain_graphs(model: Model, number: int) -> None:
    loss = model(number)
    loss.backward(retain_graph=True)
    loss.backward()


def halve_what_is_held(model: Model, number: int, inference: bool = False) -> None:
    """A gradient that is held gathers what comes later."""
    model(number).backward()
    with torch.inference_mode(inference):  # as a log of norms may be written
        held = [weight.grad for weight in model.parameters()]
    model(number + 1).backward()
    now = [weight.grad for weight in model.parameters()]
    assert all(one is other for one, other in zip(held, now))
    for gradient in held:
        assert gradient is not None
        gradient.mul_(0.5)


def halve_what_inference_holds(model: Model, number: int) -> None:
    halve_what_is_held(model, number, inference=True)


def clip_a_norm_of_zero(model: Model, number: int) -> None:
    """A table whose gradients are all zero keeps its rows, whatever is clipped."""
    (model.items(KEYS).sum() * 0 + model.dense(model.bags(KEYS, ENDS)).square().sum()).backward()
    loops.clip(model, 0.5)


BACKWARDS = [
    clip_amid_accumulation, zero_infinities_by_hand, retain_graphs, halve_what_is_held,
    halve_what_inference_holds, clip_a_norm_of_zero,
]


@pytest.mark.parametrize("backward", BACKWARDS, ids=lambda each: each.__name__)
def test_what_makes_gradients_means_what_torchs_means(any_ps: slotwise.Client, backward: Any) -> None:
    Twins(any_ps).run(stepping(backward))


@pytest.mark.parametrize("to_none", [False, True])
def test_what_is_set_to_zero_is_gone_and_no_norm_is_computed(
    any_ps: slotwise.Client, to_none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rows_parameter, "_compute", None)

    def train(model: Model, optimizers: Optimizers, number: int) -> None:
        model(0).backward()
        model.zero_grad(set_to_none=to_none)
        model(number).backward()
        call_each(optimizers, "step")
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=to_none)

    Twins(any_ps).run(train)


def test_a_second_step_applies_the_same_again(any_ps: slotwise.Client) -> None:
    twins = Twins(any_ps)

    def train(model: Model, optimizers: Optimizers, number: int) -> None:
        stepping(lambda model, number: model(number).backward())(model, optimizers, number)
        call_each(optimizers, "step")
        model(number).backward()  # adds to what is there
        call_each(optimizers, "step")

    twins.run(train, 3)
    assert twins.steps() == 9


def test_a_gradient_that_is_changed_behind_a_backward_is_refused(any_ps: slotwise.Client) -> None:
    twins = Twins(any_ps)
    for another in (False, True):
        call_each(twins.of_ours, "zero_grad")
        twins.ours(0).backward()
        held = [weight.grad for weight in twins.ours.items.parameters()]
        assert held[0] is not None
        twins.ours(1).backward()
        held[0].mul_(0.5)
        with pytest.raises(slotwise.FailedPrecondition, match="table items.*after the last backward"):
            twins.ours(2).backward() if another else call_each(twins.of_ours, "step")
    twins.compare()  # nothing has moved
    call_each(twins.of_ours, "zero_grad")
    twins.ours(1).backward()
    held[0].mul_(0.5)  # is no longer the gradient of anything
    call_each(twins.of_ours, "step")
    assert twins.steps() == 1


def test_keys_and_gradients_may_be_overwritten_before_the_step(any_ps: slotwise.Client) -> None:
    module = zeros(any_ps, slotwise.SGD(1.0))
    optimizer = st.Optimizer(module)
    keys, gradient = torch.tensor([1, 2]), torch.ones(2, 1)
    torch.autograd.backward(module(keys), gradient)
    keys.fill_(3)
    gradient.fill_(9)
    optimizer.step()
    assert any_ps.lookup("items", np.arange(4), train=False).ravel().tolist() == [0, -1, -1, 0]


@pytest.mark.parametrize("one", [False, True], ids=["two optimizers", "one"])
@pytest.mark.parametrize("clips", [False, True])
def test_a_scaler_unscales_and_skips(any_ps: slotwise.Client, clips: bool, one: bool) -> None:
    twins = Twins(any_ps, one=one)
    scalers = {id(model): loops.make_scaler() for model in (twins.ours, twins.theirs)}

    def train(model: Model, optimizers: Optimizers, number: int) -> list[float]:
        own = scalers[id(model)]

        call_each(optimizers, "zero_grad")
        loss = model(number)
        if number == 2:
            loss = loss + 1e36 * model(1)  # its scaled gradient is infinite
        own.scale(loss).backward()
        norm = 0.0
        for optimizer in optimizers:
            own.unscale_(optimizer)
        if clips and number != 2:
            norm = loops.clip(model, 1.0)
        for optimizer in optimizers:
            own.step(optimizer)
        own.update()
        return [norm, own.get_scale()]

    twins.run(train)
    assert twins.steps() == 4


@pytest.mark.parametrize("one", [False, True], ids=["two optimizers", "one"])
def test_schedulers_move_the_rate_of_each_step(any_ps: slotwise.Client, one: bool) -> None:
    twins = Twins(any_ps, "adam", one=one)
    schedulers = {
        id(optimizer): torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: [1, 0.5, 0, 2][epoch % 4])
        for optimizer in twins.of_ours + twins.of_theirs
    }

    def train(model: Model, optimizers: Optimizers, number: int) -> float:
        def closure() -> Tensor:
            call_each(optimizers, "zero_grad")
            loss = model(number)
            loss.backward()
            return loss

        loss = optimizers[0].step(closure)
        call_each(optimizers[1:], "step")
        for optimizer in optimizers:
            schedulers[id(optimizer)].step()
        return float(loss)

    twins.run(train)
    assert any_ps.describe_table("items").base_learning_rate == pytest.approx(0.1)
    rates = [group["lr"] for optimizer in twins.of_ours for group in optimizer.param_groups]
    assert rates == pytest.approx([0.05, 0.05, 0.025])


def test_each_table_has_a_group(ps: slotwise.Client) -> None:
    twins = Twins(ps, "adagrad")
    assert [(group["table"], group["lr"]) for group in twins.optimizer.param_groups] == [
        ("items", 0.1),
        ("bags", 0.1),
    ]
    before = ps.lookup("bags", np.arange(ROWS), train=False)
    twins.optimizer.param_groups[1]["lr"] = 0.0
    twins.ours(0).backward()
    twins.optimizer.step()
    np.testing.assert_array_equal(ps.lookup("bags", np.arange(ROWS), train=False), before)
    assert (ps.lookup("items", KEYS.numpy(), train=False) != 0).any()
    assert twins.steps() == 1


def test_a_rate_that_was_not_moved_is_the_tables_own(ps: slotwise.Client) -> None:
    module = zeros(ps, slotwise.SGD(0.5))
    optimizer = st.Optimizer(module)
    module(torch.tensor([7])).sum().backward()
    ps.set_learning_rate("items", 2.0)  # for all trainers
    optimizer.step()
    assert ps.lookup("items", [7], train=False).item() == -2
    optimizer.param_groups[0]["lr"] = 1.0
    optimizer.step()
    assert ps.lookup("items", [7], train=False).item() == -3


def test_a_table_with_a_schedule_refuses_a_moved_rate(ps: slotwise.Client) -> None:
    schedule = slotwise.Schedule(warmup_steps=10)
    ps.create_table("ads", dim=1, optimizer=slotwise.SGD(0.5, schedule=schedule))
    module = st.EmbeddingBag(ps, "ads")
    optimizer = st.Optimizer(module)
    module(KEYS).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.25
    with pytest.raises(slotwise.InvalidArgument, match="ads: lr was moved from 0.5 to 0.25.*Schedule"):
        optimizer.step()
    for rate in (float("nan"), -0.5, float("inf")):
        optimizer.param_groups[0]["lr"] = rate
        with pytest.raises(slotwise.InvalidArgument, match="must be finite, and at least 0"):
            optimizer.step()
    assert ps.describe_table("ads").steps == 1


def test_the_state_comes_back(ps: slotwise.Client) -> None:
    twins = Twins(ps, one=True)
    (both,) = twins.of_ours
    scheduler = torch.optim.lr_scheduler.ExponentialLR(both, 0.5)
    twins.ours(0).backward()
    both.step()
    scheduler.step()
    state = copy.deepcopy(both.state_dict())
    assert [group["params"] for group in state["param_groups"]] == [[], [], [0]]

    fresh = torch.optim.Adam(twins.ours.dense.parameters(), lr=1.0)
    again = st.Optimizer(twins.ours, dense=fresh)
    again.load_state_dict(state)
    assert [group["lr"] for group in again.param_groups] == pytest.approx([0.05, 0.05, 0.025])
    assert again.state is fresh.state and len(again.state) == 1
    assert torch.optim.lr_scheduler.ExponentialLR(again, 0.5, last_epoch=1).base_lrs == [0.1, 0.1, 0.05]
    with pytest.raises(slotwise.InvalidArgument, match="has no dense="):
        st.Optimizer(twins.ours).load_state_dict(state)
    with pytest.raises(slotwise.InvalidArgument, match="of tables items, bags, and this is one of bags"):
        st.Optimizer(twins.ours.bags).load_state_dict(state)


def test_a_state_with_the_tables_own_rate_brings_no_rate_back(ps: slotwise.Client) -> None:
    twins = Twins(ps)
    state = twins.optimizer.state_dict()
    ps.set_learning_rate("items", 0.01)
    again = st.Optimizer(twins.ours)
    again.load_state_dict(state)
    assert [group["lr"] for group in again.param_groups] == [0.01, 0.1]
    ps.set_learning_rate("items", 0.001)  # holds for who moved nothing
    twins.ours(0).backward()
    before = ps.lookup("items", KEYS.numpy(), train=False)
    again.step()
    moved = float(np.abs(ps.lookup("items", KEYS.numpy(), train=False) - before).max())
    assert 0 < moved < 0.005


def test_it_is_saved_and_loaded_with_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"

    def make() -> tuple[Model, st.Optimizer, Any]:
        torch.manual_seed(5)
        model = Model(st.Embedding(ps, "items"), st.EmbeddingBag(ps, "bags"))
        both = st.Optimizer(model, dense=torch.optim.Adam(model.dense.parameters(), lr=0.05))
        return model, both, torch.optim.lr_scheduler.ExponentialLR(both, 0.5)

    def train(model: Model, both: st.Optimizer, scheduler: Any, numbers: range) -> list[Any]:
        for number in numbers:
            both.zero_grad()
            model(number).backward()
            both.step()
            scheduler.step()
        rates = [group["lr"] for group in both.param_groups]
        return [ps.digest("items"), ps.digest("bags"), model.dense.weight.tolist(), rates]

    with serving(data=tmp_path / "data") as ps:
        for name, combiner in (("items", "none"), ("bags", "sum")):
            ps.create_table(name, dim=DIM, combiner=combiner, optimizer=slotwise.Adam(0.1))
        model, both, scheduler = make()
        train(model, both, scheduler, range(3))
        st.save(path, model, both, {"scheduler": scheduler.state_dict()})
        expected = train(model, both, scheduler, range(3, 6))
        model, both, scheduler = make()
        loaded = st.load(path, model, both, go_back=True)
        scheduler.load_state_dict(loaded["scheduler"])
        assert train(model, both, scheduler, range(3, 6)) == expected


def test_the_model_has_a_parameter_for_each_table_which_it_does_not_save(ps: slotwise.Client) -> None:
    twins = Twins(ps)
    names = [name for name, _ in twins.ours.named_parameters()]
    assert names == ["items.rows_of_items_0", "bags.rows_of_bags_0", "dense.weight"]
    assert list(twins.ours.state_dict()) == ["dense.weight"]
    twins.ours.load_state_dict(twins.ours.state_dict())
    assert twins.ours.to(torch.float32) is twins.ours
    for parameter in twins.ours.items.parameters():
        assert parameter.grad is None and parameter.requires_grad
    with pytest.raises(slotwise.InvalidArgument, match="Adam was given the rows of table items.*first"):
        torch.optim.Adam(twins.ours.parameters())


@pytest.mark.parametrize(
    "clip, said",
    [
        (lambda weights: nn.utils.clip_grad_norm_(weights, 0.5, norm_type=1.0), "another norm_type than 2"),
        (lambda weights: nn.utils.clip_grad_norm_(weights, 0.5, norm_type=float("inf")), "norm_type than 2"),
        (lambda weights: nn.utils.clip_grad_value_(weights, 0.5), "clip_grad_norm_"),
    ],
    ids=["by a sum", "by a maximum", "by value"],
)
def test_other_ways_to_clip_are_refused(ps: slotwise.Client, clip: Any, said: str) -> None:
    twins = Twins(ps)
    twins.ours(0).backward()
    with pytest.raises(slotwise.FailedPrecondition, match=said):
        clip(twins.ours.parameters())
    nn.utils.clip_grad_norm_(twins.ours.parameters(), 0.5, norm_type=2)


def test_frozen_rows_rest(any_ps: slotwise.Client) -> None:
    """As where two models are trained in turn, or a part is frozen."""

    def backward(model: Model, number: int) -> None:
        model.items.requires_grad_(number % 2 == 0)
        assert all(weight.requires_grad == (number % 2 == 0) for weight in model.items.parameters())
        model(number).backward()
        nn.utils.clip_grad_norm_([each for each in model.parameters() if each.requires_grad], 0.5)

    Twins(any_ps, "adagrad").run(stepping(backward))
    assert any_ps.describe_table("items").steps == 3 and any_ps.describe_table("bags").steps == 5


def test_a_gradient_that_is_not_finite_is_refused_and_nothing_moves(any_ps: slotwise.Client) -> None:
    twins = Twins(any_ps, one=True)
    (both,) = twins.of_ours
    before = [twins.ours.dense.weight.detach().clone(), any_ps.digest("items"), any_ps.digest("bags")]
    (twins.ours(0) * float("inf")).backward()
    with pytest.raises(slotwise.InvalidArgument, match="finite"):
        both.step()
    assert torch.equal(twins.ours.dense.weight, before[0])
    assert [any_ps.digest("items"), any_ps.digest("bags")] == before[1:]
    both.zero_grad()
    twins.ours(0).backward()
    both.step()
    assert twins.steps() == 1


def test_the_newest_optimizer_steps(ps: slotwise.Client) -> None:
    twins = Twins(ps)
    newer = st.Optimizer(twins.ours.items)
    twins.ours(0).backward()
    with pytest.raises(slotwise.FailedPrecondition, match="Embedding of items is stepped by another"):
        twins.optimizer.step()
    newer.step()  # with the gradients that were there: they are the model's
    assert ps.describe_table("items").steps == 1 and ps.describe_table("bags").steps == 0


def test_another_module_of_a_table_that_is_stepped_is_not_fused(ps: slotwise.Client) -> None:
    twins = Twins(ps)
    late = st.Embedding(ps, "items")
    with pytest.raises(slotwise.FailedPrecondition, match="made after the slotwise.torch.Optimizer"):
        late(KEYS)
    late.eval()(KEYS)
    late.train()
    both = st.Optimizer([twins.ours, late])
    (late(KEYS).sum() + twins.ours(0)).backward()
    both.step()
    assert twins.steps() == 1
    del twins, both, late
    st.Embedding(ps, "items")(KEYS).sum().backward()  # the other model is gone
    assert ps.describe_table("items").steps == 2


def test_what_has_no_module_is_refused(ps: slotwise.Client) -> None:
    with pytest.raises(slotwise.InvalidArgument, match="no module of slotwise.torch"):
        st.Optimizer(nn.Linear(2, 2))
    twins = Twins(ps)
    for dense in (twins.optimizer, torch.optim.LBFGS(twins.ours.dense.parameters())):
        with pytest.raises(slotwise.InvalidArgument, match="cannot be stepped beside tables"):
            st.Optimizer(twins.ours, dense=dense)
    parameters: Any = list(twins.ours.parameters())
    with pytest.raises(slotwise.InvalidArgument, match="not their parameters"):
        st.Optimizer(parameters)
    with pytest.raises(slotwise.InvalidArgument, match="without dense= has no dense weights"):
        twins.optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
    both = st.Optimizer(twins.ours, dense=twins.dense[0])
    both.add_param_group({"params": [torch.zeros(1, requires_grad=True)], "lr": 3.0})
    assert twins.dense[0].param_groups[1]["lr"] == 3.0 and both.param_groups[3]["lr"] == 3.0


def test_a_table_of_two_clients_is_refused(start_real: StartReal) -> None:
    server = start_real(1)
    with empty_client(server) as ps, slotwise.connect(server.address) as other:
        ps.create_table("a", dim=1, optimizer=slotwise.SGD(0.1))
        with pytest.raises(slotwise.InvalidArgument, match="table a is looked up by modules of two clients"):
            st.Optimizer([st.EmbeddingBag(ps, "a"), st.EmbeddingBag(other, "a")])


def test_modules_of_two_sessions_are_refused(ps: slotwise.Client) -> None:
    for table in ("a", "b"):
        ps.create_table(table, dim=1, optimizer=slotwise.SGD(0.1))
    modules = [st.EmbeddingBag(ps, table, session=slotwise.Session()) for table in ("a", "b")]
    with pytest.raises(slotwise.InvalidArgument, match="EmbeddingBag of b has another session"):
        st.Optimizer(modules)
    shared = slotwise.Session(7, trainers=2)
    modules = [st.EmbeddingBag(ps, table, session=shared) for table in ("a", "b")]
    with pytest.raises(slotwise.InvalidArgument, match="tables b are of the same shared session"):
        st.Optimizer(modules[0])
    optimizer = st.Optimizer(modules)
    modules[0](KEYS).sum().backward()
    with pytest.raises(slotwise.FailedPrecondition, match="shared_session"):
        nn.utils.clip_grad_norm_(modules[0].parameters(), 1.0)
    assert optimizer.param_groups[0]["table"] == "a"


def test_norms_of_a_shared_step_are_asked_for_anew_together(
    ps: slotwise.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one table's norm was multiplied by stays when another table gets more."""
    asked = []

    def alone(group: Any, sums: Any) -> Any:
        asked.append(len(sums))
        return sums

    monkeypatch.setattr(_rows_parameter, "group_of", lambda session: (None,))
    monkeypatch.setattr(_rows_parameter, "summed_over", alone)
    session = slotwise.Session(7, trainers=2, gradients="mean")
    for table in ("a", "b"):
        ps.create_table(table, dim=1, optimizer=slotwise.SGD(0.1))
    a, b = (st.EmbeddingBag(ps, table, session=session) for table in ("a", "b"))
    optimizer = st.Optimizer([a, b])
    weights = [group["params"][0] for group in optimizer.param_groups]
    key = torch.tensor([7])
    (a(key) + b(key)).sum().backward()
    assert [weight.grad.item() for weight in weights] == [0.5, 0.5] and asked == [2]
    for weight in weights:
        weight.grad.mul_(0.25)
    a(key).sum().backward()
    assert [weight.grad.item() for weight in weights] == [0.5 * 1.25, 0.5 * 0.25] and asked == [2, 2]
    told = [[part.gradients for part in weight.rows.settled()] for weight in weights]
    assert [[each.item() for part in of_table for each in part.values()] for of_table in told] == [
        [0.25, 1],
        [0.25],
    ]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_norm_is_of_the_rows_sums(any_ps: slotwise.Client, combiner: str, weighted: bool) -> None:
    """SGD at rate 1 moves each row by its gradient."""
    any_ps.create_table("bags", dim=DIM, slots=3, combiner=combiner, optimizer=slotwise.SGD(1.0))
    module = st.EmbeddingBag(any_ps, "bags")
    optimizer = st.Optimizer(module)
    seen = np.unique(KEYS.numpy())
    weights = torch.linspace(0.5, 2, len(KEYS))
    weights[:3] = torch.tensor([1.0, -2.0, 1.0])  # which a mean divides by 0
    pooled = module(KEYS, ENDS, weights if weighted else None)
    before = any_ps.lookup("bags", seen, np.arange(len(seen) * 3 + 1).clip(max=len(seen)), train=False)
    (pooled * torch.linspace(-1, 3, pooled.numel()).reshape(pooled.shape)).sum().backward()
    (pooled_again,) = [module(KEYS[:6], torch.tensor([0, 1, 4, 6]))]
    pooled_again.sum().backward()
    norm = float(nn.utils.clip_grad_norm_(module.parameters(), 1e9))
    optimizer.step()
    after = any_ps.lookup("bags", seen, np.arange(len(seen) * 3 + 1).clip(max=len(seen)), train=False)
    assert before.size and norm == pytest.approx(float(np.linalg.norm(after - before)), rel=1e-5)
