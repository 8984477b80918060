"""The C++ client beside the Python client: the same batches make tables of the same bytes."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
import slotwise
from slotwise_cluster import Cluster, server_binary

SEED, STEPS, SAMPLES, SLOTS, DIM = 20261121, 3, 3000, 3, 40  # 1.4 MB a batch: parts on every rank


def mixed(seed: int, first: int, count: int) -> np.ndarray:
    """Numbers `first` and on of the stream of tests/client/push_batches.cc."""
    with np.errstate(over="ignore"):
        x = np.arange(first, first + count, dtype=np.uint64) + np.uint64(seed << 32)
        x = (x ^ x >> np.uint64(33)) * np.uint64(0xFF51AFD7ED558CCD)
        x = (x ^ x >> np.uint64(33)) * np.uint64(0xC4CEB9FE1A85EC53)
        return x ^ x >> np.uint64(33)


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
    address = cluster.ranks[0].address
    wire_dtype = "float16" if kind == "float16" else "float32"
    with slotwise.connect(address, wire_dtype=wire_dtype) as ps:
        ours, theirs = f"cpp_{kind}", f"python_{kind}"
        for name in (ours, theirs):
            ps.create_table(name, dim=DIM, slots=SLOTS, optimizer=slotwise.Adam(lr=0.01), seed=7)
        for step in range(STEPS):
            keys, offsets, weights, gradients = batch(step, kind == "weighted")
            ps.push(theirs, keys, offsets, gradients, weights=weights)
        program = server_binary().parents[1] / "tests/client/push_batches"
        numbers = [str(number) for number in (SEED, STEPS, SAMPLES, SLOTS, DIM)]
        subprocess.run([program, address, ours, *numbers, kind], check=True, timeout=60)
        assert ps.digest(ours) == ps.digest(theirs)
        assert ps.digest(ours).steps == STEPS
