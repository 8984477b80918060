"""The command line of run-gpu-checks."""

from __future__ import annotations

import argparse
import datetime
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from gpu_checks import figures, host, programs, ranks, sanitizers
from gpu_checks.check import Check, Failed, NotRun, Outcome, Place
from gpu_checks.report import make_report, summary, write_report
from gpu_checks.sizes import FULL, TINY, quick

_NO_TIME = "no time was left"
_SECTIONS = ("tests", "sanitize", "ranks", "bench", "sweep")
_MODULES = (programs, sanitizers, ranks, figures)  # which have the checks
_ABOUT = """\
Checks and measures the Slotwise of this bundle on this machine, on as many GPUs as it has (1, 2 or 4), and
writes one report: report.md, and report.json with the same; besides, a log a check, and as JSON what
slotwise-bench wrote.

sections, in this order:
  tests      the contract suite on every backend, and the tests of kernels
  sanitize   compute-sanitizer's memcheck, initcheck, synccheck and racecheck over a few small tests
  ranks      tests of several ranks, the contract suite too; a rank that is killed, and one that is stopped;
             the Adult demo and the synthetic training against servers of 1, 2 and 4 GPUs, which must end with
             the test AUC of a CPU server, within 0.002
  bench      the figures that have goals
  sweep      the figures of the plots: load factor, dim, keys a bag, number of GPUs

exit status: 0 if every check that can run here passed; 1 if one failed, if the time limit left one out, or if
none could run; 2 for options that make no sense. A figure that misses its goal is reported, and no failure.
"""


def parse_arguments() -> argparse.Namespace:
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("run-gpu-checks", description=_ABOUT, formatter_class=as_it_is)
    add = parser.add_argument
    add("--bundle", type=Path, required=True, help=argparse.SUPPRESS)
    add("--out", type=Path, default=Path("gpu-checks"), metavar="DIR", help="for all that comes out")
    add("--gpus", default="auto", metavar="N", help="GPUs to use: a number, or auto, all there are")
    only = "these sections alone; or checks, as SECTION/NAME, where * and ? stand for any characters: "
    only += "tests,bench/embedding-*"
    add("--only", default=",".join(_SECTIONS), metavar="SECTION,...", help=only)
    ends = "uniform keys, the ends of each sweep, fewer repeats, one epoch"
    add("--quick", action="store_true", help=ends)
    add("--time-limit", type=float, default=float("inf"), metavar="S", help="seconds for all of it")
    tiny = "cpu: at tiny sizes, to try the checks themselves"
    add("--device", choices=("cuda", "cpu"), default="cuda", help=tiny)
    add("--list", action="store_true", help="print the checks that would run, and end")
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    arguments.bundle = arguments.bundle.resolve()
    there = len(host.gpus()) if arguments.device == "cuda" else 4
    if arguments.gpus == "auto":
        arguments.gpus = there
    elif arguments.gpus in ("1", "2", "3", "4") and int(arguments.gpus) <= there:
        arguments.gpus = int(arguments.gpus)
    else:
        parser.error(
            f"--gpus is {arguments.gpus}: must be auto, or 1 to 4 and no more than the {there} there are"
        )
    if arguments.gpus == 0 and not arguments.list:
        parser.error("nvidia-smi -L names no GPU here; --device cpu tries the checks without")
    return arguments


def chosen_checks(place: Place, only: str) -> list[Check]:
    """Those that --only names, in the order of the sections. Raises ValueError if a pattern names none."""
    there = [check for module in _MODULES for check in module.checks(place)]
    patterns = only.split(",")
    for pattern in patterns:
        if not any(check.is_among([pattern]) for check in there):
            raise ValueError(f"--only names {pattern!r}, which is no section and no check: see --list")
    return [check for check in there if check.is_among(patterns)]


def run_check(check: Check, place: Place) -> Outcome:
    """Runs one, unless there is no time left."""
    since = time.monotonic()
    try:
        if place.seconds_left() <= 0:
            raise NotRun(_NO_TIME)
        status, detail = "passed", check.run()
    except Failed as failure:
        status, detail = "failed", str(failure)
    except NotRun as reason:
        status, detail = "not run", str(reason)
    except OSError as error:  # a file or a program that the bundle should have
        status, detail = "failed", str(error)
    return Outcome(check, status, detail, time.monotonic() - since)


def main() -> int:
    """Runs one check after the other; writes the report anew after each, so it outlives whatever comes."""
    arguments = parse_arguments()
    sizes = FULL if arguments.device == "cuda" else TINY
    place = Place(
        bundle=arguments.bundle,
        out=arguments.out,
        device=arguments.device,
        gpus=arguments.gpus,
        sizes=quick(sizes) if arguments.quick else sizes,
        deadline=time.monotonic() + arguments.time_limit,
    )
    try:
        checks = chosen_checks(place, arguments.only)
    except ValueError as error:
        sys.stderr.write(f"run-gpu-checks: {error}\n")
        return 2
    if arguments.list:
        print("\n".join(check.path for check in checks))
        return 0

    signal.signal(signal.SIGTERM, _end)
    place.out.mkdir(parents=True, exist_ok=True)
    machine = host.describe()
    since = time.monotonic()
    run = {
        "command": shlex.join(["run-gpu-checks", *sys.argv[3:]]),  # without --bundle DIR
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": place.device,
        "gpus": place.gpus,
        "seconds": 0.0,
    }
    outcomes: list[Outcome] = []
    for check in checks:
        place.log(check.section, check.name).unlink(missing_ok=True)
        outcomes.append(run_check(check, place))
        last = outcomes[-1]
        print(f"{last.status:8} {check.path}: {last.detail} ({last.seconds:.1f} s)", flush=True)
        run["seconds"] = round(time.monotonic() - since, 1)
        report = make_report(outcomes, machine, run, place.out)
        write_report(report, place.out)
    print(f"{summary(report)}: see {place.out}/report.md")
    left_out = any(outcome.detail == _NO_TIME for outcome in outcomes)
    return 1 if report["counts"]["failed"] or not report["counts"]["passed"] or left_out else 0


def _end(*_: object) -> NoReturn:
    sys.exit(143)  # as a shell says of SIGTERM; children are killed on the way out


if __name__ == "__main__":
    sys.exit(main())
