"""Several tables in one request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer, refuse

import slotwise

SEED = 7
TABLES = {"ads": (2, 2, "sum"), "users": (5, 1, "mean"), "words": (3, 1, "none")}  # dim, slots


def make(ps: slotwise.Client, prefix: str = "") -> None:
    for name, (dim, slots, combiner) in TABLES.items():
        optimizer = slotwise.AdaGrad(0.1)
        ps.create_table(prefix + name, dim=dim, slots=slots, combiner=combiner, optimizer=optimizer)


def batches(samples: int) -> dict[str, tuple[Any, ...]]:
    """(keys, offsets, gradients, weights) by table."""
    random = np.random.default_rng(SEED)
    keys = random.integers(0, 40, 3 * samples, dtype=np.uint64)
    offsets = np.sort(random.integers(0, len(keys), 2 * samples + 1))
    offsets[0], offsets[-1] = 0, len(keys)
    words = random.integers(0, 40, (samples, 2), dtype=np.uint64)
    weights = random.integers(1, 3, 3 * samples).astype(np.float32)

    def gradients(*shape: int) -> np.ndarray:
        return random.integers(-3, 4, shape).astype(np.float32)

    return {
        "ads": (keys, offsets, gradients(samples, 4), weights),
        "users": (keys[:samples], None, gradients(samples, 5), None),
        "words": (words, None, gradients(samples, 2, 3), None),
    }


@pytest.mark.parametrize("samples", [3, 4000])
def test_many_tables_are_what_each_of_them_is_alone(any_ps: slotwise.Client, samples: int) -> None:
    make(any_ps)
    make(any_ps, "alone-")
    batch = batches(samples)
    lookups = {table: (b[0], b[1], b[3]) for table, b in batch.items()}
    together = any_ps.lookup_many(lookups)  # type: ignore[arg-type]
    assert list(together) == list(TABLES)
    steps = any_ps.push_many(batch)
    assert steps == dict.fromkeys(TABLES, 1)
    for table, (keys, offsets, gradients, weights) in batch.items():
        alone = any_ps.lookup(f"alone-{table}", keys, offsets, weights=weights)
        np.testing.assert_array_equal(together[table], alone)
        any_ps.push(f"alone-{table}", keys, offsets, gradients, weights=weights)
        assert any_ps.digest(table) == any_ps.digest(f"alone-{table}")
    seen = any_ps.lookup_many({"users": (np.array([1000]),)}, train=False)
    np.testing.assert_array_equal(seen["users"], np.zeros((1, 5)))


def test_a_small_batch_is_one_request_and_one_step_number(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    make(fake_ps)
    batch = batches(3)
    fake_ps.lookup_many({table: (b[0], b[1]) for table, b in batch.items()})
    fake_ps.push_many(batch, wire_dtype="float16")
    (lookup,), (push,) = fake.requests("LookupMany"), fake.requests("PushMany")
    assert [request.table for request in lookup.lookups] == list(TABLES)
    steps = [(p.table, p.step.session, p.step.number, p.data_type) for p in push.pushes]
    assert steps == [(table, fake_ps.session.id, 1, 2) for table in TABLES]


def test_a_large_batch_goes_to_all_ranks_table_by_table(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    make(fake_ps)
    batch = batches(4000)
    fake_ps.push_many(batch)
    fake_ps.lookup_many({table: (b[0], b[1], b[3]) for table, b in batch.items()})
    pushes = {rank: r.pushes for rank, method, r in fake.log if method == "PushMany"}
    lookups = {rank: r.lookups for rank, method, r in fake.log if method == "LookupMany"}
    for requests in (pushes, lookups):
        tables = {rank: [r.table for r in messages] for rank, messages in requests.items()}
        assert tables == {0: ["ads"], 1: ["users", "words"]}
    assert {(p.step.part, p.step.parts) for sent in pushes.values() for p in sent} == {(0, 1)}


def test_tables_are_cut_where_there_are_more_ranks() -> None:
    with FakeServer(ranks=4) as fake, slotwise.connect(*fake.addresses) as ps:
        make(ps)
        ps.push_many(batches(4000))
    sent = [(rank, r) for rank, method, r in fake.log if method == "PushMany"]
    assert {rank for rank, _ in sent} == {0, 1, 2, 3}
    parts = sorted((p.table, p.step.part, p.step.parts) for _, r in sent for p in r.pushes)
    assert parts == [(table, part, 2) for table in TABLES for part in (0, 1)]


def test_requests_stay_below_what_the_server_takes() -> None:
    with FakeServer(ranks=1, max_message_bytes=20_000) as fake, slotwise.connect(*fake.addresses) as ps:
        make(ps)
        batch = batches(1000)
        ps.lookup_many({table: (b[0], b[1]) for table, b in batch.items()})
        ps.push_many(batch)
    pushes = fake.requests("PushMany")
    assert len(pushes) > 2
    assert max(r.ByteSize() for r in pushes + fake.requests("LookupMany")) <= 20_000


def test_a_retry_of_the_whole_call_applies_nothing_twice(any_ps: slotwise.Client) -> None:
    make(any_ps)
    batch, step = batches(3), any_ps.session.next()
    assert any_ps.push_many(batch, step=step) == dict.fromkeys(TABLES, 1)
    digests = [any_ps.digest(table) for table in TABLES]
    assert any_ps.push_many(batch, step=step) == dict.fromkeys(TABLES, 1)
    assert [any_ps.digest(table) for table in TABLES] == digests


def test_a_lost_call_is_sent_again_as_the_same_steps(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    make(fake_ps)
    fake.after = refuse("PushMany", times=1)
    assert fake_ps.push_many(batches(3)) == dict.fromkeys(TABLES, 1)
    assert len(fake.requests("PushMany")) == 2
    assert {table.steps for table in fake.tables.values()} == {1}


def test_one_refused_table_refuses_the_call_and_the_rest_can_be_sent_again(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    step, ones = any_ps.session.next(), np.ones((1, 2), np.float32)
    pushes: Any = {"ads": ([1], None, ones), "late": ([1], None, ones)}
    with pytest.raises(slotwise.NotFound, match="late"):
        any_ps.push_many(pushes, step=step)
    any_ps.create_table("late", dim=2, optimizer=slotwise.SGD(0.5))
    assert any_ps.push_many(pushes, step=step) == {"ads": 1, "late": 1}


def test_no_tables_are_no_request_and_what_is_no_tuple_is_refused(
    fake: FakeServer, fake_ps: slotwise.Client
) -> None:
    assert fake_ps.lookup_many({}) == {} and fake_ps.push_many({}) == {}
    assert not fake.requests("LookupMany") and not fake.requests("PushMany")
    make(fake_ps)
    with pytest.raises(slotwise.InvalidArgument, match="table users: list is not a tuple of 1 to"):
        fake_ps.lookup_many({"users": [1, 2]})  # type: ignore[dict-item]
    with pytest.raises(slotwise.InvalidArgument, match="table users: tuple is not a tuple of 3"):
        fake_ps.push_many({"users": ([1], None)})  # type: ignore[dict-item]
