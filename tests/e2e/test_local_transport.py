"""Unix sockets of a server that asks who calls: whom it lets in, and who may do what there."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from certificates import Authority, write
from programs import output_of
from slotwise_cluster import Cluster, StartCluster, wait_until
from slotwise_metrics import METRICS, total
from slotwise_wire import CALL_TIMEOUT, ROOT, Protocol
from test_access import GRANTS, KEY, TOKENS, Guarded, metadata, principals

import slotwise

STRANGER = 12345  # a user of this host whom no file knows
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
GREETING = b"SLOTWISE" + struct.pack("<II", 1, 0)


@pytest.fixture(scope="module")
def guarded(protocol: Protocol, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A server of two ranks that serves no call without a token, and the folder of the tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    cluster = Cluster(2, folder / "server", protocol, principals(folder) + METRICS)
    yield Guarded(cluster, folder)
    if cluster.process.poll() is None:
        cluster.stop()


def shared(cluster: Cluster) -> float:
    """The memory that the ranks share with clients."""
    return total(cluster, "slotwise_call_memory_bytes", TOKENS["watcher"], budget="shared")


@pytest.mark.parametrize("transport", ["best", "shm", "tcp", "grpc"])
def test_rights_are_the_same_by_every_transport(guarded: Guarded, transport: str) -> None:
    keys, ones = np.arange(100, dtype=np.uint64), np.ones((100, 2), np.float32)
    before = shared(guarded.cluster)
    with guarded.connect("trainer", transport) as ps:
        there = ps.lookup("ads", keys)
        ps.push("ads", keys, None, ones)
        assert np.array_equal(ps.lookup("ads", keys), there - np.float32(0.1))
        assert (shared(guarded.cluster) > before) == (transport in ("best", "shm"))
        for table in ("users", "there is none"):
            with pytest.raises(slotwise.PermissionDenied, match="it needs a right on table"):
                ps.lookup(table, keys)
    with guarded.connect("reader", transport) as ps:
        assert ps.lookup("ads", keys, train=False).shape == (100, 2)
        with pytest.raises(slotwise.PermissionDenied, match="reader may not: it needs push"):
            ps.lookup("ads", keys)
        with pytest.raises(slotwise.PermissionDenied, match="reader may not: it needs push"):
            ps.push("ads", keys, None, ones)


def test_a_token_counts_from_call_to_call(guarded: Guarded, tmp_path: Path) -> None:
    mine = tmp_path / "mine.token"
    write(mine, TOKENS["trainer"].encode())
    with guarded.cluster.connect(token_file=mine, transport="shm") as ps:
        ps.lookup("ads", [7])
        write(mine, TOKENS["other"].encode())

        def denied() -> bool:
            try:
                ps.lookup("ads", [7])
            except slotwise.PermissionDenied as error:
                assert "other may not" in str(error)
                return True
            return False

        wait_until(denied, "the other token is sent")
        write(mine, b"a-token-of-no-principal")

        def unknown() -> bool:
            try:
                ps.lookup("ads", [7])
            except slotwise.PermissionDenied:
                return False
            except slotwise.Unauthenticated:
                return True
            raise AssertionError("somebody was served")

        wait_until(unknown, "a token of no principal is refused")


class Speaker:
    """Speaks the data transport at a rank's Unix socket, as much as a test needs."""

    def __init__(self, protocol: Protocol, name: str) -> None:
        self._protocol = protocol
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(CALL_TIMEOUT)
        self._socket.connect("\0" + name)
        self._socket.sendall(GREETING)
        self.greeting = self._read(16)

    def _read(self, size: int) -> bytes:
        got = b""
        while len(got) < size and (piece := self._socket.recv(size - len(got))):
            got += piece
        return got

    def call(self, number: int, token: str) -> Any:
        """Looks a row of "ads" up; returns the reply."""
        p = self._protocol
        lookup = p.LookupRequest(table="ads", samples=1)
        call = p.DataCall(
            id=number, timeout_ms=30_000, lookups=[lookup], arrays=[p.DataArrays(keys=8)], token=token
        )
        head, body = call.SerializeToString(), KEY.ljust(64, b"\0")
        self._socket.sendall(struct.pack("<IIQ", len(head), 0, len(body)) + head + body)
        size, _, values = struct.unpack("<IIQ", self._read(16))
        reply = p.DataReply.FromString(self._read(size))
        self._read(values)
        assert reply.id == number
        return reply

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def local_name(cluster: Cluster, protocol: Protocol) -> str:
    """The Unix socket of the first rank."""
    stub = protocol.stub(cluster.ranks[0].channel, "Admin")
    reply = stub.GetTopology(
        protocol.GetTopologyRequest(), metadata=metadata(TOKENS["reader"]), timeout=CALL_TIMEOUT
    )
    assert reply.data_version == 0
    assert [rank.local_user for rank in reply.ranks] == [os.geteuid()] * len(reply.ranks)
    return str(reply.ranks[0].local)


def test_no_call_is_served_at_the_socket_without_a_token(guarded: Guarded, protocol: Protocol) -> None:
    speaker = Speaker(protocol, local_name(guarded.cluster, protocol))
    assert speaker.greeting.startswith(b"SLOTWISE")
    before, trainer = guarded.refused(), TOKENS["trainer"]
    wrong = ["", "x", trainer[:-1], trainer + "x", "Bearer " + trainer, " " + trainer, trainer.upper()]
    for number, token in enumerate(wrong):
        reply = speaker.call(number, token)
        assert reply.code == grpc.StatusCode.UNAUTHENTICATED.value[0], token
        assert not any(secret in reply.message for secret in TOKENS.values())
    assert guarded.refused() - before == len(wrong)
    # Two tokens take turns on one connection.
    for number in range(100, 104):
        token, code_of = (trainer, 0) if number % 2 else (TOKENS["other"], 7)
        assert speaker.call(number, token).code == code_of
    speaker.close()
    everything = guarded.cluster.logs()
    assert not any(secret in everything for secret in TOKENS.values())


# What a process of another user's begins with.
AS_STRANGER = f"""
import json, os, socket
import slotwise
from slotwise.core import core
core()
os.setgid({STRANGER})
os.setuid({STRANGER})
"""
# It looks a row up and prints what became of it.
CLIENT = """
try:
    credentials = slotwise.Credentials(token_file={token!r})
    with slotwise.connect({address!r}, transport={transport!r}, timeout=10, credentials=credentials) as ps:
        print(json.dumps(ps.lookup("ads", [7], train=False).shape))
except slotwise.Error as error:
    print(json.dumps(f"{{type(error).__name__}}: {{error}}"))
"""
# It connects to a rank's Unix socket and prints what comes.
LISTENER = """
connection = socket.socket(socket.AF_UNIX)
connection.settimeout({timeout})
try:
    connection.connect({name!r})
    connection.sendall({greeting!r})
    print(connection.recv(1))
except (ConnectionResetError, BrokenPipeError):
    print(b"")
"""


def as_stranger(script: str) -> str:
    """What a script of another user's printed."""
    client = f"{ROOT}/client/python"
    return output_of(sys.executable, "-c", AS_STRANGER + script, timeout=2 * CALL_TIMEOUT, PYTHONPATH=client)


def lookup_of_stranger(cluster: Cluster, transport: str) -> Any:
    """What becomes of a stranger's lookup who has a token."""
    folder = Path(tempfile.mkdtemp(prefix="slotwise-test-"))
    try:
        folder.chmod(0o755)
        token = folder / "token"
        token.write_text(TOKENS["reader"])
        token.chmod(0o644)
        script = CLIENT.format(token=str(token), address=cluster.ranks[0].address, transport=transport)
        return json.loads(as_stranger(script))
    finally:
        shutil.rmtree(folder)


@needs_root
def test_other_users_of_the_host_go_by_grpc(guarded: Guarded) -> None:
    assert lookup_of_stranger(guarded.cluster, "best") == [1, 2]
    refusal = lookup_of_stranger(guarded.cluster, "shm")
    assert refusal.startswith("Unavailable: ") and "security.local_users" in refusal
    (said, *_) = guarded.cluster.await_messages(f"user {STRANGER} ")
    assert "may not connect to the Unix socket (security.local_users)" in said


@needs_root
def test_the_server_hangs_up_on_other_users_of_the_host(guarded: Guarded, protocol: Protocol) -> None:
    before, name = guarded.refused(), "\0" + local_name(guarded.cluster, protocol)
    said = as_stranger(LISTENER.format(timeout=CALL_TIMEOUT, name=name, greeting=GREETING))
    assert said.strip() == "b''"
    assert guarded.refused() - before == 1


@needs_root
def test_users_whom_the_configuration_names_are_let_in(start_cluster: StartCluster, tmp_path: Path) -> None:
    lets_in = f'security {{ local_users: "{STRANGER}" '
    config = principals(tmp_path / "tokens").replace("security {", lets_in, 1)
    assert lookup_of_stranger(start_cluster(1, config), "shm") == [1, 2]


class Tls:
    """A server by TLS, which may ask for clients' certificates; and what a client needs who has one."""

    def __init__(self, folder: Path, asks: bool = True) -> None:
        ours = Authority(folder / "ours", "ours")
        self._ca = ours.ca_file
        self._server = ours.issue("server", "server", ("127.0.0.1", "localhost"))
        self._trainer = ours.issue("trainer", "trainer") if asks else None
        mine = [file.read_bytes() for file in reversed(self._trainer or ())]
        self.channel = grpc.ssl_channel_credentials(self._ca.read_bytes(), *mine)

    def config(self) -> str:
        """The server's field `tls`."""
        asks = f'client_ca_file: "{self._ca}"' if self._trainer else ""
        return f'tls {{ certificate_file: "{self._server[0]}" key_file: "{self._server[1]}" {asks} }}'

    def credentials(self, token: Path | None) -> slotwise.Credentials:
        """Of our client, with a token or without."""
        files: dict[str, Any] = dict(zip(("certificate_file", "key_file"), self._trainer or ()))
        return slotwise.Credentials(token_file=token, ca_file=self._ca, **files)


def test_by_tls_a_token_still_goes_by_shared_memory(start_cluster: StartCluster, tmp_path: Path) -> None:
    tls, keys = Tls(tmp_path, asks=False), np.arange(50, dtype=np.uint64)
    config = principals(tmp_path / "tokens").replace("security {", f"security {{ {tls.config()}", 1)
    cluster = start_cluster(1, config, tls=tls.channel)
    values = {}
    trainer = tls.credentials(tmp_path / "tokens/trainer.token")
    for transport in ("shm", "best", "grpc"):
        with cluster.connect(transport=transport, credentials=trainer) as ps:
            values[transport] = ps.lookup("ads", keys)
    assert np.array_equal(values["shm"], values["grpc"]) and np.array_equal(values["best"], values["grpc"])


def test_where_certificates_alone_let_in_there_is_no_socket(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    tls = Tls(tmp_path)
    reply = start_cluster(1, f"security {{ {tls.config()} }}", tls=tls.channel).topology()
    assert [rank.local for rank in reply.ranks] == [""]
    assert not reply.ranks[0].HasField("local_user"), "no rank listens"


def test_a_token_goes_by_shared_memory_and_a_certificate_alone_does_not(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    tls, token = Tls(tmp_path), tmp_path / "tokens/trainer.token"
    named = f'principals {{ name: "named" certificate_name: "trainer" grants {{ {GRANTS["trainer"]} }} }}'
    lets_in = f"security {{ {tls.config()} {named}"
    config = principals(tmp_path / "tokens").replace("security {", lets_in, 1)
    cluster = start_cluster(1, config, tls=tls.channel)
    for transport, mine in (("best", None), ("grpc", None), ("best", token), ("shm", token)):
        with cluster.connect(transport=transport, credentials=tls.credentials(mine)) as ps:
            assert ps.lookup("ads", [7]).shape == (1, 2), (transport, mine)
