"""A model of torch's embeddings and its adopted twin train to the same numbers."""

from __future__ import annotations

from typing import Any

import grpc
import loops
import pytest
import torch
from adopted import OPTIMIZERS, Batch, Trained, adopt_one, batches, embedding_weights, expect_equal_models
from adopted import expect_equal_states, expect_equal_steps, make_twins
from fake_server import FakeServer, refuse
from torch import nn

import slotwise
import slotwise.torch as st


def step_all(optimizers: list[torch.optim.Optimizer]) -> None:
    for optimizer in optimizers:
        optimizer.step()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_loss_curve_is_torchs(real_ps: slotwise.Client, kind: str) -> None:
    theirs, ours = make_twins(kind)
    tables = st.adopt(ours.model, real_ps, ours.optimizers)
    assert tables == {"ads.sum": "ads.sum", "ads.mean": "ads.mean", "words": "words"}
    losses = expect_equal_steps((theirs, ours), 200, seed=1)
    assert sum(losses[-40:]) < 0.7 * sum(losses[:40])
    assert real_ps.describe_table("words").steps == 200


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_model_is_adopted_and_released_amid_training(real_ps: slotwise.Client, kind: str) -> None:
    theirs, ours = twins = make_twins(kind)
    before = {name: (m, type(m)) for name, m in ours.model.named_modules()}
    for trained in twins:
        torch.optim.lr_scheduler.StepLR(trained.optimizers[0], 1000)  # replaces step() too
    methods = dict(vars(ours.optimizers[0]))
    expect_equal_steps(twins, 30, seed=1)
    st.adopt(ours.model, real_ps, ours.optimizers, prefix="clicks.")
    assert dict(ours.optimizers[0].state) == {}  # the server has it
    expect_equal_steps(twins, 30, seed=2)
    st.release(ours.model)
    assert real_ps.list_tables() == []
    assert {name: (m, type(m)) for name, m in ours.model.named_modules()} == before
    for name in ("step", "state_dict", "load_state_dict"):
        assert vars(ours.optimizers[0]).get(name) is methods.get(name)
    expect_equal_models(ours.model, theirs.model)
    expect_equal_states(ours.optimizers[0], theirs.optimizers[0])
    expect_equal_steps(twins, 30, seed=3)
    st.adopt(ours.model, real_ps, ours.optimizers)
    expect_equal_steps(twins, 30, seed=4)


@pytest.mark.filterwarnings("error")  # schedulers warn where they saw no step()
@pytest.mark.parametrize("kind", ["sgd", "adagrad-sparse", "sparse-adam"])
def test_schedulers_made_before_and_after_set_the_tables_rates(ps: slotwise.Client, kind: str) -> None:
    theirs, ours = make_twins(kind)

    def warm_up(trained: Trained) -> torch.optim.lr_scheduler.LambdaLR:
        # A rate of 0 at first: the server has no such rate, but rows stay as they are.
        return torch.optim.lr_scheduler.LambdaLR(trained.optimizers[0], lambda step: step / 10)

    def decay(trained: Trained) -> torch.optim.lr_scheduler.StepLR:
        return torch.optim.lr_scheduler.StepLR(trained.optimizers[0], 3, gamma=0.5)

    schedulers = [warm_up(theirs), warm_up(ours)]
    st.adopt(ours.model, ps, ours.optimizers)
    schedulers += [decay(theirs), decay(ours)]
    for number, batch in enumerate(batches(12)):
        assert abs(theirs.step(batch) - ours.step(batch)) <= 1e-5, number
        for scheduler in schedulers:
            scheduler.step()
        if number == 7:
            st.release(ours.model)
            assert ps.list_tables() == []
    expect_equal_models(ours.model, theirs.model)


def test_the_rate_that_a_loop_writes_is_the_next_steps(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    def step(trained: Trained, number: int, batch: Batch) -> float:
        trained.optimizers[0].param_groups[0]["lr"] = 0.05 * (number + 1)
        return trained.step(batch)

    expect_equal_steps(adopt_one(fake_ps, "adagrad"), 6, step)
    assert not fake.requests("SetLearningRate")  # the rates travel in the pushes


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_gradients_accumulate_into_one_step(ps: slotwise.Client, kind: str) -> None:
    def step(trained: Trained, number: int, batch: Batch) -> None:
        (trained.model(batch) / 3).backward()
        if number % 3 == 2:
            step_all(trained.optimizers)
            for optimizer in trained.optimizers:
                optimizer.zero_grad()

    expect_equal_steps(adopt_one(ps, kind), 12, step)
    assert ps.describe_table("words").steps == 4


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_zero_grad_forgets_what_was_not_pushed(fake_ps: slotwise.Client, kind: str, to_none: bool) -> None:
    def step(trained: Trained, number: int, batch: Batch) -> None:
        trained.model(batch).backward()
        if number == 3:  # this batch is skipped, by the model's zero_grad or the optimizer's
            trained.model.zero_grad(set_to_none=to_none)
        if number == 4:
            trained.optimizers[0].zero_grad(set_to_none=to_none)
        step_all(trained.optimizers)
        for optimizer in trained.optimizers:
            optimizer.zero_grad(set_to_none=to_none)

    theirs, ours = twins = adopt_one(fake_ps, kind)
    expect_equal_steps(twins, 8, step)
    expect_equal_states(ours.optimizers[0], theirs.optimizers[0])


def test_a_second_step_applies_the_same_gradient_again(fake_ps: slotwise.Client) -> None:
    def step(trained: Trained, _: int, batch: Batch) -> None:
        trained.step(batch)
        trained.optimizers[0].step()

    expect_equal_steps(adopt_one(fake_ps, "adagrad"), 3, step)
    assert fake_ps.describe_table("words").steps == 6


def test_clipped_gradients_are_pushed_as_clipped(fake_ps: slotwise.Client) -> None:
    def step(trained: Trained, _: int, batch: Batch) -> float:
        trained.model.zero_grad()
        (trained.model(batch) * 10).backward()
        norm = float(nn.utils.clip_grad_norm_(trained.model.parameters(), 0.5))
        step_all(trained.optimizers)
        return norm

    assert min(expect_equal_steps(adopt_one(fake_ps, "sgd"), 5, step)) > 0.5


@pytest.mark.skipif(not loops.HAS_FLOAT16, reason="old torch")
@pytest.mark.parametrize("kind", ["sgd", "adagrad-sparse"])
def test_a_grad_scaler_unscales_and_skips_as_ever(fake_ps: slotwise.Client, kind: str) -> None:
    twins = adopt_one(fake_ps, kind)
    scalers = {id(trained): loops.make_scaler() for trained in twins}

    def step(trained: Trained, number: int, batch: Batch) -> float:
        scaler = scalers[id(trained)]
        trained.model.zero_grad()
        scaler.scale(trained.model(batch) * (float("inf") if number == 3 else 1.0)).backward()
        for optimizer in trained.optimizers:
            scaler.step(optimizer)
        scaler.update()
        return float(scaler.get_scale())

    assert expect_equal_steps(twins, 6, step)[-1] == 2048.0
    assert fake_ps.describe_table("words").steps == 5


@pytest.mark.skipif(not hasattr(torch.optim.SGD, "register_step_pre_hook"), reason="torch before 2.0")
def test_hooks_of_a_step_change_what_is_pushed(fake_ps: slotwise.Client) -> None:
    def halve(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for weight in group["params"]:
                weight.grad.mul_(0.5)  # which is there

    def step(trained: Trained, number: int, batch: Batch) -> None:
        trained.step(batch)
        assert all(weight.grad is not None for weight in embedding_weights(trained.model)), number

    twins = adopt_one(fake_ps, "sgd")
    for trained in twins:
        trained.optimizers[0].register_step_pre_hook(halve)
    expect_equal_steps(twins, 4, step)
    assert fake_ps.describe_table("words").steps == 4


def test_step_takes_a_closure(fake_ps: slotwise.Client) -> None:
    def step(trained: Trained, _: int, batch: Batch) -> float:
        def closure() -> torch.Tensor:
            trained.model.zero_grad()
            loss = trained.model(batch)
            loss.backward()
            return loss

        return float(trained.optimizers[0].step(closure))

    expect_equal_steps(adopt_one(fake_ps, "adagrad"), 4, step)
    assert fake_ps.describe_table("words").steps == 4


def test_a_step_is_one_request_and_one_number(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    _, ours = adopt_one(fake_ps, "sgd")
    ours.step(next(batches(1)))
    (request,) = fake.requests("PushMany")
    assert [push.table for push in request.pushes] == ["ads.sum", "ads.mean", "words"]
    assert len({push.step.number for push in request.pushes}) == 1
    assert fake.requests("Push") == [] and fake.requests("SetLearningRate") == []


def test_a_failed_step_is_pushed_again_under_its_name(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    theirs, ours = adopt_one(fake_ps, "adagrad")
    (batch, other) = batches(2)
    # The answer is lost. The client does not send it again by itself.
    fake.after = refuse("PushMany", grpc.StatusCode.INTERNAL, times=2)
    for _ in range(2):
        with pytest.raises(slotwise.Error):
            ours.step(batch) if not fake.requests("PushMany") else ours.optimizers[0].step()
    step_all(ours.optimizers)
    assert fake_ps.describe_table("words").steps == 1
    theirs.step(batch)
    assert abs(theirs.step(other) - ours.step(other)) <= 1e-5
    assert fake_ps.describe_table("words").steps == 2
    expect_equal_models(ours.model, theirs.model)


@pytest.mark.parametrize("kind", ["sgd", "sgd-sparse"])
def test_gradients_that_are_not_finite_change_nothing(fake_ps: slotwise.Client, kind: str) -> None:
    _, ours = adopt_one(fake_ps, kind)
    (batch,) = batches(1)
    ours.step(batch)
    before = ours.model.state_dict()
    ours.model.zero_grad()
    (ours.model.words(batch.words) * float("nan")).sum().backward()
    ours.model(batch).backward()
    with pytest.raises(slotwise.InvalidArgument, match=r"words: the weight's gradient has NaN"):
        ours.optimizers[0].step()
    torch.testing.assert_close(ours.model.state_dict(), before, rtol=0, atol=0)
    ours.step(batch)


def test_a_failed_step_whose_gradient_grew_is_another_one(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    theirs, ours = adopt_one(fake_ps, "sgd")
    fake.before = refuse("PushMany", grpc.StatusCode.INTERNAL, times=1)  # nothing is applied
    for number, batch in enumerate(batches(2)):
        for trained in (theirs, ours):
            trained.model(batch).backward()
        if number == 0:
            with pytest.raises(slotwise.Error):
                ours.optimizers[0].step()
    theirs.optimizers[0].step()
    ours.optimizers[0].step()
    first, second = fake.requests("PushMany")
    assert first.pushes[0].step.number != second.pushes[0].step.number
    expect_equal_models(ours.model, theirs.model)


FOLLOWS = "can follow the learning rate only"
SETTINGS: dict[str, tuple[str, dict[str, float], str]] = {
    f"rate {rate}": ("sgd", {"lr": rate}, f"lr of torch.optim.SGD is {rate}, not 0")
    for rate in (-0.1, float("inf"), float("nan"))
}
SETTINGS["eps"] = "adagrad", {"eps": 0.5}, FOLLOWS
SETTINGS["decay"] = "adagrad", {"weight_decay": 0.1}, "weight_decay of torch.optim.Adagrad, 0.1, moves"


def test_settings_that_a_table_cannot_follow_are_refused_at_the_step(fake_ps: slotwise.Client) -> None:
    _, ours = make_twins("adagrad")
    st.adopt(ours.model, fake_ps, ours.optimizers)
    (batch,) = batches(1)
    ours.optimizers[0].param_groups[0]["eps"] = 0.5
    with pytest.raises(slotwise.InvalidArgument, match="can follow the learning rate only"):
        ours.step(batch)
    ours.optimizers[0].param_groups[0].update(eps=1e-10, weight_decay=0.1)
    with pytest.raises(slotwise.InvalidArgument, match="weight_decay of torch.optim.Adagrad, 0.1, moves"):
        ours.step(batch)
    assert fake_ps.describe_table("words").steps == 0
