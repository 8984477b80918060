"""A model of torch's embeddings and its adopted twin train to the same numbers."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
import torch
from adopted import (
    OPTIMIZERS,
    Trained,
    batches,
    embedding_weights,
    expect_equal_models,
    expect_equal_states,
    make_twins,
    real_ps,
)
from fake_server import FakeServer, Refused
from torch import nn

import slotwise
import slotwise.torch as st

__all__ = ["real_ps"]


def expect_equal_steps(theirs: Trained, ours: Trained, count: int, seed: int) -> list[float]:
    """Trains both for some steps; returns their losses, which are equal to 1e-5."""
    losses = []
    for number, batch in enumerate(batches(count, seed)):
        their_loss, our_loss = theirs.step(batch), ours.step(batch)
        assert abs(their_loss - our_loss) <= 1e-5, f"step {number}: {their_loss}, {our_loss}"
        losses.append(our_loss)
    return losses


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_loss_curve_is_torchs(real_ps: slotwise.Client, kind: str) -> None:
    theirs, ours = make_twins(kind)
    tables = st.adopt(ours.model, real_ps, ours.optimizers)
    assert tables == {"ads.sum": "ads.sum", "ads.mean": "ads.mean", "words": "words"}
    losses = expect_equal_steps(theirs, ours, 200, seed=1)
    assert sum(losses[-40:]) < 0.7 * sum(losses[:40])
    assert real_ps.describe_table("words").steps == 200
    expect_equal_models(ours.model, theirs.model)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_model_is_adopted_and_released_in_the_middle_of_training(
    real_ps: slotwise.Client, kind: str
) -> None:
    theirs, ours = make_twins(kind)
    before = {name: (m, type(m)) for name, m in ours.model.named_modules()}
    for trained in (theirs, ours):
        torch.optim.lr_scheduler.StepLR(trained.optimizers[0], 1000)  # replaces step() too
    methods = dict(vars(ours.optimizers[0]))
    expect_equal_steps(theirs, ours, 30, seed=1)
    st.adopt(ours.model, real_ps, ours.optimizers, prefix="clicks.")
    assert dict(ours.optimizers[0].state) == {}  # the server has it
    expect_equal_steps(theirs, ours, 30, seed=2)
    st.release(ours.model)
    assert real_ps.list_tables() == []
    assert {name: (m, type(m)) for name, m in ours.model.named_modules()} == before
    for name in ("step", "state_dict", "load_state_dict"):
        assert vars(ours.optimizers[0]).get(name) is methods.get(name)
    expect_equal_models(ours.model, theirs.model)
    expect_equal_states(ours.optimizers[0], theirs.optimizers[0])
    expect_equal_steps(theirs, ours, 30, seed=3)
    st.adopt(ours.model, real_ps, ours.optimizers)
    expect_equal_steps(theirs, ours, 30, seed=4)
    expect_equal_models(ours.model, theirs.model)


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
    theirs, ours = make_twins("adagrad")
    st.adopt(ours.model, fake_ps, ours.optimizers)
    for number, batch in enumerate(batches(6)):
        for trained in (theirs, ours):
            trained.optimizers[0].param_groups[0]["lr"] = 0.05 * (number + 1)
        theirs.step(batch)
        ours.step(batch)
    assert not fake.requests("SetLearningRate")  # the rates travel in the pushes
    expect_equal_models(ours.model, theirs.model)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_gradients_accumulate_into_one_step(ps: slotwise.Client, kind: str) -> None:
    theirs, ours = make_twins(kind)
    st.adopt(ours.model, ps, ours.optimizers)
    for number, batch in enumerate(batches(12)):
        for model, optimizers in (theirs, ours):
            (model(batch) / 3).backward()
            if number % 3 == 2:
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
    assert ps.describe_table("words").steps == 4
    expect_equal_models(ours.model, theirs.model)


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_zero_grad_forgets_what_was_not_pushed(fake_ps: slotwise.Client, kind: str, to_none: bool) -> None:
    theirs, ours = make_twins(kind)
    st.adopt(ours.model, fake_ps, ours.optimizers)
    for number, batch in enumerate(batches(8)):
        for model, optimizers in (theirs, ours):
            model(batch).backward()
            if number == 3:  # this batch is skipped, by the model's zero_grad or the optimizer's
                model.zero_grad(set_to_none=to_none)
            if number == 4:
                optimizers[0].zero_grad(set_to_none=to_none)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
    expect_equal_models(ours.model, theirs.model)
    expect_equal_states(ours.optimizers[0], theirs.optimizers[0])


def test_a_second_step_applies_the_same_gradient_again(fake_ps: slotwise.Client) -> None:
    theirs, ours = make_twins("adagrad")
    st.adopt(ours.model, fake_ps, ours.optimizers)
    for batch in batches(3):
        for trained in (theirs, ours):
            trained.step(batch)
            trained.optimizers[0].step()
    assert fake_ps.describe_table("words").steps == 6
    expect_equal_models(ours.model, theirs.model)


def test_clipped_gradients_are_pushed_as_clipped(fake_ps: slotwise.Client) -> None:
    theirs, ours = make_twins("sgd")
    st.adopt(ours.model, fake_ps, ours.optimizers)
    for batch in batches(5):
        norms = []
        for model, optimizers in (theirs, ours):
            model.zero_grad()
            (model(batch) * 10).backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
            for optimizer in optimizers:
                optimizer.step()
        assert norms[0] > 0.5
        torch.testing.assert_close(norms[0], norms[1], rtol=1e-5, atol=0)
    expect_equal_models(ours.model, theirs.model)


@pytest.mark.skipif(not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"), reason="old torch")
@pytest.mark.parametrize("kind", ["sgd", "adagrad-sparse"])
def test_a_grad_scaler_unscales_and_skips_as_ever(fake_ps: slotwise.Client, kind: str) -> None:
    theirs, ours = make_twins(kind)
    st.adopt(ours.model, fake_ps, ours.optimizers)
    scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0) for _ in range(2)]
    for number, batch in enumerate(batches(6)):
        for (model, optimizers), scaler in zip((theirs, ours), scalers):
            model.zero_grad()
            scale = float("inf") if number == 3 else 1.0
            scaler.scale(model(batch) * scale).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
    assert scalers[0].get_scale() == scalers[1].get_scale() == 512.0
    assert fake_ps.describe_table("words").steps == 5
    expect_equal_models(ours.model, theirs.model)


@pytest.mark.skipif(not hasattr(torch.optim.SGD, "register_step_pre_hook"), reason="torch before 2.0")
def test_hooks_of_a_step_change_what_is_pushed(fake_ps: slotwise.Client) -> None:
    theirs, ours = make_twins("sgd")
    st.adopt(ours.model, fake_ps, ours.optimizers)

    def halve(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for weight in group["params"]:
                weight.grad.mul_(0.5)  # which is there

    for trained in (theirs, ours):
        trained.optimizers[0].register_step_pre_hook(halve)
    for number, batch in enumerate(batches(4)):
        theirs.step(batch)
        ours.step(batch)
        assert all(weight.grad is not None for weight in embedding_weights(ours.model)), number
    expect_equal_models(ours.model, theirs.model)
    assert fake_ps.describe_table("words").steps == 4


def test_step_takes_a_closure(fake_ps: slotwise.Client) -> None:
    theirs, ours = make_twins("adagrad")
    st.adopt(ours.model, fake_ps, ours.optimizers)
    for batch in batches(4):
        losses = []
        for trained in (theirs, ours):

            def closure(trained: Trained = trained, batch: Any = batch) -> torch.Tensor:
                trained.model.zero_grad()
                loss = trained.model(batch)
                loss.backward()
                return loss

            losses.append(trained.optimizers[0].step(closure).item())
        assert abs(losses[0] - losses[1]) <= 1e-5
    assert fake_ps.describe_table("words").steps == 4
    expect_equal_models(ours.model, theirs.model)


def test_a_step_is_one_request_and_one_number(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    _, ours = make_twins("sgd")
    st.adopt(ours.model, fake_ps, ours.optimizers)
    (batch,) = batches(1)
    ours.step(batch)
    (request,) = fake.requests("PushMany")
    assert [push.table for push in request.pushes] == ["ads.sum", "ads.mean", "words"]
    assert len({push.step.number for push in request.pushes}) == 1
    assert fake.requests("Push") == [] and fake.requests("SetLearningRate") == []


def test_a_step_that_failed_is_pushed_again_under_its_name(
    fake: FakeServer, fake_ps: slotwise.Client
) -> None:
    theirs, ours = make_twins("adagrad")
    st.adopt(ours.model, fake_ps, ours.optimizers)
    (batch, other) = batches(2)

    def lose_the_answer(_rank: int, method: str, _request: Any) -> None:
        if method == "PushMany":
            raise Refused(grpc.StatusCode.INTERNAL)  # the client does not send it again by itself

    fake.after = lose_the_answer
    for _ in range(2):
        with pytest.raises(slotwise.Error):
            ours.step(batch) if not fake.requests("PushMany") else ours.optimizers[0].step()
    fake.after = lambda *_: None
    for optimizer in ours.optimizers:
        optimizer.step()
    assert fake_ps.describe_table("words").steps == 1
    theirs.step(batch)
    assert abs(theirs.step(other) - ours.step(other)) <= 1e-5
    assert fake_ps.describe_table("words").steps == 2
    expect_equal_models(ours.model, theirs.model)


def test_gradients_that_are_not_finite_change_nothing(fake_ps: slotwise.Client) -> None:
    for kind in ("sgd", "sgd-sparse"):
        _, ours = make_twins(kind)
        st.adopt(ours.model, fake_ps, ours.optimizers, prefix=f"{kind}.")
        (batch,) = batches(1)
        ours.step(batch)
        before = ours.model.state_dict()
        with pytest.raises(slotwise.InvalidArgument, match=r"words: the weight's gradient has NaN"):
            ours.model.zero_grad()
            (ours.model.words(batch.words) * float("nan")).sum().backward()
            ours.model(batch).backward()
            ours.optimizers[0].step()
        torch.testing.assert_close(ours.model.state_dict(), before, rtol=0, atol=0)
        ours.step(batch)


def test_a_failed_step_with_a_gradient_that_has_grown_is_another_step(
    fake: FakeServer, fake_ps: slotwise.Client
) -> None:
    theirs, ours = make_twins("sgd")
    st.adopt(ours.model, fake_ps, ours.optimizers)
    for number, batch in enumerate(batches(2)):
        for trained in (theirs, ours):
            trained.model(batch).backward()
        if number == 0:  # nothing is applied

            def refuse(_rank: int, method: str, _request: Any) -> None:
                if method == "PushMany":
                    raise Refused(grpc.StatusCode.INTERNAL)

            fake.before = refuse
            with pytest.raises(slotwise.Error):
                ours.optimizers[0].step()
            fake.before = lambda *_: None
    theirs.optimizers[0].step()
    ours.optimizers[0].step()
    first, second = fake.requests("PushMany")
    assert first.pushes[0].step.number != second.pushes[0].step.number
    expect_equal_models(ours.model, theirs.model)


@pytest.mark.parametrize("rate", [-0.1, float("inf"), float("nan")])
def test_a_rate_that_no_table_has_is_refused_at_the_step(fake_ps: slotwise.Client, rate: float) -> None:
    _, ours = make_twins("sgd")
    st.adopt(ours.model, fake_ps, ours.optimizers)
    (batch,) = batches(1)
    ours.optimizers[0].param_groups[0]["lr"] = rate
    with pytest.raises(slotwise.InvalidArgument, match=f"lr of torch.optim.SGD is {rate}, not 0"):
        ours.step(batch)
    assert fake_ps.describe_table("words").steps == 0
    assert fake_ps.describe_table("words").learning_rate == pytest.approx(0.2)


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
