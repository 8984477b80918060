"""Requests are the ones that protobuf would write; replies that are none are errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from fake_server import FakeServer
from slotwise_proto import embedding_pb2 as pb

import slotwise

KEYS = np.array([0, 1, 2**64 - 1, 2**63, 7, 300], dtype=np.uint64)
OFFSETS = np.array([0, 2, 2, 5, 6])
WEIGHTS = np.array([1, -0.5, 0, 3e38, 1e-45, 7], dtype=np.float32)
TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@pytest.fixture
def ps(fake_ps: slotwise.Client) -> slotwise.Client:
    fake_ps.create_table("ads", dim=3, slots=2, optimizer=slotwise.SGD(lr=0.5))
    fake_ps.create_table("one", dim=1, optimizer=slotwise.SGD(lr=0.5))
    return fake_ps


def test_a_lookup_is_the_one_that_protobuf_would_write(fake: FakeServer, ps: slotwise.Client) -> None:
    common = {"mode": pb.LOOKUP_MODE_EVAL, "data_type": pb.DATA_TYPE_BFLOAT16, "keys": KEYS.tobytes()}
    bags = {"offsets": OFFSETS.astype(np.uint32).tobytes(), "weights": WEIGHTS.tobytes()}
    plain = pb.LookupRequest(table="ads", samples=2, **common, **bags)
    ps.lookup("ads", KEYS, OFFSETS, weights=WEIGHTS, train=False, wire_dtype="bfloat16")
    assert fake.requests("Lookup") == [plain]
    lookups = {"ads": (KEYS, OFFSETS, WEIGHTS), "one": (KEYS,)}
    ps.lookup_many(lookups, train=False, wire_dtype="bfloat16")  # type: ignore[arg-type]
    (many,) = fake.requests("LookupMany")
    assert list(many.lookups) == [plain, pb.LookupRequest(table="one", samples=6, **common)]


def test_a_push_is_the_one_that_protobuf_would_write(fake: FakeServer, ps: slotwise.Client) -> None:
    gradients = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    session = slotwise.Session(2**64 - 1, parts=2)
    for _ in range(4):
        session.next()
    weights = np.ones(6, np.float32)
    step = session.next()
    ps.push("ads", KEYS, OFFSETS, gradients, weights=weights, step=step)
    second = next(push for push in fake.requests("Push") if push.step.part == 1)
    plain = pb.PushRequest(
        table="ads",
        step=pb.StepId(session=2**64 - 1, number=5, part=1, parts=2),
        samples=1,
        data_type=pb.DATA_TYPE_FLOAT32,
        keys=KEYS[2:].tobytes(),
        offsets=np.array([0, 3, 4], dtype=np.uint32).tobytes(),
        gradients=gradients[1:].tobytes(),
        weights=weights[2:].tobytes(),
    )
    assert second == plain
    given = KEYS, OFFSETS, gradients, weights
    ps.push_many({"ads": given}, step=session.next())  # one table's are no message of messages
    plain.step.number = 6
    assert plain in fake.requests("Push")
    ps.create_table("more", dim=3, slots=2, optimizer=slotwise.SGD(lr=0.5))
    rates = {"more": 0.25}
    ps.push_many({"ads": given, "more": given}, learning_rates=rates, step=session.next())
    sent = {(push.table, push.step.part): push for many in fake.requests("PushMany") for push in many.pushes}
    plain.step.number, plain.step.tables = 7, 2
    assert sent["ads", 1] == plain
    plain.table, plain.step.place, plain.learning_rate = "more", 1, 0.25
    assert sent["more", 1] == plain


@pytest.mark.parametrize("wire_dtype", TORCH)
def test_every_number_of_a_half_type_and_its_neighbours_round_as_torchs(
    fake: FakeServer, ps: slotwise.Client, wire_dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All finite ones, and for each the halfway points to its neighbours and what is beside."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    if wire_dtype == "bfloat16":
        exact = (bits.astype(np.uint32) << 16).view(np.float32)
        steps = np.array([0, 0x7FFF, 0x8000, 0x8001], dtype=np.uint32)
    else:
        exact = bits.view(np.float16).astype(np.float32)
        steps = np.array([0, 0x0FFF, 0x1000, 0x1001], dtype=np.uint32)
    values = (exact.view(np.uint32)[None] + steps[:, None]).view(np.float32).reshape(-1)
    rounded = torch.from_numpy(values).to(TORCH[wire_dtype])
    finite = torch.isfinite(rounded).numpy()
    values, rounded = values[finite], rounded[torch.from_numpy(finite)]
    keys = np.arange(len(values), dtype=np.uint64)
    assert ps.describe_table("one").options.dim == 1
    monkeypatch.setattr(fake.tables["one"], "push", lambda *arrays: 1)  # in Python it would take seconds
    ps.push("one", keys, None, values[:, None], wire_dtype=wire_dtype)
    parts = sorted(fake.requests("Push"), key=lambda push: push.step.part)
    sent = np.frombuffer(b"".join(part.gradients for part in parts), np.int16)
    np.testing.assert_array_equal(sent, rounded.view(torch.int16).numpy())


def test_values_come_back_in_the_half_type_that_was_asked_for(ps: slotwise.Client) -> None:
    exact = ps.lookup("ads", KEYS, OFFSETS)
    for wire_dtype, torchs in TORCH.items():
        values = ps.lookup("ads", KEYS, OFFSETS, wire_dtype=wire_dtype)
        wanted = torch.from_numpy(exact).to(torchs).float().numpy()
        np.testing.assert_array_equal(values, wanted)
    with pytest.raises(slotwise.InvalidArgument, match="wire_dtype is 'int8', not one of float32"):
        ps.lookup("ads", KEYS, OFFSETS, wire_dtype="int8")


def test_a_batch_without_samples_travels(fake: FakeServer, ps: slotwise.Client) -> None:
    none = np.empty((0, 6), dtype=np.float32)
    ps.push("ads", np.empty(0, dtype=np.uint64), [0], none, wire_dtype="float16")
    (request,) = fake.requests("Push")
    assert (request.keys, request.offsets, request.gradients) == (b"", b"\0\0\0\0", b"")


def test_a_reply_is_read_in_any_order_of_fields(fake: FakeServer, ps: slotwise.Client) -> None:
    """Fields of later versions are skipped, and the last of several wins."""
    values = np.arange(6, dtype=np.float32)
    later = b"\xa1\x06" + b"8" * 8 + b"\xa5\x06" + b"4" * 4 + b"\xa2\x06\x02ab"  # field 100
    fields = [
        pb.LookupReply(samples=2).SerializeToString(),
        b"\x10\x05" + later + b"\x10\x06",  # width 5, then 6
        pb.LookupReply(values=values.tobytes()).SerializeToString(),
    ]
    for order in itertools.permutations(fields):
        fake.answer("Lookup", b"".join(order))
        np.testing.assert_array_equal(ps.lookup("ads", [1, 2]), values.reshape(1, 6))


@pytest.mark.parametrize(
    "message",
    [b"\x7a", b"\x7a\x05abcd", b"\x08", b"\x08\x80", b"\x0b", b"\x08" + b"\xff" * 11]
    + [pb.LookupReply(width=1, data_type=pb.DATA_TYPE_FLOAT16, values=b"abcd").SerializeToString()],
)
def test_a_reply_that_is_none_is_an_error(fake: FakeServer, ps: slotwise.Client, message: bytes) -> None:
    fake.answer("Lookup", message)
    with pytest.raises(slotwise.Error, match="the reply"):
        ps.lookup("one", [1])
    fake.answer("no method", b"")
    assert ps.lookup("one", [1]).shape == (1, 1)


def test_a_reply_of_another_shape_is_an_error(fake: FakeServer, ps: slotwise.Client) -> None:
    for samples, width, floats in [(2, 3, 6), (1, 1, 2), (1, 2, 1), (1, 2, 0)]:
        reply = pb.LookupReply(samples=samples, width=width, values=b"\0\0\0\0" * floats)
        fake.answer("Lookup", reply.SerializeToString())
        with pytest.raises(slotwise.FailedPrecondition, match="made anew"):
            ps.lookup("one", [1])


@pytest.mark.parametrize("message", [b"", b"\x0a\x00", b"\x0a\x05a", b"\x0a\x00\x0a\x00\x0a\x00"])
def test_replies_to_many_are_as_many(fake: FakeServer, ps: slotwise.Client, message: bytes) -> None:
    fake.spoil = lambda method, reply: message if method.endswith("Many") else reply
    one = np.zeros((1, 1), np.float32)
    said = "the reply" if message else "0 messages, not one for each of the request's 2"
    with pytest.raises(slotwise.Error, match=said):
        ps.lookup_many({"one": ([1],), "ads": ([1, 2],)})
    with pytest.raises(slotwise.Error, match=said):
        ps.push_many({"one": ([1], None, one), "ads": ([1, 2], None, np.zeros((1, 6), np.float32))})


def test_futures_ask_for_what_calls_ask_for(fake: FakeServer, ps: slotwise.Client) -> None:
    lookup = {"weights": WEIGHTS, "train": False, "wire_dtype": "bfloat16"}
    ps.lookup("ads", KEYS, OFFSETS, **lookup)  # type: ignore[arg-type]
    ps.lookup_async("ads", KEYS, OFFSETS, **lookup).result(20)  # type: ignore[arg-type]
    first, second = fake.requests("Lookup")
    assert second == first
    gradients = np.arange(12, dtype=np.float32).reshape(6, 2).T  # not contiguous
    push = {"weights": np.ones(6, np.float32), "step": ps.session.next(), "wire_dtype": "float16"}
    ps.push("ads", KEYS, OFFSETS, gradients, **push)  # type: ignore[arg-type]
    ps.push_async("ads", KEYS, OFFSETS, gradients, **push).result(20)  # type: ignore[arg-type]
    one, other = fake.requests("Push")
    assert other == one
    assert np.frombuffer(one.gradients, "<f2").tolist() == gradients.reshape(-1).tolist()


def test_half_the_bytes_make_half_the_parts(fake: FakeServer, ps: slotwise.Client) -> None:
    ps.create_table("wide", dim=64, optimizer=slotwise.SGD(lr=0.5))
    keys = np.arange(600)  # 150 KiB of float32
    ps.lookup("wide", keys)
    assert len(fake.requests("Lookup")) == 2
    ps.lookup("wide", keys, wire_dtype="float16")
    assert len(fake.requests("Lookup")) == 3
