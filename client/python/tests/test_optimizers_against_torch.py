"""Every optimizer on the real server against torch.optim in double, over 20 steps, to 1e-6.

Rows and gradients are as large as those of a model: rows of some 0.05 that move by some 0.1. The
server's rows are float32, so at a row of 1 every step may round by 6e-8, at one of 4 by 2.4e-7, and
20 steps of that are past 1e-6 however right the formula is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from real_server import RealServer, empty_client
from torch import Tensor

import slotwise

DIM, STEPS = 5, 20
KEYS = np.array([3, 0, 2**64 - 1, 7, 2**63, 11, 5, 123456789], dtype=np.uint64)
DECAY = 0.01

MakeOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]
# These move every row at every step, so every key is in every batch.
DENSE: dict[str, tuple[slotwise.optimizers.Optimizer, MakeOptimizer]] = {
    "sgd": (slotwise.SGD(0.05), lambda p: torch.optim.SGD(p, lr=0.05)),
    "sgd-decay": (
        slotwise.SGD(0.05, weight_decay=DECAY),
        lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=DECAY),
    ),
    "momentum": (slotwise.Momentum(0.02, momentum=0.8), lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.8)),
    "momentum-decay": (
        slotwise.Momentum(0.02, weight_decay=DECAY),
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=DECAY),
    ),
    "nesterov": (
        slotwise.Nesterov(0.02, momentum=0.8),
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.8, nesterov=True),
    ),
    "nesterov-decay": (
        slotwise.Nesterov(0.02, weight_decay=DECAY),
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True, weight_decay=DECAY),
    ),
    "adagrad-decay": (
        slotwise.AdaGrad(0.05, initial_accumulator=0.1, weight_decay=DECAY),
        lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=0.1, weight_decay=DECAY),
    ),
    "adam": (
        slotwise.Adam(0.01, epsilon=1e-3, weight_decay=DECAY, corrected_epsilon=True),
        lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3, weight_decay=DECAY),
    ),
    "adamw": (
        slotwise.Adam(0.01, weight_decay=0.5, corrected_epsilon=True, decoupled_decay=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5),
    ),
    "rmsprop": (slotwise.RMSProp(0.01), lambda p: torch.optim.RMSprop(p, lr=0.01)),
    "rmsprop-decay": (
        slotwise.RMSProp(0.01, beta=0.9, epsilon=1e-4, weight_decay=DECAY),
        lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-4, weight_decay=DECAY),
    ),
}
# These leave a row alone that a step does not touch.
SPARSE: dict[str, tuple[slotwise.optimizers.Optimizer, MakeOptimizer]] = {
    "sgd": (slotwise.SGD(0.05), lambda p: torch.optim.SGD(p, lr=0.05)),
    "adagrad": (slotwise.AdaGrad(0.05), lambda p: torch.optim.Adagrad(p, lr=0.05)),
    "adam": (slotwise.Adam(0.01), lambda p: torch.optim.SparseAdam(p, lr=0.01)),
    "adam-other": (
        slotwise.Adam(0.01, beta1=0.7, beta2=0.95, epsilon=1e-3),
        lambda p: torch.optim.SparseAdam(p, lr=0.01, betas=(0.7, 0.95), eps=1e-3),
    ),
    "rowwise-adagrad, where a row's gradients are equal": (
        slotwise.RowWiseAdaGrad(0.05, initial_accumulator=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=0.1),
    ),
    # McMahan 2011: FTRL-proximal is then gradient descent at the rate lr / (beta + sqrt(n)).
    "ftrl without penalties, from zero": (
        slotwise.FTRL(0.1, beta=0.5), lambda p: torch.optim.Adagrad(p, lr=0.1, eps=0.5)
    ),
}


class Twins:
    """The same rows on the server and in torch, fed the same gradients."""

    def __init__(self, ps: slotwise.Client, make: MakeOptimizer) -> None:
        self.ps = ps
        self.generator = np.random.default_rng(1)
        self.first_rows = torch.from_numpy(ps.lookup("ads", KEYS)).double()
        self.rows = self.first_rows.clone().requires_grad_()
        self.optimizer = make([self.rows])

    def step(self, which: NDArray[np.int64], gradients: NDArray[np.float32], sparse: bool) -> None:
        """One step in which the rows `which`, repeated or not, get these gradients."""
        self.ps.push("ads", KEYS[which], None, gradients)
        gradient = torch.sparse_coo_tensor(
            torch.from_numpy(which)[None], torch.from_numpy(gradients).double(), self.rows.shape
        )
        self.rows.grad = gradient.coalesce() if sparse else gradient.to_dense()
        self.optimizer.step()

    def random_gradients(self, count: int) -> NDArray[np.float32]:
        return self.generator.normal(0, 0.1, size=(count, DIM)).astype(np.float32)

    def expect_equal(self) -> None:
        ours = torch.from_numpy(self.ps.lookup("ads", KEYS, train=False)).double()
        torch.testing.assert_close(ours, self.rows.detach(), rtol=0, atol=1e-6)

    def expect_moved(self) -> None:
        """By far more than the tolerance."""
        assert (self.rows.detach() - self.first_rows).abs().mean() > 0.01


@pytest.fixture
def server(real: RealServer) -> Iterator[slotwise.Client]:
    """A client of the real server, without tables."""
    with empty_client(real) as client:
        yield client


@pytest.mark.parametrize("kind", DENSE)
def test_rows_that_are_in_every_step_move_as_torchs(server: slotwise.Client, kind: str) -> None:
    optimizer, make = DENSE[kind]
    server.create_table("ads", dim=DIM, optimizer=optimizer)
    twins = Twins(server, make)
    # Every key once, and some again: their gradients are summed.
    which = np.array([*range(len(KEYS)), 0, 0, 3])
    for _ in range(STEPS):
        twins.step(which, twins.random_gradients(len(which)), sparse=False)
        twins.expect_equal()
    twins.expect_moved()


@pytest.mark.parametrize("kind", SPARSE)
def test_rows_that_are_in_some_steps_move_as_torchs(server: slotwise.Client, kind: str) -> None:
    optimizer, make = SPARSE[kind]
    begin = slotwise.Constant(0) if kind.startswith("ftrl") else slotwise.Normal()
    server.create_table("ads", dim=DIM, optimizer=optimizer, initializer=begin)
    twins = Twins(server, make)
    for _ in range(STEPS):
        which = twins.generator.integers(0, len(KEYS), size=6)
        gradients = twins.random_gradients(6)
        if kind.startswith("rowwise"):
            gradients = np.repeat(gradients[:, :1], DIM, axis=1)
        twins.step(which, gradients, sparse=True)
        twins.expect_equal()
    twins.expect_moved()


def test_ftrl_with_lambda1_makes_small_weights_zero(server: slotwise.Client) -> None:
    optimizer = slotwise.FTRL(0.1, lambda1=4.0, lambda2=0.1)
    server.create_table("ads", dim=DIM, optimizer=optimizer)
    gradients = np.random.default_rng(2).normal(size=(STEPS, len(KEYS), DIM)).astype(np.float32)
    for step in gradients:
        server.push("ads", KEYS, None, step)
    rows = server.lookup("ads", KEYS, train=False)
    assert 0.1 < (rows == 0).mean() < 0.95
    assert np.isfinite(rows).all()
