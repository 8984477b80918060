"""Batches are checked, and cutting one and joining its parts gives it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slotwise.batch import Range, cut, even_shares, halve_until_fit, make_batch
from slotwise.errors import InvalidArgument

MIB = 1 << 20


def even_ranges(samples: int, parts: int) -> list[Range]:
    return [share[0] for share in even_shares([samples], parts)]


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_a_batch_joined_are_the_batch(seed: int) -> None:
    random = np.random.default_rng(seed)
    samples, slots = int(random.integers(0, 50)), int(random.integers(1, 6))
    lengths = random.integers(0, 4, samples * slots)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    keys = random.integers(0, 2**64, int(offsets[-1]), dtype=np.uint64)
    weights = random.normal(size=len(keys)).astype(np.float32)
    batch = make_batch(keys, offsets, slots, weights)

    parts = [batch.part(part) for part in even_ranges(samples, int(random.integers(1, 9)))]

    np.testing.assert_array_equal(np.concatenate([part.keys for part in parts]), keys)
    np.testing.assert_array_equal(np.concatenate([part.weights for part in parts]), weights)
    part_lengths = []
    for part_keys, part_offsets, part_weights in parts:
        assert part_weights is not None and len(part_weights) == len(part_keys)
        assert part_offsets is not None and part_offsets.dtype == np.uint32
        assert part_offsets[0] == 0 and part_offsets[-1] == len(part_keys)
        part_lengths.append(np.diff(part_offsets))
    np.testing.assert_array_equal(np.concatenate(part_lengths), lengths)


@pytest.mark.parametrize("seed", range(20))
def test_parts_without_offsets_joined_are_the_batch(seed: int) -> None:
    random = np.random.default_rng(seed)
    samples, slots = int(random.integers(0, 50)), int(random.integers(1, 6))
    keys = random.integers(0, 2**64, (samples, slots), dtype=np.uint64)
    batch = make_batch(keys, None, slots)
    parts = [batch.part(part) for part in even_ranges(samples, 4)]
    np.testing.assert_array_equal(np.concatenate([part.keys for part in parts]), keys.reshape(-1))
    assert all(part.offsets is None and part.weights is None for part in parts)
    assert all(len(part.keys) % slots == 0 for part in parts)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_offsets_of_any_integers_are_taken(dtype: Any) -> None:
    batch = make_batch(np.arange(5), np.array([0, 1, 3, 3, 5], dtype=dtype), slots=2)
    keys, offsets, _ = batch.part((1, 2))
    np.testing.assert_array_equal(keys, [3, 4])
    np.testing.assert_array_equal(offsets, [0, 0, 2])


def test_int64_keys_are_reinterpreted_without_a_copy() -> None:
    keys = np.array([-1, -(2**63), 5])
    batch = make_batch(keys, None, slots=1)
    assert batch.keys.tolist() == [2**64 - 1, 2**63, 5]
    assert np.shares_memory(batch.keys, keys)


@pytest.mark.parametrize(
    ("keys", "offsets", "message"),
    [
        (np.zeros(4, dtype=np.int32), None, "keys: dtype is int32"),
        ([0.5, 1.5], None, "keys: dtype is float64"),
        (np.zeros((2, 3), dtype=np.int64), None, r"keys: shape is \(2, 3\)"),
        (np.zeros((2, 2), dtype=np.int64), [0, 1, 2, 3, 4], r"keys: shape is \(2, 2\)"),
        ([1, 2, 3], None, "3 keys without offsets"),
        ([1, 2], [0.0, 1.0, 2.0], "offsets: float64"),
        ([1, 2], [[0, 1, 2]], "offsets: int64 of shape"),
        ([1, 2], np.empty(0, dtype=np.int64), "offsets: length is 0"),
        ([1, 2], [0, 2], "offsets: length is 2"),
        ([1, 2], [1, 1, 2], r"offsets\[0\] is 1, not 0"),
        ([1, 2], [0, 1, 1], r"offsets\[-1\] is 1, not the number of keys, 2"),
        ([1, 2], [0, 3, 2], r"offsets\[2\] is 2, less than 3 before it"),
        ([1, 2], [0, -1, 2], r"offsets\[1\] is -1, less than 0 before it"),
        ([1, 2], np.array([0, 3, 2], dtype=np.uint32), r"offsets\[2\] is 2, less than 3"),
    ],
)
def test_a_malformed_batch_is_refused_by_name_and_value(
    keys: Any, offsets: Any, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make_batch(keys, offsets, slots=2)


@pytest.mark.parametrize("samples", [0, 1, 2, 3, 5, 64, 1000, 65536])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("size", [0, 1, 100 << 10, MIB, 5 * MIB, 20 * MIB, 700 * MIB])
def test_ranges_cover_the_samples_once_and_in_order(samples: int, ranks: int, size: int) -> None:
    ranges = [share[0] for share in cut([samples], size, ranks, channels=2)]
    assert ranges[0][0] == 0 and ranges[-1][1] == samples
    for (_, end), (start, _) in zip(ranges[:-1], ranges[1:], strict=True):
        assert end == start
    lengths = [last - first for first, last in ranges]
    assert max(lengths) - min(lengths) <= 1
    assert min(lengths) > 0 or samples == 0


def test_a_small_batch_stays_whole() -> None:
    assert len(cut([1000], 127 << 10, ranks=4, channels=2)) == 1


def test_every_rank_gets_a_part_once_there_is_enough() -> None:
    assert len(cut([1000], 256 << 10, ranks=4, channels=2)) == 4


def test_large_batches_use_all_channels_and_have_parts_of_1_to_4_mib() -> None:
    for mib in range(8, 200, 7):
        parts = len(cut([65536], mib * MIB, ranks=4, channels=2))
        assert parts % 4 == 0 and parts >= 8
        assert 1 <= mib / parts <= 4


def test_requests_past_the_limit_are_halved_down_to_one_sample() -> None:
    sizes = [10, 10, 70, 10, 10, 10, 10, 10]
    shares = halve_until_fit([((0, 4),), ((4, 8),)], lambda s: sum(sizes[slice(*s[0])]), limit=40)
    assert [share[0] for share in shares] == [(0, 2), (2, 3), (3, 4), (4, 8)]


@pytest.mark.parametrize("samples", [[7, 0, 100], [1, 1], [3, 1000]])
def test_several_tables_are_cut_alike_and_each_is_covered_once(samples: list[int]) -> None:
    shares = halve_until_fit(
        cut(samples, 9 * MIB, ranks=2, channels=2),
        lambda share: sum(last - first for first, last in share),
        limit=20,
    )
    for table, count in enumerate(samples):
        chosen = [list(range(*share[table])) for share in shares]
        assert sum(chosen, []) == list(range(count))


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 0, 3), (2, 3, 4)])
def test_keys_of_any_shape_are_taken_without_a_combiner(shape: tuple[int, ...]) -> None:
    keys = np.arange(int(np.prod(shape))).reshape(shape)
    batch = make_batch(keys, None, slots=1, pooled=False)
    assert batch.shape == shape and batch.samples == keys.size
    np.testing.assert_array_equal(batch.keys, keys.reshape(-1))


def test_a_bag_of_other_than_one_key_is_refused_without_a_combiner() -> None:
    assert make_batch([1, 2], [0, 1, 2], slots=1, pooled=False).samples == 2
    with pytest.raises(InvalidArgument, match=r"offsets\[1\] is 0, not 1"):
        make_batch([1, 2], [0, 0, 2], slots=1, pooled=False)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], "weights: dtype is float64"),
        (np.ones(3, np.float32), r"weights: shape is \(3,\), not \(2,\)"),
        (np.array([1, np.nan], np.float32), r"weights\[1\] is nan"),
        (np.array([-np.inf, np.nan], np.float32), r"weights\[0\] is -inf"),
    ],
)
def test_malformed_weights_are_refused_by_name_and_value(weights: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make_batch([1, 2], None, slots=2, weights=weights)
