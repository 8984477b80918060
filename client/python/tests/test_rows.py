"""Rows by key: exported, imported, erased."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from fake_server import FakeServer, Gate, all_of, refuse
from real_server import all_rows
from slotwise_proto import rows_pb2
from waiting import connect_briefly, wait_until

import slotwise

SEED = 11
STATE_SIZES = {
    slotwise.SGD(0.1): 0,
    slotwise.RowWiseAdaGrad(0.1): 1,
    slotwise.AdaGrad(0.1, initial_accumulator=0.5): 4,
    slotwise.Adam(0.1): 8,
}


@pytest.fixture
def ads(fake_ps: slotwise.Client) -> slotwise.Client:
    """A client of the fake server, with ten rows of the table "ads"."""
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    fake_ps.lookup("ads", list(range(10)))
    return fake_ps


def train(ps: slotwise.Client, table: str, optimizer: Any, keys: Any) -> None:
    """A table with rows and state."""
    ps.create_table(table, dim=4, optimizer=optimizer)
    gradients = np.random.default_rng(SEED).normal(size=(len(keys), 4)).astype(np.float32)
    ps.push(table, keys, None, gradients)


@pytest.mark.parametrize("optimizer", STATE_SIZES, ids=lambda o: type(o).__name__)
def test_what_is_exported_and_imported_is_the_table(any_ps: slotwise.Client, optimizer: Any) -> None:
    keys = np.array([0, 1, 5, 2**63, 2**64 - 1, *range(100, 150)], dtype=np.uint64)
    train(any_ps, "ads", optimizer, keys)
    rows = all_rows(any_ps, "ads", with_state=True)
    np.testing.assert_array_equal(rows.keys, np.sort(keys))
    np.testing.assert_array_equal(rows.values, any_ps.lookup("ads", rows.keys, train=False))
    assert rows.state is not None and rows.state.shape == (len(keys), STATE_SIZES[optimizer])

    any_ps.create_table("copy", dim=4, optimizer=optimizer)
    assert any_ps.import_rows("copy", *rows) == len(keys)
    before, after = any_ps.digest("ads"), any_ps.digest("copy")
    assert (after.digest, after.rows, after.steps) == (before.digest, before.rows, 0)
    assert any_ps.import_rows("copy", *rows) == len(keys)  # again does no harm
    assert any_ps.digest("copy") == after


def test_without_state_rows_have_that_of_new_ones(any_ps: slotwise.Client) -> None:
    optimizer = slotwise.AdaGrad(0.1, initial_accumulator=0.5)
    train(any_ps, "ads", optimizer, np.arange(9, dtype=np.uint64))
    rows = all_rows(any_ps, "ads")
    assert rows.state is None
    any_ps.import_rows("ads", rows.keys, rows.values)
    with_state = all_rows(any_ps, "ads", with_state=True)
    np.testing.assert_array_equal(with_state.values, rows.values)
    np.testing.assert_array_equal(with_state.state, np.full((9, 4), 0.5))


def test_import_overwrites_and_the_last_of_repeated_keys_counts(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    any_ps.lookup("ads", [1, 2])
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert any_ps.import_rows("ads", [3, 1, 3, 4], values) == 3
    expected = [[2, 3], [4, 5], [6, 7]]
    np.testing.assert_array_equal(any_ps.lookup("ads", [1, 3, 4], train=False), expected)
    assert any_ps.digest("ads").rows == 4


def test_only_the_asked_keys_that_have_rows_are_exported(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    values = any_ps.lookup("ads", list(range(20)))
    rows = all_rows(any_ps, "ads", keys=[[3, 17], [99, 3]])
    assert rows.keys.tolist() == [3, 17]
    np.testing.assert_array_equal(rows.values, values[[3, 17]])
    assert list(any_ps.export_rows("ads", np.empty(0, np.uint64))) == []
    assert list(any_ps.export_rows("ads", [99])) == []


def test_erased_keys_begin_anew(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.AdaGrad(0.5))
    first = any_ps.lookup("ads", list(range(10)))
    untouched = any_ps.digest("ads")
    any_ps.push("ads", [3, 4], None, np.ones((2, 2), np.float32))
    assert any_ps.erase("ads", [[3, 4], [4, 77]]) == 2
    assert any_ps.erase("ads", [3]) == 0
    assert any_ps.digest("ads").rows == 8
    assert list(any_ps.export_rows("ads", [3, 4])) == []
    np.testing.assert_array_equal(any_ps.lookup("ads", list(range(10))), first)
    again = any_ps.digest("ads")
    assert (again.digest, again.rows, again.steps) == (untouched.digest, untouched.rows, 1)


def test_a_missing_table_is_not_found(any_ps: slotwise.Client) -> None:
    values = np.zeros((1, 2), np.float32)
    for call in (
        lambda: list(any_ps.export_rows("ads")),
        lambda: any_ps.import_rows("ads", [1], values),
        lambda: any_ps.import_rows("ads", np.empty(0, np.uint64), values[:0]),
        lambda: any_ps.erase("ads", [1]),
        lambda: any_ps.set_learning_rate("ads", 0.1),
    ):
        with pytest.raises(slotwise.NotFound, match="ads"):
            call()


@pytest.mark.parametrize(
    ("values", "state", "message"),
    [
        (np.zeros((2, 3), np.float32), None, "values"),
        (np.zeros((2, 2)), None, "values: dtype is float64"),
        (np.zeros((3, 2), np.float32), None, r"values: shape is \(3, 2\), not \(2, \.\.\.\)"),
        (np.zeros((2, 2), np.float32), np.zeros((2, 3), np.float32), "state"),
        (np.zeros((2, 2), np.float32), np.zeros(2, np.float32), r"state: shape is \(2,\)"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    any_ps: slotwise.Client, values: Any, state: Any, message: str
) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.AdaGrad(0.5))
    with pytest.raises(slotwise.InvalidArgument, match=message):
        any_ps.import_rows("ads", [1, 2], values, state)
    assert any_ps.digest("ads").rows == 0


def test_large_tables_travel_whole(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=64, optimizer=slotwise.SGD(0.5))
    keys = np.random.default_rng(SEED).permutation(20_000).astype(np.uint64)
    values = np.repeat(keys.astype(np.float32)[:, None], 64, axis=1)
    assert any_ps.import_rows("ads", keys, values) == 20_000
    rows = all_rows(any_ps, "ads")
    np.testing.assert_array_equal(rows.keys, np.arange(20_000))
    np.testing.assert_array_equal(rows.values[:, 0], np.arange(20_000))
    assert any_ps.erase("ads", keys[:7000]) == 7000
    assert any_ps.digest("ads").rows == 13_000


def test_an_export_may_be_left_early(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=64, optimizer=slotwise.SGD(0.5))
    keys = np.arange(10_000, dtype=np.uint64)
    any_ps.import_rows("ads", keys, np.zeros((10_000, 64), np.float32))
    for _ in range(20):  # each leaves nothing behind that the next one waits for
        rows = any_ps.export_rows("ads")
        assert len(next(rows).keys) > 0
        rows.close()  # type: ignore[attr-defined]
    assert any_ps.digest("ads").rows == 10_000


def test_an_export_that_cannot_begin_is_tried_again_there(fake: FakeServer, ads: slotwise.Client) -> None:
    once = [refuse("Export", times=1, of=lambda rank, _, only=only: rank == only) for only in (0, 1)]
    fake.before = all_of(*once)
    assert all_rows(ads, "ads").keys.tolist() == list(range(10))
    assert sorted(rank for rank, method, _ in fake.log if method == "Export") == [0, 0, 1, 1]


def test_an_export_that_breaks_later_is_an_error_at_once(fake: FakeServer, ads: slotwise.Client) -> None:
    def has_broken(rank: int, _: Any) -> bool:
        if rank == 1:
            wait_until(lambda: len(fake.requests("Export")) == 2, "rank 0 has its request")
        return rank == 1

    fake.after = refuse("Export", message="the rank is gone", times=1, of=has_broken)
    with pytest.raises(slotwise.Unavailable, match="the rank is gone"):
        list(ads.export_rows("ads"))
    assert len(fake.requests("Export")) == 2


def test_what_a_busy_rank_says_of_time_reaches_who_exports(fake: FakeServer, ads: slotwise.Client) -> None:
    hour = 3_600_000
    fake.before = refuse("Export", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_ms=hour)
    with pytest.raises(slotwise.ResourceExhausted, match="no answer from") as caught:
        list(ads.export_rows("ads"))
    assert caught.value.retry_after == hour / 1000


def test_a_rank_that_never_answers_an_export_is_given_up(fake: FakeServer, ads: slotwise.Client) -> None:
    held = Gate(fake, "Export", rank=1)
    with connect_briefly(fake.addresses[0], timeout=0.5) as ps:
        with pytest.raises(slotwise.DeadlineExceeded, match="within 0.5 s"):
            list(ps.export_rows("ads"))
    held.opened.set()


def test_an_import_is_sent_again(fake: FakeServer, ads: slotwise.Client) -> None:
    fake.after = refuse("Import", times=1)
    assert ads.import_rows("ads", [1, 12], np.ones((2, 2), np.float32)) == 2
    assert len(fake.requests("Import")) == 2 and len(fake.tables["ads"].rows) == 11


@pytest.mark.parametrize(
    "most, keys, dim", [(20_000, 5000, 2), (64 << 20, 3000, 1000)], ids=["of the server", "of 1 MiB"]
)
def test_requests_of_rows_go_to_all_ranks_and_stay_below_the_limit(most: int, keys: int, dim: int) -> None:
    every = np.arange(keys, dtype=np.uint64)
    values = np.repeat(every.astype(np.float32)[:, None], dim, axis=1)
    with FakeServer(ranks=2, max_message_bytes=most) as fake, slotwise.connect(fake.addresses[0]) as ps:
        fake.rows_a_chunk = 1000
        ps.create_table("ads", dim=dim, optimizer=slotwise.SGD(0.5))
        assert ps.import_rows("ads", every, values) == keys
        rows = all_rows(ps, "ads", keys=every[::-1])
        np.testing.assert_array_equal(rows.keys, every)
        np.testing.assert_array_equal(rows.values, values)
        assert ps.erase("ads", every) == keys
    for method in ("Import", "Export", "Erase"):
        sent = [(rank, request) for rank, name, request in fake.log if name == method]
        assert {rank for rank, _ in sent} == {0, 1} or len(sent) == 1
        assert len(sent) > 2 or most > 20_000
        assert max(request.ByteSize() for _, request in sent) <= min(most, (1 << 20) + 100)


def test_some_messages_of_an_import_are_in_flight_at_once_and_the_others_wait() -> None:
    most, keys = 4, np.arange(10_000, dtype=np.uint64)
    with FakeServer(ranks=1, max_message_bytes=20_000) as fake, slotwise.connect(*fake.addresses) as ps:
        held = Gate(fake, "Import")
        ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
        with ThreadPoolExecutor() as threads:
            written = threads.submit(ps.import_rows, "ads", keys, np.zeros((10_000, 2), np.float32))
            for _ in range(most):
                held.wait_for_call()
            assert not held.reached.acquire(timeout=0.2)
            held.opened.set()
            assert written.result() == 10_000
        assert len(fake.requests("Import")) > 2 * most


def test_a_rank_that_refuses_an_export_ends_it_at_the_others(fake: FakeServer, ads: slotwise.Client) -> None:
    held = Gate(fake, "Export", rank=0)
    gone = refuse(
        "Export", grpc.StatusCode.NOT_FOUND, "the table was dropped",
        of=lambda rank, _: rank == 1 and held.reached.acquire(timeout=20),
    )
    fake.before = all_of(fake.before, gone)
    with pytest.raises(slotwise.NotFound, match="the table was dropped"):
        list(ads.export_rows("ads"))
    ads.close()  # waits for what is in flight
    assert held.passed == 0
    held.opened.set()
    with pytest.raises(slotwise.FailedPrecondition, match="closed"):
        list(ads.export_rows("ads"))


def test_the_time_that_the_caller_takes_between_rows_does_not_count(fake: FakeServer) -> None:
    released, sent = threading.Event(), iter([True])

    def hold_the_second(method: str, reply: bytes) -> bytes:
        if method == "Export" and not next(sent, False):
            released.wait(20)
        return reply

    fake.spoil = hold_the_second
    timeout = 2.5
    with slotwise.connect(fake.addresses[0], timeout=timeout) as ps:
        ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
        ps.lookup("ads", [0, 2, 4, 6])  # two chunks, of one rank
        rows = ps.export_rows("ads")
        assert len(next(rows).keys) == 2
        taken = time.monotonic()
        while time.monotonic() < taken + timeout:
            time.sleep(0.05)
        threading.Timer(0.2, released.set).start()
        assert len(next(rows).keys) == 2


def test_a_rank_waits_until_the_caller_takes_its_rows(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    fake_ps.create_table("ads", dim=1, optimizer=slotwise.SGD(0.5))
    fake_ps.lookup("ads", np.arange(0, 400, 2))
    large = rows_pb2.ExportReply(
        dim=1, keys=bytes(8 * 80_000), values=bytes(4 * 80_000)
    ).SerializeToString()  # 100 of them: 96 MB, of which gRPC itself takes some
    fake.spoil = lambda method, reply: large if method == "Export" else reply
    whole = threading.Event()
    fake.after = lambda rank, method, _: whole.set() if (rank, method) == (0, "Export") else None
    rows = fake_ps.export_rows("ads")
    assert len(next(rows).keys) == 80_000
    assert not whole.wait(1)
    assert sum(len(some.keys) for some in rows) == 99 * 80_000
    assert whole.wait(20)
    whole.clear()
    left_early = fake_ps.export_rows("ads")
    next(left_early)
    assert not whole.wait(0.5)
    left_early.close()  # type: ignore[attr-defined]
    fake_ps.close()  # waits for what is in flight


@pytest.mark.parametrize("wrong", [{"dim": 3}, {"state_size": 1}, {"state": b"abcd"}], ids=list)
def test_a_reply_of_rows_whose_sizes_differ_is_an_error(
    fake: FakeServer, ads: slotwise.Client, wrong: dict[str, Any]
) -> None:
    later = rows_pb2.ExportReply(**wrong).SerializeToString()  # the last of several fields wins
    fake.spoil = lambda method, reply: reply + later if method == "Export" else reply
    with pytest.raises(slotwise.Error, match="the reply is not a valid ExportReply"):
        list(ads.export_rows("ads"))


def test_a_reply_without_rows_is_not_the_end(fake: FakeServer, ads: slotwise.Client) -> None:
    first = iter([True])
    empty = rows_pb2.ExportReply(dim=2).SerializeToString()
    fake.spoil = lambda method, reply: empty if method == "Export" and next(first, False) else reply
    assert sum(len(some.keys) for some in ads.export_rows("ads")) == 8


def test_rows_may_be_imported_from_arrays_that_are_not_contiguous(fake_ps: slotwise.Client) -> None:
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.AdaGrad(0.5))
    values = np.arange(8, dtype=np.float32).reshape(2, 4).T
    assert fake_ps.import_rows("ads", np.arange(8)[::2], values, values + 1) == 4
    rows = all_rows(fake_ps, "ads", with_state=True)
    assert rows.keys.tolist() == [0, 2, 4, 6]
    np.testing.assert_array_equal(rows.values, values)
    np.testing.assert_array_equal(rows.state, values + 1)


def test_an_import_raises_the_tables_steps(any_ps: slotwise.Client) -> None:
    any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    any_ps.import_rows("ads", [1], np.zeros((1, 2), np.float32), table_steps=7)
    assert any_ps.digest("ads").steps == 7
    any_ps.import_rows("ads", [1], np.zeros((1, 2), np.float32), table_steps=3)
    assert any_ps.digest("ads").steps == 7
