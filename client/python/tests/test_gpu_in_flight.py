"""Pushes in flight by memory of the server's device, and the lookups behind them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from real_server import RealServer, make_anew
from test_gpu_transport import DEVICE

import slotwise

torch = pytest.importorskip("torch")
st = pytest.importorskip("slotwise.torch")

SEED = 20261125
KEYS, DIM = 40, 6


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = RealServer(1, config="limits { max_gpu_shared_mib: 64 }")
    yield server.address
    assert server.stop() == 0


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[slotwise.Client]:
    """One for all: a server has memory for four, until their process ends."""
    with slotwise.connect(address, transport="gpu") as ps:
        yield ps


@pytest.fixture
def ps(client: slotwise.Client) -> slotwise.Client:
    make_tables(client)
    return client


def make_tables(ps: slotwise.Client) -> None:
    for table in ("one", "other"):
        make_anew(ps, table, dim=DIM, combiner="none", optimizer=slotwise.AdaGrad(lr=0.5))


def in_flight(ps: slotwise.Client, table: str = "one") -> Any:
    return st.Embedding(ps, table, in_flight=True)


def keys() -> Any:
    return torch.arange(KEYS, device=DEVICE)


def step(module: Any) -> None:
    out = module(keys())
    out.backward(out.detach() + 1)


def lookups_of(ps: slotwise.Client) -> int:
    return sum(rank.lookups.calls for rank in ps.stats())


def test_an_error_is_the_next_forwards_whose_lookup_is_not_sent(ps: slotwise.Client) -> None:
    rows = in_flight(ps)
    step(rows)
    out = rows(keys())
    before = lookups_of(ps)
    out.backward(torch.full_like(out, float("nan")))
    with pytest.raises(slotwise.InvalidArgument, match="must be finite"):
        rows(keys())
    assert lookups_of(ps) == before
    step(rows)  # and all goes on
    rows.flush()
    assert ps.describe_table("one").steps == 2


def test_an_error_is_the_next_backwards_too(ps: slotwise.Client) -> None:
    """Another table's lookup is not behind the push; its gradients would be."""
    rows, others = in_flight(ps), in_flight(ps, "other")
    mine, theirs = rows(keys()), others(keys())
    mine.backward(torch.full_like(mine, float("inf")))
    with pytest.raises(slotwise.InvalidArgument, match="must be finite"):
        # The push fails at some time: the first backward() behind that says so.
        for _ in range(1000):
            others(keys()).backward(torch.ones_like(theirs))
            others.flush()
    others.flush()


def test_a_refused_step_goes_by_the_host_once(ps: slotwise.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device's memory has no room for arrives by the host's, under the same step.

    Here it has arrived before it is said to be refused: so a step that were another would count twice.
    """
    from slotwise import _gpu

    applied = _gpu.GpuTransport.finish_push
    monkeypatch.setattr(_gpu.GpuTransport, "finish_push", lambda *a: applied(*a) and False)
    session = slotwise.Session()
    rows = st.Embedding(ps, "one", session=session, in_flight=True)
    step(rows)
    step(rows)
    rows.flush()
    assert ps.describe_table("one").steps == 2
    digest = ps.digest("one").digest
    make_tables(ps)
    monkeypatch.undo()
    plain = st.Embedding(ps, "one")
    step(plain)
    step(plain)
    assert ps.digest("one").digest == digest


@pytest.mark.parametrize("written", ["keys", "gradients"])
def test_a_step_that_is_refused_after_its_tensors_were_written_is_an_error(
    ps: slotwise.Client, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    from slotwise import _gpu

    monkeypatch.setattr(_gpu.GpuTransport, "finish_push", lambda transport, started: transport.end(started))
    rows, given = in_flight(ps), keys()
    out = rows(given)
    gradients = torch.ones_like(out)
    out.backward(gradients)
    (given if written == "keys" else gradients).add_(1)
    with pytest.raises(slotwise.FailedPrecondition, match="its tensors were written meanwhile"):
        rows.flush()


def test_all_ways_of_a_loop_keep_its_order(ps: slotwise.Client, address: str) -> None:
    """Plain steps, steps in flight and a loop of Prefetch come one behind the other."""
    print(f"seed {SEED}")
    random = torch.Generator().manual_seed(SEED)
    batches = [torch.randint(0, 30, (50,), generator=random).to(DEVICE) for _ in range(12)]

    def run(ps: slotwise.Client, mixed: bool) -> str:
        make_tables(ps)
        fast, plain = st.Embedding(ps, "one", in_flight=mixed), st.Embedding(ps, "one")

        def take(module: Any, some: Any) -> None:
            out = module(some)
            out.backward(2 * out.detach() + 1)

        for i, some in enumerate(batches[:6]):
            take(plain if i % 3 == 2 else fast, some)
        # A push is under way as the loop begins, and others as it ends.
        loop: Any = batches[6:9]
        if mixed:
            loop = st.Prefetch([(some,) for some in loop], fast, depth=2, staleness=0)
        for some in loop:
            take(fast, some[0] if mixed else some)
        for some in batches[9:]:
            take(fast, some)
        return str(ps.digest("one").digest)

    with slotwise.connect(address, transport="tcp") as other:
        expected = run(other, False)
    assert run(ps, True) == expected


def test_one_push_of_two_tables_is_behind_no_push_and_before_both_lookups(ps: slotwise.Client) -> None:
    both = st.EmbeddingBags(ps, ["one", "other"], in_flight=True)
    ones = {"one": keys(), "other": keys()}
    for _ in range(3):
        outs = list(both(ones).values())
        torch.autograd.backward(outs, [torch.ones_like(out) for out in outs])
        row = in_flight(ps, "other")
        row.eval()
        seen = row(keys())
    both.flush()
    row.eval()
    assert torch.equal(row(keys()), seen), "a lookup sees the push before it"
    assert ps.describe_table("one").steps == ps.describe_table("other").steps == 3


_TRAINER = """
import sys, torch, slotwise, slotwise.torch as st
ps = slotwise.connect(sys.argv[1], transport="gpu")
rows = st.Embedding(ps, "one", in_flight=True)
out = rows(torch.arange(10, device=sys.argv[2]))
out.backward(torch.ones_like(out))
if sys.argv[3] == "close":
    ps.close()
"""


@pytest.mark.parametrize("how", ["exit", "close"])
def test_a_program_that_ends_has_pushed(ps: slotwise.Client, address: str, how: str) -> None:
    subprocess.run([sys.executable, "-c", _TRAINER, address, str(DEVICE), how], check=True, timeout=120)
    assert ps.describe_table("one").steps == 1


def test_a_lookup_that_finds_no_room_beside_the_push_comes_after_it() -> None:
    """The plain loop has room for one call's arrays and two results, which is less than this takes."""
    server = RealServer(1, config="limits { max_gpu_shared_mib: 8 }")
    with slotwise.connect(server.address, transport="gpu") as ps:
        make_tables(ps)
        for in_flight in (False, True):
            rows = st.Embedding(ps, "one", in_flight=in_flight)
            some = torch.arange(20_000, device=DEVICE)
            for _ in range(4):
                found = rows(some)  # while the last one is still there
                found.backward(torch.ones_like(found))
            rows.flush()
        assert ps.describe_table("one").steps == 8
    assert server.stop() == 0
