"""The errors of calls, by the server's status codes."""

from __future__ import annotations

import enum


class StatusCode(enum.IntEnum):
    """Why a call failed; gRPC's names and numbers."""

    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Reason(enum.Enum):
    """Why a call failed, more closely than by its code: programs decide by the reason.

    docs/limits.md explains each. A refusal without a reason, as of a server that is older than reasons, has
    the first reason of its code. `UNSPECIFIED`: this module does not know the core's reason.
    """

    UNSPECIFIED = ""
    INVALID_VALUE = "INVALID_VALUE"
    MALFORMED = "MALFORMED"
    NOT_FOUND = "NOT_FOUND"
    NO_TABLE = "NO_TABLE"
    NO_CHECKPOINT = "NO_CHECKPOINT"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    OTHER_OPTIONS = "OTHER_OPTIONS"
    WRONG_STATE = "WRONG_STATE"
    SESSION_FORGOTTEN = "SESSION_FORGOTTEN"
    STEP_TOO_OLD = "STEP_TOO_OLD"
    STEP_DIFFERS = "STEP_DIFFERS"
    NO_DATA_FOLDER = "NO_DATA_FOLDER"
    CLIENT_CLOSED = "CLIENT_CLOSED"
    OTHER_VERSION = "OTHER_VERSION"
    NO_SHARED_GPU = "NO_SHARED_GPU"
    TABLE_CHANGED = "TABLE_CHANGED"
    NO_ROOM = "NO_ROOM"
    BUSY = "BUSY"
    TABLE_FULL = "TABLE_FULL"
    TOO_LARGE = "TOO_LARGE"
    NO_MEMORY = "NO_MEMORY"
    DISK_FULL = "DISK_FULL"
    TOO_LATE = "TOO_LATE"
    STEP_INCOMPLETE = "STEP_INCOMPLETE"
    NO_ANSWER = "NO_ANSWER"
    STARTING = "STARTING"
    STOPPING = "STOPPING"
    STATE_REPLACED = "STATE_REPLACED"
    JOURNAL_BEHIND = "JOURNAL_BEHIND"
    CANCELLED = "CANCELLED"
    PUSH_BEFORE_FAILED = "PUSH_BEFORE_FAILED"
    UNKNOWN_CALLER = "UNKNOWN_CALLER"
    NO_RIGHT = "NO_RIGHT"
    DAMAGED = "DAMAGED"
    STEPS_LOST = "STEPS_LOST"
    BUG = "BUG"


class Error(Exception):
    """A call failed.

    Attributes:
        reason: why, more closely than by `code`.
        message: one sentence; for bad input it names the field and the value.
        retry_after: of a ResourceExhausted, the seconds after which a busy server has room again; None: the
            same call would be refused again.

    INTERNAL, which has no subclass below, is raised as `Error` itself.
    """

    code: StatusCode = StatusCode.INTERNAL
    first_reason: Reason = Reason.BUG  # of an error that names none

    def __init__(self, message: str, retry_after: float | None = None, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        self.reason = self.first_reason if reason is None else reason


class InvalidArgument(Error, ValueError):
    """The request is malformed; nothing was changed."""

    code = StatusCode.INVALID_ARGUMENT
    first_reason = Reason.INVALID_VALUE


class NotFound(Error):
    """There is no such table, or no such checkpoint."""

    code = StatusCode.NOT_FOUND
    first_reason = Reason.NOT_FOUND


class Unauthenticated(Error):
    """The server does not know who calls: `slotwise.Credentials`."""

    code = StatusCode.UNAUTHENTICATED
    first_reason = Reason.UNKNOWN_CALLER


class PermissionDenied(Error):
    """The server knows who calls, and grants the caller no right to do that; nothing was changed."""

    code = StatusCode.PERMISSION_DENIED
    first_reason = Reason.NO_RIGHT


class AlreadyExists(Error):
    """A table of that name exists with other options."""

    code = StatusCode.ALREADY_EXISTS
    first_reason = Reason.ALREADY_EXISTS


class ResourceExhausted(Error):
    """The table, or the disk for a checkpoint, is full, or the batch or table is too large.

    Or the server stayed too busy, or its journal's disk full, until the timeout: only then `retry_after` says
    when the same call may find room. A refused request has changed nothing. If the client had cut a lookup or
    an import into several requests, the message says how much was done.
    """

    code = StatusCode.RESOURCE_EXHAUSTED
    first_reason = Reason.NO_ROOM


class FailedPrecondition(Error):
    """The step cannot be told from an applied one, or came before with other data.

    Or the client is closed, or of another process; or a call for checkpoints came while another checkpoint
    was written, or to a server without a data folder.
    """

    code = StatusCode.FAILED_PRECONDITION
    first_reason = Reason.WRONG_STATE


class DeadlineExceeded(Error):
    """No answer came in time. A push may have been applied; pushing again with the same step is safe."""

    code = StatusCode.DEADLINE_EXCEEDED
    first_reason = Reason.TOO_LATE


class Unavailable(Error):
    """There was no connection until the timeout, or the server was starting or stopping."""

    code = StatusCode.UNAVAILABLE
    first_reason = Reason.NO_ANSWER


class DataLoss(Error):
    """A checkpoint is damaged; or the table no longer has a step that this client saw acknowledged.

    For a checkpoint, the message names the file. For a table: the server, or the table, was made anew since,
    without those steps. The message names the lost steps and, for a push, the step as which the new table
    has applied it. Every call that had begun before raises; later calls go on with the new table.
    """

    code = StatusCode.DATA_LOSS
    first_reason = Reason.DAMAGED


class Cancelled(Error):
    """The caller cancelled the call. As after DeadlineExceeded, a push may have been applied."""

    code = StatusCode.CANCELLED
    first_reason = Reason.CANCELLED


_BY_CODE: dict[int, type[Error]] = {kind.code: kind for kind in Error.__subclasses__()}


def from_code(code: int, message: str, retry_after_ms: int = 0, reason: str = "") -> Error:
    """Returns the exception for a status code other than OK."""
    known = Reason(reason) if reason in _REASONS else Reason.UNSPECIFIED
    retry_after = retry_after_ms / 1000 if retry_after_ms > 0 else None
    return _BY_CODE.get(code, Error)(message, retry_after, known)


_REASONS = frozenset(reason.value for reason in Reason)
