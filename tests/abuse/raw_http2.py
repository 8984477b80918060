"""An HTTP/2 client that does only what attacks need: it reads no replies, and leaves messages unfinished.

gRPC's own clients read what comes and send whole messages, so none of them can play a client written to hurt.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Sequence

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_CONTINUATION = 9
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_MAX_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE = 3, 4
_MAX_FRAME = 16_384
_LARGEST_WINDOW = 2**31 - 1
Frame = tuple[int, int, bytes]  # kind, flags, payload
PATIENCE = 20.0  # seconds; a connection on which the server takes nothing for so long counts as closed


class RawConnection:
    """One connection, on which the server may send nothing of a reply.

    If `reads` is false it may send all, but nothing is read once the connection is made: the system's buffers
    fill up. A connection that acknowledges the server's SETTINGS too early, so many times, or never (0),
    reads nothing either.
    """

    def __init__(
        self,
        address: str,
        reads: bool = True,
        tls: ssl.SSLContext | None = None,
        early_acknowledgements: int | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE)
        if not reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect((host, int(port)))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.closed = False
        self.ended: set[int] = set()  # streams that the server has ended or reset
        self.most_streams: int | None = None
        self._authority = address
        self._unread = b""
        self._next_stream = 1
        self._window = 65_535  # bytes that the server lets the connection send
        self._first_window = 65_535
        self._windows: dict[int, int] = {}
        self._reads = True
        self._answered_pings = 0
        settings = struct.pack(">HI", _INITIAL_WINDOW_SIZE, 0 if reads else _LARGEST_WINDOW)
        more = struct.pack(">I", _LARGEST_WINDOW - self._window)
        self._send(_PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW_UPDATE, 0, 0, more))
        if early_acknowledgements is not None:
            self._reads = False
            self._send(_frame(_SETTINGS, _ACK, 0, b"") * early_acknowledgements)
            return
        while self.most_streams is None and not self.closed:
            self.pump(1)
        self._reads = reads

    def call(self, method: str, *messages: bytes, length: int | None = None, end: bool = True) -> int:
        """Calls a method such as slotwise.v1.Embedding/Lookup; the stream's number.

        Each message says that it has `length` bytes. Without a message the call is begun, and no more. What
        the server does not take is left out: `closed` and `ended` tell.
        """
        stream, headers = self._new_call(method, _END_HEADERS)
        self._send(headers)
        body = b"".join(b"\0" + struct.pack(">I", length or len(m)) + m for m in messages)
        self._send_data(stream, body, end)
        return stream

    def headers_without_end(self, size: int, frame: bytes) -> None:
        """Begins a call, and sends `size` bytes of frames that go on with its headers, each with `frame`."""
        stream, headers = self._new_call("slotwise.v1.Embedding/Lookup", 0)
        more = _frame(_CONTINUATION, 0, stream, frame)
        self.flood(headers)
        self.flood(more * (size // len(more)))

    def begin_calls(
        self, count: int, flags: int = _END_HEADERS, more: Sequence[Frame] = (), fields: int = 0
    ) -> None:
        """Begins calls, each with so many fields of metadata and these frames behind, and ends none."""
        for begun in range(0, count, 100):
            some = range(min(count - begun, 100))
            calls = [self._new_call("slotwise.v1.Embedding/Lookup", flags, fields) for _ in some]
            self.flood(
                b"".join(
                    headers + b"".join(_frame(kind, flag, stream, payload) for kind, flag, payload in more)
                    for stream, headers in calls
                )
            )

    def calls_given_up(self, count: int, at_once: int, fields: int = 0) -> None:
        """Begins calls with so many fields of metadata, and resets them, so many at a time.

        All is made first and sent then, because a server bounds how many may come in a second.
        """
        flood = []
        for _ in range(count // at_once):
            method = "slotwise.v1.Embedding/Lookup"
            calls = [self._new_call(method, _END_HEADERS, fields) for _ in range(at_once)]
            cancel = struct.pack(">I", 8)
            resets = b"".join(_frame(_RST_STREAM, 0, stream, cancel) for stream, _ in calls)
            flood.append(b"".join(headers for _, headers in calls) + resets)
        self.flood(b"".join(flood))

    def await_server(self) -> None:
        """Waits until the server has read all that was sent, or has closed the connection."""
        answered, end = self._answered_pings, time.monotonic() + PATIENCE
        self._send(_frame(_PING, 0, 0, bytes(8)))
        while self._answered_pings == answered and not self.closed:
            assert time.monotonic() < end, "the server answers no PING"
            self.pump(1)

    def frames(self, kind: int, count: int, payload: bytes = b"", stream: int = 0) -> None:
        """Sends the same frame again and again."""
        self.flood(_frame(kind, 0, stream, payload) * count)

    def flood(self, data: bytes) -> None:
        """Sends bytes until the server closes the connection, and looks at nothing that comes."""
        self.socket.setblocking(False)
        end = time.monotonic() + PATIENCE
        while data and not self.closed:
            readable, writable, _ = select.select([self.socket], [self.socket], [], PATIENCE)
            try:
                self.closed = time.monotonic() > end or (bool(readable) and not self.socket.recv(1 << 20))
                if writable:
                    data = data[self.socket.send(data[: 1 << 16]) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except OSError:
                self.closed = True
        self.socket.settimeout(PATIENCE)

    def is_cut_off(self) -> bool:
        """Waits until the server has closed the connection, for PATIENCE at the longest; whether it has."""
        end = time.monotonic() + PATIENCE
        while not self.closed and time.monotonic() < end:
            if select.select([self.socket], [], [], 1)[0]:
                try:
                    self.closed = not self.socket.recv(1 << 20)
                except OSError:
                    self.closed = True
        return self.closed

    def pump(self, seconds: float = 0) -> None:
        """Reads the frames that are there, waiting so long for the first."""
        while self._reads and not self.closed and select.select([self.socket], [], [], seconds)[0]:
            seconds = 0
            try:
                received = self.socket.recv(1 << 20)
            except OSError:
                received = b""
            self.closed = not received
            self._unread += received
            while len(self._unread) >= 9:
                size = int.from_bytes(self._unread[:3], "big")
                if len(self._unread) < 9 + size:
                    break
                kind, flags, stream = struct.unpack(">BBI", self._unread[3:9])
                self._take(kind, flags, stream, self._unread[9 : 9 + size])
                self._unread = self._unread[9 + size :]

    def close(self) -> None:
        """Closes the connection."""
        self.socket.close()
        self.closed = True

    def _new_call(self, method: str, flags: int, fields: int = 0) -> tuple[int, bytes]:
        """The next stream, and the frame that begins a call on it."""
        stream = self._next_stream
        self._next_stream += 2
        self._windows[stream] = self._first_window
        headers = {":method": "POST", ":scheme": "http", ":path": f"/{method}"}
        headers |= {":authority": self._authority, "content-type": "application/grpc", "te": "trailers"}
        block = b"".join(_literal(name) + _literal(value, b"") for name, value in headers.items())
        block += (_literal("k") + _literal("v", b"")) * fields
        return stream, _frame(_HEADERS, flags, stream, block)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            settings: dict[int, int] = {name: value for name, value in struct.iter_unpack(">HI", payload)}
            self.most_streams = settings.get(_MAX_CONCURRENT_STREAMS, self.most_streams or 0)
            first = settings.get(_INITIAL_WINDOW_SIZE, self._first_window)
            for open_stream in self._windows:
                self._windows[open_stream] += first - self._first_window
            self._first_window = first
            self._send(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, payload))
        elif kind == _PING:
            self._answered_pings += 1
        elif kind == _WINDOW_UPDATE:
            (more,) = struct.unpack(">I", payload)
            if stream == 0:
                self._window += more
            elif stream in self._windows:
                self._windows[stream] += more
        elif kind == _RST_STREAM or (kind in (_HEADERS, _DATA) and flags & _END_STREAM):
            self.ended.add(stream)
        elif kind == _GOAWAY:
            self.closed = True

    def _send_data(self, stream: int, body: bytes, end: bool) -> None:
        """Sends as the server's windows open, until the body, the stream or the server's patience ends."""
        sent = 0
        while not self.closed and stream not in self.ended and sent < len(body):
            size = min(len(body) - sent, _MAX_FRAME, self._window, self._windows[stream])
            if size <= 0:
                self.pump(1)
                if min(self._window, self._windows[stream]) <= 0:
                    return  # the server takes no more
                continue
            self._window -= size
            self._windows[stream] -= size
            sent += size
            last = end and sent == len(body)
            self._send(_frame(_DATA, _END_STREAM if last else 0, stream, body[sent - size : sent]))
        self.pump()

    def _send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(text: str, before: bytes = b"\0") -> bytes:
    return before + bytes([len(text)]) + text.encode()  # a literal of HPACK; none here has 127 bytes
