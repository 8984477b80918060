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
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import slotwise
import slotwise.torch as st
import torch
from torch import nn

# Since torch 2.0.
_AUTOGRAD_THREADS: Any = getattr(torch.autograd.grad_mode, "set_multithreading_enabled", None)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="local", help='any rank, or "local"')
    parser.add_argument("--transports", default="best", help="of the client: names, with commas between")
    parser.add_argument("--device", default="cpu", help="of keys, results and torch's rows: cpu or cuda")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=26)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1024, help="samples")
    parser.add_argument("--hot", type=int, default=4, help="keys a bag")
    parser.add_argument("--calls", type=int, default=5, help="in a run")
    parser.add_argument("--repeats", type=int, default=7, help="runs")
    parser.add_argument("--in-flight", action="store_true", help="push in the background, as modules can")
    one_thread = "let backward() work on the thread that calls it"
    parser.add_argument("--one-thread", action="store_true", help=one_thread)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.one_thread and _AUTOGRAD_THREADS is None:
        parser.error(f"--one-thread: torch {torch.__version__} cannot, 2.0 can")
    for name in ("rows", "slots", "dim", "batch", "hot", "calls", "repeats"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is at least 1")
    return arguments


@dataclass
class Contender:
    """One way to look up and to take a step of SGD.

    Attributes:
        flush: waits for what the device knows nothing of.
        seconds: of a call, for each run.
    """

    name: str
    lookup: Callable[[], object]
    step: Callable[[], object]
    flush: Callable[[], object] = lambda: None
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"lookup": [], "lookup and push": []})


class Work:
    """What all contenders do alike: the batches, by turns, the gradient, and the rows to begin with."""

    def __init__(self, o: argparse.Namespace) -> None:
        self.o, self.device = o, torch.device(o.device)
        generator = torch.Generator().manual_seed(o.seed)
        count = o.batch * o.slots * o.hot
        batches = [torch.randint(0, o.rows, (count,), generator=generator) for _ in range(4)]
        self.batches = [batch.to(self.device) for batch in batches]
        self.offsets = torch.arange(0, count + 1, o.hot, device=self.device)
        self.gradient = torch.full((o.batch, o.slots * o.dim), 1 / 1024, device=self.device)
        self.bag = nn.EmbeddingBag(
            o.rows, o.dim, mode="sum", sparse=True, include_last_offset=True, device=self.device
        )
        self.turn = 0

    def keys(self) -> torch.Tensor:
        """Returns the next batch."""
        self.turn += 1
        return self.batches[self.turn % len(self.batches)]

    def contender(self, name: str, module: nn.Module, step: Callable[[], object]) -> Contender:
        """Returns one that looks up by a module."""

        def lookup() -> torch.Tensor:
            with torch.no_grad():
                return module(self.keys(), self.offsets)

        return Contender(name, lookup, step)

    def by_torch(self) -> Contender:
        sgd = torch.optim.SGD(self.bag.parameters(), lr=0.01)

        def step() -> None:
            sgd.zero_grad(set_to_none=True)
            self.bag(self.keys(), self.offsets).backward(self.gradient.view(-1, self.o.dim))
            sgd.step()

        return self.contender("torch", self.bag, step)

    def by_server(self, ps: slotwise.Client, transport: str) -> Contender:
        """Makes a table with torch's rows, and compares what is looked up."""
        o, table = self.o, f"from-torch-{transport}"
        ps.drop_table(table, missing_ok=True)
        ps.create_table(table, dim=o.dim, slots=o.slots, combiner="sum", optimizer=slotwise.SGD(lr=0.01))
        first = 0
        for rows in self.bag.weight.detach().cpu().split(1 << 18):
            ps.import_rows(table, np.arange(first, first + len(rows), dtype=np.uint64), rows.numpy())
            first += len(rows)
        module = st.EmbeddingBag(ps, table, in_flight=o.in_flight)
        with torch.no_grad():
            expected = self.bag(self.batches[0], self.offsets).view(o.batch, -1)
        found = module.eval()(self.batches[0], self.offsets)
        worst = (found - expected).abs().max().item()
        if not worst < 1e-4:
            sys.exit(f"from_torch.py: through {transport} a value differs from torch's by {worst}")
        module.train()

        def step() -> None:
            module(self.keys(), self.offsets).backward(self.gradient)

        contender = self.contender(transport, module, step)
        contender.flush = module.flush
        return contender

    def seconds_of(self, call: Callable[[], object], flush: Callable[[], object]) -> float:
        """Returns the seconds of one of some calls."""
        self._synchronize()
        begin = time.perf_counter()
        for _ in range(self.o.calls):
            call()
        flush()
        self._synchronize()
        return (time.perf_counter() - begin) / self.o.calls

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    """Measures and prints; what the server refuses is one sentence."""
    o = parse_arguments()
    work = Work(o)
    contenders = [work.by_torch()]
    clients = []  # which live as long as what they look up
    for transport in o.transports.split(","):
        clients.append(slotwise.connect(o.server, transport=transport, timeout=120))
        contenders.append(work.by_server(clients[-1], transport))
    with autograd_of(o):
        for each in contenders * 2:  # once to warm up
            each.lookup()
            each.step()
        for _ in range(o.repeats):
            for each in contenders:
                for name, call in (("lookup", each.lookup), ("lookup and push", each.step)):
                    each.seconds[name].append(work.seconds_of(call, each.flush))
    report(o, contenders)


def autograd_of(o: argparse.Namespace) -> contextlib.AbstractContextManager[object]:
    """Returns what all contenders' backward passes run in."""
    if not o.one_thread:
        return contextlib.nullcontext()
    only: contextlib.AbstractContextManager[object] = _AUTOGRAD_THREADS(False)
    return only


def report(o: argparse.Namespace, contenders: list[Contender]) -> None:
    """Prints medians, and of each transport how many times as fast as torch it is."""
    name = torch.cuda.get_device_name() if o.device == "cuda" else f"cpu, {os.cpu_count()} cores"
    print(f"{name}: {o.slots} slots of dim {o.dim}, batch {o.batch}, hot {o.hot}, {o.rows} rows")
    first = contenders[0].seconds
    for each in contenders:
        for what, seconds in each.seconds.items():
            ratio = float(np.median(np.divide(first[what], seconds)))
            line = f"  {each.name:>6}: {what:15} {np.median(seconds) * 1e3:9.3f} ms, "
            line += f"{min(seconds) * 1e3:.3f} to {max(seconds) * 1e3:.3f}; "
            print(f"{line}{ratio:.2f} times as fast as torch", flush=True)
    print(json.dumps({"options": vars(o), "seconds": {c.name: c.seconds for c in contenders}}))


if __name__ == "__main__":
    try:
        main()
    except slotwise.Error as error:
        sys.exit(f"from_torch.py: {error}")
