"""Certificates for tests: authorities, and what they sign."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def write(path: Path, content: bytes) -> None:
    """Puts a file in another's place, so that no process reads half of it."""
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    os.replace(beside, path)


class Authority:
    """Signs certificates; `ca_file` is its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ca_file = folder / "ca.pem"
        write(self.ca_file, self._sign(self._name, self._key, [], is_authority=True, days=(-1, 365)))

    def issue(
        self, stem: str, name: str, hosts: tuple[str, ...] = (), days: tuple[float, float] = (-1, 30)
    ) -> tuple[Path, Path]:
        """Writes STEM.pem and STEM.key, of a new key with a common name, valid for `days` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives: list[x509.GeneralName] = []
        for host in hosts:
            try:
                alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                alternatives.append(x509.DNSName(host))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate, key_file = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        write(key_file, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        write(certificate, self._sign(subject, key, alternatives, is_authority=False, days=days))
        return certificate, key_file

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        alternatives: list[x509.GeneralName],
        is_authority: bool,
        days: tuple[float, float],
    ) -> bytes:
        now = datetime.datetime.utcnow()
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * DAY)
            .not_valid_after(now + days[1] * DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
