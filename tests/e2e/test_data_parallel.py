"""examples/data_parallel: trainers in step do what one does alone; trainers that do not wait learn, too."""

from __future__ import annotations

import re
import sys

import pytest
from judged_times import LONG_FORMS
from programs import output_of
from slotwise_cluster import StartCluster
from slotwise_wire import ROOT

TRAIN = ROOT / "examples" / "data_parallel" / "train.py"


def train(address: str, *options: str) -> tuple[float, float, str]:
    """The last epoch's loss, its test AUC and the table's digest; the first batches of the data only."""
    options = ("--server", address, "--epochs", "1", "--batches", "24", *options)
    printed = output_of(sys.executable, TRAIN, *options, timeout=300)
    found = re.search(r"loss (\S+), test AUC (\S+)\n.* digest (\S+)\ntest AUC \S+\n$", printed)
    assert found, printed
    return float(found[1]), float(found[2]), found[3]


def test_two_trainers_in_step_are_one_on_any_number_of_ranks(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1)
    alone = train(cluster.ranks[0].address, "--trainers", "1", "--shares", "2")
    cluster = start_cluster(2)
    together = train(cluster.ranks[1].address, "--trainers", "2")
    assert together == alone
    assert together[1] > 0.9


@pytest.mark.skipif(not LONG_FORMS, reason="the long form's")
def test_trainers_that_do_not_wait_for_each_other_learn_as_well(start_cluster: StartCluster) -> None:
    cluster = start_cluster(2)
    loss, auc, _ = train(cluster.ranks[0].address, "--trainers", "2", "--mode", "async")
    assert loss < 0.45  # always saying the mean: 0.55
    assert auc > 0.89
