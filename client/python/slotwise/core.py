"""The client's core: libslotwise.so, by ctypes. include/slotwise/slotwise.h documents its functions.

The core waits, retries, cuts and converts without the interpreter's lock. Every function that talks to a
server starts a call, which ends once. A call's arrays must live until the end, so `keep` holds them, and a
call's handle ends the call before it goes.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slotwise import programs
from slotwise.errors import Error, InvalidArgument, from_code

_LOG = logging.getLogger("slotwise")

_ABI = 7
RUNNING, OK = -1, 0
TRAIN, EVAL = 0, 1
UINT32, INT64 = 0, 1
# The main thread looks for signals between waits of this many milliseconds.
SLICE_MS = 50


class CallOptions(ctypes.Structure):
    """slotwise_call_options."""

    _fields_ = (
        ("timeout_ms", ctypes.c_int64),
        ("has_data_type", ctypes.c_int32),
        ("data_type", ctypes.c_int32),
        ("done", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
    )


class CredentialFiles(ctypes.Structure):
    """slotwise_credentials."""

    _fields_ = (
        ("token_file", ctypes.c_char_p),
        ("ca_file", ctypes.c_char_p),
        ("certificate_file", ctypes.c_char_p),
        ("key_file", ctypes.c_char_p),
        ("server_name", ctypes.c_char_p),
        ("insecure", ctypes.c_int32),
    )


class ClientOptions(ctypes.Structure):
    """slotwise_client_options."""

    _fields_ = (
        ("timeout_ms", ctypes.c_int64),
        ("channels_per_rank", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("data_type", ctypes.c_int32),
        ("transport", ctypes.c_int32),
        ("log", ctypes.c_void_p),
        ("log_user", ctypes.c_void_p),
        ("credentials", ctypes.POINTER(CredentialFiles)),
    )


class Batch(ctypes.Structure):
    """slotwise_batch: bags of keys of one table.

    Attributes:
        shape: the shape of a lookup's result.
        keep: the arrays that the batch points to, which are not copied.
    """

    shape: tuple[int, ...] = ()
    keep: tuple[Any, ...] = ()
    _fields_ = (
        ("table", ctypes.c_char_p),
        ("keys", ctypes.c_void_p),
        ("keys_count", ctypes.c_size_t),
        ("offsets", ctypes.c_void_p),
        ("offsets_count", ctypes.c_size_t),
        ("offsets_type", ctypes.c_int32),
        ("weights", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("values_count", ctypes.c_size_t),
    )

    def set_values(self, values: Any, address: int, count: int) -> Batch:
        """Points to a lookup's result, or to gradients, and returns the batch."""
        self.values, self.values_count = address, count
        self.keep = (*self.keep, values)
        return self


class TableShape(ctypes.Structure):
    """slotwise_table, with the table's name: the options that decide the shapes of arrays."""

    name: str = ""
    _fields_ = (("dim", ctypes.c_uint32), ("slots", ctypes.c_uint32), ("pools", ctypes.c_int32))

    @property
    def width(self) -> int:
        """Elements a sample: slots * dim."""
        return int(self.slots * self.dim)


class Gpu(ctypes.Structure):
    """slotwise_gpu."""

    _fields_ = (("name", ctypes.c_char_p), ("stream", ctypes.c_void_p))


class LookedUp(ctypes.Structure):
    """slotwise_looked_up."""

    _fields_ = (("generation", ctypes.c_uint64), ("table_step", ctypes.c_uint64))


class NamedStep(ctypes.Structure):
    """slotwise_step."""

    _fields_ = (
        ("session", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("trainer", ctypes.c_uint32),
        ("trainers", ctypes.c_uint32),
        ("parts", ctypes.c_uint32),
        ("epoch", ctypes.c_uint64),
    )


class RowsView(ctypes.Structure):
    """slotwise_rows_view."""

    _fields_ = (
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("rows", ctypes.c_size_t),
        ("dim", ctypes.c_size_t),
        ("state_size", ctypes.c_size_t),
    )


class Handle(ctypes.c_void_p):
    """An object of the core's, which is freed with the handle."""

    keep: Any = None


class _Log:
    """Passes the core's lines to the logger in a thread of ours.

    A handler of the user's may take its time, and may use the client: the core's threads must do neither.
    """

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, _: Any, line: bytes) -> None:
        """Runs in the core's threads."""
        if not _LOG.isEnabledFor(logging.INFO):
            return
        self._lines.put(line.decode(errors="replace"))
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._tell, name="slotwise-log", daemon=True)
                self._thread.start()

    def _tell(self) -> None:
        while True:
            _LOG.info("%s", self._lines.get())


_log = _Log()
_log_line = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)(_log.add)  # as long as the core


class Core:
    """The core in this process. Thread-safe; a forked child loads its own."""

    def __init__(self, path: Path) -> None:
        """Loads the library; ImportError if it does not load, or is another version's."""
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise ImportError(f"slotwise's core does not load: {error}") from None
        self.inherited = False  # True in a forked child, which must leave its parent's things alone
        self.Call = self._handle("slotwise_call_free")
        self.Client = self._handle("slotwise_client_free")
        self.Rows = self._handle("slotwise_rows_free")
        self._declare()
        abi = self.library.slotwise_abi()
        if abi != _ABI:
            raise ImportError(f"{path} has the interface {abi}, and this slotwise wants {_ABI}")
        self.log_line = ctypes.cast(_log_line, ctypes.c_void_p).value
        self.post = ctypes.cast(self.library.slotwise_queue_post, ctypes.c_void_p).value
        self.clients: weakref.WeakSet[Any] = weakref.WeakSet()  # to close at the program's end
        self.endings: Any = None  # slotwise.futures.Endings, once a call is started there

    def _handle(self, free: str) -> type[Handle]:
        """Returns a class of handles that `free` frees."""
        core, function = self, self.library[free]
        function.argtypes, function.restype = [ctypes.c_void_p], None

        class Owned(Handle):
            def __del__(self) -> None:
                if self.value and not core.inherited:
                    function(self)

        return Owned

    def _declare(self) -> None:
        pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        i32, i64, u64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
        options = ctypes.POINTER(CallOptions)
        batches = ctypes.POINTER(Batch)
        view = ctypes.POINTER(RowsView)
        call, step = self.Call, ctypes.POINTER(NamedStep)
        gpu, looked_up = ctypes.POINTER(Gpu), ctypes.POINTER(LookedUp)
        rates = ctypes.POINTER(ctypes.c_float)
        # For each function, what it returns and takes: core.lookup() is slotwise_lookup(), and so on.
        functions: dict[str, tuple[Any, list[Any]]] = {
            "abi": (i32, []),
            "version": (text, []),
            "set_traceparent": (None, [text]),
            "call_wait": (i32, [pointer, i64]),
            "call_cancel": (None, [pointer]),
            "call_message": (text, [pointer]),
            "call_retry_after_ms": (i64, [pointer]),
            "call_reason": (text, [pointer]),
            "call_json": (text, [pointer]),
            "call_numbers": (ctypes.POINTER(u64), [pointer, ctypes.POINTER(size)]),
            "call_client": (self.Client, [pointer]),
            "queue_new": (pointer, []),
            "queue_take": (pointer, [pointer, i64]),
            "connect": (call, [ctypes.POINTER(text), size, ctypes.POINTER(ClientOptions), options]),
            "client_close": (None, [pointer]),
            "client_epoch": (u64, [pointer]),
            "client_session": (u64, [pointer]),
            "client_next_step": (None, [pointer, step]),
            "ask": (call, [pointer, text, text, i32, options]),
            "client_table": (i32, [pointer, text, ctypes.POINTER(TableShape)]),
            "client_forget_table": (None, [pointer, text]),
            "lookup": (call, [pointer, batches, size, i32, gpu, pointer, options]),
            "push": (call, [pointer, batches, size, looked_up, rates, step, gpu, options]),
            "client_looked_up": (None, [pointer, text, looked_up]),
            "client_gpus": (size, [pointer, ctypes.c_char_p, size]),
            "call_has_arrays": (i32, [pointer]),
            "call_dlpack": (pointer, [pointer, size, i32, i32, ctypes.POINTER(i64), size]),
            "dlpack_free": (None, [pointer]),
            "import": (call, [pointer, text, view, u64, options]),
            "erase": (call, [pointer, text, pointer, size, options]),
            "export": (self.Rows, [pointer, text, i32, pointer, size, options]),
            "rows_next": (i32, [pointer, i64, view]),
            "rows_message": (text, [pointer]),
            "rows_retry_after_ms": (i64, [pointer]),
            "rows_reason": (text, [pointer]),
            "hash_ids": (None, [text, ctypes.POINTER(u64), size, u64, ctypes.POINTER(u64)]),
        }
        for name, (result, arguments) in functions.items():
            function = self.library[f"slotwise_{name}"]
            function.restype, function.argtypes = result, arguments
            setattr(self, {"import": "import_rows"}.get(name, name), function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Tells mypy that `_declare` sets functions."""
        raise AttributeError(f"slotwise_{name} is no function of the core's")

    def finish(self, call: Handle, keep: Any = None) -> Handle:
        """Waits until a call has ended, and returns it, or raises the error that ended it.

        If a signal's handler raises meanwhile, as for Ctrl-C, the call is cancelled.

        Args:
            keep: the objects that must live until the call has ended.
        """
        try:
            call.keep = keep
            code = self.wait_for(call)
        except BaseException:
            self.end(call)
            raise
        if code != OK:
            raise self.error_of(call, code)
        return call

    def wait_for(self, call: Handle) -> int:
        """Waits for a call's end, and returns its code. If a signal's handler raises, the call goes on."""
        most = SLICE_MS if threading.current_thread() is threading.main_thread() else -1
        code = int(self.call_wait(call, most))
        while code == RUNNING:
            code = int(self.call_wait(call, most))
        return code

    def end(self, call: Handle) -> None:
        """Cancels a call and waits for its end, which is soon."""
        self.call_cancel(call)
        self.call_wait(call, -1)

    def error_of(self, call: Handle, code: int) -> Error:
        """Returns the exception of a call that has ended with `code`."""
        message = self.call_message(call).decode(errors="replace")
        reason = self.call_reason(call).decode()
        return from_code(code, message, self.call_retry_after_ms(call), reason)

    def json_of(self, call: Handle) -> dict[str, Any]:
        """Returns the message that a call has ended with."""
        message: dict[str, Any] = json.loads(self.call_json(call))
        return message

    def numbers_of(self, call: Handle) -> list[int]:
        """Returns the numbers that a call has ended with."""
        count = ctypes.c_size_t()
        numbers = self.call_numbers(call, ctypes.byref(count))
        return [int(numbers[i]) for i in range(count.value)]


def text(value: str) -> bytes:
    """Returns a text as the core takes it; InvalidArgument if the core cannot."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{value!r} is no text")
    if "\0" in value:
        raise InvalidArgument(f"{value!r} has a character 0")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{value!r} is no text that UTF-8 can write") from None


_lock = threading.Lock()
_core: Core | None = None


def core() -> Core:
    """Returns the core of this process, which the first call loads."""
    global _core
    if _core is None:
        with _lock:
            if _core is None:
                _core = Core(programs.find_core())
    return _core


def core_if_loaded() -> Core | None:
    """Returns the core of this process, or None if nothing has loaded it yet."""
    return _core


def _leave_the_parents_alone() -> None:
    """Runs in a forked child, which leaves the parent's objects alone: their threads are not there."""
    global _core, _lock
    if _core is not None:
        _core.inherited = True
    _core, _lock = None, threading.Lock()
    _log.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_leave_the_parents_alone)
