"""The peer PyTorch: an EmbeddingBag that slotwise-bench drives over stdin and stdout.

In: one line of JSON (rows, dim, bags, hot, optimizer, threads, device, calls, seed), the batch's rows as
uint32, then lines "lookup" and "step", each of which is a run of that many calls. Out: a line of JSON that
says what this is, then {"seconds": of a call} a run. Ends when stdin does.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Callable


def answer(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    options = json.loads(sys.stdin.buffer.readline())
    keys = options["bags"] * options["hot"]
    raw = sys.stdin.buffer.read(4 * keys)
    try:
        import torch
    except ImportError as error:
        return answer(error=str(error))

    torch.set_num_threads(options["threads"])
    torch.manual_seed(options["seed"])
    device = torch.device(options["device"])
    rows = torch.frombuffer(bytearray(raw), dtype=torch.int32).to(torch.int64).to(device)
    offsets = torch.arange(0, keys, options["hot"], dtype=torch.int64, device=device)
    bag = torch.nn.EmbeddingBag(options["rows"], options["dim"], mode="sum", sparse=True, device=device)
    gradient = torch.full((options["bags"], options["dim"]), 1 / 1024, device=device)

    # Those of PyTorch's optimizers that take sparse gradients.
    makers: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(bag.parameters(), lr=0.01),
        "adagrad": lambda: torch.optim.Adagrad(bag.parameters(), lr=0.01),
        "adam": lambda: torch.optim.SparseAdam(list(bag.parameters()), lr=0.01),
    }
    optimizer = makers[options["optimizer"]]() if options["optimizer"] in makers else None

    def lookup() -> None:
        with torch.no_grad():
            bag(rows, offsets)

    def step() -> None:
        assert optimizer is not None
        optimizer.zero_grad(set_to_none=True)
        bag(rows, offsets).backward(gradient)
        optimizer.step()

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    what = f"PyTorch {torch.__version__} EmbeddingBag(sum, sparse=True) on {device}, "
    what += f"{torch.get_num_threads()} thread(s), "
    what += type(optimizer).__name__ if optimizer else "lookup only"
    answer(description=what, has_step=optimizer is not None)

    runs = {"lookup": lookup, "step": step}
    for line in sys.stdin.buffer:
        run = runs[line.decode().strip()]
        finish()
        begin = time.perf_counter()
        for _ in range(options["calls"]):
            run()
        finish()
        answer(seconds=(time.perf_counter() - begin) / options["calls"])


if __name__ == "__main__":
    main()
