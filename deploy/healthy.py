#!/usr/bin/env python3
"""Exits 0 if every server named is serving; else says which is not, and exits 1.

Asks the standard gRPC health service, and needs nothing of Slotwise. It is the health check of the
server's container, and how `./dev demo` waits for its server.
"""

from __future__ import annotations

import argparse
import sys
import time

import grpc

_SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse{status: SERVING}
_OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 500)]


def why_not(address: str, wait: float) -> str | None:
    """None if the server at `address` serves now or within `wait` seconds; else what it said instead."""
    deadline = time.monotonic() + wait
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        while True:
            left = deadline - time.monotonic()
            try:
                if check(b"", wait_for_ready=left > 1, timeout=max(left, 1.0)) == _SERVING:
                    return None
                reason = "it is up but not serving"
            except grpc.RpcError as error:
                reason = str(error.details())
            if time.monotonic() >= deadline:
                return reason
            time.sleep(0.05)


def main() -> None:
    """Asks one server after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("addresses", nargs="*", default=["127.0.0.1:7070"], metavar="HOST:PORT")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="may pass first (0)")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.wait
    for address in arguments.addresses:
        if reason := why_not(address, deadline - time.monotonic()):
            sys.exit(f"{address}: {reason}")


if __name__ == "__main__":
    main()
