"""Waits for conditions, as tests must, instead of for times."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import slotwise

LIMIT = 60.0  # seconds; a busy machine of two cores
PATIENT = 10 * LIMIT  # a client's timeout, where something else is to end its calls
# One of these ends a call that was tried again until its timeout: the second if a try was under way then.
NO_ANSWER = (slotwise.Unavailable, slotwise.DeadlineExceeded)


def wait_until(condition: Callable[[], object], what: str, limit: float = LIMIT) -> None:
    """Returns once `condition` holds; fails, naming `what`, if it does not within so many seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit} s"
        time.sleep(0.001)


def connect_briefly(*addresses: str, timeout: float, transport: str = "best") -> slotwise.Client:
    """A client whose calls are to end at its timeout, which is short: connecting may take several tries."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            return slotwise.connect(*addresses, timeout=timeout, transport=transport)
        except NO_ANSWER:
            assert time.monotonic() < deadline, f"no connection within {LIMIT} s"


def run_at_once(*calls: Callable[[], object]) -> None:
    """Runs each call in a thread of its own, to its end; raises what one of them raised."""
    with ThreadPoolExecutor(len(calls)) as threads:
        for ended in [threads.submit(call) for call in calls]:
            ended.result()
