"""Tables whose keys earn their rows, by the client: which keys get rows, and what the others return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slotwise


def make(ps: slotwise.Client, **options: Any) -> None:
    ones = slotwise.Constant(1.0)
    ps.create_table("ads", dim=2, optimizer=slotwise.SGD(1.0), initializer=ones, max_rows=100, **options)


def bloom(threshold: int, **options: int) -> slotwise.Frequency:
    return slotwise.Frequency(threshold, counter="bloom", **options)


def push(ps: slotwise.Client, *keys: int) -> None:
    ps.push("ads", list(keys), None, np.ones((len(keys), 2), np.float32))


def values(ps: slotwise.Client, *keys: int, train: bool = True) -> list[float]:
    return [float(value) for value in ps.lookup("ads", list(keys), train=train)[:, 0]]


def test_a_key_gets_its_row_in_the_push_that_reaches_the_threshold(real_ps: slotwise.Client) -> None:
    make(real_ps, admission=slotwise.Frequency(3))
    push(real_ps, 1, 2, 2)
    assert values(real_ps, 1, 2, 3) == [1, 1, 1], "initial values"
    assert real_ps.describe_table("ads").rows == 0, "a lookup makes no row"
    push(real_ps, 2)
    assert values(real_ps, 1, 2, train=False) == [0, 0], "2 has lost this step's gradient: 1 - 1"
    assert values(real_ps, 1, 2) == [1, 0]
    described = real_ps.describe_table("ads")
    assert (described.rows, described.candidates, described.refused_keys, described.steps) == (1, 1, 3, 2)
    push(real_ps, 1, 1)
    assert values(real_ps, 1, 2) == [-1, 0]
    assert real_ps.describe_table("ads").candidates == 0
    assert [table.name for table in real_ps.list_tables()] == ["ads"], "the counts are no table of a client"
    for key in (1, 5):
        push(real_ps, key)
    real_ps.erase("ads", [1, 5])
    assert real_ps.describe_table("ads").candidates == 0, "counts are erased too"
    real_ps.import_rows("ads", np.array([7], np.uint64), np.full((1, 2), 5, np.float32))
    assert values(real_ps, 7, train=False) == [5], "an import admits"
    push(real_ps, 8)
    real_ps.import_rows("ads", np.array([8, 9], np.uint64), np.full((2, 2), 5, np.float32))
    assert real_ps.describe_table("ads").candidates == 0, "and ends counts"


def test_absent_rows_are_zeros_if_the_table_says_so(real_ps: slotwise.Client) -> None:
    make(real_ps, admission=slotwise.Probability(1e-9, absent="zeros"))
    push(real_ps, *range(50))
    assert values(real_ps, *range(50)) == [0] * 50
    described = real_ps.describe_table("ads")
    assert (described.rows, described.candidates, described.refused_keys) == (0, 0, 50)


def test_keys_are_forgotten_that_no_push_has_touched_for_longest(real_ps: slotwise.Client) -> None:
    make(real_ps, admission=slotwise.Frequency(2, max_keys=20))
    for key in range(21):
        push(real_ps, key)
    assert real_ps.describe_table("ads").candidates == 19, "95 % of 20"
    push(real_ps, 0, 20)
    assert real_ps.describe_table("ads").rows == 1, "0 was forgotten, and 20 was not"
    what = "table ads counts at most 20 keys that have no row, which is its admission.max_keys, and the batch"
    with pytest.raises(slotwise.ResourceExhausted, match=what) as refused:
        push(real_ps, *range(100, 121))
    assert refused.value.reason == slotwise.Reason.TABLE_FULL
    assert real_ps.describe_table("ads").candidates == 19


def test_a_bloom_counter_admits_at_the_threshold_and_forgets_nothing(real_ps: slotwise.Client) -> None:
    make(real_ps, admission=bloom(3, counter_mib=1))
    push(real_ps, 1, 2, 2)
    push(real_ps, 2)
    assert values(real_ps, 1, 2, train=False) == [0, 0], "2 has its row: 1 - 1"
    described = real_ps.describe_table("ads")
    assert (described.rows, described.candidates, described.refused_keys) == (1, 0, 3)
    assert described.counter_blocks == 2
    real_ps.erase("ads", [1, 2])
    push(real_ps, 2)
    assert real_ps.describe_table("ads").rows == 1, "it kept its count"
    real_ps.import_rows("ads", np.array([9], np.uint64), np.full((1, 2), 5, np.float32))
    assert real_ps.describe_table("ads").counter_blocks == 2, "an import counts nothing"
    real_ps.alter_table("ads", admission=bloom(2, counter_mib=1))
    push(real_ps, 1)
    assert real_ps.describe_table("ads").rows == 3, "counts stay"
    real_ps.alter_table("ads", admission=bloom(2, counter_mib=2))
    assert real_ps.describe_table("ads").counter_blocks == 0, "in another size they begin anew"
    push(real_ps, *range(100, 5100))
    described = real_ps.describe_table("ads")
    assert described.refused_keys >= 4900, "no push has too many keys"
    assert 3000 < described.counter_blocks < 5000


def test_admissions_are_options_of_tables(real_ps: slotwise.Client) -> None:
    counted = slotwise.Frequency(2, max_keys=9, absent="zeros")
    make(real_ps, admission=counted)
    assert real_ps.describe_table("ads").options.admission == counted
    make(real_ps, admission=counted)
    with pytest.raises(slotwise.AlreadyExists, match="admission.threshold is 2, not 3"):
        make(real_ps, admission=slotwise.Frequency(3, max_keys=9, absent="zeros"))
    with pytest.raises(slotwise.AlreadyExists, match="admission.max_keys is 9, not 0"):
        make(real_ps, admission=slotwise.Frequency(2, counter="bloom", counter_mib=1, absent="zeros"))
    with pytest.raises(slotwise.AlreadyExists, match="admission is frequency, not none"):
        make(real_ps)
    filtered = bloom(255, counter_mib=3)
    real_ps.create_table("filtered", dim=2, optimizer=slotwise.SGD(1.0), admission=filtered)
    assert real_ps.describe_table("filtered").options.admission == filtered
    real_ps.create_table("drawn", dim=2, optimizer=slotwise.SGD(1.0), admission=slotwise.Probability(0.5))
    assert real_ps.describe_table("drawn").options.admission == slotwise.Probability(0.5)
    for admission, what in [
        (slotwise.Frequency(0), "admission.threshold is 0: must be 1 to 134217727"),
        (slotwise.Frequency(2**27), "admission.threshold is 134217728: must be 1 to 134217727"),
        (slotwise.Frequency(-1), "admission.threshold is -1: must be an integer"),
        (slotwise.Frequency(1, max_keys=2**40 + 1), "admission.max_keys is 1099511627777: must be 0 to"),
        (bloom(256, counter_mib=1), "admission.threshold is 256: must be at most 255"),
        (bloom(2), "admission.counter_mib is 0: must be 1 to 131072"),
        (bloom(2, counter_mib=2**17 + 1), "admission.counter_mib is 131073: must be"),
        (bloom(2, counter_mib=1, max_keys=5), "admission.max_keys is 5: must be 0"),
        (slotwise.Frequency(2, counter_mib=1), "must be 0, because the counter is exact"),
        (slotwise.Frequency(2, counter="cuckoo"), "'cuckoo', not one of exact, bloom"),
        (slotwise.Frequency(1, absent="none"), "admission.absent is 'none', not one of initial, zeros"),
        (slotwise.Probability(0), "admission.p is 0: must be"),
        (slotwise.Probability(1.5), "admission.p is 1.5: must be"),
        (3, "admission is 3, not a Frequency, a Probability or None"),
    ]:
        with pytest.raises(slotwise.InvalidArgument, match=what):
            real_ps.create_table("other", dim=2, optimizer=slotwise.SGD(1.0), admission=admission)
    with pytest.raises(slotwise.InvalidArgument, match="must have at most 243 characters"):
        name = "n" * 244
        real_ps.create_table(name, dim=2, optimizer=slotwise.SGD(1.0), admission=slotwise.Frequency(2))
    for name in ("ads/.candidates", "other/.candidates"):
        with pytest.raises(slotwise.InvalidArgument, match="no part between / be empty or start with"):
            real_ps.create_table(name, dim=2, optimizer=slotwise.SGD(1.0))
    with pytest.raises(slotwise.NotFound):
        real_ps.describe_table("ads/.candidates")
    real_ps.drop_table("ads")
    make(real_ps, admission=counted)
    assert real_ps.describe_table("ads").candidates == 0
