"""Futures of calls, which a thread can wait for and an event loop can await."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import logging
import os
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from slotwise.admin_calls import AdminCalls, request_text
from slotwise.core import OK, CallOptions, Core, Handle, TableShape

_LOG = logging.getLogger("slotwise")
_THREAD = "slotwise-futures"

T = TypeVar("T")

# Starts a call with the options given, and returns its handle.
Begin = Callable[[Any], Any]
# Called with a call that has ended, and its code.
OnEnd = Callable[[Handle, int], None]


class Future(concurrent.futures.Future[T], Generic[T]):
    """The answer of a started call: `result()` waits for the answer, and so does `await` in a coroutine.

    `cancel()` ends the call soon. A cancelled push may have been applied; pushing again with the same step is
    safe. A future that is dropped leaves the call alone. Callbacks run in one thread of Slotwise's, so they
    should be short; they may not wait for another future.
    """

    def __init__(self) -> None:
        """Is called by `lookup_async` and `push_async`."""
        super().__init__()
        self._calls: list[tuple[Handle, Callable[[Handle], None]]] = []  # the core's calls, to cancel
        self._process = os.getpid()

    def cancel(self) -> bool:
        """Returns False if the call has been answered already."""
        cancelled = super().cancel()
        if cancelled:
            for call, cancel_call in self._calls:
                cancel_call(call)
        return cancelled

    def __await__(self) -> Generator[Any, None, T]:
        """Waits in the running event loop; a task that is cancelled cancels the call."""
        return asyncio.wrap_future(self).__await__()

    def runs_as(self, call: Handle, cancel_call: Callable[[Handle], None]) -> None:
        """Adds a call that `cancel` cancels; to cancel an ended call does nothing."""
        self._calls.append((call, cancel_call))
        if self.cancelled():  # before the call was added
            cancel_call(call)
        if self.done():
            self._calls.clear()

    def result(self, timeout: float | None = None) -> T:
        """Waits for the answer, and returns or raises it.

        Raises:
            RuntimeError: the future is not done, and no answer can come, because this is a future's callback
                or a process that was forked since.
        """
        self._check_answerable()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the answer, and returns its error, or None; raises as `result`."""
        self._check_answerable()
        return super().exception(timeout)

    def answer(self, make: Callable[[], T]) -> None:
        """Sets the result or the error of `make`, unless the future was cancelled."""
        self._calls.clear()
        try:
            result = make() if not self.cancelled() else None
        except Exception as error:
            self._end(self.set_exception, error)
        else:
            self._end(self.set_result, result)

    def fail(self, error: Exception) -> None:
        """Sets an exception, unless the future was cancelled."""
        self._calls.clear()
        self._end(self.set_exception, error)

    def _end(self, end: Callable[[Any], None], answer: Any) -> None:
        try:
            # Of a cancelled future, tells those who wait for several futures.
            if not self.cancelled() or self.set_running_or_notify_cancel():
                end(answer)
        except (concurrent.futures.InvalidStateError, RuntimeError):
            pass  # it was cancelled meanwhile, or its user has ended it

    def _check_answerable(self) -> None:
        if self.done():
            return
        if threading.current_thread().name == _THREAD:
            raise RuntimeError(
                "a future's callback may not wait for another future: it runs in the thread that "
                "answers them all. Use add_done_callback there too"
            )
        if os.getpid() != self._process:
            raise RuntimeError("the future was made before a fork, so it is never answered here")


class Endings:
    """Starts calls, and tells of their ends in a thread of ours. Thread-safe.

    Callbacks in the core's own threads would make those wait for the interpreter.
    """

    def __init__(self, core: Core) -> None:
        """Starts no thread until a call is started."""
        self._core = core
        self._queue = core.queue_new()
        self._options = CallOptions(done=core.post, user=self._queue)
        self._lock = threading.Lock()
        self._running: dict[int, tuple[Handle, OnEnd]] = {}
        self._early: set[int] = set()  # calls that ended before they were known to run
        self._thread: threading.Thread | None = None

    def start(self, begin: Begin, keep: Any, on_end: OnEnd, data_type: int | None = None) -> Handle:
        """Starts a call, keeps `keep` until its end, and then calls `on_end` in a thread of ours."""
        options = CallOptions(done=self._options.done, user=self._options.user)
        if data_type is not None:
            options.has_data_type, options.data_type = 1, data_type
        call: Handle = begin(ctypes.byref(options))
        call.keep = keep
        assert call.value is not None
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._take, name=_THREAD, daemon=True)
                self._thread.start()
            early = call.value in self._early
            if early:
                self._early.remove(call.value)
            else:
                self._running[call.value] = (call, on_end)
        if early:
            on_end(call, self._core.call_wait(call, -1))
        return call

    def _take(self) -> None:
        while True:
            pointer = self._core.queue_take(self._queue, -1)
            with self._lock:
                known = self._running.pop(pointer, None)
                if known is None:
                    self._early.add(pointer)
                    continue
            call, on_end = known
            try:
                on_end(call, self._core.call_wait(call, -1))
            except BaseException:  # a user's callback must not stop the others
                _LOG.exception("a future's callback raised")
            del known, call, on_end  # or they would live until the next call's end


_lock = threading.Lock()


def endings(core: Core) -> Endings:
    """Returns the core's endings, which the first call makes."""
    with _lock:
        if core.endings is None:
            core.endings = Endings(core)
        found: Endings = core.endings
        return found


class StartedCall:
    """A call from before its start to its end.

    There are no cycles of references, so that the call's arrays are freed with the last reference.
    """

    def __init__(
        self,
        calls: AdminCalls,
        core: Core,
        names: Sequence[str],
        data_type: int | None,
        start: Callable[[list[TableShape]], tuple[Begin, Any, Callable[[Handle], Any]]],
    ) -> None:
        self.future: Future[Any] = Future()
        self._calls, self._core, self._names = calls, core, names
        self._data_type, self._start = data_type, start
        self._make: Callable[[Handle], Any] = lambda _: None

    def go_on(self) -> None:
        """Starts the call, or asks for the options of a table first."""
        calls, core = self._calls, self._core
        try:
            known = {name: calls._known_table(name) for name in self._names}
            missing = next((name for name, table in known.items() if table is None), None)
            if missing is not None:
                request = request_text({"table": missing})
                call = endings(core).start(
                    lambda options: core.ask(calls._client, b"DescribeTable", request, -1, options),
                    calls._client,
                    self._described,
                )
            else:
                tables = [table for table in known.values() if table is not None]
                begin, keep, self._make = self._start(tables)
                call = endings(core).start(begin, (keep, calls._client), self._ended, self._data_type)
            self.future.runs_as(call, core.call_cancel)
        except Exception as error:
            self.future.fail(error)
        except BaseException:  # a signal's handler raised, so the caller does not get the future
            self.future.cancel()
            raise

    def _described(self, call: Handle, code: int) -> None:
        if code != OK:
            return self._ended(call, code)
        self.go_on()

    def _ended(self, call: Handle, code: int) -> None:
        if code == OK:
            return self.future.answer(lambda: self._make(call))
        self._calls._forget(self._names)
        self.future.fail(self._core.error_of(call, code))
