"""Times that a test measures: it says them always, and judges them only where nothing else runs.

`./dev bench attacks` is such a place, and sets SLOTWISE_JUDGE_TIMES. Everywhere else a busy machine would
fail the test.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

LONG_FORMS = os.environ.get("SLOTWISE_TESTS") == "all"  # `./dev test all`: tests run their longer forms


def judges_times() -> bool:
    """Whether times are judged."""
    return os.environ.get("SLOTWISE_JUDGE_TIMES") == "1"


def expect_time(what: str, seconds: float, goal: float) -> None:
    """Says how long something took, beside its goal; where times are judged, longer is an AssertionError."""
    said = f"{what}: {1000 * seconds:.1f} ms, goal {1000 * goal:.1f}"
    print(said)
    assert seconds <= goal or not judges_times(), said


def seconds_of(act: Callable[[], object]) -> float:
    """How long it took."""
    began = time.monotonic()
    act()
    return time.monotonic() - began
