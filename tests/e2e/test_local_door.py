"""Unix sockets of a server that asks who calls: whom it lets in, and who may do what there."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from certificates import Authority, write
from slotwise_cluster import Cluster, StartCluster, wait_until
from slotwise_metrics import METRICS, total
from slotwise_wire import CALL_TIMEOUT, ROOT, Protocol
from test_access import GRANTS, KEY, TOKENS, metadata, principals, token_file

import slotwise

STRANGER = 12345  # a user of this host whom no file knows
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture(scope="module")
def guarded(
    protocol: Protocol, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Path]]:
    """A server of two ranks that serves nobody without a token, and the folder of the tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    cluster = Cluster(2, folder / "server", protocol, principals(folder) + METRICS)
    yield cluster, folder
    if cluster.process.poll() is None:
        cluster.stop()


def connect(cluster: Cluster, file: Path, door: str) -> slotwise.Client:
    """A client with a token, by a door."""
    credentials = slotwise.Credentials(token_file=file)
    return slotwise.connect(cluster.ranks[0].address, door=door, credentials=credentials)


def shared(cluster: Cluster) -> float:
    """The memory that the ranks share with clients."""
    return total(cluster, "slotwise_budget_bytes", TOKENS["watcher"], budget="shared")


@pytest.mark.parametrize("door", ["best", "shm", "tcp", "grpc"])
def test_rights_are_the_same_by_every_door(guarded: tuple[Cluster, Path], door: str) -> None:
    cluster, folder = guarded
    keys = np.arange(100, dtype=np.uint64)
    before = shared(cluster)
    with connect(cluster, token_file(folder, "trainer"), door) as ps:
        there = ps.lookup("ads", keys)
        ps.push("ads", keys, None, np.ones((100, 2), np.float32))
        assert np.array_equal(ps.lookup("ads", keys), there - np.float32(0.1))
        assert (shared(cluster) > before) == (door in ("best", "shm"))
        for table in ("users", "there is none"):
            with pytest.raises(slotwise.PermissionDenied, match="it needs a right on table"):
                ps.lookup(table, keys)
    with connect(cluster, token_file(folder, "reader"), door) as ps:
        assert ps.lookup("ads", keys, train=False).shape == (100, 2)
        with pytest.raises(slotwise.PermissionDenied, match="reader may not: it needs push"):
            ps.lookup("ads", keys)
        with pytest.raises(slotwise.PermissionDenied, match="reader may not: it needs push"):
            ps.push("ads", keys, None, np.ones((100, 2), np.float32))


def test_a_token_counts_from_call_to_call(guarded: tuple[Cluster, Path], tmp_path: Path) -> None:
    cluster, _ = guarded
    mine = tmp_path / "mine.token"
    write(mine, TOKENS["trainer"].encode())
    with connect(cluster, mine, "shm") as ps:
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
        write(mine, b"a-token-that-nobody-has")

        def unknown() -> bool:
            try:
                ps.lookup("ads", [7])
            except slotwise.PermissionDenied:
                return False
            except slotwise.Unauthenticated:
                return True
            raise AssertionError("somebody was served")

        wait_until(unknown, "a token of nobody's is refused")


class Speaker:
    """Speaks the data transport at a rank's Unix socket, as much as a test needs."""

    def __init__(self, protocol: Protocol, name: str) -> None:
        self._protocol = protocol
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(CALL_TIMEOUT)
        self._socket.connect("\0" + name)
        self._socket.sendall(b"SLOTWISE" + struct.pack("<II", 1, 0))
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


def test_nobody_is_served_at_the_socket_without_a_token(
    guarded: tuple[Cluster, Path], protocol: Protocol
) -> None:
    cluster, _ = guarded
    speaker = Speaker(protocol, local_name(cluster, protocol))
    assert speaker.greeting.startswith(b"SLOTWISE")
    name, code = "slotwise_access_refused_total", "UNAUTHENTICATED"
    before = total(cluster, name, TOKENS["watcher"], code=code)
    trainer = TOKENS["trainer"]
    wrong = ["", "x", trainer[:-1], trainer + "x", "Bearer " + trainer, " " + trainer, trainer.upper()]
    for number, token in enumerate(wrong):
        reply = speaker.call(number, token)
        assert reply.code == grpc.StatusCode.UNAUTHENTICATED.value[0], token
        assert not any(secret in reply.message for secret in TOKENS.values())
    assert total(cluster, name, TOKENS["watcher"], code=code) - before == len(wrong)
    # Two tokens take turns on one connection.
    for number in range(100, 104):
        token, code_of = (trainer, 0) if number % 2 else (TOKENS["other"], 7)
        assert speaker.call(number, token).code == code_of
    speaker.close()
    everything = cluster.logs()
    assert not any(secret in everything for secret in TOKENS.values())


# A client of another user's, that looks a row up and prints what became of it.
CLIENT = """
import json, os, sys
import slotwise
from slotwise.core import core
core()
os.setgid({user})
os.setuid({user})
try:
    credentials = slotwise.Credentials(token_file={token!r})
    with slotwise.connect({address!r}, door={door!r}, timeout=10, credentials=credentials) as ps:
        print(json.dumps(ps.lookup("ads", [7], train=False).shape))
except slotwise.Error as error:
    print(json.dumps(f"{{type(error).__name__}}: {{error}}"))
"""


def as_stranger(cluster: Cluster, door: str) -> Any:
    """What becomes of a stranger's lookup who has a token."""
    folder = Path(tempfile.mkdtemp(prefix="slotwise-test-"))
    try:
        folder.chmod(0o755)
        token = folder / "token"
        token.write_text(TOKENS["reader"])
        token.chmod(0o644)
        script = CLIENT.format(
            user=STRANGER, token=str(token), address=cluster.ranks[0].address, door=door
        )
        said = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": f"{ROOT}/client/python"},
            capture_output=True,
            text=True,
            timeout=CALL_TIMEOUT,
            check=False,
        )
    finally:
        shutil.rmtree(folder)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


@needs_root
def test_other_users_of_the_host_go_by_grpc(guarded: tuple[Cluster, Path]) -> None:
    cluster, _ = guarded
    assert as_stranger(cluster, "best") == [1, 2]
    refusal = as_stranger(cluster, "shm")
    assert refusal.startswith("Unavailable: ") and "security.local_users" in refusal
    (said, *_) = cluster.await_messages(f"user {STRANGER} ")
    assert "may not connect to the Unix socket (security.local_users)" in said


# A process of another user's, that connects to a rank's Unix socket and prints what comes.
LISTENER = """
import os, socket
connection = socket.socket(socket.AF_UNIX)
connection.settimeout({timeout})
os.setgid({user})
os.setuid({user})
try:
    connection.connect({name!r})
    connection.sendall({greeting!r})
    print(connection.recv(1))
except (ConnectionResetError, BrokenPipeError):
    print(b"")
"""


@needs_root
def test_the_server_hangs_up_on_other_users_of_the_host(
    guarded: tuple[Cluster, Path], protocol: Protocol
) -> None:
    cluster, _ = guarded
    name, code = "slotwise_access_refused_total", "UNAUTHENTICATED"
    before = total(cluster, name, TOKENS["watcher"], code=code)
    script = LISTENER.format(
        timeout=CALL_TIMEOUT,
        user=STRANGER,
        name="\0" + local_name(cluster, protocol),
        greeting=b"SLOTWISE" + struct.pack("<II", 1, 0),
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=2 * CALL_TIMEOUT,
        check=False,
    )
    assert said.stdout.strip() == "b''", said.stderr
    assert total(cluster, name, TOKENS["watcher"], code=code) - before == 1


@needs_root
def test_users_whom_the_configuration_names_are_let_in(start_cluster: StartCluster, tmp_path: Path) -> None:
    lets_in = f'security {{ local_users: "{STRANGER}" '
    config = principals(tmp_path / "tokens").replace("security {", lets_in, 1)
    cluster = start_cluster(1, config)
    assert as_stranger(cluster, "shm") == [1, 2]


def test_by_tls_a_token_still_goes_by_shared_memory(start_cluster: StartCluster, tmp_path: Path) -> None:
    ours = Authority(tmp_path / "ours", "ours")
    certificate, key = ours.issue("server", "server", ("127.0.0.1", "localhost"))
    asks = f'tls {{ certificate_file: "{certificate}" key_file: "{key}" }}'
    config = principals(tmp_path / "tokens").replace("security {", f"security {{ {asks}", 1)
    cluster = start_cluster(1, config, tls=grpc.ssl_channel_credentials(ours.ca_file.read_bytes()))
    keys = np.arange(50, dtype=np.uint64)
    values = {}
    for door in ("shm", "best", "grpc"):
        credentials = slotwise.Credentials(
            token_file=token_file(tmp_path / "tokens", "trainer"), ca_file=ours.ca_file
        )
        with slotwise.connect(cluster.ranks[0].address, door=door, credentials=credentials) as ps:
            values[door] = ps.lookup("ads", keys)
    assert np.array_equal(values["shm"], values["grpc"]) and np.array_equal(values["best"], values["grpc"])


def test_where_certificates_alone_let_in_there_is_no_socket(
    start_cluster: StartCluster, protocol: Protocol, tmp_path: Path
) -> None:
    ours = Authority(tmp_path / "ours", "ours")
    server, trainer = ours.issue("server", "server", ("127.0.0.1",)), ours.issue("trainer", "trainer")
    files = f'certificate_file: "{server[0]}" key_file: "{server[1]}" client_ca_file: "{ours.ca_file}"'
    tls = grpc.ssl_channel_credentials(
        ours.ca_file.read_bytes(), trainer[1].read_bytes(), trainer[0].read_bytes()
    )
    cluster = start_cluster(1, f"security {{ tls {{ {files} }} }}", tls=tls)
    stub = protocol.stub(cluster.ranks[0].channel, "Admin")
    reply = stub.GetTopology(protocol.GetTopologyRequest(), timeout=CALL_TIMEOUT)
    assert [rank.local for rank in reply.ranks] == [""]
    assert not reply.ranks[0].HasField("local_user"), "nobody listens"


def test_a_token_goes_by_shared_memory_and_a_certificate_alone_does_not(
    start_cluster: StartCluster, protocol: Protocol, tmp_path: Path
) -> None:
    ours = Authority(tmp_path / "ours", "ours")
    server, trainer = ours.issue("server", "server", ("127.0.0.1",)), ours.issue("trainer", "trainer")
    asks = f'certificate_file: "{server[0]}" key_file: "{server[1]}" client_ca_file: "{ours.ca_file}"'
    named = f'principals {{ name: "named" certificate_name: "trainer" grants {{ {GRANTS["trainer"]} }} }}'
    config = principals(tmp_path / "tokens").replace("security {", f"security {{ tls {{ {asks} }} {named}", 1)
    tls = grpc.ssl_channel_credentials(
        ours.ca_file.read_bytes(), trainer[1].read_bytes(), trainer[0].read_bytes()
    )
    cluster = start_cluster(1, config, tls=tls)
    token = token_file(tmp_path / "tokens", "trainer")
    for door, mine in (("best", None), ("grpc", None), ("best", token), ("shm", token)):
        credentials = slotwise.Credentials(
            token_file=mine, ca_file=ours.ca_file, certificate_file=trainer[0], key_file=trainer[1]
        )
        with slotwise.connect(cluster.ranks[0].address, door=door, credentials=credentials) as ps:
            assert ps.lookup("ads", [7]).shape == (1, 2), (door, mine)
