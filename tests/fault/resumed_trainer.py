"""A trainer that goes on with its session when it is started again.

    resumed_trainer.py ADDRESS SESSION EPOCH PROGRESS-FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import slotwise

STEPS = 40
SEED = 20261122


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    """The batch of a step: the same however often it is drawn."""
    generator = np.random.default_rng([SEED, number])
    keys = generator.integers(0, 5000, 3000, dtype=np.uint64)
    return keys, generator.integers(-8, 9, (3000, 32)).astype(np.float32)


def train(address: str, id: int, epoch: int, progress: Path) -> None:
    """What a trainer does, whether it was started again or not."""
    with slotwise.connect(address, session=slotwise.Session(id, epoch=epoch)) as ps:
        for number in range(ps.describe_session().last_step + 1, STEPS + 1):
            keys, gradients = batch(number)
            progress.write_text(str(number))  # a kill from now on is amid the step
            ps.push("ads", keys, None, gradients)


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
