"""What tokens and TLS cost: the same lookups and pushes of servers that differ in nothing else, in turn.

    ./dev python bench/security.py build/cpu/server/slotwise-server

Each server is one rank with the CPU backend on this machine. The transport is gRPC, or memory that is shared
with the server ("by memory"). Prints medians, and the median and the quartiles of each round's ratio to gRPC
without security.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from in_turn import Contender, compare

import slotwise

SAMPLES = (1, 4096)


def certificate(folder: Path) -> None:
    """Writes server.pem and server.key, which is its own authority."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.pem")]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", help="slotwise-server")
    parser.add_argument("--rounds", type=int, default=41, help="timed rounds of each; the median counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        token, ca = folder / "token", folder / "server.pem"
        token.write_text("0123456789abcdef0123456789abcdef\n")
        certificate(folder)
        grants = 'grants { table: "*" rights: [RIGHT_READ, RIGHT_PUSH] }'
        who = f'principals {{ name: "t" token_file: "{token}" {grants} }}'
        tls = f'tls {{ certificate_file: "{ca}" key_file: "{folder}/server.key" }}'

        def contender(
            security: str, transport: str, token_file: Path | None = None, ca_file: Path | None = None
        ) -> Contender:
            credentials = slotwise.Credentials(token_file=token_file, ca_file=ca_file)
            return Contender(options.server, transport, f"security {{ {security} }}", credentials=credentials)

        contenders = {
            "gRPC": contender("", "grpc"),
            "by memory": contender("", "shm"),
            "tokens": contender(who, "grpc", token_file=token),
            "tokens, by memory": contender(who, "shm", token_file=token),
            "TLS": contender(tls, "grpc", ca_file=ca),
            "tokens and TLS": contender(f"{who} {tls}", "grpc", token_file=token, ca_file=ca),
        }
        compare(contenders, SAMPLES, options.rounds)


if __name__ == "__main__":
    main()
