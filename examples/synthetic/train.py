"""Learns synthetic clicks through a Slotwise server; ends with the test AUC and the best there can be."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np
import slotwise
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits
from tqdm import tqdm

from clicks import PRESETS, Clicks, ClickStream, auc, best_auc, expected_auc
from model import FactorizationMachine, create_table

# Test batches come from here on: the stream that is learnt from never gets so far.
_TEST = 1 << 32


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="127.0.0.1:7070", help="any rank's host:port")
    parser.add_argument("--table", default="synthetic-clicks", help="dropped and made anew")
    parser.add_argument("--preset", default="quick", choices=PRESETS, help="the planted model")
    parser.add_argument("--batches", type=int, default=150, help="to learn from, each once")
    parser.add_argument("--test-batches", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--factors", type=int, default=4, help="elements of an id's vector")
    parser.add_argument("--rate", type=float, default=0.12, help="of the rows' AdaGrad")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if min(arguments.batches, arguments.test_batches, arguments.batch_size) < 1:
        parser.error("--batches, --test-batches and --batch-size are at least 1")
    if arguments.factors < 0 or arguments.seed < 0 or not arguments.rate > 0:
        parser.error("--factors and --seed are at least 0, --rate is above 0")
    return arguments


def make_deterministic(seed: int) -> None:
    """The same seed gives the same bits: on a server of any number of ranks, too."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # sums in one order
    torch.use_deterministic_algorithms(True)


def learn(model: FactorizationMachine, clicks: Clicks, optimizer: torch.optim.Optimizer) -> float:
    """One step on one batch; its mean loss."""
    # Summed, not averaged: a row's gradient then grows with how often its id came, whatever the batch size.
    loss = binary_cross_entropy_with_logits(model(clicks), torch.from_numpy(clicks.labels), reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item() / clicks.samples


@dataclass
class Test:
    """Batches that are not learnt from: their labels, true probabilities, and a model's scores."""

    labels: NDArray[np.float32]
    probabilities: NDArray[np.float64]
    scores: NDArray[np.float32]


@torch.no_grad()
def test(model: FactorizationMachine, stream: ClickStream, batches: int) -> Test:
    """Scores test batches; ids never seen count as zeros and stay unseen."""
    model.eval()
    tested = list(stream.batches(_TEST, _TEST + batches))
    scores = [model(clicks).numpy() for clicks in tested]
    model.train()
    return Test(
        np.concatenate([clicks.labels for clicks in tested]),
        np.concatenate([clicks.probabilities for clicks in tested]),
        np.concatenate(scores),
    )


def train(ps: slotwise.Client, arguments: argparse.Namespace) -> None:
    planted = PRESETS[arguments.preset]
    stream = ClickStream(planted, seed=arguments.seed, batch_size=arguments.batch_size)
    table = arguments.table
    create_table(ps, table, planted, arguments.factors, arguments.rate, arguments.seed)
    model = FactorizationMachine(ps, table, planted.dense)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)

    print(
        f"preset {arguments.preset}: {len(planted.slots)} slots, {planted.ids:,} possible ids; "
        f"learning from {arguments.batches * arguments.batch_size:,} samples"
    )
    progress = tqdm(stream.batches(0, arguments.batches), total=arguments.batches, unit=" batches")
    losses = []
    for clicks in progress:
        losses.append(learn(model, clicks, optimizer))
        progress.set_postfix(loss=f"{np.mean(losses[-20:]):.4f}", refresh=False)

    digest = ps.digest(table)
    tested = test(model, stream, arguments.test_batches)
    print(f"loss {np.mean(losses[-20:]):.4f}")
    print(f"table {table}: {digest.rows} rows, {digest.steps} steps, digest {digest.digest}")
    expected, best = expected_auc(tested.probabilities, tested.scores), best_auc(tested.probabilities)
    print(f"expected AUC {expected:.4f}, best possible {best:.4f}, gap {best - expected:.4f}")
    reached = auc(tested.labels, tested.scores)
    best = auc(tested.labels, tested.probabilities)
    print(f"test AUC {reached:.4f}, best possible {best:.4f}, gap {best - reached:.4f}")


def main() -> None:
    """Reports what the server refuses as one sentence."""
    arguments = parse_arguments()
    make_deterministic(arguments.seed)
    try:
        with slotwise.connect(arguments.server) as ps:
            train(ps, arguments)
    except slotwise.Error as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    main()
