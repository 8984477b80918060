"""A stream over tens of millions of ids is learnt nearly as well as can be, whatever the number of ranks."""

from __future__ import annotations

import re
import sys

from judged_times import LONG_FORMS
from programs import output_of
from slotwise_cluster import StartCluster
from slotwise_wire import ROOT

TRAIN = ROOT / "examples" / "synthetic" / "train.py"
# The long form's are those of the example, which are enough to be a hundredth from the best.
BATCHES, GAP = (150, 0.01) if LONG_FORMS else (60, 0.02)


def test_it_ends_near_the_best_auc(start_cluster: StartCluster) -> None:
    ends = []
    for ranks in (1, 2, 4) if LONG_FORMS else (4,):
        cluster = start_cluster(ranks)
        options = ("--server", cluster.ranks[0].address, "--seed", 1, "--batches", BATCHES)
        printed = output_of(sys.executable, TRAIN, *options, timeout=300)  # of the preset `quick`
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
