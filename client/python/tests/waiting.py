"""Waits for conditions, as tests must, instead of for times."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT = 60.0  # seconds; a busy machine of two cores
PATIENT = 10 * LIMIT  # a client's timeout, where something else is to end its calls


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Returns once `condition` holds; fails, naming `what`, if it does not within `LIMIT`."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT} s"
        time.sleep(0.001)
