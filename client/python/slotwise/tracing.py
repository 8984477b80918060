"""Which trace a call belongs to, so that the server's log can be read beside it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from slotwise.core import core

_thread = threading.local()


@contextlib.contextmanager
def trace(traceparent: str | None) -> Iterator[None]:
    """Makes calls that this thread starts in the body part of a trace, whose id the server's log names.

    With OpenTelemetry:

        carrier = {}
        opentelemetry.propagate.inject(carrier)
        with slotwise.trace(carrier.get("traceparent")):
            ps.push("ads", keys, offsets, gradients)

    The trace is the thread's, not a task's: between `with` and a call's start, nothing may be awaited. Pushes
    in the background (`in_flight=True`, `Prefetch`) have no trace.

    Args:
        traceparent: as the W3C's Trace Context writes it; other texts are not sent. None: no trace.
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
