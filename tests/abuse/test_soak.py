"""The soak (tests/abuse/soak), for a short time; and whether it would see memory that grows."""

from __future__ import annotations

from pathlib import Path

import pytest
import soak_run
from slotwise_cluster import StartCluster


def test_all_who_use_a_server_get_their_answers(start_cluster: StartCluster, tmp_path: Path) -> None:
    outcome = soak_run.run(start_cluster, tmp_path, seconds=15)
    print(*outcome.lines, sep="\n")
    # In so short a time all is done for the first time, which takes memory.
    assert not [failure for failure in outcome.failures if "memory grew" not in failure]
    assert len(outcome.lines) == soak_run.RANKS * len(soak_run.QUERIES) + 1


@pytest.mark.parametrize(
    ("memory", "grows"),
    [
        ([100.0] * 50, False),
        ([50.0] * 9 + [100.0] * 41, False),  # the first fifth is a beginning
        ([100.0 + i % 7 for i in range(500)], False),
        ([100.0 + 0.1 * i for i in range(600)], True),
        ([100.0] * 400 + [112.0] * 100, True),
        ([100.0] * 400 + [110.0] * 100, False),
        ([100.0] * 499 + [500.0], False),  # one peak is no growth
    ],
)
def test_memory_that_grows_is_seen(memory: list[float], grows: bool) -> None:
    line, wrong = soak_run.judge("0", "resident", memory)
    assert (wrong is not None) == grows, line


def test_what_the_program_uses_may_grow_less_than_the_process() -> None:
    for late, grows in (103.5, False), (104.5, True):
        line, wrong = soak_run.judge("0", "used", [100.0] * 400 + [late] * 100)
        assert (wrong is not None) == grows, line
