"""Synthetic clicks: the ids follow their law, and a batch is the same in every process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slotwise.errors import InvalidArgument

from clicks import PRESETS, TAILS, ClickModel, Clicks, ClickStream, PowerLaw, Slot, best_auc, expected_auc
from clicks.hashing import normal, salt, scatter

SEED = 20_240_607

# All that a model can have.
MODEL = ClickModel(
    (
        Slot(50, 1.1, deviation=0.5),
        Slot(20_000_000, 0.9, deviation=0.5, least=0, most=4),
        Slot(1_000, 1.3, deviation=0.2, least=3, most=3),
    ),
    bias=-0.5,
    combiner="mean",
    pairs=((0, 1), (1, 2)),
    pair_deviation=0.3,
    dense=2,
    dense_deviation=0.4,
)


def arrays(clicks: Clicks) -> list[np.ndarray[Any, Any]]:
    return [clicks.keys, clicks.offsets, clicks.dense, clicks.labels, clicks.probabilities]


def fingerprint(clicks: Clicks) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays(clicks))).hexdigest()


def run_python(program: str) -> str:
    """What the program prints in a process of its own, with this folder's modules."""
    paths = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=paths, capture_output=True, text=True, check=True).stdout


# --- the power law


@pytest.mark.parametrize("alpha", [0.0, *TAILS.values(), 1.0, 2.5])
@pytest.mark.parametrize("ranks", [1, 2, 1000, 4096, 4097, 3_000_000])
def test_every_rank_has_its_share_of_evenly_spaced_numbers(ranks: int, alpha: float) -> None:
    draws = 200_000
    drawn = PowerLaw(ranks, alpha).draw((np.arange(draws) + 0.5) / draws)
    assert drawn.dtype == np.uint64 and drawn.min() >= 1 and drawn.max() <= ranks
    weight = np.arange(1, ranks + 1) ** -alpha
    up_to = np.searchsorted(drawn, np.arange(1, ranks + 1), side="right")  # evenly spaced: sorted
    # Half a draw by rounding; the integral that stands for the tail adds less.
    assert np.abs(up_to - draws * np.cumsum(weight) / weight.sum()).max() <= 0.51


def test_the_last_ranks_of_a_large_vocabulary_are_reached_and_not_passed() -> None:
    for alpha in (0.0, 0.9, 1.0, 1.3):
        law = PowerLaw(1 << 48, alpha)
        drawn = law.draw(np.array([0.0, 1 - 2.0**-53]))
        assert drawn[0] == 1 and (1 << 47) < drawn[1] <= 1 << 48


def test_probabilities_add_up_to_the_share() -> None:
    law = PowerLaw(2_000_000, 1.1)
    probability = law.probability(np.arange(1, 2_000_001))
    assert probability.sum() == pytest.approx(1, abs=1e-8)
    for rank in (1, 1000, 4096, 5000, 2_000_000):
        assert law.share_up_to(rank) == pytest.approx(probability[:rank].sum(), abs=1e-8)


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_the_keys_of_a_stream_follow_their_slots_law(slot: int) -> None:
    print(f"seed {SEED}")
    stream = ClickStream(MODEL, seed=SEED, batch_size=20_000)
    bags = len(MODEL.slots)
    keys = []
    for clicks in stream.batches(0, 5):
        of_key = np.repeat(np.arange(len(clicks.offsets) - 1) % bags, np.diff(clicks.offsets))
        keys.append(clicks.keys[of_key == slot])
    drawn = np.concatenate(keys)
    shape = MODEL.slots[slot]
    ranks = np.arange(1, min(shape.ids, 40) + 1, dtype=np.uint64)
    expected = len(drawn) * PowerLaw(shape.ids, shape.alpha).probability(ranks)
    counts = np.array([(drawn == key).sum() for key in scatter(ranks, slot, SEED)])
    # Pearson's chi-square: as many as there are ranks, give or take its own deviation.
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < len(ranks) + 4 * np.sqrt(2 * len(ranks))


# --- ids and hidden numbers


def test_ids_are_distinct_over_slots_and_spread_over_64_bits() -> None:
    ranks = np.arange(1, 100_001, dtype=np.uint64)
    ids = np.concatenate([scatter(ranks, slot, SEED) for slot in range(5)])
    assert len(np.unique(ids)) == 500_000
    for bit in range(64):
        assert ((ids >> np.uint64(bit)) & np.uint64(1)).mean() == pytest.approx(0.5, abs=0.01)


def test_hidden_numbers_are_normal_and_their_kinds_unrelated() -> None:
    print(f"seed {SEED}")
    keys = scatter(np.arange(1, 200_001, dtype=np.uint64), 3, SEED)
    first, second = normal(keys, salt(SEED, 1, 3)), normal(keys, salt(SEED, 2, 3))
    for sample in (first, second):
        quantiles = np.quantile(sample, [0.0228, 0.1587, 0.5, 0.8413, 0.9772])
        np.testing.assert_allclose(quantiles, [-2, -1, 0, 1, 2], atol=0.03)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01
    np.testing.assert_array_equal(normal(keys[5:9], salt(SEED, 1, 3)), first[5:9])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_log_odds_are_what_the_model_says(combiner: str) -> None:
    model = replace(MODEL, combiner=combiner)
    clicks = ClickStream(model, seed=SEED, batch_size=50).batch(3)
    weights = model.dense_weights(SEED)
    for sample in range(50):
        effects, factors = [], []
        for slot, shape in enumerate(model.slots):
            bag = sample * len(model.slots) + slot
            keys = clicks.keys[clicks.offsets[bag] : clicks.offsets[bag + 1]]
            assert shape.least <= len(keys) <= shape.most
            count = max(len(keys), 1)
            divisor = {"sum": 1.0, "mean": count, "sqrtn": count**0.5}[combiner]
            effects.append(shape.deviation * normal(keys, salt(SEED, 1, slot)).sum() / divisor)
            factors.append(normal(keys, salt(SEED, 2, slot)).sum() / divisor)
        pairs = sum(factors[a] * factors[b] for a, b in model.pairs)
        log_odds = model.bias + sum(effects) + 0.3 * pairs + weights @ clicks.dense[sample]
        assert clicks.probabilities[sample] == pytest.approx(1 / (1 + np.exp(-log_odds)))


def test_labels_are_drawn_with_their_probabilities() -> None:
    print(f"seed {SEED}")
    clicks = ClickStream(MODEL, seed=SEED, batch_size=200_000).batch(0)
    assert set(clicks.labels) == {0.0, 1.0}
    place = np.digitize(clicks.probabilities, [0.2, 0.4, 0.6, 0.8])
    for part in range(5):
        chosen = place == part
        expected = clicks.probabilities[chosen].mean()
        assert clicks.labels[chosen].mean() == pytest.approx(expected, abs=0.02)


# --- streams


def test_a_batch_is_laid_out_as_slotwise_takes_it() -> None:
    clicks = ClickStream(MODEL, seed=SEED, batch_size=100).batch(0)
    types = [np.uint64, np.uint32, np.float32, np.float32, np.float64]
    assert [array.dtype for array in arrays(clicks)] == types
    assert clicks.samples == 100 and clicks.dense.shape == (100, 2)
    assert len(clicks.offsets) == 100 * 3 + 1
    assert clicks.offsets[0] == 0 and clicks.offsets[-1] == len(clicks.keys)
    counts = np.diff(clicks.offsets.astype(int)).reshape(100, 3)
    assert set(counts[:, 0]) == {1} and set(counts[:, 1]) == {0, 1, 2, 3, 4}
    assert set(counts[:, 2]) == {3}


def test_another_process_makes_the_same_batch() -> None:
    program = "from test_clicks import *; "
    program += "print(fingerprint(ClickStream(MODEL, seed=SEED, batch_size=500).batch(7)))"
    elsewhere = run_python(program).strip()
    stream = ClickStream(MODEL, seed=SEED, batch_size=500)
    stream.batch(6)  # what was made before does not matter
    assert elsewhere == fingerprint(stream.batch(7))


def test_trainers_batches_are_the_streams_without_overlap() -> None:
    stream = ClickStream(MODEL, seed=SEED, batch_size=20)
    whole = [fingerprint(clicks) for clicks in stream.batches(0, 12)]
    assert len(set(whole)) == 12
    shares = [[fingerprint(c) for c in stream.batches(k, 12, 3)] for k in range(3)]
    assert [shares[n % 3][n // 3] for n in range(12)] == whole
    endless = stream.batches(5)
    assert [fingerprint(next(endless)) for _ in range(3)] == whole[5:8]


def test_seeds_differ_in_all_and_a_new_feature_leaves_the_ids_alone() -> None:
    first = ClickStream(MODEL, seed=1, batch_size=50).batch(0)
    second = ClickStream(MODEL, seed=2, batch_size=50).batch(0)
    assert not np.isin(first.keys, second.keys).any()
    wider = ClickStream(replace(MODEL, dense=5), seed=1, batch_size=50).batch(0)
    np.testing.assert_array_equal(wider.keys, first.keys)


def test_the_quick_preset_takes_all_of_a_model() -> None:
    """Blind to the slots of millions of ids, or to the pair, none ends within 0.01 of the best."""
    model = PRESETS["quick"]
    assert model.ids > 40_000_000
    slots = tuple(replace(s, deviation=0.0) if s.ids >= 1_000_000 else s for s in model.slots)
    best = ClickStream(model, seed=1, batch_size=50_000).batch(0).probabilities
    for blind in (replace(model, slots=slots), replace(model, pairs=())):
        scores = ClickStream(blind, seed=1, batch_size=50_000).batch(0).probabilities
        assert best_auc(best) - expected_auc(best, scores) > 0.0115


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_sane(name: str) -> None:
    clicks = ClickStream(PRESETS[name], seed=1, batch_size=20_000).batch(0)
    assert 0.05 < clicks.probabilities.mean() < 0.5
    assert 0.75 < best_auc(clicks.probabilities) < 0.9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Slot(0, 1.1, 1.0), "ids is 0"),
        (lambda: Slot(5, float("nan"), 1.0), "alpha is nan"),
        (lambda: Slot(5, 1.1, -1.0), "deviation is -1.0"),
        (lambda: Slot(5, 1.1, 1.0, least=3, most=2), "least, most are 3, 2"),
        (lambda: Slot(5, 1.1, 1.0, least=0, most=0), "least, most are 0, 0"),
        (lambda: ClickModel(()), "there are 0 slots"),
        (lambda: replace(MODEL, combiner="max"), "combiner is 'max'"),
        (lambda: replace(MODEL, pairs=((0, 3),)), r"\(0, 3\) names a slot that is not there"),
        (lambda: replace(MODEL, dense=-1), "dense is -1"),
        (lambda: PowerLaw(0, 1.0), "ranks is 0"),
        (lambda: PowerLaw(5, -0.1), "alpha is -0.1"),
        (lambda: ClickStream(MODEL, seed=-1, batch_size=1), "seed is -1"),
        (lambda: ClickStream(MODEL, seed=1, batch_size=0), "batch_size is 0"),
        (lambda: ClickStream(MODEL, seed=1, batch_size=1 << 30), "offsets would pass 32 bits"),
        (lambda: ClickStream(MODEL, seed=1, batch_size=1).batch(-1), "batch is -1"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_value(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()
