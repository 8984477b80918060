"""Section `tests`: the contract suite on every backend, and the tests of kernels.

bin/tests.txt, which bundle.sh writes, names the test programs: a line has a program's room, its name, and the
numbers of ranks that it runs on if mpirun starts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpu_checks.check import Check, Failed, Place

_ROOMS = ("contract", "kernels", "support")  # what runs on a device, and the oracle it is compared with
_TIMEOUT = 400.0


@dataclass
class TestProgram:
    """A line of tests.txt; `ranks` is empty for one that runs without mpirun."""

    room: str
    name: str
    ranks: tuple[int, ...]


def test_programs(place: Place) -> list[TestProgram]:
    lines = place.program("tests.txt").read_text(encoding="utf-8").splitlines()
    split = [line.split() for line in lines]
    return [TestProgram(room, name, tuple(map(int, ranks))) for room, name, *ranks in split]


def run_gtest(
    place: Place, section: str, name: str, program: str, pattern: str, ranks: int | None = None
) -> str:
    """Runs the tests that match; how many passed. Raises Failed if one did not, or if there were none."""
    command: list[str | Path] = [place.program(program), "--gtest_color=no", f"--gtest_filter={pattern}"]
    ended = place.run_native(command, place.log(section, name), _TIMEOUT, ranks)
    return f"{passed_tests(ended.output)} tests"


def passed_tests(output: str) -> int:
    """How many tests a GoogleTest program says passed: under mpirun the rank that says the fewest."""
    passed = [int(count) for count in re.findall(r"\[  PASSED  \] (\d+) test", output)]
    if not passed or min(passed) == 0:
        raise Failed("no test ran")
    return min(passed)


def checks(place: Place) -> Iterator[Check]:
    """The contract suite by backend, then a check a program."""

    def gtest(name: str, program: str, pattern: str) -> Check:
        return Check("tests", name, partial(run_gtest, place, "tests", name, program, pattern))

    suite = place.sizes.contract
    if place.device == "cuda":
        yield gtest("contract-cuda", "contract_test", f"{suite}/Cuda*")
    yield gtest("contract-others", "contract_test", f"{suite}-*/Cuda*")
    for program in test_programs(place):
        if program.room in _ROOMS and not program.ranks and program.name != "contract_test":
            yield gtest(program.name, program.name, "*")
