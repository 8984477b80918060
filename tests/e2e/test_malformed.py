"""What is wrong is refused with the right status and in words, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest
from slotwise_cluster import Cluster, refusal
from slotwise_wire import CALL_TIMEOUT

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED

Spoil = Callable[[Any], Any]  # changes the message, or returns bytes to send in its place


@dataclass(frozen=True)
class Case:
    """One way to be wrong, and what must be said of it."""

    name: str
    spoil: Spoil
    code: grpc.StatusCode
    words: str


def put(**fields: Any) -> Spoil:
    """Sets fields; a name with a dot is a field of a submessage."""

    def spoil(message: Any) -> None:
        for path, value in fields.items():
            target = message
            *outer, name = path.split("__")
            for part in outer:
                target = getattr(target, part)
            setattr(target, name, value)

    return spoil


def drop(field: str) -> Spoil:
    """Leaves a field out."""
    return lambda message: message.ClearField(field)


def offsets(*values: int) -> bytes:
    """Offsets as they stand on the wire."""
    return np.asarray(values, "<u4").tobytes()


def gradient(place: int, value: float) -> Spoil:
    """Sets one of the sound push's gradients."""
    values = np.ones(2 * 2 * 3, "<f4")
    values[place] = value
    return put(gradients=values.tobytes())


# The sound request: table "sound" of dim 3 and 2 slots; 2 samples, bags {1}, {}, {2, 3}, {1}.
BATCH_CASES = [
    Case("unknown_table", put(table="nowhere"), NOT_FOUND, 'no table "nowhere"'),
    Case("no_table", drop("table"), NOT_FOUND, 'no table ""'),
    Case("table_of_a_megabyte", put(table="t" * (1 << 20)), NOT_FOUND, 'ttt..."'),
    Case("more_samples", put(samples=3), INVALID, "offsets has 5 elements: must have 7"),
    Case("fewer_samples", put(samples=1), INVALID, "offsets has 5 elements: must have 3"),
    Case("all_samples", put(samples=0xFFFFFFFF), INVALID, "samples is 4294967295"),
    Case("samples_that_wrap", put(samples=0x80000002), INVALID, "samples is 2147483650"),
    Case("no_offsets", put(offsets=b"", samples=3), INVALID, "keys has 4 keys for 6 bags"),
    Case("no_keys", drop("keys"), INVALID, "offsets[4] is 4: must be the number of keys, 0"),
    Case("part_of_a_key", put(keys=b"1234567"), INVALID, "keys has 7 bytes"),
    Case("part_of_an_offset", put(offsets=b"123"), INVALID, "offsets has 3 bytes"),
    Case("not_from_zero", put(offsets=offsets(1, 1, 1, 3, 4)), INVALID, "offsets[0] is 1"),
    Case("falling", put(offsets=offsets(0, 3, 1, 3, 4)), INVALID, "offsets[2] is 1"),
    Case("past_the_keys", put(offsets=offsets(0, 1, 1, 3, 5)), INVALID, "offsets[4] is 5"),
    Case("short_of_the_keys", put(offsets=offsets(0, 1, 1, 3, 3)), INVALID, "offsets[4] is 3"),
    Case("huge_offset", put(offsets=offsets(0, 1, 1, 0xFFFFFFFF, 4)), INVALID, "offsets[4] is 4"),
    Case("garbage", lambda m: b"\xff" * 100, INVALID, "cut short or malformed"),
    Case("text", lambda m: b"GET / HTTP/1.1\r\n\r\n", INVALID, "cut short or malformed"),
    Case("truncated", lambda m: m.SerializeToString()[:-1], INVALID, "cut short or malformed"),
    Case("lying_length", lambda m: b"\x72\xff\xff\xff\xff\x07", INVALID, "cut short or malformed"),
    Case("huge_length", lambda m: b"\x72" + b"\xff" * 9 + b"\x01", INVALID, "cut short or malformed"),
    Case("not_utf8", lambda m: b"\x0a\x02\xc3\x28", INVALID, "cut short or malformed"),
    Case("deep_groups", lambda m: b"\xa3\x06" * 100_000, INVALID, "cut short or malformed"),
    Case("too_large", put(keys=bytes(5 << 20)), EXHAUSTED, "larger than max"),
]
LOOKUP_CASES = BATCH_CASES + [
    Case("mode", put(mode=3), INVALID, "mode is 3"),
    Case("nothing", lambda m: b"", NOT_FOUND, 'no table ""'),
]
PUSH_CASES = BATCH_CASES + [
    Case("no_gradients", drop("gradients"), INVALID, "gradients has 0 bytes"),
    Case("short_gradients", put(gradients=bytes(44)), INVALID, "gradients has 44 bytes"),
    Case("long_gradients", put(gradients=bytes(52)), INVALID, "gradients has 52 bytes"),
    Case("doubles", put(gradients=bytes(96)), INVALID, "gradients has 96 bytes"),
    Case("part_of_a_gradient", put(gradients=bytes(47)), INVALID, "gradients has 47 bytes"),
    Case("nan", gradient(10, np.nan), INVALID, "gradients[10] is nan (sample 1, slot 1, element 1)"),
    Case("infinity", gradient(0, np.inf), INVALID, "gradients[0] is inf (sample 0, slot 0, element 0)"),
    Case("minus_infinity", gradient(11, -np.inf), INVALID, "gradients[11] is -inf"),
    Case("data_type", put(data_type=4), INVALID, "data_type is 4"),
    Case("no_step", drop("step"), INVALID, "step is missing"),
    Case("part_is_parts", put(step__part=1), INVALID, "step.part is 1"),
    Case("part_past_parts", put(step__parts=2, step__part=7), INVALID, "step.part is 7"),
    Case("too_many_parts", put(step__parts=65537), INVALID, "step.parts is 65537"),
]
TABLE_CASES = [
    Case("no_name", put(name=""), INVALID, 'name is ""'),
    Case("name_with_a_space", put(name="a b"), INVALID, 'name is "a b"'),
    Case("hidden_name", put(name=".a"), INVALID, 'name is ".a"'),
    Case("long_name", put(name="a" * 256), INVALID, "name is"),
    Case("name_with_a_slash", put(name="../etc/passwd"), INVALID, "name is"),
    Case("no_dim", put(dim=0), INVALID, "dim is 0"),
    Case("wide_dim", put(dim=4097), INVALID, "dim is 4097"),
    Case("many_slots", put(slots=4097), INVALID, "slots is 4097"),
    Case("combiner", put(combiner=5), INVALID, "combiner is 5"),
    Case("no_optimizer", drop("optimizer"), INVALID, "optimizer.learning_rate is 0"),
    Case("negative_rate", put(optimizer__learning_rate=-1), INVALID, "optimizer.learning_rate is -1"),
    Case("nan_rate", put(optimizer__learning_rate=np.nan), INVALID, "optimizer.learning_rate is nan"),
    Case("epsilon", put(optimizer__adagrad__epsilon=0), INVALID, "optimizer.epsilon is 0"),
    Case("accumulator", put(optimizer__adagrad__initial_accumulator=-1), INVALID,
         "optimizer.initial_accumulator is -1"),
    Case("beta1", put(optimizer__adam__beta1=1), INVALID, "optimizer.beta1 is 1"),
    Case("beta2", put(optimizer__adam__beta2=-0.5), INVALID, "optimizer.beta2 is -0.5"),
    Case("low_above_high", put(initializer__uniform__low=2, initializer__uniform__high=1), INVALID,
         "initializer.low is 2"),
    Case("infinite_high", put(initializer__uniform__high=np.inf), INVALID, "initializer.high is inf"),
    Case("many_rows", put(max_rows=(1 << 40) + 1), INVALID, "max_rows is 1099511627777"),
    Case("full_slots", put(max_load=1), INVALID, "max_load is 1"),
    Case("initial_above_max", put(initial_rows=9, max_rows=8), INVALID, "initial_rows is 9"),
]  # fmt: skip


SOUND: dict[str, Any] = {"offsets": [0, 1, 1, 3, 4]}
ONES = np.ones((2, 6), "<f4")


@pytest.fixture(scope="module")
def table(cluster: Cluster) -> str:
    """A table with rows and a step behind it."""
    name = cluster.create(dim=3, slots=2)
    cluster.push(cluster.push_request(name, [1, 2, 3, 1], ONES, **SOUND))
    return name


def by_name(cases: list[Case]) -> Any:
    """Parametrizes a test over cases."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def spoiled(case: Case, message: Any) -> Any:
    """What to send in the place of a sound message."""
    replacement = case.spoil(message)
    return message if replacement is None else replacement


def expect_refused(cluster: Cluster, table: str, method: str, request: Any, case: Case) -> None:
    """A request, at the first and at the last rank, is refused and leaves table and server as they were."""
    before, tables = cluster.digest(table), cluster.tables()
    for rank in {cluster.ranks[0], cluster.ranks[-1]}:
        call = getattr(rank.embedding if hasattr(rank.embedding, method) else rank.admin, method)
        said = refusal(case.code, call, request, timeout=CALL_TIMEOUT)
        assert case.words in said and len(said) < 500
    assert cluster.digest(table) == before
    assert cluster.tables(rank=-1) == tables


@by_name(LOOKUP_CASES)
def test_malformed_lookup_is_refused_and_changes_nothing(cluster: Cluster, table: str, case: Case) -> None:
    message = cluster.lookup_request(table, [1, 2, 3, 99], 2, **SOUND)
    expect_refused(cluster, table, "Lookup", spoiled(case, message), case)


@by_name(PUSH_CASES)
def test_malformed_push_is_refused_and_changes_nothing(cluster: Cluster, table: str, case: Case) -> None:
    message = cluster.push_request(table, [1, 2, 3, 99], ONES, **SOUND)
    expect_refused(cluster, table, "Push", spoiled(case, message), case)


@pytest.mark.parametrize(
    "method",
    ["CreateTable", "DropTable", "ListTables", "DescribeTable", "SetLearningRate", "GetTopology", "Digest"]
    + ["GetStats"]
    + ["SaveCheckpoint", "ListCheckpoints", "DescribeCheckpoint", "VerifyCheckpoint", "LoadCheckpoint"]
    + ["PinCheckpoint", "ReleaseCheckpoint", "CompactCheckpoint", "DescribeSession"],
)
def test_bytes_that_are_no_admin_request_are_refused_in_words(cluster: Cluster, method: str) -> None:
    call = getattr(cluster.ranks[0].admin, method)
    for garbage in (b"\xff" * 100, b"GET / HTTP/1.1\r\n\r\n", b"\x0a\x05ab", b"\xa3\x06" * 100_000):
        said = f"the request is not a valid slotwise.v1.{method}Request: cut short or malformed near byte"
        assert said in refusal(INVALID, call, garbage, timeout=CALL_TIMEOUT)


@by_name(TABLE_CASES)
def test_malformed_table_is_refused_and_not_made(cluster: Cluster, table: str, case: Case) -> None:
    options = spoiled(case, cluster.options("never_made"))
    expect_refused(cluster, table, "CreateTable", cluster.protocol.CreateTableRequest(options=options), case)


@pytest.mark.parametrize("method", ["DropTable", "DescribeTable", "Digest"])
def test_unknown_table_is_not_found(cluster: Cluster, table: str, method: str) -> None:
    request = getattr(cluster.protocol, f"{method}Request")(table="nowhere")
    expect_refused(cluster, table, method, request, Case(method, put(), NOT_FOUND, 'no table "nowhere"'))


def test_batch_larger_than_a_round_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    wide = cluster.create(dim=4096, slots=64)
    ones = np.ones((1, 64 * 4096), "<f4")  # 1 MiB a sample, 8 of which fill a round
    cluster.push(cluster.push_request(wide, range(64), ones))
    request = cluster.lookup_request(wide, [], 9, offsets=[0] * (9 * 64 + 1))
    case = Case("round", put(), EXHAUSTED, "of limits.max_round_mib")
    expect_refused(cluster, wide, "Lookup", request, case)


def test_words_say_the_value_and_no_raw_bytes(cluster: Cluster) -> None:
    said = refusal(NOT_FOUND, cluster.drop, 'line\nbreak "quoted" ümlaut')
    assert said == r'there is no table "line\x0abreak \x22quoted\x22 \xc3\xbcmlaut"'
