"""Half precision: narrowed to the nearest, ties to even, and widened back without a loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slotwise import halves
from slotwise.errors import InvalidArgument

TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def round_trip(values: np.ndarray, wire_dtype: str) -> np.ndarray:
    widened = np.empty_like(values)
    halves.widen_into(halves.narrow(values, wire_dtype), widened, halves.number(wire_dtype))
    return widened


@pytest.mark.parametrize("wire_dtype", TORCH)
def test_every_number_of_the_type_and_its_neighbours_round_as_torchs(wire_dtype: str) -> None:
    """All 65,536, and for each the halfway points to its neighbours and what is just beside."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    if wire_dtype == "bfloat16":
        exact = (bits.astype(np.uint32) << 16).view(np.float32)
        steps = np.array([0, 0x7FFF, 0x8000, 0x8001], dtype=np.uint32)
    else:
        exact = bits.view(np.float16).astype(np.float32)
        steps = np.array([0, 0x0FFF, 0x1000, 0x1001], dtype=np.uint32)
    values = (exact.view(np.uint32)[None] + steps[:, None]).view(np.float32)
    ours = round_trip(values, wire_dtype)
    theirs = torch.from_numpy(values).to(TORCH[wire_dtype]).float().numpy()
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(values))
    np.testing.assert_array_equal(ours, theirs)  # NaN equals NaN here
    np.testing.assert_array_equal(np.signbit(ours), np.signbit(values))
    known = ~np.isnan(exact)
    np.testing.assert_array_equal(ours[0][known], exact[known])


@pytest.mark.parametrize("wire_dtype", TORCH)
@pytest.mark.parametrize("size", [0, 1, (1 << 15) - 1, (1 << 15) + 1, 100_000])
def test_arrays_of_any_size_are_narrowed_whole(wire_dtype: str, size: int) -> None:
    values = np.random.default_rng(size).normal(size=(size, 1)).astype(np.float32)
    theirs = torch.from_numpy(values).to(TORCH[wire_dtype]).float().numpy()
    np.testing.assert_array_equal(round_trip(values, wire_dtype), theirs)


def test_what_is_too_large_becomes_infinity() -> None:
    values = np.array([65519, 65520, -1e5, 3.3e38, 3.4e38], dtype=np.float32)
    assert round_trip(values, "float16").tolist() == [65504, np.inf, -np.inf, np.inf, np.inf]
    assert np.isinf(round_trip(values, "bfloat16")).tolist() == [False] * 4 + [True]


def test_float32_travels_as_it_is() -> None:
    values = np.array([[1.5, -0.0]], dtype=np.float32)
    assert halves.narrow(values, "float32") is values


def test_other_types_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="wire_dtype is 'int8', not one of float32, float16"):
        halves.number("int8")
    with pytest.raises(ValueError, match="data_type is 9"):
        halves.memory(9)
