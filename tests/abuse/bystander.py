"""A well-behaved client beside an attack: looks up again and again, and notes how long each lookup took.

Run by abuse_guard.py as a program of its own: bystander.py HOST:PORT TABLE. For each line of its standard
input it writes one line of JSON: the seconds of the lookups that were answered since the last such line, and
what the failed ones said. Uses what protoc generates from the .proto files, and no Slotwise package.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import grpc
import numpy as np
from slotwise_wire import CHANNEL_OPTIONS, Protocol

KEYS = np.arange(100, dtype="<u8")
PAUSE = 0.002  # seconds between lookups, so that the bystander is no attack itself


def main() -> None:
    """Looks up until standard input ends."""
    address, table = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        protocol = Protocol(Path(folder))
    stub = protocol.stub(grpc.insecure_channel(address, options=CHANNEL_OPTIONS), "Embedding")
    request = protocol.LookupRequest(table=table, mode=2, samples=len(KEYS), keys=KEYS.tobytes())
    lock, seconds, failures = threading.Lock(), [], []

    def look_up() -> None:
        while True:
            began = time.monotonic()
            try:
                stub.Lookup(request, timeout=60)
                failure = None
            except grpc.RpcError as error:
                failure = f"{error.code()}: {error.details()}"
            with lock:
                seconds.append(time.monotonic() - began)
                failures.extend([failure] if failure else [])
            time.sleep(PAUSE)

    threading.Thread(target=look_up, daemon=True).start()
    for _ in sys.stdin:
        with lock:
            print(json.dumps({"seconds": seconds, "failures": failures}), flush=True)
            seconds.clear()
            failures.clear()


if __name__ == "__main__":
    main()
