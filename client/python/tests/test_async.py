"""Futures of lookups and pushes: waited for, awaited, cancelled, and refused."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import CancelledError, wait
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer, Gate, refuse
from slotwise_proto import admin_pb2
from waiting import LIMIT, PATIENT, connect_briefly, wait_until

import slotwise

ONES = np.ones((1, 2), dtype=np.float32)


@pytest.fixture
def ads(ps: slotwise.Client) -> slotwise.Client:
    ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
    return ps


@pytest.fixture
def fake_ads(fake_ps: slotwise.Client) -> slotwise.Client:
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
    return fake_ps


def test_many_lookups_and_pushes_are_in_flight_at_once(ads: slotwise.Client) -> None:
    keys = [np.arange(i, i + 3) for i in range(40)]
    first = ads.lookup("ads", np.arange(43))
    futures = [ads.lookup_async("ads", some) for some in keys]
    for i, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(20), first[i : i + 3])
    pushes = [ads.push_async("ads", [i], None, ONES) for i in range(20)]
    assert sorted(push.result(20) for push in pushes) == list(range(1, 21))
    np.testing.assert_allclose(ads.lookup("ads", np.arange(20)), first[:20] - 0.5, atol=1e-6)


def test_futures_can_be_awaited_and_gathered(ads: slotwise.Client) -> None:
    async def train() -> list[int]:
        values = await ads.lookup_async("ads", [1, 2])
        assert values.shape == (2, 2)
        return await asyncio.gather(*(ads.push_async("ads", [1], None, ONES) for _ in range(5)))

    assert sorted(asyncio.run(train())) == [1, 2, 3, 4, 5]


def test_the_first_calls_do_not_wait_for_a_tables_shape(fake: FakeServer, fake_ads: slotwise.Client) -> None:
    """And a push without a step draws its client's next when it is sent."""
    gate = Gate(fake, "DescribeTable")
    with slotwise.connect(fake.addresses[0], timeout=20) as other:
        lookup, push = other.lookup_async("ads", [1]), other.push_async("ads", [1], None, ONES)
        gate.wait_for_call()
        named = other.session.next()
        assert not lookup.done() and not push.done()
        gate.opened.set()
        assert lookup.result(20).shape == (1, 2) and push.result(20) == 1
    (sent,) = fake.requests("Push")
    assert (sent.step.session, sent.step.number) == (named.session, named.number + 1)


def test_an_error_comes_with_the_result(ads: slotwise.Client) -> None:
    with pytest.raises(slotwise.NotFound):
        ads.lookup_async("none", [1]).result(20)
    with pytest.raises(slotwise.InvalidArgument, match="keys: dtype"):
        ads.lookup_async("ads", [0.5]).result(20)
    with pytest.raises(slotwise.InvalidArgument, match="gradients: shape"):
        ads.push_async("ads", [1, 2], None, ONES).result(20)
    with pytest.raises(slotwise.InvalidArgument, match="wire_dtype"):
        ads.push_async("ads", [1], None, ONES, wire_dtype="int8")

    async def fail() -> None:
        await ads.lookup_async("none", [1])

    with pytest.raises(slotwise.NotFound):
        asyncio.run(fail())


def test_a_cancelled_call_ends_and_lets_its_arrays_go_while_the_server_is_silent(fake: FakeServer) -> None:
    ps = slotwise.connect(fake.addresses[0], timeout=PATIENT)
    ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
    gate, keys = Gate(fake, "Lookup"), np.arange(3)
    alive, future = weakref.ref(keys), ps.lookup_async("ads", keys)
    gate.wait_for_call()
    assert future.cancel() and future.cancel() and future.cancelled()
    assert wait([future], 10).done == {future}
    with pytest.raises(CancelledError):
        future.result(20)
    del keys, future

    def has_gone() -> bool:
        gc.collect()
        return alive() is None

    wait_until(has_gone, "the call lets its keys go")
    closing = threading.Thread(target=ps.close)  # waits for what is in flight
    closing.start()
    wait_until(lambda: not closing.is_alive(), "the client is closed")
    assert gate.passed == 0
    gate.opened.set()


def test_a_task_that_is_cancelled_cancels_its_call(fake: FakeServer, fake_ads: slotwise.Client) -> None:
    gate = Gate(fake, "Push")

    async def push() -> None:
        future = fake_ads.push_async("ads", [1], None, ONES)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(future), 0.2)
        assert future.cancelled()

    asyncio.run(push())
    gate.opened.set()


def test_a_result_goes_where_the_caller_wants_it_and_is_not_cancelled(ads: slotwise.Client) -> None:
    out = np.empty((2, 2), dtype=np.float32)
    future = ads.lookup_async("ads", [1, 2], out=out)
    assert future.result(20) is out
    np.testing.assert_array_equal(out, ads.lookup("ads", [1, 2]))
    assert not future.cancel() and not future.cancelled() and future.result(0) is out


def test_a_future_that_is_not_held_is_answered_all_the_same(ads: slotwise.Client) -> None:
    done = threading.Event()
    ads.push_async("ads", [1], None, ONES.copy()).add_done_callback(lambda _: done.set())
    gc.collect()
    assert done.wait(20)
    assert ads.describe_table("ads").steps == 1


def test_closing_fails_what_is_in_flight(fake: FakeServer, fake_ads: slotwise.Client) -> None:
    gate = Gate(fake, "Lookup")
    futures = [fake_ads.lookup_async("ads", [i]) for i in range(8)]
    gate.wait_for_call()
    fake_ads.close()
    assert not wait(futures, 20).not_done
    for future in futures:
        with pytest.raises(slotwise.FailedPrecondition, match="closed"):
            future.result(0)
    with pytest.raises(slotwise.FailedPrecondition, match="closed"):
        fake_ads.lookup_async("ads", [1]).result(20)
    gate.opened.set()


def test_a_call_ends_at_its_timeout(fake: FakeServer, fake_ads: slotwise.Client) -> None:
    gate = Gate(fake, "Lookup")
    with connect_briefly(fake.addresses[0], timeout=0.5) as ps:
        with pytest.raises(slotwise.DeadlineExceeded, match="within 0.5 s"):
            ps.lookup_async("ads", [1]).result(LIMIT)
        gate.opened.set()


def test_an_async_push_is_sent_again_as_the_same_step(fake: FakeServer, fake_ads: slotwise.Client) -> None:
    fake.before = refuse("Push", times=2)
    step = fake_ads.session.next()
    assert fake_ads.push_async("ads", [1], None, ONES, step=step).result(20) == 1
    assert [push.step.number for push in fake.requests("Push")] == [step.number] * 3


def test_a_callback_that_raises_and_a_future_that_its_user_has_ended_stop_no_other_call(
    fake: FakeServer, fake_ads: slotwise.Client
) -> None:
    gate = Gate(fake, "Lookup")

    def leave(_: Any) -> None:
        raise SystemExit(3)

    future, mine = (fake_ads.lookup_async("ads", [key]) for key in (1, 2))
    future.add_done_callback(leave)  # before it is done, or it would be called here
    gate.wait_for_call()
    mine.set_result(np.zeros((1, 2), np.float32))
    gate.opened.set()
    future.result(20)
    for _ in range(3):
        assert fake_ads.lookup_async("ads", [1]).result(20).shape == (1, 2)


def test_a_callback_that_would_wait_for_ever_is_told_so(fake: FakeServer, fake_ads: slotwise.Client) -> None:
    said: list[BaseException | None] = []
    told = threading.Event()

    def wait_for_another(_: Any) -> None:
        try:
            fake_ads.lookup_async("ads", [2]).result()
        except RuntimeError as error:
            said.append(error)
        told.set()

    gate = Gate(fake, "Lookup")
    first = fake_ads.lookup_async("ads", [1])
    first.add_done_callback(wait_for_another)  # before it is done, or it would be called here
    gate.opened.set()
    assert told.wait(20) and "may not wait" in str(said[0])
    assert fake_ads.lookup_async("ads", [1]).result(20).shape == (1, 2)


def test_ctrl_c_amid_a_calls_start_is_raised(ads: slotwise.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ads.lookup("ads", [1])

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(slotwise.Future, "runs_as", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ads.lookup_async("ads", [1])
    assert ads.lookup_async("ads", [1]).result(20).shape == (1, 2)


def test_an_array_goes_when_its_future_goes(ads: slotwise.Client) -> None:
    """And not when Python next looks for cycles."""
    gc.disable()
    try:
        out = np.empty((1, 2), dtype=np.float32)
        alive = weakref.ref(out)
        future = ads.lookup_async("ads", [1], out=out)
        future.result(20)
        del out, future
        # The thread that answered may hold it for a moment.
        wait_until(lambda: alive() is None, "the array is let go")
    finally:
        gc.enable()


def test_a_description_of_another_table_is_an_error(fake: FakeServer, fake_ads: slotwise.Client) -> None:
    reply = admin_pb2.DescribeTableReply(options=fake.tables["ads"].options)
    reply.options.name = "other"
    fake.answer("DescribeTable", reply.SerializeToString())
    with slotwise.connect(fake.addresses[0], timeout=10) as ps:
        for call in (lambda: ps.lookup_async("ads", [1]).result(20), lambda: ps.lookup("ads", [1])):
            with pytest.raises(slotwise.Error, match='describes the table "other", not "ads"'):
                call()
