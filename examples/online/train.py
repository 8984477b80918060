"""Learns clicks whose ids drift, by bounded tables beside an unbounded one; says what the bounds cost."""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import slotwise
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits
from tqdm import tqdm

from curves import Point, draw
from drift import FIELDS, DriftingClicks

# These are modules of examples/synthetic, whose folder drift.py adds to the path.
from clicks import Clicks, auc, best_auc
from clicks.hashing import Words
from model import FactorizationMachine

Numbers = NDArray[np.float32]

# The tables that can learn side by side; `options_of` says how each is bounded.
_TABLES = ("unbounded", "step", "lfu", "step_lfu", "earned", "ttl", "full", "hashed")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="127.0.0.1:7070", help='any rank\'s host:port, or "local"')
    known = f"with commas, of {', '.join(_TABLES)}; each is dropped and made anew as online-NAME"
    parser.add_argument("--tables", default="unbounded,step,lfu,step_lfu,earned", help=known)
    parser.add_argument("--steps", type=int, default=3000, help="a batch each (3000)")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--share", type=float, default=0.1, help="max_rows, of the stream's ids (0.1)")
    half_life = "of lfu's and step_lfu's counts, in steps (a quarter of those in which new ids fill a table)"
    parser.add_argument("--half-life", type=int, help=half_life)
    parser.add_argument("--threshold", type=int, default=2, help="of earned's ids, in occurrences (2)")
    parser.add_argument("--ttl", type=int, default=150, help="of ttl's rows, in steps (150)")
    parser.add_argument("--window", type=int, default=50, help="an AUC is of so many steps (50)")
    parser.add_argument("--factors", type=int, default=4, help="elements of an id's vector (4)")
    parser.add_argument("--rate", type=float, default=0.15, help="of the rows' AdaGrad (0.15)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/online"), help="for online.csv and online.png")
    arguments = parser.parse_args()
    arguments.tables = arguments.tables.split(",")
    if not set(arguments.tables) <= set(_TABLES):
        parser.error(f"--tables is {','.join(arguments.tables)}: some of {','.join(_TABLES)}")
    if min(arguments.steps, arguments.batch_size, arguments.window, arguments.ttl) < 1:
        parser.error("--steps, --batch-size, --window and --ttl are at least 1")
    if not 0 < arguments.share <= 1 or not arguments.rate > 0:
        parser.error("--share is above 0 and at most 1, --rate above 0")
    if arguments.half_life is None:
        arguments.half_life = max(1, int(arguments.share * arguments.steps / 4))
    if arguments.threshold < 1:
        parser.error("--threshold is at least 1")
    if min(arguments.half_life, arguments.factors, arguments.seed) < 0:
        parser.error("--half-life, --factors and --seed are at least 0")
    return arguments


def first_ids(stream: DriftingClicks, steps: int, share: float) -> tuple[Words, int]:
    """Returns this share of a stream's ids, those that come first, sorted; and how many the stream has."""
    all_keys = np.concatenate([clicks.keys for clicks in stream.batches(steps)])
    keys, places = np.unique(all_keys, return_index=True)
    rows = max(1, int(share * len(keys)))
    return np.sort(keys[np.argsort(places)[:rows]]), len(keys)


def options_of(name: str, rows: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns how a table is bounded."""
    if name == "unbounded":
        return {}
    if name == "ttl":
        return {"ttl_steps": arguments.ttl}
    if name in ("full", "hashed"):  # the trainer sends no more ids than there are rows
        return {"max_rows": rows}
    if name == "earned":
        admission = slotwise.Frequency(arguments.threshold)
        return {"max_rows": rows, "eviction": slotwise.Eviction("step"), "admission": admission}
    half_life = 0 if name == "step" else arguments.half_life
    return {"max_rows": rows, "eviction": slotwise.Eviction(name, half_life_steps=half_life)}


class Learner:
    """A model and its table. It scores each batch before it learns from the batch."""

    def __init__(self, ps: slotwise.Client, name: str, known: Words, arguments: argparse.Namespace) -> None:
        """`known`: the ids that a full table knows, as many as bounded tables have rows."""
        self.name, self._ps, self._table, self._known = name, ps, f"online-{name}", known
        ps.drop_table(self._table, missing_ok=True)
        ps.create_table(
            self._table,
            dim=1 + arguments.factors,
            slots=len(FIELDS),
            # An id is believed by degrees: from the first meeting a step is at most rate / sqrt(1 + 1).
            optimizer=slotwise.AdaGrad(lr=arguments.rate, initial_accumulator=1.0),
            initializer=slotwise.Uniform(-0.01, 0.01),
            seed=arguments.seed,
            **options_of(name, len(known), arguments),
        )
        self._model = FactorizationMachine(ps, self._table, features=0)
        self._optimizer = torch.optim.Adagrad([self._model.bias], lr=0.1)
        self._scores: list[Numbers] = []
        self.points: list[Point] = []

    def learn(self, clicks: Clicks) -> None:
        """Scores a batch, and takes one step on it."""
        if self.name == "hashed":
            clicks = replace(clicks, keys=clicks.keys % np.uint64(len(self._known)))
        elif self.name == "full":  # ids without a row share one
            place = np.searchsorted(self._known, clicks.keys) % len(self._known)
            is_known = self._known[place] == clicks.keys
            clicks = replace(clicks, keys=np.where(is_known, clicks.keys, self._known[0]))
        log_odds = self._model(clicks)
        self._scores.append(log_odds.detach().numpy())
        # Summed, not averaged: a row's gradient grows with how often its id came, whatever the batch size.
        labels = torch.from_numpy(clicks.labels)
        loss = binary_cross_entropy_with_logits(log_odds, labels, reduction="sum")
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def auc(self, labels: list[Numbers], steps: int) -> float:
        """Returns the AUC of the last steps."""
        return auc(np.concatenate(labels[-steps:]), np.concatenate(self._scores[-steps:]))

    def look(self, step: int, labels: list[Numbers], window: int) -> None:
        """Notes the AUC of the last window, and the table's size, after a step."""
        table = self._ps.describe_table(self._table)
        size = sum(shard.bytes for shard in table.shards)
        gone = table.evicted_rows + table.expired_rows
        self.points.append(Point(self.name, step, self.auc(labels, window), table.rows, size, gone))


def learn_all(ps: slotwise.Client, arguments: argparse.Namespace) -> None:
    """Lets all tables learn the same stream side by side; reports, writes and draws."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    stream = DriftingClicks(seed=arguments.seed, batch_size=arguments.batch_size)
    steps, window = arguments.steps, arguments.window
    known, ids = first_ids(stream, steps, arguments.share)
    print(f"{steps} steps, {steps * arguments.batch_size:,} samples, {ids:,} ids; max_rows is {len(known):,}")
    learners = [Learner(ps, name, known, arguments) for name in arguments.tables]
    labels, probabilities = [], []
    for step, clicks in enumerate(tqdm(stream.batches(steps), total=steps, unit=" steps"), start=1):
        labels.append(clicks.labels)
        probabilities.append(clicks.probabilities)
        for learner in learners:
            learner.learn(clicks)
            if step % window == 0 or step == steps:
                learner.look(step, labels, window)

    with open(arguments.out / "online.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(column.name for column in fields(Point))
        writer.writerows(astuple(point) for learner in learners for point in learner.points)
    title = f"Clicks whose ids drift: {ids:,} ids, bounded tables of {len(known):,} rows"
    draw(arguments.out / "online.png", [learner.points for learner in learners], title)
    print(f"points: {arguments.out}/online.csv, picture: {arguments.out}/online.png")

    last = max(1, steps // 4)
    aucs = [learner.auc(labels, last) for learner in learners]
    print(f"table       AUC of the last {last} steps  to {learners[0].name}      rows    MiB  rows gone")
    for learner, reached in zip(learners, aucs):
        point = learner.points[-1]
        size = f"{point.rows:>9} {point.bytes / 2**20:>6.1f} {point.gone:>10}"
        print(f"{learner.name:<10} {reached:>25.4f} {reached - aucs[0]:>+13.4f} {size}")
    print(f"best possible AUC {best_auc(np.concatenate(probabilities[-last:])):.4f}")


def main() -> None:
    """Reports what the server refuses as one sentence."""
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)  # sums in one order: the same seed gives the same bits
    try:
        with slotwise.connect(arguments.server) as ps:
            learn_all(ps, arguments)
    except slotwise.Error as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    main()
