"""Section `ranks`: programs and servers over several ranks, one a GPU; faults.py has what ends a server.

The Adult demo and the synthetic training must end on a server with GPUs where they end on one with a CPU of
the same machine: the trainer is the same, so only what the server does could tell them apart.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from gpu_checks import faults
from gpu_checks.check import RANKS, Check, Failed, NotRun, Place
from gpu_checks.programs import TestProgram, run_gtest, test_programs
from gpu_checks.server import serving

_TOLERANCE = 0.002  # between test AUCs
_TIMEOUT = 240.0
_MODULES = ("torch", "numpy", "matplotlib", "tqdm")


@dataclass
class Trained:
    """What a training ended with."""

    auc: float
    digest: str  # of the table's bytes


@dataclass
class Training:
    """One of the examples: how it is started, and how the line with its AUC begins."""

    name: str
    arguments: list[str]
    auc: str

    def result(self, printed: str) -> Trained:
        """Raises Failed if the trainer did not print it."""
        auc = re.search(rf"^{self.auc} (\d\.\d+)", printed, re.M)
        digest = re.search(r"digest ([0-9a-f]{32})", printed)
        if auc is None or digest is None:
            raise Failed(f"{self.name} printed no AUC or no digest")
        return Trained(float(auc[1]), digest[1])


@dataclass
class Trainer:
    """Runs trainings, each against a server of its own; remembers what the CPU's server came to."""

    place: Place
    references: dict[str, Trained] = field(default_factory=dict)

    def compare(self, training: Training, ranks: int) -> str:
        """Trains on `ranks` ranks of the device, and on one of the CPU unless that is known."""
        self.place.needs_gpus(ranks)
        if missing := [module for module in _MODULES if not _is_there(module)]:
            raise NotRun(f"this python3 has no {', '.join(missing)}")
        if training.name not in self.references:
            self.references[training.name] = self._train(training, "cpu", 1, "on-the-cpu")
        reference = self.references[training.name]
        trained = self._train(training, self.place.device, ranks, str(ranks))
        seen = f"test AUC {trained.auc:.4f}, on the CPU {reference.auc:.4f}"
        if not abs(trained.auc - reference.auc) <= _TOLERANCE:
            raise Failed(f"{seen}: more than {_TOLERANCE} apart")
        return f"{seen}; {'the same' if trained.digest == reference.digest else 'other'} bytes in the table"

    def _train(self, training: Training, backend: str, ranks: int, name: str) -> Trained:
        server_log = self.place.log("ranks", f"{training.name}-{name}-server")
        with serving(self.place, backend, ranks, server_log) as address:
            arguments = [*training.arguments, "--server", address]
            log = self.place.log("ranks", f"{training.name}-{name}")
            return training.result(self.place.run_python(arguments, log, _TIMEOUT).output)


def trainings(place: Place) -> list[Training]:
    """The Adult demo, and the synthetic one at a small size."""
    sizes, examples = place.sizes, place.bundle / "examples"
    adult = [examples / "adult" / "train.py", "--out", place.out / "ranks" / "adult"]
    adult += ["--epochs", sizes.epochs, "--batch-size", sizes.adult_batch]
    synthetic = [examples / "synthetic" / "train.py", "--batches", sizes.synthetic_batches]
    synthetic += ["--batch-size", sizes.synthetic_batch, "--test-batches", 5]
    return [
        Training("adult", [str(word) for word in adult], "test AUC"),
        Training("synthetic", [str(word) for word in synthetic], "expected AUC"),
    ]


def checks(place: Place) -> Iterator[Check]:
    """Programs that want several ranks, then faults, then the trainings, each at every number of ranks."""
    for program in test_programs(place):
        for ranks in program.ranks:
            name = f"{program.name}-{ranks}"
            yield Check("ranks", name, partial(_run_on_ranks, place, name, program, ranks))
    yield from faults.checks(place)
    trainer = Trainer(place)
    for training in trainings(place):
        for ranks in RANKS:
            yield Check("ranks", f"{training.name}-{ranks}", partial(trainer.compare, training, ranks))


def _run_on_ranks(place: Place, name: str, program: TestProgram, ranks: int) -> str:
    place.needs_gpus(ranks)
    pattern = place.sizes.contract if program.room == "contract" else "*"
    return run_gtest(place, "ranks", name, program.name, pattern, ranks)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package it would be in
        return False
