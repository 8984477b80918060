"""Manifests of checkpoints: the chain that a checkpoint is restored from, and its tables' options."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slotwise.errors import DataLoss, InvalidArgument, NotFound
from slotwise.optimizers import Json
from slotwise.options import TableOptions, options_from_json

_MANIFEST = "manifest.json"
_VERSIONS = (1, 2, 3)
_FIRST_LINE = re.compile(rb'\{"checksum": "([0-9a-f]{16})",\n')
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_ORIGIN = re.compile(r"(\d{12,})-([0-9a-f]{16})(-.*)?")  # a server's id: the round, and its incarnation
_MOST_LINKS = 1024

_WIDE = {"created", "round", "ledger_epoch", "bytes", "block_bytes", "steps", "rows", "erased"}

# The constants of each optimizer and initializer in manifests of version 1, which have no others: protobuf's
# names, and the manifest's.
_CONSTANTS: dict[str, dict[str, str]] = {
    "sgd": {},
    "momentum": {"momentum": "momentum"},
    "nesterov": {"momentum": "momentum"},
    "adagrad": {"epsilon": "epsilon", "initial_accumulator": "initial_accumulator"},
    "rowwise_adagrad": {"epsilon": "epsilon", "initial_accumulator": "initial_accumulator"},
    "rmsprop": {"beta": "beta2", "epsilon": "epsilon"},
    "adam": {"beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"},
    "ftrl": {"lambda1": "lambda1", "lambda2": "lambda2", "beta": "ftrl_beta"},
    "uniform": {"low": "low", "high": "high"},
    "normal": {"mean": "mean", "deviation": "deviation"},
    "constant": {"value": "mean"},
}
_FLAGS = ("corrected_epsilon", "decoupled_decay")  # of Adam; left out where they are false
_PLAIN = ("name", "dim", "slots", "initial_rows", "max_rows", "max_load")
_SCHEDULE = ("warmup_steps", "decay_start", "decay_steps", "decay_power", "end_learning_rate")


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's folder, the checksum in its manifest's first line, and the manifest's content."""

    folder: Path
    checksum: str
    says: Json


def read_chain(folder: Path, hasher: Any) -> list[Manifest]:
    """Returns the manifests that a checkpoint is restored from, the base first.

    Args:
        hasher: xxhash.xxh3_64_hexdigest, or None: checksums of manifests are not compared.

    Raises:
        NotFound: there is no manifest in `folder`.
        DataLoss: a link is missing, damaged or foreign; the message names the link.
    """
    if not (folder / _MANIFEST).is_file():
        raise NotFound(f"{folder} is no checkpoint: it has no {_MANIFEST}")
    chain = [_read(folder, hasher)]
    folds = _folds(folder.parent, hasher) if chain[0].says["parent"] is not None else []
    while (parent := chain[-1].says["parent"]) is not None:
        if len(chain) == _MOST_LINKS:
            raise DataLoss(f"{folder}: its chain has more than {_MOST_LINKS} links")
        older, newer = _link(folder.parent, parent, folds, hasher), chain[-1]
        where = f"{newer.folder} does not follow {older.folder}: "
        if older.says["data_lineage"] != newer.says["data_lineage"]:
            raise DataLoss(where + "they are of different lineages of data")
        if older.says["round"] > newer.says["round"]:
            raise DataLoss(where + "its round is earlier")
        if older.folder in [link.folder for link in chain]:
            raise DataLoss(f"{folder}: its chain comes twice to {older.folder}")
        chain.append(older)
    return chain[::-1]


def table_options(says: Json) -> TableOptions:
    """Returns the options of a table, as a manifest has them: protobuf's JSON, or version 1's flat object."""
    return _flat_options(says) if isinstance(says["optimizer"], str) else options_from_json(says)


def _flat_options(says: Json) -> TableOptions:
    # A manifest has every digit of a float32; callers have given, for example, 0.05.
    says = {
        name: float(str(np.float32(value))) if isinstance(value, float) else value
        for name, value in says.items()
    }

    def kind(name: str) -> Json:
        constants = {theirs: says[ours] for theirs, ours in _CONSTANTS[name].items()}
        constants |= {flag: True for flag in _FLAGS if name == "adam" and says.get(flag)}
        return {name: constants}

    return options_from_json(
        {
            **{name: says[name] for name in _PLAIN},
            "combiner": "COMBINER_" + says["combiner"].upper(),
            "optimizer": {
                "learning_rate": says["learning_rate"],
                "weight_decay": says["weight_decay"],
                "schedule": {name: says[name] for name in _SCHEDULE},
                **kind(says["optimizer"]),
            },
            "initializer": {"seed": int(says["seed"], 16), **kind(says["initializer"])},
        }
    )


def parse_manifest(text: str | bytes) -> Json:
    """Returns what a manifest says, as `format_version` 1 said it: 64-bit numbers as int, no parent as None.

    Raises:
        ValueError, TypeError: the text is no JSON, or not of a manifest.
    """
    says: Json = {"parent": None, "folds": None} | json.loads(text, object_hook=_with_numbers)
    return says


def _with_numbers(says: dict[str, Any]) -> dict[str, Any]:
    """Makes numbers of those that protobuf's JSON has as strings: all of 64 bits."""
    for name in _WIDE & says.keys():
        says[name] = int(says[name])
    return says


def _read(folder: Path, hasher: Any) -> Manifest:
    path = folder / _MANIFEST
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataLoss(f"cannot read {path}: {error.strerror}") from None
    first = _FIRST_LINE.match(text)
    checksum = first[1].decode() if first else ""
    if first is None or (hasher is not None and hasher(text[first.end() :]) != checksum):
        raise DataLoss(f"{path} is damaged: its checksum is not that of its text")
    try:
        says = parse_manifest(text)
    except (ValueError, TypeError) as error:
        raise DataLoss(f"{path} is no JSON: {error}") from None
    if says.get("format_version") not in _VERSIONS:
        raise InvalidArgument(
            f"{path}: format_version is {says.get('format_version')}, and this version of Slotwise "
            f"reads {_VERSIONS[0]} to {_VERSIONS[-1]}"
        )
    if says["id"] != folder.name:
        raise DataLoss(f"{path} is that of checkpoint {says['id']}")
    origin = _ORIGIN.fullmatch(folder.name)
    if origin and (int(origin[1]), origin[2]) != (says["round"], says["incarnation"]):
        raise DataLoss(f"{path} is of round {says['round']}, which is not its id's")
    return Manifest(folder, checksum, says)


def _folds(checkpoints: Path, hasher: Any) -> list[Manifest]:
    """Returns the bases that stand for a chain each."""
    found = []
    for path in sorted(checkpoints.glob(f"*/{_MANIFEST}")):
        try:
            manifest = _read(path.parent, hasher)
        except (DataLoss, InvalidArgument):
            continue  # a broken base stands for nothing
        if manifest.says.get("folds") is not None:
            found.append(manifest)
    return found


def _link(checkpoints: Path, parent: Json, folds: list[Manifest], hasher: Any) -> Manifest:
    """Returns the checkpoint that a delta follows, or a base that stands for it."""
    for base in folds:
        if base.says["folds"] == parent:
            return base
    if not _ID.fullmatch(parent["id"]):
        raise DataLoss(f"{checkpoints}: {parent['id']!r} is no checkpoint's id")
    folder = checkpoints / parent["id"]
    if not (folder / _MANIFEST).is_file():
        raise DataLoss(f"the chain has a gap: there is no {folder}")
    manifest = _read(folder, hasher)
    if manifest.checksum != parent["checksum"]:
        raise DataLoss(f"the chain has a foreign link: {folder} is not the one that was followed")
    return manifest
