"""As much HTTP/2 as it takes to call gRPC methods badly: to begin messages and not end them, to not read.

gRPC's own clients are too polite for that. Frames are RFC 9113's; headers are literals of RFC 7541, without
Huffman codes and without a table.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = 4  # a setting
LARGEST_FRAME = 16384  # that a peer takes unless it says otherwise
FIRST_WINDOW = 65535  # bytes of a connection, and of a stream, before the peer allows more


class RawConnection:
    """One connection, which reads only to learn how much it may send.

    `window`: how many bytes of each reply the server may send before it is allowed more.
    """

    def __init__(self, address: str, window: int = FIRST_WINDOW) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self._stream = -1
        self._first_window = FIRST_WINDOW
        self._windows = {0: FIRST_WINDOW}  # what the server still takes, of the connection and of streams
        setting = struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, setting) + frame(SETTINGS, ACK, 0, b""))

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def begin(self, path: str) -> int:
        """Opens a stream for a method such as "/slotwise.v1.Embedding/Lookup"; its number."""
        self._stream += 2
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "slotwise",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        block = b"".join(literal(name, value) for name, value in fields.items())
        self.socket.sendall(frame(HEADERS, END_HEADERS, self._stream, block))
        self._windows[self._stream] = self._first_window
        return self._stream

    def send(self, stream: int, data: bytes, end: bool = False) -> None:
        """Sends some bytes of a stream, as soon as the server takes them."""
        sent = 0
        while sent < len(data) or (end and not data):
            room = min(LARGEST_FRAME, self._windows[0], self._windows[stream])
            if room <= 0:
                self._read_a_frame()
                continue
            piece = data[sent : sent + room]
            sent += len(piece)
            self._windows[0] -= len(piece)
            self._windows[stream] -= len(piece)
            last = end and sent == len(data)
            self.socket.sendall(frame(DATA, END_STREAM if last else 0, stream, piece))
            if last:
                return

    def call(self, path: str, message: bytes) -> int:
        """Sends a whole request, and reads nothing; the stream's number."""
        stream = self.begin(path)
        self.send(stream, prefixed(message), end=True)
        return stream

    def _read_a_frame(self) -> None:
        header = self._read(9)
        kind, flags = header[3], header[4]
        (stream,) = struct.unpack(">I", header[5:])
        payload = self._read(int.from_bytes(header[:3], "big"))
        if kind == WINDOW_UPDATE:
            self._windows[stream] = self._windows.get(stream, 0) + struct.unpack(">I", payload)[0]
        elif kind == SETTINGS and not flags & ACK:
            for place in range(0, len(payload), 6):
                setting, value = struct.unpack_from(">HI", payload, place)
                if setting == INITIAL_WINDOW_SIZE:
                    for open_stream in self._windows.keys() - {0}:
                        self._windows[open_stream] += value - self._first_window
                    self._first_window = value
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind in (RST_STREAM, GOAWAY):
            raise ConnectionError(f"the server ended stream {stream}: {payload!r}")

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return data


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header that is not put into the peer's table. REQUIRES: both are shorter than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def prefixed(message: bytes, length: int | None = None) -> bytes:
    """A message as gRPC sends it: not compressed, and of `length` bytes, if that is said and is a lie."""
    return struct.pack(">BI", 0, len(message) if length is None else length) + message
