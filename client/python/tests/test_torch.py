"""The module against torch's own nn.EmbeddingBag, on the fake server and the real one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from twins import OPTIMIZERS, expect_equal_steps, first_rows

import slotwise
import slotwise.torch

DIM, SLOTS = 4, 2
KEYS = torch.tensor([3, 3, -1, 0, 7, 11, 5, 3, 3])
OFFSETS = torch.tensor([0, 2, 3, 3, 6, 7, 9])  # 3 samples of 2 bags
ONE = torch.tensor([[1, 2]])


def make(ps: slotwise.Client, **options: object) -> slotwise.torch.EmbeddingBag:
    settings = {"dim": DIM, "slots": SLOTS, "optimizer": slotwise.SGD(lr=0.1)} | options
    ps.create_table("ads", **settings)  # type: ignore[arg-type]
    return slotwise.torch.EmbeddingBag(ps, "ads")


@pytest.mark.parametrize("mode", ["sum", "mean", "weighted sum"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_it_trains_as_torchs_own_module(any_ps: slotwise.Client, kind: str, mode: str) -> None:
    optimizer, make_optimizer = OPTIMIZERS[kind]
    mode, weights = mode.split()[-1], torch.linspace(-2, 1, len(KEYS)) if " " in mode else None
    ours = make(any_ps, combiner=mode, optimizer=optimizer)
    rows, numbers = first_rows(any_ps, "ads", KEYS)
    theirs = nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode=mode, sparse=kind == "adam")
    expect_equal_steps(
        make_optimizer(theirs.parameters()),
        lambda: ours(KEYS, OFFSETS, weights),
        lambda: theirs(numbers, OFFSETS[:-1], weights).reshape(3, SLOTS * DIM),
        steps=4,
    )
    assert any_ps.describe_table("ads").steps == 4


def test_one_key_a_slot_needs_no_offsets(ps: slotwise.Client) -> None:
    bag = make(ps)
    keys = torch.tensor([[1, 2], [3, 4]])
    torch.testing.assert_close(bag(keys), bag(keys.flatten(), torch.arange(5)))
    bag(keys).sum().backward()
    torch.testing.assert_close(bag(keys), bag(keys.flatten()))


def test_what_takes_no_gradient_pushes_nothing_and_eval_inserts_nothing(ps: slotwise.Client) -> None:
    bag = make(ps)
    output = bag.eval()(ONE)
    assert not output.requires_grad and not output.any() and output.shape == (1, SLOTS * DIM)
    assert ps.describe_table("ads").rows == 0
    bag.train()
    with torch.no_grad():
        assert not bag(ONE).requires_grad
    assert bag(ONE).requires_grad
    assert ps.describe_table("ads").rows == 2 and ps.describe_table("ads").steps == 0
    assert list(bag.parameters()) == [] and bag.state_dict() == {}, "the rows are no parameters of the model"
    assert str(bag) == "EmbeddingBag('ads', slots=2, dim=4)"


def test_keys_overwritten_before_backward_are_refused(ps: slotwise.Client) -> None:
    keys = ONE.clone()
    output = make(ps)(keys)
    keys.fill_(9)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_a_missing_table_is_told_at_once(ps: slotwise.Client) -> None:
    with pytest.raises(slotwise.NotFound):
        slotwise.torch.EmbeddingBag(ps, "ads")
