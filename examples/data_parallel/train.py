"""Trains the Adult example's DeepFM with several trainers at once; ends with the test AUC.

Every trainer is a process with the dense weights; the embedding rows are on the server only.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import slotwise
import slotwise.torch
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adult"))

from data import load  # noqa: E402
from metrics import evaluate  # noqa: E402
from model import DeepFM, create_table, make_deterministic  # noqa: E402


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="127.0.0.1:7070", help="any rank's host:port")
    parser.add_argument("--table", default="adult-data-parallel", help="dropped and made anew")
    parser.add_argument("--trainers", type=int, default=2, help="processes; torchrun's if it runs")
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--shares", type=int, help="a batch is computed in; one a trainer")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256, help="of all trainers together")
    parser.add_argument("--batches", type=int, help="an epoch ends after so many; all")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.trainers = int(os.environ.get("WORLD_SIZE", arguments.trainers))
    arguments.shares = arguments.shares or arguments.trainers
    if min(arguments.trainers, arguments.epochs, arguments.batch_size) < 1 or arguments.seed < 0:
        parser.error("--trainers, --epochs and --batch-size are at least 1, --seed at least 0")
    if arguments.shares < 1 or arguments.shares % arguments.trainers:
        parser.error("--shares is not a multiple of --trainers")
    return arguments


summed_loss = partial(binary_cross_entropy_with_logits, reduction="sum")


class Trainer:
    """One of `arguments.trainers`: its model, its share of every batch, its steps."""

    def __init__(self, ps: slotwise.Client, number: int, arguments: argparse.Namespace) -> None:
        self.number, self.arguments = number, arguments
        self.train_set, self.test_set = load()
        if number == 0:
            create_table(ps, arguments.table, arguments.seed)
        # All trainers wait for this session, so the table is there. Losses are divided by the whole batch.
        shared = slotwise.torch.shared_session(ps, gradients="sum")
        session = shared if arguments.mode == "sync" else None  # None: a step of each trainer's own
        self.model = DeepFM(ps, arguments.table, session)
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.02)

    def train_epoch(self) -> float:
        """One pass over the training set; the mean loss of all trainers' samples."""
        order = torch.randperm(len(self.train_set.rich))  # the same for all: they share the seed
        total, samples = 0.0, 0
        for batch in order.split(self.arguments.batch_size)[: self.arguments.batches]:
            shares = batch.tensor_split(self.arguments.shares)
            each = self.arguments.shares // self.arguments.trainers
            mine = shares[self.number * each : (self.number + 1) * each]
            total += self.train_step(mine, len(batch))
            samples += sum(map(len, mine))
        if self.arguments.mode == "async":
            # No trainer waited for another; now the dense weights meet.
            average_weights(self.model)
        sums = torch.tensor([total, samples], dtype=torch.float64)
        dist.all_reduce(sums)
        return float(sums[0] / sums[1])

    def train_step(self, shares: tuple[Tensor, ...], batch_size: int) -> float:
        """One step on my shares of a batch; the sum of my samples' losses.

        The dense layers compute share by share, so that a lone trainer who computes two trainers'
        shares does the same arithmetic as the two.
        """
        sync = self.arguments.mode == "sync"
        sizes = [len(share) for share in shares]
        chosen = torch.cat(shares)
        rows = self.model.embedding(self.train_set.keys[chosen])
        parts = zip(rows.split(sizes), shares)
        losses = [summed_loss(self.model.score(some), self.train_set.rich[share]) for some, share in parts]
        loss = torch.stack(losses).sum()
        self.optimizer.zero_grad()
        # The mean over the whole batch, of which this is my part: the server sums the trainers'
        # gradients of the rows, add_gradients those of the dense weights.
        (loss / (batch_size if sync else len(chosen))).backward()
        if sync:
            add_gradients(self.model)
        self.optimizer.step()
        return loss.item()


def add_gradients(model: nn.Module) -> None:
    """Every trainer gets the sum of all trainers' gradients."""
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients])):
        gradient.copy_(summed.reshape(gradient.shape))


@torch.no_grad()
def average_weights(model: nn.Module) -> None:
    """Every trainer gets the mean of all trainers' dense weights."""
    for weight in model.parameters():
        dist.all_reduce(weight)
        weight.div_(dist.get_world_size())


def run(number: int, rendezvous: str, arguments: argparse.Namespace) -> None:
    """One trainer's process."""
    dist.init_process_group("gloo", init_method=rendezvous, rank=number, world_size=arguments.trainers)
    make_deterministic(arguments.seed)
    try:
        with slotwise.connect(arguments.server) as ps:
            trainer = Trainer(ps, number, arguments)
            for epoch in range(1, arguments.epochs + 1):
                loss = trainer.train_epoch()
                if number == 0:
                    final = evaluate(trainer.model, trainer.test_set)
                    print(f"epoch {epoch}: loss {loss:.4f}, test AUC {final:.4f}", flush=True)
                dist.barrier()  # no trainer trains while others test
            if number == 0:
                table = ps.digest(arguments.table)
                print(f"{table.rows} rows, {table.steps} steps, digest {table.digest}")
                print(f"test AUC {final:.4f}")
    except slotwise.Error as error:
        sys.exit(f"trainer {number}: {error}")


def main() -> None:
    """Starts the trainers, or is one of torchrun's."""
    arguments = parse_arguments()
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), "env://", arguments)
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all on this machine
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"file://{folder}/rendezvous"
        torch.multiprocessing.spawn(run, (rendezvous, arguments), nprocs=arguments.trainers)


if __name__ == "__main__":
    main()
