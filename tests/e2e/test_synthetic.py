"""A stream over tens of millions of ids is learnt nearly as well as can be, whatever the number of ranks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from judged_times import LONG_FORMS
from slotwise_cluster import StartCluster

TRAIN = Path(__file__).parents[2] / "examples" / "synthetic" / "train.py"


# The long form's are those of the example, which are enough to be a hundredth from the best.
BATCHES, GAP = (150, 0.01) if LONG_FORMS else (60, 0.02)


def train(address: str) -> str:
    """Learns the preset `quick`; what the trainer printed."""
    run = subprocess.run(
        [sys.executable, str(TRAIN), "--server", address, "--seed", "1", "--batches", str(BATCHES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_it_ends_near_the_best_auc(start_cluster: StartCluster) -> None:
    ends = []
    for ranks in (1, 2, 4) if LONG_FORMS else (4,):
        cluster = start_cluster(ranks)
        printed = train(cluster.ranks[0].address)
        cluster.stop()
        print(f"{ranks} ranks, seed 1:\n{printed}")
        (possible,) = re.findall(r"([\d,]+) possible ids", printed)
        assert int(possible.replace(",", "")) >= 10_000_000
        aucs = re.findall(r"^(expected|test) AUC (\S+), best possible (\S+), gap (\S+)$", printed, re.M)
        assert [name for name, *_ in aucs] == ["expected", "test"]
        for _, reached, best, gap in aucs:
            assert 0.5 < float(reached) <= float(best) + 0.005, "scores cannot beat the probabilities"
            assert abs(float(gap)) <= GAP
        ends.append(printed)
    assert "digest" in ends[0]
    if LONG_FORMS:
        assert len(set(ends)) == 1, "a sum of two is the same in any order"
