"""The model of 26 slots learns as torch's own, and Prefetch changes no byte of it."""

from __future__ import annotations

import re
import sys

import pytest
from judged_times import LONG_FORMS
from programs import output_of, run
from slotwise_cluster import StartCluster
from slotwise_wire import ROOT

TRAIN = ROOT / "examples" / "ctr_model" / "train.py"


def train(address: str, *options: str) -> str:
    """A small training; what the trainer printed."""
    options = ("--server", address, "--batch", "64", "--steps", "6", *options)
    return output_of(sys.executable, TRAIN, *options, timeout=300)


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
    ended = run(sys.executable, TRAIN, *options, timeout=300)
    assert ended.returncode == 2 and "is for --prefetch" in ended.stderr
