"""A torch trainer that saves its model every third step, and kills itself where it is told to.

    pair_trainer.py ADDRESS MODEL-FILE [POINT NUMBER]

It goes on from the file if that is there. What it is at the end is printed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path

import slotwise
import slotwise.torch as st
import torch
from torch import nn

STEPS = 12
EVERY = 3
REFUSED = 3  # the exit code if the server is not at the file's state


class Trainer:
    """A model, its optimizer, and the batches."""

    def __init__(self, ps: slotwise.Client, kill: tuple[str, int]) -> None:
        torch.manual_seed(11)
        self.ps = ps
        self.model = nn.Sequential(st.EmbeddingBag(ps, "ads"), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model[1].parameters(), lr=0.01)
        self._kill = kill

    def point(self, name: str, number: int) -> None:
        """Is where a kill -9 may come."""
        if (name, number) == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self, number: int) -> None:
        """Trains on the batch of that number."""
        keys = torch.randint(0, 1 << 40, (64, 1), generator=torch.Generator().manual_seed(number))
        self.optimizer.zero_grad()
        loss = self.model(keys).square().mean()
        self.point("looked-up", number)
        loss.backward()  # pushes
        self.point("pushed", number)
        self.optimizer.step()

    def save(self, path: Path, number: int) -> None:
        """Saves the model after a step, with kills before, amid and behind it."""
        pin = self.ps.pin_checkpoint

        def pin_and(id: str) -> None:
            pin(id)
            self.point("pinned", number)

        self.ps.pin_checkpoint = pin_and  # type: ignore[assignment]
        self.point("saving", number)
        st.save(path, self.model, self.optimizer, {"step": number})
        self.point("saved", number)
        self.ps.pin_checkpoint = pin  # type: ignore[assignment]

    def digest(self) -> str:
        """Of the table and of all bytes of the model and its optimizer."""
        said = hashlib.sha256(repr(self.ps.digest("ads")).encode())
        for tensor in self.model.state_dict().values():
            said.update(tensor.numpy().tobytes())
        for state in self.optimizer.state_dict()["state"].values():
            for value in state.values():
                said.update(torch.as_tensor(value).numpy().tobytes())
        return said.hexdigest()


def main(address: str, path: Path, kill: tuple[str, int]) -> None:
    """Trains to the end, or to the kill."""
    with slotwise.connect(address) as ps:
        ps.create_table("ads", dim=8, optimizer=slotwise.Adam(lr=0.05))
        trainer, done = Trainer(ps, kill), 0
        if path.exists():
            try:
                done = st.load(path, trainer.model, trainer.optimizer)["step"]
            except slotwise.FailedPrecondition as error:
                print(error, file=sys.stderr)
                sys.exit(REFUSED)
        else:
            trainer.save(path, 0)
        for number in range(done + 1, STEPS + 1):
            trainer.step(number)
            if number % EVERY == 0:
                trainer.save(path, number)
        print(trainer.digest())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), (sys.argv[3], int(sys.argv[4])) if sys.argv[3:] else ("", 0))
