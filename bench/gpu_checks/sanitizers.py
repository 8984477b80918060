"""Section `sanitize`: compute-sanitizer's tools over a few small tests of the contract suite, on CUDA.

A tool makes a kernel 10 to 1000 times slower, so the tests are those that launch little and yet pass every
kind of kernel. racecheck, the slowest, looks at shared memory only, which none but sort, scan, select, the
sums and the numbering of new keys use: it gets a choice of those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gpu_checks.check import Check, Failed, NotRun, Place, needs_command
from gpu_checks.programs import passed_tests

SHARED_MEMORY_TESTS = (
    "Lookup.AddsAKeyAsOftenAsItsBagRepeatsIt",
    "GradientSum.CountsARowAsOftenAsABagRepeatsIt",
    "Weights.AreInTheSumsOfVeryHotRows",
    "RowsByKey.EraseCountsAKeyOnceHoweverOftenItIsNamed",
)
TESTS = (
    *SHARED_MEMORY_TESTS,
    "Lookup.InTrainModeInsertsEachAbsentKeyOnce",
    "Lookup.SaysExactlyHowManyRowsInsertWouldAdd",
    "Growth.WithinABatchOfManyRepeatsNeedsRoomForDistinctKeysOnly",
    "Growth.ThatIsPreparedAndThenRefusedChangesNothing",
    "InitialValues.AreGivenOnceHoweverOftenAKeyComes",
    "GradientSum.OfAMeanDividesEachBagBeforeItAdds",
    "Weights.MultiplyGradientsOnTheirWayBack",
    "Optimizer.UpdatesARowOnceHoweverOftenTheStepNamesIt",
    "RowsByKey.ErasedKeysComeBackAsNewOnes",
    "RowsByKey.EraseMakesRoomInAFullTable",
    "Digest.ChangesWithTheOptimizersStateAlone",
    "Snapshots.ReadAsTheShardWasAndRebuildIt",
    "Snapshots.KeepRowsOfErasedKeysThatNewKeysGet",
    "ChangesOfAShard.AreOnlyForgottenByASnapshotThatRemembersAndIsKept",
    "BulkLoads.ReplaceRecordsAndAddRows",
)
TOOLS = dict.fromkeys(("memcheck", "initcheck", "synccheck"), TESTS) | {"racecheck": SHARED_MEMORY_TESTS}
_TIMEOUT = 150.0
_ERROR_STATUS = 86


def pattern_of(tests: tuple[str, ...], backend: str) -> str:
    """GoogleTest's filter for these tests on one backend."""
    return ":".join(f"*/{test}/{backend}" for test in tests)


def errors_in(output: str) -> int:
    """The errors in the tool's summary; racecheck counts hazards. Raises Failed if there is no summary."""
    found = re.findall(r"^=+ (?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", output, re.M)
    if not found:
        raise Failed("the tool did not say how many errors it found")
    return int("".join(found[-1]))


def sanitize(place: Place, tool: str, tests: tuple[str, ...]) -> str:
    """Runs one tool; it must find nothing, and every test must have run."""
    if place.device != "cuda":
        raise NotRun("compute-sanitizer is for CUDA")
    needs_command("compute-sanitizer", place)
    command: list[str | Path] = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(_ERROR_STATUS)]
    command += [place.program("contract_test"), f"--gtest_filter={pattern_of(tests, 'Cuda')}"]
    ended = place.run_native(command, place.log("sanitize", tool), _TIMEOUT)
    if errors := errors_in(ended.output):
        raise Failed(f"{errors} errors")
    if (passed := passed_tests(ended.output)) != len(tests):
        raise Failed(f"{passed} tests ran, not the {len(tests)} that were chosen: have some been renamed?")
    return f"no errors in {passed} tests"


def checks(place: Place) -> Iterator[Check]:
    for tool, tests in TOOLS.items():
        yield Check("sanitize", tool, partial(sanitize, place, tool, tests))
