"""Texts as ids: slotwise.hash_ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slotwise

# XXH3's reference implementation gives these for nothing and for two texts, and with a seed for "abc".
KNOWN = {"": 0x2D06800538D394C2, "a": 0xE6C632B61E964E1F, "abc": 0x78AF5F94892F3950}


def test_keys_are_xxh3s() -> None:
    keys = slotwise.hash_ids(list(KNOWN))
    assert keys.dtype == np.uint64
    assert keys.tolist() == list(KNOWN.values())


@pytest.mark.parametrize(
    "values",
    [
        ["a", "abc", ""],
        ("a", "abc", ""),
        np.array(["a", "abc", ""]),
        np.array(["a", "abc", ""], dtype=object),
        [b"a", b"abc", b""],
    ],
)
def test_columns_of_any_kind_have_the_same_keys(values: Any) -> None:
    assert slotwise.hash_ids(values).tolist() == [KNOWN["a"], KNOWN["abc"], KNOWN[""]]


def test_the_shape_is_that_of_the_texts() -> None:
    assert slotwise.hash_ids([["a", "abc"], ["", "a"]]).shape == (2, 2)
    assert slotwise.hash_ids("abc").shape == () and int(slotwise.hash_ids("abc")) == KNOWN["abc"]
    assert slotwise.hash_ids([]).shape == (0,)


def test_texts_of_any_length_and_script_are_hashed_whole() -> None:
    texts = ["x" * length for length in range(300)]
    texts += ["日本語", "naïve", "a\0b", "a\0c", "a", "\U0001f600", "a\0"]
    keys = slotwise.hash_ids(texts)
    assert len(set(keys.tolist())) == len(set(texts))
    alone = [int(slotwise.hash_ids(each)) for each in texts]
    assert keys.tolist() == alone
    assert int(slotwise.hash_ids("日本語".encode())) == int(slotwise.hash_ids("日本語"))


def test_seeds_give_other_keys() -> None:
    keys = [int(slotwise.hash_ids("abc", seed=seed)) for seed in (0, 1, 2**63, 2**64 - 1)]
    assert keys[0] == KNOWN["abc"] and len(set(keys)) == 4
    wrong: list[Any] = [-1, 2**64, 1.0, None]
    for seed in wrong:
        with pytest.raises(slotwise.InvalidArgument, match=f"seed is {seed}"):
            slotwise.hash_ids("abc", seed=seed)


@pytest.mark.parametrize("missing", [None, float("nan"), 5, np.int64(7), ["a"]])
def test_what_is_no_text_is_named(missing: Any) -> None:
    values = np.array(["a", "b", None, "c"], dtype=object)
    values[2] = missing
    with pytest.raises(slotwise.InvalidArgument, match=r"values\[2\] is .* no text: fill what is missing"):
        slotwise.hash_ids(values)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(slotwise.InvalidArgument, match=r"values\[1\] is no Unicode text"):
        slotwise.hash_ids(["a", "\ud800"])
