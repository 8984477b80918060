"""`./dev test frameworks`: models of recommender frameworks, plain and adopted from one seed.

Each model runs in a process of its own, with a server of its own and an empty folder to work in.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import multiprocessing
import os
import re
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from trial import Outcome, compare

import slotwise

FRAMEWORKS = ("deepctr", "fuxictr", "recbole", "torchrec", "loops")
TIMEOUT = 900  # seconds for a model
HEADING = (
    "Of each model: the loss of the first and the last step; by how much a step's loss differs between\n"
    "the adopted model and torch's with resting rows, and, where that was tried, between torch's and\n"
    "torch's own that rounds otherwise.\n"
    "Then metrics: plain, plain with resting rows, adopted. A line with a ! is not as expected.\n"
)
FORK = multiprocessing.get_context("fork")  # a child has the framework's modules already


def run_one(framework: Any, name: str, sender: Connection) -> None:
    """Compares one model, in a process of its own, and sends the Outcome."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.chdir(folder)
        os.dup2(nowhere.fileno(), 1)  # frameworks print what they do
        os.dup2(nowhere.fileno(), 2)
        torch.set_num_threads(1)
        try:
            with slotwise.connect("local") as ps:
                outcome = compare(framework.NAME, name, lambda: framework.make(name), ps)
        except Exception:
            outcome = Outcome(framework.NAME, name, "differs", traceback.format_exc())
        sender.send(outcome)


def run_all(framework: Any, names: list[str], jobs: int) -> Iterator[Outcome]:
    """Yields the Outcomes of models as they come, `jobs` at a time."""
    waiting = list(names)
    running: dict[Connection, tuple[str, Any]] = {}  # a model's name and its process, by its end of the pipe
    while waiting or running:
        while waiting and len(running) < jobs:
            receiver, sender = FORK.Pipe(duplex=False)
            name = waiting.pop(0)
            child = FORK.Process(target=run_one, args=(framework, name, sender))
            child.start()
            sender.close()
            running[receiver] = (name, child)
        ready = wait(list(running), timeout=TIMEOUT)
        if not ready:
            raise TimeoutError(f"no model ended within {TIMEOUT} s: {[name for name, _ in running.values()]}")
        for one in ready:
            assert isinstance(one, Connection)
            name, child = running.pop(one)
            try:
                yield one.recv()
            except EOFError:
                child.join()
                reason = f"its process ended with status {child.exitcode}"
                yield Outcome(framework.NAME, name, "differs", reason)
            child.join()


def expected_verdict(framework: Any, name: str) -> tuple[str, str]:
    """Returns the verdict that a model has to have, and what its reason has to contain."""
    for verdict, models in (("refused", "REFUSED"), ("not plain", "NOT_PLAIN")):
        if name in (reasons := getattr(framework, models, {})):
            return verdict, reasons[name]
    return "equal", ""


def line_of(outcome: Outcome, fits: bool) -> str:
    mark = " " if fits else "!"
    head = f"{mark} {outcome.framework:10} {outcome.name:16} {outcome.optimizer:10} {outcome.verdict:9}"
    if outcome.verdict not in ("equal", "differs") or not outcome.plain:
        return f"{head} {outcome.reason.strip().splitlines()[-1] if outcome.reason else ''}"
    metrics = [
        f"{name} {value:.4f} {outcome.rested.get(name, value):.4f} {outcome.adopted.get(name, value):.4f}"
        for name, value in list(outcome.plain.items())[:3]
    ]
    losses = f"{outcome.steps} steps, loss {outcome.first_loss:.4f} to {outcome.last_loss:.4f}"
    return f"{head} {losses}, off {outcome.loss_off:.1e} ({outcome.torch_off:.1e}) | {'; '.join(metrics)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev test frameworks", description=__doc__)
    which = f"which of {', '.join(FRAMEWORKS)} (all)"
    parser.add_argument("frameworks", nargs="*", choices=[*FRAMEWORKS, []], metavar="FRAMEWORK", help=which)
    parser.add_argument("-k", metavar="PATTERN", default="", help="models whose names match, as re.search")
    parser.add_argument("--few", action="store_true", help="a few well-known models of each framework")
    parser.add_argument("--jobs", type=int, default=2, help="models at a time (2)")
    kept = Path("out/frameworks.jsonl")
    parser.add_argument("--out", type=Path, default=kept, help=f"where a line of JSON a model goes ({kept})")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    print(HEADING)
    wrong, counts = [], Counter[tuple[str, str]]()
    with options.out.open("w", encoding="utf-8") as out:
        for name in options.frameworks or FRAMEWORKS:
            framework = importlib.import_module(f"{name}_models")
            chosen = list(framework.FEW) if options.few else framework.names()
            chosen = [model for model in chosen if re.search(options.k, model)]
            for outcome in run_all(framework, chosen, options.jobs):
                verdict, reason = expected_verdict(framework, outcome.name)
                fits = outcome.verdict == verdict and reason in outcome.reason
                wrong += [] if fits else [f"{outcome.framework} {outcome.name}"]
                counts[outcome.framework, outcome.verdict] += 1
                print(line_of(outcome, fits), flush=True)
                print(json.dumps(dataclasses.asdict(outcome)), file=out, flush=True)
    if not counts:
        print(f"no model of {', '.join(options.frameworks or FRAMEWORKS)} matches {options.k!r}")
        return 1
    for (framework_name, verdict), count in counts.items():
        print(f"{framework_name}: {count} {verdict}")
    if wrong:
        print(f"not as expected: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
