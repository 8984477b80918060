"""Lightning and Accelerate train a slotwise.torch.Optimizer to the same numbers as torch's own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
from lightning_on_debian import lightning
from real_server import serving
from torch import Tensor, nn

import slotwise
import slotwise.torch as st

ROWS, DIM, STEPS = 40, 8, 12
RATE, DECAY, CLIP = 0.1, 0.9, 0.3
GENERATOR = torch.Generator().manual_seed(1)
WEIGHTS = torch.randn(ROWS, DIM, generator=GENERATOR)
BATCHES = [
    (torch.randint(0, ROWS, (6, 3), generator=GENERATOR), torch.rand(6, generator=GENERATOR))
    for _ in range(2 * STEPS)  # two are one step
]


class Model(nn.Module):
    """Bags of three keys, and a dense layer."""

    def __init__(self, bags: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.bags, self.dense = bags, nn.Linear(DIM, 1)

    def forward(self, keys: Tensor) -> Tensor:
        """Returns a number a bag."""
        offsets = torch.arange(0, keys.numel() + 1, keys.shape[1])
        return self.dense(self.bags(keys.reshape(-1), offsets)).squeeze(1)

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns one of all weights and rows."""
        if isinstance(self.bags, nn.EmbeddingBag):
            return torch.optim.SGD(self.parameters(), lr=RATE)
        return st.Optimizer(self, dense=torch.optim.SGD(self.dense.parameters(), lr=RATE))


def of_torch() -> Model:
    return Model(
        nn.EmbeddingBag.from_pretrained(WEIGHTS.clone(), False, mode="sum", include_last_offset=True)
    )


@pytest.fixture
def ps(tmp_path: Path) -> Iterator[slotwise.Client]:
    with serving(1, data=tmp_path / "data") as client:
        client.create_table("a", dim=DIM, combiner="sum", optimizer=slotwise.SGD(RATE))
        client.import_rows("a", np.arange(ROWS), WEIGHTS.numpy())
        yield client


def assert_same(ps: slotwise.Client, ours: Model, theirs: Model, steps: int) -> None:
    assert ps.describe_table("a").steps == steps
    rows = torch.from_numpy(ps.lookup("a", np.arange(ROWS), train=False))
    assert isinstance(theirs.bags, nn.EmbeddingBag)
    torch.testing.assert_close(rows, theirs.bags.weight.detach(), rtol=0, atol=1e-6)
    torch.testing.assert_close(ours.dense.weight, theirs.dense.weight, rtol=0, atol=1e-6)
    assert (rows - WEIGHTS).abs().max() > 0.001


class Clicks(lightning.LightningModule):
    """A model of either kind. Lightning's checkpoints have the rows of ours, as in docs/training.md."""

    def __init__(self, model: Model, ps: slotwise.Client | None = None) -> None:
        super().__init__()
        self.model, self.ps = model, ps

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        """Returns the loss."""
        keys, labels = batch
        return nn.functional.mse_loss(self.model(keys), labels)

    def configure_optimizers(self) -> Any:
        """Returns one optimizer, whose rate falls with each step."""
        optimizer = self.model.optimizer()
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the rows, too."""
        if self.ps is not None:
            checkpoint["rows"] = self.ps.save(delta=True).id

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Brings the rows back."""
        if self.ps is not None:
            self.ps.load(checkpoint["rows"], tables=["a"])


def fit(module: Clicks, folder: Path, epochs: int = 1, path: Path | None = None) -> Path:
    """Trains an epoch, or so many; returns where Lightning has put its newest checkpoint."""
    keeps = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=folder, save_last=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            accelerator="cpu",
            accumulate_grad_batches=2,
            callbacks=[keeps],
            default_root_dir=folder,
            enable_model_summary=False,
            enable_progress_bar=False,
            gradient_clip_val=CLIP,
            logger=False,
            max_epochs=epochs,
        )
        loader = torch.utils.data.DataLoader(BATCHES, batch_size=None)  # type: ignore[arg-type]
        trainer.fit(module, loader, ckpt_path=None if path is None else str(path))
    return Path(keeps.last_model_path)


def test_lightning_trains_as_with_torch(ps: slotwise.Client, tmp_path: Path) -> None:
    theirs, ours = of_torch(), Model(st.EmbeddingBag(ps, "a"))
    fit(Clicks(theirs), tmp_path / "theirs")
    fit(Clicks(ours, ps), tmp_path / "ours")
    assert_same(ps, ours, theirs, STEPS)


def test_lightning_goes_on_from_its_checkpoint(ps: slotwise.Client, tmp_path: Path) -> None:
    """The run that wrote it has trained on, and died; another run's table stays as it is."""
    theirs, first = of_torch(), Model(st.EmbeddingBag(ps, "a"))
    fit(Clicks(theirs), tmp_path / "theirs", epochs=2)
    ps.create_table("others", dim=1, optimizer=slotwise.SGD(RATE))
    kept = fit(Clicks(first, ps), tmp_path / "first")
    fit(Clicks(first), tmp_path / "on")
    ps.push("others", [1], None, np.ones((1, 1), np.float32))
    ours = Model(st.EmbeddingBag(ps, "a"))
    fit(Clicks(ours, ps), tmp_path / "second", epochs=2, path=kept)
    assert_same(ps, ours, theirs, 2 * STEPS)
    assert ps.describe_table("others").steps == 1


def test_accelerate_trains_as_with_torch(ps: slotwise.Client) -> None:
    models = [of_torch(), Model(st.EmbeddingBag(ps, "a"))]
    for model in models:
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        optimizer = model.optimizer()
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, DECAY)
        model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
        for keys, labels in BATCHES:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(keys), labels))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    assert_same(ps, models[1], models[0], STEPS)
