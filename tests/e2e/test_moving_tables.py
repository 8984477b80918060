"""The trap of state saved without keys: a saved table enters a server of another number of ranks whole.

Its rows, its optimizer's state and its count of steps; so the next step is the same in both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import slotwise
import slotwise.rows
from slotwise_cluster import StartCluster

SEED = 20261121


@pytest.mark.parametrize("before, after", [(1, 4), (4, 2), (2, 1)])
def test_a_saved_table_goes_on_on_another_number_of_ranks(
    start_cluster: StartCluster, tmp_path: Path, before: int, after: int
) -> None:
    random = np.random.default_rng(SEED)
    print(f"seed {SEED}")

    def batch() -> tuple[np.ndarray, np.ndarray]:
        # Whole gradients: their sums do not depend on which rank adds what.
        keys = random.integers(0, 500, 400).astype(np.uint64)
        return keys, random.integers(-8, 9, (400, 6)).astype(np.float32)

    steps = [batch() for _ in range(4)]
    with start_cluster(before).connect() as ps:
        optimizer = slotwise.Adam(0.01, schedule=slotwise.Schedule(warmup_steps=10))
        ps.create_table("ads", dim=6, optimizer=optimizer, seed=5)
        for keys, gradients in steps[:3]:
            ps.push("ads", keys, None, gradients)
        assert slotwise.rows.save_npy(ps, "ads", tmp_path / "ads", with_state=True) > 300
        saved = ps.digest("ads")
        ps.push("ads", steps[3][0], None, steps[3][1])
        expected = ps.digest("ads")

    with start_cluster(after).connect(-1) as ps:
        slotwise.rows.load_npy(ps, "ads", tmp_path / "ads")
        assert ps.digest("ads") == saved
        assert all(shard.rows > 0 for shard in ps.describe_table("ads").shards)
        ps.push("ads", steps[3][0], None, steps[3][1])
        assert ps.digest("ads") == expected
