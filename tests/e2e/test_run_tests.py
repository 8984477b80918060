"""tests/run_tests.py counts what passed, runs alone what failed, and fails where a test fails every time."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import programs
import pytest
from slotwise_wire import ROOT

# Passes from its Nth run on, and fails before.
FROM_RUN = """
import pathlib

def passes_from_run(name, n):
    ran = pathlib.Path(name)
    ran.write_text(ran.read_text() + "x" if ran.exists() else "x")
    assert len(ran.read_text()) >= n
"""


def python_test(name: str, run: int) -> str:
    """The source of a test that passes from its run `run` on."""
    return f"\ndef test_{name}():\n    passes_from_run('{name}', {run})\n"


def cpp_test(name: str, run: int) -> str:
    """The same for ctest, as CMake writes it."""
    script = f"echo x >>{name}; test $(wc -l <{name}) -ge {run}"
    return f'add_test({name} "sh" "-c" "{script}")\n'


def run(
    folder: Path, suite: str, processes: int = 1, /, *, python: str = "", cpp: str = ""
) -> tuple[int, list[str]]:
    """Runs those tests; the status, and the lines that were printed."""
    (folder / "build").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "cases").mkdir()
    (folder / "cases/test_cases.py").write_text(FROM_RUN + python)
    (folder / "build/CTestTestfile.cmake").write_text(cpp.replace("$", "\\$"))
    program = [sys.executable, str(ROOT / "tests/run_tests.py"), "--build", "build", "--folder", "cases"]
    command = [*program, "--processes", str(processes), suite]
    ended = programs.run(*command, folder=folder, timeout=120)
    print(ended.stdout, ended.stderr)
    return ended.returncode, ended.stdout.splitlines()


def test_both_suites_are_counted_together(tmp_path: Path) -> None:
    skipped = "\nimport pytest\n@pytest.mark.skip\ndef test_not(): pass\n"
    cpp = cpp_test("two", 1) + cpp_test("three", 1)
    status, lines = run(tmp_path, "both", 2, python=python_test("one", 1) + skipped, cpp=cpp)
    assert lines[-2:] == ["skipped: test_not", "3 passed, 0 failed, 1 skipped"]
    assert status == 0


@pytest.mark.parametrize("suite", ["cpp", "python"])
def test_a_test_that_passes_alone_is_named_as_flaky(tmp_path: Path, suite: str) -> None:
    make = {"cpp": cpp_test, "python": python_test}[suite]
    source = make("good", 1) + make("second", 2) + make("third", 3)
    status, lines = run(tmp_path, suite, **{suite: source})
    flaky = [line for line in lines if line.startswith("flaky: ")]
    assert [line.split("_")[-1].split(":")[-1] for line in flaky] == ["second", "third"]
    assert lines[-1] == "3 passed, 0 failed, 0 skipped"
    assert status == 0


def test_a_name_with_spaces_is_one_test(tmp_path: Path) -> None:
    """GoogleTest's names end in what their parameter is."""
    source = cpp_test("bad", 9).replace("add_test(bad", 'add_test("Of/bad  # GetParam() = 1"')
    status, lines = run(tmp_path, "cpp", cpp=source + cpp_test("good", 1))
    assert lines[-2:] == ["failed: 1:Of/bad  # GetParam() = 1", "1 passed, 1 failed, 0 skipped"]
    assert status == 1


@pytest.mark.parametrize("suite", ["cpp", "python"])
def test_a_test_that_fails_three_times_fails_the_run(tmp_path: Path, suite: str) -> None:
    make = {"cpp": cpp_test, "python": python_test}[suite]
    status, lines = run(tmp_path, suite, **{suite: make("good", 1) + make("bad", 4)})
    assert [line for line in lines if line.startswith("failed: ") and line.endswith("bad")]
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"
    assert status == 1


@pytest.mark.parametrize(
    ("count", "status", "said"),
    [
        (3, 0, "3 passed, 0 failed, 0 skipped"),
        (4, 1, "tests: 4 are flaky, and more than 3 fail the run"),
        (11, 1, "tests: 11 failed, too many to be run again"),
    ],
)
def test_many_flaky_tests_fail_the_run_and_very_many_are_not_run_again(
    tmp_path: Path, count: int, status: int, said: str
) -> None:
    source = "".join(python_test(f"n{number}", 2) for number in range(count))
    ended, lines = run(tmp_path, "python", python=source)
    assert ended == status and said in lines
    failed = count if "too many" in said else 0
    assert lines[-1] == f"{count - failed} passed, {failed} failed, 0 skipped"


def test_tests_that_cannot_be_read_fail_the_run(tmp_path: Path) -> None:
    status, _ = run(tmp_path, "python", python="\nimport no_such_module\n")
    assert status == 1


def test_a_run_that_breaks_off_fails_whatever_has_failed_before(tmp_path: Path) -> None:
    breaks_off = "\nimport pytest\ndef test_x(): pytest.exit('enough', returncode=3)\n"
    status, lines = run(tmp_path, "python", 1, python=python_test("bad", 2) + breaks_off)
    assert status == 1
    assert not any(line.endswith("skipped") for line in lines), "not all tests ran"


def test_tests_may_be_interrupted_though_the_run_may_not(tmp_path: Path) -> None:
    """A shell's background job ignores SIGINT, and so does all that it starts."""
    source = "\nimport signal\ndef test_i(): assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN\n"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status, lines = run(tmp_path, "python", python=source)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (status, lines[-1]) == (0, "1 passed, 0 failed, 0 skipped")
