"""The client: a connection to all ranks of a server."""

from __future__ import annotations

from slotwise import halves
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
        addresses: host:port of one or more ranks; without a port, 7070.
        timeout: seconds that this and every later call may take, retries included. A server that is
            still starting is waited for.
        channels_per_rank: connections to each rank; large batches are spread over them.
        wire_dtype: how looked-up values and gradients travel, where a call does not say: "float32",
            or "float16" or "bfloat16", which are half the bytes and rounded.

    Raises:
        Unavailable, DeadlineExceeded: nobody answered at any address within `timeout`.
    """
    if not addresses or not timeout > 0 or channels_per_rank < 1:
        raise InvalidArgument(
            "connect() takes an address, a timeout above 0 and at least 1 channel a rank"
        )
    halves.number(wire_dtype)  # that there is one
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
    """A connection to a server's ranks; made by `slotwise.connect`.

    Thread-safe: any number of threads may look up and push at once. Not usable after a fork:
    connect in the child (as in a `DataLoader` worker), or use the "spawn" start method. A context
    manager that closes itself.

    Attributes:
        session: names the steps of pushes that name none.

    Every method raises `slotwise.Error` or one of its subclasses: `DeadlineExceeded` or
    `Unavailable` if there was no answer within the timeout, `FailedPrecondition` if the client is
    closed; the methods name others.
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
