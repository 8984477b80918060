"""Training loops as people write them: every cell of a product, trained by torch's model and by ours.

A cell says how the rows are trained and what the loop does. `run` trains a model of torch's, the same model
again with each sum in another order, and ours, from the same seed, and compares the rows and the weights:
ours may differ from torch's by no more than torch's from itself. Sums of 16-bit gradients are exact in any
order, so each order begins with rows that are one float32 rounding off, too. Where the model computes in
16 bits, which hide most such roundings and make much of a few, each order's rows are one rounding further
off, as ours are after some steps, and what a rounding does to one weight it may do to any. More orders are
tried where one does not show how far a rounding gets.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

import slotwise
import slotwise.torch as st

STEPS, ROWS, DIM, SAMPLES, BAG = 50, 30, 4, 6, 3
ORDERS = 12  # of summation, at most, in which torch's model is trained
TABLES = ("users", "items")
RATE = 0.05
# Where the models are; a GPU's memory, where SLOTWISE_TEST_GPU is set.
DEVICE = torch.device("cuda", 0) if os.environ.get("SLOTWISE_TEST_GPU") else torch.device("cpu")
# On a CPU, from torch 2.3 on.
HAS_FLOAT16 = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 3)

AXES: dict[str, tuple[Any, ...]] = {
    "how": ("held", "fused", "adopted"),
    "loop": ("plain", "accumulate", "two forwards", "retain_graph"),
    "precision": ("float32", "bfloat16", "float16"),
    "clips": (False, True),
    "schedules": (False, True),
    "trainers": (1, 2),
    "ahead": ("plain", "in_flight", "prefetch"),
}


@dataclass(frozen=True)
class Cell:
    """What is trained how.

    Attributes:
        how: "held" by a `slotwise.torch.Optimizer`, "fused" into `backward()`, or "adopted".
        loop: what makes a step.
        precision: of autocast; "float16" with a GradScaler.
        clips: whether the gradients' norm is clipped.
        schedules: whether the rates are moved.
        trainers: under DistributedDataParallel, if there are two.
        ahead: whether pushes and lookups are in flight.
    """

    how: str
    loop: str
    precision: str
    clips: bool
    schedules: bool
    trainers: int
    ahead: str

    @property
    def name(self) -> str:
        """All of it, for a test's name."""
        values = [str(getattr(self, field.name)) for field in fields(self)[:3]]
        values += ["clips"] * self.clips + ["schedules"] * self.schedules
        return ", ".join([*values, f"{self.trainers} trainers", self.ahead])

    @property
    def kind(self) -> str:
        """The optimizer of the rows, which the cell's name draws."""
        return ("sgd", "adagrad", "adam")[hashlib.md5(self.name.encode()).digest()[0] % 3]

    @property
    def ranks(self) -> int:
        """How many ranks the server has."""
        return 1 + hashlib.md5(self.name.encode()).digest()[1] % 2


def cells() -> list[Cell]:
    """All cells that can be written down."""
    product = (Cell(*values) for values in itertools.product(*AXES.values()))
    return [cell for cell in product if not (cell.how == "adopted" and cell.ahead == "in_flight")]


def refusal(cell: Cell) -> str | None:
    """The reason why a cell is refused, as its sentence has it; None: it is right."""
    if cell.how == "adopted" and cell.ahead == "prefetch":
        return "Embedding.* is no EmbeddingBag, Embedding or EmbeddingBags of slotwise.torch"
    if cell.how == "fused" and cell.precision == "float16":
        return "float16 autocast.*slotwise.torch.Optimizer"
    return None


def can_run(cell: Cell) -> bool:
    """Whether this machine's torch can train the cell at all."""
    return cell.precision != "float16" or HAS_FLOAT16 or cell.how != "fused"


class Model(nn.Module):
    """Pools users and looks items up, and has two dense layers."""

    def __init__(self, users: nn.Module, items: nn.Module) -> None:
        super().__init__()
        self.users, self.items = users, items
        self.dense = nn.Sequential(nn.Linear(2 * DIM, DIM), nn.Tanh(), nn.Linear(DIM, 1))

    def forward(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Returns the mean loss."""
        users, items, wanted = batch
        ends = torch.arange(0, users.numel() + 1, BAG, device=DEVICE)
        looked_up = [self.users(users.reshape(-1), ends), self.items(items)]
        told = self.dense(torch.cat(looked_up, 1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(told.float(), wanted)


def first_rows(table: str) -> Tensor:
    """The rows that a table begins with."""
    return torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(TABLES.index(table)))


def make_rows_optimizer(kind: str, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Torch's own."""
    if kind == "sgd":
        return torch.optim.SGD(weights, lr=RATE)
    if kind == "adam":
        return torch.optim.SparseAdam(list(weights), lr=RATE)
    return torch.optim.Adagrad(weights, lr=RATE, initial_accumulator_value=0.1)


def options_of(kind: str) -> slotwise.optimizers.Optimizer:
    """Ours."""
    if kind == "sgd":
        return slotwise.SGD(RATE)
    if kind == "adam":
        return slotwise.Adam(RATE)
    return slotwise.AdaGrad(RATE, initial_accumulator=0.1)


def theirs(cell: Cell, order: int = 0) -> tuple[Model, list[torch.optim.Optimizer]]:
    """A model of torch's, and the optimizers of its rows and its dense weights.

    Args:
        order: above 0, its rows are some float32 roundings off, others for each.
    """
    torch.manual_seed(7)
    sparse = cell.kind == "adam"
    users = nn.EmbeddingBag(ROWS, DIM, mode="sum", sparse=sparse, include_last_offset=True)
    items = nn.Embedding(ROWS, DIM, sparse=sparse)
    model = Model(users, items)
    with torch.no_grad():
        for table, module in zip(TABLES, (users, items)):
            rows = first_rows(table)
            if order > 0:
                up = torch.randn(rows.shape, generator=torch.Generator().manual_seed(order))
                for _ in range(1 if cell.precision == "float32" else order):
                    rows = torch.nextafter(rows, rows + up.sign())
            module.weight.copy_(rows)
        for number, weight in enumerate(model.dense.parameters()):
            drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(10 + number))
            weight.copy_(drawn / 2)
    model.to(DEVICE)
    rows = make_rows_optimizer(cell.kind, [users.weight, items.weight])
    return model, [rows, torch.optim.SGD(model.dense.parameters(), lr=0.1)]


def make_tables(ps: slotwise.Client, cell: Cell) -> None:
    """The tables of a cell that is not adopted."""
    for table, combiner in zip(TABLES, ("sum", "none")):
        ps.create_table(table, dim=DIM, combiner=combiner, optimizer=options_of(cell.kind))
        ps.import_rows(table, np.arange(ROWS), first_rows(table).numpy())


def ours(cell: Cell, ps: slotwise.Client) -> tuple[Model, list[torch.optim.Optimizer]]:
    """The model whose rows are on the server, and the optimizers that its loop steps."""
    model, optimizers = theirs(cell)
    if cell.how == "adopted":
        st.adopt(model, ps, optimizers)
        return model, optimizers
    session = st.shared_session(ps) if cell.trainers > 1 else None
    in_flight = cell.ahead == "in_flight"
    model.users = st.EmbeddingBag(ps, "users", session=session, in_flight=in_flight)
    model.items = st.Embedding(ps, "items", session=session, in_flight=in_flight)
    return model, [st.Optimizer(model), optimizers[1]] if cell.how == "held" else optimizers[1:]


class HandScaler:
    """What GradScaler does, for torch whose own works on a GPU alone."""

    def __init__(self) -> None:
        self.factor, self._found = 2.0**12, False

    def scale(self, loss: Tensor) -> Tensor:
        """Returns the scaled loss."""
        return loss * self.factor

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides an optimizer's gradients."""
        for group in optimizer.param_groups:
            for weight in group["params"]:
                grad = weight.grad
                if grad is not None:
                    self._found = self._found or not bool(torch.isfinite(_values(grad)).all())
                    _values(grad).mul_(1 / self.factor)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Steps it, unless an infinity was found."""
        if not self._found:
            optimizer.step()

    def update(self) -> None:
        """Ends the step."""
        self.factor, self._found = self.factor / 2 if self._found else self.factor, False

    def get_scale(self) -> float:
        """Returns the factor of losses."""
        return self.factor


def make_scaler(enabled: bool = True) -> Any:
    """Torch's, or what does the same; one that is not enabled leaves all as it is."""
    if HAS_FLOAT16:
        return torch.amp.GradScaler(DEVICE.type, init_scale=2.0**12, enabled=enabled)
    return HandScaler() if enabled else torch.cuda.amp.GradScaler(enabled=False)


def _values(gradient: Tensor) -> Tensor:
    return gradient._values() if gradient.is_sparse else gradient


def clip(model: nn.Module, most: float) -> float:
    """Clips as torch does; sparse gradients too, which torch's own may leave alone. Returns the norm."""
    weights = [weight for weight in model.parameters() if weight.grad is not None]
    if not any(weight.grad.is_sparse for weight in weights):
        return float(nn.utils.clip_grad_norm_(weights, most))
    gradients = [each.grad.coalesce() if each.grad.is_sparse else each.grad for each in weights]
    norm = float(torch.stack([each.norm() for each in gradients]).norm())
    for weight, gradient in zip(weights, gradients):
        weight.grad = gradient * min(1.0, most / (norm + 1e-6))
    return norm


def autocast(cell: Cell) -> AbstractContextManager[Any]:
    """The cell's precision, as this machine's torch has it."""
    if cell.precision == "float32" or (cell.precision == "float16" and not HAS_FLOAT16):
        return nullcontext()
    return torch.autocast(DEVICE.type, dtype=getattr(torch, cell.precision))


def batches(cell: Cell, trainer: int, order: int = 0) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """A step's batches, two where the loop wants two; each `order` has samples and keys in another one."""
    for number in range(STEPS * (2 if cell.loop in ("accumulate", "two forwards") else 1)):
        random = np.random.default_rng([17, number, trainer])
        users = torch.from_numpy(random.integers(0, ROWS, (SAMPLES, BAG)))
        items = torch.from_numpy(random.integers(0, ROWS, SAMPLES))
        wanted = torch.from_numpy(random.integers(0, 2, SAMPLES)).float()
        if order > 0:
            other = np.random.default_rng([order, number])
            samples, keys = torch.from_numpy(other.permutation(SAMPLES)), other.permutation(BAG)
            users, items, wanted = users[samples][:, keys].contiguous(), items[samples], wanted[samples]
        yield users.to(DEVICE), items.to(DEVICE), wanted.to(DEVICE)


def train(
    cell: Cell,
    model: Model,
    optimizers: list[torch.optim.Optimizer],
    loader: Iterable[tuple[Tensor, Tensor, Tensor]],
    fused: torch.optim.Optimizer | None = None,
) -> None:
    """Is the loop.

    Args:
        fused: steps the rows of torch's model behind each backward(), as fused optimizers do.
    """
    scaler = make_scaler(cell.precision == "float16")
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(each, lambda step: 0.5 + (step % 7) / 6) for each in optimizers
    ]
    called: Any = model
    # DistributedDataParallel averages the first backward() of a forward() alone.
    by_hand = cell.trainers > 1 and cell.loop == "retain_graph"
    if cell.trainers > 1 and not by_hand:
        called = DistributedDataParallel(model)
    rest = iter(loader)
    for first in rest:
        for optimizer in optimizers:
            optimizer.zero_grad()
        for batch in itertools.chain([first], itertools.islice(rest, int(cell.loop == "accumulate"))):
            with autocast(cell):
                loss = called(batch)
                if cell.loop == "two forwards":
                    loss = loss + called(next(rest))
            scaled = scaler.scale(loss)
            given_to_rows = []
            if cell.loop == "retain_graph":
                scaled.backward(retain_graph=True)
                given_to_rows.append(_taken(fused))
            scaled.backward()
            given_to_rows.append(_taken(fused))
            if by_hand:
                _average(weight for weight in model.parameters() if weight.requires_grad)
            for gradients in given_to_rows if fused is not None else []:
                for weight, gradient in gradients:
                    weight.grad = gradient
                if by_hand:
                    _average(weight for weight, _ in gradients)
                fused.step()
                fused.zero_grad(set_to_none=True)
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        if cell.clips:
            clip(model, 0.2)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        if cell.schedules:
            for scheduler in schedulers:
                scheduler.step()


def _average(weights: Iterable[Tensor]) -> None:
    """Makes the gradients of weights their mean over the trainers."""
    for weight in weights:
        if weight.grad is None:
            continue
        mean = weight.grad.to_dense() if weight.grad.is_sparse else weight.grad
        distributed.all_reduce(mean)
        mean /= distributed.get_world_size()
        if not weight.grad.is_sparse:
            weight.grad = mean
            continue
        touched = torch.zeros(len(mean), device=DEVICE)  # a row whose gradients cancel is touched, too
        touched[weight.grad.coalesce().indices()[0]] = 1
        distributed.all_reduce(touched)
        rows = touched.nonzero()[:, 0]
        weight.grad = torch.sparse_coo_tensor(rows[None], mean[rows], mean.shape)


def _taken(optimizer: torch.optim.Optimizer | None) -> list[tuple[Tensor, Tensor | None]]:
    """Takes the gradients of an optimizer's weights away; torch's graphs refuse weights that moved."""
    if optimizer is None:
        return []
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    taken = [(weight, weight.grad) for weight in weights]
    optimizer.zero_grad(set_to_none=True)
    return taken


def trained_theirs(cell: Cell, trainer: int, order: int = 0) -> dict[str, Tensor]:
    """All weights of torch's model after training."""
    model, optimizers = theirs(cell, order)
    fused = optimizers.pop(0) if cell.how == "fused" else None
    train(cell, model, optimizers, batches(cell, trainer, order), fused)
    return {name: weight.detach() for name, weight in model.named_parameters()}


def trained_ours(cell: Cell, ps: slotwise.Client, trainer: int) -> dict[str, Tensor]:
    """All weights of our model after training, by the same names."""
    model, optimizers = ours(cell, ps)
    loader: Any = batches(cell, trainer)
    if cell.ahead == "prefetch":
        ends = torch.arange(0, SAMPLES * BAG + 1, BAG, device=DEVICE)
        loader = st.Prefetch(
            loader,
            [model.users, model.items],  # type: ignore[list-item]
            bags=lambda batch: [(batch[0].reshape(-1), ends), batch[1]],
        )
    train(cell, model, optimizers, loader)
    if DEVICE.type == "cuda" and cell.how != "adopted" and cell.ahead != "prefetch":
        assert any(rank.gpu_shared_bytes for rank in ps.stats()), "rows went by the host's memory"
    if cell.how == "adopted":
        st.release(model)
    else:
        model.users.flush()  # type: ignore[operator]
        if cell.trainers > 1:
            distributed.barrier()
        for table in TABLES:
            rows = torch.from_numpy(ps.lookup(table, np.arange(ROWS), train=False))
            setattr(model, table, nn.Embedding.from_pretrained(rows).to(DEVICE))
    return {name: weight.detach() for name, weight in model.named_parameters()}


def compare(cell: Cell, ps: slotwise.Client, trainer: int = 0) -> None:
    """Trains, and raises AssertionError where ours is not torch's."""
    expected = trained_theirs(cell, trainer)
    found = trained_ours(cell, ps, trainer)
    assert found.keys() == expected.keys()
    differs = {name: float((weight - found[name]).abs().max()) for name, weight in expected.items()}
    itself = dict.fromkeys(expected, 0.0)
    for order in range(1, ORDERS + 1):  # as many for each trainer, whose weights are the same
        for name, weight in trained_theirs(cell, trainer, order).items():
            itself[name] = max(itself[name], float((expected[name] - weight).abs().max()))
        if cell.precision != "float32":
            itself = dict.fromkeys(itself, max(itself.values()))
        off = [name for name in expected if not differs[name] <= 8 * itself[name] + 2e-6]
        if not off:
            return
    told = ", ".join(f"{name} is off by {differs[name]}, torch's by {itself[name]}" for name in off)
    raise AssertionError(f"{cell.name}, {cell.kind}: {told}")


def run(cell: Cell, ps: slotwise.Client, trainer: int = 0, wait: Callable[[], object] = lambda: None) -> None:
    """Compares a cell that is right; of one that is refused, requires the sentence.

    Args:
        wait: for the other trainers, once tables are there.
    """
    if cell.how != "adopted" and trainer == 0:
        make_tables(ps, cell)
    wait()
    reason = refusal(cell)
    if reason is None:
        return compare(cell, ps, trainer)

    try:
        trained_ours(cell, ps, trainer)
    except slotwise.Error as error:
        assert re.search(reason, str(error), re.DOTALL), f"{cell.name}: {error}"
    else:
        raise AssertionError(f"{cell.name} is neither right nor refused")
