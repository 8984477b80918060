"""A model of torch's own embeddings, its twin that is adopted, and what both are fed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import slotwise
import slotwise.torch as st

SEED = 20261122
ADS, WORDS, DIM = 40, 15, 4

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
# All torch optimizers that a table's optimizer equals, and whether the embeddings are sparse.
OPTIMIZERS: dict[str, tuple[MakeOptimizer, bool]] = {
    "sgd": (lambda weights: torch.optim.SGD(weights, lr=0.2), False),
    "sgd-sparse": (lambda weights: torch.optim.SGD(weights, lr=0.2), True),
    "adagrad": (lambda weights: torch.optim.Adagrad(weights, lr=0.1), False),
    "adagrad-sparse": (lambda w: torch.optim.Adagrad(w, 0.1, initial_accumulator_value=0.2, eps=1e-4), True),
    "sparse-adam": (lambda weights: torch.optim.SparseAdam(weights, lr=0.01), True),
    "sparse-adam-other": (lambda w: torch.optim.SparseAdam(w, 0.02, betas=(0.8, 0.95), eps=1e-4), True),
}


class Batch(NamedTuple):
    ads: Tensor  # int64 [keys]
    offsets: Tensor  # int64 [8], without the end
    weights: Tensor  # float32 [keys]
    words: Tensor  # int64 [8, 3]
    labels: Tensor  # float32 [8]


class Clicks(nn.Module):
    """Weighted and averaged bags of one weight, a padded embedding, and a dense layer."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.ads = nn.ModuleDict(
            {
                "sum": nn.EmbeddingBag(ADS, DIM, mode="sum", sparse=sparse, padding_idx=2),
                "mean": nn.EmbeddingBag(ADS, DIM, mode="mean", sparse=sparse, padding_idx=5),
            }
        )
        self.words = nn.Embedding(WORDS, DIM, sparse=sparse, padding_idx=0)
        self.top = nn.Linear(3 * DIM, 1)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the loss."""
        found = [
            self.ads["sum"](batch.ads, batch.offsets, batch.weights),
            self.ads["mean"](batch.ads, batch.offsets),
            self.words(batch.words).sum(1),
        ]
        return (self.top(torch.cat(found, 1).tanh())[:, 0] - batch.labels).square().mean()


class Trained(NamedTuple):
    """A model, and the optimizers of its embeddings and of its dense layer."""

    model: Clicks
    optimizers: list[torch.optim.Optimizer]

    def step(self, batch: Batch) -> float:
        """One step of the usual training loop; returns the loss before it."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.model(batch)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()


def embedding_weights(model: nn.Module) -> list[nn.Parameter]:
    return [m.weight for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))]


def make_twins(kind: str) -> tuple[Trained, Trained]:
    """Two equal models, with optimizers of their own."""
    make, sparse = OPTIMIZERS[kind]
    torch.manual_seed(SEED)
    model = Clicks(sparse)
    return make_trained(model, make), make_trained(copy.deepcopy(model), make)


def make_trained(model: Clicks, make: MakeOptimizer) -> Trained:
    dense = torch.optim.Adam(model.top.parameters(), lr=0.01)
    return Trained(model, [make(embedding_weights(model)), dense])


def batches(count: int, seed: int = SEED) -> Iterator[Batch]:
    """Yields batches of 8 samples, whose bags have 0 to 20 ids, and whose labels can be learnt."""
    print(f"seed {seed}")
    generator = torch.Generator().manual_seed(seed)

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=generator)

    taste = torch.randn(ADS, generator=generator)
    for _ in range(count):
        ads = draw(ADS, int(draw(20, 1)) + 1)
        offsets = draw(len(ads) + 1, 8).sort().values
        offsets[0] = 0
        weights = torch.rand(len(ads), generator=generator)
        bag = torch.bucketize(torch.arange(len(ads)), offsets[1:], right=True)
        labels = torch.zeros(8).index_add_(0, bag, taste[ads]).tanh()
        yield Batch(ads, offsets, weights, draw(WORDS, 8, 3), labels)


def adopt_one(ps: slotwise.Client, kind: str) -> tuple[Trained, Trained]:
    """Two equal models, of which the second is adopted."""
    theirs, ours = make_twins(kind)
    st.adopt(ours.model, ps, ours.optimizers)
    return theirs, ours


def expect_equal_steps(
    twins: tuple[Trained, Trained],
    count: int,
    step: Callable[[Trained, int, Batch], object] = lambda trained, _, batch: trained.step(batch),
    seed: int = SEED,
) -> list[Any]:
    """Trains both, and compares what steps return, and the models; returns what ours returned."""
    told: list[Any] = []
    for number, batch in enumerate(batches(count, seed)):
        theirs, ours = (step(trained, number, batch) for trained in twins)
        assert ours == (None if theirs is None else pytest.approx(theirs, rel=1e-5, abs=1e-5)), number
        told.append(ours)
    expect_equal_models(twins[1].model, twins[0].model)
    return told


def step_each(pairs: Iterable[tuple[Any, torch.optim.Optimizer]], loss_of: Callable[[Any], Tensor]) -> None:
    """Makes a step of each model by its loss, and compares the losses."""
    losses = []
    for model, optimizer in pairs:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-5, abs=1e-5)


def expect_equal_models(ours: nn.Module, theirs: nn.Module) -> None:
    """Compares state_dict()s, to 1e-5."""
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    for name, tensor in ours.state_dict().items():
        torch.testing.assert_close(tensor, state[name], rtol=0, atol=1e-5, msg=name)


def expect_equal_states(ours: Any, theirs: Any) -> None:
    """Compares optimizers' state_dict()s, to 1e-5 and in the types of their counts."""
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    # SGD writes down, after its first step, that it has no momentum_buffer.
    known = {n: s for n, s in theirs["state"].items() if s != {"momentum_buffer": None}}
    assert ours["state"].keys() >= known.keys()
    for number, state in known.items():
        assert ours["state"][number].keys() == state.keys()
        for name, value in state.items():
            assert type(ours["state"][number][name]) is type(value), name
            if isinstance(value, Tensor):
                torch.testing.assert_close(ours["state"][number][name], value, rtol=1e-4, atol=1e-5, msg=name)
            else:
                assert ours["state"][number][name] == value
