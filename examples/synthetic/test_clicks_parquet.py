"""make_clicks.py, and the Parquet files it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from clicks import PRESETS, ClickStream, best_auc
from clicks import parquet as clicks_parquet
from make_clicks import main
from test_clicks import MODEL, run_python

STREAM = ClickStream(MODEL, seed=2**64 - 1, batch_size=300)


@pytest.fixture
def parquet() -> ModuleType:
    """pyarrow's reader. A test that needs it fails without it: it is no reason to skip."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        pytest.fail(f"no pyarrow: run `./dev setup`, or pip install pyarrow ({error})")
    return pyarrow.parquet


@pytest.mark.parametrize("shards", [1, 3])
def test_files_hold_the_batches(parquet: ModuleType, tmp_path: Path, shards: int) -> None:
    path = tmp_path / "new" / ("one.parquet" if shards == 1 else "many")
    files = clicks_parquet.write(STREAM, STREAM.batches(10, 15), path, shards=shards)
    assert len(files) == shards and sorted(files[0].parent.iterdir()) == files
    for shard, file in enumerate(files):
        reader = parquet.ParquetFile(file)
        origin = reader.schema_arrow.metadata[b"slotwise.synthetic"]
        assert origin == b'{"seed": 18446744073709551615, "batch_size": 300}'
        types = {field.name: str(field.type) for field in reader.schema_arrow}
        assert types == {
            "label": "float",
            "slot_0": "uint64",
            "slot_1": "list<element: uint64 not null>",
            "slot_2": "list<element: uint64 not null>",
            "dense_0": "float",
            "dense_1": "float",
        }
        numbers = range(10 + shard, 15, shards)
        assert reader.num_row_groups == len(numbers)
        for group, number in enumerate(numbers):
            clicks, table = STREAM.batch(number), reader.read_row_group(group)
            np.testing.assert_array_equal(table["label"].to_numpy(), clicks.labels)
            for feature in range(2):
                column = table[f"dense_{feature}"].to_numpy()
                np.testing.assert_array_equal(column, clicks.dense[:, feature])
            slots = [table[f"slot_{slot}"].to_pylist() for slot in range(3)]
            bags = [[first, *second, *third] for first, second, third in zip(*slots, strict=True)]
            assert sum(bags, []) == clicks.keys.tolist()
            ends = np.cumsum([[1, len(bag), len(other)] for _, bag, other in zip(*slots)])
            np.testing.assert_array_equal(ends, clicks.offsets[1:])


def test_a_failure_leaves_no_file(parquet: ModuleType, tmp_path: Path) -> None:
    def batches():  # type: ignore[no-untyped-def]
        yield STREAM.batch(0)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        clicks_parquet.write(STREAM, batches(), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_what_it_reports(
    parquet: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "test"
    main(f"quick --seed 7 --start 5 --batches 4 --batch-size 1000 --shards 2 --out {out}".split())
    stream = ClickStream(PRESETS["quick"], seed=7, batch_size=1000)
    clicks = list(stream.batches(5, 9))
    probabilities = np.concatenate([batch.probabilities for batch in clicks])
    ids = len(np.unique(np.concatenate([batch.keys for batch in clicks])))
    printed = capsys.readouterr().out
    assert "batches 5 to 8\n" in printed
    assert f"41,011,120 possible, {ids:,} of them in these 4,000 samples" in printed
    assert f"best possible AUC {best_auc(probabilities):.4f}; " in printed
    labels = [parquet.read_table(file)["label"].to_numpy() for file in sorted(out.iterdir())]
    np.testing.assert_array_equal(labels[0], np.concatenate([clicks[0].labels, clicks[2].labels]))
    np.testing.assert_array_equal(labels[1], np.concatenate([clicks[1].labels, clicks[3].labels]))


def test_the_command_lists_the_presets_and_needs_no_pyarrow_for_that() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; import make_clicks; make_clicks.main([])"
    assert [line.split()[0] for line in run_python(program).splitlines()] == ["preset", *PRESETS]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, str(Path(__file__).with_name("make_clicks.py"))]
    read, write = os.pipe()
    os.close(read)  # as `make_clicks.py | head` does, sooner or later
    try:
        run = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (run.returncode, run.stderr) == (0, "")


def test_without_pyarrow_the_command_says_in_a_sentence_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # type: ignore[misc]
    with pytest.raises(SystemExit, match=r"^make_clicks.py: .*pip install pyarrow"):
        main(["quick", "--batches", "1", "--out", str(tmp_path / "a.parquet")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--out x", "^2$"),
        ("quick --shards 2", "^2$"),
        ("quick --batches 0", "^2$"),
        ("quick --batches 2 --shards 3 --out x", "^2$"),
        ("quick --seed -1", "^make_clicks.py: seed is -1"),
        ("quick --batch-size 0", "^make_clicks.py: batch_size is 0"),
        ("quick --start -1", "^make_clicks.py: batch is -1"),
    ],
)
def test_a_wrong_command_line_is_refused_and_a_wrong_number_by_name(arguments: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        main(arguments.split())
