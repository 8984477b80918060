"""Of section `ranks`: a rank that is killed or stopped in the middle of rounds ends all, and says why.

The other ranks then wait for it in a collective: over MPI, or over NCCL if the round had come so far. Which
one that is is chance; that each is reported, and by its name, is what tests/collective/exchange_test.cc sees.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gpu_checks import process, server
from gpu_checks.check import Check, Failed, Place

_LIMIT = 4.0  # seconds: collective_timeout_ms. Connecting GPUs at the start has to fit in too.
_MARGIN = 15.0  # for mpirun to end the ranks that are left, and for the driver to take their GPUs back
_FLOW_TIMEOUT = 60.0
_ROUNDS = 50  # that have to pass between two looks for traffic to flow
_TABLE = "slotwise-bench-rpc"
_REPORT = re.compile(r"(\w+ of \d+ bytes) has not ended after (\S+) s: this rank ends")


def end_of_all(place: Place, name: str, fault: signal.Signals) -> str:
    """Sends the signal to the last rank of a server that answers lookups; all must end by themselves."""
    place.needs_gpus(2)
    ranks = min(place.gpus, 4)
    log = place.log("ranks", f"{name}-server")
    log.parent.mkdir(parents=True, exist_ok=True)
    config = log.with_suffix(".pbtxt")
    config.write_text(f"limits {{ collective_timeout_ms: {int(1000 * _LIMIT)} }}\n", encoding="utf-8")
    with server.started(place, place.device, ranks, log, "--config", str(config)) as running:
        address = running.addresses[0]
        bench: list[str | Path] = [place.program("slotwise-bench"), "rpc", "--server", address]
        bench += ["--backend", "cpu", "--no-peers", "--rows", "20000", "--dim", "16"]
        bench += ["--request", "512", "--requests", "1000000000"]
        with process.started(bench, place.log("ranks", name), place.native(), place.bundle):
            _await_flow(place, name, address)
            pids = running.ranks()
            if sorted(pids) != list(range(ranks)):
                raise Failed(f"ranks {sorted(pids)} were found, of {ranks}")
            os.kill(pids[ranks - 1], fault)
            since = time.monotonic()
            seconds = _await_end(place, running, since)
    seen = f"{ranks} ranks ended {seconds:.1f} s after rank {ranks - 1} got {fault.name}"
    return seen if fault == signal.SIGKILL else f"{seen}: {_report(log.read_text(errors='replace'))}"


def _await_flow(place: Place, name: str, address: str) -> None:
    """Returns when rounds go by, one after another."""
    describe: list[str | Path] = [place.program("slotwise-ctl"), "--server", address]
    describe += ["--json", "describe", _TABLE]
    first: int | None = None

    def flows() -> bool:
        nonlocal first
        ended = process.run(describe, place.log("ranks", f"{name}-rounds"), place.native(), place.bundle, 30)
        if ended.status != 0:  # the table is not there yet
            return False
        rounds = sum(json.loads(ended.output[ended.output.index("{") :])["rounds"].values())
        first = rounds if first is None else first
        return rounds >= first + _ROUNDS

    if not _wait(flows, time.monotonic() + min(_FLOW_TIMEOUT, place.seconds_left())):
        raise Failed(f"no lookups were answered: see {name}.log")


def _await_end(place: Place, running: server.Server, since: float) -> float:
    """Seconds until no rank lived any more. Raises Failed if one does too long, or if all seems well."""
    entrypoint = running.entrypoint.process
    allowed = min(_LIMIT + _MARGIN, place.seconds_left())
    if not _wait(lambda: entrypoint.poll() is not None and not running.ranks(), since + allowed):
        left = ", ".join(map(str, sorted(running.ranks()))) or "none"
        raise Failed(f"not all had ended {allowed:.0f} s later; ranks that lived: {left}")
    if entrypoint.returncode == 0:
        raise Failed("the server's exit status is 0")
    return time.monotonic() - since


def _report(log: str) -> str:
    """What a rank said that had waited for too long."""
    reports = _REPORT.findall(log)
    if not reports:
        raise Failed("no rank said which operation did not end")
    if any(float(seconds) < _LIMIT for _, seconds in reports):
        raise Failed(f"a rank gave up before {_LIMIT:.0f} s were over: {reports}")
    return f"{reports[0][0]} had not ended after {reports[0][1]} s"


def _wait(condition: Callable[[], bool], deadline: float) -> bool:
    """Whether the condition came to hold in time."""
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def checks(place: Place) -> Iterator[Check]:
    """On all GPUs there are, up to 4: a check a signal."""
    for name, fault in (("killed-rank", signal.SIGKILL), ("stopped-rank", signal.SIGSTOP)):
        yield Check("ranks", name, partial(end_of_all, place, name, fault))
