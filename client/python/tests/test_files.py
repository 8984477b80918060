"""Tables saved as files and loaded again."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer, refuse
import grpc

import slotwise
import slotwise.rows

KEYS = np.array([0, 3, 2**63, 2**64 - 1, *range(50, 90)], dtype=np.uint64)
ONES = np.ones((len(KEYS), 4), np.float32)
EVERY_OPTIMIZER = [
    slotwise.SGD(1.0),
    slotwise.Momentum(1.0),
    slotwise.Nesterov(1.0),
    slotwise.AdaGrad(1.0),
    slotwise.RowWiseAdaGrad(1.0),
    slotwise.RMSProp(1.0),
    slotwise.Adam(1.0),
    slotwise.FTRL(1.0),
]
OPTIMIZER = slotwise.Adam(0.1, schedule=slotwise.Schedule(warmup_steps=5))


@pytest.fixture(params=["npy", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def train(ps: slotwise.Client) -> slotwise.TableDigest:
    ps.create_table("ads", dim=4, slots=2, combiner="mean", optimizer=OPTIMIZER, seed=2**64 - 1)
    gradients = np.random.default_rng(1).normal(size=(22, 8)).astype(np.float32)
    ps.push("ads", KEYS, None, gradients)
    return ps.digest("ads")


def same_rows(ps: slotwise.Client, table: str, digest: slotwise.TableDigest) -> bool:
    loaded = ps.digest(table)
    return (loaded.digest, loaded.rows) == (digest.digest, digest.rows)


def save(ps: slotwise.Client, kind: str, path: Path, **options: Any) -> int:
    return int(getattr(slotwise.rows, f"save_{kind}")(ps, "ads", path, **options))


def load(ps: slotwise.Client, kind: str, table: str, path: Path, **options: Any) -> int:
    return int(getattr(slotwise.rows, f"load_{kind}")(ps, table, path, **options))


def test_loading_a_saved_table_makes_it_again(any_ps: slotwise.Client, tmp_path: Path, kind: str) -> None:
    digest = train(any_ps)
    saved = tmp_path / "new" / "ads" if kind == "npy" else tmp_path / "ads.parquet"
    assert save(any_ps, kind, saved) == len(KEYS)
    assert load(any_ps, kind, "copy", saved) == len(KEYS)
    assert same_rows(any_ps, "copy", digest)
    ads, copy = (any_ps.describe_table(name) for name in ("ads", "copy"))
    assert copy.options.optimizer == OPTIMIZER and copy.options.seed == 2**64 - 1
    assert copy.options.combiner == "mean" and copy.options.slots == ads.options.slots
    assert load(any_ps, kind, "copy", saved) == len(KEYS)  # again does no harm
    assert any_ps.digest("copy") == digest  # with the count of steps
    for table in ("ads", "copy"):  # so Adam and the schedule go on as if nothing had happened
        any_ps.push(table, KEYS, None, ONES.reshape(22, 8))
    assert any_ps.digest("copy") == any_ps.digest("ads") != digest


def test_state_may_be_left_out_of_the_file_or_in_it(
    any_ps: slotwise.Client, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    train(any_ps)
    save(any_ps, kind, tmp_path / "without", with_state=False)
    save(any_ps, kind, tmp_path / "with")
    load(any_ps, kind, "both", tmp_path / "with")
    assert "starts anew" not in caplog.text
    load(any_ps, kind, "first", tmp_path / "without")
    anew = f"the state of Adam starts anew in {len(KEYS)} row(s), because none came with {tmp_path}/without"
    steps = "the count of steps stays 0, and was 1 in the table that"
    assert f"table first: {anew}" in caplog.text and f"table first: {steps}" in caplog.text
    load(any_ps, kind, "second", tmp_path / "with", with_state=False)
    assert "table second: the state of Adam starts anew" in caplog.text
    assert f"table second: {steps}" in caplog.text
    assert any_ps.digest("first") == any_ps.digest("second")
    rows = next(any_ps.export_rows("first", KEYS[:1], with_state=True))
    np.testing.assert_array_equal(rows.state, np.zeros((1, 8)))


def test_loading_into_a_table_that_is_there_keeps_its_options_and_other_rows(
    any_ps: slotwise.Client, tmp_path: Path, kind: str
) -> None:
    train(any_ps)
    save(any_ps, kind, tmp_path / "ads", with_state=False)
    any_ps.create_table("other", dim=4, optimizer=slotwise.SGD(0.5))
    any_ps.lookup("other", [7, 50])
    load(any_ps, kind, "other", tmp_path / "ads")
    assert any_ps.digest("other").rows == len(KEYS) + 1
    any_ps.create_table("wide", dim=5, optimizer=slotwise.SGD(0.5))
    with pytest.raises(slotwise.InvalidArgument):
        load(any_ps, kind, "wide", tmp_path / "ads")
    assert any_ps.digest("wide").rows == 0


def test_a_learning_rate_that_was_set_is_kept(any_ps: slotwise.Client, tmp_path: Path, kind: str) -> None:
    train(any_ps)
    save(any_ps, kind, tmp_path / "never set")
    any_ps.create_table("another", dim=4, optimizer=slotwise.Adam(0.5))
    any_ps.set_learning_rate("another", 0.75)
    load(any_ps, kind, "another", tmp_path / "never set")
    assert any_ps.describe_table("another").base_learning_rate == 0.75

    any_ps.set_learning_rate("ads", 0.25)
    for with_state in (False, True):
        save(any_ps, kind, tmp_path / "ads", with_state=with_state)
        load(any_ps, kind, f"made{with_state}", tmp_path / "ads")
        assert any_ps.describe_table(f"made{with_state}").base_learning_rate == 0.25
    ads, made = (any_ps.describe_table(name) for name in ("ads", "madeTrue"))
    assert made.learning_rate == ads.learning_rate == pytest.approx(0.25 * 2 / 5)  # warm-up goes on
    assert made.options.optimizer == OPTIMIZER  # so creating it as it was made finds it
    for table in ("ads", "madeTrue"):
        any_ps.push(table, KEYS, None, ONES.reshape(22, 8))
    assert any_ps.digest("madeTrue") == any_ps.digest("ads")

    any_ps.create_table("other", dim=4, optimizer=slotwise.Adam(0.5))
    load(any_ps, kind, "other", tmp_path / "ads", with_state=False)
    assert any_ps.describe_table("other").base_learning_rate == 0.5  # a table of its own
    load(any_ps, kind, "other", tmp_path / "ads")
    assert any_ps.describe_table("other").base_learning_rate == 0.25  # it goes on


def test_another_optimizers_state_is_refused(any_ps: slotwise.Client, tmp_path: Path, kind: str) -> None:
    any_ps.create_table("ads", dim=4, optimizer=slotwise.Momentum(0.5))
    any_ps.push("ads", KEYS, None, ONES)
    any_ps.set_learning_rate("ads", 0.25)
    save(any_ps, kind, tmp_path / "ads")
    any_ps.create_table("other", dim=4, optimizer=slotwise.AdaGrad(0.5))  # with as much state
    before = any_ps.digest("other")
    with pytest.raises(slotwise.InvalidArgument, match="table of Momentum, and 'other' has AdaGrad"):
        load(any_ps, kind, "other", tmp_path / "ads")
    assert any_ps.digest("other") == before
    assert any_ps.describe_table("other").base_learning_rate == 0.5
    assert load(any_ps, kind, "other", tmp_path / "ads", with_state=False) == len(KEYS)
    any_ps.create_table("same", dim=4, optimizer=slotwise.Momentum(0.1, momentum=0.5))
    assert load(any_ps, kind, "same", tmp_path / "ads") == len(KEYS)  # its constants may differ


@pytest.mark.parametrize("optimizer", EVERY_OPTIMIZER, ids=lambda o: type(o).__name__)
def test_a_table_keeps_its_count_of_steps_without_state_and_without_rows(
    any_ps: slotwise.Client, tmp_path: Path, kind: str, optimizer: slotwise.Optimizer
) -> None:
    any_ps.create_table("ads", dim=4, optimizer=optimizer)
    for _ in range(3):
        any_ps.push("ads", KEYS, None, ONES)
    for copy, rows in (("whole", len(KEYS)), ("empty", 0)):
        save(any_ps, kind, tmp_path / "ads")
        assert load(any_ps, kind, copy, tmp_path / "ads") == rows
        assert any_ps.digest(copy) == any_ps.digest("ads")
        assert any_ps.digest(copy).steps == 3 and any_ps.describe_table(copy).options.dim == 4
        any_ps.erase("ads", KEYS)
    load(any_ps, kind, "anew", tmp_path / "ads", with_state=False)
    save(any_ps, kind, tmp_path / "without", with_state=False)
    assert load(any_ps, kind, "without", tmp_path / "without") == 0
    assert any_ps.digest("anew").steps == any_ps.digest("without").steps == 0


@pytest.mark.parametrize("optimizer", EVERY_OPTIMIZER, ids=lambda o: type(o).__name__)
def test_what_overflowing_steps_leave_can_be_loaded(
    any_ps: slotwise.Client, tmp_path: Path, optimizer: slotwise.Optimizer
) -> None:
    any_ps.create_table("ads", dim=4, optimizer=optimizer)
    huge = np.full((44, 4), 3e38, np.float32) * np.array([1, -1, 1e-38, 0], np.float32)
    for sign in (1, -1, 1):
        any_ps.push("ads", KEYS, None, np.float32(sign) * huge)
        any_ps.push("ads", np.tile(KEYS, 2), None, np.tile(huge, (2, 1)))  # the sum overflows
    for rows in any_ps.export_rows("ads", with_state=True):
        assert rows.state is not None
        assert np.isfinite(rows.values).all() and np.isfinite(rows.state).all()
    save(any_ps, "npy", tmp_path / "ads")
    assert load(any_ps, "npy", "copy", tmp_path / "ads") == len(KEYS)
    assert any_ps.digest("copy") == any_ps.digest("ads")


def test_a_folder_of_an_earlier_version_is_loaded(any_ps: slotwise.Client, tmp_path: Path) -> None:
    digest = train(any_ps)
    save(any_ps, "npy", tmp_path / "ads")
    path = tmp_path / "ads" / "table.json"
    said = json.loads(path.read_text())
    assert said.pop("with_state") is True
    assert sorted(said) == ["options", "rows", "steps"]  # all that earlier versions wrote
    path.write_text(json.dumps(said))
    load(any_ps, "npy", "copy", tmp_path / "ads")
    assert any_ps.digest("copy") == digest
    assert any_ps.describe_table("copy").base_learning_rate == 0.1


@pytest.mark.parametrize(
    "name, value",
    [("steps", "three"), ("steps", 1e3), ("steps", True), ("steps", -1), ("steps", 2**62 + 1)]
    + [("learning_rate", "three"), ("learning_rate", True), ("learning_rate", -0.5)]
    + [("learning_rate", float("inf")), ("learning_rate", float("nan"))],
)
def test_a_broken_number_is_refused_before_a_row_is_written(
    fake_ps: slotwise.Client, tmp_path: Path, name: str, value: Any
) -> None:
    train(fake_ps)
    save(fake_ps, "npy", tmp_path / "ads")
    path = tmp_path / "ads" / "table.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    fake_ps.create_table("copy", dim=4, optimizer=slotwise.Adam(0.5))
    refused = f"the saved '{name}' is .*, not (int|float) from 0 to"
    with pytest.raises(slotwise.InvalidArgument, match=refused):
        load(fake_ps, "npy", "copy", tmp_path / "ads")
    assert fake_ps.digest("copy").rows == 0


@pytest.mark.parametrize("at_once", [2, 1 << 24])
def test_a_key_that_is_there_twice_is_refused_before_a_row_is_written(
    fake_ps: slotwise.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(slotwise.rows, "_KEYS_AT_ONCE", at_once)
    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    np.save(tmp_path / "values.npy", np.zeros((5, 2), np.float32))
    most = 2**64 - 1
    for keys in ([1, most, 2, most, 3], [0, 1, 2, 3, 0]):
        np.save(tmp_path / "keys.npy", np.array(keys, np.uint64))
        repeated = keys[3] if keys[0] else 0
        with pytest.raises(slotwise.InvalidArgument, match=f"keys.npy has key {repeated} more than once"):
            slotwise.rows.load_npy(fake_ps, "ads", tmp_path)
        assert fake_ps.digest("ads").rows == 0
    np.save(tmp_path / "keys.npy", np.array([most, 0, 2, 1, 3], np.uint64))
    assert slotwise.rows.load_npy(fake_ps, "ads", tmp_path) == 5


@pytest.mark.parametrize("file", ["keys.npy", "values.npy", "state.npy", "table.json"])
def test_pipes_and_long_texts_are_refused(fake_ps: slotwise.Client, tmp_path: Path, file: str) -> None:
    train(fake_ps)
    save(fake_ps, "npy", tmp_path / "ads")
    path = tmp_path / "ads" / file
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(slotwise.InvalidArgument, match=f"{file} is no regular file"):
        load(fake_ps, "npy", "copy", tmp_path / "ads")
    if file == "table.json":
        path.unlink()
        path.write_text(" " * (1 << 20) + "{}")
        with pytest.raises(slotwise.InvalidArgument, match=f"{file} has more than 1048576 bytes"):
            load(fake_ps, "npy", "copy", tmp_path / "ads")


def test_the_files_are_plain_npy(fake_ps: slotwise.Client, tmp_path: Path) -> None:
    train(fake_ps)
    save(fake_ps, "npy", tmp_path / "ads")
    arrays = {path.name: np.load(path) for path in (tmp_path / "ads").glob("*.npy")}
    shapes = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    assert shapes == {
        "keys.npy": (np.uint64, (len(KEYS),)),
        "values.npy": (np.float32, (len(KEYS), 4)),
        "state.npy": (np.float32, (len(KEYS), 8)),
    }
    rows = dict(zip(arrays["keys.npy"].tolist(), arrays["values.npy"], strict=True))
    for key in KEYS.tolist():
        np.testing.assert_array_equal(rows[key], next(fake_ps.export_rows("ads", [key])).values[0])
    said = json.loads((tmp_path / "ads" / "table.json").read_text())
    assert said["rows"] == len(KEYS) and said["steps"] == 1
    assert said["options"]["name"] == "ads" and said["options"]["dim"] == 4


def test_rows_of_other_programs_are_loaded(any_ps: slotwise.Client, tmp_path: Path) -> None:
    keys, values = np.arange(5, dtype=np.uint64), np.ones((5, 2), np.float32)
    np.save(tmp_path / "keys.npy", keys)
    np.save(tmp_path / "values.npy", values)
    with pytest.raises(slotwise.NotFound, match="ads"):
        slotwise.rows.load_npy(any_ps, "ads", tmp_path)  # no table.json to make it of
    any_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))
    assert slotwise.rows.load_npy(any_ps, "ads", tmp_path) == 5
    np.testing.assert_array_equal(any_ps.lookup("ads", keys, train=False), values)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("keys.npy", np.zeros(4, np.uint64), "values.npy has 5 rows, keys.npy has 4"),
        ("keys.npy", np.zeros(5, np.int32), "keys.npy: int32 of shape"),
        ("values.npy", np.zeros(5, np.float32), "values.npy: float32 of shape"),
        ("state.npy", np.zeros((3, 1), np.float32), "state.npy has 3 rows"),
        ("values.npy", None, "values.npy is no .npy file"),
        ("table.json", None, "saved options of the table are broken"),
    ],
)
def test_files_that_do_not_fit_each_other_are_refused(
    fake_ps: slotwise.Client, tmp_path: Path, file: str, array: Any, message: str
) -> None:
    np.save(tmp_path / "keys.npy", np.arange(5, dtype=np.uint64))
    np.save(tmp_path / "values.npy", np.zeros((5, 2), np.float32))
    if array is None:
        (tmp_path / file).write_text("not this")
    else:
        np.save(tmp_path / file, array)
    with pytest.raises(slotwise.InvalidArgument, match=message):
        slotwise.rows.load_npy(fake_ps, "ads", tmp_path)


def test_a_folder_is_replaced_whole_or_not_at_all(
    fake: FakeServer, fake_ps: slotwise.Client, tmp_path: Path
) -> None:
    train(fake_ps)
    target = tmp_path / "ads"
    save(fake_ps, "npy", target)
    saved = {path.name: path.read_bytes() for path in target.iterdir()}
    fake.after = refuse("Export", grpc.StatusCode.INTERNAL, times=1)
    with pytest.raises(slotwise.Error):
        save(fake_ps, "npy", target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == saved
    assert [path.name for path in tmp_path.iterdir()] == ["ads"]
    save(fake_ps, "npy", target, with_state=False)
    assert sorted(path.name for path in target.iterdir()) == ["keys.npy", "table.json", "values.npy"]
    assert [path.name for path in tmp_path.iterdir()] == ["ads"]
    other = tmp_path / "of something else"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(FileExistsError, match="is no saved table"):
        save(fake_ps, "npy", other)
    assert (other / "thesis.tex").read_text() == "precious"


def test_parquet_columns_are_as_promised(fake: FakeServer, fake_ps: slotwise.Client, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    train(fake_ps)
    target = tmp_path / "ads.parquet"
    save(fake_ps, "parquet", target)
    table = parquet.read_table(target)
    assert table.schema.names == ["key", "values", "state"]
    assert table.schema.field("key").type == pyarrow.uint64()
    assert table.schema.field("values").type == pyarrow.list_(pyarrow.float32(), 4)
    assert table.schema.field("state").type == pyarrow.list_(pyarrow.float32(), 8)
    assert sorted(table.column("key").to_pylist()) == sorted(KEYS.tolist())
    assert [path.name for path in tmp_path.iterdir()] == ["ads.parquet"]


def test_parquet_of_other_programs_is_loaded_or_refused(fake_ps: slotwise.Client, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    fake_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(0.5))

    def write(**columns: Any) -> Path:
        parquet.write_table(pyarrow.table(columns), tmp_path / "other.parquet")
        return tmp_path / "other.parquet"

    keys = pyarrow.array([1, 2**64 - 1], pyarrow.uint64())
    floats = pyarrow.list_(pyarrow.float32())
    good = write(extra=keys, values=pyarrow.array([[1, 2], [3, 4]], floats), key=keys)
    assert slotwise.rows.load_parquet(fake_ps, "ads", good) == 2
    np.testing.assert_array_equal(fake_ps.lookup("ads", [1, -1]), [[1, 2], [3, 4]])
    for values in ([[1, 2, 3], [4]], [[1, 2], None]):
        ragged = write(key=keys, values=pyarrow.array(values, floats))
        with pytest.raises(slotwise.InvalidArgument, match="all of one size"):
            slotwise.rows.load_parquet(fake_ps, "ads", ragged)
    with pytest.raises(slotwise.InvalidArgument, match="no column 'values'"):
        slotwise.rows.load_parquet(fake_ps, "ads", write(key=keys))


def test_without_pyarrow_one_sentence_says_so(
    fake_ps: slotwise.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="save_parquet needs pyarrow: pip install pyarrow"):
        slotwise.rows.save_parquet(fake_ps, "ads", tmp_path / "ads.parquet")
