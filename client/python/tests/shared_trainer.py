"""One trainer of a process group, as a process: see test_shared_session.py.

    shared_trainer.py STORE TRAINER TRAINERS ADDRESS KIND

Trains, beside each other, a model whose rows are on the server, and the same model with torch's own
embeddings under DistributedDataParallel, and compares them after each step.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

import slotwise
import slotwise.torch as st

ROWS, DIM, SAMPLES, STEPS = 20, 4, 6, 8
TABLES = ("users", "items")


class Model(nn.Module):
    """Pools users, and items twice: a pair of each sample, of which the second is not wanted."""

    def __init__(self, users: nn.Module, items: nn.Module) -> None:
        super().__init__()
        self.users, self.items = users, items
        self.dense = nn.Linear(DIM, DIM)
        with torch.no_grad():
            self.dense.weight.copy_(torch.linspace(-1, 1, DIM * DIM).reshape(DIM, DIM))
            self.dense.bias.zero_()

    def forward(self, users: Tensor, wanted: Tensor, other: Tensor, with_items: bool) -> Tensor:
        """Returns the mean loss."""
        of_users = self.dense(self.users(users))
        if not with_items:
            return of_users.tanh().mean()
        better = (of_users * (self.items(wanted) - self.items(other))).sum(1)
        return nn.functional.softplus(-better).mean()


def batch(step: int, trainer: int) -> list[Tensor]:
    random = np.random.default_rng([step, trainer])
    return [torch.from_numpy(random.integers(0, ROWS, (SAMPLES, 1))) for _ in range(3)]


def models(ps: slotwise.Client, session: slotwise.Session, in_flight: bool) -> tuple[Model, Model]:
    """Ours, and the one of torch with the same rows."""
    theirs = []
    for number, table in enumerate(TABLES):
        rows = torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(number))
        theirs.append(nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode="sum"))
    ours = [st.EmbeddingBag(ps, table, session=session, in_flight=in_flight) for table in TABLES]
    return Model(*ours), Model(*theirs)


def make_tables(ps: slotwise.Client) -> None:
    """As `models` has them."""
    for number, table in enumerate(TABLES):
        ps.create_table(table, dim=DIM, optimizer=slotwise.AdaGrad(0.1, initial_accumulator=0.1))
        rows = torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(number))
        ps.import_rows(table, np.arange(ROWS), rows.numpy())


def train(ps: slotwise.Client, kind: str) -> None:
    trainer = distributed.get_rank()
    session = st.shared_session(ps)
    ours, theirs = models(ps, session, in_flight=kind == "in_flight")
    dense: Any = DistributedDataParallel(ours.dense)
    ours.dense = dense
    # Torch has to be told that not every trainer's loss needs every weight.
    parallel = DistributedDataParallel(theirs, find_unused_parameters=kind == "one has none")
    optimizers = [
        torch.optim.Adagrad(model.parameters(), lr=0.1, initial_accumulator_value=0.1)
        for model in (ours, theirs)
    ]
    for step in range(STEPS):
        with_items = kind != "one has none" or (step + trainer) % 2 == 0
        losses = []
        for model, optimizer in zip((ours, parallel), optimizers):
            optimizer.zero_grad()
            loss = model(*batch(step, trainer), with_items)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5, err_msg=f"step {step}")
    for module in (ours.users, ours.items):
        assert isinstance(module, st.EmbeddingBag)
        module.flush()
    distributed.barrier()
    for table, twin in zip(TABLES, (theirs.users, theirs.items)):
        assert isinstance(twin, nn.EmbeddingBag)
        rows = ps.lookup(table, np.arange(ROWS), train=False)
        np.testing.assert_allclose(rows, twin.weight.detach().numpy(), rtol=1e-4, atol=1e-5)
        assert ps.describe_table(table).steps == STEPS
    distributed.barrier()


def push_large(ps: slotwise.Client) -> None:
    """Shares of 4 MiB, which a message of 1 MiB cannot hold, and a smaller one of one trainer."""
    trainer = distributed.get_rank()
    bag = st.EmbeddingBag(ps, "wide", session=st.shared_session(ps))
    for rows in (2048, 2048, 3000):
        keys = torch.arange(rows if trainer == 0 else 7)
        bag(keys).sum().backward()
    assert ps.describe_table("wide").steps == 3
    try:
        bag(torch.arange(9000)).sum().backward()
    except slotwise.InvalidArgument as error:
        assert "wants 18 parts" in error.message and "shared_session(parts=18)" in error.message, error
    else:
        raise AssertionError("more than twice the first step's size")
    distributed.barrier()


def main() -> None:
    """The process."""
    store, trainer, trainers, address, kind = sys.argv[1:]
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(trainer), world_size=int(trainers)
    )
    with slotwise.connect(address, timeout=60) as ps:
        push_large(ps) if kind == "large" else train(ps, kind)


if __name__ == "__main__":
    main()
