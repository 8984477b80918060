"""A call that does not wait: started when its tables' options are known, and answered by a future."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slotwise.admin_calls import AdminCalls, request_text
from slotwise.batch import TableShape
from slotwise.core import OK, Core, Handle
from slotwise.futures import Future, endings

# Starts a call with the options given, and returns its handle.
Begin = Callable[[Any], Any]


class StartedCall:
    """A call on its way to being started, and then to its end.

    Nothing that lives as long as the call's arrays refers to itself here, so that they go when the
    last reference goes, and not when Python next looks for cycles.
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
                    lambda options: core.ask(
                        calls._client, b"DescribeTable", request, -1, options
                    ),
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
        except BaseException:  # a signal's handler raised, so nobody gets the future
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
