"""The Python client at large lookups and pushes, which slotwise-bench drives over stdin and stdout.

In: one line of JSON (address, table, dim, samples, in_flight, turns, channels), the keys as uint64, then
lines "lookup float32", "push bfloat16", ..., each of which is a run of in_flight x turns calls, of which
in_flight are under way at a time. Out: a line of JSON that says what this is, then {"seconds": of all calls}
a run. Ends when stdin does. The client is the one of the checkout that this file lies in.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

CLIENT = Path(__file__).resolve().parents[2] / "client" / "python"


def answer(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    options = json.loads(sys.stdin.buffer.readline())
    sys.path.insert(0, str(CLIENT))
    try:
        import numpy as np

        import slotwise

        ps = slotwise.connect(options["address"], channels_per_rank=options["channels"])
        table, slots = options["table"], ps.describe_table(options["table"]).options.slots
    except Exception as error:
        return answer(error=str(error))
    raw = sys.stdin.buffer.read(8 * options["samples"] * slots)
    keys = np.frombuffer(raw, np.uint64).reshape(options["samples"], slots)
    shape = (options["samples"], slots * options["dim"])
    results = [np.empty(shape, np.float32) for _ in range(options["in_flight"])]
    gradients = np.zeros(shape, np.float32)
    python = sys.version.split()[0]
    answer(description=f"the Python client of {CLIENT}, NumPy {np.__version__}, Python {python}")
    for line in sys.stdin.buffer:
        operation, wire_dtype = line.decode().split()

        def start(out: Any) -> slotwise.Future[Any]:
            if operation == "lookup":
                return ps.lookup_async(table, keys, wire_dtype=wire_dtype, out=out)
            return ps.push_async(table, keys, None, gradients, wire_dtype=wire_dtype)

        begin = time.perf_counter()
        futures = [start(out) for out in results]
        for call in range(len(results) * options["turns"]):
            which = call % len(results)
            futures[which].result()
            if call + len(results) < len(results) * options["turns"]:
                futures[which] = start(results[which])
        seconds = time.perf_counter() - begin
        if operation == "lookup":
            expected = np.repeat(keys.astype(np.float32), options["dim"], axis=1)
            rtol = 0 if wire_dtype == "float32" else 1 / 256
            if not all(np.allclose(values, expected, rtol=rtol, atol=0) for values in results):
                return answer(error="wrong result: a row is not what was imported")
        answer(seconds=seconds)


if __name__ == "__main__":
    main()
