"""Lightning's Trainer and Accelerate's loop, over a model of torch's own embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accelerate
import lightning
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of
from trial import SEED, STEPS, Trial

NAME = "loops"
BATCH, ROWS, DIM, BAG = 32, 200, 8, 5
EPOCHS, BATCHES = 2, STEPS // 2
FEW = ("Lightning", "Accelerate")


class Clicks(nn.Module):
    """Pooled items beside a user, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.users = nn.EmbeddingBag(ROWS, DIM), nn.Embedding(ROWS, DIM)
        self.top = nn.Sequential(nn.Linear(2 * DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1))

    def forward(self, items: Tensor, users: Tensor) -> Tensor:
        return self.top(torch.cat([self.items(items), self.users(users)], 1)).squeeze(1)


def metrics_of(scores: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return {"val_loss": loss_of(scores, labels), "accuracy": ((scores > 0) == (labels > 0)).float().mean()}


class Module(lightning.LightningModule):  # type: ignore[misc]
    """The model as Lightning takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Clicks()
        self.optimizer = torch.optim.Adam(self.parameters())
        self.kept: list[float] = []

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        items, users, labels = batch
        loss = loss_of(self.model(items, users), labels)
        self.kept.append(loss.item())
        return loss

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        items, users, labels = batch
        self.log_dict(metrics_of(self.model(items, users), labels))

    def configure_optimizers(self) -> Any:
        schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)
        return [self.optimizer], [{"scheduler": schedule, "interval": "step"}]


def names() -> list[str]:
    return ["Lightning", "Accelerate"]


def _loader(batches: int, seed: int) -> Any:
    """Returns a loader of clicks that a user's and an item's number tell."""
    random = np.random.default_rng(seed)
    count = batches * BATCH
    items, users = random.integers(0, ROWS, (count, BAG)), random.integers(0, ROWS, count)
    clicks = random.random(count) < 0.1 + 0.5 * (users % 2) + 0.3 * (items[:, 0] % 3 == 0)
    data = torch.utils.data.TensorDataset(
        torch.from_numpy(items), torch.from_numpy(users), torch.from_numpy(clicks.astype(np.float32))
    )
    return torch.utils.data.DataLoader(data, BATCH, shuffle=batches == BATCHES)


def make(name: str) -> Trial:
    return _of_lightning() if name == "Lightning" else _of_accelerate()


def _of_lightning() -> Trial:
    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        default_root_dir=Path.cwd(),
        enable_model_summary=False,
        enable_progress_bar=False,
        gradient_clip_val=0.5,
        logger=False,
        max_epochs=EPOCHS,
    )

    def train() -> list[float]:
        trainer.fit(module, _loader(BATCHES, SEED), _loader(10, SEED + 1))
        return module.kept

    def evaluate() -> dict[str, float]:
        return dict(trainer.validate(module, _loader(10, SEED + 2), verbose=False)[0])

    return Trial(module, module.optimizer, train, evaluate)


def _of_accelerate() -> Trial:
    accelerator = accelerate.Accelerator(cpu=True)
    clicks = Clicks()
    prepared = accelerator.prepare(clicks, torch.optim.Adam(clicks.parameters()), _loader(BATCHES, SEED))
    model, optimizer, loader = prepared
    losses: list[float] = []

    def train() -> list[float]:
        model.train()
        for _ in range(EPOCHS):
            for items, users, labels in loader:
                optimizer.zero_grad()
                loss = loss_of(model(items, users), labels)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                losses.append(loss.item())
        return losses

    def evaluate() -> dict[str, float]:
        model.eval()
        told, wanted = [], []
        with torch.no_grad():
            for items, users, labels in accelerator.prepare(_loader(10, SEED + 2)):
                scores, labels = accelerator.gather_for_metrics((model(items, users), labels))
                told.append(scores)
                wanted.append(labels)
        return {name: float(it) for name, it in metrics_of(torch.cat(told), torch.cat(wanted)).items()}

    return Trial(model, optimizer, train, evaluate)
