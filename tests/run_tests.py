"""Runs the tests, and runs again, alone, what failed: what `./dev test` calls.

A test that passes when it is run again is flaky: its name is printed, and more than MOST_FLAKY such tests
fail the run. A test that fails every time fails the run. Where more than MOST_AGAIN tests failed, none is
run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

AGAIN = 2  # times that a failed test is run again
MOST_AGAIN = 10
MOST_FLAKY = 3
# The files that take the longest come first, so that none of them is alone at the end.
PYTHON_FILES_FIRST = (
    "tests/fault/test_durability.py",
    "tests/e2e/test_metrics_tables.py",
    "tests/abuse/test_attacks.py",
    "tests/e2e/test_tls.py",
    "client/python/tests/test_loops.py",
    "tests/e2e/test_bench.py",
    "tests/e2e/test_adult.py",
    "tests/fault/test_load_checkpoint.py",
    "tests/e2e/test_gpu_checks.py",
    "tests/fault/test_supervisor.py",
    "tests/fault/test_kill_loop.py",
    "client/python/tests/test_process.py",
)
PYTHON_FOLDERS = ("tests/e2e", "tests/fault", "tests/abuse", "client/python/tests", "examples")


@dataclass
class Outcome:
    """What became of a suite's tests."""

    passed: int = 0
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Counts another suite's tests as well."""
        self.passed += other.passed
        self.skipped += other.skipped
        self.failed += other.failed
        self.flaky += other.flaky


def broken(what: str) -> NoReturn:
    """Ends the run: a suite did not get as far as its tests."""
    print(f"tests: {what}", file=sys.stderr)
    raise SystemExit(1)


class Suite:
    """Tests that one program runs. Its results lie in files of `folder`, which is emptied before each run."""

    tests_failed: int  # how the program exits if tests failed, and nothing else did

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._report = folder / "report.xml"

    def run(self, *, again: bool) -> Outcome:
        """Runs all tests, and with `again` those that failed once more, each alone."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        status = subprocess.run(self.command(), check=False).returncode
        outcome = self._count()
        outcome.failed = self.failures()
        if status not in (0, self.tests_failed):
            broken(f"{self.command()[0]} exited {status}: not all tests ran")
        if status != 0 and not outcome.failed:
            broken(f"{self.command()[0]} exited {status} and names no test that failed")
        if len(outcome.failed) > MOST_AGAIN:
            print(f"tests: {len(outcome.failed)} failed, too many to be run again")
        elif again:
            outcome.flaky = [name for name in outcome.failed if self._passes_alone(name)]
            outcome.failed = [name for name in outcome.failed if name not in outcome.flaky]
            outcome.passed += len(outcome.flaky)
        return outcome

    def command(self) -> list[str]:
        """What runs all tests, and writes the JUnit report."""
        raise NotImplementedError

    def command_of(self, name: str) -> list[str]:
        """What runs one test, as `failures` names it."""
        raise NotImplementedError

    def failures(self) -> list[str]:
        """The names of the tests that failed in the last run of all."""
        raise NotImplementedError

    def _passes_alone(self, name: str) -> bool:
        for attempt in range(AGAIN):
            print(f"tests: {name} failed: it runs again, alone ({attempt + 1} of {AGAIN})", flush=True)
            if subprocess.run(self.command_of(name), check=False).returncode == 0:
                return True
        return False

    def _count(self) -> Outcome:
        if not self._report.exists():
            broken(f"{self.command()[0]} wrote no report: see what is printed above")
        outcome = Outcome()
        for case in ElementTree.parse(self._report).iter("testcase"):
            if case.find("skipped") is not None or case.get("status") in ("disabled", "notrun"):
                outcome.skipped.append(case.get("name", "?"))
            elif case.find("failure") is None and case.find("error") is None:
                outcome.passed += 1
        return outcome


class CppTests(Suite):
    """The tests that CMake knows."""

    tests_failed = 8

    def __init__(self, build: Path, arguments: list[str]) -> None:
        super().__init__(build / "ctest_report")
        self._log = build / "Testing" / "Temporary" / "LastTestsFailed.log"
        self._ctest = ["ctest", "--test-dir", str(build), "--output-on-failure"]
        self._arguments = arguments

    def command(self) -> list[str]:
        self._log.unlink(missing_ok=True)
        jobs = str(1 + 2 * (os.cpu_count() or 1))  # half of the time a test waits
        return [*self._ctest, "-j", jobs, "--output-junit", str(self._report.resolve()), *self._arguments]

    def command_of(self, name: str) -> list[str]:
        number = name.partition(":")[0]
        return [*self._ctest, "--no-tests=error", "-I", f"{number},{number}"]

    def failures(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


class PythonTests(Suite):
    """The tests that pytest finds in `folders`."""

    tests_failed = int(pytest.ExitCode.TESTS_FAILED)

    def __init__(self, build: Path, arguments: list[str], folders: tuple[str, ...], processes: int) -> None:
        super().__init__(build / "pytest_report")
        self._cache = self._folder / "cache"
        self._pytest = [sys.executable, "-m", "pytest", "-q", "-c", "pytest.ini", "--rootdir", "."]
        self._pytest += ["-o", f"cache_dir={self._cache}"]
        # Mostly the tests wait, for servers and for deadlines. One process runs a file's tests.
        self._spread = ["-n", str(processes), "--dist", "loadfile"] if processes > 1 else []
        self._arguments = arguments
        self._folders = folders

    def command(self) -> list[str]:
        report = ["--junitxml", str(self._report), "--durations", "20", "--durations-min", "2"]
        first = [file for file in PYTHON_FILES_FIRST if Path(file).is_file() and self._is_asked_for(file)]
        return [*self._pytest, *self._spread, *report, *first, *self._folders, *self._arguments]

    def command_of(self, name: str) -> list[str]:
        return [*self._pytest, name]

    def _is_asked_for(self, file: str) -> bool:
        return any(file.startswith(f"{folder}/") for folder in self._folders)

    def failures(self) -> list[str]:
        path = self._cache / "v" / "cache" / "lastfailed"
        return sorted(json.loads(path.read_text())) if path.exists() else []


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="the folder of a preset, built")
    parser.add_argument("--folder", action="append", help="run the Python tests of this folder alone")
    parser.add_argument("--processes", type=int, default=5, help="how many run Python tests (5)")
    parser.add_argument("suite", choices=["cpp", "python", "both"])
    more = "for ctest or pytest: then no test is run again"
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=more)
    options = parser.parse_args()
    # Tests press Ctrl-C, and a shell lets what it starts in the background ignore that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores, and torch's threads spin
    processes = 1 if options.arguments else options.processes  # a debugger's terminal is one process's
    folders = tuple(options.folder or PYTHON_FOLDERS)
    suites: list[Suite] = []
    if options.suite in ("cpp", "both"):
        suites.append(CppTests(options.build, options.arguments))
    if options.suite in ("python", "both"):
        suites.append(PythonTests(options.build, options.arguments, folders, processes))
    outcome = Outcome()
    for suite in suites:
        outcome.add(suite.run(again=not options.arguments))
    for name in outcome.skipped:
        print(f"skipped: {name}")
    for name in outcome.failed:
        print(f"failed: {name}")
    for name in outcome.flaky:
        print(f"flaky: {name}")
    if len(outcome.flaky) > MOST_FLAKY:
        print(f"tests: {len(outcome.flaky)} are flaky, and more than {MOST_FLAKY} fail the run")
    counts = f"{outcome.passed} passed, {len(outcome.failed)} failed, {len(outcome.skipped)} skipped"
    print(counts, flush=True)
    return int(bool(outcome.failed) or len(outcome.flaky) > MOST_FLAKY)


if __name__ == "__main__":
    raise SystemExit(main())
