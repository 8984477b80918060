"""Tables that evict, by the client: options, scores of rows, and which rows go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slotwise

EVICTION = slotwise.Eviction(to=0.5)


def ones(count: int, dim: int = 2) -> Any:
    return np.ones((count, dim), np.float32)


def make(ps: slotwise.Client, max_rows: int, **options: Any) -> None:
    ps.create_table("ads", dim=2, optimizer=slotwise.AdaGrad(1.0), max_rows=max_rows, **options)


def keys_of(ps: slotwise.Client) -> list[int]:
    return sorted(int(key) for rows in ps.export_rows("ads") for key in rows.keys)


def scores_of(ps: slotwise.Client) -> dict[int, int]:
    chunks = list(ps.export_rows("ads", with_state=True))
    return {int(key): int(score) for rows in chunks for key, score in zip(rows.keys, rows.scores)}


def test_rows_go_that_no_push_touched_for_longest(real_ps: slotwise.Client) -> None:
    make(real_ps, 8, eviction=EVICTION)
    for key in range(8):
        real_ps.push("ads", [key], None, ones(1))
    real_ps.lookup("ads", [0, 1])  # touches no row
    real_ps.push("ads", [2], None, ones(1))
    assert scores_of(real_ps) == {**{key: key + 1 for key in range(8)}, 2: 9}
    real_ps.lookup("ads", [100, 0])
    assert keys_of(real_ps) == [0, 2, 7, 100], "0 is the batch's, 2 and 7 are the newest"
    assert scores_of(real_ps)[100] == 10
    described = real_ps.describe_table("ads")
    assert described.evicted_rows == 5 and described.rows == 4 and described.options.eviction == EVICTION


def quantiles(numbers: list[int]) -> slotwise.Quantiles:
    """The quantiles of numbers, each rounded up to one less than a power of two."""
    if not numbers:
        return slotwise.Quantiles()
    ascending = sorted(numbers)
    places = [max(1, -(-len(numbers) * percent // 100)) for percent in (0, 10, 50, 90, 99, 100)]
    return slotwise.Quantiles(len(numbers), *(2 ** ascending[at - 1].bit_length() - 1 for at in places))


@pytest.mark.parametrize("score", ["step", "lfu", "step_lfu"])
def test_a_table_says_how_old_its_rows_are(real_ps: slotwise.Client, score: Any) -> None:
    make(real_ps, 40, eviction=slotwise.Eviction(score, to=0.6))
    assert real_ps.describe_table("ads", ages=True).ages == slotwise.Quantiles(), "there are no rows"
    touched: dict[int, int] = {}
    counts: dict[int, int] = {}
    gone: list[int] = []
    made = 0
    for step in range(1, 120):
        keys = [step, step, 1000 + step % 7, 2000]
        real_ps.push("ads", keys, None, ones(len(keys)))
        left = set(keys_of(real_ps))
        made += len(set(keys) - touched.keys())
        last = [step - 1 - touched.pop(key) for key in touched.keys() - left]
        counts = {key: count for key, count in counts.items() if key in left}
        if last:
            youngest = min(last)
        gone += last
        for key in keys:
            touched[key], counts[key] = step, counts.get(key, 0) + 1
    assert len(gone) > 50
    described = real_ps.describe_table("ads", ages=True)
    assert (described.new_rows, described.evicted_rows) == (made, len(gone))
    assert described.evicted_ages == quantiles(gone)
    assert described.youngest_evicted_age == (1 << youngest.bit_length()) >> 1
    assert described.ages == quantiles([119 - step for step in touched.values()])
    assert described.counts == quantiles([] if score == "step" else list(counts.values()))
    assert real_ps.describe_table("ads").ages == slotwise.Quantiles(), "nobody has asked"
    real_ps.evict("ads", keep=1)
    assert real_ps.describe_table("ads").evicted_ages == quantiles(gone), "the table was not full"
    real_ps.drop_table("ads")
    make(real_ps, 40)
    real_ps.push("ads", [1], None, ones(1))
    described = real_ps.describe_table("ads", ages=True)
    assert described.ages == described.counts == slotwise.Quantiles(), "it keeps no scores"


def test_a_table_that_keeps_no_scores_says_so(real_ps: slotwise.Client) -> None:
    make(real_ps, 8, eviction=EVICTION)
    real_ps.push("ads", [1], None, ones(1))
    rows = joined(list(real_ps.export_rows("ads", with_state=True)))
    real_ps.drop_table("ads")
    make(real_ps, 8)
    what = "state ends with scores, and table ads keeps none: it neither evicts nor has a time to live"
    with pytest.raises(slotwise.InvalidArgument, match=what):
        real_ps.import_rows("ads", rows.keys, rows.values, rows.state)
    assert rows.state is not None
    real_ps.import_rows("ads", rows.keys, rows.values, rows.state[:, :-2])


def test_rows_go_whose_keys_occurred_least_often_in_pushes(real_ps: slotwise.Client) -> None:
    counted = slotwise.Eviction("lfu", half_life_steps=4, to=0.5)
    make(real_ps, 4, eviction=counted)
    one = 2**36  # occurrence; behind it stands the step
    real_ps.push("ads", [1, 1, 1, 2], None, ones(4))
    real_ps.push("ads", [2, 2, 3], None, ones(3))
    real_ps.lookup("ads", [3, 3, 3, 4])  # counts nothing
    assert scores_of(real_ps) == {1: 3 * one + 1, 2: 3 * one + 2, 3: one + 2, 4: 3}
    real_ps.push("ads", [1, 5], None, ones(2))
    assert scores_of(real_ps) == {1: 4 * one + 3, 5: one + 3}, "1 is the batch's, and 5 new"
    real_ps.push("ads", [5], None, ones(1))
    assert scores_of(real_ps)[5] == one + 4, "the fourth step halved its count"
    assert real_ps.describe_table("ads").options.eviction == counted


def test_scores_travel_with_rows(real_ps: slotwise.Client) -> None:
    make(real_ps, 8, eviction=EVICTION)
    for key in (1, 2, 3):
        real_ps.push("ads", [key], None, ones(1))
    rows = joined(list(real_ps.export_rows("ads", with_state=True)))
    assert rows.state is not None and rows.state.shape == (3, 4), "two floats of AdaGrad's, and the score"
    assert dict(zip(rows.keys.tolist(), rows.scores.tolist())) == {1: 1, 2: 2, 3: 3}
    digest = real_ps.digest("ads").digest
    real_ps.drop_table("ads")
    make(real_ps, 8, eviction=EVICTION)
    real_ps.import_rows("ads", rows.keys, rows.values, rows.state, table_steps=3)
    assert real_ps.digest("ads").digest == digest

    real_ps.import_rows("ads", [4], ones(1), rows.state[:1, :2])
    real_ps.import_rows("ads", [5], ones(1))
    assert scores_of(real_ps) == {1: 1, 2: 2, 3: 3, 4: 4, 5: 4}, "without a score, that of the next step"
    wrong = rows.state[:1].copy()
    wrong[0, 2:] = np.array([1 << 63], "<u8").view("<f4")
    with pytest.raises(slotwise.InvalidArgument, match="the score in state is 9223372036854775808 .row 0."):
        real_ps.import_rows("ads", [6], ones(1), wrong)
    with pytest.raises(slotwise.InvalidArgument, match="state has 12 bytes"):
        real_ps.import_rows("ads", [6], ones(1), rows.state[:1, :3])
    with pytest.raises(slotwise.InvalidArgument, match="sum or mean of squares"):
        real_ps.import_rows("ads", [6], ones(1), -1 * rows.state[:1])
    with pytest.raises(slotwise.InvalidArgument, match="scores are in state"):
        _ = next(iter(real_ps.export_rows("ads"))).scores


def joined(chunks: list[slotwise.Rows]) -> slotwise.Rows:
    keys = np.concatenate([rows.keys for rows in chunks])
    state = np.concatenate([rows.state for rows in chunks if rows.state is not None])
    return slotwise.Rows(keys, np.concatenate([rows.values for rows in chunks]), state)


def test_a_batch_that_does_not_fit_alone_is_refused_and_nothing_goes(real_ps: slotwise.Client) -> None:
    make(real_ps, 8, eviction=EVICTION)
    real_ps.push("ads", range(6), None, ones(6))
    before = scores_of(real_ps)
    with pytest.raises(slotwise.ResourceExhausted, match="is full of the batch's own keys") as refused:
        real_ps.push("ads", range(100, 109), None, ones(9))
    assert refused.value.reason is slotwise.Reason.TABLE_FULL
    with pytest.raises(slotwise.ResourceExhausted, match="is full of the batch's own keys"):
        real_ps.lookup("ads", range(100, 109))
    with pytest.raises(slotwise.ResourceExhausted, match="is full of the batch's own keys"):
        real_ps.import_rows("ads", range(100, 109), ones(9))
    assert scores_of(real_ps) == before
    real_ps.import_rows("ads", range(100, 108), ones(8))
    assert keys_of(real_ps) == list(range(100, 108))


def test_evictions_are_options_of_tables(real_ps: slotwise.Client) -> None:
    make(real_ps, 8)
    assert real_ps.describe_table("ads").options.eviction is None
    with pytest.raises(slotwise.AlreadyExists, match="eviction.score is none, not step"):
        make(real_ps, 8, eviction=EVICTION)
    real_ps.drop_table("ads")
    make(real_ps, 8, eviction=slotwise.Eviction())
    assert real_ps.list_tables()[0].eviction == slotwise.Eviction("step", at=1.0, to=0.95)
    with pytest.raises(slotwise.AlreadyExists, match="eviction.to is 0.95, not 0.5"):
        make(real_ps, 8, eviction=EVICTION)
    for eviction, what in [
        (slotwise.Eviction("lru"), "eviction.score is 'lru', not one of step, lfu, step_lfu"),
        (slotwise.Eviction(half_life_steps=3), "eviction.half_life_steps is 3: must be 0, because"),
        (slotwise.Eviction("lfu", half_life_steps=-1), "eviction.half_life_steps is -1: must be an integer"),
        (slotwise.Eviction("lfu", half_life_steps=2**36), "eviction.half_life_steps is 68719476736: must be"),
        (slotwise.Eviction(at=0), "eviction.at is 0: must be above 0"),
        (slotwise.Eviction(to=1.0), "eviction.to is 1: must be below eviction.at"),
        (slotwise.Eviction(at=0.1, to=0.05), "eviction.at is 0.1: must leave room for a row"),
        ("step", "eviction is 'step', not an Eviction or None"),
    ]:
        with pytest.raises(slotwise.InvalidArgument, match=what):
            real_ps.create_table("other", dim=2, optimizer=slotwise.SGD(1.0), max_rows=8, eviction=eviction)


def test_rows_expire_that_no_push_touches(real_ps: slotwise.Client) -> None:
    make(real_ps, 8, ttl_steps=3)
    for key in range(5):
        real_ps.push("ads", [key, 100], None, ones(2))
    described = real_ps.describe_table("ads")
    assert keys_of(real_ps) == [2, 3, 4, 100] and described.expired_rows == 2 and described.evicted_rows == 0
    assert described.options.ttl_steps == 3 and described.options.ttl_seconds == 0
    assert described.options.state_arrays["score"] == 2
    assert scores_of(real_ps) == {2: 3, 3: 4, 4: 5, 100: 5}
    real_ps.push("ads", range(200, 204), None, ones(4))
    with pytest.raises(slotwise.ResourceExhausted, match="is full: it has 7 of at most 8 rows"):
        real_ps.push("ads", range(300, 302), None, ones(2))
    assert real_ps.expire("ads") == 0


def test_rows_are_evicted_by_hand(real_ps: slotwise.Client) -> None:
    make(real_ps, 10, eviction=slotwise.Eviction("lfu"))
    real_ps.push("ads", [1, 1, 1, 2, 2, 3], None, ones(6))
    assert real_ps.evict("ads", below_score=2) == 1
    assert real_ps.evict("ads", keep=1) == 1
    assert keys_of(real_ps) == [1]
    real_ps.push("ads", range(10, 15), None, ones(5))
    assert real_ps.evict("ads", share=0.5) == 1
    assert real_ps.describe_table("ads").evicted_rows == 3
    with pytest.raises(slotwise.FailedPrecondition, match="table ads has no time to live"):
        real_ps.expire("ads")
    for which in ({}, {"keep": 1, "share": 0.5}):
        with pytest.raises(slotwise.InvalidArgument, match="keep, share and below_score: give exactly one"):
            real_ps.evict("ads", **which)
    for which, what in [
        ({"keep": -1}, "keep is -1: must be an integer of 0"),
        ({"below_score": 0.5}, "below_score is 0.5: must be an integer of 0"),
        ({"share": 1.5}, "share is 1.5: must be 0 to 1"),
        ({"share": "half"}, "share is 'half': must be 0 to 1"),
        ({"keep": True}, "keep is True: must be an integer of 0"),
    ]:
        with pytest.raises(slotwise.InvalidArgument, match=what):
            real_ps.evict("ads", **which)
    assert real_ps.evict("ads", keep=0) == 5
    with pytest.raises(slotwise.NotFound):
        real_ps.evict("none", keep=0)
    with pytest.raises(slotwise.InvalidArgument, match="does not say which rows go"):
        real_ps._ask("EvictRows", {"table": "ads"})
    with pytest.raises(slotwise.InvalidArgument, match="expired is false: must be true"):
        real_ps._ask("EvictRows", {"table": "ads", "expired": False})
    real_ps.drop_table("ads")
    make(real_ps, 10)
    with pytest.raises(slotwise.FailedPrecondition, match="table ads keeps no scores: make it with"):
        real_ps.evict("ads", keep=0)
