"""TorchRec's models over its unsharded collections, trained by its own TrainPipelineBase.

"native" has `slotwise.torch.EmbeddingBags` in the place of the collection: TorchRec's KeyedJaggedTensor goes
in, and its KeyedTensor comes out. The tables begin with the collection's rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits
from torchmetrics.functional.classification import binary_auroc
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig
from torchrec import KeyedJaggedTensor, PoolingType
from torchrec.distributed.train_pipeline import TrainPipelineBase
from torchrec.models.deepfm import SimpleDeepFMNN
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRM_Projection
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from torchrec.streamable import Pipelineable
from trial import SEED, STEPS, Trial

import slotwise
import slotwise.torch

NAME = "TorchRec"
BATCH, DIM, DENSE = 32, 8, 4
ROWS = {"goods": 120, "users": 60}
FEATURES = {"seen": "goods", "bought": "goods", "user": "users"}
RATE = 0.01
FEW = ("DLRM Adam", "DLRM native")

_MODELS = ("DLRM", "DLRM_DCN", "DLRM_Projection", "DeepFM", "weighted", "sequences")


@dataclass
class Batch(Pipelineable):  # type: ignore[misc]
    """One step's samples."""

    dense: Tensor  # float32 [BATCH, DENSE]
    sparse: KeyedJaggedTensor
    labels: Tensor  # float32 [BATCH]

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        parts = (self.dense, self.sparse, self.labels)
        return Batch(*(part.to(device, non_blocking=non_blocking) for part in parts))

    def record_stream(self, stream: Any) -> None:
        """Is for GPUs."""


class Losses(nn.Module):
    """What TorchRec's pipeline trains: a model of logits or probabilities, and its loss."""

    def __init__(self, model: nn.Module, probabilities: bool) -> None:
        super().__init__()
        self.model, self.probabilities = model, probabilities
        self.kept: list[float] = []

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the mean loss and the predictions."""
        told = self.model(batch.dense, batch.sparse).squeeze(-1)
        loss_of: Any = binary_cross_entropy if self.probabilities else binary_cross_entropy_with_logits
        loss = loss_of(told, batch.labels)
        if self.training:
            self.kept.append(loss.item())
        return loss, told


class Pooled(nn.Module):
    """A dense layer over a collection: weighted bags, or sequences that are pooled here."""

    def __init__(self, collection: nn.Module, sequences: bool) -> None:
        super().__init__()
        self.collection, self.sequences = collection, sequences
        self.top = nn.Linear(DENSE + len(FEATURES) * DIM, 1)

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor:
        found = self.collection(sparse)
        pooled = [found[feature] for feature in FEATURES]
        if self.sequences:
            pooled = [torch.segment_reduce(j.values(), "sum", lengths=j.lengths()) for j in pooled]
        return self.top(torch.cat([dense, *pooled], 1).tanh())


def names() -> list[str]:
    """Returns every model, with its optimizer."""
    adam = [f"{name} Adam" for name in _MODELS]
    return [*adam, "DLRM Adagrad", "DLRM RowWiseAdagrad", "DLRM native", "weighted native"]


def _collection(name: str) -> nn.Module:
    """Returns TorchRec's collection of two tables and three features."""
    tables: list[dict[str, Any]] = []
    for table, rows in ROWS.items():
        features = [feature for feature, its in FEATURES.items() if its == table]
        shape = {"embedding_dim": DIM, "num_embeddings": rows}
        tables.append({"name": table, "feature_names": features, **shape})
    if name == "sequences":
        return EmbeddingCollection(tables=[EmbeddingConfig(**table) for table in tables])
    pooling = PoolingType.SUM if name == "weighted" else PoolingType.MEAN
    bags = [EmbeddingBagConfig(**table, pooling=pooling) for table in tables]
    return EmbeddingBagCollection(tables=bags, is_weighted=name == "weighted")


def _model(name: str, collection: Any) -> nn.Module:
    """Returns a model of TorchRec's; of "weighted" and "sequences" one of this file."""
    sizes: dict[str, Any] = {"dense_in_features": DENSE, "dense_arch_layer_sizes": [16, DIM]}
    sizes["over_arch_layer_sizes"] = [16, 1]
    if name == "DLRM":
        return DLRM(collection, **sizes)
    if name == "DLRM_DCN":
        return DLRM_DCN(collection, **sizes, dcn_num_layers=2, dcn_low_rank_dim=4)
    if name == "DLRM_Projection":
        branches = {f"interaction_branch{n}_layer_sizes": [16, DIM * 4] for n in (1, 2)}
        return DLRM_Projection(collection, **sizes, **branches)
    if name == "DeepFM":
        return SimpleDeepFMNN(DENSE, collection, hidden_layer_size=16, deep_fm_dimension=8)
    return Pooled(collection, sequences=name == "sequences")


def _batches(count: int, weighted: bool) -> Iterator[Batch]:
    """Yields samples of 0 to 3 goods seen and bought, and a user."""
    random = np.random.default_rng(SEED)
    for _ in range(count):
        lengths = np.concatenate([random.integers(0, 4, 2 * BATCH), np.ones(BATCH, np.int64)])
        goods = int(lengths[: 2 * BATCH].sum())
        drawn = [random.integers(0, ROWS["goods"], goods), random.integers(0, ROWS["users"], BATCH)]
        keys = torch.from_numpy(np.concatenate(drawn))
        weights = torch.from_numpy(random.random(len(keys)).astype(np.float32)) if weighted else None
        sparse = KeyedJaggedTensor(list(FEATURES), keys, weights, torch.from_numpy(lengths))
        dense = torch.from_numpy(random.random((BATCH, DENSE)).astype(np.float32))
        likely = 0.2 + 0.6 * (drawn[1] % 2)
        yield Batch(dense, sparse, torch.from_numpy((random.random(BATCH) < likely).astype(np.float32)))


def make(full_name: str) -> Trial:
    name, kind = full_name.rsplit(" ", 1)
    weighted = name == "weighted"
    collection: Any = _collection(name)
    losses = Losses(_model(name, collection), probabilities=name == "DeepFM")
    weights = dict(losses.named_parameters())
    if kind == "RowWiseAdagrad":  # which takes matrices alone; TorchRec combines it with another
        rows = {path: weight for path, weight in weights.items() if "embedding_bags" in path}
        keyed = KeyedOptimizerWrapper(rows, lambda chosen: RowWiseAdagrad(chosen, lr=RATE))
        rest = {path: weight for path, weight in weights.items() if path not in rows}
        others = KeyedOptimizerWrapper(rest, lambda chosen: torch.optim.Adam(chosen, lr=RATE))
        optimizer, used = keyed._optimizer, [CombinedOptimizer([keyed, others])]
    else:
        optimizer = (torch.optim.Adam if kind == "Adam" else torch.optim.Adagrad)(weights.values(), lr=RATE)
        used = [optimizer]

    def go_native(ps: slotwise.Client) -> None:
        for table, rows in ROWS.items():
            combiner = "sum" if weighted else "mean"
            ps.create_table(table, dim=DIM, combiner=combiner, optimizer=slotwise.AdaGrad(RATE))
            ps.import_rows(table, np.arange(rows), collection.embedding_bags[table].weight.detach().numpy())
        bags = slotwise.torch.EmbeddingBags(ps, FEATURES)
        for module in losses.modules():
            for path, child in list(module.named_children()):
                if child is collection:
                    setattr(module, path, bags)
        dense = torch.optim.Adagrad(losses.parameters(), lr=RATE)
        used[0] = slotwise.torch.Optimizer(losses, dense=dense)

    def train() -> list[float]:
        pipeline = TrainPipelineBase(losses.train(), used[0], torch.device("cpu"))
        batches = _batches(STEPS + 1, weighted)  # the pipeline fetches a batch ahead
        for _ in range(STEPS):
            pipeline.progress(batches)
        return losses.kept

    def evaluate() -> dict[str, float]:
        losses.eval()
        with torch.no_grad():
            unseen = list(_batches(STEPS + 20, weighted))[STEPS:]
            found = [(losses(batch)[1], batch.labels) for batch in unseen]
        told, labels = (torch.cat(parts) for parts in zip(*found))
        told = told if losses.probabilities else told.sigmoid()
        log_loss = float(binary_cross_entropy(told, labels))
        return {"AUC": float(binary_auroc(told, labels.int())), "logloss": log_loss}

    return Trial(losses, optimizer, train, evaluate, go_native if kind == "native" else None)
