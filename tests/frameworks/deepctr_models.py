"""DeepCTR-Torch's models: all that it exports, by compile("adam"), fit() and evaluate(), on drawn clicks.

Every model has DeepCTR's defaults. An L2 term over its embeddings is among them, which reads each weight
whole in every step.
"""

from __future__ import annotations

import contextlib
import io
import sys
import types
from typing import Any

import numpy as np
from trial import SEED, STEPS, Trial

# The package asks a package host for its newest version when it is imported. Tests use no network.
_requests = types.ModuleType("requests")
with contextlib.redirect_stdout(io.StringIO()):
    _kept = sys.modules.pop("requests", None)
    sys.modules["requests"] = _requests  # without get(), which the package takes for a network that is gone
    import deepctr_torch.models as models
    from deepctr_torch.inputs import DenseFeat, SparseFeat, VarLenSparseFeat

    sys.modules.pop("requests")
    if _kept is not None:
        sys.modules["requests"] = _kept

NAME = "DeepCTR"
BATCH, IDS, DIM, BAG = 32, 300, 8, 4
TRAIN, TEST = BATCH * STEPS, 1000
FEW = ("DeepFM", "DIN", "AFN")

_TASKS = ("SharedBottom", "ESMM", "MMOE", "PLE")
_INTEREST = ("DIN", "DIEN")
_ALONE = ("PNN", "MLR")  # one list of columns
_SPARSE = ("AFM", "CCPM")  # no dense features
_BAGS = ("DeepFM", "WDL")  # take pooled sequences


def names() -> list[str]:
    return [name for name, value in vars(models).items() if isinstance(value, type) and name != "BaseModel"]


def _columns(name: str) -> list[Any]:
    ids = [SparseFeat(f"C{number}", IDS, embedding_dim=DIM) for number in range(4)]
    dense = [DenseFeat(f"I{number}", 1) for number in range(2)]
    if name in _INTEREST:
        history = SparseFeat("hist_C0", IDS, embedding_dim=DIM, embedding_name="C0")
        return [*ids[:2], dense[0], VarLenSparseFeat(history, BAG, length_name="seq_length")]
    if name in _SPARSE:
        return ids
    if name in _BAGS:
        genres = SparseFeat("genres", 50, embedding_dim=DIM)
        return [*ids, *dense, VarLenSparseFeat(genres, BAG, combiner="mean")]
    return [*ids, *dense]


def _draw() -> tuple[dict[str, Any], Any]:
    """Returns features of all samples, and labels that two of them tell."""
    random = np.random.default_rng(SEED)
    count = TRAIN + TEST
    data: dict[str, Any] = {f"C{n}": random.integers(1, IDS, count) for n in range(4)}
    data.update({f"I{n}": random.random(count).astype(np.float32) for n in range(2)})
    data["hist_C0"] = random.integers(1, IDS, (count, BAG))
    data["seq_length"] = random.integers(1, BAG + 1, count)
    data["genres"] = random.integers(0, 50, (count, BAG))
    chance = 0.15 + 0.4 * (data["C0"] % 2) + 0.3 * (data["C1"] % 3 == 0)
    return data, (random.random(count) < chance).astype(np.float32)


def _construct(name: str) -> Any:
    """Returns a model, as DeepCTR's examples make it."""
    columns, build = _columns(name), getattr(models, name)
    if name in _INTEREST:
        return build(columns, ["C0"])
    if name in _TASKS:
        return build(columns, task_types=["binary", "binary"], task_names=["click", "buy"])
    return build(columns) if name in _ALONE else build(columns, columns)


def make(name: str) -> Trial:
    model = _construct(name)
    several = name in _TASKS
    loss = ["binary_crossentropy"] * 2 if several else "binary_crossentropy"
    model.compile("adam", loss, metrics=["auc", "binary_crossentropy"])
    data, clicks = _draw()
    labels = np.stack([clicks, clicks * (data["C2"] % 2)], 1).astype(np.float32) if several else clicks
    features = {feature: data[feature] for feature in model.feature_index}
    losses: list[float] = []
    parts: list[Any] = []

    def recorded(function: Any) -> Any:
        def compute(*args: Any, **options: Any) -> Any:
            parts.append(function(*args, **options))
            return parts[-1]

        return compute

    def train() -> list[float]:
        functions = model.loss_func
        model.loss_func = [recorded(f) for f in functions] if several else recorded(functions)
        regularization = model.get_regularization_loss

        def end_of_loss() -> Any:
            term = regularization()
            losses.append(float(sum(parts) + term + model.aux_loss))
            parts.clear()
            return term

        model.get_regularization_loss = end_of_loss
        training = {feature: values[:TRAIN] for feature, values in features.items()}
        model.fit(training, labels[:TRAIN], batch_size=BATCH, verbose=0)
        return losses

    def evaluate() -> dict[str, float]:
        return dict(model.evaluate({key: v[TRAIN:] for key, v in features.items()}, labels[TRAIN:]))

    return Trial(model, model.optim, train, evaluate)
