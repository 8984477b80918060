"""Adopted weights that grow: ids that they have no row for get one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from real_server import RealServer, StartReal, empty_client
from torch import Tensor, nn

import slotwise
import slotwise.torch as st

ROWS, DIM, NEW = 12, 3, 2**40
SEED = 20261127


class Model(nn.Module):
    """Looks items up, pools tags, and reads the items' weight as a whole."""

    def __init__(self, rows: int = ROWS, sparse: bool = False) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.items = nn.Embedding(rows, DIM, sparse=sparse)
        self.tags = nn.EmbeddingBag(rows, DIM, mode="mean", sparse=sparse)
        self.dense = nn.Linear(DIM, 1)

    def forward(self, items: Tensor, reads: bool = False) -> Tensor:
        """Returns the loss."""
        loss = self.dense(self.items(items).sum(1) + self.tags(items)).square().mean()
        return loss + self.items.weight[:ROWS].square().mean() if reads else loss


def grown(ps: slotwise.Client, model: nn.Module, **more: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    st.adopt(model, ps, optimizer, grow=True, **more)
    return optimizer


def batch(number: int, new: bool) -> Tensor:
    """Ids of which some are new, close by the others and far away."""
    ids = torch.randint(0, ROWS, (4, 5), generator=torch.Generator().manual_seed(number))
    return torch.where(ids % 4 == 3, ids + ROWS, ids) if new else ids


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("sparse", [False, True])
def test_new_ids_train_as_rows_that_were_there(start_real: StartReal, ranks: int, sparse: bool) -> None:
    """A larger weight of torch's, whose rows of new ids are what the server drew, is the same model."""
    print(f"seed {SEED}")
    with empty_client(start_real(ranks)) as ps:
        ours = Model(sparse=sparse)
        optimizer = grown(ps, ours)
        new = np.arange(ROWS, 2 * ROWS)
        for table in ("items", "tags"):
            ps.lookup(table, new)  # draws them
        theirs = Model(2 * ROWS, sparse=sparse)
        with torch.no_grad():
            for table in ("items", "tags"):
                rows = ps.lookup(table, np.arange(2 * ROWS), train=False)
                getattr(theirs, table).weight.copy_(torch.from_numpy(rows))
            theirs.dense.load_state_dict(ours.dense.state_dict())
        torchs = torch.optim.Adagrad(theirs.parameters(), lr=0.1)
        for number in range(8):
            for model, steps in ((theirs, torchs), (ours, optimizer)):
                if number % 2:
                    steps.zero_grad(set_to_none=number % 4 == 1)
                reads = number % 3 == 1 and not sparse
                model(batch(number, new=True), reads).backward()
                model(batch(number + 100, new=number % 4 == 0)).backward()
                if number >= 4 and not sparse:  # torch's own clips no sparse gradients
                    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                steps.step()
        for table in ("items", "tags"):
            rows = torch.from_numpy(ps.lookup(table, np.arange(2 * ROWS), train=False))
            torch.testing.assert_close(rows, getattr(theirs, table).weight.detach())
            assert ps.describe_table(table).rows == 2 * ROWS
        torch.testing.assert_close(ours.dense.state_dict(), theirs.dense.state_dict())


def test_a_row_comes_in_training_alone_and_is_drawn_as_the_weights_are(real: RealServer) -> None:
    model, constant = Model(400), nn.Embedding.from_pretrained(torch.full((4, DIM), 0.5), freeze=False)
    with torch.no_grad():
        model.items.weight.mul_(0.2).add_(3)
    ids = torch.arange(NEW, NEW + 400)
    with empty_client(real) as ps:
        grown(ps, model)
        assert not model.eval().items(ids).any()
        with torch.no_grad():
            assert not model.train().items(ids).any()
        assert ps.describe_table("items").rows == 400
        rows = model.items(ids).detach()
        assert ps.describe_table("items").rows == 800
        assert abs(float(rows.mean()) - 3) < 0.05 and abs(float(rows.std()) - 0.2) < 0.02
        torch.testing.assert_close(model.eval().items(ids), rows)
        torch.testing.assert_close(model.items.rows(ids), rows)
        grown(ps, constant)
        assert (constant(ids) == 0.5).all()


def test_the_gradient_is_sparse_and_what_is_done_to_it_counts(fake_ps: slotwise.Client) -> None:
    module = nn.Embedding(ROWS, DIM)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    st.adopt(module, fake_ps, optimizer, grow=True)
    ids = torch.tensor([1, NEW, NEW])
    before = module(ids).detach()
    assert module.weight.grad is None
    module(ids).sum().backward()
    gradient = module.weight.grad
    assert gradient is module.weight.grad and gradient.shape[0] > NEW
    assert gradient.indices().tolist() == [[1, NEW]] and gradient.values().tolist() == [[1.0] * 3, [2.0] * 3]
    gradient.values().mul_(0.5)  # as GradScaler does
    module(ids[:1]).sum().backward()
    assert module.weight.grad.values().tolist() == [[1.5] * 3, [1.0] * 3]
    optimizer.step()
    torch.testing.assert_close(module(ids).detach(), before - torch.tensor([[1.5], [1.0], [1.0]]))
    assert module.weight.grad is not None, "a step keeps gradients, as torch's does"
    optimizer.zero_grad(set_to_none=True)
    assert module.weight.grad is None
    module(ids).sum().backward()
    module.weight.grad = None
    assert module.weight.grad is None
    module(ids).sum().backward()
    del module.weight.grad
    assert module.weight.grad is None
    steps = fake_ps.describe_table("embedding").steps
    optimizer.step()
    assert fake_ps.describe_table("embedding").steps == steps
    (of_ids,) = torch.autograd.grad(module(ids).sum(), [module(ids)], allow_unused=True)
    assert of_ids is None and module.weight.grad is None
    module.requires_grad_(False)
    assert not module(ids).requires_grad
    other = nn.Parameter(torch.zeros(ROWS, DIM))
    other.grad = module.weight  # another tensor's gradient, and the weight's values
    assert other.grad.shape == (ROWS, DIM)


def test_ids_beyond_what_torch_counts_are_refused(fake_ps: slotwise.Client) -> None:
    module = nn.Embedding(ROWS, DIM)
    grown(fake_ps, module)
    most = 2**62 // DIM
    module(torch.tensor([most - 1])).sum().backward()
    for wrong in (-1, most):
        with pytest.raises(IndexError, match=f"index {wrong} is not in 0 .. {most - 1}, the ids that table"):
            module(torch.tensor([wrong]))


def test_rows_of_new_ids_are_not_lost_unsaid(fake_ps: slotwise.Client) -> None:
    model = Model()
    grown(fake_ps, model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.state_dict()
    model(batch(1, new=True))
    with pytest.warns(UserWarning, match="leaves out .* rows of table items.*slotwise.torch.save"):
        state = model.state_dict()
    assert state["items.weight"].shape == (ROWS, DIM)
    with pytest.raises(slotwise.FailedPrecondition, match="would be lost: release.model, keep_tables=True"):
        st.release(model)
    kept = model.eval().items(torch.arange(ROWS + 4))
    st.release(model, keep_tables=True)
    torch.testing.assert_close(model.items.weight.detach(), kept[:ROWS])
    native = st.Embedding(fake_ps, "items").eval()
    torch.testing.assert_close(native(torch.arange(ROWS + 4)), kept)


def test_a_model_comes_back_to_tables_that_grew(fake_ps: slotwise.Client) -> None:
    model = Model()
    optimizer = grown(fake_ps, model)
    ids = batch(2, new=True)
    model(ids).backward()
    optimizer.step()
    again = Model()
    grown(fake_ps, again, attach=True)
    torch.testing.assert_close(again.items(ids), model.items(ids))
    fixed = Model()
    st.adopt(fixed, fake_ps, torch.optim.Adagrad(fixed.parameters(), lr=0.1), attach=True)
    with pytest.raises(IndexError, match=f"is not in 0 .. {ROWS - 1}"):
        fixed(ids)


def values_of(gradient: Tensor) -> Tensor:
    """All of a dense gradient, and what is not zero of a sparse one."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient.clone()


@pytest.mark.parametrize("grow", [False, True])
def test_a_gradient_moves_behind_its_weight(
    fake_ps: slotwise.Client, monkeypatch: pytest.MonkeyPatch, grow: bool
) -> None:
    """Torch refuses a gradient on another device than its weight's. One device shows the order."""
    module = nn.Embedding(ROWS, DIM)
    st.adopt(module, fake_ps, torch.optim.SGD(module.parameters(), lr=0.1), grow=grow)
    module(torch.tensor([1, 2])).sum().backward()
    before = values_of(module.weight.grad)
    table = module.weight.slotwise_rows
    moved: list[str] = []
    value, free_weight = type(table.gradient).value, table._free_weight

    def set_value(gradient: Any, to: Tensor | None) -> None:
        moved.append("no gradient" if to is None else "the gradient")
        value.fset(gradient, to)

    def free(device: torch.device) -> None:
        moved.append("the weight")
        free_weight(device)

    monkeypatch.setattr(type(table.gradient), "value", property(value.fget, set_value))
    monkeypatch.setattr(table, "_free_weight", free)
    table.move(torch.device("cpu"))
    assert moved == ["no gradient", "the weight", "the gradient"]
    torch.testing.assert_close(values_of(module.weight.grad), before)
