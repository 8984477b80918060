"""The main job: DeepFM on UCI Adult learns through the server, and the number of ranks does not show."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from free_ports import free_ports
from judged_times import LONG_FORMS
from programs import LAUNCH, output_of
from slotwise_cluster import StartCluster, server_binary
from slotwise_wire import ROOT

ADULT = ROOT / "examples" / "adult"
EPOCHS = 2 if LONG_FORMS else 1


def train(address: str, out: Path) -> str:
    """What the trainer printed."""
    options = ("--server", address, "--epochs", EPOCHS, "--out", out)
    return output_of(sys.executable, ADULT / "train.py", *options, timeout=300)


def test_it_learns_the_same_on_1_2_and_4_ranks(start_cluster: StartCluster, tmp_path: Path) -> None:
    aucs, digests = [], []
    numbers = (1, 2, 4) if LONG_FORMS else (1, 4)
    for ranks in numbers:
        cluster = start_cluster(ranks)
        printed = train(cluster.ranks[0].address, tmp_path / str(ranks))
        cluster.stop()
        of_epochs = [float(auc) for auc in re.findall(r"^epoch \d: .* test AUC (\S+)$", printed, re.M)]
        assert len(of_epochs) == EPOCHS
        assert of_epochs[0] >= 0.905 and (EPOCHS == 1 or of_epochs[1] >= 0.911)
        assert printed.endswith(f"\ntest AUC {of_epochs[-1]:.4f}\n")
        aucs.append(of_epochs[-1])
        digests += re.findall(r"digest ([0-9a-f]{32})", printed)
        assert (tmp_path / str(ranks) / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    assert max(aucs) - min(aucs) <= 0.002
    assert len(digests) == len(numbers)
    assert len(set(digests)) == 1, "one key a slot: not even the order of sums differs"


def test_it_learns_the_same_while_ranks_are_killed(tmp_path: Path) -> None:
    """What ./dev demo --chaos does, on some of the data and with fewer kills."""
    options = ["--server", server_binary(), "--launch", LAUNCH, "--port", free_ports(2), "--epochs", 1]
    options += ["--kills", 2, "--seed", 20261122, "--out", tmp_path]
    options += [] if LONG_FORMS else ["--batches", 40]
    printed = output_of(sys.executable, ADULT / "chaos.py", *options, timeout=300)
    assert re.search(r"^2 kills: recovered in \S+ s at the median, \S+ s at the longest$", printed, re.M)
    assert printed.endswith("\nthe same digest and the same AUC\n")
