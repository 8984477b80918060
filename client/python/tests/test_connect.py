"""Finding a server, and the end of a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from fake_server import FakeServer, Gate
from free_ports import free_ports
from waiting import LIMIT, PATIENT, wait_until

import slotwise


def unused_address() -> str:
    return f"127.0.0.1:{free_ports(1)}"


def test_the_ranks_are_learned_from_one_of_them(ps: slotwise.Client) -> None:
    topology = ps.topology()
    assert len(topology.ranks) == 2 and topology.version
    assert topology.max_message_bytes > 0
    assert all(rank.device == "cpu" for rank in topology.ranks)
    with slotwise.connect(topology.ranks[1].address) as other:
        assert other.topology().ranks == topology.ranks


@pytest.mark.parametrize(
    "address, kind", [("unused", slotwise.Unavailable), ("nowhere.invalid:7070", slotwise.Error)]
)
def test_an_absent_server_is_one_clear_sentence_in_time(address: str, kind: type[slotwise.Error]) -> None:
    address = unused_address() if address == "unused" else address
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        slotwise.connect(address.removesuffix(":7070"), timeout=1.0)
    assert time.monotonic() - started < LIMIT
    assert str(caught.value).startswith(f"cannot connect: no answer from {address} within 1 s: ")
    assert "\n" not in str(caught.value)


def test_one_of_several_addresses_is_enough(fake: FakeServer) -> None:
    with slotwise.connect(unused_address(), fake.addresses[1], timeout=5.0) as ps:
        assert len(ps.topology().ranks) == 2


def test_a_server_that_starts_late_is_waited_for() -> None:
    address = unused_address()
    late: list[FakeServer] = []
    port = int(address.split(":")[1])
    timer = threading.Timer(0.7, lambda: late.append(FakeServer(ranks=1, first_port=port)))
    timer.start()
    with slotwise.connect(address, timeout=10.0) as ps:
        assert ps.list_tables() == []
    timer.join()
    late[0].stop()


def test_another_kind_of_server_is_told() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(slotwise.Error, match=f"127.0.0.1:{port} is no Slotwise server"):
        slotwise.connect(f"127.0.0.1:{port}", timeout=5.0)
    server.stop(None)


def test_bad_arguments_are_refused_by_name_and_value(fake: FakeServer) -> None:
    with pytest.raises(slotwise.InvalidArgument, match="an address"):
        slotwise.connect()
    for timeout in (0, -1, float("nan")):
        with pytest.raises(slotwise.InvalidArgument, match=f"timeout is {timeout}, not above 0"):
            slotwise.connect("127.0.0.1:1", timeout=timeout)
    for channels in (0, 1025, 2**32):
        with pytest.raises(slotwise.InvalidArgument, match=f"channels_per_rank is {channels}, not"):
            slotwise.connect("127.0.0.1:1", channels_per_rank=channels)
    for address in ("", ":", "host:", "host:0", "host:65536", "host:-1", "host:abc", "[::1", "\udcff"):
        with pytest.raises(slotwise.InvalidArgument):
            slotwise.connect(address)
    with pytest.raises(slotwise.InvalidArgument, match="best, grpc, tcp, shm"):
        slotwise.connect(fake.addresses[0], transport="window")
    host, port = fake.addresses[0].split(":")  # a port is not taken modulo 65536
    with pytest.raises(slotwise.InvalidArgument, match="a port 1 to 65535"):
        slotwise.connect(f"{host}:{int(port) + 65536}")


def test_door_is_an_older_name_of_transport(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def way(**names: str) -> str:
        with slotwise.connect(fake.addresses[0], **names) as ps:  # type: ignore[arg-type]
            return str(ps._transport)

    assert way() == "best"
    monkeypatch.setenv("SLOTWISE_DOOR", "tcp")
    assert way() == "tcp"
    monkeypatch.setenv("SLOTWISE_TRANSPORT", "grpc")
    with pytest.raises(slotwise.InvalidArgument, match="two names of one variable differ"):
        way()
    monkeypatch.setenv("SLOTWISE_DOOR", "")
    assert way() == "grpc", "an empty variable is none"
    monkeypatch.setenv("SLOTWISE_DOOR", "grpc")
    assert way() == "grpc", "for clients of both versions"
    assert way(door="best") == way(transport="best") == "best"
    with pytest.raises(slotwise.InvalidArgument, match="two names of one argument"):
        way(door="best", transport="best")
    with pytest.raises(slotwise.InvalidArgument, match="transport is 'window'"):
        way(door="window")


def test_any_long_timeout_is_as_good_as_none_until_the_client_is_closed(fake: FakeServer) -> None:
    for timeout in (1e10, float("inf")):
        with slotwise.connect(fake.addresses[0], timeout=timeout) as ps:
            assert ps.list_tables() == []
        ps.close()
        with pytest.raises(slotwise.FailedPrecondition, match="closed"):
            ps.list_tables()


def test_closing_ends_calls_in_other_threads(fake: FakeServer) -> None:
    ps, gate = slotwise.connect(fake.addresses[0], timeout=PATIENT), Gate(fake, "Digest")
    with ThreadPoolExecutor() as threads:
        call = threads.submit(ps.digest, "ads")
        gate.wait_for_call()
        closed = threads.submit(ps.close)
        wait_until(lambda: call.done() and closed.done(), "the call and the client end")
        assert isinstance(call.exception(), slotwise.FailedPrecondition) and gate.passed == 0
        gate.opened.set()


def test_a_server_that_is_away_is_tried_again_soon() -> None:
    """gRPC alone tries ten times in some two minutes, this client in six seconds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        program = f"import slotwise; slotwise.connect({address!r}, timeout={PATIENT})"
        path = os.pathsep.join(sys.path)
        with subprocess.Popen(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}
        ) as process:
            try:
                listener.settimeout(LIMIT)
                listener.accept()[0].close()
                deadline = time.monotonic() + LIMIT
                for _ in range(9):
                    listener.settimeout(max(0.001, deadline - time.monotonic()))
                    listener.accept()[0].close()
            finally:
                process.kill()


def test_a_forked_child_is_told_why_it_cannot_use_its_parents_client(fake: FakeServer) -> None:
    with slotwise.connect(fake.addresses[0]) as ps:
        child = os.fork()
        if child == 0:
            try:
                ps.list_tables()
            except slotwise.FailedPrecondition as error:
                os._exit(7 if error.reason is slotwise.Reason.CLIENT_CLOSED else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
