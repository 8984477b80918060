"""The C++ client beside the Python client: the same batches make tables of the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
import slotwise
from hashes import mix64
from programs import BUILT, output_of
from slotwise_cluster import Cluster

SEED, STEPS, SAMPLES, SLOTS, DIM = 20261121, 3, 3000, 3, 40  # 1.4 MB a batch: parts on every rank


def mixed(seed: int, first: int, count: int) -> np.ndarray:
    """Numbers `first` and on of the stream of tests/client/push_batches.cc."""
    return mix64(np.arange(first, first + count, dtype=np.uint64) + np.uint64(seed << 32))


def batch(step: int, weighted: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """The keys, offsets, weights and gradients of a step."""
    bags = SAMPLES * SLOTS
    lengths = mixed(SEED + step, 0, bags) % np.uint64(4)
    offsets = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])
    keys = mixed(SEED + step, bags, int(offsets[-1])) % np.uint64(5000)
    drawn = bags + len(keys)
    weights = None
    if weighted:
        weights = (mixed(SEED + step, drawn, len(keys)) % np.uint64(64)).astype(np.float32) / np.float32(16)
        drawn += len(keys)
    numbers = mixed(SEED + step, drawn, bags * DIM) % np.uint64(2001)
    gradients = (numbers.astype(np.float32) - np.float32(1000)) / np.float32(777)
    return keys, offsets, weights, gradients.reshape(SAMPLES, SLOTS * DIM)


@pytest.mark.parametrize("kind", ["plain", "weighted", "float16"])
def test_both_clients_make_the_same_table(cluster: Cluster, kind: str) -> None:
    print(f"seed {SEED}")
    with cluster.connect(wire_dtype="float16" if kind == "float16" else "float32") as ps:
        ours, theirs = f"cpp_{kind}", f"python_{kind}"
        for name in (ours, theirs):
            ps.create_table(name, dim=DIM, slots=SLOTS, optimizer=slotwise.Adam(lr=0.01), seed=7)
        for step in range(STEPS):
            keys, offsets, weights, gradients = batch(step, kind == "weighted")
            ps.push(theirs, keys, offsets, gradients, weights=weights)
        numbers = (SEED, STEPS, SAMPLES, SLOTS, DIM)
        output_of(BUILT / "tests/client/push_batches", cluster.ranks[0].address, ours, *numbers, kind)
        assert ps.digest(ours) == ps.digest(theirs)
        assert ps.digest(ours).steps == STEPS
