"""One model of a framework, trained plain and adopted from one seed, and the comparison of both.

A framework's module gives `make`, which builds a model, its optimizer, and the framework's own training and
evaluation. `compare` calls `make` for each training, so that every training begins from the same seed, the
same data and the same initial weights:

- plain: as the framework does it;
- adopted: the same, behind one line, `slotwise.torch.adopt(model, ps, optimizer, lazy=True)`;
- rested: as plain, but torch's Adam leaves rows alone whose gradient is zero. `lazy=True` promises this
  training. With other optimizers, and where every row has a gradient, rested is plain.

The adopted training has to be the rested one: the loss of each step, and what the framework's evaluation
says. The plain training's metrics are reported beside them.

Tolerances. Sums of float32 in another order differ by rounding, so a loss may differ by 2e-6 of the largest
loss. A metric may differ by 1.1e-4: RecBole rounds metrics to four decimals. Some models grow a rounding
(sharp softmaxes, hard selections, units that a rounding switches on): there the rested training is repeated
with weights that begin one float32 rounding off, and are one rounding off behind each step, and the adopted
training may differ by 8 times what torch's differs from itself, as in client/python/tests/loops.py.
"""

from __future__ import annotations

import random
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import slotwise
import slotwise.torch
from slotwise._adopt.modules import is_adopted

SEED = 20261127
STEPS = 200  # a training has at least so many
ORDERS = 6  # trainings, at most, that round otherwise
LOSS_ROUNDING, METRIC_ROUNDING, GROWTH = 2e-6, 1.1e-4, 8


@dataclass
class Trial:
    """A model as a framework has made it, and what the framework does with it.

    Attributes:
        optimizer: the one that the framework made, or will use.
        train: trains by the framework's own loop; returns the loss of each step.
        evaluate: returns the metrics that the framework's evaluation computes.
        go_native: puts native modules of `slotwise.torch` into the model, in adopt()'s place, with the same
            rows. Their optimizer leaves rows alone that a step does not touch, as torch's Adagrad does.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    train: Callable[[], list[float]]
    evaluate: Callable[[], dict[str, float]]
    go_native: Callable[[slotwise.Client], None] | None = None


def keep_losses(owner: Any, method: str, losses: list[float]) -> None:
    """Makes a method keep each loss that it returns; of a tuple, the sum."""
    computes = getattr(owner, method)

    def keeping(*args: Any, **options: Any) -> Any:
        found = computes(*args, **options)
        losses.append(float(sum(found) if isinstance(found, tuple) else found))
        return found

    setattr(owner, method, keeping)


@dataclass
class Training:
    """What one training said."""

    losses: np.ndarray[Any, Any]  # float64 [steps]
    metrics: dict[str, float]
    seconds: float


@dataclass
class Outcome:
    """How a model fared.

    Attributes:
        verdict: "equal"; "differs"; "refused" by adopt(); "not plain": the framework itself cannot train it.
        reason: the sentence of a refusal; or why it is not plain; or what differs.
        loss_off: the largest difference of a step's loss, adopted and rested.
        torch_off: the same of torch and itself, rounded otherwise; 0 where nothing had to be tried.
        metric_off: the largest difference of a metric, adopted and rested.
    """

    framework: str
    name: str
    verdict: str = ""
    reason: str = ""
    optimizer: str = ""
    tables: int = 0
    steps: int = 0
    first_loss: float = 0.0
    last_loss: float = 0.0
    loss_off: float = 0.0
    torch_off: float = 0.0
    metric_off: float = 0.0
    plain: dict[str, float] = field(default_factory=dict)
    rested: dict[str, float] = field(default_factory=dict)
    adopted: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def seed_all(seed: int = SEED) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def embedding_weights(model: nn.Module) -> list[nn.Parameter]:
    """Returns the weights that adopt() takes, each once."""
    modules = (m for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag)))
    weights: dict[int, Any] = {id(module.weight): module.weight for module in modules}
    return list(weights.values())


def let_rows_rest(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter]) -> None:
    """Makes steps of torch's Adam or AdamW put rows back whose gradient is zero, and their moments."""
    step = optimizer.step

    def resting_step(_: torch.optim.Optimizer, closure: Any = None) -> Any:
        loss = None
        if closure is not None:  # which computes the gradients
            with torch.enable_grad():
                loss = closure()
        kept: list[tuple[nn.Parameter, Tensor, Tensor, dict[str, Tensor]]] = []
        for weight in weights:
            if weight.grad is None:
                continue
            rows = ~(weight.grad != 0).any(1)
            state = optimizer.state.get(weight, {})
            moments = {name: state[name][rows].clone() for name in ("exp_avg", "exp_avg_sq") if name in state}
            kept.append((weight, rows, weight.detach()[rows].clone(), moments))
        step()
        with torch.no_grad():
            for weight, rows, values, moments in kept:
                weight[rows] = values
                for name in ("exp_avg", "exp_avg_sq"):
                    optimizer.state[weight][name][rows] = moments.get(name, torch.zeros(()))
        return loss

    # Learning-rate schedulers wrap what has a __func__, as a bound method has.
    setattr(optimizer, "step", types.MethodType(resting_step, optimizer))


def round_otherwise(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter], order: int) -> None:
    """Moves the initial values, and what a step moves, to the next float32 number, as `order` draws."""
    generator = torch.Generator().manual_seed(order)
    step = optimizer.step

    def move(weight: nn.Parameter, before: Tensor | None) -> None:
        up = torch.randn(weight.shape, generator=generator).sign()
        moved = torch.nextafter(weight, weight + up)
        weight.copy_(moved if before is None else torch.where(weight == before, weight, moved))

    def rounding_step(_: torch.optim.Optimizer, closure: Any = None) -> Any:
        before = [weight.detach().clone() for weight in weights]
        loss = step() if closure is None else step(closure)
        with torch.no_grad():
            for weight, values in zip(weights, before):
                move(weight, values)
        return loss

    with torch.no_grad():
        for weight in weights:
            move(weight, None)
    setattr(optimizer, "step", types.MethodType(rounding_step, optimizer))


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def trained(trial: Trial) -> Training:
    """Trains and evaluates, from the seed."""
    begin = time.monotonic()
    seed_all(SEED + 1)
    losses = np.array(trial.train(), dtype=np.float64)
    seed_all(SEED + 2)
    metrics = numbers(trial.evaluate())
    if len(losses) < STEPS:
        raise RuntimeError(f"the training had {len(losses)} steps, and {STEPS} are to be compared")
    return Training(losses, metrics, time.monotonic() - begin)


def loss_difference(one: Training, other: Training) -> float:
    """Returns the largest difference of a step's loss; infinity where one has no number."""
    if one.losses.shape != other.losses.shape:
        return np.inf
    differences = np.abs(one.losses - other.losses)
    differences[one.losses == other.losses] = 0
    return float(np.nan_to_num(differences, nan=np.inf).max())


def metric_difference(one: Training, other: Training) -> float:
    """Returns the largest difference of a metric; infinity where one has no number."""
    if one.metrics.keys() != other.metrics.keys():
        return np.inf
    pairs = [(value, other.metrics[name]) for name, value in one.metrics.items()]
    return max([0.0, *(np.nan_to_num(abs(a - b), nan=np.inf) for a, b in pairs if a != b)])


def compare(framework: str, name: str, make: Callable[[], Trial], ps: slotwise.Client) -> Outcome:
    """Trains a model plain, adopted and rested, and judges.

    Args:
        ps: of a server that has no tables.
    """
    outcome = Outcome(framework, name)

    def begin() -> Trial:
        seed_all()
        return make()

    try:
        trial = begin()
        outcome.optimizer = type(trial.optimizer).__name__
        plain = trained(trial)
    except Exception as error:  # whatever a framework raises where it cannot train its own model
        outcome.verdict, outcome.reason = "not plain", f"{type(error).__name__}: {error}".splitlines()[0]
        return outcome
    outcome.steps, outcome.plain = len(plain.losses), plain.metrics
    outcome.first_loss, outcome.last_loss = plain.losses[0], plain.losses[-1]
    outcome.seconds["plain"] = plain.seconds

    trial = begin()
    if trial.go_native is not None:
        trial.go_native(ps)
    else:
        try:
            slotwise.torch.adopt(trial.model, ps, trial.optimizer, lazy=True)  # the one line
        except slotwise.Error as error:
            outcome.verdict, outcome.reason = "refused", str(error)
            return outcome
    adopted = trained(trial)
    steps = [ps.describe_table(table.name).steps for table in ps.list_tables()]
    outcome.tables = len(steps)
    outcome.adopted, outcome.seconds["adopted"] = adopted.metrics, adopted.seconds
    if not any(steps):
        outcome.verdict, outcome.reason = "differs", "no table has made a step: the rows trained elsewhere"
        return outcome
    # RecBole's checkpoints of DIN and DIEN pickle the layer of the embeddings, and evaluate() takes the copy.
    if any(is_adopted(module) for module in trial.model.modules()):
        slotwise.torch.release(trial.model)
        seed_all(SEED + 2)
        released = Training(adopted.losses, numbers(trial.evaluate()), 0.0)
        if metric_difference(released, adopted) > METRIC_ROUNDING:
            outcome.verdict, outcome.reason = "differs", f"after release() the metrics are {released.metrics}"
            return outcome

    def rested(order: int = 0) -> Training:
        again = begin()
        weights = embedding_weights(again.model)
        inner = getattr(again.optimizer, "optimizer", again.optimizer)  # Accelerate's has torch's within
        if isinstance(inner, torch.optim.Adam):
            let_rows_rest(inner, weights)
        if order > 0:
            round_otherwise(inner, [w for w in again.model.parameters() if w.dtype == torch.float32], order)
        return trained(again)

    expected = rested()
    outcome.rested = expected.metrics
    _judge(outcome, adopted, expected, rested)
    return outcome


def _judge(
    outcome: Outcome, adopted: Training, expected: Training, rested: Callable[[int], Training]
) -> None:
    """Fills in the verdict; trains ORDERS times, rounded otherwise, or until that explains the difference."""
    outcome.loss_off = loss_difference(adopted, expected)
    outcome.metric_off = metric_difference(adopted, expected)
    loss_allowed = LOSS_ROUNDING * max(1.0, float(np.abs(expected.losses).max()))
    metric_allowed = METRIC_ROUNDING
    itself = metric_itself = 0.0
    for order in range(1, ORDERS + 2):
        loss_fits = outcome.loss_off <= GROWTH * itself + loss_allowed
        metric_fits = outcome.metric_off <= GROWTH * metric_itself + metric_allowed
        if loss_fits and metric_fits:
            outcome.verdict = "equal"
            return
        if order <= ORDERS:
            other = rested(order)
            itself = outcome.torch_off = max(itself, loss_difference(other, expected))
            metric_itself = max(metric_itself, metric_difference(other, expected))
    outcome.verdict = "differs"
    outcome.reason = (
        f"a loss differs by {outcome.loss_off:.3g} and torch's from itself by {itself:.3g}, a metric by "
        f"{outcome.metric_off:.3g} and torch's from itself by {metric_itself:.3g}"
    )
