"""Every training loop of loops.py trains what torch's does, or is refused in a sentence."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import asdict
from pathlib import Path

import loop_trainer
import loops
import pytest
import trainers
from judged_times import LONG_FORMS
from real_server import StartReal, empty_client


def _seed() -> str:
    """The newest commit, so that CI draws other cells for each."""
    told = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "no commit"


SEED = _seed()
ALL = [cell for cell in loops.cells() if loops.can_run(cell)]
ALONE, IN_STEP = ([cell for cell in ALL if cell.trainers == trainers] for trainers in (1, 2))
if not LONG_FORMS:
    ALONE, IN_STEP = random.Random(SEED).sample(ALONE, 16), random.Random(SEED).sample(IN_STEP, 2)
AT_ONCE = 40  # cells that a pair of processes trains


@pytest.mark.parametrize("cell", ALONE, ids=lambda cell: cell.name)
def test_a_trainers_loop_means_what_torchs_means(start_real: StartReal, cell: loops.Cell) -> None:
    print("seed", SEED)
    with empty_client(start_real(cell.ranks)) as ps:
        loops.run(cell, ps)


@trainers.needs_gloo
@pytest.mark.parametrize("first", range(0, len(IN_STEP), AT_ONCE))
def test_trainers_loops_mean_what_torchs_mean(start_real: StartReal, tmp_path: Path, first: int) -> None:
    print("seed", SEED)
    cells = tmp_path / "cells.json"
    some = [asdict(cell) for cell in IN_STEP[first : first + AT_ONCE]]
    cells.write_text(json.dumps(some), encoding="utf-8")
    with empty_client(start_real(1)) as one, empty_client(start_real(2)) as two:
        addresses = [ps.topology().ranks[-1].address for ps in (one, two)]
        trainers.run(tmp_path, loop_trainer.__file__, 2, str(cells), *addresses)
