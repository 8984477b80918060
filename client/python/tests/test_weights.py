"""Weights, tables without a combiner, and half precision, against the oracle's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle import OracleTable

import slotwise

SEED, DIM, SLOTS, SAMPLES = 20261121, 3, 2, 9


def make_batch(random: np.random.Generator) -> tuple[Any, ...]:
    """Keys (with repetitions), offsets, weights, gradients; some bags are empty."""
    lengths = random.integers(0, 5, SAMPLES * SLOTS)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    keys = random.integers(0, 12, int(offsets[-1]), dtype=np.uint64)
    weights = random.normal(size=len(keys)).astype(np.float32)
    gradients = random.normal(size=(SAMPLES, SLOTS * DIM)).astype(np.float32)
    return keys, offsets, weights, gradients


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weighted_bags_train_as_the_oracle_says(any_ps: slotwise.Client, combiner: str) -> None:
    print(f"seed {SEED}")
    random = np.random.default_rng(SEED)
    options = any_ps.create_table(
        "ads", dim=DIM, slots=SLOTS, combiner=combiner, optimizer=slotwise.AdaGrad(0.1)
    )
    oracle = OracleTable.with_rows_of(any_ps, options, np.arange(12, dtype=np.uint64))
    for step in range(1, 4):
        keys, offsets, weights, gradients = make_batch(random)
        weights[offsets[3] : offsets[4]] = 0  # divisor 0: zeros, and no gradient
        used = weights if step != 2 else None
        expected = oracle.lookup(keys, offsets, True, used).reshape(SAMPLES, -1)
        ours = any_ps.lookup("ads", keys, offsets, weights=used)
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
        assert any_ps.push("ads", keys, offsets, gradients, weights=used) == step
        oracle.push(keys, offsets, gradients.reshape(-1, DIM), used)
    every = np.arange(12, dtype=np.uint64)
    for chunk in any_ps.export_rows("ads", every):
        for key, row in zip(chunk.keys.tolist(), chunk.values, strict=True):
            np.testing.assert_allclose(row, oracle.rows.pop(key), rtol=1e-5, atol=1e-6)
    assert not oracle.rows


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_nothing_comes_of_a_pushed_bag_whose_divisor_is_0(any_ps: slotwise.Client, combiner: str) -> None:
    any_ps.create_table("ads", dim=2, combiner=combiner, optimizer=slotwise.FTRL(0.1, weight_decay=0.5))
    any_ps.lookup("ads", [1, 2])
    before = any_ps.digest("ads")
    weights = np.array([0.5, -0.5] if combiner == "mean" else [0, 0], np.float32)
    gradients = np.ones((1, 2), np.float32)
    any_ps.push("ads", [1, 2], [0, 2], gradients, weights=weights)
    any_ps.push("ads", [1, 3], [0, 2], gradients, weights=weights)
    after = any_ps.digest("ads")
    assert (after.digest, after.rows, after.steps) == (before.digest, 2, 2)
    any_ps.lookup("ads", [1, 3], [0, 2], weights=weights)
    assert any_ps.digest("ads").rows == 3  # a lookup that trains gives every key a row


def test_weights_of_one_change_nothing(any_ps: slotwise.Client) -> None:
    keys, offsets, _, gradients = make_batch(np.random.default_rng(SEED))
    for table, weights in (("plain", None), ("ones", np.ones(len(keys), np.float32))):
        any_ps.create_table(table, dim=DIM, slots=SLOTS, combiner="mean", optimizer=slotwise.Adam(0.1))
        any_ps.lookup(table, keys, offsets, weights=weights)
        any_ps.push(table, keys, offsets, gradients, weights=weights)
    assert any_ps.digest("plain") == any_ps.digest("ones")


def test_a_weight_that_is_not_finite_is_refused(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    bad = np.array([1, np.inf], dtype=np.float32)
    with pytest.raises(slotwise.InvalidArgument, match=r"weights\[1\] is inf"):
        any_ps.lookup("ads", [1, 2], weights=bad)
    with pytest.raises(slotwise.InvalidArgument, match=r"weights\[1\] is inf"):
        any_ps.push("ads", [1, 2], None, np.ones((2, 2), np.float32), weights=bad)
    assert any_ps.digest("ads").rows == 0


def test_a_table_without_a_combiner_takes_keys_of_any_shape(any_ps: slotwise.Client) -> None:
    options = any_ps.create_table("ads", dim=3, combiner="none", optimizer=slotwise.SGD(0.5))
    assert options.combiner == "none" and options.slots == 1
    row = any_ps.lookup("ads", [7, 8, 9])
    assert row.shape == (3, 3)
    keys = np.array([[[7, 8]], [[9, 7]]])
    np.testing.assert_array_equal(any_ps.lookup("ads", keys), row[[0, 1, 2, 0]].reshape(2, 1, 2, 3))
    np.testing.assert_array_equal(any_ps.lookup("ads", np.int64(8)), row[1])
    np.testing.assert_array_equal(any_ps.lookup("ads", [8, 9], [0, 1, 2]), row[1:])
    doubled = any_ps.lookup("ads", [7, 8], weights=np.array([2, -1], np.float32))
    np.testing.assert_array_equal(doubled, row[:2] * np.array([[2], [-1]]))
    gradients = np.arange(12, dtype=np.float32).reshape(2, 1, 2, 3)
    assert any_ps.push("ads", keys, None, gradients) == 1
    expected = row - 0.5 * np.array([[9, 11, 13], [3, 4, 5], [6, 7, 8]])
    np.testing.assert_allclose(any_ps.lookup("ads", [7, 8, 9]), expected, rtol=1e-6)


def test_a_table_without_a_combiner_has_one_slot_and_one_key_a_bag(any_ps: slotwise.Client) -> None:
    with pytest.raises(slotwise.InvalidArgument, match="slots"):
        any_ps.create_table("two", dim=3, slots=2, combiner="none", optimizer=slotwise.SGD(0.5))
    any_ps.create_table("ads", dim=3, combiner="none", optimizer=slotwise.SGD(0.5))
    with pytest.raises(slotwise.InvalidArgument, match="every bag has one key"):
        any_ps.lookup("ads", [1, 2], [0, 2])
    with pytest.raises(slotwise.InvalidArgument, match=r"offsets\[1\] is 0: must be 1"):
        any_ps.lookup("ads", [1, 2], [0, 0, 2])
    with pytest.raises(slotwise.InvalidArgument, match=r"gradients: shape is \(2, 3\)"):
        any_ps.push("ads", [[1], [2]], None, np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(("wire_dtype", "unit"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_half_precision_rounds_what_travels_and_nothing_else(
    any_ps: slotwise.Client, wire_dtype: str, unit: float
) -> None:
    random = np.random.default_rng(SEED)
    keys = random.integers(0, 50, (40, 2), dtype=np.uint64)
    for table in ("half", "full"):
        any_ps.create_table(table, dim=4, slots=2, optimizer=slotwise.SGD(1.0))
    full = any_ps.lookup("full", keys)
    half = any_ps.lookup("half", keys, wire_dtype=wire_dtype)
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, full, rtol=unit, atol=1e-7)
    assert (half != full).any()
    np.testing.assert_array_equal(half, rounded(full, wire_dtype))
    # Gradients that the type has exactly make the same step.
    gradients = random.integers(-128, 129, (40, 8)).astype(np.float32)
    any_ps.push("full", keys, None, gradients)
    any_ps.push("half", keys, None, gradients, wire_dtype=wire_dtype)
    assert any_ps.digest("half") == any_ps.digest("full")
    # Others are rounded, then applied as they were received.
    gradients = random.normal(size=(40, 8)).astype(np.float32)
    any_ps.push("full", keys, None, rounded(gradients, wire_dtype))
    any_ps.push("half", keys, None, gradients, wire_dtype=wire_dtype)
    assert any_ps.digest("half") == any_ps.digest("full")


def rounded(values: np.ndarray, wire_dtype: str) -> np.ndarray:
    """To the nearest of the type, by torch."""
    import torch

    there = torch.from_numpy(values).to(getattr(torch, wire_dtype))
    return np.asarray(there.float().numpy())


def test_a_gradient_past_the_types_largest_number_is_refused(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=1, optimizer=slotwise.SGD(1.0))
    with pytest.raises(slotwise.InvalidArgument, match="gradients"):
        any_ps.push("ads", [1], None, np.array([[7e4]], np.float32), wire_dtype="float16")
    assert any_ps.digest("ads").rows == 0


def test_the_connections_wire_dtype_is_the_default(fake: Any) -> None:
    with slotwise.connect(fake.addresses[0], wire_dtype="bfloat16") as ps:
        ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
        ones = np.ones((2, 2), np.float32)
        ps.lookup("ads", [1, 2])
        ps.lookup("ads", [1, 2], wire_dtype="float32")
        ps.push("ads", [1, 2], None, ones)
        ps.push("ads", [1, 2], None, ones, wire_dtype="float16")
    assert [request.data_type for request in fake.requests("Lookup")] == [3, 1]
    pushes = fake.requests("Push")
    assert [(push.data_type, len(push.gradients)) for push in pushes] == [(3, 8), (2, 8)]
    with pytest.raises(slotwise.InvalidArgument, match="wire_dtype is 'double'"):
        slotwise.connect(fake.addresses[0], wire_dtype="double")
