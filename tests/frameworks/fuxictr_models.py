"""FuxiCTR's models: those that its package has, and models of its layers as its scripts write them.

A model is trained by FuxiCTR's own fit() and evaluate(), from files that its own loaders read.
SLOTWISE_FUXICTR_ZOO may name a folder with files of FuxiCTR's model zoo, which its package lacks: each
NAME.py of the folder is tried, too.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fuxictr.features import FeatureMap
from fuxictr.pytorch import layers
from fuxictr.pytorch.dataloaders import RankDataLoader
from fuxictr.pytorch.models import BaseModel, MultiTaskModel
from torch import Tensor, nn
from trial import SEED, STEPS, Trial, keep_losses

NAME = "FuxiCTR"
BATCH, IDS, DIM, BAG = 32, 200, 8, 6
EPOCHS, TRAIN, TEST = 2, BATCH * STEPS // 2, 800
FEW = ("DeepFM", "DCNv2", "long DIN")

_LONG = ("DCNv2", "DIEN", "DIN", "ETA", "FinalMLP", "MIRRN", "SDIM", "SIM", "TWIN", "TransAct")
_ZOO = os.environ.get("SLOTWISE_FUXICTR_ZOO", "")


class Ranker(BaseModel):  # type: ignore[misc]
    """Embeddings, one of FuxiCTR's interactions, and an MLP, as its model zoo puts them together."""

    def __init__(self, features: FeatureMap, kind: str, **options: Any) -> None:
        super().__init__(features, model_id=kind, **options)
        self.kind, width = kind, features.sum_emb_out_dim()
        self.embedding_layer = layers.FeatureEmbedding(features, DIM)
        self.linear = layers.LogisticRegression(features)
        self.mlp = layers.MLP_Block(input_dim=width, output_dim=1, hidden_units=[32, 32])
        if kind == "DeepFM":
            self.interaction: nn.Module = layers.FactorizationMachine(features)
        elif kind == "xDeepFM":
            self.interaction = layers.CompressedInteractionNet(features.num_fields, [8, 8])
        elif kind in ("DCN", "DCNv2"):
            cross = layers.CrossNet if kind == "DCN" else layers.CrossNetV2
            self.interaction = nn.Sequential(cross(width, 3), nn.Linear(width, 1))
        self.compile(options["optimizer"], options["loss"], 1e-3)
        self.reset_parameters()
        self.model_to_device()

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        found = self.get_inputs(inputs)
        embedded = self.embedding_layer(found)
        flat = embedded.flatten(start_dim=1)
        told = self.mlp(flat)
        if self.kind == "DeepFM":
            return {"y_pred": self.output_activation(told + self.interaction(found, embedded))}
        told = told + self.linear(found)
        if self.kind != "wide and deep":
            told = told + self.interaction(embedded if self.kind == "xDeepFM" else flat)
        return {"y_pred": self.output_activation(told)}


class Tasks(MultiTaskModel):  # type: ignore[misc]
    """A tower a label, over shared embeddings."""

    def __init__(self, features: FeatureMap, _: str, **options: Any) -> None:
        tasks = {**options, "task": ["binary_classification"] * 2}
        super().__init__(features, model_id="tasks", num_tasks=2, **tasks)
        self.embedding_layer = layers.FeatureEmbedding(features, DIM)
        width = features.sum_emb_out_dim()
        self.towers = nn.ModuleList(
            layers.MLP_Block(input_dim=width, output_dim=1, hidden_units=[32]) for _ in features.labels
        )
        self.compile(options["optimizer"], options["loss"], 1e-3)
        self.reset_parameters()
        self.model_to_device()

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        flat = self.embedding_layer(self.get_inputs(inputs), flatten_emb=True)
        return {
            f"{label}_pred": activation(tower(flat))
            for label, tower, activation in zip(self.feature_map.labels, self.towers, self.output_activation)
        }


_RANKERS = ("DeepFM", "xDeepFM", "DCN", "DCNv2", "wide and deep")
_OWN: dict[str, Any] = {**dict.fromkeys(_RANKERS, Ranker), "tasks": Tasks}
_WITH_HISTORY = ("BST", "DIEN", "DIN", "DMIN", "DMR")
_SHORT = {"short_seq_len": 3, "topk": 2}
_OF_MODELS: dict[str, dict[str, Any]] = {
    **{f"long {name}": _SHORT for name in ("ETA", "SDIM", "SIM", "TWIN")},
    "long MIRRN": {**_SHORT, "max_len": BAG},
    **{f"{where} DCNv2": {"parallel_dnn_hidden_units": [32]} for where in ("long", "zoo")},
    **{
        f"zoo {name.upper()}": {f"{name}_target_field": ["item_id"], f"{name}_sequence_field": ["history"]}
        for name in ("bst", "din", "dien")
    },
}


def names() -> list[str]:
    zoo = sorted(path.stem for path in Path(_ZOO).glob("*.py")) if _ZOO else []
    return [*_OWN, *(f"long {name}" for name in _LONG), *(f"zoo {name}" for name in zoo)]


def _features(kind: str) -> dict[str, dict[str, Any]]:
    """Returns FuxiCTR's specification of the features of a kind of model: "flat", "history" or "long"."""

    def ids(source: str, count: int = IDS) -> dict[str, Any]:
        spec = {"source": source, "type": "categorical", "padding_idx": 0, "oov_idx": count - 1}
        return {**spec, "vocab_size": count}

    if kind == "long":
        meta = dict.fromkeys(("user_index", "item_index", "seq_len"), {"type": "meta"})
        return {**meta, "user": ids("user"), "item_id": ids("item")}
    if kind == "history":
        history = {**ids("user"), "type": "sequence", "max_len": BAG, "share_embedding": "item_id"}
        return {"user": ids("user"), "item_id": ids("item"), "history": {**history, "feature_encoder": None}}
    return {"price": {"source": "item", "type": "numeric"}, **{f"C{n}": ids("user") for n in range(4)}}


def _write(folder: Path, kind: str, labels: list[str]) -> FeatureMap:
    """Writes the data of a kind of model, and returns its features."""
    features = FeatureMap(folder.name, str(folder))
    features.features, features.labels = _features(kind), labels
    features.num_fields, features.default_emb_dim = features.get_num_fields(), DIM
    features.total_features = sum(spec.get("vocab_size", 1) for spec in features.features.values())
    features.set_column_index()
    features.save(str(folder / "feature_map.json"))
    vocabularies = dict.fromkeys(features.features, {"__PAD__": 0})
    (folder / "feature_vocab.json").write_text(json.dumps(vocabularies))
    random = np.random.default_rng(SEED)
    for split, count in (("train", TRAIN), ("valid", TEST), ("test", TEST)):
        data: dict[str, Any] = {}
        for name, spec in features.features.items():
            if kind == "long" and spec.get("source") == "item":
                continue  # items.parquet has them
            shape = (count, BAG) if spec["type"] == "sequence" else (count,)
            data[name] = random.integers(1, IDS - 1, shape)
        for name in {"price"} & data.keys():
            data[name] = random.random(count)
        if "seq_len" in data:
            data["seq_len"] = random.integers(2, BAG + 1, count)
        told = next(data[name] for name in ("item_id", "item_index", "C0") if name in data)
        for label in labels:
            data[label] = (random.random(count) < 0.2 + 0.6 * (told % 2)).astype(np.int64)
        np.savez(folder / f"{split}.npz", **data)
        if kind == "long":
            pd.DataFrame(data).to_parquet(folder / f"{split}.parquet")
    if kind == "long":
        seen = [list(random.integers(1, IDS - 1, BAG)) for _ in range(IDS)]
        pd.DataFrame({"full_item_seq": seen}).to_parquet(folder / "users.parquet")
        items = {"item_index": np.arange(IDS), "item_id": np.arange(IDS)}
        pd.DataFrame(items).to_parquet(folder / "items.parquet")
    return features


def _class_of(name: str) -> tuple[Any, str]:
    """Returns a model's class, and the kind of its data."""
    if name in _OWN:
        return _OWN[name], "flat"
    where, short = name.split(" ", 1)
    if where == "long":
        return getattr(importlib.import_module(f"model_zoo.LongCTR.{short}"), short), "long"
    if _ZOO not in sys.path:
        sys.path.append(_ZOO)
    kind = "history" if short in _WITH_HISTORY else "flat"
    return getattr(importlib.import_module(short), short), kind


def make(name: str) -> Trial:
    """Returns a model and FuxiCTR's own training of it, as its run_expid.py does it."""
    logging.disable(logging.CRITICAL)
    build, kind = _class_of(name)
    folder = Path.cwd() / "drawn"
    folder.mkdir(exist_ok=True)
    features = _write(folder, kind, ["click", "buy"] if build is Tasks else ["click"])
    params: dict[str, Any] = {
        "optimizer": "adam",
        "loss": "binary_crossentropy",
        "task": "binary_classification",
        "metrics": ["AUC", "logloss"],
        "model_root": str(Path.cwd()),
        "verbose": 0,
        "embedding_dim": DIM,
        "embedding_regularizer": 1e-3,
        "net_regularizer": 1e-5,
        **_OF_MODELS.get(name, {}),
    }
    if "regularizer" in inspect.signature(build.__init__).parameters:
        params["regularizer"] = 1e-3
    model = build(features, name, **params) if name in _OWN else build(features, **params)
    ending = "parquet" if kind == "long" else "npz"
    loading: dict[str, Any] = {"batch_size": BATCH, "num_workers": 0, "data_format": "npz"}
    if kind == "long":
        loader = importlib.import_module("model_zoo.LongCTR.longctr_dataloader").LongCTRDataLoader
        files = {"user_info": str(folder / "users.parquet"), "item_info": str(folder / "items.parquet")}
        loading.update(data_loader=loader, max_len=BAG, **files)
    splits = {f"{split}_data": str(folder / f"{split}.{ending}") for split in ("train", "valid", "test")}
    losses: list[float] = []

    def train() -> list[float]:
        training, validation = RankDataLoader(features, stage="train", **splits, **loading)
        keep_losses(model, "train_step", losses)
        model.fit(training, epochs=EPOCHS, validation_data=validation)
        return losses

    def evaluate() -> dict[str, float]:
        return dict(model.evaluate(RankDataLoader(features, stage="test", **splits, **loading)))

    return Trial(model, model.optimizer, train, evaluate)
