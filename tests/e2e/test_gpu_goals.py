"""What run-gpu-checks makes of figures and trainings: goals, peers, test AUCs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gpu_checks.check import Check, Failed, Outcome, Place
from gpu_checks.figures import Figure, bench_figures
from gpu_checks.goals import goal_of, in_quantity
from gpu_checks.ranks import Trained, Trainer, trainings
from gpu_checks.report import make_report, to_markdown
from gpu_checks.sizes import FULL, TINY
from slotwise_wire import ROOT

CASES = json.loads((ROOT / "bench" / "gpu_checks" / "goals.json").read_text(encoding="utf-8"))["cases"]


def report_of(figure: Figure, results: list[dict[str, Any]]) -> dict[str, Any]:
    """What slotwise-bench would report."""
    options: dict[str, Any] = {"backend": "cuda", **figure.options}
    if figure.subcommand == "table":
        options["load_of_table"] = options["load"]
    return {"benchmark": figure.subcommand, "ranks": figure.ranks, "options": options, "results": results}


def result_of(name: str, keys: float, seconds: float, floor: float) -> dict[str, Any]:
    """One of its results."""
    rates = {"keys_per_second": keys / seconds, "times_floor": seconds / floor}
    times = {"seconds": seconds, "floor": {"bytes": 1.0, "seconds": floor}}
    return {"name": name, "keys": keys, **times, **rates}


def figure_named(name: str) -> Figure:
    (found,) = [figure for figure in bench_figures(FULL) if figure.name == name]
    return found


def reported(folder: Path, figure: Figure, measured: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The report, and its page, of a run that measured this figure alone."""
    file = folder / "figure.json"
    file.write_text(json.dumps(measured), encoding="utf-8")
    outcome = Outcome(Check("bench", figure.name, lambda: "", file), "passed", "checked and timed", 1.0)
    run = {"command": "run-gpu-checks", "started": "now", "seconds": 1.0}
    report = make_report([outcome], {"gpus": []}, run, folder)
    return report, to_markdown(report)


def test_every_goal_belongs_to_a_figure_that_is_measured() -> None:
    figures = [report_of(figure, []) for figure in bench_figures(FULL)]
    for case in CASES:
        for name, goal in case["results"].items():
            found = [goal_of(figure, name) for figure in figures]
            fits = [f for f in found if (f.quantity, f.goal) == (goal["quantity"], goal["goal"])]
            assert fits, (case, name)


def test_a_figure_is_compared_with_its_goal_and_the_best_other(tmp_path: Path) -> None:
    hot4 = figure_named("embedding-hot-4-alpha-0")
    results = [result_of("lookup", 6.8e6, 1.39e-3, 1.46e-3), result_of("step", 6.8e6, 4.51e-3, 4.0e-3)]
    report, page = reported(tmp_path, hot4, report_of(hot4, results))
    lookup, step = report["figures"]
    assert (lookup["goal"], lookup["met"]) == ({"seconds": 1.4e-3}, True)
    assert (step["goal"], step["met"]) == ({"seconds": 4.5e-3}, False)
    assert lookup["best_peer"] == {"name": "FBGEMM TBE", "seconds": 1.07e-3}
    assert "| lookup | 1.39 ms | 0.95 | 1.4 ms | yes | FBGEMM TBE: 1.07 ms |" in page
    assert "| step | 4.51 ms | 1.13 | 4.5 ms | **no** |" in page
    assert "1 of 2 goals met" in page


def test_goals_of_the_benchmark_itself_are_reported_too(tmp_path: Path) -> None:
    journal = figure_named("journal-64-samples")
    ratio = {"name": "sync of the slower", "value": 0.6512, "at_least": 0.7, "met": False}
    told = {"name": "disk, GB/s", "value": 2.2}
    _, page = reported(tmp_path, journal, report_of(journal, []) | {"figures": [ratio, told]})
    assert "| sync of the slower | 0.651 |  | at least 0.7 | **no** |" in page
    assert "| disk, GB/s | 2.2 |  |  |  |" in page
    assert "0 of 1 goals met" in page


@pytest.mark.parametrize("rate, met", [(24.0e9, True), (23.9e9, False)])
def test_of_rates_more_is_better(rate: float, met: bool) -> None:
    table = figure_named("table-load-0.75-alpha-0")
    result = result_of("find", rate, 1.0, 1.0)
    goal = goal_of(report_of(table, [result]), "find")
    assert goal.is_met(result) is met
    assert goal.best_peer() == ("HugeCTR's concurrent map", 16.7e9)


def test_other_sizes_have_no_goals() -> None:
    for figure in bench_figures(TINY):
        for name in ("find", "insert, cold", "lookup", "step"):
            assert goal_of(report_of(figure, []), name).goal is None


def test_quantities_turn_into_each_other() -> None:
    result = result_of("find", 100.0, 2.0, 0.5)
    for quantity in ("seconds", "keys_per_second", "times_floor"):
        for of in ("seconds", "keys_per_second", "times_floor"):
            assert in_quantity(quantity, of, result[of], result) == pytest.approx(result[quantity])


# --- trainings


def place(tmp_path: Path) -> Place:
    """A place in which the examples are this repository's."""
    return Place(ROOT, tmp_path, "cpu", 2, TINY)


def test_the_adult_demo_is_read_as_its_page_shows_it(tmp_path: Path) -> None:
    adult = trainings(place(tmp_path))[0]
    page = (ROOT / "examples" / "adult" / "README.md").read_text(encoding="utf-8")
    printed = "\n".join(line.strip() for line in page.splitlines())
    assert adult.result(printed) == Trained(0.9287, "cffb9c66220ef6bddfe09f9f110477b9")
    with pytest.raises(Failed, match="printed no AUC"):
        adult.result("epoch 1: loss 0.3086, test AUC 0.9265\n")


def test_trainings_have_options_that_the_trainers_know(tmp_path: Path) -> None:
    for training in trainings(place(tmp_path)):
        program = Path(training.arguments[0]).read_text(encoding="utf-8")
        known = set(re.findall(r'"(--[a-z-]+)"', program))
        assert {word for word in training.arguments if word.startswith("--")} <= known


@pytest.mark.parametrize("auc, same", [(0.9287, True), (0.9305, True), (0.9310, False), (0.9260, False)])
def test_aucs_more_than_two_thousandths_apart_are_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auc: float, same: bool
) -> None:
    trainer = Trainer(place(tmp_path), {"adult": Trained(0.9287, "a" * 32)})
    monkeypatch.setattr(Trainer, "_train", lambda *_: Trained(auc, "b" * 32))
    adult = trainings(place(tmp_path))[0]
    if same:
        assert trainer.compare(adult, 2).endswith("other bytes in the table")
    else:
        with pytest.raises(Failed, match="more than 0.002 apart"):
            trainer.compare(adult, 2)
