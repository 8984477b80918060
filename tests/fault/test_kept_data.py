"""A server of this version goes on from data that earlier versions wrote (kept_data.py made them).

A format that changes gets another file in tests/durability/fixtures; those that are there stay.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import slotwise
from crashing_server import CrashingServer
from kept_data import ROOT, Training, state
from slotwise import checkpoint_files
from slotwise_cluster import wait_until

KEPT = sorted((ROOT / "tests/durability/fixtures").glob("*.tar.xz"))


def test_there_is_data() -> None:
    assert KEPT


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_a_server_goes_on_from_data_of_an_earlier_version(kept: Path, ranks: int, tmp_path: Path) -> None:
    says = json.loads(kept.with_name(kept.name.replace(".tar.xz", ".json")).read_text())
    with CrashingServer(tmp_path, ranks) as server, tarfile.open(kept) as archive:
        archive.extractall(server.data.parent)
        assert server.start(ranks), server.log
        with slotwise.connect(*server.addresses) as ps:
            assert state(ps) == says["tables"]
            # One of what the journal had is overdue, and follows those of the earlier version.
            wait_until(lambda: len(ps.checkpoints()) == 4, "the start's own checkpoint")
            checkpoints = ps.checkpoints()
            assert [checkpoint.delta for checkpoint in checkpoints] == [True, True, True, False]
            for checkpoint in checkpoints:
                assert ps.verify(checkpoint.id).bytes > 0
            training = Training(says["epoch"])
            for told in says["told"]:
                assert training.step(ps) == told  # it is in the ledger
            assert state(ps) == says["tables"]
            after = training.step(ps)
            assert all(number == says["told"][-1][name] + 1 for name, number in after.items())
        files = checkpoint_files.open(server.data / "checkpoints" / checkpoints[0].id)
        assert files.keys() == says["tables"].keys()
