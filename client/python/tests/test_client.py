"""The whole client against the fake server and the real one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from real_server import RealServer, empty_client
from slotwise_proto import admin_pb2, errors_pb2
from waiting import run_at_once

import slotwise
from slotwise import core


def test_a_table_is_made_described_listed_and_dropped(ps: slotwise.Client) -> None:
    given: dict[str, Any] = {"dim": 4, "slots": 3, "combiner": "mean", "seed": 2**64 - 1, "initial_rows": 10}
    given["optimizer"] = slotwise.AdaGrad(lr=0.05, initial_accumulator=0.1)
    given["initializer"] = slotwise.Uniform(-0.1, 0.2)
    made = ps.create_table("ads", **given)
    assert made == slotwise.TableOptions(name="ads", **given, max_rows=2**30, max_load=0.5)
    assert ps.list_tables() == [made]
    assert ps.create_table("ads", **given) == made, "to make it again is fine unless it differs"
    with pytest.raises(slotwise.AlreadyExists):
        ps.create_table("ads", **given | {"dim": 8})
    info = ps.describe_table("ads")
    assert (info.options, info.steps, info.rows, len(info.shards)) == (made, 0, 0, 2)
    assert (info.shards[0].rows, info.shards[0].cells) == (0, 2048)
    assert info.shards[0].bytes > info.shards[0].cells
    assert info.rounds == slotwise.TravelledRounds(all_bags=0, owned_bags=0)
    ps.push("ads", np.empty(0, np.uint64), [0, 0, 0, 0], np.zeros((1, 12), dtype=np.float32))
    info = ps.describe_table("ads")
    assert (info.steps, info.rounds.all_bags + info.rounds.owned_bags) == (1, 1)
    ps.drop_table("ads")
    assert ps.list_tables() == []


def test_rounds_of_both_kinds_are_told_apart(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    fake_ps.create_table("ads", dim=1, optimizer=slotwise.SGD(0.1))
    reply = admin_pb2.DescribeTableReply(options=fake.tables["ads"].options)
    reply.rounds.all_bags, reply.rounds.owned_bags = 2, 3
    fake.answer("DescribeTable", reply.SerializeToString())
    info = fake_ps.describe_table("ads")
    assert info.rounds == slotwise.TravelledRounds(all_bags=2, owned_bags=3)


@pytest.mark.parametrize(
    "optimizer",
    [
        slotwise.SGD(0.1),
        slotwise.AdaGrad(0.05),
        slotwise.Adam(0.001, beta1=0.8),
        slotwise.Adam(0.001, weight_decay=0.1, corrected_epsilon=True, decoupled_decay=True),
    ],
)
def test_optimizers_come_back_as_they_were_given(
    ps: slotwise.Client, optimizer: slotwise.SGD | slotwise.AdaGrad | slotwise.Adam
) -> None:
    ps.create_table("ads", dim=1, optimizer=optimizer)
    assert ps.describe_table("ads").options.optimizer == optimizer


def test_a_missing_table_is_not_found(ps: slotwise.Client) -> None:
    keys, gradients = np.zeros(1, dtype=np.uint64), np.zeros((1, 4), dtype=np.float32)
    for call in (
        lambda: ps.drop_table("ads"),
        lambda: ps.describe_table("ads"),
        lambda: ps.digest("ads"),
        lambda: ps.lookup("ads", keys),
        lambda: ps.push("ads", keys, None, gradients),
    ):
        with pytest.raises(slotwise.NotFound, match="ads"):
            call()
    ps.drop_table("ads", missing_ok=True)


NO_INTEGERS = {"dim": 2.5, "slots": -1, "max_rows": 2**64, "initial_rows": "many"}
NO_OPTIMIZERS = {"lamb": "'lamb'", slotwise.AdaGrad: "AdaGrad", 0.1: "0.1"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"dim": 0}, "dim"),
    ({"combiner": "median"}, "combiner is 'median'"),
    ({"seed": -1}, r"seed is -1: must be an integer of 0 to 2\*\*64"),
    ({"initializer": "zeros"}, "initializer is 'zeros': must be .* Uniform, Normal"),
    *(({name: value}, f"{name} is {value!r}: must be an integer") for name, value in NO_INTEGERS.items()),
    *(
        ({"optimizer": given}, f"optimizer is {said}: must be an object .* SGD, .*, FTRL$")
        for given, said in NO_OPTIMIZERS.items()
    ),
]


@pytest.mark.parametrize("options, message", REFUSED, ids=lambda given: str(given)[:30])
def test_wrong_options_are_refused(ps: slotwise.Client, options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"dim": 1, "optimizer": slotwise.SGD(lr=0.1)}
    with pytest.raises(slotwise.InvalidArgument, match=message):
        ps.create_table("ads", **given | options)
    with pytest.raises(slotwise.InvalidArgument, match=r"optimizer is missing: .*slotwise.AdaGrad\(lr="):
        ps.create_table("ads", dim=1)


def test_the_version_is_one() -> None:
    """Of the package, and of its core, which CMake compiled."""
    assert slotwise.__version__ == core.core().version().decode()


@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_a_lookup_pools_the_rows_of_each_bag(ps: slotwise.Client, combiner: str) -> None:
    ps.create_table("ads", dim=3, slots=2, combiner=combiner, optimizer=slotwise.SGD(lr=0.1))
    keys = np.array([5, 2**64 - 1, 5, 0, 5], dtype=np.uint64)
    offsets = np.array([0, 2, 2, 3, 5])
    pooled = ps.lookup("ads", keys, offsets).reshape(4, 3)
    row = dict(zip([5, -1, 0, 77], ps.lookup("ads", [[5, -1], [0, 77]]).reshape(4, 3), strict=True))
    divisor = 2 if combiner == "mean" else 1
    assert pooled.dtype == np.float32 and pooled.flags.writeable
    np.testing.assert_allclose(pooled[0], (row[5] + row[-1]) / divisor, rtol=1e-6)
    np.testing.assert_array_equal(pooled[1], np.zeros(3))
    np.testing.assert_array_equal(pooled[2], row[5])
    np.testing.assert_allclose(pooled[3], (row[0] + row[5]) / divisor, rtol=1e-6)
    assert np.all(np.abs(row[5]) <= 0.05) and np.any(row[5] != row[0])


def test_an_eval_lookup_inserts_nothing_and_sees_zeros(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=3, optimizer=slotwise.SGD(lr=0.1))
    known = ps.lookup("ads", [1])
    seen = ps.lookup("ads", [1, 2], train=False)
    np.testing.assert_array_equal(seen, np.concatenate([known, np.zeros((1, 3))]))
    assert ps.describe_table("ads").rows == 1


def test_alternating_lookups_and_pushes_reach_every_rank(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    fake_ps.create_table("words", dim=2, combiner="none", optimizer=slotwise.SGD(lr=1))
    for _ in range(4):
        fake_ps.lookup("words", [1])
        fake_ps.push("words", [1], None, np.ones((1, 2), dtype=np.float32))
    for method in ("Lookup", "Push"):
        ranks = [rank for rank, name, _ in fake.log if name == method]
        assert sorted(ranks) == [0, 0, 1, 1], method


def test_a_lookup_into_given_memory_returns_it(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=3, optimizer=slotwise.SGD(lr=0.1))
    out = np.full((2, 3), np.nan, dtype=np.float32)
    assert ps.lookup("ads", [1, 2], out=out) is out
    np.testing.assert_array_equal(out, ps.lookup("ads", [1, 2]))
    read_only = np.zeros((2, 3), np.float32)
    read_only.flags.writeable = False
    not_contiguous = np.empty((3, 2), np.float32).T, out[:, :1]
    for wrong in (np.empty((2, 4), np.float32), np.empty((2, 3)), *not_contiguous, read_only):
        with pytest.raises(slotwise.InvalidArgument, match="out: "):
            ps.lookup("ads", [1, 2], out=wrong)
    assert not read_only.any()


def test_a_batch_of_no_samples_or_only_empty_bags_is_legal(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=3, slots=2, optimizer=slotwise.SGD(lr=0.1))
    none = np.empty(0, dtype=np.uint64)
    assert ps.lookup("ads", none).shape == (0, 6)
    assert ps.lookup("ads", none, [0]).shape == (0, 6)
    np.testing.assert_array_equal(ps.lookup("ads", none, [0, 0, 0]), np.zeros((1, 6)))
    assert ps.push("ads", none, [0, 0, 0], np.ones((1, 6), dtype=np.float32)) == 1
    assert ps.digest("ads").rows == 0


def test_a_push_moves_each_row_once_by_the_sum_of_its_gradients(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=2, slots=2, optimizer=slotwise.SGD(lr=0.5))
    before = ps.lookup("ads", [[1, 2]]).reshape(2, 2)
    gradients = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], dtype=np.float32)
    assert ps.push("ads", [1, 2, 1, 1], [0, 2, 2, 3, 4], gradients) == 1
    after = ps.lookup("ads", [[1, 2]]).reshape(2, 2)
    np.testing.assert_allclose(after[0], before[0] - 0.5 * np.array([13, 16]), rtol=1e-6)
    np.testing.assert_allclose(after[1], before[1] - 0.5 * np.array([1, 2]), rtol=1e-6)


def test_a_step_pushed_again_is_not_applied_again(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
    ones = np.ones((1, 2), dtype=np.float32)
    step = ps.session.next()
    assert ps.push("ads", [1], None, ones, step=step) == 1
    digest = ps.digest("ads")
    assert ps.push("ads", [1], None, ones, step=step) == 1
    assert ps.digest("ads") == digest
    assert ps.push("ads", [1], None, ones) == 2
    assert ps.digest("ads") != digest


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        (np.zeros((2, 4)), "gradients: dtype is float64"),
        (np.zeros((2, 3), np.float32), r"gradients: shape is \(2, 3\), not \(2, 4\)"),
        (np.zeros((1, 4), np.float32), r"gradients: shape is \(1, 4\)"),
        (np.zeros((2, 4, 1), np.float32), "gradients: shape"),
    ],
)
def test_wrong_gradients_are_refused(ps: slotwise.Client, gradients: object, message: str) -> None:
    ps.create_table("ads", dim=2, slots=2, optimizer=slotwise.SGD(lr=0.5))
    with pytest.raises(slotwise.InvalidArgument, match=message):
        ps.push("ads", [1, 2, 3, 4], None, gradients)  # type: ignore[arg-type]
    assert ps.describe_table("ads").steps == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_a_large_batch_in_parts_equals_the_same_in_one(ps: slotwise.Client, weighted: bool) -> None:
    random = np.random.default_rng(3)
    samples, slots, dim = 3000, 3, 16
    offsets = np.concatenate([[0], np.cumsum(random.integers(0, 3, samples * slots))])
    keys = random.integers(0, 200, int(offsets[-1]), dtype=np.uint64)
    weights = random.integers(-2, 3, len(keys)).astype(np.float32) if weighted else None
    gradients = random.integers(-3, 4, (samples, slots * dim)).astype(np.float32)
    whole = slotwise.Session(7, parts=1)
    for table, step in (("parts", None), ("whole", whole.next())):
        ps.create_table(table, dim=dim, slots=slots, optimizer=slotwise.AdaGrad(lr=0.1))
        ps.lookup(table, keys, offsets, weights=weights)
        ps.push(table, keys, offsets, gradients, weights=weights, step=step)
    assert ps.digest("parts") == ps.digest("whole")
    pooled = ps.lookup("parts", keys, offsets, weights=weights)
    for first in range(0, samples, 1000):  # too small to be cut
        bags = offsets[first * slots : (first + 200) * slots + 1]
        some = slice(bags[0], bags[-1])
        of_some = None if weights is None else weights[some]
        found = ps.lookup("parts", keys[some], bags - bags[0], weights=of_some)
        np.testing.assert_array_equal(pooled[first : first + 200], found)


def test_trainers_that_share_a_session_make_one_step(ps: slotwise.Client) -> None:
    ps.create_table("shared", dim=2, optimizer=slotwise.AdaGrad(lr=0.5))
    ps.create_table("alone", dim=2, optimizer=slotwise.AdaGrad(lr=0.5))
    keys, gradients = np.array([1, 2, 1]), np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float32)
    ps.push("alone", keys, None, gradients)

    def train(trainer: int, rows: slice) -> None:
        session = slotwise.Session(99, trainer=trainer, trainers=2, parts=3)
        assert ps.push("shared", keys[rows], None, gradients[rows], step=session.next()) == 1

    run_at_once(partial(train, 1, slice(1, 3)), partial(train, 0, slice(0, 1)))
    assert ps.digest("shared") == ps.digest("alone")


@pytest.mark.parametrize("waits", [True, False])
def test_a_table_made_anew_with_another_shape_is_noticed(ps: slotwise.Client, waits: bool) -> None:
    def look_up() -> Any:
        return ps.lookup("ads", [1, 2]) if waits else ps.lookup_async("ads", [1, 2]).result(20)

    ps.create_table("ads", dim=2, slots=2, optimizer=slotwise.SGD(lr=1.0))
    assert look_up().shape == (1, 4)
    with slotwise.connect(ps.topology().ranks[1].address) as other:
        other.drop_table("ads")
        other.create_table("ads", dim=3, slots=1, optimizer=slotwise.SGD(lr=1.0))
    with pytest.raises(slotwise.Error):
        look_up()
    assert look_up().shape == (2, 3)


def test_reasons_are_those_of_the_wire() -> None:
    names = [name.removeprefix("REASON_") for name in errors_pb2.Reason.keys()]
    assert [reason.name for reason in slotwise.Reason] == names
    assert {reason.value for reason in slotwise.Reason} == {*names, ""} - {"UNSPECIFIED"}
    for code in slotwise.StatusCode:
        error = slotwise.errors.from_code(code, "why", 0, "NO_SUCH_REASON")
        assert error.reason is slotwise.Reason.UNSPECIFIED
        assert type(error)("why").reason is not slotwise.Reason.UNSPECIFIED, "raised here"


def test_an_error_has_the_servers_reason(real: RealServer) -> None:
    three, sgd = np.arange(3, dtype=np.uint64), slotwise.SGD(lr=0.5)
    with empty_client(real) as ps:
        ps.create_table("ads", dim=2, optimizer=sgd, max_rows=2)
        calls: dict[slotwise.Reason, tuple[type[slotwise.Error], Callable[[], object]]] = {
            slotwise.Reason.TABLE_FULL: (slotwise.ResourceExhausted, lambda: ps.lookup("ads", three)),
            slotwise.Reason.NO_TABLE: (slotwise.NotFound, lambda: ps.lookup("no table", three)),
            slotwise.Reason.OTHER_OPTIONS: (
                slotwise.AlreadyExists, lambda: ps.create_table("ads", dim=3, optimizer=sgd)
            ),
            slotwise.Reason.INVALID_VALUE: (
                slotwise.InvalidArgument, lambda: ps.create_table("bad", dim=0, optimizer=sgd)
            ),
            slotwise.Reason.NO_DATA_FOLDER: (slotwise.FailedPrecondition, ps.save),
        }
        for reason, (kind, call) in calls.items():
            with pytest.raises(kind) as refused:
                call()
            assert refused.value.reason is reason


@pytest.mark.parametrize("name", [None, 5, "a\0b", "\ud800"])
def test_a_name_that_is_no_text_is_refused_before_it_is_sent(
    fake: FakeServer, fake_ps: slotwise.Client, name: Any
) -> None:
    before = len(fake.log)
    for call in (
        fake_ps.describe_table,
        fake_ps.digest,
        fake_ps.drop_table,
        fake_ps.describe_checkpoint,
        fake_ps.verify,
        fake_ps.pin_checkpoint,
        fake_ps.load,
        lambda name: fake_ps.load("id", tables=[name]),
        lambda name: fake_ps.set_learning_rate(name, 0.5),
    ):
        with pytest.raises(slotwise.InvalidArgument):
            call(name)
    with pytest.raises(slotwise.InvalidArgument):
        fake_ps.create_table("ads", dim=0, optimizer=slotwise.SGD(lr=0.5))
    assert len(fake.log) == before
