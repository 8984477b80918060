"""Describes presets of synthetic clicks, and writes their batches to Parquet: --help says more."""

from __future__ import annotations

import argparse
import collections
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from slotwise.errors import Error

from clicks import PRESETS, Clicks, ClickStream, PowerLaw, auc, best_auc
from clicks.parquet import write

_DESCRIPTION = """\
Synthetic clicks from a planted model: every id has a hidden effect on the click's probability, ids
follow a power law, and the probabilities are known, so the best possible AUC is, too.

Without a preset: the presets, a line each. With one: its slots, and the click rate and best AUC of
the batches asked for. With --out these are also written to Parquet: label, slot_0, slot_1, ...
(uint64, or list of uint64), dense_0, ... . Batch b of a seed is always the same, so ranges of
batches can be made by as many processes as there are, and tested on others (--start).
"""

_EXAMPLES = """\
examples:
  make_clicks.py
  make_clicks.py quick --batches 25
  make_clicks.py medium --batches 256 --out train --shards 8
  make_clicks.py medium --start 4294967296 --batches 16 --out test.parquet
"""


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset", nargs="?", choices=PRESETS, help="the planted model")
    parser.add_argument("--seed", type=int, default=1, help="of hidden effects and samples (1)")
    parser.add_argument("--batch-size", type=int, default=4096, help="in samples (4096)")
    parser.add_argument("--start", type=int, default=0, help="number of the first batch (0)")
    parser.add_argument("--batches", type=int, default=10, help="how many (10)")
    parser.add_argument("--out", type=Path, help="a Parquet file, or with --shards a folder")
    parser.add_argument("--shards", type=int, default=1, help="files to write (1)")
    parsed = parser.parse_args(arguments)
    if parsed.batches < 1:
        parser.error("--batches is at least 1")
    if parsed.out and not parsed.preset:
        parser.error("--out needs a preset")
    if parsed.shards != 1 and not parsed.out:
        parser.error("--shards needs --out")
    if not 1 <= parsed.shards <= parsed.batches:
        parser.error("--shards is at least 1 and at most --batches")
    return parsed


def list_presets() -> None:
    print(f"{'preset':<8} {'slots':>5} {'dense':>5} {'possible ids':>13}  alpha")
    for name, model in PRESETS.items():
        alphas = sorted({slot.alpha for slot in model.slots})
        shown = " to ".join(f"{alpha:g}" for alpha in dict.fromkeys((alphas[0], alphas[-1])))
        print(f"{name:<8} {len(model.slots):>5} {model.dense:>5} {model.ids:>13,}  {shown}")


def describe(name: str, stream: ClickStream) -> None:
    print(f"preset {name}, seed {stream.seed}")
    print("slot          ids  alpha  deviation  ids a bag  share of the 1000 most frequent")
    for number, slot in enumerate(stream.model.slots):
        bag = f"{slot.least}" if slot.least == slot.most else f"{slot.least} to {slot.most}"
        share = PowerLaw(slot.ids, slot.alpha).share_up_to(min(1000, slot.ids))
        left = f"{number:>4} {slot.ids:>12,} {slot.alpha:>6g}"
        print(f"{left} {slot.deviation:>10g} {bag:>10} {share:>8.1%}")


class Measured:
    """Measures batches one by one, and keeps their labels, probabilities and ids."""

    def __init__(self) -> None:
        self._labels: list[NDArray[np.float32]] = []
        self._probabilities: list[NDArray[np.float64]] = []
        self._ids = np.empty(0, dtype=np.uint64)
        self._new: list[NDArray[np.uint64]] = []
        self._new_keys = 0

    def each(self, batches: Iterator[Clicks]) -> Iterator[Clicks]:
        """Yields the same batches, and measures each as it passes."""
        for clicks in batches:
            self._labels.append(clicks.labels)
            self._probabilities.append(clicks.probabilities)
            self._new.append(clicks.keys)
            self._new_keys += len(clicks.keys)
            if self._new_keys > len(self._ids):  # so that each key is sorted only a few times
                self._take_ids()
            yield clicks

    def report(self, possible: int) -> None:
        """Prints the measurements; `possible`: how many ids the preset has."""
        self._take_ids()
        labels, probabilities = np.concatenate(self._labels), np.concatenate(self._probabilities)
        samples = f"{len(labels):,} samples"
        print(f"ids: {possible:,} possible, {len(self._ids):,} of them in these {samples}")
        print(f"clicks: {labels.mean():.4f} of the samples; expected {probabilities.mean():.4f}")
        best, drawn = best_auc(probabilities), auc(labels, probabilities)
        print(f"best possible AUC {best:.4f}; with the labels as they were drawn {drawn:.4f}")

    def _take_ids(self) -> None:
        self._ids = np.unique(np.concatenate([self._ids, *self._new]))
        self._new, self._new_keys = [], 0


def run(parsed: argparse.Namespace) -> None:
    if parsed.preset is None:
        list_presets()
        return
    stream = ClickStream(PRESETS[parsed.preset], seed=parsed.seed, batch_size=parsed.batch_size)
    describe(parsed.preset, stream)
    measured = Measured()
    stop = parsed.start + parsed.batches
    batches = measured.each(stream.batches(parsed.start, stop))
    print(f"batches {parsed.start} to {stop - 1}")
    if parsed.out:
        for file in write(stream, batches, parsed.out, shards=parsed.shards):
            print(f"wrote {file}, {file.stat().st_size / 2**20:.1f} MiB")
    collections.deque(batches, maxlen=0)  # batches that are not written are measured too
    measured.report(stream.model.ids)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command; an error ends it with one sentence and status 1."""
    parsed = parse_arguments(arguments)
    try:
        run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, for example `head`, has ended
        # Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (Error, OSError) as error:
        sys.exit(f"make_clicks.py: {error}")


if __name__ == "__main__":
    main()
