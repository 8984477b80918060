"""TLS and mTLS: who gets through, and what becomes of certificates that change."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from certificates import Authority, write
from programs import CTL, run
from slotwise_cluster import Cluster, StartCluster, run_server, wait_until
from slotwise_wire import CALL_TIMEOUT

import slotwise

HOSTS = ("127.0.0.1", "localhost")
TABLE = 'tables { name: "ads" dim: 2 optimizer { learning_rate: 0.1 sgd {} } }\n'


Files = tuple[Path, Path]  # a certificate, and its key


def channel_credentials(ca: Path, mine: Files | None = None) -> grpc.ChannelCredentials:
    """What gRPC's own client needs."""
    key_and_certificate = [file.read_bytes() for file in reversed(mine or ())]
    return grpc.ssl_channel_credentials(ca.read_bytes(), *key_and_certificate)


def credentials(ca: Path, mine: Files | None = None, **more: Any) -> slotwise.Credentials:
    """What our client needs."""
    more |= zip(("certificate_file", "key_file"), mine or ())
    return slotwise.Credentials(ca_file=ca, **more)


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours", "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "theirs", "theirs")


@pytest.fixture
def server(ours: Authority) -> Files:
    """Of a server."""
    return ours.issue("server", "server", HOSTS)


def tls_config(certificate: Files, client_ca: Path | None = None, more: str = "") -> str:
    """The configuration of a server by TLS."""
    asks = "" if client_ca is None else f'client_ca_file: "{client_ca}"'
    files = f'certificate_file: "{certificate[0]}" key_file: "{certificate[1]}" {asks}'
    return f"security {{ tls {{ {files} }} {more} }}\n{TABLE}"


def works(ps: slotwise.Client) -> None:
    """Looks up and pushes."""
    keys = np.arange(50, dtype=np.uint64)
    assert ps.lookup("ads", keys).shape == (50, 2)
    ps.push("ads", keys, None, np.ones((50, 2), np.float32))


def refused(cluster: Cluster, how: slotwise.Credentials) -> str:
    """Why a client does not get through."""
    with pytest.raises((slotwise.Unavailable, slotwise.DeadlineExceeded)) as error:
        cluster.connect(timeout=2, credentials=how)
    return str(error.value)


def test_only_who_trusts_the_servers_authority_gets_through(
    start_cluster: StartCluster, ours: Authority, theirs: Authority, server: Files
) -> None:
    cluster = start_cluster(2, tls_config(server), tls=channel_credentials(ours.ca_file))
    addresses = [rank.address for rank in cluster.ranks]
    with slotwise.connect(*addresses, credentials=credentials(ours.ca_file)) as ps:
        works(ps)
    refused(cluster, credentials(theirs.ca_file))
    refused(cluster, slotwise.Credentials())
    refused(cluster, credentials(ours.ca_file, server_name="somebody.else"))
    with cluster.connect(credentials=credentials(ours.ca_file, server_name="localhost")) as ps:
        works(ps)


def test_a_client_needs_a_certificate_where_one_is_asked_for(
    start_cluster: StartCluster, ours: Authority, theirs: Authority, server: Files
) -> None:
    trainer = ours.issue("trainer", "trainer.example")
    reader = ours.issue("reader", "x", ("reader.example",))
    stranger = theirs.issue("s", "trainer.example")
    expired = ours.issue("e", "trainer.example", days=(-9, -2))
    unnamed = ours.issue("unnamed", "somebody")
    # Where there are alternative names, the common name is none, and an address is no name.
    spoofed = ours.issue("spoofed", "trainer.example", ("evil.example",))
    addressed = ours.issue("addressed", "trainer.example", ("127.0.0.1",))
    grants = (
        'principals { name: "trainer" certificate_name: "trainer.example"'
        ' grants { table: "ads" rights: [RIGHT_READ, RIGHT_PUSH] } }'
        ' principals { name: "reader" certificate_name: "reader.example"'
        ' grants { table: "ads" rights: RIGHT_READ } }'
    )
    config = tls_config(server, ours.ca_file, grants)
    cluster = start_cluster(1, config, tls=channel_credentials(ours.ca_file, trainer))
    with cluster.connect(credentials=credentials(ours.ca_file, trainer)) as ps:
        works(ps)
    with cluster.connect(credentials=credentials(ours.ca_file, reader)) as ps:
        assert ps.lookup("ads", [3], train=False).shape == (1, 2)
        with pytest.raises(slotwise.PermissionDenied, match="reader may not: it needs push"):
            ps.lookup("ads", [3])
    for unknown in (unnamed, spoofed, addressed):
        with pytest.raises(slotwise.Unauthenticated, match="no token, and"):
            cluster.connect(credentials=credentials(ours.ca_file, unknown))
    for files in (None, stranger, expired):
        refused(cluster, credentials(ours.ca_file, files))
    ctl = [CTL, "health", cluster.ranks[0].address, "--timeout", "3"]
    named = {"ca": ours.ca_file, "certificate": trainer[0], "key": trainer[1]}
    flags = [f"--{name}-file={path}" for name, path in named.items()]
    assert run(*ctl, *flags).returncode == 0
    assert run(*ctl).returncode == 1


def put(files: Files, others: Files) -> None:
    """Puts another certificate and its key in a pair's place."""
    for file, other in zip(reversed(files), reversed(others)):
        write(file, other.read_bytes())


def test_certificates_are_read_again_when_they_change(
    start_cluster: StartCluster, ours: Authority, theirs: Authority, server: Files
) -> None:
    cluster = start_cluster(1, tls_config(server), tls=channel_credentials(ours.ca_file))
    with cluster.connect(channels_per_rank=1, credentials=credentials(ours.ca_file)) as before:
        works(before)
        put(server, theirs.issue("server", "server", HOSTS))

        def serves(authority: Authority) -> bool:
            try:
                with cluster.connect(timeout=2, credentials=credentials(authority.ca_file)) as ps:
                    works(ps)
                    return True
            except (slotwise.Unavailable, slotwise.DeadlineExceeded):
                return False

        wait_until(lambda: serves(theirs), "the new certificate is shown")
        assert not serves(ours)
        works(before)  # a connection keeps what it began with


STAY = "the certificates stay as they were: "


def shown(address: str, context: ssl.SSLContext) -> bytes:
    """The certificate that a new connection is shown, which is trusted and serves calls."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=CALL_TIMEOUT) as plain:
        with context.wrap_socket(plain, server_hostname=host) as connection:
            certificate = connection.getpeercert(binary_form=True)
            assert certificate is not None
    answered, _, _ = checks_health(context, address)
    assert answered, "a new connection is served"
    return certificate


def in_der(certificate: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


def remove(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()


def by(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """Puts something else in a file's place."""

    def spoil(path: Path) -> None:
        remove(path)
        make(path)

    return spoil


a_directory, a_fifo = by(Path.mkdir), by(os.mkfifo)
a_link_to_zeros = by(lambda path: path.symlink_to("/dev/zero"))


def junk(path: Path) -> None:
    write(path, b"-----BEGIN junk\n" * 100)


def two_mib(path: Path) -> None:
    write(path, path.read_bytes() + b"\n" * (2 << 20))


def anothers(path: Path) -> None:
    """What a rotation has written that is half done."""
    other = Authority(path.parent / "others", "other").issue("other", "server", HOSTS)
    write(path, other[path.suffix == ".key"].read_bytes())


NOT_THE_KEY = "it has no key in PEM, or not the certificate's"


@pytest.mark.parametrize(
    ("spoil", "which", "why"),
    [
        *((spoil, which, "no regular file") for which in ("server.pem", "server.key")
          for spoil in (a_directory, a_fifo, a_link_to_zeros)),
        (a_directory, "ca.pem", "no regular file"),
        (junk, "server.pem", "it has no certificate in PEM"),
        (junk, "server.key", NOT_THE_KEY),
        (junk, "ca.pem", "it has no certificate in PEM"),
        (two_mib, "server.pem", "it is longer than 1048576 bytes"),
        (anothers, "server.pem", NOT_THE_KEY),
        (anothers, "server.key", NOT_THE_KEY),
        (remove, "server.pem", "No such file"),
    ],
)  # fmt: skip
def test_files_that_are_not_right_leave_the_certificates_in_use(
    start_cluster: StartCluster,
    ours: Authority,
    theirs: Authority,
    server: Files,
    spoil: Callable[[Path], None],
    which: str,
    why: str,
) -> None:
    asks, trainer = which == "ca.pem", ours.issue("trainer", "trainer")
    config = tls_config(server, ours.ca_file if asks else None)
    cluster = start_cluster(1, config, tls=channel_credentials(ours.ca_file, trainer if asks else None))
    others = theirs.issue("server", "server", HOSTS)
    is_old, is_new = in_der(server[0]), in_der(others[0])
    authority = ours.ca_file.read_bytes()
    context = ssl.create_default_context(cadata=ours.ca_file.read_text() + theirs.ca_file.read_text())
    context.load_cert_chain(*trainer)
    context.set_alpn_protocols(["h2"])
    spoiled = server[0].with_name(which)

    def serves() -> bytes:
        return shown(cluster.ranks[0].address, context)

    def troubles() -> list[str]:
        log = cluster.log(0)
        return [line["message"] for line in log if STAY in line["message"] and line["level"] == "error"]

    def is_in_trouble(lines: int) -> bool:
        assert serves() in (is_old, is_new)
        return len(troubles()) > lines

    spoil(spoiled)
    wait_until(lambda: is_in_trouble(0), "the log says what is wrong")
    assert why in troubles()[-1] and str(spoiled if why != NOT_THE_KEY else server[1]) in troubles()[-1]
    assert serves() == is_old

    if spoiled.is_dir():
        spoiled.rmdir()
    if asks:
        write(spoiled, authority)
    put(server, others)
    wait_until(lambda: serves() == is_new, "the new certificate is shown")
    said = troubles()
    assert all(one != other for one, other in zip(said, said[1:])), "a reason is logged once"

    spoil(spoiled)
    wait_until(lambda: is_in_trouble(len(said)), "the log says what is wrong again")
    assert serves() == is_new
    cluster.stop()  # in time, whatever lies in the file's place


def check(folder: Path, config: str) -> str:
    """What --check-config refuses."""
    (folder / "server.pbtxt").write_text(config)
    ended = run_server("--config", str(folder / "server.pbtxt"), "--check-config")
    assert ended.returncode in (0, 1)
    return ended.stdout + ended.stderr if ended.returncode else ""


@pytest.mark.parametrize(("days", "why"), [((-9, -2), "has expired"), ((2, 9), "is not valid yet")])
def test_a_server_does_not_start_with_a_certificate_of_another_time(
    tmp_path: Path, ours: Authority, days: tuple[int, int], why: str
) -> None:
    (tmp_path / "server.pbtxt").write_text(tls_config(ours.issue("server", "server", HOSTS, days)))
    ended = run_server("--config", str(tmp_path / "server.pbtxt"))
    assert ended.returncode == 1
    assert why in ended.stdout + ended.stderr


@pytest.mark.parametrize("which", ["server.pem", "server.key", "ca.pem"])
@pytest.mark.parametrize("spoil", [a_directory, a_fifo, a_link_to_zeros, junk, two_mib, remove])
def test_a_server_does_not_start_with_files_that_are_not_right(
    tmp_path: Path, ours: Authority, server: Files, which: str, spoil: Callable[[Path], None]
) -> None:
    spoiled = server[0].with_name(which)
    spoil(spoiled)
    assert f"{spoiled}: it " in check(tmp_path, tls_config(server, ours.ca_file))


def test_an_open_address_needs_tls_and_principals(tmp_path: Path, ours: Authority, server: Files) -> None:
    write(tmp_path / "token", b"0123456789abcdef")
    principal = f'principals {{ name: "a" token_file: "{tmp_path}/token" }}'
    alone = tls_config(server)
    both, mutual = tls_config(server, more=principal), tls_config(server, client_ca=ours.ca_file)
    for config in ("", f"security {{ {principal} }}", alone):
        assert check(tmp_path, f'listen: "0.0.0.0:7070"\n{config}')
    for config in (both, mutual, "insecure: true"):
        assert not check(tmp_path, f'listen: "0.0.0.0:7070"\n{config}')


def test_a_flood_of_frames_by_tls_is_cut_off(
    start_cluster: StartCluster, ours: Authority, server: Files
) -> None:
    """The bounds on frames hold for what is decrypted, as for what comes in the clear."""
    cluster = start_cluster(1, tls_config(server), tls=channel_credentials(ours.ca_file))
    host, port = cluster.ranks[0].address.split(":")
    context = ssl.create_default_context(cafile=str(ours.ca_file))
    context.set_alpn_protocols(["h2"])
    frame = struct.pack(">I", 8)[1:] + bytes([6, 0, 0, 0, 0, 0]) + bytes(8)  # a PING
    with socket.create_connection((host, int(port)), timeout=CALL_TIMEOUT) as plain:
        with context.wrap_socket(plain, server_hostname=host) as connection:
            settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
            with pytest.raises(OSError):  # noqa: PT012
                for _ in range(10_000):
                    connection.sendall(frame * 1000)
    cluster.await_messages("cut off a connection by TLS: it sent more frames")


def literal(name: bytes, value: bytes) -> bytes:
    """A field of a call's headers, as HPACK has it that neither packs nor remembers it."""
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def frame_of(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def checks_health(
    context: ssl.SSLContext, address: str, session: ssl.SSLSession | None = None
) -> tuple[bool, ssl.SSLSession | None, bool]:
    """Whether the health service answers a call by TLS, the session, and whether it was an earlier one."""
    host, port = address.split(":")
    fields = {":method": "POST", ":scheme": "https", ":path": "/grpc.health.v1.Health/Check"}
    fields |= {":authority": "x", "te": "trailers", "content-type": "application/grpc"}
    headers = b"".join(literal(name.encode(), value.encode()) for name, value in fields.items())
    call = frame_of(1, 4, 1, headers) + frame_of(0, 1, 1, bytes(5))
    heard = b""
    with socket.create_connection((host, int(port)), timeout=CALL_TIMEOUT) as plain:
        with context.wrap_socket(plain, server_hostname=host, session=session) as connection:
            reused = bool(connection.session_reused)
            try:
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame_of(4, 0, 0, b"") + call)
                while piece := connection.recv(4096):
                    heard += piece
                    kinds, rest = [], heard
                    while len(rest) >= 9 and len(rest) >= 9 + int.from_bytes(rest[:3], "big"):
                        kinds.append((rest[3], int.from_bytes(rest[5:9], "big")))
                        rest = rest[9 + int.from_bytes(rest[:3], "big") :]
                    if (1, 1) in kinds:
                        return True, connection.session, reused
            except OSError:
                pass
            return False, connection.session, reused


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_outlives_no_certificate(
    start_cluster: StartCluster, ours: Authority, server: Files, version: ssl.TLSVersion
) -> None:
    good = ours.issue("good", "good")
    tls = channel_credentials(ours.ca_file, good)
    address = start_cluster(1, tls_config(server, ours.ca_file), tls=tls).ranks[0].address

    def context_of(files: Files) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(ours.ca_file))
        context.minimum_version = context.maximum_version = version
        context.load_cert_chain(*files)
        context.set_alpn_protocols(["h2"])
        return context

    lasting = context_of(good)
    answered, session, _ = checks_health(lasting, address)
    assert answered
    answered, _, reused = checks_health(lasting, address, session)
    assert answered and reused, "a session is resumed, or this test shows nothing"
    seconds = 5
    ends = time.time() + seconds
    short = context_of(ours.issue("short", "short", days=(-1, seconds / 86400)))
    answered, session, _ = checks_health(short, address)
    assert answered
    wait_until(lambda: time.time() > ends + 1, "the certificate expires")  # X.509 counts in seconds
    answered, _, reused = checks_health(short, address, session)
    assert reused and not answered
