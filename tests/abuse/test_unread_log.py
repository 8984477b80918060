"""The reader of a server's log may stop: the server serves, and ends when it is told to.

No Slotwise package is used.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from free_ports import free_ports
from slotwise_cluster import RankClient, server_binary
from slotwise_wire import CALL_TIMEOUT, SERVING, Protocol, health


@contextmanager
def full_pipe() -> Iterator[tuple[int, int, int]]:
    """A pipe into which nothing fits any more: its ends, and how many bytes it has."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    size = 0
    try:
        while True:
            size += os.write(writes, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writes, True)
    try:
        yield reads, writes, size
    finally:
        os.close(reads)


@pytest.mark.parametrize("somebody_reads_later", [False, True])
def test_an_unread_log_does_not_stop_the_server(
    protocol: Protocol, tmp_path: Path, somebody_reads_later: bool
) -> None:
    address = f"127.0.0.1:{free_ports(1)}"
    with full_pipe() as (reads, writes, size):
        command = [str(server_binary()), "--listen", address, "--backend", "cpu", "--log-level", "trace"]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writes)
        os.close(writes)
        said = bytearray()

        def read() -> None:
            while block := os.read(reads, 1 << 16):
                said.extend(block)

        reader = threading.Thread(target=read)
        try:
            rank = RankClient(address, protocol)
            grpc.channel_ready_future(rank.channel).result(timeout=CALL_TIMEOUT)
            for number in range(40):
                options = protocol.TableOptions(name=f"t{number}", dim=4)
                options.optimizer.learning_rate = 1
                rank.admin.CreateTable(protocol.CreateTableRequest(options=options), timeout=CALL_TIMEOUT)
            assert health(rank.channel) == SERVING
            if somebody_reads_later:
                reader.start()
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=20) == 0
        finally:
            server.kill()
            server.wait()
            if somebody_reads_later:
                reader.join()
        if not somebody_reads_later:
            return
        lines = bytes(said[size:]).decode().splitlines()
        assert lines[-1].endswith("stopped"), lines[-3:]
        made = [line for line in lines if " is made, as " in line]
        assert len(made) == 32, "the other 8 are too many in 10 seconds"
