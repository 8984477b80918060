"""kill -9 to a torch trainer at each point of a step and of a save: dense weights and rows fit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import slotwise
from judged_times import LONG_FORMS
from programs import output_of, run
from slotwise_cluster import STOP_TIMEOUT

pytest.importorskip("torch")

import pair_trainer  # noqa: E402

POINTS = [("saving", 6)]
if LONG_FORMS:
    POINTS += [("looked-up", 5), ("pushed", 5), ("pinned", 6), ("saved", 6)]


IMPORTS = os.pathsep.join(sys.path)


def run_trainer(server: slotwise.Server, path: Path, *kill: object) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, pair_trainer.__file__, server.address, path, *kill)
    return run(*command, timeout=4 * STOP_TIMEOUT, PYTHONPATH=IMPORTS)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a trainer has reached that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with slotwise.serve(2, threads=1, timeout=180.0, data=folder / "data") as server:
        done = run_trainer(server, folder / "model.pt")
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.parametrize(("point", "number"), POINTS)
def test_a_killed_trainer_goes_on_from_a_pair_that_fits(
    tmp_path: Path, expected: str, point: str, number: int
) -> None:
    path = tmp_path / "model.pt"
    server = slotwise.serve(2, threads=1, timeout=180.0, data=tmp_path / "data", durability="sync")
    try:
        killed = run_trainer(server, path, point, number)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        done = run_trainer(server, path)
        # What the server has of behind the file's checkpoint must not be trained on.
        if point == "saved":
            assert done.returncode == 0, done.stderr
        if done.returncode == pair_trainer.REFUSED:
            server.close()
            done = go_on_from(done.stderr, tmp_path / "back", path)
        assert (done.returncode, done.stdout) == (0, expected), done.stderr
    finally:
        server.close()


def go_on_from(said: str, data: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """Does what the refusal says, and trains on."""
    assert re.search(r"table ads has \d+ steps, and in the checkpoint 3;", said), said
    command = re.search(r"`(python3 -m slotwise.checkpoint_files copy \S+ )NEW`", said)
    assert command, said
    words = command[1].replace("python3", sys.executable).split()
    output_of(*words, data, PYTHONPATH=IMPORTS)
    with slotwise.serve(1, threads=1, timeout=180.0, data=data) as server:
        return run_trainer(server, path)
