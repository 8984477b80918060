"""run-gpu-checks, on a machine without a GPU: what it runs and reports; what fails or hangs is seen."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_checks.sanitizers import SHARED_MEMORY_TESTS, TESTS, pattern_of
from judged_times import LONG_FORMS
from programs import BUILT, output_of, run
from slotwise_wire import ROOT

CHECKS = ROOT / "bench" / "gpu_checks"
# Of all sections, what shows that they run.
SMOKE = "tests,ranks/contract_test-*," if LONG_FORMS else "tests/kernels_test,"
SMOKE += "sanitize,ranks/collective_test-*,ranks/killed-rank,ranks/stopped-rank,"
SMOKE += "ranks/synthetic-2,bench/table-*,bench/embedding-adam-*,"
SMOKE += "bench/tables-*,bench/journal-*,bench/checkpoint,"
SMOKE += "sweep/load-*,sweep/gpus-*-hot-4"


def run_checks(
    bundle: Path, out: Path, *arguments: str, **environment: Any
) -> tuple[subprocess.CompletedProcess[str], Any]:
    """How run-gpu-checks ended, and its report.json (None: it wrote none)."""
    command = (bundle / "run-gpu-checks", "--out", out, *arguments)
    ended = run(*command, timeout=240, PYTHON=sys.executable, **environment)
    report = out / "report.json"
    return ended, json.loads(report.read_text(encoding="utf-8")) if report.exists() else None


def outcomes(report: Any) -> dict[str, tuple[str, str]]:
    """Of each check, its status and what was seen."""
    return {f"{c['section']}/{c['name']}": (c["status"], c["detail"]) for c in report["checks"]}


def script(path: Path, *lines: str) -> None:
    """Makes a program of a few lines of shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/bash", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)


def is_alive(process: int) -> bool:
    """Whether it still runs; a zombie has no command line."""
    try:
        return Path("/proc", str(process), "cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of what was compiled here."""
    made = tmp_path_factory.mktemp("made") / "bundle"
    subprocess.run([CHECKS / "bundle.sh", BUILT, made], check=True)
    return made


@pytest.fixture
def pretended(tmp_path: Path) -> Path:
    """A bundle of scripts: contract_test passes 3 tests, and kernels_test is to be written."""
    made = tmp_path / "bundle"
    script(made / "bin" / "contract_test", 'echo "[  PASSED  ] 3 tests."')
    (made / "bin" / "tests.txt").write_text("contract contract_test\nkernels kernels_test\n")
    (made / "bench").symlink_to(ROOT / "bench")
    shutil.copy(CHECKS / "run-gpu-checks", made)
    return made


def test_every_section_runs_at_tiny_sizes_and_is_reported(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended, report = run_checks(bundle, out, "--device", "cpu", "--quick", "--gpus", "2", "--only", SMOKE)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    seen = outcomes(report)
    assert {name.split("/")[0] for name in seen} == {"tests", "sanitize", "ranks", "bench", "sweep"}
    assert seen["sanitize/memcheck"] == ("not run", "compute-sanitizer is for CUDA")
    assert seen["sweep/gpus-4-hot-4"] == ("not run", "needs 4 GPUs, and this run has 2")
    not_run = {name for name, (status, _) in seen.items() if status == "not run"}
    assert {status for name, (status, _) in seen.items() if name not in not_run} == {"passed"}
    assert all(name.startswith("sanitize/") or "4" in name for name in not_run)
    assert seen["tests/kernels_test"][1].endswith(" tests")
    assert seen["ranks/synthetic-2"][1].endswith("the same bytes in the table")
    assert seen["ranks/collective_test-2"][1].endswith(" tests")
    assert "2 ranks ended" in seen["ranks/killed-rank"][1]
    said = r"SIGSTOP: \w+ of \d+ bytes had not ended after \d+\.\d s$"
    assert re.search(said, seen["ranks/stopped-rank"][1])

    figures = {(figure["check"], figure["result"]): figure for figure in report["figures"]}
    written = json.loads((out / "bench" / "embedding-adam-alpha-0.json").read_text(encoding="utf-8"))
    step = {result["name"]: result for result in written["results"]}["step"]
    assert written["options"]["optimizer"] == "adam"
    assert figures["bench/embedding-adam-alpha-0", "step"]["seconds"] == step["seconds"]
    assert figures["sweep/load-0.5-alpha-0", "find"]["goal"] is None

    whole = "lookup, 3 tables of one slot, of one table's time"
    assert figures["bench/tables-10-samples", whole]["goal"] == {"at_most": 1.15}
    assert figures["bench/checkpoint", "base of direct writes' rate"]["value"] > 0

    page = (out / "report.md").read_text(encoding="utf-8")
    assert all(f"| {name} | " in page for name in seen)
    assert f"{report['counts']['passed']} passed, 0 failed, {len(not_run)} not run" in page
    assert "- gpus: none" in page
    assert (out / "tests" / "kernels_test.log").read_text(encoding="utf-8").count("PASSED") == 1


def test_the_bundle_has_what_the_docs_say_and_nothing_of_this_machine(bundle: Path) -> None:
    there = "bin/slotwise-server bin/slotwise-ctl bin/slotwise-bench bin/contract_test bin/collective_test"
    there += " python/slotwise/torch.py examples/adult/data/adult.test.gz examples/synthetic/train.py"
    there += " bench/plot.py deploy/entrypoint.sh"
    for path in there.split():
        assert (bundle / path).is_file(), path
    tests = (bundle / "bin" / "tests.txt").read_text(encoding="utf-8")
    assert "collective collective_test 1 2 4\n" in tests
    assert "contract contract_test 2 4\n" in tests
    assert not list(bundle.rglob("__pycache__"))
    assert not [path for path in bundle.rglob("*") if path.is_symlink()]


# --- what goes wrong


@pytest.mark.parametrize(
    "lines, why",
    [
        (['echo "1 FAILED TEST"', "exit 3"], "exit status 3: 1 FAILED TEST"),
        (['echo "[  PASSED  ] 0 tests."'], "no test ran"),
        (["kill -SEGV $$"], "exit status -11: nothing was printed"),
        (['printf "no GPU 7\\n-------\\nmpirun noticed\\n-------\\n"', "exit 1"], "exit status 1: no GPU 7"),
        ([], "exit status 127: [Errno 2]"),
    ],
    ids=["fails", "runs_nothing", "crashes", "fails_under_mpirun", "is_not_there"],
)
def test_a_program_that_fails_makes_the_exit_status_1(
    pretended: Path, tmp_path: Path, lines: list[str], why: str
) -> None:
    if lines:
        script(pretended / "bin" / "kernels_test", *lines)
    ended, report = run_checks(pretended, tmp_path / "out", "--device", "cpu", "--only", "tests")
    assert ended.returncode == 1
    seen = outcomes(report)
    assert seen["tests/contract-others"] == ("passed", "3 tests")
    assert seen["tests/kernels_test"][0] == "failed"
    assert seen["tests/kernels_test"][1].startswith(why)
    page = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "| tests/kernels_test | **failed** |" in page


def test_what_hangs_is_killed_with_all_that_it_started_and_the_rest_is_left_out(
    pretended: Path, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    script(pretended / "bin" / "contract_test", f"setsid sh -c 'echo $$ >{child}; exec sleep 300' &", "wait")
    limits = ["--device", "cpu", "--only", "tests", "--time-limit", "2"]
    ended, report = run_checks(pretended, tmp_path / "out", *limits)
    assert ended.returncode == 1
    assert outcomes(report)["tests/contract-others"] == ("failed", "not done after 2 s, and killed")
    assert outcomes(report)["tests/kernels_test"] == ("not run", "no time was left")
    assert not is_alive(int(child.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "arguments",
    [["--only", "test"], ["--only", "bench/nothing-*"], ["--gpus", "9"], ["--device", "cuda", "--gpus", "4"]],
    ids=" ".join,
)
def test_options_that_make_no_sense_are_refused(
    pretended: Path, tmp_path: Path, arguments: list[str]
) -> None:
    arguments = arguments if "--device" in arguments else ["--device", "cpu", *arguments]
    script(tmp_path / "path" / "nvidia-smi", 'echo "GPU 0: one"')
    path = f"{tmp_path / 'path'}:{os.environ['PATH']}"
    ended, report = run_checks(pretended, tmp_path / "out", *arguments, PATH=path)
    assert (ended.returncode, report) == (2, None)
    assert "run-gpu-checks: " in ended.stderr


# --- faults, with scripts in the place of a server, what describes it, and its traffic


AWAIT_STOP = 'until grep -q "T (stopped)" /proc/$!/status; do sleep 0.01; done'
DIES_STOPPED = [AWAIT_STOP, "kill -KILL $(jobs -p)"]


@pytest.mark.parametrize(
    "check, lines, why",
    [
        ("killed-rank", ["wait"], r"not all had ended \d+ s later; ranks that lived: 0"),
        ("killed-rank", ["wait -n", "kill $(jobs -p)", "exit 0"], "the server's exit status is 0"),
        ("stopped-rank", [*DIES_STOPPED, "exit 1"], "no rank said which operation did not end"),
    ],
    ids=["goes_on", "ends_well", "says_nothing"],
)
def test_a_server_that_does_not_end_as_it_should_when_a_rank_does_has_failed(
    pretended: Path, tmp_path: Path, check: str, lines: list[str], why: str
) -> None:
    ranks = 'for rank in 0 1; do OMPI_COMM_WORLD_RANK=$rank "$SLOTWISE_SERVER" & done'
    ready = 'for rank in 0 1; do echo "ready at here:$rank: rank $rank of 2"; done'
    script(pretended / "deploy" / "entrypoint.sh", ranks, ready, *lines)
    script(pretended / "bin" / "slotwise-server", "sleep 300 & wait")
    script(pretended / "bin" / "slotwise-bench", "sleep 300")
    count = "rounds=$(($(cat $0.rounds 2>/dev/null) + 100)); echo $rounds >$0.rounds"
    script(pretended / "bin" / "slotwise-ctl", count, """echo '{"rounds": {"all_bags": '$rounds'}}'""")
    arguments = ["--device", "cpu", "--gpus", "2", "--only", f"ranks/{check}", "--time-limit", "30"]
    ended, report = run_checks(pretended, tmp_path / "out", *arguments)
    assert ended.returncode == 1
    status, detail = outcomes(report)[f"ranks/{check}"]
    assert status == "failed" and re.fullmatch(why, detail), detail


# --- sanitizers, with a script in the place of compute-sanitizer


def sanitize(pretended: Path, tmp_path: Path, *lines: str) -> tuple[int, tuple[str, str]]:
    """The exit status, and what became of memcheck, where compute-sanitizer is these lines, or is missing."""
    path = tmp_path / "path"
    script(path / "nvidia-smi", 'echo "GPU 0: pretended"')
    if lines:
        script(path / "compute-sanitizer", *lines)
    # All else that this machine has; Debian's CUDA packages put compute-sanitizer beside it.
    (rest := tmp_path / "rest").mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name != "compute-sanitizer":
            (rest / program.name).symlink_to(program)
    only = ("--only", "sanitize/memcheck")
    ended, report = run_checks(pretended, tmp_path / "out", *only, PATH=f"{path}:{rest}")
    return ended.returncode, outcomes(report)["sanitize/memcheck"]


def passed(count: int) -> str:
    return f'echo "[  PASSED  ] {count} tests."'


def summary(errors: str) -> str:
    return f'echo "========= ERROR SUMMARY: {errors}"'


@pytest.mark.parametrize(
    "lines, status, why",
    [
        ([passed(len(TESTS)), summary("0 errors")], "passed", f"no errors in {len(TESTS)} tests"),
        ([passed(99), summary("2 errors")], "failed", "2 errors"),
        (['echo "===== RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"'], "failed", "1 errors"),
        ([summary("1 error"), "exit 86"], "failed", "exit status 86: ========= ERROR SUMMARY: 1 error"),
        ([passed(99)], "failed", "the tool did not say how many errors it found"),
        ([passed(1), summary("0 errors")], "failed", "1 tests ran, not the "),
        ([], "not run", "there is no compute-sanitizer here"),
    ],
    ids=["nothing", "errors", "hazards", "exit_status", "no_summary", "too_few_tests", "is_not_there"],
)
def test_a_sanitizer_passes_if_it_found_nothing_in_all_tests(
    pretended: Path, tmp_path: Path, lines: list[str], status: str, why: str
) -> None:
    code, outcome = sanitize(pretended, tmp_path, *lines)
    assert (code, outcome[0]) == (0 if status == "passed" else 1, status)
    assert outcome[1].startswith(why)


def test_the_tests_chosen_for_sanitizers_are_there(bundle: Path) -> None:
    assert set(SHARED_MEMORY_TESTS) < set(TESTS)
    pattern = pattern_of(TESTS, "CpuWith1Thread")
    command = (bundle / "bin" / "contract_test", "--gtest_list_tests", f"--gtest_filter={pattern}")
    listed = output_of(*command, LD_LIBRARY_PATH=str(bundle / "lib"))
    assert listed.count("/CpuWith1Thread ") == len(TESTS)
