"""Pushes in the background: a client's, in the order in which its trainer made them."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_LOG = logging.getLogger("slotwise")


@dataclass(frozen=True)
class _Waiting:
    """A push to some tables that the thread sends, with its number among all that were handed over."""

    number: int
    tables: tuple[str, ...]
    push: Callable[[], object]


@dataclass(frozen=True)
class _Begun:
    """A push that is under way without a thread.

    Attributes:
        started: the push, as `under_way` returns it.
        wait: returns when the push has ended. Calling it again is harmless.
        finish: does what the push's end asks for, or raises its error. After an interrupt it is called again.
    """

    tables: tuple[str, ...]
    started: Any
    wait: Callable[[], object]
    finish: Callable[[], object]


class _Inside(threading.local):
    """Whether this thread is in `_Begun.finish`."""

    active = False


class Pushes:
    """The pushes that a client's torch modules have handed over and the server has not acknowledged.

    The tables' steps come in the order of the trainer's backward passes. A server may apply pushes that
    are in flight together in any order, so each push is sent when the push before is acknowledged,
    whatever tables they are of. A thread sends the pushes. The thread lives while there are any, and a
    program waits for it as it ends.

    When a push fails, the pushes behind it are dropped, because no plain loop would have come to them. The
    next wait raises the error, once, and then all goes on.

    A push by a GPU's memory needs no thread: it is under way when it is handed over, and a wait ends it. Such
    a push is alone: where others are in flight, or an iteration of `Prefetch` waits by `changed` (`watch`),
    the push goes by the thread.

    Pushes of a table are counted from 1: `handed` and `settled` say up to which number they were handed
    over, and up to which they are out of flight, applied or failed.

    The trainer's thread may be interrupted anywhere, as by Ctrl-C, and go on. So the thread makes each change
    by one assignment or one call of C's, and all else follows from that: a push is in flight while it stands
    in `_waiting` or in `_begun`. A wait that was interrupted has changed nothing.

    Attributes:
        lock: guards all of it, and is reentrant, so that callers may guard their own state with it. Only
            `with lock` takes the lock without a gap in which an interrupt would leave it taken, and only if
            no call is the last thing in the body: CPython's with has a gap behind `return call()`.
        changed: is notified of every change.
        states: how often the server was taken to another state, which makes earlier lookups' rows worthless.

    Thread-safe. In a forked process nothing is in flight.
    """

    def __init__(self) -> None:
        """Starts no thread until there is a push."""
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.states = 0
        self._process = os.getpid()
        self._numbers = itertools.count(1)
        self._waiting: deque[_Waiting] = deque()  # with the one that is being sent
        self._dropped = 0  # pushes up to this number are not sent
        self._sent: Counter[str] = Counter()  # of each table, how many the thread is done with
        self._error: BaseException | None = None
        self._sender: threading.Thread | None = None  # sets itself
        # The one under way, and of each table how many such have ended.
        self._begun: tuple[_Begun | None, Counter[str]] = (None, Counter())
        self._ending = threading.RLock()  # taken before `lock`, to wait for that push's end
        self._inside = _Inside()
        self._watchers = 0

    def hand_over(self, tables: Iterable[str], push: Callable[[], object]) -> dict[str, int]:
        """Has `push` called in the background, and returns at once.

        Args:
            tables: the tables that it pushes to.
            push: sends the gradients and waits for the end. Nothing else changes what `push` reads.

        Returns:
            The push's number in each table.

        Raises:
            slotwise.Error: an earlier push has failed; this one is not sent.
        """
        with self.lock:
            self.raise_error()
            names = tuple(tables)
            self._waiting.append(_Waiting(next(self._numbers), names, push))
            try:
                self._have_sender()
            except RuntimeError:  # there is no thread to be had
                self._waiting.pop()
                raise
            numbers = self.handed(names)
        return numbers

    def is_idle(self) -> bool:
        """Whether nothing is in flight or watched; raises a push's error. REQUIRES: `lock` is held."""
        self.raise_error()
        return not self._waiting and self._begun[0] is None and self._watchers == 0

    def begin(
        self, tables: Iterable[str], started: Any, wait: Callable[[], object], finish: Callable[[], object]
    ) -> None:
        """Takes a push that is under way: `_Begun`. REQUIRES: `lock` is held, and `is_idle`."""
        self._begun = (_Begun(tuple(tables), started, wait, finish), self._begun[1])

    def under_way(self, tables: Iterable[str]) -> Any:
        """Returns the push that is under way, if no other push of these tables is in flight; else None."""
        with self.lock:
            begun = self._begun[0]
            if begun is None or self._waiting or not set(begun.tables) & set(tables):
                return None
            return begun.started

    def watch(self) -> None:
        """Has all pushes end by themselves until `stop_watching`, for a caller that waits by `changed`."""
        with self.lock:
            self._watchers += 1
        self._end_begun()

    def stop_watching(self) -> None:
        """Ends what `watch` began."""
        with self.lock:
            self._watchers -= 1

    def handed(self, tables: Iterable[str]) -> dict[str, int]:
        """Returns the number of each table's newest push."""
        with self.lock:
            in_flight = Counter(name for each in self._waiting for name in each.tables)
            if self._begun[0] is not None:
                in_flight.update(self._begun[0].tables)
            numbers = {table: self._count(table) + in_flight[table] for table in tables}
        return numbers

    def settled(self, tables: Iterable[str]) -> dict[str, int]:
        """Returns, for each table, up to which number its pushes are out of flight."""
        with self.lock:
            numbers = {table: self._count(table) for table in tables}
        return numbers

    @property
    def failed(self) -> bool:
        """Whether a push has failed and its error was not raised yet."""
        return self._error is not None

    def raise_error(self) -> None:
        """Raises the error of a push that failed, once."""
        with self.lock:
            error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self, tables: Iterable[str] | None = None) -> None:
        """Returns when nothing of some tables, or of all, is in flight; raises any push's error."""
        if not self._waiting and self._begun[0] is None and self._error is None:
            return
        if self._is_not_mine():
            return
        self._wait(None if tables is None else set(tables), raises=True)

    def wait_quietly(self) -> None:
        """Returns when nothing is in flight, and leaves an error for the next wait."""
        if not self._is_not_mine():  # Python ends lost loops in any thread, as garbage
            self._wait(None, raises=False)

    @contextmanager
    def around_another_state(self) -> Iterator[None]:
        """Goes around a call that takes the server to another state."""
        try:
            yield
        finally:
            with self.lock:
                self.states += 1

    def _is_not_mine(self) -> bool:
        """Whether this thread is a push's own, which needs another call first, or another process's."""
        this = threading.current_thread()
        return this is self._sender or self._inside.active or os.getpid() != self._process

    def _wait(self, tables: set[str] | None, raises: bool) -> None:
        def has_begun() -> bool:
            begun = self._begun[0]
            return begun is not None and (tables is None or not tables.isdisjoint(begun.tables))

        def is_over() -> bool:
            waits = any(tables is None or not tables.isdisjoint(each.tables) for each in self._waiting)
            return not waits and not has_begun()

        while True:
            if has_begun():
                self._end_begun()
            with self.lock:
                self._have_sender()
                self.changed.wait_for(lambda: (raises and self.failed) or has_begun() or is_over())
                if raises:
                    self.raise_error()
                if is_over():
                    return

    def _count(self, table: str) -> int:
        return self._sent[table] + self._begun[1][table]

    def _have_sender(self) -> None:
        """Starts the thread if one is needed. REQUIRES: `lock` is held, for which the thread waits first."""
        if self._waiting and self._sender is None:
            threading.Thread(target=self._send, name="slotwise-pushes").start()

    def _end_begun(self) -> None:
        """Waits for the push that is under way."""
        with self._ending:
            begun, ended = self._begun
            if begun is None or self._inside.active:
                return
            begun.wait()
            error: Exception | None = None
            try:
                self._inside.active = True
                begun.finish()
            except Exception as raised:  # an interrupt leaves it under way
                error = raised
            finally:
                self._inside.active = False
            with self.lock:
                if error is not None:
                    self._fail(error)
                self._begun = (None, ended + Counter(begun.tables))
                self.changed.notify_all()

    def _send(self) -> None:
        with self.lock:
            if self._sender is not None:
                return  # a start that was interrupted left two
            self._sender = threading.current_thread()
        while True:
            self._end_begun()
            with self.lock:
                if self._waiting and self._begun[0] is not None:
                    continue
                while self._waiting and self._waiting[0].number <= self._dropped:
                    self._sent.update(self._waiting.popleft().tables)
                self.changed.notify_all()
                if not self._waiting:
                    self._sender = None
                    return
                push = self._waiting[0].push
            error: BaseException | None = None
            try:
                push()
            except BaseException as raised:
                error = raised
            del push  # or the gradients would live until the next push
            with self.lock:
                self._sent.update(self._waiting.popleft().tables)
                if error is not None:
                    self._fail(error)
                self.changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Keeps an error for the next wait, and has the pushes behind it dropped."""
        if self._waiting:
            _LOG.warning("a push failed, and those behind it are dropped (%d): %s", len(self._waiting), error)
            self._dropped = self._waiting[-1].number
        self._error = error
