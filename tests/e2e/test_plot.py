"""bench/plot.py draws the numbers that the reports have."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_checks.figures import Figure, sweep_figures
from gpu_checks.sizes import FULL
from plot import AXES, panels_of, read_sweeps
from programs import output_of, run
from slotwise_wire import ROOT
from test_gpu_goals import report_of, result_of

PLOT = ROOT / "bench" / "plot.py"


def seconds_of(figure: Figure, result: str) -> float:
    """Some time, another one for each figure and result."""
    return 1e-3 * (1 + len(result)) * (1 + sum(map(ord, figure.name)) % 97)


def write_sweep(folder: Path, figures: list[Figure]) -> None:
    """A folder as run-gpu-checks leaves it."""
    checks = []
    for figure in figures:
        names = ("find", "insert, cold") if figure.subcommand == "table" else ("lookup", "step")
        results = [result_of(name, 1e6, seconds_of(figure, name), 1e-3) for name in names]
        (folder / "sweep").mkdir(parents=True, exist_ok=True)
        report: dict[str, Any] = {**report_of(figure, results), "device": "pretended"}
        (folder / "sweep" / f"{figure.name}.json").write_text(json.dumps(report), encoding="utf-8")
        entry = {"section": "sweep", "name": figure.name, "report": f"sweep/{figure.name}.json"}
        checks.append({**entry, "status": "passed"})
    checks.append({"section": "sweep", "name": "dim-512", "status": "failed"})
    checks.append({"section": "bench", "name": "load-0.1", "status": "passed", "report": "not-drawn.json"})
    (folder / "report.json").write_text(json.dumps({"checks": checks}), encoding="utf-8")


def draw(folder: Path, out: Path) -> dict[str, bytes]:
    """The pictures, by name."""
    output_of(sys.executable, PLOT, folder, "--out", out)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_what_is_drawn_is_what_was_measured(tmp_path: Path) -> None:
    figures = list(sweep_figures(FULL))
    write_sweep(tmp_path, figures)
    sweeps = read_sweeps([tmp_path])
    assert set(sweeps) == set(AXES) == {"load", "dim", "hot", "gpus"}
    by_name = {figure.name: figure for figure in figures}

    find = panels_of(AXES["load"], sweeps["load"])["find"]
    assert list(find) == ["α 0", "α 1.1"]
    assert [point.x for point in find["α 0"]] == [0.25, 0.5, 0.75, 0.9]
    for point in find["α 1.1"]:
        measured = seconds_of(by_name[f"load-{point.x}-alpha-1.1"], "find")
        assert point.ours == pytest.approx(1e6 / measured)
        assert point.floor == pytest.approx(1e6 / 1e-3)

    step = panels_of(AXES["dim"], sweeps["dim"])["step"]["hot 4"]
    assert [point.x for point in step] == [16, 32, 64, 128, 256]
    assert [point.ours for point in step] == [seconds_of(by_name[f"dim-{p.x}"], "step") for p in step]
    assert {point.floor for point in step} == {1e-3}

    hot = panels_of(AXES["hot"], sweeps["hot"])["lookup"]["dim 128"]
    measured_at = [seconds_of(by_name[f"hot-{point.x}"], "lookup") for point in hot]
    assert [point.ours for point in hot] == [pytest.approx(1e6 / seconds) for seconds in measured_at]

    gpus = panels_of(AXES["gpus"], sweeps["gpus"])["lookup"]
    assert list(gpus) == ["hot 1", "hot 4"]
    assert [point.x for point in gpus["hot 1"]] == [1, 2, 4]
    measured_on = [seconds_of(by_name[f"gpus-{n}-hot-1"], "lookup") for n in (1, 2, 4)]
    assert [point.ours for point in gpus["hot 1"]] == measured_on


def test_others_are_drawn_where_they_were_measured(tmp_path: Path) -> None:
    write_sweep(tmp_path, list(sweep_figures(FULL)))
    sweeps = read_sweeps([tmp_path])
    find = panels_of(AXES["load"], sweeps["load"])["find"]["α 0"]
    assert [len(point.peers) for point in find] == [0, 0, 2, 0]
    assert find[2].peers["HugeCTR's concurrent map"] == 16.7e9
    lookup = panels_of(AXES["gpus"], sweeps["gpus"])["lookup"]["hot 4"]
    alone = {"PyTorch EmbeddingBag": 3.69e-3, "FBGEMM TBE": 1.07e-3}
    assert [point.peers for point in lookup] == [alone, {}, {"PyTorch by hand": 5.6e-3}]
    hot = panels_of(AXES["hot"], sweeps["hot"])["step"]["dim 128"]
    rates = {"PyTorch EmbeddingBag": pytest.approx(1e6 / 17.3e-3), "FBGEMM TBE": pytest.approx(1e6 / 4.8e-3)}
    assert hot[1].peers == rates, "a time, as a rate"


def test_of_two_folders_the_later_ones_measurement_counts(tmp_path: Path) -> None:
    (dim16,) = [figure for figure in sweep_figures(FULL) if figure.name == "dim-16"]
    write_sweep(tmp_path / "old", [dim16])
    write_sweep(tmp_path / "new", [dim16])
    assert len(read_sweeps([tmp_path / "old", tmp_path / "new"])["dim"]) == 1
    changed = tmp_path / "new" / "sweep" / "dim-16.json"
    changed.write_text(changed.read_text(encoding="utf-8").replace("pretended", "later"), encoding="utf-8")
    assert read_sweeps([tmp_path / "old", tmp_path / "new"])["dim"][0]["device"] == "later"


def test_the_same_reports_give_the_same_pictures(tmp_path: Path) -> None:
    write_sweep(tmp_path, list(sweep_figures(FULL)))
    pictures = draw(tmp_path, tmp_path / "once")
    assert set(pictures) == {"load.png", "dim.png", "hot.png", "gpus.png"}
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 10_000 for picture in pictures.values())
    assert draw(tmp_path, tmp_path / "again") == pictures


def test_folders_without_a_sweep_are_refused(tmp_path: Path) -> None:
    write_sweep(tmp_path, [])
    ended = run(sys.executable, PLOT, tmp_path, "--out", tmp_path / "plots")
    assert ended.returncode == 2 and "there is no sweep" in ended.stderr
