"""report.json and report.md: the machine, each check's outcome, each figure beside floor, goal and peer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpu_checks.check import Outcome
from gpu_checks.goals import MORE_IS_BETTER, goal_of, natural_quantity

_UNITS = {  # of a quantity: what it is multiplied by to be read, and how it is written then
    "keys_per_second": (1e-9, "{:.3g} G keys/s"),
    "seconds": (1e3, "{:.3g} ms"),
    "times_floor": (1.0, "{:.2f} × floor"),
    "value": (1.0, "{:.3g}"),
    "at_least": (1.0, "at least {:.3g}"),
    "at_most": (1.0, "at most {:.3g}"),
}


def make_report(
    outcomes: Sequence[Outcome], machine: dict[str, Any], run: dict[str, Any], out: Path
) -> dict[str, Any]:
    """All there is to report, as JSON has it. `run` says how the checks were started."""
    counts = {status: sum(o.status == status for o in outcomes) for status in ("passed", "failed", "not run")}
    return {
        "run": run,
        "machine": machine,
        "counts": counts,
        "checks": [_check(outcome, out) for outcome in outcomes],
        "figures": [figure for outcome in outcomes for figure in _figures(outcome)],
    }


def write_report(report: dict[str, Any], out: Path) -> None:
    """Writes both files; readers see the old ones or the new ones, whole."""
    texts = {"report.json": json.dumps(report, indent=2) + "\n", "report.md": to_markdown(report)}
    for name, text in texts.items():
        new = out / f"{name}.new"
        new.write_text(text, encoding="utf-8")
        os.replace(new, out / name)


def to_markdown(report: dict[str, Any]) -> str:
    """The page that people read."""
    lines = ["# Slotwise on GPUs: what was checked", "", summary(report), ""]
    lines += [f"`{report['run']['command']}`, {report['run']['started']}", "", "## Machine", ""]
    for name, value in report["machine"].items():
        for line in (value or ["none"]) if isinstance(value, list) else [value]:
            lines.append(f"- {name}: {line}")
    lines += ["", "## Checks", "", *_table("check | outcome | seconds | what was seen", _check_rows(report))]
    if report["figures"]:
        heading = "figure | result | ours | times the floor | goal | met | best other"
        lines += ["", "## Figures", "", *_table(heading, _figure_rows(report))]
    return "\n".join(lines) + "\n"


def summary(report: dict[str, Any]) -> str:
    """The outcome in one line."""
    counts = ", ".join(f"{count} {status}" for status, count in report["counts"].items())
    with_goal = [figure for figure in report["figures"] if figure["met"] is not None]
    met = sum(figure["met"] for figure in with_goal)
    goals = f"; {met} of {len(with_goal)} goals met" if with_goal else ""
    return f"{counts}{goals}; {report['run']['seconds']:.0f} s"


def _check(outcome: Outcome, out: Path) -> dict[str, Any]:
    check = outcome.check
    entry: dict[str, Any] = {"section": check.section, "name": check.name}
    entry |= {"status": outcome.status, "detail": outcome.detail, "seconds": round(outcome.seconds, 1)}
    if check.report is not None and outcome.status == "passed":
        entry["report"] = str(check.report.relative_to(out))
    return entry


def _figures(outcome: Outcome) -> Iterator[dict[str, Any]]:
    """One for each result of a benchmark that passed."""
    if outcome.check.report is None or outcome.status != "passed":
        return
    report = json.loads(outcome.check.report.read_text(encoding="utf-8"))
    for result in report["results"]:
        goal = goal_of(report, result["name"])
        peer = goal.best_peer()
        yield {
            "check": outcome.check.path,
            "result": result["name"],
            "said_in": natural_quantity(report),
            **{quantity: result[quantity] for quantity in MORE_IS_BETTER},
            "goal": None if goal.goal is None else {goal.quantity: goal.goal},
            "met": goal.is_met(result),
            "best_peer": None if peer is None else {"name": peer[0], goal.quantity: peer[1]},
        }
    for figure in report.get("figures", []):  # what the benchmark itself has goals for, and counts
        bounds = {bound: figure[bound] for bound in ("at_least", "at_most") if bound in figure}
        yield {
            "check": outcome.check.path,
            "result": figure["name"],
            "said_in": "value",
            "value": figure["value"],
            "goal": bounds or None,
            "met": figure.get("met"),
            "best_peer": None,
        }


def _check_rows(report: dict[str, Any]) -> Iterator[list[str]]:
    for check in report["checks"]:
        status = check["status"] if check["status"] == "passed" else f"**{check['status']}**"
        yield [f"{check['section']}/{check['name']}", status, f"{check['seconds']:.1f}", check["detail"]]


def _figure_rows(report: dict[str, Any]) -> Iterator[list[str]]:
    for figure in report["figures"]:
        peer = dict(figure["best_peer"] or {})
        name = peer.pop("name", "")
        yield [
            figure["check"],
            figure["result"],
            _readable({figure["said_in"]: figure[figure["said_in"]]}),
            f"{figure['times_floor']:.2f}" if "times_floor" in figure else "",
            _readable(figure["goal"] or {}),
            {True: "yes", False: "**no**", None: ""}[figure["met"]],
            f"{name}: {_readable(peer)}" if peer else "",
        ]


def _readable(figure: dict[str, float]) -> str:
    """A figure with its unit, from its quantity and value; nothing from nothing."""
    units = [(value, *_UNITS[quantity]) for quantity, value in figure.items()]
    return "".join(written.format(value * factor) for value, factor, written in units)


def _table(heading: str, rows: Iterator[list[str]]) -> list[str]:
    columns = heading.split(" | ")
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
