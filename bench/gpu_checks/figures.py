"""Sections `bench` and `sweep`: slotwise-bench's figures, and how they vary with one thing at a time.

Each is one run of slotwise-bench, which checks its results before it times them and writes them as JSON;
goals.py knows which of the figures have a goal. What is swept is the first word of a sweep's name;
bench/plot.py draws it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from gpu_checks.check import RANKS, Check, Failed, Place
from gpu_checks.sizes import Sizes

_TIMEOUT = 400.0


@dataclass
class Figure:
    """A run of slotwise-bench: `options` follow the subcommand; `ranks` 1 runs without mpirun."""

    name: str
    subcommand: str
    options: Mapping[str, object]
    ranks: int = 1

    def arguments(self) -> list[str]:
        """The command line, without what all figures share."""
        words = [self.subcommand]
        for name, value in self.options.items():
            words += [f"--{name}", str(value)]
        return words


def bench_figures(sizes: Sizes) -> Iterator[Figure]:
    """Those that have goals; then rounds host to host, bags that travel in 16 bits, and what has its goals in
    the benchmark itself: calls of several tables, the journal and checkpoints."""
    for load, alpha in product(sizes.loads, sizes.alphas):
        yield _table(sizes, f"table-load-{load}-alpha-{alpha}", sizes.keys, load, alpha)
    for hot, alpha in product(sizes.hots, sizes.alphas):
        yield _embedding(sizes, f"embedding-hot-{hot}-alpha-{alpha}", hot=hot, alpha=alpha)
    for optimizer, alpha in product(("rowwise_adagrad", "adagrad", "adam"), sizes.alphas):
        name = f"embedding-{optimizer}-alpha-{alpha}"
        yield _embedding(sizes, name, hot=sizes.hots[0], alpha=alpha, optimizer=optimizer)
    for hot, alpha in product(sizes.hots, sizes.alphas):
        yield _embedding(sizes, f"embedding-4-gpus-hot-{hot}-alpha-{alpha}", ranks=4, hot=hot, alpha=alpha)
    for partials in ("fp16", "bf16"):
        name = f"embedding-4-gpus-{partials}"
        yield _embedding(sizes, name, ranks=4, hot=sizes.hots[0], partials=partials)
    for ranks in RANKS:
        yield _rounds(sizes, f"rounds-{ranks}-gpus", ranks)
    yield from _calls_of_several_tables(sizes)
    yield from _durability(sizes)


def sweep_figures(sizes: Sizes) -> Iterator[Figure]:
    """Those that plots are made of."""
    for load, alpha in product(sizes.swept_loads, sizes.alphas):
        yield _table(sizes, f"load-{load}-alpha-{alpha}", int(load * sizes.cells), load, alpha)
    for dim in sizes.swept_dims:
        yield _embedding(sizes, f"dim-{dim}", dim=dim, hot=sizes.hots[0])
    for hot in sizes.swept_hots:
        samples = min(sizes.batch, sizes.most_keys // (hot * sizes.bag_slots))
        yield _embedding(sizes, f"hot-{hot}", hot=hot, batch=samples)
    for ranks, hot in product(RANKS, sizes.hots):
        yield _embedding(sizes, f"gpus-{ranks}-hot-{hot}", ranks=ranks, hot=hot)


def checks(place: Place) -> Iterator[Check]:
    for section, figures in (("bench", bench_figures(place.sizes)), ("sweep", sweep_figures(place.sizes))):
        for figure in figures:
            report = place.out / section / f"{figure.name}.json"
            yield Check(section, figure.name, partial(_measure, place, section, figure, report), report)


def _table(sizes: Sizes, name: str, keys: int, load: float, alpha: float) -> Figure:
    batch = min(sizes.table_batch, keys)
    return Figure(name, "table", {"keys": keys, "batch": batch, "load": load, "alpha": alpha})


def _shape(sizes: Sizes, **more: object) -> dict[str, object]:
    """The options that most subcommands have, and others."""
    usual = {"rows": sizes.rows, "dim": sizes.dim, "slots": sizes.bag_slots, "batch": sizes.batch}
    return {**usual, **more}


def _embedding(sizes: Sizes, name: str, ranks: int = 1, **options: object) -> Figure:
    return Figure(name, "embedding", _shape(sizes, alpha=0, optimizer="sgd") | options, ranks)


def _rounds(sizes: Sizes, name: str, ranks: int) -> Figure:
    options = _shape(sizes, hot=sizes.hots[0], lookups=12)
    return Figure(name, "rounds", options | {"in-flight": 6}, ranks)


def _calls_of_several_tables(sizes: Sizes) -> Iterator[Figure]:
    rows = max(1, sizes.rows // 640)
    usual: dict[str, object] = {"tables": sizes.bag_slots, "rows": rows, "dim": sizes.dim}
    for samples in (sizes.batch // 16, sizes.batch // 4):
        yield Figure(f"tables-{samples}-samples", "tables", usual | {"samples": samples})


def _durability(sizes: Sizes) -> Iterator[Figure]:
    """Small steps and large ones for the journal; the largest table for checkpoints."""
    for batch in sorted({max(1, sizes.batch // 1024), sizes.batch // 32}):
        seconds, repeats = sizes.pushing_seconds, min(3, sizes.repeats)
        pushes = _shape(sizes, rows=sizes.keys // 48, batch=batch, seconds=seconds, repeats=repeats)
        yield Figure(f"journal-{batch}-samples", "journal", pushes)
    batch, seconds = max(1, sizes.batch // 32), sizes.training_seconds
    saves = _shape(sizes, rows=sizes.saved_rows, batch=batch, seconds=seconds, repeats=1)
    yield Figure("checkpoint", "checkpoint", saves | {"copy-on-write-mib": sizes.copy_on_write_mib})


def _measure(place: Place, section: str, figure: Figure, report: Path) -> str:
    place.needs_gpus(figure.ranks)
    report.unlink(missing_ok=True)
    command: list[str | Path] = [place.program("slotwise-bench"), *figure.arguments()]
    command += ["--no-peers", "--backend", place.device]
    if "repeats" not in figure.options:
        command += ["--repeats", str(place.sizes.repeats)]
    command += ["--json", report]
    if place.device == "cpu":
        command += ["--threads", "1"]
    ranks = figure.ranks if figure.ranks > 1 else None
    place.run_native(command, place.log(section, figure.name), _TIMEOUT, ranks)
    if not report.exists():
        raise Failed("slotwise-bench wrote no report")
    return "checked and timed"
