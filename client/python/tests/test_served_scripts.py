"""Served copies that torch records: scripts, traces, exports, ONNX; and processes without Slotwise."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import numpy as np
import pytest
import torch
from served import DIM, KNOWN, PADDING, UNKNOWN, Draw, close, make_table, positions_of
from torch import Tensor, nn

import slotwise
import slotwise.torch as st

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
NAMES = ["ads", "ads_ends", "pairs", "pair_ends", "weights", "matrix", "words"]


class Model(nn.Module):
    """Bags with offsets that end or do not, weighted ones, a matrix of ids, and an embedding."""

    def __init__(self, ps: slotwise.Client, padding: int | None) -> None:
        super().__init__()
        self.ads = st.EmbeddingBag(ps, "ads", include_last_offset=False)
        self.pairs = st.EmbeddingBag(ps, "pairs", padding_idx=padding)
        self.items = st.EmbeddingBag(ps, "items", padding_idx=padding)
        self.words = st.Embedding(ps, "words", padding_idx=padding)
        self.top = nn.Linear(5 * DIM, 2)

    def forward(
        self,
        ads: Tensor,
        ads_ends: Tensor,
        pairs: Tensor,
        pair_ends: Tensor,
        weights: Tensor,
        matrix: Tensor,
        words: Tensor,
    ) -> Tensor:
        pooled = torch.cat([self.ads(ads, ads_ends), self.pairs(pairs, pair_ends, weights)], 1)
        return self.top(torch.cat([pooled, self.items(matrix), self.words(words)], 1))


def make_tables(ps: slotwise.Client, combiner: str) -> None:
    make_table(ps, "ads", combiner)
    make_table(ps, "pairs", combiner, slots=2)
    make_table(ps, "items", combiner)
    make_table(ps, "words", "none")


def batches() -> list[tuple[Tensor, ...]]:
    """Batches of several sizes."""
    draw, drawn = Draw(), []
    for samples, keys in ((4, 11), (2, 8), (7, 30)):
        ends = draw.offsets(keys, samples)[:-1]
        pairs = draw.offsets(keys, 2 * samples)
        drawn.append(
            (
                draw.ids(keys), ends, draw.ids(keys), pairs, draw.weights(keys), draw.ids(samples, 3),
                draw.ids(samples),
            )
        )
    return drawn


def by_position(model: Any, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    ads, ads_ends, pairs, pair_ends, weights, matrix, words = batch
    return (
        positions_of(ads, model.ads.ids),
        ads_ends,
        positions_of(pairs, model.pairs.ids),
        pair_ends,
        weights,
        positions_of(matrix, model.items.ids),
        positions_of(words, model.words.ids),
    )


KINDS = [("sum", None), ("mean", PADDING), ("sqrtn", 3)]


@pytest.mark.parametrize("combiner, padding", KINDS)
@pytest.mark.parametrize("ids", ["map", "positions"])
def test_copies_are_scripted_and_traced(
    fake_ps: slotwise.Client, combiner: str, padding: int | None, ids: str
) -> None:
    make_tables(fake_ps, combiner)
    model = Model(fake_ps, padding).eval()
    copied: Any = st.export_module(model, ids=ids)
    given = [batch if ids == "map" else by_position(copied, batch) for batch in batches()]
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(copied, given[0])
    for recorded in (torch.jit.script(copied), traced):
        file = io.BytesIO()
        torch.jit.save(recorded, file)
        again = torch.jit.load(io.BytesIO(file.getvalue()))
        for batch, arguments in zip(batches(), given):
            close(again(*arguments), model(*batch))


def test_a_script_takes_narrow_ids_and_refuses_what_is_wrong(fake_ps: slotwise.Client) -> None:
    make_table(fake_ps, "ads", "sum")
    scripted = torch.jit.script(st.export_module(st.EmbeddingBag(fake_ps, "ads")))
    keys = torch.tensor([3, 7], dtype=torch.int32)
    close(scripted(keys), scripted(keys.long()))
    assert scripted(keys).any(1).all()
    for arguments in ((-keys,), (keys.float(),), (keys, torch.tensor([0, 1])), (keys, None, torch.ones(3))):
        with pytest.raises(torch.jit.Error, match="ids|offsets|per_sample_weights"):
            scripted(*arguments)


class OfKeys(nn.Module):
    def __init__(self, bags: nn.Module) -> None:
        super().__init__()
        self.bags = bags

    def forward(self, keys: Tensor, ends: Tensor, weights: Tensor) -> Dict[str, Tensor]:
        return self.bags({"b": keys, "a": keys})


class OfTwo(OfKeys):
    def forward(self, keys: Tensor, ends: Tensor, weights: Tensor) -> Dict[str, Tensor]:
        return self.bags({"b": (keys, ends), "a": (keys, ends)})


class OfThree(OfKeys):
    def forward(self, keys: Tensor, ends: Tensor, weights: Tensor) -> Dict[str, Tensor]:
        return self.bags({"b": (keys, ends, weights)})


class Mixed(OfKeys):
    def forward(self, keys: Tensor, ends: Tensor, weights: Tensor) -> Dict[str, Tensor]:
        bags: Dict[str, Tuple[Tensor, Optional[Tensor], Optional[Tensor]]] = {
            "a": (keys, None, weights),
            "b": (keys, ends, None),
        }
        return self.bags(bags)


@pytest.mark.parametrize("kind", [OfKeys, OfTwo, OfThree, Mixed])
def test_several_features_are_scripted_and_traced(fake_ps: slotwise.Client, kind: type[OfKeys]) -> None:
    make_table(fake_ps, "ads", "sum")
    make_table(fake_ps, "items", "mean", dim=2)
    model = kind(st.EmbeddingBags(fake_ps, {"a": "ads", "b": "items", "c": "items"})).eval()
    draw = Draw()
    one, two = ((draw.ids(n), draw.offsets(n, bags), draw.weights(n)) for n, bags in ((5, 2), (9, 4)))
    copied = st.export_module(model)
    for recorded in (torch.jit.script(copied), torch.jit.trace(copied, one, strict=False)):
        for batch in (one, two):
            found, expected = recorded(*batch), model(*batch)
            assert list(found) == list(expected)
            for feature, values in expected.items():
                close(found[feature], values)
    scripted = torch.jit.script(copied.bags)
    with pytest.raises(torch.jit.Error, match="there is no feature others"):
        scripted({"others": draw.ids(2)})


def test_a_script_needs_no_slotwise(fake_ps: slotwise.Client, tmp_path: Path) -> None:
    make_tables(fake_ps, "mean")
    model = Model(fake_ps, PADDING).eval()
    torch.jit.script(st.export_module(model)).save(str(tmp_path / "model.pt"))
    batch = batches()[0]
    torch.save([*batch, model(*batch).detach()], tmp_path / "batch.pt")
    program = (
        "import sys, torch\n"
        "*batch, expected = torch.load('batch.pt')\n"
        "torch.testing.assert_close(torch.jit.load('model.pt')(*batch), expected)\n"
        "assert not any('slotwise' in name for name in sys.modules)\n"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.skipif(TORCH < (2, 5), reason="torch.export before 2.5 takes fewer models")
@pytest.mark.parametrize("ids", ["map", "positions"])
def test_copies_are_exported(fake_ps: slotwise.Client, ids: str) -> None:
    make_tables(fake_ps, "mean")
    model = Model(fake_ps, PADDING).eval()
    copied: Any = st.export_module(model, ids=ids)
    batch = batches()[0]
    arguments = batch if ids == "map" else by_position(copied, batch)
    exporter: Any = getattr(torch, "export")
    close(exporter.export(copied, arguments).module()(*arguments), model(*batch))


@pytest.mark.parametrize("combiner, padding", KINDS)
def test_positions_are_exported_to_onnx(
    fake_ps: slotwise.Client, tmp_path: Path, combiner: str, padding: int | None
) -> None:
    """ONNX Runtime gives the original's numbers for other batch sizes than the one that was exported."""
    if TORCH >= (2, 0):
        pytest.importorskip("onnx", reason="torch 2 exports to ONNX with the package onnx")
    make_tables(fake_ps, combiner)
    model = Model(fake_ps, padding).eval()
    copied: Any = st.export_module(model, ids="positions")
    sizes = ["k", "ends", "p", "pair_ends", "p", "samples", "samples"]
    axes = {name: {0: size} for name, size in zip(NAMES, sizes)}
    options: dict[str, Any] = {} if TORCH < (2, 5) else {"dynamo": False}
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        torch.onnx.export(
            copied, by_position(copied, batches()[0]), str(path), opset_version=17, input_names=NAMES,
            output_names=["out"], dynamic_axes={**axes, "out": {0: "samples"}}, **options,
        )
    assert path.stat().st_size > 0
    runtime = pytest.importorskip("onnxruntime", reason="the numbers are onnxruntime's")
    session = runtime.InferenceSession(str(path))
    for batch in batches():
        arrays = [tensor.numpy() for tensor in by_position(copied, batch)]
        (found,) = session.run(None, dict(zip(NAMES, arrays)))
        close(torch.from_numpy(found), model(*batch))


def test_positions_are_those_of_the_ids(fake_ps: slotwise.Client) -> None:
    known = np.sort(KNOWN)
    assert slotwise.positions(known, known).tolist() == list(range(len(known)))
    assert slotwise.positions(UNKNOWN, known).tolist() == [len(known)] * len(UNKNOWN)
    some = slotwise.positions([[2**63, 3], [2**64 - 5, 4]], known)
    assert some.dtype == np.int64 and some.tolist() == [[0, 2], [1, len(known)]]
    assert slotwise.positions(np.int32(3), known).tolist() == 2
    assert slotwise.positions([3, 4], known[:0]).tolist() == [0, 0]
    texts = np.sort(slotwise.hash_ids(["red", "blue"]).view(np.int64))
    assert sorted(slotwise.positions(slotwise.hash_ids(["red", "green", "blue"]), texts)) == [0, 1, 2]
    for wrong in (known.view(np.uint64), known[None], known.tolist()):
        with pytest.raises(slotwise.InvalidArgument, match="known: must be the int64 array"):
            slotwise.positions([3], wrong)  # type: ignore[arg-type]
    with pytest.raises(slotwise.InvalidArgument, match="known: begins with 3 .* sorted anew as int64"):
        slotwise.positions([3], np.sort(KNOWN.view(np.uint64)).view(np.int64))
    with pytest.raises(slotwise.InvalidArgument, match="only int64 may be below 0"):
        slotwise.positions(np.array([-5], np.int32), known)
