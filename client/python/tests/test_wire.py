"""What we write by hand, protobuf reads; what protobuf writes, we read."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from slotwise import messages, wire
from slotwise._proto import embedding_pb2 as pb
from slotwise.batch import make_batch
from slotwise.errors import Error, FailedPrecondition
from slotwise.session import Step

KEYS = np.array([0, 1, 2**64 - 1, 2**63, 7, 300], dtype=np.uint64)
OFFSETS = np.array([0, 2, 2, 5, 6])
WEIGHTS = np.array([1, -0.5, 0, 3e38, 1e-45, 7], dtype=np.float32)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**21, 2**32 - 1, 2**64 - 1])
def test_varint_is_what_protobuf_reads(number: int) -> None:
    message = b"\x08" + wire.varint(number)  # field 1 of PushReply
    assert pb.PushReply.FromString(message).table_step == number
    assert wire.scan(message) == {1: number}


def test_lookup_request_is_the_one_that_protobuf_would_write() -> None:
    batch = make_batch(KEYS, OFFSETS, 2, WEIGHTS)
    ours = wire.join(messages.lookup_request("ads", False, batch, (0, 2), "bfloat16"))
    plain = pb.LookupRequest(
        table="ads",
        mode=pb.LOOKUP_MODE_EVAL,
        samples=2,
        data_type=pb.DATA_TYPE_BFLOAT16,
        keys=KEYS.tobytes(),
        offsets=OFFSETS.astype(np.uint32).tobytes(),
        weights=WEIGHTS.tobytes(),
    )
    assert pb.LookupRequest.FromString(ours) == plain
    assert ours == plain.SerializeToString()


def test_push_request_is_the_one_that_protobuf_would_write() -> None:
    batch = make_batch(KEYS, OFFSETS, 2, WEIGHTS)
    gradients = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    step = Step(session=2**64 - 1, number=5)
    ours = messages.push_request("ads", step, (3, 4), batch, (1, 2), gradients, "float32")
    assert pb.PushRequest.FromString(wire.join(ours)) == pb.PushRequest(
        table="ads",
        step=pb.StepId(session=2**64 - 1, number=5, part=3, parts=4),
        samples=1,
        data_type=pb.DATA_TYPE_FLOAT32,
        keys=KEYS[2:].tobytes(),
        offsets=np.array([0, 3, 4], dtype=np.uint32).tobytes(),
        gradients=gradients[1:].tobytes(),
        weights=WEIGHTS[2:].tobytes(),
    )


def test_half_precision_gradients_are_narrowed() -> None:
    batch = make_batch(KEYS, OFFSETS, slots=2)
    gradients = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    for name, data_type, size in (
        ("float16", pb.DATA_TYPE_FLOAT16, 2),
        ("bfloat16", pb.DATA_TYPE_BFLOAT16, 2),
    ):
        ours = messages.push_request("ads", Step(1, 1), (0, 1), batch, (0, 2), gradients, name)
        parsed = pb.PushRequest.FromString(wire.join(ours))
        assert parsed.data_type == data_type and len(parsed.gradients) == 12 * size
        reply = pb.LookupReply(width=6, data_type=data_type, values=parsed.gradients)
        values = np.empty((2, 6), dtype=np.float32)
        messages.copy_values(reply.SerializeToString(), values)
        np.testing.assert_allclose(values, gradients, rtol=2**-8)


def test_many_requests_are_the_one_that_protobuf_would_write() -> None:
    batch = make_batch(KEYS, OFFSETS, 2, WEIGHTS)
    lookups = [
        messages.lookup_request(table, True, batch, (0, 2), "float32") for table in ("ads", "users")
    ]
    many = wire.join(messages.many(lookups))
    plain = [pb.LookupRequest.FromString(wire.join(lookup)) for lookup in lookups]
    assert many == pb.LookupManyRequest(lookups=plain).SerializeToString()
    assert wire.join(messages.many([])) == b""


def test_replies_to_many_are_read_in_order() -> None:
    expected = [np.full((2, dim), dim, dtype=np.float32) for dim in (1, 3)]
    replies = [pb.LookupReply(width=v.shape[1], values=v.tobytes()) for v in expected]
    message = pb.LookupManyReply(replies=replies).SerializeToString()
    values = [np.empty_like(v) for v in expected]
    messages.copy_many_values(message, values)
    for ours, wanted in zip(values, expected, strict=True):
        np.testing.assert_array_equal(ours, wanted)
    with pytest.raises(Error, match="has 2 lookups, not 1"):
        messages.copy_many_values(message, values[:1])
    for broken in (b"\x0a\x05a", b"\x08\x01"):
        with pytest.raises(Error, match="not a LookupManyReply"):
            messages.copy_many_values(broken, values[:1])
    assert messages.table_steps(b"\x0a\x02\x08\x07\x0a\x00", 2) == [7, 0]
    with pytest.raises(Error, match="has 1 steps, not 2"):
        messages.table_steps(b"\x0a\x00", 2)


def test_empty_arrays_can_be_framed() -> None:
    batch = make_batch(np.empty(0, dtype=np.uint64), [0], slots=3)
    none = np.empty((0, 6), dtype=np.float32)
    request = messages.push_request("ads", Step(1, 1), (0, 1), batch, (0, 0), none, "float16")
    parsed = pb.PushRequest.FromString(wire.join(request))
    assert (parsed.keys, parsed.offsets, parsed.gradients) == (b"", b"\0\0\0\0", b"")


def test_reply_is_read_in_any_order_of_fields() -> None:
    values = np.arange(6, dtype=np.float32)
    fields = [
        pb.LookupReply(samples=2).SerializeToString(),
        pb.LookupReply(width=3).SerializeToString(),
        pb.LookupReply(data_type=pb.DATA_TYPE_FLOAT32).SerializeToString(),
        pb.LookupReply(values=values.tobytes()).SerializeToString(),
    ]
    for order in itertools.permutations(fields):
        result = np.empty((2, 3), dtype=np.float32)
        messages.copy_values(b"".join(order), result)
        np.testing.assert_array_equal(result, values.reshape(2, 3))


def test_fields_of_later_versions_are_skipped_and_the_last_of_several_wins() -> None:
    unknown = b"\xa1\x06" + b"8" * 8 + b"\xa5\x06" + b"4" * 4 + b"\xa2\x06\x02ab"  # field 100
    message = b"\x10\x05" + unknown + b"\x10\x06"
    fields = wire.scan(message)
    assert fields == {2: 6, 100: b"ab"}


def test_floats_are_a_view_of_the_reply() -> None:
    message = pb.LookupReply(values=np.ones(4, dtype=np.float32).tobytes()).SerializeToString()
    values = wire.array(wire.scan(message)[15], "<f4")
    assert not values.flags.owndata and not values.flags.writeable
    np.testing.assert_array_equal(values, np.ones(4))


@pytest.mark.parametrize(
    "message", [b"\x7a", b"\x7a\x05abcd", b"\x08", b"\x08\x80", b"\x0b", b"\x08" + b"\xff" * 11]
)
def test_a_broken_message_is_an_error(message: bytes) -> None:
    with pytest.raises(ValueError):
        wire.scan(message)
    with pytest.raises(Error, match="not a LookupReply"):
        messages.copy_values(message, np.empty((1, 1), dtype=np.float32))


@pytest.mark.parametrize(
    "message",
    [
        b"\x78\x01",
        b"\x18\x09",
        b"\x1a\x01a",
        pb.LookupReply(values=b"abc").SerializeToString(),
        pb.LookupReply(data_type=pb.DATA_TYPE_FLOAT16, values=b"abc").SerializeToString(),
    ],
)
def test_values_that_are_not_floats_are_an_error(message: bytes) -> None:
    with pytest.raises(Error, match="not a LookupReply"):
        messages.copy_values(message, np.empty((1, 1), dtype=np.float32))


def test_a_reply_of_another_shape_is_an_error() -> None:
    values = np.zeros(6, dtype=np.float32).tobytes()
    reply = pb.LookupReply(samples=2, width=3, values=values).SerializeToString()
    for shape in [(3, 2), (2, 4), (0, 3)]:
        with pytest.raises(FailedPrecondition, match="made anew"):
            messages.copy_values(reply, np.empty(shape, dtype=np.float32))
