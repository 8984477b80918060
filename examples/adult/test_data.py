"""The data set, as keys."""

from __future__ import annotations

from data import SLOTS, key, load


def test_the_published_split_is_read_whole() -> None:
    train, test = load()
    assert train.keys.shape == (32561, SLOTS) and test.keys.shape == (16281, SLOTS)
    assert train.rich.sum() == 7841 and test.rich.sum() == 3846


def test_keys_do_not_depend_on_the_run_and_are_distinct_by_column() -> None:
    assert key("sex", "Female") == -6062311730778872785
    train, _ = load()
    columns = [set(column.tolist()) for column in train.keys.T]
    assert len(set().union(*columns)) == sum(map(len, columns))


def test_nearly_every_key_of_the_test_set_is_known_from_training() -> None:
    train, test = load()
    known = set(train.keys.flatten().tolist())
    assert set(test.keys.flatten().tolist()) <= known
