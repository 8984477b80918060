"""The goals of goals.json, and what the best others reached, found by what a benchmark's report says it
measured.

A case of goals.json names a benchmark, the number of ranks and options of the report, and for each of its
results a goal and the peers' figures, all in one quantity: `seconds`, or `keys_per_second`, or `times_floor`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("goals.json")
MORE_IS_BETTER = {"keys_per_second": True, "seconds": False, "times_floor": False}


@dataclass
class Goal:
    """What is aimed at (None: nothing), and what others reached, by their names; all in one quantity."""

    quantity: str
    goal: float | None = None
    peers: dict[str, float] = field(default_factory=dict)

    def is_met(self, result: dict[str, Any]) -> bool | None:
        """Whether a report's result is as good as the goal; None without one."""
        if self.goal is None:
            return None
        ours = float(result[self.quantity])
        return ours >= self.goal if MORE_IS_BETTER[self.quantity] else ours <= self.goal

    def best_peer(self) -> tuple[str, float] | None:
        """The best of the others: name and figure."""
        if not self.peers:
            return None
        best = max if MORE_IS_BETTER[self.quantity] else min
        return best(self.peers.items(), key=lambda peer: peer[1])


def goal_of(report: dict[str, Any], result: str) -> Goal:
    """The goal of one result of a report; without goal and peers where goals.json has no such case."""
    for case in json.loads(_FILE.read_text(encoding="utf-8"))["cases"]:
        if result in case["results"] and _fits(case, report):
            return Goal(**case["results"][result])
    return Goal(natural_quantity(report))


def natural_quantity(report: dict[str, Any]) -> str:
    """What people say of a benchmark's results: a table's rate, the time of an embedding's call."""
    return "keys_per_second" if report["benchmark"] == "table" else "seconds"


def in_quantity(quantity: str, of: str, value: float, result: dict[str, Any]) -> float:
    """A figure that is known in the quantity `of`, in another, for the work of this result."""
    if quantity == of:
        return value
    seconds = {
        "seconds": value,
        "keys_per_second": result["keys"] / value,
        "times_floor": value * result["floor"]["seconds"],
    }[of]
    return {
        "seconds": seconds,
        "keys_per_second": result["keys"] / seconds,
        "times_floor": seconds / result["floor"]["seconds"],
    }[quantity]


def _fits(case: dict[str, Any], report: dict[str, Any]) -> bool:
    if (case["benchmark"], case["ranks"]) != (report["benchmark"], report["ranks"]):
        return False
    return all(_same(value, report["options"].get(name)) for name, value in case["options"].items())


def _same(wanted: Any, there: Any) -> bool:
    if isinstance(wanted, (int, float)) and isinstance(there, (int, float)):
        return math.isclose(wanted, there, rel_tol=0.01, abs_tol=1e-9)
    return bool(wanted == there)
