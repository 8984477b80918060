"""The module against torch's own nn.EmbeddingBag, on the fake server and the real one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import slotwise
import slotwise.torch

DIM, SLOTS = 4, 2
KEYS = torch.tensor([3, 3, -1, 0, 7, 11, 5, 3, 3])
OFFSETS = torch.tensor([0, 2, 3, 3, 6, 7, 9])  # 3 samples of 2 bags

OPTIMIZERS = {
    "sgd": (slotwise.SGD(lr=0.1), lambda rows: torch.optim.SGD(rows, lr=0.1)),
    "adagrad": (slotwise.AdaGrad(lr=0.1), lambda rows: torch.optim.Adagrad(rows, lr=0.1)),
    "adam": (slotwise.Adam(lr=0.1), lambda rows: torch.optim.SparseAdam(rows, lr=0.1)),
}


def make(ps: slotwise.Client, **options: object) -> slotwise.torch.EmbeddingBag:
    settings = {"dim": DIM, "slots": SLOTS, "optimizer": slotwise.SGD(lr=0.1)} | options
    ps.create_table("ads", **settings)  # type: ignore[arg-type]
    return slotwise.torch.EmbeddingBag(ps, "ads")


def local_twin(ps: slotwise.Client, mode: str, sparse: bool) -> tuple[nn.EmbeddingBag, Tensor]:
    """torch's module with the server's first rows, and KEYS as its row numbers."""
    unique, numbers = torch.unique(KEYS, return_inverse=True)
    bag_a_key = np.minimum(np.arange(len(unique) * SLOTS + 1), len(unique))  # the rest are empty
    rows = torch.from_numpy(ps.lookup("ads", unique.numpy(), bag_a_key)).reshape(-1, DIM)
    rows = rows[: len(unique)].clone()
    return nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode=mode, sparse=sparse), numbers


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_it_trains_as_torchs_own_module(ps: slotwise.Client, kind: str, mode: str) -> None:
    remote_optimizer, make_optimizer = OPTIMIZERS[kind]
    ours = make(ps, combiner=mode, optimizer=remote_optimizer)
    theirs, numbers = local_twin(ps, mode, sparse=kind == "adam")
    optimizer = make_optimizer(theirs.parameters())
    torch.manual_seed(0)
    weights = torch.randn(SLOTS * DIM)

    for step in range(4):
        our_output = ours(KEYS, OFFSETS)
        their_output = theirs(numbers, OFFSETS[:-1]).reshape(3, SLOTS * DIM)
        torch.testing.assert_close(our_output, their_output, rtol=1e-5, atol=1e-6)

        ((our_output * weights).sum(1) - step).square().mean().backward()
        optimizer.zero_grad()
        ((their_output * weights).sum(1) - step).square().mean().backward()
        optimizer.step()
    assert ps.describe_table("ads").steps == 4


def test_one_key_a_slot_needs_no_offsets(ps: slotwise.Client) -> None:
    bag = make(ps)
    keys = torch.tensor([[1, 2], [3, 4]])
    torch.testing.assert_close(bag(keys), bag(keys.flatten(), torch.arange(5)))
    bag(keys).sum().backward()
    torch.testing.assert_close(bag(keys), bag(keys.flatten()))


def test_eval_takes_no_gradient_and_inserts_nothing(ps: slotwise.Client) -> None:
    bag = make(ps)
    bag.eval()
    output = bag(torch.tensor([[1, 2]]))
    assert not output.requires_grad
    torch.testing.assert_close(output, torch.zeros(1, SLOTS * DIM))
    assert ps.describe_table("ads").rows == 0
    bag.train()
    assert bag(torch.tensor([[1, 2]])).requires_grad
    assert ps.describe_table("ads").rows == 2


def test_no_backward_means_no_push(ps: slotwise.Client) -> None:
    bag = make(ps)
    with torch.no_grad():
        assert not bag(torch.tensor([[1, 2]])).requires_grad
    bag(torch.tensor([[1, 2]])).sum()
    assert ps.describe_table("ads").steps == 0


def test_the_rows_are_no_parameters_of_the_model(ps: slotwise.Client) -> None:
    bag = make(ps)
    assert list(bag.parameters()) == [] and bag.state_dict() == {}
    assert str(bag) == "EmbeddingBag('ads', slots=2, dim=4)"


def test_errors_of_the_push_are_raised_by_backward(ps: slotwise.Client) -> None:
    bag = make(ps)
    output = bag(torch.tensor([[1, 2]]))
    ps.drop_table("ads")
    with pytest.raises(slotwise.NotFound):
        output.sum().backward()


def test_keys_overwritten_before_backward_are_refused(ps: slotwise.Client) -> None:
    bag = make(ps)
    keys = torch.tensor([[1, 2]])
    output = bag(keys)
    keys.fill_(9)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_a_missing_table_is_told_at_once(ps: slotwise.Client) -> None:
    with pytest.raises(slotwise.NotFound):
        slotwise.torch.EmbeddingBag(ps, "ads")
