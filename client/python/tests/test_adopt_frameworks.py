"""Models as recommender packages write them train adopted as plain, by tests/frameworks' comparison.

Its packages want a later PyTorch than the distribution's, so the models here have this file's own code.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from judged_times import LONG_FORMS
from real_server import RealServer, empty_client
from torch import Tensor, nn

import slotwise
import slotwise.torch as st

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "frameworks"))
import trial  # noqa: E402
from trial import SEED, STEPS, Trial  # noqa: E402

USERS, ITEMS, DIM, BATCH, LENGTH = 60, 90, 8, 16, 6


@pytest.fixture
def ps(real: RealServer) -> Iterator[slotwise.Client]:
    """A client of a server of 2 ranks, without tables."""
    with empty_client(real) as client:
        yield client


class Clicks(nn.Module):
    """A click's probability, as DeepFM has it: linear weights, pairs and layers over several fields.

    L2 terms are of all embeddings, which are chosen by their type.
    """

    def __init__(self) -> None:
        super().__init__()
        fields = {"user": USERS, "item": ITEMS}
        self.rows = nn.ModuleDict({name: nn.Embedding(count, DIM) for name, count in fields.items()})
        self.linear = nn.ModuleDict({name: nn.Embedding(count, 1) for name, count in fields.items()})
        self.top = nn.Sequential(nn.Linear(2 * DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1))
        for module in self.modules():
            if type(module) in [nn.Embedding]:
                nn.init.normal_(module.weight, std=0.05)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        given = {"user": users, "item": items[:, -1]}
        first, second = (self.rows[name](keys) for name, keys in given.items())
        told = sum(self.linear[name](keys) for name, keys in given.items())
        told = told + (first * second).sum(1, keepdim=True) + self.top(torch.cat([first, second], 1))
        return told.squeeze(1).sigmoid()

    def loss(self, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        embeddings = [module for module in self.modules() if type(module) == nn.Embedding]  # noqa: E721
        penalty = 1e-2 * sum(module.weight.square().sum() for module in embeddings)
        return nn.functional.binary_cross_entropy(self(users, items), labels, reduction="sum") + penalty

    def metrics(self, users: Tensor, items: Tensor, labels: Tensor) -> dict[str, float]:
        """Returns the area under the ROC curve."""
        told = self(users, items)
        above = told[labels > 0][:, None] - told[labels == 0]
        return {"auc": float((above > 0).float().mean())}


class Sequence(nn.Module):
    """The next item, as SASRec tells it: attention over a padded history, and a softmax of all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM, padding_idx=0)
        self.positions = nn.Embedding(LENGTH, DIM)
        self.attention = nn.MultiheadAttention(DIM, 2, batch_first=True)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, history: Tensor) -> Tensor:
        found = self.norm(self.items(history) + self.positions(torch.arange(history.shape[1])))
        hidden = torch.ones(history.shape[1], history.shape[1], dtype=torch.bool).triu(1)
        seen, _ = self.attention(found, found, found, attn_mask=hidden)
        return self.norm(seen + found)[:, -1] @ self.items.weight.T

    def loss(self, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self(items[:, :-1]), items[:, -1])

    def metrics(self, users: Tensor, items: Tensor, labels: Tensor) -> dict[str, float]:
        """Returns how often the item is one of the ten best of all."""
        best = self(items[:, :-1]).topk(10).indices
        return {"hit@10": float((best == items[:, -1:]).any(1).float().mean())}


class Graph(nn.Module):
    """Pairs ranked as LightGCN ranks them: both weights are read whole and passed over the graph's edges."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, DIM), nn.Embedding(ITEMS, DIM)
        random = torch.Generator().manual_seed(SEED)
        edges = torch.stack([torch.randint(0, USERS, (300,), generator=random), torch.zeros(300).long()])
        edges[1] = USERS + (3 * edges[0] + torch.randint(0, 5, (300,), generator=random)) % ITEMS
        edges = torch.cat([edges, edges.flip(0)], 1)
        size = (USERS + ITEMS, USERS + ITEMS)
        self.adjacent = torch.sparse_coo_tensor(edges, torch.full((600,), 0.2), size).coalesce()

    def forward(self) -> tuple[Tensor, Tensor]:
        layers = [torch.cat([self.users.weight, self.items.weight])]
        for _ in range(2):
            layers.append(torch.sparse.mm(self.adjacent, layers[-1]))
        users, items = torch.stack(layers).mean(0).split([USERS, ITEMS])
        return users, items

    def loss(self, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        of_users, of_items = self()
        apart = (of_users[users] * (of_items[items[:, -1]] - of_items[items[:, 0]])).sum(1)
        penalty = self.users(users).square().sum() + self.items(items[:, -1]).square().sum()
        return nn.functional.softplus(-apart).mean() + 1e-3 * penalty

    def metrics(self, users: Tensor, items: Tensor, labels: Tensor) -> dict[str, float]:
        """Returns the mean reciprocal rank of the items."""
        of_users, of_items = self()
        scores = of_users[users] @ of_items.T
        ranks = (scores >= scores.gather(1, items[:, -1:])).sum(1)
        return {"mrr": float((1 / ranks).mean())}


class Pairs(nn.Module):
    """Pairs ranked as BPR ranks them, of looked-up rows alone: all others rest."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, DIM), nn.Embedding(ITEMS, DIM)

    def loss(self, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        apart = self.items(items[:, -1]) - self.items(items[:, 0])
        return nn.functional.softplus(-(self.users(users) * apart).sum(1)).mean()

    def metrics(self, users: Tensor, items: Tensor, labels: Tensor) -> dict[str, float]:
        """Returns the mean margin."""
        apart = self.items(items[:, -1]) - self.items(items[:, 0])
        return {"margin": float((self.users(users) * apart).sum(1).mean())}


def draw(number: int, samples: int = BATCH) -> tuple[Tensor, Tensor, Tensor]:
    """Returns users, their histories of items, which tell the last, and labels that user and item tell."""
    random = torch.Generator().manual_seed(SEED + number)
    users = torch.randint(0, USERS, (samples,), generator=random)
    items = torch.randint(1, ITEMS, (samples, LENGTH), generator=random)
    items[:, -1] = 1 + (3 * users + items[:, -2] % 5) % (ITEMS - 1)
    padded = torch.arange(LENGTH - 2) < torch.randint(0, LENGTH - 2, (samples, 1), generator=random)
    items[:, : LENGTH - 2].masked_fill_(padded, 0)
    likely = 0.1 + 0.7 * ((users + items[:, -1]) % 2)
    return users, items, (torch.rand(samples, generator=random) < likely).float()


def make(build: type[Any]) -> Trial:
    """Returns a model, and a training that ends with the best of its epochs, as the packages' trainers do."""
    model = build()
    optimizer = torch.optim.Adam(model.parameters())

    def evaluate(seed: int = -1) -> dict[str, float]:
        model.eval()
        with torch.no_grad():
            metrics: dict[str, float] = model.metrics(*draw(seed, 200))
        model.train()
        return metrics

    def train() -> list[float]:
        losses, best, kept = [], -1e9, {}
        for number in range(STEPS):
            optimizer.zero_grad()
            loss = model.loss(*draw(number))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if number % 50 == 49:
                (score,) = evaluate(-2).values()
                if score > best:
                    best, kept = score, copy.deepcopy(model.state_dict())
        model.load_state_dict(kept)
        return losses

    return Trial(model, optimizer, train, evaluate)


@pytest.mark.parametrize("build", [Clicks, Sequence, Graph, Pairs] if LONG_FORMS else [Clicks, Pairs])
def test_a_packages_model_trains_adopted_as_plain(ps: slotwise.Client, build: type[Any]) -> None:
    print(f"seed {SEED}")
    outcome = trial.compare("here", build.__name__, lambda: make(build), ps)
    assert outcome.verdict == "equal", outcome
    assert outcome.steps == STEPS and outcome.last_loss < outcome.first_loss
    assert outcome.tables == len(trial.embedding_weights(build())) and ps.list_tables() == []


def without_the_server(adopt: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_, **__: {}


def with_another_rate(adopt: Callable[..., Any]) -> Callable[..., Any]:
    def change(model: nn.Module, ps: slotwise.Client, optimizer: Any, **options: Any) -> Any:
        optimizer.param_groups[0]["lr"] *= 1.001
        return adopt(model, ps, optimizer, **options)

    return change


def with_another_row(adopt: Callable[..., Any]) -> Callable[..., Any]:
    def change(model: Any, *arguments: Any, **options: Any) -> Any:
        with torch.no_grad():
            model.users.weight[3, 2] += 0.001
        return adopt(model, *arguments, **options)

    return change


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (without_the_server, "no table has made a step"),
        (with_another_rate, "a loss differs"),
        (with_another_row, "a loss differs"),
    ],
)
def test_the_comparison_finds_what_is_wrong(
    ps: slotwise.Client, monkeypatch: pytest.MonkeyPatch, wrong: Any, reason: str
) -> None:
    monkeypatch.setattr(st, "adopt", wrong(st.adopt))
    outcome = trial.compare("here", "Pairs", lambda: make(Pairs), ps)
    assert outcome.verdict == "differs" and reason in outcome.reason, outcome


def test_the_comparison_keeps_the_sentence_of_what_is_refused_or_does_not_run(ps: slotwise.Client) -> None:
    class Broken(Pairs):
        def loss(self, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
            raise ValueError("the package is too old")

    def refused() -> Trial:
        made = make(Pairs)
        made.model.items.scale_grad_by_freq = True
        return made

    outcome = trial.compare("here", "Pairs", refused, ps)
    assert outcome.verdict == "refused"
    assert outcome.reason.startswith("items: scale_grad_by_freq is True, and the server does not scale")
    outcome = trial.compare("here", "Broken", lambda: make(Broken), ps)
    assert (outcome.verdict, outcome.reason) == ("not plain", "ValueError: the package is too old")
