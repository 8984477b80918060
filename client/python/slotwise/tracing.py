"""Which trace a call belongs to, so that the server's log can be read beside it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from slotwise.core import core

_thread = threading.local()


@contextlib.contextmanager
def trace(traceparent: str | None) -> Iterator[None]:
    """Calls that this thread starts inside belong to a trace, whose id the server's log names.

    With OpenTelemetry:

        carrier = {}
        opentelemetry.propagate.inject(carrier)
        with slotwise.trace(carrier.get("traceparent")):
            ps.push("ads", keys, offsets, gradients)

    It is the thread's, not a task's: between `with` and a call's start, nothing may be awaited. Pushes
    that go in the background (`in_flight=True`, `Prefetch`) have no trace.

    Args:
        traceparent: as the W3C's Trace Context writes it. What is none is not sent; None: no trace.
    """
    before = getattr(_thread, "traceparent", b"")
    now = b"" if traceparent is None else traceparent.encode("ascii", "replace").replace(b"\0", b"?")
    _set(now)
    try:
        yield
    finally:
        _set(before)


def _set(traceparent: bytes) -> None:
    core().set_traceparent(traceparent)
    _thread.traceparent = traceparent
