"""Tables whose rows are 16-bit numbers, by the client: options, what is rounded, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import slotwise

HALVES = ("float16", "bfloat16")


def make(ps: slotwise.Client, row_dtype: str, dim: int = 64, **options: Any) -> slotwise.TableOptions:
    options = {"optimizer": slotwise.SGD(1.0), "initializer": slotwise.Constant(1.0), **options}
    return ps.create_table("ads", dim=dim, row_dtype=row_dtype, **options)


def values_of(ps: slotwise.Client) -> NDArray[np.float32]:
    rows = np.concatenate([chunk.values for chunk in ps.export_rows("ads")])
    return np.asarray(rows, np.float32)


def rounded(values: NDArray[np.float32], row_dtype: str) -> NDArray[np.float32]:
    if row_dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("row_dtype", HALVES)
def test_imports_and_initial_values_are_rounded_to_nearest(real_ps: slotwise.Client, row_dtype: str) -> None:
    made = make(real_ps, row_dtype, 3, initializer=slotwise.Uniform(-1, 1), seed=5)
    assert (made.row_dtype, made.rounding) == (row_dtype, "stochastic")
    assert real_ps.describe_table("ads").options == made == real_ps.list_tables()[0]
    uniform = slotwise.Uniform(-1, 1)
    real_ps.create_table("whole", dim=3, optimizer=slotwise.SGD(1.0), initializer=uniform, seed=5)
    keys = np.arange(1, 50, dtype=np.uint64)
    whole = real_ps.lookup("whole", keys).reshape(-1, 3)
    assert np.array_equal(real_ps.lookup("ads", keys).reshape(-1, 3), rounded(whole, row_dtype))
    values = (whole * 100).astype(np.float32)
    real_ps.import_rows("ads", keys, values)
    assert np.array_equal(real_ps.lookup("ads", keys).reshape(-1, 3), rounded(values, row_dtype))
    assert not np.array_equal(values, rounded(values, row_dtype))


@pytest.mark.parametrize("row_dtype", HALVES)
def test_small_steps_add_up_by_chance_and_are_lost_by_rounding_to_nearest(
    real_ps: slotwise.Client, row_dtype: str
) -> None:
    between = 2.0**-10 if row_dtype == "float16" else 2.0**-7
    keys = np.arange(100, dtype=np.uint64)
    moved = {}
    for rounding in ("stochastic", "nearest"):
        make(real_ps, row_dtype, rounding=rounding)
        for _ in range(32):
            real_ps.push("ads", keys, None, np.full((100, 64), -between / 32, np.float32))
        moved[rounding] = float((values_of(real_ps).astype(np.float64) - 1).mean() / between)
        real_ps.drop_table("ads")
    assert moved["nearest"] == 0
    assert moved["stochastic"] == pytest.approx(1, abs=0.05), "of 32 steps of a 32nd"


def test_values_that_are_too_large_are_refused(real_ps: slotwise.Client) -> None:
    make(real_ps, "float16", 2)
    real_ps.import_rows("ads", [1], np.array([[65519, -65504]], np.float32))
    assert values_of(real_ps).tolist() == [[65504, -65504]]
    what = r"values\[1\] is -65520, which is infinite in .*: the largest number is 65504"
    with pytest.raises(slotwise.InvalidArgument, match=what):
        real_ps.import_rows("ads", [2], np.array([[0, -65520]], np.float32))
    real_ps.push("ads", [1], None, np.array([[-40, 40]], np.float32))
    assert values_of(real_ps).tolist() == [[65504, -65504]], "an element that would be infinite rests"
    real_ps.drop_table("ads")
    what = "initializer.value is 70000: initial values must be at most 65504"
    with pytest.raises(slotwise.InvalidArgument, match=what):
        make(real_ps, "float16", initializer=slotwise.Constant(70000.0))
    make(real_ps, "bfloat16", initializer=slotwise.Constant(70000.0))


def test_options_are_checked(real_ps: slotwise.Client) -> None:
    what = "row_dtype is 'half', not one of float32, float16, bfloat16"
    with pytest.raises(slotwise.InvalidArgument, match=what):
        make(real_ps, "half")
    with pytest.raises(slotwise.InvalidArgument, match="rounding is 'up', not one of stochastic, nearest"):
        make(real_ps, "float16", rounding="up")
    with pytest.raises(slotwise.InvalidArgument, match="rounding is nearest: must be left out"):
        make(real_ps, "float32", rounding="nearest")
    make(real_ps, "float16")
    make(real_ps, "float16")
    with pytest.raises(slotwise.AlreadyExists, match="row_dtype is float16, not bfloat16"):
        make(real_ps, "bfloat16")
    with pytest.raises(slotwise.AlreadyExists, match="rounding is stochastic, not nearest"):
        make(real_ps, "float16", rounding="nearest")


@pytest.mark.parametrize("row_dtype", HALVES)
def test_a_key_that_is_not_admitted_looks_as_its_row_will(real_ps: slotwise.Client, row_dtype: str) -> None:
    options = {"initializer": slotwise.Normal(0.0, 0.3), "seed": 3, "admission": slotwise.Frequency(2)}
    make(real_ps, row_dtype, 5, **options)
    before = real_ps.lookup("ads", [7])
    assert np.array_equal(before, rounded(before, row_dtype)) and before.any()
    real_ps.push("ads", [7, 7], None, np.zeros((2, 5), np.float32))
    assert np.array_equal(values_of(real_ps), before.reshape(1, 5))


@pytest.mark.parametrize("row_dtype", HALVES)
def test_rows_of_another_type_are_exported_and_imported(real_ps: slotwise.Client, row_dtype: str) -> None:
    adam = slotwise.Adam(0.1)
    keys = np.arange(1, 30, dtype=np.uint64)
    real_ps.create_table("whole", dim=8, optimizer=adam)
    real_ps.push("whole", keys, None, np.random.default_rng(1).standard_normal((29, 8)).astype(np.float32))
    make(real_ps, row_dtype, 8, optimizer=adam)
    steps = real_ps.describe_table("whole").steps
    for rows in real_ps.export_rows("whole", with_state=True):
        real_ps.import_rows("ads", rows.keys, rows.values, rows.state, table_steps=steps)
    for key in keys:
        (theirs,) = real_ps.export_rows("whole", [key], with_state=True)
        (ours,) = real_ps.export_rows("ads", [key], with_state=True)
        assert np.array_equal(ours.values, rounded(theirs.values, row_dtype))
        assert np.array_equal(ours.state, theirs.state), "state stays float32"
