"""Prefetch: the plain loop's bytes, a bound on what a lookup misses, errors in the right place."""

from __future__ import annotations

import gc
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from fake_server import FakeServer, Gate, all_of, refuse
from real_server import serving
from slotwise_proto import embedding_pb2
from torch import Tensor, nn
from waiting import wait_until

import slotwise
import slotwise.torch as st
from slotwise import _prefetch

DIM, SAMPLES, BATCHES = 4, 6, 12
THREADS = ("slotwise-loader", "slotwise-lookups", "slotwise-pushes")
Batches = list[tuple[Any, Tensor]]


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in THREADS]


def await_threads_ends() -> None:
    """A thread that is done may be about to end, and is in the list until then."""
    wait_until(lambda: not our_threads(), "the threads' ends")


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    gc.collect()
    await_threads_ends()


class Kind:
    """A model with modules of slotwise.torch, and batches for it."""

    def __init__(self, ps: slotwise.Client, batch_seed: int = 1) -> None:
        self.ps = ps
        self.draw = torch.Generator().manual_seed(batch_seed)
        self.modules: list[Any] = self.make()

    def table(self, name: str, **options: Any) -> None:
        self.ps.drop_table(name, missing_ok=True)
        defaults: dict[str, Any] = {"dim": DIM, "optimizer": slotwise.AdaGrad(0.1)}
        self.ps.create_table(name, **(defaults | options))

    def keys(self, *shape: int) -> Tensor:
        """Few keys, so that batches share many rows."""
        return torch.randint(-5, 9, shape, generator=self.draw)

    def bags(self, slots: int) -> tuple[Tensor, Tensor]:
        counts = torch.randint(0, 4, (SAMPLES * slots,), generator=self.draw)
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
        return self.keys(int(offsets[-1])), offsets

    def make(self) -> list[Any]:
        self.table("ads", slots=2)
        return [st.EmbeddingBag(self.ps, "ads")]

    def given(self) -> Any:
        return self.bags(2)

    def outputs(self, given: Any) -> list[Tensor]:
        return [self.modules[0](*given)]

    @property
    def module(self) -> Any:
        return self.modules[0] if len(self.modules) == 1 else self.modules


class Weighted(Kind):
    def given(self) -> Any:
        keys, offsets = self.bags(2)
        return [keys, offsets, torch.randn(len(keys), generator=self.draw)]


class WithoutEnd(Kind):
    def make(self) -> list[Any]:
        self.table("ads", combiner="mean")
        return [st.EmbeddingBag(self.ps, "ads", include_last_offset=False)]

    def given(self) -> Any:
        keys, offsets = self.bags(1)
        return keys.int().abs(), offsets[:-1]


class Words(Kind):
    def make(self) -> list[Any]:
        self.table("ads", combiner="none")
        return [st.Embedding(self.ps, "ads")]

    def given(self) -> Any:
        return self.keys(SAMPLES, 2)

    def outputs(self, given: Any) -> list[Tensor]:
        return [self.modules[0](given).flatten(1)]


class Several(Kind):
    """One module of two tables, one of which has no part in some losses."""

    def make(self) -> list[Any]:
        self.table("ads", slots=2)
        self.table("words", dim=3, combiner="none", optimizer=slotwise.Adam(0.1))
        return [st.EmbeddingBags(self.ps, ["ads", "words"])]

    def given(self) -> Any:
        return {"ads": self.bags(2), "words": self.keys(SAMPLES)}

    def outputs(self, given: Any) -> list[Tensor]:
        found = self.modules[0](given)
        return list(found.values()) if int(given["words"][0]) % 3 else [found["ads"]]


class TwoModules(Kind):
    """Two modules of one table, and so two pushes a batch; the second is trained by itself."""

    def make(self) -> list[Any]:
        self.table("ads")
        return [st.EmbeddingBag(self.ps, "ads"), st.EmbeddingBag(self.ps, "ads")]

    def given(self) -> Any:
        return [self.bags(1), self.keys(SAMPLES, 1)]

    def outputs(self, given: Any) -> list[Tensor]:
        first = self.modules[0](*given[0])
        first.cos().sum().backward(retain_graph=True)
        return [first, self.modules[1](given[1])]


KINDS = [Kind, Weighted, WithoutEnd, Words, Several, TwoModules]


def train(kind: Kind, batches: Any) -> tuple[list[float], list[Any]]:
    """Trains with dense weights and dropout; every loss, and the tables' digests."""
    torch.manual_seed(3)
    dense = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.Adagrad(dense.parameters(), lr=0.1)
    losses = []
    for given, labels in batches:
        pooled = nn.functional.pad(torch.cat(kind.outputs(given), 1), (0, 16))[:, :16]
        loss = (dense(pooled)[:, 0] - labels).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tables = sorted(table.name for table in kind.ps.list_tables())
    return losses, [kind.ps.digest(table) for table in tables]


def drawn(kind: Kind, count: int = BATCHES) -> Batches:
    return [(kind.given(), torch.randn(SAMPLES, generator=kind.draw)) for _ in range(count)]


@pytest.mark.parametrize("make", KINDS)
def test_with_staleness_0_it_is_the_plain_loop_to_the_byte(ps: slotwise.Client, make: Any) -> None:
    kind = make(ps)
    plain = train(kind, drawn(kind))
    for depth in (1, 2, 5):
        kind = make(ps)
        batches = st.Prefetch(drawn(kind), kind.module, depth)
        assert len(batches) == BATCHES
        assert train(kind, batches) == plain
        assert all(module._ahead == () for module in kind.modules)


def test_a_loaders_seeds_and_epochs_are_as_in_the_plain_loop(ps: slotwise.Client) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)

    def epochs(ahead: bool) -> Any:
        kind = Words(ps, seed)
        data: Any = [(kind.keys(2), torch.randn(())) for _ in range(5 * SAMPLES)]
        torch.manual_seed(seed)
        loader: Any = torch.utils.data.DataLoader(data, batch_size=SAMPLES, shuffle=True)
        batches = st.Prefetch(loader, kind.module) if ahead else loader
        return [train(kind, batches)[0] for _ in range(3)]

    torch.manual_seed(seed)
    plain = epochs(ahead=False)
    torch.manual_seed(seed)
    assert epochs(ahead=True) == plain


def test_modules_in_flight_train_as_plain_ones(ps: slotwise.Client) -> None:
    kind = Several(ps)
    plain = train(kind, drawn(kind))
    kind = Several(ps)
    kind.modules = [st.EmbeddingBags(ps, ["ads", "words"], in_flight=True)]
    batches = drawn(kind)
    losses, _ = train(kind, batches)
    kind.modules[0].flush()
    assert (losses, [ps.digest("ads"), ps.digest("words")]) == plain


def pass_and_look_up_more(kind: Kind, batches: Any) -> list[float]:
    """Pushes that come after the next lookup could have begun, lookups that were not foreseen."""
    bag: Any = kind.module
    sums, before = [], None
    for number, ((keys, offsets), _) in enumerate(batches):
        out = bag(keys, offsets)
        loss = out.square().sum() if before is None else (out + before).square().sum()
        loss.backward(retain_graph=number % 3 == 1)
        if number % 3 == 1:
            (out.sin().sum()).backward()
            with torch.no_grad():
                sums.append(bag(keys, offsets).sum().item())
        if number % 4 == 2:
            bag(torch.tensor([[7, 7]])).sum().backward()
            bag.eval()
            sums.append(bag(torch.tensor([[3, 99]])).sum().item())
            bag.train()
        sums.append(loss.item())
        before = out.detach().mean() if number % 2 else None
    return sums


def push_several_batches(kind: Kind, batches: Any) -> list[float]:
    bag: Any = kind.module
    losses: list[Tensor] = []
    sums = []
    for given, _ in batches:
        losses.append(bag(*given).sin().sum())
        if len(losses) == 3:
            torch.stack(losses).sum().backward()
            sums += [loss.item() for loss in losses]
            losses.clear()
    return sums


def change_the_table(kind: Kind, batches: Any) -> list[float]:
    sums = []
    for number, (given, _) in enumerate(batches):
        out = kind.module(*given)
        out.square().sum().backward()
        sums.append(out.sum().item())
        kind.ps.set_learning_rate("ads", 0.2 / (number + 1))
        if number == 4:
            kind.ps.import_rows("ads", [1, 2], np.ones((2, DIM), dtype=np.float32))
        if number == 7:
            sums.append(kind.ps.erase("ads", [1, 2, 3]))
    return sums


LOOPS = [pass_and_look_up_more, push_several_batches, change_the_table]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_loop_means_what_the_plain_loop_means(ps: slotwise.Client, loop: Any) -> None:
    told = []
    for ahead in (False, True):
        kind = Kind(ps)
        batches: Any = drawn(kind)
        told.append((loop(kind, st.Prefetch(batches, kind.module) if ahead else batches), ps.digest("ads")))
    assert told[1] == told[0]


# --- what a lookup sees: a row of zeros to which every push adds 1


def counting(ps: slotwise.Client, **options: Any) -> Any:
    ps.create_table("count", dim=1, optimizer=slotwise.SGD(1.0), initializer=slotwise.Constant(0.0))
    return st.EmbeddingBag(ps, "count", **options)


ONE = torch.tensor([[1]])


def count_up(bag: Any) -> int:
    """Pushes once; how many pushes the lookup saw."""
    out = bag(ONE)
    (-out).sum().backward()
    return int(out.item())


@pytest.mark.parametrize("staleness", [0, 1, 2, 3])
def test_a_lookup_misses_no_more_pushes_than_it_may(ps: slotwise.Client, staleness: int) -> None:
    bag = counting(ps)
    batches = st.Prefetch([ONE] * 50, bag, depth=4, staleness=staleness)
    seen = [count_up(bag) for _ in batches]
    assert all(n - staleness <= saw <= n for n, saw in enumerate(seen)), seen
    assert ps.describe_table("count").steps == 50


def hold_for_a_moment(
    fake: FakeServer,
    method: str,
    too_early: Callable[[], bool] = lambda: False,
    has_come: Callable[[], bool] = lambda: True,
) -> None:
    """Holds calls at the fake server: until what must come has come, if anything must, and then until what
    must not come has, or for a short time."""

    def hold(_: int, called: str, __: Any) -> None:
        if called != method:
            return
        wait_until(has_come, "what the held call is to wait for")
        deadline = time.monotonic() + 0.2
        while not too_early() and time.monotonic() < deadline:
            time.sleep(0.001)

    fake.before = hold


class LookupsAhead:
    """Counts the lookups that the fake server has read rows for, while pushes of six batches are held."""

    def __init__(self, fake: FakeServer, staleness: int) -> None:
        self._fake, self._staleness, self._read = fake, staleness, 0
        self._lock = threading.Lock()
        fake.after = self._count
        hold_for_a_moment(fake, "Push", self._are_too_many, self._are_all)

    def _count(self, _: int, method: str, __: Any) -> None:
        with self._lock:
            self._read += method == "Lookup"

    def _most(self) -> int:
        """Returns how many lookups need none of the pushes that are held."""
        return self._fake.tables["count"].steps + 1 + self._staleness

    def _are_all(self) -> bool:
        return self._read >= min(6, self._most())

    def _are_too_many(self) -> bool:
        return len(self._fake.requests("Lookup")) > self._most()


@pytest.mark.parametrize("staleness", [0, 1, 2, 3])
def test_lookups_run_ahead_of_slow_pushes_as_far_as_they_may_and_pushes_name_them(
    fake: FakeServer, fake_ps: slotwise.Client, staleness: int
) -> None:
    bag = counting(fake_ps)
    name_states(fake)
    LookupsAhead(fake, staleness)
    seen = [count_up(bag) for _ in st.Prefetch([ONE] * 6, bag, depth=6, staleness=staleness)]
    assert seen == [max(0, n - staleness) for n in range(6)]
    assert len(fake.requests("Lookup")) == 6, "no lookup was in vain"
    named = [(push.looked_up.lineage, push.looked_up.table_step) for push in fake.requests("Push")]
    assert named == [(7, saw) for saw in seen]


def name_states(fake: FakeServer) -> None:
    """Has the server say in lookups' replies which state they read: "count" is as its only row says."""

    def named(method: str, reply: bytes) -> bytes:
        if method != "Lookup":
            return reply
        lookup = embedding_pb2.LookupReply.FromString(reply)
        lookup.lineage, lookup.table_step = 7, int(np.frombuffer(lookup.values, "<f4")[0])
        return bytes(lookup.SerializeToString())

    fake.spoil = named


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_push_without_prefetch_names_the_latest_lookup(
    fake: FakeServer, fake_ps: slotwise.Client, in_flight: bool
) -> None:
    bag = counting(fake_ps, in_flight=in_flight)
    name_states(fake)
    seen = [count_up(bag) for _ in range(5)]
    bag.flush()
    assert seen == list(range(5))
    assert [push.looked_up.table_step for push in fake.requests("Push")] == seen


def test_a_loader_is_depth_batches_ahead_and_a_lookup_begins_once_the_push_before_it_is_acknowledged(
    fake: FakeServer, fake_ps: slotwise.Client
) -> None:
    bag, loaded = counting(fake_ps), []

    def loader() -> Iterator[Tensor]:
        for number in range(10):
            loaded.append(number)
            yield ONE

    for number, _ in enumerate(st.Prefetch(loader(), bag, depth=3)):
        wait_until(lambda: len(loaded) == min(10, number + 4), "the batches ahead")
        assert count_up(bag) == number
        # They are looked up beside the optimizer.
        wait_until(lambda: len(fake.requests("Lookup")) == min(10, number + 2), "the lookups ahead")
    assert len(loaded) == 10


def test_without_pushes_all_is_looked_up_ahead(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    bag = counting(fake_ps).eval()
    batches = iter(st.Prefetch([ONE] * 6, bag, depth=3, staleness=0))
    for number, _ in enumerate(batches):
        wait_until(lambda: len(fake.requests("Lookup")) == min(6, number + 4), "the lookups ahead")
        assert not bag(ONE).requires_grad
    assert len(fake.requests("Lookup")) == 6 and fake.tables["count"].rows == {}


def test_rows_that_were_looked_up_without_inserting_are_not_for_training(ps: slotwise.Client) -> None:
    ps.create_table("fives", dim=1, optimizer=slotwise.SGD(1.0), initializer=slotwise.Constant(5.0))
    bag = st.EmbeddingBag(ps, "fives").eval()
    for _ in st.Prefetch([ONE], bag):
        bag.train()
        assert bag(ONE).item() == 5 and bag(ONE).requires_grad


def test_what_is_handed_over_is_its_own(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    bag, held = counting(fake_ps, in_flight=True), Gate(fake, "Push")
    keys, offsets, gradient = torch.tensor([5]), torch.tensor([0, 1]), torch.tensor([[-4.0]])
    weights = torch.tensor([2.0])
    bag(keys, offsets, weights).backward(gradient)
    for tensor in (keys, offsets, gradient, weights):
        tensor.zero_()
    held.opened.set()
    bag.flush()
    assert fake.tables["count"].rows[5] == 8 and list(fake.tables["count"].rows) == [5]


def test_changed_keys_are_looked_up_anew(ps: slotwise.Client, caplog: pytest.LogCaptureFixture) -> None:
    bag = counting(ps)
    ps.import_rows("count", [2, 3], np.array([[20], [30]], dtype=np.float32))
    for number, keys in enumerate(st.Prefetch([torch.tensor([[2]]) for _ in range(4)], bag)):
        assert bag(keys.clone()).item() == 20  # equal ones are the same
        if number == 2:
            assert bag(keys + 1).item() == 30
    assert "not used" not in caplog.text
    for keys in st.Prefetch([torch.tensor([[2]]) for _ in range(4)], bag):
        keys += 1
        assert bag(keys).item() == 30
    assert "rows of 4 lookups ahead were not used" in caplog.text


def test_a_server_that_went_back_is_looked_up_anew(tmp_path: Path) -> None:
    def run(ahead: bool) -> list[int]:
        with serving(1, data=tmp_path / str(ahead)) as ps:
            bag, seen = counting(ps), []
            model = nn.Sequential(bag)
            batches: Any = [ONE] * 9
            batches = st.Prefetch(batches, bag) if ahead else batches
            for number, _ in enumerate(batches):
                seen.append(count_up(bag))
                if number == 2:
                    st.save(tmp_path / f"{ahead}.pt", model)
                if number == 5:
                    st.load(tmp_path / f"{ahead}.pt", model, go_back=True)
            return seen

    assert run(True) == run(False) == [0, 1, 2, 3, 4, 5, 3, 4, 5]


def test_rows_go_to_the_device_that_is_named(fake_ps: slotwise.Client) -> None:
    bag = counting(fake_ps).eval()
    for keys in st.Prefetch([ONE] * 3, bag, device="meta"):
        assert bag(keys).device.type == "meta"
        assert bag(keys).device.type == "cpu"  # this one was not looked up ahead


# --- errors, and ends


def refuse_call(fake: FakeServer, method: str, number: int) -> None:
    """Lets the fake server refuse the call of that number, from 1."""
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    fake.before = refuse(method, exhausted, of=lambda *_: len(fake.requests(method)) == number)


@pytest.mark.parametrize("where", ["loader", "bags"])
def test_a_loaders_error_comes_where_its_batch_would(ps: slotwise.Client, where: str) -> None:
    bag, seen = counting(ps), []

    def loader() -> Iterator[Tensor]:
        for number in range(5):
            if number == 3 and where == "loader":
                raise OSError("the disk is gone")
            yield torch.full((1, 1), number)

    def bags(keys: Tensor) -> Tensor:
        if keys.item() == 3:
            raise OSError("the disk is gone")
        return ONE

    with pytest.raises(OSError, match="the disk is gone"):
        for _ in st.Prefetch(loader(), bag, depth=5, bags=bags):
            seen.append(count_up(bag))
    assert seen == [0, 1, 2]
    await_threads_ends()
    assert bag._ahead == ()
    assert ps.describe_table("count").steps == 3


@pytest.mark.parametrize(
    "method, failed_at, expected", [("Lookup", 2, [0, 1, 2, 3, 4]), ("Push", 3, [0, 1, 2, 2, 3])]
)
def test_the_loop_goes_on_behind_an_error_that_was_caught(
    fake: FakeServer, fake_ps: slotwise.Client, method: str, failed_at: int, expected: list[int]
) -> None:
    """A lookup's is its forward's, which may be tried again; a push's comes with the next batch."""
    bag, seen, failed = counting(fake_ps), [], []
    refuse_call(fake, method, 3)
    for number, _ in enumerate(st.Prefetch([ONE] * (5 if method == "Lookup" else 6), bag)):
        try:
            seen.append(count_up(bag))
        except slotwise.ResourceExhausted:
            failed.append(number)
            if method == "Lookup":
                seen.append(count_up(bag))
    assert (failed, seen) == ([failed_at], expected)


@pytest.mark.parametrize("staleness", [0, 2])
@pytest.mark.parametrize("refused", [3, 9], ids=["amid the loop", "at its end"])
def test_a_pushs_error_comes_next_and_nothing_behind_it_is_applied(
    fake: FakeServer, fake_ps: slotwise.Client, staleness: int, refused: int
) -> None:
    bag, seen = counting(fake_ps), []
    refuse_call(fake, "Push", refused)
    with pytest.raises(slotwise.ResourceExhausted):
        for _ in st.Prefetch([ONE] * 9, bag, staleness=staleness):
            seen.append(count_up(bag))
    assert refused <= len(seen) <= min(9, refused + staleness)
    assert fake.tables["count"].steps == refused - 1 and len(fake.requests("Push")) == refused
    bag.flush()  # an error is raised once
    assert count_up(bag) == refused - 1, "and all goes on"


@pytest.mark.parametrize("ends", ["the loop", "the client"])
def test_an_end_waits_for_the_last_push(fake: FakeServer, ends: str) -> None:
    with slotwise.connect(fake.addresses[0], timeout=10.0) as ps:
        bag = counting(ps, in_flight=ends == "the client")
        hold_for_a_moment(fake, "Push")
        batches: Any = st.Prefetch([ONE] * 2, bag, staleness=5) if ends == "the loop" else range(2)
        for _ in batches:
            count_up(bag)
        assert ends == "the client" or fake.tables["count"].steps == 2
    assert fake.tables["count"].steps == 2


@pytest.mark.parametrize("how", ["break", "raise", "close", "with"])
def test_a_loop_that_is_left_early_leaves_nothing(ps: slotwise.Client, how: str) -> None:
    bag, seen = counting(ps), []
    prefetch = st.Prefetch([ONE] * 50, bag, depth=3, staleness=1)
    batches: Any = iter(prefetch)
    leaves: dict[str, Any] = {"close": closing(batches), "with": prefetch}
    leaves["raise"] = pytest.raises(ZeroDivisionError)
    with leaves.get(how, nullcontext()):
        for _ in batches if how in ("close", "with") else prefetch:
            seen.append(count_up(bag))
            if len(seen) == 5 and how == "raise":
                raise ZeroDivisionError
            if len(seen) == 5:
                break
    if how == "with":
        assert list(batches) == []
    await_threads_ends()
    assert bag._ahead == ()
    assert ps.describe_table("count").steps == 5
    assert count_up(bag) == 5
    assert ps.describe_table("count").steps == 6, "backward() pushes at once again"


@pytest.mark.parametrize("how", ["flush", "forward", "backward", "close", "with"])
def test_the_error_of_a_loop_that_was_left_waits(fake: FakeServer, how: str) -> None:
    with slotwise.connect(fake.addresses[0], timeout=10.0) as ps:
        bag = counting(ps)
        other = bag(ONE)
        refuse_call(fake, "Push", 2)
        prefetch = st.Prefetch([ONE] * 9, bag, staleness=1)
        batches: Any = iter(prefetch)
        for _ in range(2):
            next(batches)
            count_up(bag)
        batches.close()

        def leave() -> None:
            with prefetch:
                pass

        waits: dict[str, Callable[[], Any]] = {
            "flush": bag.flush,
            "forward": lambda: bag(ONE),
            "backward": lambda: other.sum().backward(),
            "close": ps.close,
            "with": leave,
        }
        with pytest.raises(slotwise.ResourceExhausted):
            waits[how]()
        assert fake.tables["count"].steps == 1 and len(fake.requests("Push")) == 2


def test_an_error_in_the_background_does_not_hide_the_trainers_own(
    fake: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError):
        with slotwise.connect(fake.addresses[0], timeout=10.0) as ps:
            refuse_call(fake, "Push", 1)
            count_up(counting(ps, in_flight=True))
            raise ZeroDivisionError
    assert "a push in the background failed: " in caplog.text


@pytest.mark.parametrize("gives_more", [True, False])
def test_the_end_waits_for_the_batch_that_the_loader_makes_but_not_for_ever(
    fake_ps: slotwise.Client, caplog: Any, monkeypatch: pytest.MonkeyPatch, gives_more: bool
) -> None:
    bag, more, ended = counting(fake_ps), threading.Event(), []
    if not gives_more:
        monkeypatch.setattr(_prefetch, "_LAST_BATCH", 0.05)

    def loader() -> Iterator[Tensor]:
        yield ONE
        more.wait(0.2 if gives_more else 20)
        ended.append(True)
        yield ONE

    for _ in st.Prefetch(loader(), bag):
        assert count_up(bag) == 0
        break
    assert bool(ended) is gives_more and ("slotwise-loader goes on" in caplog.text) is not gives_more
    more.set()
    await_threads_ends()


def test_a_busy_server_ends_the_loop_with_an_error(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    bag, seen = counting(fake_ps), []
    longer_than_the_timeout = {"code": grpc.StatusCode.RESOURCE_EXHAUSTED, "retry_after_ms": 3_600_000}
    fake.before = all_of(
        *(
            refuse(method, of=lambda *_: fake.tables["count"].steps == 2, **longer_than_the_timeout)
            for method in ("Lookup", "Push")
        )
    )
    with pytest.raises(slotwise.ResourceExhausted, match="no answer from"):
        for _ in st.Prefetch([ONE] * 9, bag):
            seen.append(count_up(bag))
    assert seen == [0, 1]


@pytest.mark.parametrize("call", ["save", "load", "adopt"])
def test_what_reads_or_replaces_the_server_waits(
    fake: FakeServer, fake_ps: slotwise.Client, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag, steps = counting(fake_ps, in_flight=True), []

    def note(*_: Any, **__: Any) -> None:
        steps.append(fake.tables["count"].steps)

    def note_and_stop(_: str) -> None:
        note()
        raise ZeroDivisionError

    content: dict[str, Any] = {"model": {}, "optimizers": [], "model_metadata": None}
    monkeypatch.setattr(st._pair, "read", lambda _: content | {"slotwise": {}, "loader_state": 0})
    monkeypatch.setattr(st._pair, "save", note)
    monkeypatch.setattr(st._pair, "bring_back", note)
    monkeypatch.setattr(fake_ps, "describe_table", note_and_stop)
    hold_for_a_moment(fake, "Push", lambda: bool(steps))
    count_up(bag)
    if call == "adopt":
        with pytest.raises(ZeroDivisionError):
            st.adopt(nn.Embedding(2, 2).requires_grad_(False), fake_ps)
    else:
        getattr(st, call)("model.pt", nn.Sequential(bag))
    assert steps == [1]


def test_pushes_of_a_session_keep_its_order(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    session = slotwise.Session(42)
    fake_ps.create_table("words", dim=2, combiner="none", optimizer=slotwise.SGD(0.1))
    words = st.Embedding(fake_ps, "words", session=session)
    bag = counting(fake_ps, session=session)
    for batch in st.Prefetch([[ONE, ONE]] * 5, [bag, words], staleness=2, bags=lambda b: b):
        count_up(bag)
        words(batch[1]).sum().backward()
    assert [request.step.number for request in fake.requests("Push")] == list(range(1, 11))
    assert [request.table for request in fake.requests("Push")] == ["count", "words"] * 5


def test_arguments_are_checked(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    bag = counting(fake_ps)
    for arguments, match in [
        (([], nn.Linear(1, 1)), "module: Linear is no EmbeddingBag"),
        (([], [nn.Linear(1, 1)]), "module: Linear is no EmbeddingBag"),
        (([], []), "module: none is given"),
        (([], [bag, bag]), "one of them twice"),
        (([], bag, 0), "depth is 0"),
        (([], bag, 2, -1), "staleness -1"),
    ]:
        with pytest.raises(slotwise.InvalidArgument, match=match):
            st.Prefetch(*arguments)  # type: ignore[arg-type]
    with slotwise.connect(fake.addresses[0]) as ps:
        with pytest.raises(slotwise.InvalidArgument, match="several clients"):
            st.Prefetch([], [bag, st.EmbeddingBag(ps, "count")])
    with pytest.raises(slotwise.InvalidArgument, match="bags: str is not what a module takes"):
        list(st.Prefetch(["keys"], bag))
    with pytest.raises(slotwise.InvalidArgument, match="bags: Tensor is no sequence of 2"):
        list(st.Prefetch([ONE], [bag, st.EmbeddingBag(fake_ps, "count")]))


@pytest.fixture(autouse=True)
def warnings_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "slotwise")
