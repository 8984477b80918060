"""`slotwise.torch` by memory of the server's device: a GPU's, or the host's, which stands for it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from judged_times import LONG_FORMS
from real_server import RealServer, make_anew
from waiting import wait_until

import slotwise

torch = pytest.importorskip("torch")
st = pytest.importorskip("slotwise.torch")

SEED = 20261124
DEVICE = torch.device("cuda", 0) if os.environ.get("SLOTWISE_TEST_GPU") else torch.device("cpu")
# One client gets a quarter.
SHARED_MIB = 32


@pytest.fixture(params=[1, 3] if LONG_FORMS else [3])
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """A server of several ranks, of which one is spoken to; in the long form one of one rank, too."""
    server = RealServer(request.param, config=f"limits {{ max_gpu_shared_mib: {SHARED_MIB} }}")
    yield server
    assert server.stop() == 0


def train(
    address: str, transport: str, wire_dtype: str, in_flight: bool = False
) -> tuple[list[torch.Tensor], str]:
    """Trains by all modules; returns what they found, and the tables' digests.

    Gradients are overwritten as soon as backward() has returned.
    """
    print(f"seed {SEED}")
    random = torch.Generator().manual_seed(SEED)
    found = []
    with slotwise.connect(address, transport=transport, wire_dtype=wire_dtype) as ps:
        make_anew(ps, "bags", dim=12, slots=3, combiner="mean", optimizer=slotwise.AdaGrad(lr=0.1))
        make_anew(ps, "rows", dim=5, combiner="none", optimizer=slotwise.SGD(lr=0.1))
        bag = st.EmbeddingBag(ps, "bags", in_flight=in_flight)
        rows = st.Embedding(ps, "rows", in_flight=in_flight)
        both = st.EmbeddingBags(ps, ["bags", "rows"], in_flight=in_flight)
        for samples in (1, 0, 50, 3000):
            lengths = torch.randint(0, 4, (3 * samples,), generator=random)
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
            keys = torch.randint(-(2**63), 2**63 - 1, (400,), generator=random)[
                torch.randint(0, 400, (int(offsets[-1]),), generator=random)
            ]
            weights = torch.randn(len(keys), generator=random)
            some = torch.randint(0, 90, (samples, 7), generator=random)
            keys, offsets, weights, some = (each.to(DEVICE) for each in (keys, offsets, weights, some))
            for call in (
                lambda: [bag(keys, offsets, weights)],
                lambda: [bag(keys, offsets.to(torch.int32))],
                lambda: [rows(some)],
                lambda: list(both({"bags": (keys, offsets), "rows": some}).values()),
            ):
                outs = call()
                found += [out.detach().clone() for out in outs]
                gradients = [2 * out.detach() for out in outs]
                torch.autograd.backward(outs, gradients)
                for gradient in gradients:
                    gradient.fill_(float("nan"))
        bag.flush()
        bag.eval()
        found.append(bag(keys, offsets))
        assert (used_by(ps) > 0) == (transport == "gpu")
        return found, ps.digest("bags").digest + ps.digest("rows").digest


@pytest.mark.parametrize("wire_dtype", ["float32", "bfloat16", "float16"])
def test_it_gives_the_same_bytes_as_a_socket(server: RealServer, wire_dtype: str) -> None:
    expected, digest = train(server.address, "tcp", wire_dtype)
    for in_flight in (False, True):
        found, same = train(server.address, "gpu", wire_dtype, in_flight)
        assert same == digest
        for one, other in zip(found, expected):
            assert one.device == other.device
            assert torch.equal(one, other)


def used_by(ps: slotwise.Client) -> int:
    """Returns the bytes of all shared buffers."""
    return sum(rank.gpu_shared_bytes for rank in ps.stats())


def errors_of(address: str, transport: str) -> list[str]:
    """What calls are refused with."""
    said = []
    with slotwise.connect(address, transport=transport) as ps:
        make_anew(ps, "errors", dim=4, slots=2, combiner="sum", optimizer=slotwise.SGD(lr=0.1), max_rows=50)
        bag = st.EmbeddingBag(ps, "errors")
        keys = torch.arange(10, device=DEVICE)
        offsets = torch.tensor([0, 2, 4, 7, 10], device=DEVICE)
        out = bag(keys, offsets)

        def refused(call: Callable[[], object]) -> None:
            with pytest.raises(slotwise.Error) as caught:
                call()
            said.append(f"{type(caught.value).__name__}: {caught.value}")

        for wrong in ([1, 2, 4, 7, 10], [0, 2, 1, 7, 10], [0, 2, 4, 7, 11], [0, 2, 4]):
            refused(lambda: bag(keys, torch.tensor(wrong, device=DEVICE)))
        refused(lambda: bag(keys, offsets + (1 << 32)))
        refused(lambda: bag(keys, offsets, torch.full((10,), float("nan"), device=DEVICE)))
        refused(lambda: out.backward(torch.full_like(out, float("inf"))))
        refused(lambda: bag(torch.arange(100, device=DEVICE), torch.arange(101, device=DEVICE)))
        refused(lambda: bag(keys.to(torch.float32), offsets))
        refused(lambda: bag(keys, offsets.to(torch.float32)))
        assert ps.describe_table("errors").steps == 0
    return said


def test_it_refuses_what_a_socket_refuses(server: RealServer) -> None:
    expected, found = errors_of(server.address, "tcp"), errors_of(server.address, "gpu")
    assert [each.split(":")[0] for each in found] == [each.split(":")[0] for each in expected]
    for one, other in zip((*found[:3], found[-1]), (*expected[:3], expected[-1])):
        assert one == other
    assert "offsets[0] is negative, or above 4294967294: must be 0 to the number of keys, 10" in found[4]


def test_results_keep_their_memory_and_give_it_back(server: RealServer) -> None:
    """A quarter of the shared buffers has room for a few results: those that are let go make room."""
    with slotwise.connect(server.address, transport="gpu") as ps:
        make_anew(ps, "kept", dim=64, combiner="none", optimizer=slotwise.SGD(lr=1.0))
        rows = st.Embedding(ps, "kept")
        rows.eval()
        keys = torch.arange(4096, device=DEVICE)  # a result of 1 MiB
        for _ in range(5 * SHARED_MIB):
            rows(keys)
        kept = []
        with pytest.raises(slotwise.ResourceExhausted, match="limits.max_gpu_shared_mib"):
            for _ in range(SHARED_MIB):
                kept.append(rows(keys))
        assert len(kept) >= SHARED_MIB // 4 - 1
        kept.clear()
        last = rows(keys).add_(5)
        for _ in range(3):
            rows(keys).fill_(3)  # in other memory than `last`
        assert torch.equal(last, torch.full_like(last, 5))
    del ps, rows
    assert torch.equal(last, torch.full_like(last, 5))  # though the client is closed


def test_without_room_it_goes_another_way(server: RealServer, caplog: pytest.LogCaptureFixture) -> None:
    """With the best transport the host's memory takes what the device's has no room for; no step is lost."""
    if DEVICE.type == "cpu":
        pytest.skip("the best transport uses no stand-in")
    with slotwise.connect(server.address) as ps, caplog.at_level(logging.WARNING, "slotwise"):
        make_anew(ps, "wide", dim=1024, combiner="none", optimizer=slotwise.SGD(lr=1.0))
        rows = st.Embedding(ps, "wide")
        out = rows(torch.arange(1 << 14, device=DEVICE))  # of 64 MiB
        out.backward(torch.ones_like(out))
        assert ps.describe_table("wide").steps == 1
    assert "goes by the host's memory" in caplog.text


_TRAINER = """
import sys, torch, slotwise, slotwise.torch as st
with slotwise.connect(sys.argv[1], transport="gpu") as ps:
    st.Embedding(ps, "gone")(torch.arange(10, device=sys.argv[2]))
    print("looked up", flush=True)
    sys.stdin.read()
"""


def test_a_trainer_that_is_gone_leaves_nothing(server: RealServer) -> None:
    """What processes were given counts until they end: then others may have it."""
    with slotwise.connect(server.address) as ps:
        make_anew(ps, "gone", dim=8, combiner="none", optimizer=slotwise.SGD(lr=1.0))
        before = used_by(ps)
        for _ in range(5):  # more than have room at once
            trainer = subprocess.Popen(
                [sys.executable, "-c", _TRAINER, server.address, str(DEVICE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == b"looked up\n"
            assert used_by(ps) > before
            trainer.kill()
            trainer.communicate()
            wait_until(lambda: used_by(ps) <= before, "the memory's return")
