"""The model of 26 slots learns as torch's own, and Prefetch changes no byte of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from judged_times import LONG_FORMS
from slotwise_cluster import StartCluster

TRAIN = Path(__file__).parents[2] / "examples" / "ctr_model" / "train.py"


def train(address: str, *options: str) -> str:
    """A small training; what the trainer printed."""
    command = [sys.executable, str(TRAIN), "--server", address, "--batch", "64", "--steps", "6", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def digest(printed: str) -> str:
    """The table's."""
    (found,) = re.findall(r"rows, 6 steps, digest ([0-9a-f]{32})$", printed, re.M)
    return str(found)


def test_it_learns_as_torch_and_prefetch_changes_nothing(start_cluster: StartCluster) -> None:
    address = start_cluster(2).ranks[0].address
    ahead = train(address, "--torch")
    assert "slotwise (Prefetch, depth 2, staleness 0): " in ahead and "\ntorch: " in ahead
    (largest,) = re.findall(r"^largest difference of a step's losses: (\S+)$", ahead, re.M)
    assert float(largest) < 1e-4
    if LONG_FORMS:
        assert digest(train(address, "--prefetch", "0")) == digest(ahead)
    assert digest(train(address, "--prefetch", "0", "--in-flight")) == digest(ahead)
    stale = train(address, "--prefetch", "3", "--staleness", "2")
    assert "slotwise (Prefetch, depth 3, staleness 2): " in stale and digest(stale)


@pytest.mark.parametrize("options", [("--prefetch", "0", "--staleness", "1"), ("--in-flight",)])
def test_options_that_need_another_are_refused(options: tuple[str, ...]) -> None:
    command = [sys.executable, str(TRAIN), *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 2 and "is for --prefetch" in run.stderr
