"""One of several data-parallel trainers, as a process: see test_trainers.py.

    trainer.py ADDRESS TABLE TRAINER TRAINERS SESSION STEPS DIE_AT

Trains STEPS steps on its shares of batches that all trainers know, or ends without a word before
step DIE_AT (0: never). Prints the number of each step that was applied.
"""

from __future__ import annotations

import faulthandler
import os
import sys

import torch
from torch import Tensor

import slotwise
import slotwise.torch

SEED, SAMPLES, SLOTS, DIM = 3, 48, 2, 4


def make_table(ps: slotwise.Client, name: str) -> None:
    """One key a slot, so that not even the number of ranks shows."""
    ps.drop_table(name, missing_ok=True)
    ps.create_table(name, dim=DIM, slots=SLOTS, optimizer=slotwise.AdaGrad(0.1))


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Keys [SAMPLES, SLOTS], with repetitions, and targets [SAMPLES]."""
    generator = torch.Generator().manual_seed(SEED + step)
    keys = torch.randint(0, 40, (SAMPLES, SLOTS), generator=generator)
    return keys, torch.rand(SAMPLES, generator=generator)


def train_step(module: slotwise.torch.EmbeddingBag, step: int, share: slice) -> float:
    """A step on a share of a batch; the sum of its losses. Each sample's arithmetic is its own."""
    keys, targets = batch(step)
    differences = module(keys[share]).sum(1) - targets[share]
    loss = differences.square().sum()
    (loss / SAMPLES).backward()
    return loss.item()


def main() -> None:
    """The process."""
    faulthandler.dump_traceback_later(100)  # says where it hangs, if it does
    torch.set_num_threads(1)
    address, table, *numbers = sys.argv[1:]
    trainer, trainers, session_id, steps, die_at = map(int, numbers)
    share = slice(SAMPLES * trainer // trainers, SAMPLES * (trainer + 1) // trainers)
    session = slotwise.Session(session_id, trainer=trainer, trainers=trainers)
    with slotwise.connect(address, timeout=60) as ps:
        module = slotwise.torch.EmbeddingBag(ps, table, session=session)
        for step in range(1, steps + 1):
            if step == die_at:
                os._exit(9)
            train_step(module, step, share)
            print(step, flush=True)


if __name__ == "__main__":
    main()
