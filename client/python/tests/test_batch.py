"""Batches are checked, whole and by value, before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer

import slotwise
from slotwise.batch import make_batch
from slotwise.errors import InvalidArgument
from slotwise.options import TableOptions

POOLED = TableOptions("ads", dim=1, slots=2)
PLAIN = TableOptions("words", dim=1, combiner="none")


@pytest.fixture
def ps(fake_ps: slotwise.Client) -> slotwise.Client:
    fake_ps.create_table("ads", dim=1, slots=2, optimizer=slotwise.SGD(lr=0.5))
    fake_ps.create_table("words", dim=1, combiner="none", optimizer=slotwise.SGD(lr=0.5))
    return fake_ps


def keys_of(request: Any) -> list[int]:
    return np.frombuffer(request.keys, "<u8").tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_offsets_of_any_integers_are_taken(fake: FakeServer, ps: slotwise.Client, dtype: Any) -> None:
    ps.lookup("ads", np.arange(5), np.array([0, 1, 3, 3, 5], dtype=dtype))
    (request,) = fake.requests("Lookup")
    assert keys_of(request) == [0, 1, 2, 3, 4]
    assert np.frombuffer(request.offsets, "<u4").tolist() == [0, 1, 3, 3, 5]


NARROW = [np.int8, np.uint8, np.int32, np.uint32, ">i4", ">i8"]


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([2**63, 1], [2**63, 1]),
        ([2**64 - 1, -1], [2**64 - 1, 2**64 - 1]),
        ([[2**63, 1], [5, -2]], [2**63, 1, 5, 2**64 - 2]),
        ((np.uint64(2**63), np.int64(-1)), [2**63, 2**64 - 1]),
        ([1, 2], [1, 2]),
        (np.array([2**31, 2**32 - 1], np.uint32), [2**31, 2**32 - 1]),
        (np.array([-1, -(2**63)]), [2**64 - 1, 2**63]),
        *((np.array([0, 7, 100, 127], dtype=dtype), [0, 7, 100, 127]) for dtype in NARROW),
    ],
)
def test_keys_may_be_any_64_bit_integers(
    fake: FakeServer, ps: slotwise.Client, keys: Any, values: list[int]
) -> None:
    ps.lookup("ads", keys)
    (request,) = fake.requests("Lookup")
    assert keys_of(request) == values


def test_int64_keys_are_reinterpreted_without_a_copy() -> None:
    keys = np.array([-1, -(2**63)])
    assert np.shares_memory(make_batch(POOLED, keys).keep[0], keys)


def test_with_several_slots_offsets_may_leave_the_end_out(fake: FakeServer, ps: slotwise.Client) -> None:
    """As torch.nn.EmbeddingBag takes them; how many there are tells which they are."""
    for dtype in (np.int32, np.int64, np.uint32, np.uint64):
        values = ps.lookup("ads", np.arange(5), np.array([0, 1, 3, 3], dtype=dtype))
        assert values.shape == (2, 2)
    ps.lookup("ads", [4, 5], [0, 2])  # the last bag is empty
    *requests, last = fake.requests("Lookup")
    assert len(requests) == 4
    for request in requests:
        assert np.frombuffer(request.offsets, "<u4").tolist() == [0, 1, 3, 3, 5]
    assert np.frombuffer(last.offsets, "<u4").tolist() == [0, 2, 2]


@pytest.mark.parametrize("seed", range(4))
def test_strided_arrays_are_read_right(fake: FakeServer, ps: slotwise.Client, seed: int) -> None:
    random = np.random.default_rng(seed)
    keys = random.integers(0, 2**64, (3, 8), dtype=np.uint64).astype(">u8" if seed % 2 else "<u8")
    weights = random.normal(size=(8, 3)).astype(np.float32).T
    ps.lookup("ads", keys[:, ::4], weights=weights[:, ::4])
    (request,) = fake.requests("Lookup")
    assert keys_of(request) == keys[:, ::4].reshape(-1).tolist()
    assert np.frombuffer(request.weights, "<f4").tolist() == weights[:, ::4].reshape(-1).tolist()


@pytest.mark.parametrize(
    ("keys", "offsets", "message"),
    [
        (np.array([1, -2], np.int32), None, r"keys\[1\] is -2, of int32: only int64 may be below 0"),
        ([0.5, 1.5], None, "keys: dtype is float64: must be integers"),
        ([2**64, 1], None, "keys: dtype is .*: must be integers"),
        (np.array([2.0**63, 1.0]), None, r"Ids from 2\*\*63 on need np.array\(ids, dtype=np.uint64\)"),
        ([True, False], None, "keys: dtype is bool"),
        (["a", "b"], None, r"keys: dtype is <U1: must be integers. slotwise.hash_ids\(texts\) makes ids"),
        ([b"a"], None, r"slotwise.hash_ids\(texts\) makes ids of texts"),
        (np.array(["a", 1], object), None, r"slotwise.hash_ids\(texts\) makes ids of texts"),
        ([1, None], None, "keys: dtype is object: .* NaN and None are no ids: leave them out"),
        ([1, float("nan")], None, "keys: dtype is float64: .* NaN and None are no ids"),
        ([1, np.datetime64("NaT")], None, "keys: dtype is object: .* NaN and None are no ids"),
        (np.zeros((2, 3), dtype=np.int64), None, r"keys: shape is \(2, 3\)"),
        (np.zeros((2, 2), dtype=np.int64), [0, 1, 2, 3, 4], r"keys: shape is \(2, 2\)"),
        ([1, 2, 3], None, "3 keys without offsets"),
        ([1, 2], [0.0, 1.0, 2.0], "offsets: float64"),
        ([1, 2], [[0, 1, 2]], "offsets: int64 of shape"),
        ([1, 2], np.empty(0, dtype=np.int64), "offsets: length is 0"),
        ([1, 2], [1, 1, 2], r"offsets\[0\] is 1: must be 0"),
        ([1, 2], [0, 1, 1], r"offsets\[2\] is 1: must be the number of keys, 2"),
        ([1, 2], [0, 3, 2], r"offsets\[2\] is 2: must not be below offsets\[1\], which is 3"),
        ([1, 2], [0, -1, 2], r"offsets\[1\] is -1: must be 0 to the number of keys, 2"),
        ([1, 2], [0, 2**32, 2], r"offsets\[1\] is 4294967296: must be 0 to the number of keys, 2"),
        ([1, 2], np.array([0, 3, 2], dtype=np.uint32), r"offsets\[2\] is 2: must not be below"),
        ([1, 2], np.array([0, 1, 2**64 - 1], dtype=np.uint64), r"offsets\[2\] is 18446744073709551615"),
        ([[1], [2, 3]], None, "keys: "),
    ],
)
def test_a_malformed_batch_is_refused_by_name_and_value(
    fake: FakeServer, ps: slotwise.Client, keys: Any, offsets: Any, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ps.lookup("ads", keys, offsets)
    with pytest.raises(InvalidArgument, match=message):
        ps.lookup_async("ads", keys, offsets).result(10)
    assert fake.requests("Lookup") == []


@pytest.mark.parametrize(
    ("table", "keys", "offsets", "message"),
    [
        (TableOptions("t", dim=1), [1, 2, 3], [0, 2], r"offsets\[1\] is 2: must be the number of keys, 3"),
        (TableOptions("t", dim=1), [1, 2, 3], [0, 2], r"need np.append\(offsets, len\(keys\)\)"),
        (TableOptions("t", dim=1, slots=3), [1, 2], [0, 2], "offsets: length is 2, not samples"),
        (TableOptions("t", dim=1, slots=3), [1, 2], [0, 1, 1, 1, 2], "offsets: length is 5, not samples"),
    ],
)
def test_offsets_that_may_be_either_are_refused(table: Any, keys: Any, offsets: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make_batch(table, keys, offsets)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 0, 3), (2, 3, 4)])
def test_keys_of_any_shape_are_taken_without_a_combiner(shape: tuple[int, ...]) -> None:
    keys = np.arange(int(np.prod(shape))).reshape(shape)
    batch = make_batch(PLAIN, keys)
    assert batch.shape == (*shape, PLAIN.dim) and batch.keys_count == keys.size
    np.testing.assert_array_equal(batch.keep[0], keys.reshape(-1))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], "weights: dtype is float64"),
        (np.ones(3, np.float32), r"weights: shape is \(3,\), not \(2,\)"),
        (np.array([1, np.nan], np.float32), r"weights\[1\] is nan: must be finite"),
        (np.array([-np.inf, np.nan], np.float32), r"weights\[0\] is -inf: must be finite"),
    ],
)
def test_wrong_weights_are_refused_by_name_and_value(ps: slotwise.Client, weights: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ps.lookup("ads", [1, 2], weights=weights)


def test_an_empty_list_is_no_keys(ps: slotwise.Client) -> None:
    assert ps.lookup("ads", []).shape == (0, 2)
    assert list(ps.export_rows("ads", [])) == []
    assert ps.erase("ads", []) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("session", -1), ("number", 2**64), ("trainer", 2**32), ("parts", -1), ("number", 1.5)],
)
def test_what_is_no_step_is_refused_by_name_and_value(ps: slotwise.Client, field: str, value: int) -> None:
    step = slotwise.Step(**({"session": 1, "number": 1} | {field: value}))
    with pytest.raises(InvalidArgument, match=f"step.{field} is {value}"):
        ps.push("ads", [1, 2], None, np.zeros((1, 2), np.float32), step=step)
    with pytest.raises(InvalidArgument, match="step is 0, not a Step"):
        ps.push("ads", [1, 2], None, np.zeros((1, 2), np.float32), step=0)  # type: ignore[arg-type]


def test_a_name_with_a_character_0_is_refused(ps: slotwise.Client) -> None:
    with pytest.raises(InvalidArgument, match="character 0"):
        ps.lookup("ads\0more", [1, 2])
