"""A call that does not wait: started when its tables' options are known, and answered by a future."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slotwise.admin_calls import AdminCalls
from slotwise.core import OK, Core, Handle, text
from slotwise.futures import Future, endings
from slotwise.options import TableOptions, info_from_json

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
        start: Callable[[list[TableOptions]], tuple[Begin, Any, Callable[[Handle], Any]]],
    ) -> None:
        self.future: Future[Any] = Future()
        self._calls, self._core, self._names = calls, core, names
        self._data_type, self._start = data_type, start
        self._make: Callable[[Handle], Any] = lambda _: None

    def go_on(self) -> None:
        """Starts the call, or asks for the options of a table first."""
        calls, core = self._calls, self._core
        try:
            missing = next((name for name in self._names if name not in calls._options), None)
            if missing is not None:
                name = text(missing)
                call = endings(core).start(
                    lambda options: core.describe_table(calls._client, name, options),
                    calls._client,
                    self._described,
                )
            else:
                tables = [calls._options[name] for name in self._names]
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
        try:
            self._calls._remember(info_from_json(self._core.json_of(call)).options)
        except Exception as error:
            return self.future.fail(error)
        self.go_on()

    def _ended(self, call: Handle, code: int) -> None:
        if code == OK:
            return self.future.answer(lambda: self._make(call))
        self._calls._forget(self._names)
        self.future.fail(self._core.error_of(call, code))
