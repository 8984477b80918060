"""RecBole's models: all that it exports, by its own Trainer.fit() and evaluate(), on data of this file's own.

Every model has RecBole's defaults, but for batches and sizes that make 200 steps a matter of seconds.
"""

from __future__ import annotations

import importlib
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.model.abstract_recommender import AbstractRecommender
from recbole.utils import get_model, get_trainer
from trial import SEED, STEPS, Trial, keep_losses

NAME = "RecBole"
DATASET = "tastes"
USERS, ITEMS, SEEN, CLASSES = 120, 90, 22, 6
FAMILIES = ("general", "sequential", "context_aware", "knowledge_aware")

# A model of each family that is known well, for a short run.
FEW = ("BPR", "LightGCN", "SASRec", "DeepFM", "DIN", "CFKG")

# Those that learn nothing by gradients, and autoencoders and others of layers alone.
_WITHOUT_EMBEDDINGS = (
    "ADMMSLIM AsymKNN DiffRec DMF EASE GCMC ItemKNN LDiffRec MultiDAE MultiVAE NCEPLRec Pop RaCT Random "
    "RecVAE SLIMElastic"
)
_NOTHING_TO_ADOPT = "the model has no nn.Embedding or nn.EmbeddingBag to adopt"
REFUSED = dict.fromkeys(_WITHOUT_EMBEDDINGS.split(), _NOTHING_TO_ADOPT)
NOT_PLAIN = {
    "KGAT": "No module named 'dgl'",  # of which it calls functions that no version for Python 3.11 has
    "KSR": "expected m1 and m2 to have the same dtype",  # it reads vectors as float64, and multiplies float32
    "KGIN": "No module named 'torch_scatter'",  # of which there is no wheel on PyPI
    "MCCLK": "No module named 'torch_scatter'",
}

_INTER = ["user_id", "item_id", "rating", "timestamp"]
_USERS, _ITEMS = ["user_id", "age", "gender"], ["item_id", "release_year", "class"]
_ENTITIES = {"of_entities": ["ent_id", "ent_emb"]}
_KNOWLEDGE = {"kg": ["head_id", "relation_id", "tail_id"], "link": ["item_id", "entity_id"]}
_BY_FAMILY: dict[str, dict[str, Any]] = {
    "general": {"load_col": {"inter": _INTER}},
    "sequential": {
        "load_col": {"inter": _INTER, "item": _ITEMS},
        "MAX_ITEM_LIST_LENGTH": 10,
        "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "mode": "full"},
        "repeatable": True,
    },
    "context_aware": {
        "load_col": {"inter": _INTER, "user": _USERS, "item": _ITEMS},
        "threshold": {"rating": 3},
    },
    "knowledge_aware": {"load_col": {"inter": _INTER, **_KNOWLEDGE}},
}


def families() -> dict[str, str]:
    """Returns the family of every model that RecBole exports, by its name."""
    found = {}
    for family in FAMILIES:
        package = importlib.import_module(f"recbole.model.{family}_recommender")
        for name, value in vars(package).items():
            if isinstance(value, type) and issubclass(value, AbstractRecommender):
                if value.__module__.startswith(package.__name__):
                    found[name] = family
    return found


def names() -> list[str]:
    return list(families())


def write_data(folder: Path) -> None:
    """Writes RecBole's atomic files: users who like some classes of items, and a graph of the classes."""
    random = np.random.default_rng(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    classes = random.integers(0, CLASSES, ITEMS)
    tastes = random.integers(0, CLASSES, (USERS, 2))
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    for user in range(USERS):
        likes = np.isin(classes, tastes[user])
        chances = np.where(likes, 4.0, 1.0)
        items = random.choice(ITEMS, SEEN, replace=False, p=chances / chances.sum())
        for time, item in enumerate(items):
            rating = int(random.integers(3, 6) if likes[item] else random.integers(1, 4))
            lines.append(f"u{user}\ti{item}\t{rating}\t{1000 + 40 * time + user % 7}")
    files = {"inter": lines}
    files["user"] = ["user_id:token\tage:token\tgender:token"]
    files["user"] += [f"u{u}\t{20 + u % 9}\t{'FM'[u % 2]}" for u in range(USERS)]
    files["item"] = ["item_id:token\trelease_year:token\tclass:token_seq"]
    files["item"] += [f"i{i}\t{1990 + i % 8}\tc{classes[i]} c{i % CLASSES}" for i in range(ITEMS)]
    files["link"] = ["item_id:token\tentity_id:token"] + [f"i{i}\te{i}" for i in range(ITEMS)]
    files["kg"] = ["head_id:token\trelation_id:token\ttail_id:token"]
    files["kg"] += [f"e{i}\tis_of\tclass{classes[i]}" for i in range(ITEMS)]
    files["kg"] += [f"e{i}\tmade_by\tmaker{i % 11}" for i in range(ITEMS)]
    vectors = random.normal(size=(ITEMS, 8)).round(4)
    files["of_entities"] = ["ent_id:token\tent_emb:float_seq"]
    files["of_entities"] += [f"e{i}\t{' '.join(map(str, vectors[i]))}" for i in range(ITEMS)]
    files["of_relations"] = ["rel_id:token\trel_emb:float_seq"]
    relations = enumerate(("is_of", "made_by"))
    files["of_relations"] += [f"{name}\t{' '.join(map(str, vectors[r]))}" for r, name in relations]
    for ending, content in files.items():
        (folder / f"{folder.name}.{ending}").write_text("\n".join(content) + "\n")


def config_of(name: str) -> Config:
    """Returns RecBole's defaults for a model, made small."""
    family = families()[name]
    settings: dict[str, Any] = {
        "data_path": str(Path.cwd()),
        "checkpoint_dir": str(Path.cwd() / "saved"),
        "seed": SEED,
        "use_gpu": False,
        "show_progress": False,
        "state": "CRITICAL",
        "embedding_size": 16,
        "train_batch_size": 40,
        "eval_batch_size": 2000,
        **_BY_FAMILY[family],
        **_OF_MODELS.get(name, {}),
    }
    try:
        return Config(model=name, dataset=DATASET, config_dict=settings)
    except ValueError:  # a model whose loss is over all items takes no negative samples
        return Config(model=name, dataset=DATASET, config_dict={**settings, "train_neg_sample_args": None})


_OF_CLICKS = {
    "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "mode": "uni20"},
    "metrics": ["AUC", "LogLoss"],
    "valid_metric": "AUC",
}
_ENTITIES = {"of_entities": ["ent_id", "ent_emb"]}
_OF_MODELS: dict[str, dict[str, Any]] = {
    "DIN": _OF_CLICKS,
    "DIEN": _OF_CLICKS,
    "ConvNCF": {"embedding_size": 64},  # as its layers are for
    "GRU4RecCPR": {"reranker_CAN_NUM": 20},
    "SASRecCPR": {"reranker_CAN_NUM": 20},
    "NCL": {"num_clusters": 8, "warm_up_step": 2},  # as there are few items, and few epochs
    "GRU4RecKG": {
        "load_col": {"inter": _INTER, **_KNOWLEDGE, **_ENTITIES},
        "additional_feat_suffix": ["of_entities"],
        "alias_of_entity_id": ["ent_id"],
        "preload_weight": {"ent_id": "ent_emb"},
        "embedding_size": 8,
    },
    "KSR": {
        "load_col": {"inter": _INTER, **_KNOWLEDGE, **_ENTITIES, "of_relations": ["rel_id", "rel_emb"]},
        "additional_feat_suffix": ["of_entities", "of_relations"],
        "alias_of_entity_id": ["ent_id"],
        "alias_of_relation_id": ["rel_id"],
        "preload_weight": {"ent_id": "ent_emb", "rel_id": "rel_emb"},
        "embedding_size": 8,
        "kg_embedding_size": 8,
    },
}


def make(name: str) -> Trial:
    logging.disable(logging.CRITICAL)
    folder = Path.cwd() / DATASET
    if not folder.exists():
        write_data(folder)
    config = config_of(name)
    train_data, valid_data, test_data = data_preparation(config, create_dataset(config))
    model = get_model(name)(config, train_data._dataset)
    trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, model)
    epochs = math.ceil(STEPS / len(train_data))
    trainer.epochs = epochs * (60 if name == "MKR" else 1)  # whose epochs are of a few triples
    trainer.eval_step = trainer.epochs  # an evaluation an epoch would take most of the time
    trainer.pretrain_epochs = trainer.epochs  # of S3Rec and RaCT, whose first stage is the training here
    losses: list[float] = []

    def train() -> list[float]:
        for method in ("calculate_loss", "calculate_kg_loss"):
            if hasattr(model, method):
                keep_losses(model, method, losses)
        trainer.fit(train_data, valid_data)
        return losses

    def evaluate() -> dict[str, float]:
        is_kept = Path(trainer.saved_model_file).exists()  # a first stage keeps its model elsewhere
        return dict(trainer.evaluate(test_data, load_best_model=is_kept))

    torch.autograd.set_detect_anomaly(False)  # which RecBole's sine.py turns on for all models, and is slow
    return Trial(model, trainer.optimizer, train, evaluate)
