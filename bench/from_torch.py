"""Times lookups and steps of a torch trainer: its rows on a server, and torch's own beside them, by turns.

What is timed is what a trainer waits for: the device is synchronised around each run of `--calls` calls.
Before that, both get the same rows, and the results are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import slotwise
import slotwise.torch as st
import torch
from torch import nn

# Since torch 2.0.
_AUTOGRAD_THREADS: Any = getattr(torch.autograd.grad_mode, "set_multithreading_enabled", None)


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="local", help='any rank, or "local"')
    parser.add_argument("--doors", default="best", help="of the client: names, with commas between")
    parser.add_argument("--device", default="cpu", help="of keys, results and torch's rows: cpu or cuda")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=26)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1024, help="samples")
    parser.add_argument("--hot", type=int, default=4, help="keys a bag")
    parser.add_argument("--calls", type=int, default=5, help="in a run")
    parser.add_argument("--repeats", type=int, default=7, help="runs")
    parser.add_argument("--in-flight", action="store_true", help="push in the background, as modules can")
    parser.add_argument(
        "--one-thread", action="store_true", help="let backward() work on the thread that calls it"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.one_thread and _AUTOGRAD_THREADS is None:
        parser.error(f"--one-thread: torch {torch.__version__} cannot, 2.0 can")
    for name in ("rows", "slots", "dim", "batch", "hot", "calls", "repeats"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is at least 1")
    return arguments


class Contender:
    """One way to look up and to take a step of SGD.

    Attributes:
        name: what it is called.
        lookup, step: do it once.
        flush: waits for what the device knows nothing of.
    """

    def __init__(
        self,
        name: str,
        lookup: Callable[[], object],
        step: Callable[[], object],
        flush: Callable[[], object] = lambda: None,
    ) -> None:
        self.name, self.lookup, self.step, self.flush = name, lookup, step, flush
        self.seconds: dict[str, list[float]] = {"lookup": [], "lookup and push": []}


def main() -> None:
    """Measures and prints; what the server refuses is one sentence."""
    o = parse_arguments()
    device = torch.device(o.device)
    generator = torch.Generator().manual_seed(o.seed)
    count = o.batch * o.slots * o.hot
    batches = [torch.randint(0, o.rows, (count,), generator=generator).to(device) for _ in range(4)]
    offsets = torch.arange(0, count + 1, o.hot, device=device)
    gradient = torch.full((o.batch, o.slots * o.dim), 1 / 1024, device=device)
    bag = nn.EmbeddingBag(o.rows, o.dim, mode="sum", sparse=True, include_last_offset=True, device=device)
    sgd = torch.optim.SGD(bag.parameters(), lr=0.01)
    turn = [0]

    def keys() -> torch.Tensor:
        turn[0] += 1
        return batches[turn[0] % len(batches)]

    def torch_lookup() -> torch.Tensor:
        with torch.no_grad():
            return bag(keys(), offsets)

    def torch_step() -> None:
        sgd.zero_grad(set_to_none=True)
        bag(keys(), offsets).backward(gradient.view(-1, o.dim))
        sgd.step()

    contenders = [Contender("torch", torch_lookup, torch_step)]
    clients = []
    for door in o.doors.split(","):
        ps = slotwise.connect(o.server, door=door, timeout=120)
        clients.append(ps)
        contenders.append(contender_of(ps, door, o, bag, keys, offsets, gradient, batches[0]))
    with autograd_of(o):
        for each in contenders * 2:  # once to warm up
            each.lookup()
            each.step()
        for _ in range(o.repeats):
            for each in contenders:
                for name, call in (("lookup", each.lookup), ("lookup and push", each.step)):
                    each.seconds[name].append(seconds_of(call, each.flush, o.calls, device))
    report(o, contenders)


def autograd_of(o: argparse.Namespace) -> contextlib.AbstractContextManager[object]:
    """Returns what all contenders' backward passes run in."""
    if not o.one_thread:
        return contextlib.nullcontext()
    only: contextlib.AbstractContextManager[object] = _AUTOGRAD_THREADS(False)
    return only


def contender_of(
    ps: slotwise.Client,
    door: str,
    o: argparse.Namespace,
    bag: nn.EmbeddingBag,
    keys: Callable[[], torch.Tensor],
    offsets: torch.Tensor,
    gradient: torch.Tensor,
    probe: torch.Tensor,
) -> Contender:
    """Makes a table with torch's rows, and compares what is looked up."""
    table = f"from-torch-{door}"
    try:
        ps.drop_table(table)
    except slotwise.NotFound:
        pass
    ps.create_table(table, dim=o.dim, slots=o.slots, combiner="sum", optimizer=slotwise.SGD(lr=0.01))
    rows = bag.weight.detach().cpu().numpy()
    step = 1 << 18
    for first in range(0, o.rows, step):
        ids = np.arange(first, min(first + step, o.rows), dtype=np.uint64)
        ps.import_rows(table, ids, rows[first : first + len(ids)])
    module = st.EmbeddingBag(ps, table, in_flight=o.in_flight)
    with torch.no_grad():
        expected = bag(probe, offsets).view(o.batch, -1)
    module.eval()
    found = module(probe, offsets)
    worst = (found - expected).abs().max().item()
    if not worst < 1e-4:
        sys.exit(f"from_torch.py: through {door} a value differs from torch's by {worst}")
    module.train()

    def lookup() -> torch.Tensor:
        with torch.no_grad():
            return module(keys(), offsets)

    def take_step() -> None:
        module(keys(), offsets).backward(gradient)

    return Contender(door, lookup, take_step, module.flush)


def seconds_of(
    call: Callable[[], object], flush: Callable[[], object], calls: int, device: torch.device
) -> float:
    """Returns the seconds of one of some calls."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    flush()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls


def report(o: argparse.Namespace, contenders: list[Contender]) -> None:
    """Prints medians, and of each door how many times as fast as torch it is."""
    name = torch.cuda.get_device_name() if o.device == "cuda" else f"cpu, {os.cpu_count()} cores"
    print(f"{name}: {o.slots} slots of dim {o.dim}, batch {o.batch}, hot {o.hot}, {o.rows} rows")
    first = contenders[0].seconds
    for each in contenders:
        for what, seconds in each.seconds.items():
            ratio = float(np.median(np.divide(first[what], seconds)))
            print(
                f"  {each.name:>6}: {what:15} {np.median(seconds) * 1e3:9.3f} ms, "
                f"{min(seconds) * 1e3:.3f} to {max(seconds) * 1e3:.3f}; "
                f"{ratio:.2f} times as fast as torch",
                flush=True,
            )
    print(json.dumps({"options": vars(o), "seconds": {c.name: c.seconds for c in contenders}}))


if __name__ == "__main__":
    try:
        main()
    except slotwise.Error as error:
        sys.exit(f"from_torch.py: {error}")
