"""The client connects to all ranks of a server."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
from typing import Any

from slotwise import local_server
from slotwise.checkpoint_calls import CheckpointCalls
from slotwise.core import ClientOptions, Core, Handle, core, core_if_loaded, text
from slotwise.credentials import Credentials
from slotwise.embedding_calls import EmbeddingCalls, wire_number
from slotwise.errors import Error, InvalidArgument
from slotwise.rows_calls import RowsCalls
from slotwise.session import Session

_LOG = logging.getLogger("slotwise")

_MOST_CHANNELS = 1024
_TRANSPORTS = {"best": 0, "grpc": 1, "tcp": 2, "shm": 3, "gpu": 4}  # SLOTWISE_TRANSPORT_...


def _transport_of_environment() -> str:
    named = {name: os.environ.get(name) for name in ("SLOTWISE_TRANSPORT", "SLOTWISE_DOOR")}
    given = {value for value in named.values() if value}
    if len(given) > 1:
        raise InvalidArgument(f"two names of one variable differ: {named}: set SLOTWISE_TRANSPORT alone")
    return given.pop() if given else "best"


def connect(
    *addresses: str,
    timeout: float = 30.0,
    channels_per_rank: int = 2,
    wire_dtype: str = "float32",
    session: Session | None = None,
    transport: str | None = None,
    credentials: Credentials | None = None,
    door: str | None = None,
) -> Client:
    """Connects to a server through any of its ranks and learns the others from it.

    Args:
        addresses: host:port of one or more ranks; the port is 7070 if absent. "local" alone means a
            server of this process's own, which the first such call starts: `slotwise.serve`. Under
            torchrun the processes of a host have one, which their first starts.
        timeout: seconds that this and every later call may take, retries included. `connect` waits for a
            server that is still starting.
        channels_per_rank: connections to each rank; large batches are spread over them. With many processors
            and no shared memory, 8 carry a few times as much as 2.
        wire_dtype: the default type of looked-up values and gradients on the wire: "float32", or "float16" or
            "bfloat16", which halve the bytes and round.
        session: the session to go on with after a restart: `Client.resume`. None: a new one.
        transport: how lookups and pushes travel; all give the same bytes. "best": the fastest that there is.
            "gpu": by memory of the GPU that is shared with a server on this host, for tensors of
            `slotwise.torch`'s modules that lie there, or not at all (a server without a GPU shares the host's
            memory instead, and takes tensors that lie there). "shm": by memory that is shared with a server
            on this host, or not at all (`Unavailable`). "tcp": by sockets, to any host. "grpc": for example
            through a proxy that speaks HTTP/2 alone. None: the environment's SLOTWISE_TRANSPORT, or "best".
        credentials: who the client is, and whom it trusts. None: the environment's SLOTWISE_TOKEN_FILE,
            SLOTWISE_CA_FILE, SLOTWISE_CERTIFICATE_FILE, SLOTWISE_KEY_FILE, SLOTWISE_SERVER_NAME and
            SLOTWISE_INSECURE ("1").
        door: `transport`'s name in 0.1, as SLOTWISE_DOOR is SLOTWISE_TRANSPORT's.

    Raises:
        Unavailable, DeadlineExceeded: no address answered within `timeout`.
        FailedPrecondition: the server has forgotten `session`.
        InvalidArgument: a file of `credentials` is not right, or the token would travel unencrypted.
        Unauthenticated: the server does not know who calls.
    """
    if not addresses:
        raise InvalidArgument("connect() takes an address, host:port")
    if not timeout > 0:
        raise InvalidArgument(f"timeout is {timeout}, not above 0")
    if not 1 <= channels_per_rank <= _MOST_CHANNELS:
        raise InvalidArgument(f"channels_per_rank is {channels_per_rank}, not 1 to {_MOST_CHANNELS}")
    if transport is not None and door is not None:
        raise InvalidArgument("transport and door are two names of one argument: give transport alone")
    transport = transport if transport is not None else door
    if transport is None:
        transport = _transport_of_environment()
    if transport not in _TRANSPORTS:
        raise InvalidArgument(f"transport is {transport!r}, none of {', '.join(_TRANSPORTS)}")
    if addresses == ("local",):
        addresses = (local_server.shared_address(timeout, connect),)
        credentials = Credentials()  # that server asks for none, whatever the environment has for others
    native = core()
    seeds = (ctypes.c_char_p * len(addresses))(*map(text, addresses))
    options = ClientOptions(
        timeout_ms=max(1, round(min(timeout, 1e9) * 1000)),
        channels_per_rank=channels_per_rank,
        data_type=wire_number(wire_dtype),
        transport=_TRANSPORTS[transport],
        log=native.log_line,
        credentials=None if credentials is None else ctypes.pointer(credentials.native()),
    )
    call = native.finish(native.connect(seeds, len(seeds), ctypes.byref(options), None))
    client = Client(native, native.call_client(call), addresses)
    client._transport, client._wire_dtype = transport, wire_dtype
    if session is not None:
        try:
            client.resume(session)
        except BaseException:
            client.close()
            raise
    return client


class Client(EmbeddingCalls, RowsCalls, CheckpointCalls):
    """A connection to a server's ranks, made by `slotwise.connect`.

    Thread-safe: any number of threads may look up and push at once. gRPC does not survive a fork: in a
    process forked from one that had connected, every call and `connect` raise FailedPrecondition. Connect
    after the fork, or start processes (a `DataLoader`'s workers) by "spawn". The client is a context manager
    that closes itself, as the end of the program does.

    Attributes:
        session: the session that names the steps of pushes that name none; `resume` sets another.

    Every method raises `slotwise.Error` or one of its subclasses: `DeadlineExceeded` or `Unavailable` if no
    answer came within the timeout, `FailedPrecondition` if the client is closed. The methods name other
    errors. A signal's handler that raises, as for Ctrl-C, ends the call that the main thread is in.
    """

    def __init__(self, native: Core, client: Handle, addresses: tuple[str, ...]) -> None:
        """Is called by `connect`."""
        super().__init__(native, client)
        self._addresses = addresses
        native.clients.add(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except Error as error:
            if kind is None:
                raise
            _LOG.error("a push in the background failed: %s", error)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Refuses copies and pickles, which would have no connections."""
        addresses = ", ".join(map(repr, self._addresses))
        raise TypeError(
            f"a slotwise.Client cannot be copied or pickled, because it holds connections: call "
            f"slotwise.connect({addresses}) where you need one; for a model that has it, "
            f"slotwise.torch.save saves the model, and slotwise.torch.export_module makes a plain copy"
        )

    def __repr__(self) -> str:
        return f"<slotwise.Client of {', '.join(self._addresses)}>"

    def close(self) -> None:
        """Closes the connections; calls in flight in other threads raise. Closing again is harmless.

        `close` first waits for pushes that `slotwise.torch` has in the background. Their error, if it was not
        raised yet, is raised when the connections are closed.
        """
        if self._core.inherited:
            return
        try:
            self._pushes.wait()
        finally:
            self._core.client_close(self._client)


@atexit.register
def _close_all() -> None:
    """Ends what is in flight, so that the core's threads are idle when the interpreter goes."""
    native = core_if_loaded()
    for client in list(native.clients) if native is not None else []:
        try:
            client.close()
        except Error as error:
            _LOG.error("a push in the background failed: %s", error)
