"""The errors of calls, by the server's status codes."""

from __future__ import annotations

import grpc


class Error(Exception):
    """A call failed.

    Attributes:
        code: the gRPC status code.
        message: one sentence; for bad input it names the field and the value.

    Codes without a subclass below (INTERNAL, UNIMPLEMENTED, ...) are raised as `Error` itself.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class InvalidArgument(Error, ValueError):
    """The request is malformed; nothing was changed."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(Error):
    """There is no such table."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(Error):
    """A table of that name exists with other options."""

    code = grpc.StatusCode.ALREADY_EXISTS


class ResourceExhausted(Error):
    """The table is full, or the batch or table is too large; nothing was changed."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class FailedPrecondition(Error):
    """The step is too old to be told apart, or the client is closed or of another process."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class DeadlineExceeded(Error):
    """No answer came in time.

    The caller does not know whether a push was applied; pushing again with the same step is safe.
    """

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Unavailable(Error):
    """There was no connection until the timeout, or the server stayed too busy."""

    code = grpc.StatusCode.UNAVAILABLE


_BY_CODE: dict[grpc.StatusCode, type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        ResourceExhausted,
        FailedPrecondition,
        DeadlineExceeded,
        Unavailable,
    )
}


def from_status(code: grpc.StatusCode, message: str) -> Error:
    """Returns the exception for a status code other than OK."""
    return _BY_CODE.get(code, Error)(message, code)
