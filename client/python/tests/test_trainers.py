"""Steps across trainers, each a process of its own, on the real server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trainer
from real_server import RealServer, StartReal, empty_client

import slotwise

STEPS = 6
WHOLE, FIRST = slice(0, trainer.SAMPLES), slice(0, trainer.SAMPLES // 2)


def start(ps: slotwise.Client, number: int, session: int, die_at: int = 0) -> subprocess.Popen[str]:
    """A trainer, one of two, as a process."""
    address = ps.topology().ranks[-1].address
    arguments = [address, "shared", number, 2, session, STEPS, die_at]
    return subprocess.Popen(
        [sys.executable, str(Path(trainer.__file__)), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_two_trainers_in_step_are_one_trainer_on_the_whole_batch(
    start_real: StartReal, ranks: int
) -> None:
    print(f"seed {trainer.SEED}")
    with empty_client(start_real(ranks)) as ps:
        trainer.make_table(ps, "alone")
        alone = slotwise.Session(parts=2)
        steps = range(1, STEPS + 1)
        losses = [trainer.train_step(ps, "alone", alone, step, WHOLE) for step in steps]
        assert losses[-1] < losses[0]

        trainer.make_table(ps, "shared")
        processes = [start(ps, number, 77) for number in range(2)]
        assert [process.wait(240) for process in processes] == [0, 0]
        shared = ps.digest("shared")
        assert shared.steps == STEPS
        assert shared == ps.digest("alone")


@pytest.fixture(params=[1, 2])
def impatient(request: pytest.FixtureRequest) -> Iterator[slotwise.Client]:
    """A client that waits 3 s, of a server where a step may wait 500 ms for its parts."""
    server = RealServer(request.param, "limits { step_timeout_ms: 500 }")
    with slotwise.connect(server.address, timeout=3) as ps:
        yield ps
    assert server.stop() == 0


def test_a_trainer_that_dies_leaves_nothing_of_the_step(impatient: slotwise.Client) -> None:
    ps = impatient
    trainer.make_table(ps, "shared")
    other = start(ps, 1, session=5, die_at=3)
    survivor = slotwise.Session(5, trainer=0, trainers=2)
    assert other.stdout is not None
    # The other takes its time to start: begin when it has looked up the first step's keys.
    while ps.digest("shared").rows == 0:
        assert other.poll() is None
    for step in (1, 2):
        trainer.train_step(ps, "shared", survivor, step, FIRST)
        assert other.stdout.readline() == f"{step}\n"
    assert other.wait(60) == 9

    ps.lookup("shared", list(range(40)) * trainer.SLOTS)  # no row is new from here on
    before = ps.digest("shared")
    assert before.steps == 2
    # The client tries again until its own timeout, which may end the last try on a busy machine.
    said = ""
    while "500 ms" not in said:
        with pytest.raises(slotwise.DeadlineExceeded) as refused:
            trainer.train_step(ps, "shared", survivor, 3, FIRST)
        said = refused.value.message
    assert ps.digest("shared") == before

    # A restart, with a new session: on as before.
    trainer.train_step(ps, "shared", slotwise.Session(), 3, WHOLE)
    assert ps.digest("shared").steps == 3
