"""What tokens and TLS cost: the same lookups and pushes of servers that differ in nothing else, in turn.

    ./dev python bench/security.py build/cpu/server/slotwise-server

Each server is one rank with the CPU backend on this machine. The door is gRPC, or memory that is shared with
the server ("by memory"). Prints medians, and the median and the quartiles of each round's ratio to gRPC
without security.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import tempfile
from pathlib import Path

from in_turn import measure, server

import slotwise

SAMPLES = (1, 4096)


def certificate(folder: Path) -> None:
    """Writes server.pem and server.key, which is its own authority."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.pem")]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", help="slotwise-server")
    parser.add_argument("--rounds", type=int, default=41, help="timed rounds of each; the median counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        (folder / "token").write_text("0123456789abcdef0123456789abcdef\n")
        certificate(folder)
        grants = 'grants { table: "*" rights: [RIGHT_READ, RIGHT_PUSH] }'
        who = f'principals {{ name: "t" token_file: "{folder}/token" {grants} }}'
        tls = f'tls {{ certificate_file: "{folder}/server.pem" key_file: "{folder}/server.key" }}'
        token, ca = folder / "token", folder / "server.pem"
        doors = {
            "gRPC": ("", "grpc", slotwise.Credentials()),
            "by memory": ("", "shm", slotwise.Credentials()),
            "tokens": (who, "grpc", slotwise.Credentials(token_file=token)),
            "tokens, by memory": (who, "shm", slotwise.Credentials(token_file=token)),
            "TLS": (tls, "grpc", slotwise.Credentials(ca_file=ca)),
            "tokens and TLS": (f"{who} {tls}", "grpc", slotwise.Credentials(token_file=token, ca_file=ca)),
        }
        clients = {}
        for name, (security, door, credentials) in doors.items():
            file = re.sub("[^a-zA-Z]+", "_", name)
            config = folder / f"{file}.pbtxt"
            address = stack.enter_context(server(options.server, config, f"security {{ {security} }}"))
            clients[name] = stack.enter_context(slotwise.connect(address, door=door, credentials=credentials))
        for samples in SAMPLES:
            measure(clients, samples, options.rounds)


if __name__ == "__main__":
    main()
