"""How a client proves who it is, and whom it trusts to be the server."""

from __future__ import annotations

import dataclasses
import os

from slotwise.core import CredentialFiles, text


@dataclasses.dataclass(frozen=True)
class Credentials:
    """Files that are read when the client connects, and again within a second or so when they change.

    A connection keeps the certificates that it began with.

    Attributes:
        token_file: the bearer token that every call sends, the file's first line that is not empty.
        ca_file: certificates in PEM of the authorities that may have issued the server's. With this file, all
            connections are by TLS.
        certificate_file, key_file: the client's own certificate and key in PEM, for servers that ask for one;
            they need ca_file.
        server_name: the name in the server's certificate, if the address has another.
        insecure: lets the token travel unencrypted to other hosts, where listeners can take it.
    """

    token_file: str | os.PathLike[str] | None = None
    ca_file: str | os.PathLike[str] | None = None
    certificate_file: str | os.PathLike[str] | None = None
    key_file: str | os.PathLike[str] | None = None
    server_name: str | None = None
    insecure: bool = False

    def native(self) -> CredentialFiles:
        """Returns them for the core."""
        files = [
            None if path is None else os.fsencode(path)
            for path in (self.token_file, self.ca_file, self.certificate_file, self.key_file)
        ]
        name = None if self.server_name is None else text(self.server_name)
        return CredentialFiles(*files, name, int(self.insecure))
