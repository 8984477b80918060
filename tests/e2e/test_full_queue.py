"""A request queue full of steps that wait for parts has room for the parts that complete them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import slotwise
from slotwise_cluster import StartCluster

LIMITS = "limits { max_message_mib: 1 max_round_mib: 4 max_queue_mib: 8 }"
DIM = 64
SAMPLES = 11_000  # of one key: 2.8 MiB of keys, offsets and gradients, in several messages
KEYS = np.arange(SAMPLES, dtype=np.uint64)
ONES = np.ones((SAMPLES, DIM), np.float32)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_of_many_tables_larger_than_a_round_is_refused_whole(
    start_cluster: StartCluster, ranks: int
) -> None:
    cluster = start_cluster(ranks, LIMITS)
    with slotwise.connect(cluster.ranks[0].address, timeout=40.0) as ps:
        names = [f"table_{i}" for i in range(4)]
        for name in names:
            ps.create_table(name, dim=DIM, slots=1, optimizer=slotwise.SGD(lr=0.5))
        with pytest.raises(
            slotwise.ResourceExhausted,
            match=r"the step of 4 tables takes \d+ bytes in a round, more than the 4194304",
        ):
            ps.push_many({name: (KEYS, None, ONES) for name in names})
        assert [ps.describe_table(name).steps for name in names] == [0] * 4


@pytest.mark.parametrize("tables, ranks", [(1, 1), (4, 2)])
def test_many_trainers_steps_are_applied(start_cluster: StartCluster, tables: int, ranks: int) -> None:
    trainers, steps = 6, 3
    cluster = start_cluster(ranks, LIMITS)
    samples = SAMPLES // tables
    with slotwise.connect(cluster.ranks[0].address) as ps:
        names = [f"table_{i}" for i in range(tables)]
        for name in names:
            ps.create_table(name, dim=DIM, slots=1, optimizer=slotwise.SGD(lr=0.5))

        def train(_: int) -> None:
            with slotwise.connect(cluster.ranks[0].address, timeout=300.0) as trainer:
                for _ in range(steps):
                    trainer.push_many({name: (KEYS[:samples], None, ONES[:samples]) for name in names})

        with ThreadPoolExecutor(trainers) as threads:
            for done in [threads.submit(train, trainer) for trainer in range(trainers)]:
                done.result()
        assert [ps.describe_table(name).steps for name in names] == [trainers * steps] * tables
