"""A trainer hears of it when a server has lost a step that the trainer saw acknowledged, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from free_ports import free_ports

import slotwise
import slotwise.rows

KEYS = np.arange(4, dtype=np.uint64)
ONES = np.ones((4, 4), np.float32)
TABLE = """
tables { name: "ads" dim: 4 optimizer { learning_rate: 0.5 } }
tables { name: "other" dim: 4 optimizer { learning_rate: 0.5 } }
"""

Restart = Callable[[], None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Restart]]:
    """A server with two tables at a fixed address, and how to kill it and to start it again."""
    address = f"127.0.0.1:{free_ports(1)}"
    config = tmp_path / "server.pbtxt"
    config.write_text(TABLE)
    process: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        if process:
            process[-1].send_signal(signal.SIGKILL)
            process[-1].wait()
        process.append(
            subprocess.Popen(
                [os.environ["SLOTWISE_SERVER"], "--config", str(config), "--listen", address],
                stdin=subprocess.DEVNULL,
                stderr=sys.stderr,
            )
        )

    start()
    yield address, start
    process[-1].kill()
    process[-1].wait()


def push(ps: slotwise.Client, table: str = "ads") -> int:
    return ps.push(table, KEYS, None, ONES)


def test_a_push_after_a_crash_says_what_was_lost(server: tuple[str, Restart]) -> None:
    address, restart = server
    with slotwise.connect(address) as ps, slotwise.connect(address) as reader:
        for number in (1, 2, 3):
            assert push(ps) == number
        assert reader.lookup("ads", KEYS).shape == (4, 4)
        restart()
        with pytest.raises(slotwise.DataLoss) as lost:
            push(ps)
        assert lost.value.code == slotwise.StatusCode.DATA_LOSS
        assert "step 3 acknowledged" in lost.value.message
        assert "applied as the table's step 1" in lost.value.message
        # It is said once; training goes on with the table as it is.
        assert push(ps) == 2
        ps.lookup("ads", KEYS)
        # No client lost anything of the other table, and one that only looked up lost nothing.
        assert push(ps, "other") == 1
        reader.lookup("ads", KEYS)


def test_a_lookup_after_a_crash_says_it_too(server: tuple[str, Restart]) -> None:
    address, restart = server
    with slotwise.connect(address) as ps:
        push(ps)
        ps.lookup("ads", KEYS)
        restart()
        anew = "table ads was made anew: .* and the new one is at step 0$"
        with pytest.raises(slotwise.DataLoss, match=anew):
            ps.lookup("ads", KEYS, train=False)
        ps.lookup("ads", KEYS, train=False)


@pytest.mark.parametrize("tables", [["other"], ["ads", "other"]], ids=lambda names: f"{len(names)} tables")
def test_what_all_tables_lost_is_said_once(server: tuple[str, Restart], tables: list[str]) -> None:
    address, restart = server
    with slotwise.connect(address) as ps:
        push(ps)
        push(ps)
        push(ps, "other")
        restart()
        with pytest.raises(slotwise.DataLoss) as lost:
            ps.lookup_many({name: (KEYS,) for name in tables}, train=False)
        assert lost.value.message.count("table ads was made anew") == 1
        assert lost.value.message.count("table other was made anew") == 1
        assert push(ps) == 1
        assert push(ps, "other") == 1


def test_a_table_that_its_client_drops_loses_nothing(server: tuple[str, Restart]) -> None:
    address, _ = server
    with slotwise.connect(address) as ps, slotwise.connect(address) as other:
        push(ps)
        push(other)
        ps.drop_table("ads")
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.5))
        assert push(ps) == 1
        with pytest.raises(slotwise.DataLoss, match="table ads was dropped and made anew, or"):
            push(other)  # this client was not asked


def test_a_table_replaced_by_an_import_is_no_lost_step(server: tuple[str, Restart], tmp_path: Path) -> None:
    address, _ = server
    with slotwise.connect(address) as trainer, slotwise.connect(address) as operator:
        for _ in range(3):
            push(trainer)
        slotwise.rows.save_npy(operator, "ads", tmp_path / "ads")
        operator.drop_table("ads")
        slotwise.rows.load_npy(operator, "ads", tmp_path / "ads")
        with pytest.raises(slotwise.DataLoss) as lost:
            trainer.lookup("ads", KEYS)
        assert lost.value.message == (
            "table ads was dropped and made anew, or a checkpoint's was put in its place; of the former "
            "table this client saw step 3 acknowledged, and the new one is at step 3, a count that pushes "
            "since have made, or that came with an import or a checkpoint"
        )
        assert push(trainer) == 4


def test_an_old_answer_is_no_loss(server: tuple[str, Restart]) -> None:
    """A step that is pushed again has its old number, whatever came after it."""
    address, _ = server
    with slotwise.connect(address) as ps:
        session = ps.new_session()
        first = session.next()
        assert ps.push("ads", KEYS, None, ONES, step=first) == 1
        assert ps.push("ads", KEYS, None, ONES, step=session.next()) == 2
        assert ps.push("ads", KEYS, None, ONES, step=first) == 1
        with pytest.raises(slotwise.FailedPrecondition, match="a new step needs a new number"):
            ps.push("ads", KEYS, None, 2 * ONES, step=first)


def test_a_new_session_has_the_servers_epoch(server: tuple[str, Restart]) -> None:
    address, _ = server
    with slotwise.connect(address) as ps:
        epoch = ps.topology().epoch
        assert epoch > 0 and ps.topology().incarnation > 0
        assert ps.session.epoch == ps.new_session().epoch == ps.new_session().next().epoch == epoch
        shared = slotwise.Session(7, trainer=1, trainers=2, epoch=epoch)
        assert shared.next().epoch == epoch
    with pytest.raises(slotwise.InvalidArgument, match="epoch is -1"):
        slotwise.Session(7, epoch=-1)
