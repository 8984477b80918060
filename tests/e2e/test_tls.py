"""TLS and mTLS: who gets through, and what becomes of certificates that change."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import pytest
from certificates import Authority, write
from slotwise_cluster import Cluster, StartCluster, run_server, server_binary, wait_until
from slotwise_wire import CALL_TIMEOUT

import slotwise

HOSTS = ("127.0.0.1", "localhost")
TABLE = 'tables { name: "ads" dim: 2 optimizer { learning_rate: 0.1 sgd {} } }\n'


def channel_credentials(ca: Path, certificate: tuple[Path, Path] | None = None) -> grpc.ChannelCredentials:
    """What gRPC's own client needs."""
    if certificate is None:
        return grpc.ssl_channel_credentials(ca.read_bytes())
    return grpc.ssl_channel_credentials(
        ca.read_bytes(), certificate[1].read_bytes(), certificate[0].read_bytes()
    )


def tls_config(certificate: tuple[Path, Path], client_ca: Path | None = None, more: str = "") -> str:
    """The configuration of a server by TLS."""
    asks = "" if client_ca is None else f'client_ca_file: "{client_ca}"'
    files = f'certificate_file: "{certificate[0]}" key_file: "{certificate[1]}" {asks}'
    return f"security {{ tls {{ {files} }} {more} }}\n{TABLE}"


def works(ps: slotwise.Client) -> None:
    """Looks up and pushes."""
    keys = np.arange(50, dtype=np.uint64)
    assert ps.lookup("ads", keys).shape == (50, 2)
    ps.push("ads", keys, None, np.ones((50, 2), np.float32))


def refused(cluster: Cluster, credentials: slotwise.Credentials) -> str:
    """Why a client does not get through."""
    with pytest.raises((slotwise.Unavailable, slotwise.DeadlineExceeded)) as error:
        slotwise.connect(cluster.ranks[0].address, timeout=2, credentials=credentials)
    return str(error.value)


def test_only_who_trusts_the_servers_authority_gets_through(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    ours, theirs = Authority(tmp_path / "ours", "ours"), Authority(tmp_path / "theirs", "theirs")
    certificate = ours.issue("server", "server", HOSTS)
    cluster = start_cluster(2, tls_config(certificate), tls=channel_credentials(ours.ca_file))
    with slotwise.connect(
        *(rank.address for rank in cluster.ranks), credentials=slotwise.Credentials(ca_file=ours.ca_file)
    ) as ps:
        works(ps)
    refused(cluster, slotwise.Credentials(ca_file=theirs.ca_file))
    refused(cluster, slotwise.Credentials())
    refused(cluster, slotwise.Credentials(ca_file=ours.ca_file, server_name="somebody.else"))
    named = slotwise.Credentials(ca_file=ours.ca_file, server_name="localhost")
    with slotwise.connect(cluster.ranks[0].address, credentials=named) as ps:
        works(ps)


def test_a_client_needs_a_certificate_where_one_is_asked_for(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    ours, theirs = Authority(tmp_path / "ours", "ours"), Authority(tmp_path / "theirs", "theirs")
    trainer = ours.issue("trainer", "trainer.example")
    reader = ours.issue("reader", "x", ("reader.example",))
    stranger = theirs.issue("s", "trainer.example")
    expired = ours.issue("e", "trainer.example", days=(-9, -2))
    unnamed = ours.issue("unnamed", "somebody")
    # Where there are alternative names, the common name is none, and an address is nobody's name.
    spoofed = ours.issue("spoofed", "trainer.example", ("evil.example",))
    addressed = ours.issue("addressed", "trainer.example", ("127.0.0.1",))
    grants = (
        'principals { name: "trainer" certificate_name: "trainer.example"'
        ' grants { table: "ads" rights: [RIGHT_READ, RIGHT_PUSH] } }'
        ' principals { name: "reader" certificate_name: "reader.example"'
        ' grants { table: "ads" rights: RIGHT_READ } }'
    )
    config = tls_config(ours.issue("server", "server", HOSTS), ours.ca_file, grants)
    cluster = start_cluster(1, config, tls=channel_credentials(ours.ca_file, trainer))
    address = cluster.ranks[0].address

    def credentials(files: tuple[Path, Path] | None) -> slotwise.Credentials:
        if files is None:
            return slotwise.Credentials(ca_file=ours.ca_file)
        return slotwise.Credentials(ca_file=ours.ca_file, certificate_file=files[0], key_file=files[1])

    with slotwise.connect(address, credentials=credentials(trainer)) as ps:
        works(ps)
    with slotwise.connect(address, credentials=credentials(reader)) as ps:
        assert ps.lookup("ads", [3], train=False).shape == (1, 2)
        with pytest.raises(slotwise.PermissionDenied, match="reader may not: it needs push"):
            ps.lookup("ads", [3])
    for nobody in (unnamed, spoofed, addressed):
        with pytest.raises(slotwise.Unauthenticated, match="no token, and"):
            slotwise.connect(address, credentials=credentials(nobody))
    for files in (None, stranger, expired):
        refused(cluster, credentials(files))
    ctl = [str(server_binary().parents[1] / "client/ctl/slotwise-ctl"), "health", address, "--timeout", "3"]
    named = {"ca": ours.ca_file, "certificate": trainer[0], "key": trainer[1]}
    flags = [f"--{name}-file={path}" for name, path in named.items()]
    assert subprocess.run([*ctl, *flags], timeout=CALL_TIMEOUT, check=False).returncode == 0
    assert subprocess.run(ctl, timeout=CALL_TIMEOUT, check=False).returncode == 1


def test_certificates_are_read_again_when_they_change(start_cluster: StartCluster, tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old", "old"), Authority(tmp_path / "new", "new")
    certificate, key = old.issue("server", "server", HOSTS)
    cluster = start_cluster(1, tls_config((certificate, key)), tls=channel_credentials(old.ca_file))
    address = cluster.ranks[0].address
    trusts_old = slotwise.Credentials(ca_file=old.ca_file)
    with slotwise.connect(address, channels_per_rank=1, credentials=trusts_old) as before:
        works(before)
        next_certificate, next_key = new.issue("server", "server", HOSTS)
        write(key, next_key.read_bytes())
        write(certificate, next_certificate.read_bytes())

        def serves(authority: Authority) -> bool:
            try:
                trusts = slotwise.Credentials(ca_file=authority.ca_file)
                with slotwise.connect(address, timeout=2, credentials=trusts) as ps:
                    works(ps)
                    return True
            except (slotwise.Unavailable, slotwise.DeadlineExceeded):
                return False

        wait_until(lambda: serves(new), "the new certificate is shown")
        assert not serves(old)
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


def a_directory(path: Path) -> None:
    remove(path)
    path.mkdir()


def a_fifo(path: Path) -> None:
    remove(path)
    os.mkfifo(path)


def a_link_to_zeros(path: Path) -> None:
    remove(path)
    path.symlink_to("/dev/zero")


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
    ("which", "spoil", "why"),
    [
        ("server.pem", a_directory, "no regular file"),
        ("server.key", a_directory, "no regular file"),
        ("ca.pem", a_directory, "no regular file"),
        ("server.pem", a_fifo, "no regular file"),
        ("server.key", a_fifo, "no regular file"),
        ("server.pem", a_link_to_zeros, "no regular file"),
        ("server.key", a_link_to_zeros, "no regular file"),
        ("server.pem", junk, "it has no certificate in PEM"),
        ("server.key", junk, NOT_THE_KEY),
        ("ca.pem", junk, "it has no certificate in PEM"),
        ("server.pem", two_mib, "it is longer than 1048576 bytes"),
        ("server.pem", anothers, NOT_THE_KEY),
        ("server.key", anothers, NOT_THE_KEY),
        ("server.pem", remove, "No such file"),
    ],
)
def test_files_that_are_not_right_leave_the_certificates_in_use(
    start_cluster: StartCluster, tmp_path: Path, which: str, spoil: Callable[[Path], None], why: str
) -> None:
    old, new = Authority(tmp_path / "old", "old"), Authority(tmp_path / "new", "new")
    certificate, key = old.issue("server", "server", HOSTS)
    asks = which == "ca.pem"
    trainer = old.issue("trainer", "trainer")
    config = tls_config((certificate, key), old.ca_file if asks else None)
    cluster = start_cluster(1, config, tls=channel_credentials(old.ca_file, trainer if asks else None))
    is_old = in_der(certificate)
    next_certificate, next_key = new.issue("server", "server", HOSTS)
    is_new = in_der(next_certificate)
    authority = old.ca_file.read_bytes()
    context = ssl.create_default_context(cadata=old.ca_file.read_text() + new.ca_file.read_text())
    context.load_cert_chain(*trainer)
    context.set_alpn_protocols(["h2"])
    spoiled = certificate.with_name(which)

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
    assert why in troubles()[-1] and str(spoiled if why != NOT_THE_KEY else key) in troubles()[-1]
    assert serves() == is_old

    if spoiled.is_dir():
        spoiled.rmdir()
    if asks:
        write(spoiled, authority)
    write(key, next_key.read_bytes())
    write(certificate, next_certificate.read_bytes())
    wait_until(lambda: serves() == is_new, "the new certificate is shown")
    said = troubles()
    assert all(one != other for one, other in zip(said, said[1:])), "a reason is logged once"

    spoil(spoiled)
    wait_until(lambda: is_in_trouble(len(said)), "the log says what is wrong again")
    assert serves() == is_new
    cluster.stop()  # in time, whatever lies in the file's place


@pytest.mark.parametrize(("days", "why"), [((-9, -2), "has expired"), ((2, 9), "is not valid yet")])
def test_a_server_does_not_start_with_a_certificate_of_another_time(
    tmp_path: Path, days: tuple[int, int], why: str
) -> None:
    certificate = Authority(tmp_path, "ours").issue("server", "server", HOSTS, days)
    (tmp_path / "server.pbtxt").write_text(tls_config(certificate))
    ended = run_server("--config", str(tmp_path / "server.pbtxt"))
    assert ended.returncode == 1
    assert why in ended.stdout + ended.stderr


@pytest.mark.parametrize("which", ["server.pem", "server.key", "ca.pem"])
@pytest.mark.parametrize("spoil", [a_directory, a_fifo, a_link_to_zeros, junk, two_mib, remove])
def test_a_server_does_not_start_with_files_that_are_not_right(
    tmp_path: Path, which: str, spoil: Callable[[Path], None]
) -> None:
    ours = Authority(tmp_path, "ours")
    certificate = ours.issue("server", "server", HOSTS)
    (tmp_path / "server.pbtxt").write_text(tls_config(certificate, ours.ca_file))
    spoil(tmp_path / which)
    ended = run_server("--config", str(tmp_path / "server.pbtxt"), "--check-config")
    assert ended.returncode == 1
    assert f"{tmp_path / which}: it " in ended.stdout + ended.stderr


def test_an_open_address_needs_tls_and_principals(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    certificate = ours.issue("server", "server", HOSTS)
    write(tmp_path / "token", b"0123456789abcdef")
    principal = f'principals {{ name: "a" token_file: "{tmp_path}/token" }}'

    def check(config: str) -> int:
        (tmp_path / "server.pbtxt").write_text(f'listen: "0.0.0.0:7070"\n{config}')
        return int(run_server("--config", str(tmp_path / "server.pbtxt"), "--check-config").returncode)

    assert check("") == 1
    assert check(f"security {{ {principal} }}") == 1
    assert check(tls_config(certificate)) == 1
    assert check(tls_config(certificate, more=principal)) == 0
    assert check(tls_config(certificate, client_ca=ours.ca_file)) == 0
    assert check("insecure: true") == 0


def test_a_flood_of_frames_by_tls_is_cut_off(start_cluster: StartCluster, tmp_path: Path) -> None:
    """The bounds on frames hold for what is decrypted, as for what comes in the clear."""
    ours = Authority(tmp_path, "ours")
    certificate = ours.issue("server", "server", HOSTS)
    cluster = start_cluster(1, tls_config(certificate), tls=channel_credentials(ours.ca_file))
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
    cut_off = "cut off a connection by TLS: it sent more frames"
    wait_until(
        lambda: any(cut_off in line for line in cluster.messages(0)),
        "the log says that the connection was cut off",
    )


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
    fields = {":method": "POST", ":scheme": "https", ":path": "/grpc.health.v1.Health/Check"} | {
        ":authority": "x",
        "te": "trailers",
        "content-type": "application/grpc",
    }
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
    start_cluster: StartCluster, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    ours = Authority(tmp_path, "ours")
    good = ours.issue("good", "good")
    server = ours.issue("server", "server", HOSTS)
    tls = channel_credentials(ours.ca_file, good)
    cluster = start_cluster(1, tls_config(server, ours.ca_file), tls=tls)
    address = cluster.ranks[0].address

    def context_of(files: tuple[Path, Path]) -> ssl.SSLContext:
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
