"""Times the training of a click model on synthetic clicks: its rows on a server, and torch's own."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import slotwise
import slotwise.torch as st
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from model import DIM, ClickModel, create_table, first_rows

sys.path.append(str(Path(__file__).parents[1] / "synthetic"))
from clicks import PRESETS, ClickStream  # noqa: E402

# The keys and offsets of a batch, and its labels.
Batch = tuple[tuple[Tensor, Tensor], Tensor]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="127.0.0.1:7070", help='any rank, or "local"')
    parser.add_argument("--transport", "--door", default="best", help="best, gpu, shm, tcp or grpc")
    parser.add_argument("--channels", type=int, default=2, help="connections to each rank")
    parser.add_argument("--table", default="ctr-model", help="dropped and made anew")
    parser.add_argument("--batch", type=int, default=8192, help="samples")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--prefetch", type=int, default=2, help="batches ahead; 0: a plain loop")
    parser.add_argument("--staleness", type=int, default=0, help="pushes that a lookup may miss")
    parser.add_argument("--in-flight", action="store_true", help="push in the background, with --prefetch 0")
    parser.add_argument("--device", default="cpu", help="of the MLP")
    parser.add_argument("--torch", action="store_true", help="also torch's own EmbeddingBag")
    parser.add_argument("--rate", type=float, default=0.02, help="of AdaGrad, everywhere")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if min(arguments.batch, arguments.steps) < 1 or not arguments.rate > 0:
        parser.error("--batch and --steps are at least 1, and --rate is above 0")
    if min(arguments.prefetch, arguments.staleness, arguments.seed) < 0:
        parser.error("--prefetch, --staleness and --seed are at least 0")
    if arguments.staleness and not arguments.prefetch:
        parser.error("--staleness is for --prefetch")
    if arguments.in_flight and arguments.prefetch:
        parser.error("--in-flight is for --prefetch 0: Prefetch pushes in the background anyway")
    return arguments


def draw_batches(arguments: argparse.Namespace) -> list[Batch]:
    """Draws all batches, so that training alone is timed."""
    stream = ClickStream(PRESETS["short"], seed=arguments.seed, batch_size=arguments.batch)
    batches = []
    for clicks in stream.batches(0, arguments.steps):
        keys = torch.from_numpy(clicks.keys.view(np.int64))  # torch has no uint64: the same 64 bits as int64
        offsets = torch.from_numpy(clicks.offsets.astype(np.int64))
        batches.append(((keys, offsets), torch.from_numpy(clicks.labels)))
    return batches


def train(
    model: ClickModel, batches: Iterable[Batch], optimizers: Sequence[torch.optim.Optimizer], device: str
) -> tuple[float, list[float]]:
    """Trains; the time of a step in seconds, and every step's loss.

    On a GPU no step's end is waited for, so it is the mean of all but the first fifth of the steps;
    else it is the median.
    """
    losses, times = [], [time.perf_counter()]
    for bags, labels in batches:
        loss = binary_cross_entropy_with_logits(model(*bags), labels.to(device, non_blocking=True))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.detach())
        times.append(time.perf_counter())
    all_losses = torch.stack(losses).tolist()  # waits for the device
    if device == "cpu":
        return float(np.median(np.diff(times))), all_losses
    first = len(losses) // 5
    return (time.perf_counter() - times[first]) / (len(losses) - first), all_losses


def train_with_slotwise(
    ps: slotwise.Client, batches: list[Batch], arguments: argparse.Namespace
) -> tuple[float, list[float]]:
    create_table(ps, arguments.table, arguments.rate, arguments.seed)
    torch.manual_seed(arguments.seed)
    embedding = st.EmbeddingBag(ps, arguments.table, in_flight=arguments.in_flight)
    device = arguments.device
    model = ClickModel(embedding, device)
    optimizer = torch.optim.Adagrad(model.dense.parameters(), lr=arguments.rate)
    loader: Iterable[Batch] = batches
    if arguments.prefetch:
        loader = st.Prefetch(batches, embedding, arguments.prefetch, arguments.staleness, device=device)
    else:  # where torch's own module has them, too
        loader = [((k.to(device), o.to(device)), labels) for (k, o), labels in batches]
    return train(model, loader, [optimizer], device)


def train_with_torch(
    ps: slotwise.Client, batches: list[Batch], arguments: argparse.Namespace
) -> tuple[float, list[float]]:
    """Trains with torch's own rows: as many as the batches have ids, which it has to know before."""
    ids, numbers = torch.cat([keys for (keys, _), _ in batches]).unique(return_inverse=True)
    rows = first_rows(ps, f"{arguments.table}-first-rows", ids, arguments.seed)
    numbered = zip(batches, numbers.split([len(keys) for (keys, _), _ in batches]))
    device = arguments.device
    ready = [((some.to(device), o.to(device)), labels) for ((_, o), labels), some in numbered]
    torch.manual_seed(arguments.seed)
    embedding = nn.EmbeddingBag(
        len(ids), DIM, mode="sum", sparse=True, include_last_offset=True, _weight=rows.to(device)
    )
    torch.manual_seed(arguments.seed)
    model = ClickModel(embedding, device)
    parts = (model.embedding, model.dense)
    optimizers = [torch.optim.Adagrad(part.parameters(), lr=arguments.rate) for part in parts]
    return train(model, ready, optimizers, device)


def main() -> None:
    """Trains and reports; what the server refuses is one sentence."""
    arguments = parse_arguments()
    batches = draw_batches(arguments)
    how = "pushes in flight" if arguments.in_flight else "plain loop"
    if arguments.prefetch:
        how = f"Prefetch, depth {arguments.prefetch}, staleness {arguments.staleness}"
    try:
        server, transport, channels = arguments.server, arguments.transport, arguments.channels
        with slotwise.connect(server, transport=transport, channels_per_rank=channels) as ps:
            seconds, losses = train_with_slotwise(ps, batches, arguments)
            digest = ps.digest(arguments.table)
            print(f"slotwise ({how}): {seconds * 1e3:.2f} ms a step, last loss {losses[-1]:.6f}")
            print(f"table {arguments.table}: {digest.rows} rows, {digest.steps} steps, ", end="")
            print(f"digest {digest.digest}", flush=True)
            if arguments.torch:
                seconds, expected = train_with_torch(ps, batches, arguments)
                print(f"torch: {seconds * 1e3:.2f} ms a step, last loss {expected[-1]:.6f}")
                largest = np.abs(np.subtract(losses, expected)).max()
                print(f"largest difference of a step's losses: {largest:.1e}")
    except slotwise.Error as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    main()
