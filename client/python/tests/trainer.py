"""One of several data-parallel trainers, as a process: see test_trainers.py.

    trainer.py ADDRESS TABLE TRAINER TRAINERS SESSION STEPS DIE_AT

Trains STEPS steps on its shares of batches that all trainers know, or ends without a word before
step DIE_AT (0: never). Prints the number of each step that was applied. Without torch, which takes
longer to import than all of this to run; tests/e2e/test_data_parallel.py has trainers with it.
"""

from __future__ import annotations

import os
import sys

import numpy as np

import slotwise

SEED, SAMPLES, SLOTS, DIM = 3, 48, 2, 4


def make_table(ps: slotwise.Client, name: str) -> None:
    """One key a slot, so that not even the number of ranks shows."""
    ps.drop_table(name, missing_ok=True)
    ps.create_table(name, dim=DIM, slots=SLOTS, optimizer=slotwise.AdaGrad(0.1))


def train_step(ps: slotwise.Client, table: str, session: slotwise.Session, step: int, share: slice) -> float:
    """A step on a share of a batch; the sum of its losses. Each sample's arithmetic is its own."""
    random = np.random.default_rng(SEED + step)
    keys = random.integers(0, 40, (SAMPLES, SLOTS))[share]  # with repetitions
    targets = random.random(SAMPLES, dtype=np.float32)[share]
    difference = ps.lookup(table, keys).sum(1) - targets
    gradient = np.repeat(2 * difference[:, None] / np.float32(SAMPLES), SLOTS * DIM, axis=1)
    ps.push(table, keys, None, gradient, step=session.next())
    return float((difference**2).sum())


def main() -> None:
    """The process."""
    address, table, *numbers = sys.argv[1:]
    trainer, trainers, session_id, steps, die_at = map(int, numbers)
    share = slice(SAMPLES * trainer // trainers, SAMPLES * (trainer + 1) // trainers)
    session = slotwise.Session(session_id, trainer=trainer, trainers=trainers)
    with slotwise.connect(address, timeout=60) as ps:
        for step in range(1, steps + 1):
            if step == die_at:
                os._exit(9)
            train_step(ps, table, session, step, share)
            print(step, flush=True)


if __name__ == "__main__":
    main()
