"""Pushes in the background: a client's, in the order in which its trainer made them."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger("slotwise")


class Pushes:
    """What a client's torch modules have handed over, and the server has not acknowledged yet.

    A server may apply pushes that are in flight together in any order. So the next push is sent
    when the one before it is acknowledged, whatever tables they are of, and the tables' steps come
    in the order of the trainer's backward passes. A thread sends them; it lives while there are
    any, and a program waits for it as it ends.

    A push that fails is the last: those behind it are dropped, because no plain loop would have
    come to them. The error waits for whoever waits next, is raised once, and then all goes on.

    Pushes of a table are counted from 1: `handed` and `settled` say up to which number they were
    handed over, and up to which they are out of flight, applied or failed.

    Attributes:
        changed: is notified of whatever changes here, and guards it. Its lock is reentrant, so that
            others may keep what goes with it under the same lock.
        states: how often the server was taken to another state, which makes rows that were looked
            up before worthless.

    Thread-safe.
    """

    def __init__(self) -> None:
        """Starts no thread until there is a push."""
        self.changed = threading.Condition()
        self.states = 0
        self._waiting: deque[tuple[tuple[str, ...], Callable[[], object]]] = deque()
        self._handed: Counter[str] = Counter()
        self._settled: Counter[str] = Counter()
        self._error: BaseException | None = None
        self._sender: threading.Thread | None = None  # while there is something to send

    def hand_over(self, tables: Iterable[str], push: Callable[[], object]) -> dict[str, int]:
        """Has `push` called in the background, and returns at once.

        Args:
            tables: those that it pushes to.
            push: sends it and waits for its end. All that it reads is its own.

        Returns:
            The push's number in each table.

        Raises:
            slotwise.Error: an earlier push has failed; this one is not sent.
        """
        with self.changed:
            self.raise_error()
            if self._sender is None:
                # Its first act is to wait for the lock.
                sender = threading.Thread(target=self._send, name="slotwise-pushes")
                sender.start()
                self._sender = sender
            names = tuple(tables)
            self._waiting.append((names, push))
            self._handed.update(names)
            return self.handed(names)

    def handed(self, tables: Iterable[str]) -> dict[str, int]:
        """Returns the number of each table's newest push."""
        with self.changed:
            return {table: self._handed[table] for table in tables}

    def settled(self, tables: Iterable[str]) -> dict[str, int]:
        """Returns, for each table, up to which number its pushes are out of flight."""
        with self.changed:
            return {table: self._settled[table] for table in tables}

    @property
    def failed(self) -> bool:
        """Whether a push has failed whose error nobody has heard of."""
        return self._error is not None

    def raise_error(self) -> None:
        """Raises the error of a push that failed, once."""
        with self.changed:
            error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self, tables: Iterable[str] | None = None) -> None:
        """Returns when nothing is in flight, of some tables or of all.

        Raises:
            slotwise.Error: a push has failed, whichever table it was of.
        """
        sender = self._sender
        if sender is None and self._error is None:
            return  # nothing was handed over that has not ended
        if threading.current_thread() is sender:
            return  # a push that needs another call first
        with self.changed:
            names = self._handed if tables is None else list(tables)
            self.changed.wait_for(
                lambda: self.failed or all(self._settled[t] == self._handed[t] for t in names)
            )
            self.raise_error()

    def wait_quietly(self) -> None:
        """Returns when nothing is in flight, and leaves an error for the next who waits."""
        if threading.current_thread() is self._sender:
            return  # Python ends lost loops in any thread, as garbage
        with self.changed:
            self.changed.wait_for(lambda: self._sender is None)

    @contextmanager
    def around_another_state(self) -> Iterator[None]:
        """Goes around what takes the server to another state."""
        try:
            yield
        finally:
            with self.changed:
                self.states += 1

    def _send(self) -> None:
        while True:
            with self.changed:
                if not self._waiting:
                    self._sender = None
                    self.changed.notify_all()
                    return
                tables, push = self._waiting[0]
            error: BaseException | None = None
            try:
                push()
            except BaseException as raised:
                error = raised
            del push  # or the gradients would live until the next push
            with self.changed:
                self._waiting.popleft()
                self._settled.update(tables)
                if error is not None:
                    self._fail(error)
                self.changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Keeps an error for whoever waits next, and drops what is behind it."""
        self._error = error
        if self._waiting:
            _LOG.warning(
                "a push failed, and those behind it are dropped (%d): %s", len(self._waiting), error
            )
        for tables, _ in self._waiting:
            self._settled.update(tables)
        self._waiting.clear()
