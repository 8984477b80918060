"""Trains DeepFM on UCI Adult through a Slotwise server; the last line is the final test AUC."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import slotwise
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from tqdm import tqdm

from curve import Curve
from data import load
from metrics import evaluate
from model import DeepFM, create_table, make_deterministic

_AUCS_AN_EPOCH = 8


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="127.0.0.1:7070", help="any rank's host:port")
    parser.add_argument("--table", default="adult-deepfm", help="dropped and made anew")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--batches", type=int, help="an epoch ends after so many; all")
    parser.add_argument("--seed", type=int, default=1)
    longest = "the longest a call may take, the server's restarts included (30)"
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help=longest)
    parser.add_argument("--out", type=Path, default=Path("out/adult"), help="for learning-curve.png")
    arguments = parser.parse_args()
    if arguments.epochs < 1 or arguments.batch_size < 1 or arguments.seed < 0:
        parser.error("--epochs and --batch-size are at least 1, --seed at least 0")
    return arguments


def train(ps: slotwise.Client, arguments: argparse.Namespace) -> float:
    """Trains, reports, draws; returns the final test AUC."""
    train_set, test_set = load()
    create_table(ps, arguments.table, arguments.seed)
    model = DeepFM(ps, arguments.table)
    # Dense weights learn here; the rows learn on the server, by the push in backward().
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)

    batches = -(-len(train_set.rich) // arguments.batch_size)
    batches = min(batches, arguments.batches or batches)
    curve = Curve(batches)
    for epoch in range(1, arguments.epochs + 1):
        order = torch.randperm(len(train_set.rich)).split(arguments.batch_size)[:batches]
        progress = tqdm(order, desc=f"epoch {epoch}", unit=" batches", mininterval=0.5)
        for number, chosen in enumerate(progress, start=1):
            logits = model(train_set.keys[chosen])
            loss = binary_cross_entropy_with_logits(logits, train_set.rich[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.losses.append(loss.item())
            if number * _AUCS_AN_EPOCH // batches > (number - 1) * _AUCS_AN_EPOCH // batches:
                curve.aucs.append((len(curve.losses), evaluate(model, test_set)))
            if curve.aucs:
                auc_now = f"{curve.aucs[-1][1]:.4f}"
                progress.set_postfix(loss=f"{curve.recent_loss():.4f}", AUC=auc_now, refresh=False)
        epoch_loss = curve.recent_loss(batches)
        print(f"epoch {epoch}: loss {epoch_loss:.4f}, test AUC {curve.aucs[-1][1]:.4f}")

    picture = arguments.out / "learning-curve.png"
    curve.draw(picture)
    table = ps.digest(arguments.table)
    print(f"learning curve: {picture}")
    print(f"table {arguments.table}: {table.rows} rows, {table.steps} steps, digest {table.digest}")
    return curve.aucs[-1][1]


def main() -> None:
    """Reports what the server refuses as one sentence."""
    arguments = parse_arguments()
    make_deterministic(arguments.seed)
    try:
        with slotwise.connect(arguments.server, timeout=arguments.timeout) as ps:
            final = train(ps, arguments)
    except slotwise.Error as error:
        sys.exit(f"train.py: {error}")
    print(f"test AUC {final:.4f}")


if __name__ == "__main__":
    main()
