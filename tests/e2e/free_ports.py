"""Ports for a test's servers.

A port that the kernel chose for a socket which is closed again may be given to anybody's connection the next
moment, and so may its neighbours. These lie below the ones that the kernel gives out, and each process of
tests has its own.
"""

from __future__ import annotations

import functools
import socket


class _Ports:
    """Ports that no other process of tests is given: who listens on a block's first has the block."""

    _BLOCK = 400
    _BLOCKS = range(20_000, 32_000, _BLOCK)  # below those that the kernel gives out

    def __init__(self) -> None:
        self._guard = socket.socket()
        self._first = next((first for first in self._BLOCKS if _can_bind(self._guard, first)), 0)
        assert self._first, "no free ports: all blocks are taken"
        self._guard.listen()
        self._given = 0

    def take(self, count: int) -> int:
        """The first of `count` neighbouring ports without a listener, which were not given lately."""
        for _ in range(self._BLOCK):
            if self._given + count >= self._BLOCK:
                self._given = 0
            first = self._first + self._given + 1
            self._given += 1
            if all(self._is_free(port) for port in range(first, first + count)):
                self._given += count - 1
                return first
        raise AssertionError("no free ports")

    @staticmethod
    def _is_free(port: int) -> bool:
        with socket.socket() as probe:
            return _can_bind(probe, port)


def _can_bind(end: socket.socket, port: int) -> bool:
    try:
        end.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


_ports = functools.cache(_Ports)


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports: no process listens there, and no other test will."""
    return _ports().take(count)
