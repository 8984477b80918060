"""Checkpoints, copies and pickles of adopted models have the rows; our own modules refuse."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from adopted import OPTIMIZERS, Clicks, Trained, adopt_one, embedding_weights, expect_equal_models
from adopted import expect_equal_states, expect_equal_steps, make_trained, step_each
from fake_server import FakeServer
from torch import nn

import slotwise
import slotwise.torch as st


def make_trained_twins(ps: slotwise.Client, kind: str) -> tuple[Trained, Trained]:
    """Two models after the same 5 steps; the second is adopted."""
    twins = adopt_one(ps, kind)
    expect_equal_steps(twins, 5, seed=1)
    return twins


def make_untrained(kind: str) -> Trained:
    """A model that begins elsewhere."""
    make, sparse = OPTIMIZERS[kind]
    torch.manual_seed(99)
    return make_trained(Clicks(sparse), make)


def through_a_file(thing: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **options)


def checkpoint(trained: Trained) -> dict[str, Any]:
    """What a training loop saves."""
    return {
        "model": trained.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in trained.optimizers],
    }


def resume(trained: Trained, saved: dict[str, Any]) -> None:
    trained.model.load_state_dict(saved["model"])
    for optimizer, state in zip(trained.optimizers, saved["optimizers"]):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_checkpoints_are_torchs_own(ps: slotwise.Client, kind: str) -> None:
    theirs, ours = make_trained_twins(ps, kind)
    expect_equal_models(ours.model, theirs.model)
    expect_equal_states(ours.optimizers[0], theirs.optimizers[0])
    saved = copy.deepcopy(checkpoint(ours))
    plain = make_untrained(kind)
    resume(plain, through_a_file(saved))  # into a model that is torch's
    st.release(ours.model)
    adopted = make_untrained(kind)
    st.adopt(adopted.model, ps, adopted.optimizers)
    resume(adopted, through_a_file(saved))  # into one that is adopted
    expect_equal_steps((plain, adopted), 5, seed=2)
    expect_equal_steps((theirs, ours), 5, seed=2)
    for trained in (plain, adopted):
        expect_equal_models(trained.model, theirs.model)
        expect_equal_states(trained.optimizers[0], theirs.optimizers[0])


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_that_has_made_no_step_has_torchs_state(fake_ps: slotwise.Client, kind: str) -> None:
    theirs, ours = adopt_one(fake_ps, kind)
    expect_equal_states(ours.optimizers[0], theirs.optimizers[0])
    assert (ours.optimizers[0].state_dict()["state"] == {}) == (not kind.startswith("adagrad"))


@pytest.mark.parametrize("kind", ["adagrad", "sparse-adam"])
def test_loading_weights_alone_keeps_the_optimizers_state(fake_ps: slotwise.Client, kind: str) -> None:
    theirs, ours = make_trained_twins(fake_ps, kind)
    other = make_untrained(kind).model.state_dict()
    for model, _ in (theirs, ours):
        assert str(model.load_state_dict(other)) == "<All keys matched successfully>"
    expect_equal_states(ours.optimizers[0], theirs.optimizers[0])
    expect_equal_steps((theirs, ours), 5, seed=2)


def test_a_state_that_does_not_fit_is_refused_as_torch_does(fake_ps: slotwise.Client) -> None:
    model = nn.ModuleDict({"words": nn.Embedding(5, 2)}).requires_grad_(False)
    st.adopt(model, fake_ps)
    before = model.state_dict()
    with pytest.raises(RuntimeError, match=r"size mismatch for words\.weight: \(4, 2\), not \(5, 2\)"):
        model.load_state_dict({"words.weight": torch.zeros(4, 2)})
    with pytest.raises(RuntimeError, match=r"Missing key.*words\.weight"):
        model.load_state_dict({})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*words\.bias"):
        model.load_state_dict({"words.weight": torch.zeros(5, 2), "words.bias": torch.zeros(1)})
    model.load_state_dict(before | {"more": torch.zeros(1)}, strict=False)
    torch.testing.assert_close(model.state_dict(), before)


def test_adam_cannot_go_back_to_an_earlier_step(fake_ps: slotwise.Client) -> None:
    theirs, ours = make_trained_twins(fake_ps, "sparse-adam")
    earlier = ours.optimizers[0].state_dict()
    expect_equal_steps((theirs, ours), 5, seed=2)
    before = ours.optimizers[0].state_dict()
    with pytest.raises(slotwise.FailedPrecondition, match="made 10 steps and cannot go back to 5"):
        ours.optimizers[0].load_state_dict(earlier)
    expect_equal_states(ours.optimizers[0], theirs.optimizers[0])
    assert before["state"].keys() == {0, 1, 2} and ours.optimizers[0].state == {}


@pytest.mark.parametrize("kind", ["sgd", "adagrad-sparse"])
def test_copies_and_pickles_are_torchs_own_modules(ps: slotwise.Client, kind: str) -> None:
    theirs, ours = make_trained_twins(ps, kind)
    whole = {"weights_only": False} if torch.__version__ >= "2" else {}
    copies = [
        copy.deepcopy(ours.model),
        pickle.loads(pickle.dumps(ours.model)),
        through_a_file(ours.model, **whole),
    ]
    then = copy.deepcopy(theirs.model)
    expect_equal_steps((theirs, ours), 5, seed=2)  # copies stay as they were
    for one in copies:
        assert [type(m) for m in one.modules()] == [type(m) for m in then.modules()]
        assert all(weight.requires_grad for weight in embedding_weights(one))
        expect_equal_models(one, then)


def test_copies_of_modules_that_share_a_weight_share_one(fake_ps: slotwise.Client) -> None:
    model = nn.ModuleList([nn.Embedding(5, 2), nn.Embedding(5, 2, padding_idx=1)])
    model[1].weight = model[0].weight
    rows = model[0].weight.detach().clone()
    st.adopt(model, fake_ps, torch.optim.SGD(model.parameters(), lr=0.1))
    for one in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert one[0].weight is one[1].weight and isinstance(one[0].weight, nn.Parameter)
        torch.testing.assert_close(one[0].weight.detach(), rows)
        one[0](torch.tensor([0])).sum().backward()
        assert one[1].weight.grad is not None
    assert model[0].weight.grad is None


def test_large_tables_go_in_chunks(
    fake: FakeServer, fake_ps: slotwise.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slotwise._adopt.table._CHUNK_BYTES", 200)
    torch.manual_seed(0)
    theirs, ours = (nn.Embedding(50, 2, sparse=True) for _ in range(2))
    ours.load_state_dict(theirs.state_dict())
    twins = [(module, torch.optim.SparseAdam(list(module.parameters()), lr=0.1)) for module in (theirs, ours)]

    def step() -> None:
        step_each(twins, lambda module: module(torch.arange(0, 50, 3)).square().sum())

    step()
    st.adopt(ours, fake_ps, twins[1][1])
    assert len(fake.requests("Import")) >= 8
    step()
    other = {"weight": torch.randn(50, 2)}
    theirs.load_state_dict(other)
    ours.load_state_dict(other)
    step()
    st.release(ours)
    step()
    torch.testing.assert_close(ours.weight, theirs.weight)
    expect_equal_states(twins[1][1], twins[0][1])


def test_our_own_modules_say_what_to_do_instead_of_a_copy(fake_ps: slotwise.Client) -> None:
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.1))
    fake_ps.create_table("words", dim=2, combiner="none", optimizer=slotwise.SGD(0.1))
    modules = {
        "EmbeddingBag of ads": st.EmbeddingBag(fake_ps, "ads"),
        "Embedding of words": st.Embedding(fake_ps, "words"),
        "EmbeddingBags of ads, words": st.EmbeddingBags(fake_ps, ["ads", "words"]),
    }
    for name, module in modules.items():
        ways = "slotwise.rows.save_npy, .*slotwise.torch.export_module"
        message = f"{name} cannot be copied or pickled, .* {ways}"
        for use in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=message):
                use(nn.Sequential(module) if use is not copy.copy else module)
        assert module.state_dict() == {} and str(module.load_state_dict({})).startswith("<All")
