"""Channels to every rank, and calls that are tried again until an answer or the timeout."""

from __future__ import annotations

import heapq
import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import grpc

from slotwise.errors import Error, FailedPrecondition, from_status

_LOG = logging.getLogger("slotwise")

_CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Every channel has a connection of its own, because gRPC gives one connection about one core.
    ("grpc.use_local_subchannel_pool", 1),
    # A trainer is near its servers, so it ignores a web proxy that happens to be configured.
    ("grpc.enable_http_proxy", 0),
    # Reconnect soon after a server restarts; gRPC's own backoff grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 3000),  # in fact bounds how long one connect() may take
    ("grpc.max_reconnect_backoff_ms", 1000),
]

# Every method is safe to send again: a second lookup changes nothing that the first did not, a push
# carries its step, and the control calls are idempotent. With time left, DEADLINE_EXCEEDED says
# that the server dropped a step because a part was missing; CANCELLED says that a connection broke.
_TRY_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.05, 2.0  # seconds


@dataclass(frozen=True)
class Call:
    """One request: `method` is "Service/Method"; the first try goes to `rank` and `channel`."""

    method: str
    request: bytes
    rank: int = 0
    channel: int = 0


class Transport:
    """Several channels to each of several ranks. Thread-safe; a forked child cannot use it."""

    def __init__(self, addresses: Sequence[str], channels_per_rank: int, timeout: float) -> None:
        """Makes channels, which connect lazily.

        Args:
            addresses: host:port of each rank.
            timeout: seconds that a call may take, all tries and waits together.
        """
        self.addresses = tuple(addresses)
        self.channels_per_rank = channels_per_rank
        self.timeout = timeout
        self._channels = [
            [
                grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
                for _ in range(channels_per_rank)
            ]
            for address in self.addresses
        ]
        self._process = os.getpid()
        self._closed = False

    def close(self) -> None:
        """Closes all connections; calls in flight raise. Closing again is harmless."""
        self._closed = True
        for channels in self._channels:
            for channel in channels:
                channel.close()

    def call(self, call: Call) -> bytes:
        """Makes one call and returns its reply."""
        replies: list[bytes] = []
        self.run([call], lambda _, reply: replies.append(reply))
        return replies[0]

    def run(self, calls: Sequence[Call], on_reply: Callable[[int, bytes], None]) -> None:
        """Sends all calls at once; passes every reply to `on_reply(index, reply)`, in this thread.

        If a call's rank is gone or too busy, the call is sent to the next rank, after a growing,
        random wait. If a call fails for good, the others are cancelled and its error is raised.
        """
        _Run(self, calls, on_reply).finish()

    def stream(self, method: str, requests: Sequence[bytes]) -> Iterator[bytes]:
        """Sends `requests[rank]` to every rank at once; yields all replies as they come.

        Each rank's stream is of that rank's rows alone, so a stream never goes to another rank. A
        stream that cannot begin is tried again; a stream that breaks later raises. The timeout is
        for each reply, not for the whole.
        """
        return Stream(self, method, requests).replies()

    def check_usable(self) -> None:
        """Raises FailedPrecondition if closed, or in a process that did not connect."""
        if self._closed:
            raise FailedPrecondition("the client is closed")
        if os.getpid() != self._process:
            raise FailedPrecondition(
                "gRPC does not survive a fork: call slotwise.connect() in the child"
            )

    def channel(self, call: Call, attempt: int) -> grpc.Channel:
        """Returns a call's channel; each attempt goes to the rank after the last attempt's."""
        self.check_usable()
        channels = self._channels[(call.rank + attempt) % len(self._channels)]
        return channels[call.channel % len(channels)]


class Stream:
    """Makes one server-streaming call to each rank, which a thread each reads.

    The threads read a few replies ahead; then a rank waits until the caller takes them.
    """

    _AHEAD = 2  # replies for each rank

    def __init__(self, transport: Transport, method: str, requests: Sequence[bytes]) -> None:
        self._transport = transport
        self._method = method
        self._requests = requests
        # Holds replies, errors, and None at a stream's end.
        self._read: queue.Queue[bytes | Error | None] = queue.Queue(self._AHEAD * len(requests))
        self._flights: dict[int, grpc.Call] = {}
        self._stopped = threading.Event()

    def replies(self) -> Iterator[bytes]:
        """Yields replies in the order in which they come; ends all calls when the caller leaves."""
        self._transport.check_usable()
        threads = [
            threading.Thread(target=self._read_rank, args=(rank,), daemon=True)
            for rank in range(len(self._requests))
        ]
        for thread in threads:
            thread.start()
        try:
            left = len(threads)
            while left:
                try:
                    got = self._read.get(timeout=self._transport.timeout)
                except queue.Empty:
                    code = grpc.StatusCode.DEADLINE_EXCEEDED
                    raise self._error(code, "no rank sent anything", "a rank") from None
                if isinstance(got, Error):
                    raise got
                if got is None:
                    left -= 1
                else:
                    yield got
        finally:
            self._stopped.set()
            for flight in list(self._flights.values()):
                flight.cancel()

    def _read_rank(self, rank: int) -> None:
        """Runs in a thread of its own: puts a rank's replies into the queue."""
        try:
            self._put(self._read_until_broken(rank))
        except (Error, ValueError) as error:  # gRPC raises ValueError for a channel just closed
            self._put(error if isinstance(error, Error) else FailedPrecondition(str(error)))

    def _read_until_broken(self, rank: int) -> Error | None:
        """Puts a rank's replies into the queue; returns an error if one came before their end."""
        deadline = time.monotonic() + self._transport.timeout
        call = Call(self._method, self._requests[rank], rank)
        began, attempts = False, 0
        while not self._stopped.is_set():
            channel = self._transport.channel(call, 0)
            flight = channel.unary_stream(f"/slotwise.v1.{self._method}")(call.request)
            self._flights[rank] = flight
            if self._stopped.is_set():  # the stop came before it could see this call
                flight.cancel()
            try:
                for reply in flight:
                    began = True
                    self._put(reply)
                return None
            except grpc.RpcError as error:
                code, details = error.code(), error.details() or ""
            self._transport.check_usable()
            attempts += 1
            backoff = _backoff(attempts)
            late = time.monotonic() + backoff >= deadline
            if began or late or code not in _TRY_AGAIN:
                return self._error(code, details, self._transport.addresses[rank])
            self._stopped.wait(backoff)
        return None

    def _put(self, item: bytes | Error | None) -> None:
        """Waits for room in the queue, unless nobody takes anything any more."""
        while not self._stopped.is_set():
            try:
                self._read.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def _error(self, code: grpc.StatusCode, details: str, address: str) -> Error:
        return _error(code, details, address, self._transport.timeout)


class _Run:
    """The calls of one `Transport.run`, from their first sending to the last reply."""

    def __init__(
        self, transport: Transport, calls: Sequence[Call], on_reply: Callable[[int, bytes], None]
    ) -> None:
        self._transport = transport
        self._calls = calls
        self._on_reply = on_reply
        self._deadline = time.monotonic() + transport.timeout
        self._attempts = [0] * len(calls)
        self._flights: dict[int, grpc.Future] = {}
        self._landed: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._waiting: list[tuple[float, int]] = []  # a heap of (when to send again, call)
        # The channels that the waiting calls will go to.
        self._connecting: dict[int, grpc.Channel] = {}
        self._said: dict[int, str] = {}  # each call's last failure

    def finish(self) -> None:
        try:
            if len(self._calls) == 1:
                self._finish_one()
                return
            for index in range(len(self._calls)):
                self._start(index)
            while self._flights or self._waiting:
                self._step()
        except ValueError:
            # Raises FailedPrecondition if the channel was just closed.
            self._transport.check_usable()
            raise
        finally:
            for flight in self._flights.values():
                flight.cancel()
            for channel in self._connecting.values():
                channel.unsubscribe(_ignore)

    def _finish_one(self) -> None:
        """Makes one call in this thread; gRPC's threads cost a small call a third of its time."""
        while True:
            method, left = self._next_attempt(0)
            try:
                reply = method(self._calls[0].request, timeout=left)
                break
            except grpc.RpcError as error:
                self._failed(0, error.code(), error.details() or "")
            time.sleep(max(0.0, heapq.heappop(self._waiting)[0] - time.monotonic()))
        self._on_reply(0, reply)

    def _start(self, index: int) -> None:
        """Sends a call, for the first time or again."""
        method, left = self._next_attempt(index)
        flight = method.future(self._calls[index].request, timeout=left)
        self._flights[index] = flight
        flight.add_done_callback(lambda _: self._landed.put(index))

    def _step(self) -> None:
        """Takes the next reply, or sends calls again that have waited long enough."""
        wait = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
        try:
            index = self._landed.get(timeout=wait)
        except queue.Empty:
            self._start(heapq.heappop(self._waiting)[1])
            return
        flight = self._flights.pop(index)
        if flight.code() is grpc.StatusCode.OK:
            self._on_reply(index, flight.result())
        else:
            self._failed(index, flight.code(), flight.details() or "")

    def _next_attempt(self, index: int) -> tuple[grpc.UnaryUnaryMultiCallable, float]:
        """Returns the method to call now, and how many seconds the call has."""
        if index in self._connecting:
            self._connecting.pop(index).unsubscribe(_ignore)
        channel = self._transport.channel(self._calls[index], self._attempts[index])
        self._attempts[index] += 1
        left = max(0.001, self._deadline - time.monotonic())
        return channel.unary_unary(f"/slotwise.v1.{self._calls[index].method}"), left

    def _failed(self, index: int, code: grpc.StatusCode, details: str) -> None:
        # Our own clock ended the call, so an earlier attempt may know the reason.
        if details == "Deadline Exceeded":
            details = self._said.get(index, details)
        self._said[index] = details
        attempts = self._attempts[index]
        channel = self._transport.channel(self._calls[index], attempts)
        again = time.monotonic() + _backoff(attempts)
        if code not in _TRY_AGAIN or again >= self._deadline:
            raise _error(code, details, self._address(index), self._transport.timeout)
        _LOG.info("%s: %s: %s; trying again", self._address(index), code.name, details)
        heapq.heappush(self._waiting, (again, index))
        # A channel without calls notices only every 5 s that it is connected again; a watched
        # channel notices at once.
        self._connecting[index] = channel
        channel.subscribe(_ignore, try_to_connect=True)

    def _address(self, index: int) -> str:
        """Returns the address that a call was last sent to."""
        addresses = self._transport.addresses
        return addresses[(self._calls[index].rank + self._attempts[index] - 1) % len(addresses)]


def _error(code: grpc.StatusCode, details: str, address: str, timeout: float) -> Error:
    """Returns the exception for a call that failed for good."""
    if code in _TRY_AGAIN:
        details = f"no answer from {address} within {timeout:g} s: {details}"
    elif code is grpc.StatusCode.UNIMPLEMENTED:
        details = f"{address} is no Slotwise server of this version: {details}"
    return from_status(code, details)


def _backoff(attempts: int) -> float:
    """Returns the seconds to wait after `attempts` attempts."""
    backoff = min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2 ** min(attempts - 1, 16))
    return float(backoff * _RANDOM.uniform(0.5, 1.0))


def _ignore(_: grpc.ChannelConnectivity) -> None:
    """Does nothing, because a channel is watched only to make it notice connections."""


# The client has random numbers of its own, so that a trainer's seeded ones do not depend on the
# network.
_RANDOM = random.Random()
