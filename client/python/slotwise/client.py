"""The client connects to all ranks of a server."""

from __future__ import annotations

from slotwise import halves, local_server
from slotwise.admin_calls import get_topology
from slotwise.embedding_calls import EmbeddingCalls
from slotwise.errors import Error, InvalidArgument, Unavailable
from slotwise.rows_calls import RowsCalls
from slotwise.transport import Transport

_DEFAULT_PORT = 7070


def connect(
    *addresses: str,
    timeout: float = 30.0,
    channels_per_rank: int = 2,
    wire_dtype: str = "float32",
) -> Client:
    """Connects to a server through any of its ranks and learns the others from it.

    Args:
        addresses: host:port of one or more ranks; the port is 7070 if absent. "local" alone means a
            server of this process's own, which the first such call starts: `slotwise.serve`.
        timeout: seconds that this and every later call may take, retries included. `connect` waits
            for a server that is still starting.
        channels_per_rank: connections to each rank; large batches are spread over them.
        wire_dtype: the type that looked-up values and gradients have on the wire, if a call does
            not say: "float32", or "float16" or "bfloat16", which halve the bytes and round.

    Raises:
        Unavailable, DeadlineExceeded: nobody answered at any address within `timeout`.
    """
    if not addresses or not timeout > 0 or channels_per_rank < 1:
        raise InvalidArgument(
            "connect() takes an address, a timeout above 0 and at least 1 channel a rank"
        )
    halves.number(wire_dtype)  # raises if there is no such type
    if addresses == ("local",):
        addresses = (local_server.shared_server().address,)
    seeds = [address if ":" in address else f"{address}:{_DEFAULT_PORT}" for address in addresses]
    transport = Transport(seeds, 1, timeout)
    try:
        topology = get_topology(transport)
    except Error as error:
        raise type(error)(f"cannot connect: {error.message}", error.code) from None
    finally:
        transport.close()
    if not topology.ranks:
        raise Unavailable(f"cannot connect: {', '.join(seeds)} names no ranks")
    transport = Transport([rank.address for rank in topology.ranks], channels_per_rank, timeout)
    return Client(transport, topology.max_message_bytes, wire_dtype)


class Client(EmbeddingCalls, RowsCalls):
    """A connection to a server's ranks, made by `slotwise.connect`.

    Thread-safe: any number of threads may look up and push at once. A forked process cannot use its
    parent's client: connect in the child (as in a `DataLoader` worker), or use the "spawn" start
    method. The client is a context manager that closes itself.

    Attributes:
        session: the session that names the steps of pushes that name none.

    Every method raises `slotwise.Error` or one of its subclasses: `DeadlineExceeded` or
    `Unavailable` if no answer came within the timeout, `FailedPrecondition` if the client is
    closed. The methods name other errors.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<slotwise.Client of {', '.join(self._transport.addresses)}>"

    def close(self) -> None:
        """Closes the connections; calls in flight in other threads raise."""
        self._transport.close()
