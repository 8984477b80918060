"""Steps across trainers, each a process of its own, on the real server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import trainer
from judged_times import LONG_FORMS
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
def test_two_trainers_in_step_are_one_trainer_on_the_whole_batch(start_real: StartReal, ranks: int) -> None:
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


@pytest.fixture(params=[1, 2] if LONG_FORMS else [2])
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
    # The client tries again until its own timeout, so what it hears may be of a step that waits still.
    with pytest.raises(slotwise.DeadlineExceeded, match="part 1 of 2 of table shared has not come"):
        trainer.train_step(ps, "shared", survivor, 3, FIRST)
    assert ps.digest("shared") == before

    # A restart, with a new session: on as before.
    trainer.train_step(ps, "shared", slotwise.Session(), 3, WHOLE)
    assert ps.digest("shared").steps == 3


def refusal_of(
    ps: slotwise.Client, push: Callable[[slotwise.Client], object], transport: str = "best"
) -> str:
    """What a trainer hears who waits for its partner, once it hears it before its own timeout."""
    for timeout in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):  # a busy machine
        last = ps.topology().ranks[-1].address
        with slotwise.connect(last, timeout=timeout, transport=transport) as impatient_ps:
            with pytest.raises(slotwise.DeadlineExceeded) as refused:
                push(impatient_ps)
        if "not come" in refused.value.message:
            break
    return refused.value.message


@pytest.mark.parametrize("transport", ["shm", "tcp", "grpc"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_trainer_hears_whose_part_has_not_come_and_its_own_stays(
    start_real: StartReal, ranks: int, transport: str
) -> None:
    with empty_client(start_real(ranks)) as ps:
        ps.create_table("ads", dim=2, optimizer=slotwise.SGD(1.0))
        ps.import_rows("ads", [1, 2], np.zeros((2, 2), np.float32))
        both = [slotwise.Session(5, trainer=trainer, trainers=2) for trainer in range(2)]
        step, others = (session.next() for session in both)
        ones = np.ones((2, 2), np.float32)
        said = refusal_of(ps, lambda waiting: waiting.push("ads", [1, 2], None, ones, step=step), transport)
        assert "part 1 of 2 of table ads has not come: step 1 of session 5 waits" in said, said
        assert ps.describe_table("ads").steps == 0
        # The partner comes, and the step is applied with the part that came first.
        assert ps.push("ads", [1], None, ones[:1], step=others) == 1
        assert ps.lookup("ads", [1, 2], train=False).tolist() == [[-2.0, -2.0], [-1.0, -1.0]]
        assert ps.push("ads", [1, 2], None, ones, step=step) == 1


def test_parts_of_several_tables_that_have_not_come_are_named(start_real: StartReal) -> None:
    with empty_client(start_real(2)) as ps:
        for table in ("ads", "users"):
            ps.create_table(table, dim=2, optimizer=slotwise.SGD(1.0))
        pushes = {table: ([1], None, np.ones((1, 2), np.float32)) for table in ("ads", "users")}
        step = slotwise.Session(6, trainer=2, trainers=3).next()
        said = refusal_of(ps, lambda waiting: waiting.push_many(pushes, step=step))
        missing = [f"part {part} of 3 of table {table}" for table in pushes for part in (0, 1)]
        assert ", ".join(missing) + " have not come" in said, said
