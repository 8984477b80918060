"""A client hears of steps that a crash took from it, also where steps pushed since have made up the count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import slotwise
from crashing_server import CrashingServer

KEYS = np.arange(4, dtype=np.uint64)
ONES = np.ones((4, 4), np.float32)
TABLES = "".join(
    f'tables {{ name: "{name}" dim: 4 optimizer {{ learning_rate: 0.5 }} }}\n' for name in ("ads", "other")
)
MANY = {name: (KEYS, None, ONES) for name in ("ads", "other")}

StartServer = Callable[..., CrashingServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    with ExitStack() as stack:

        def started(ranks: int = 1, mode: str = "none") -> CrashingServer:
            server = stack.enter_context(CrashingServer(tmp_path, 2, mode, TABLES))
            assert server.start(ranks), server.log
            return server

        yield started


def start_again(server: CrashingServer, ranks: int = 1) -> None:
    server.kill_all()
    assert server.start(ranks), server.log


def connect(server: CrashingServer, transport: str | None = None) -> slotwise.Client:
    return slotwise.connect(*server.addresses, timeout=60.0, transport=transport)


def push(ps: slotwise.Client, times: int = 1, table: str = "ads") -> None:
    for _ in range(times):
        ps.push(table, KEYS, None, ONES)


def lost_by(call: Callable[[], object]) -> str:
    with pytest.raises(slotwise.DataLoss) as lost:
        call()
    return str(lost.value.message)


CALLS: dict[str, Callable[[slotwise.Client], object]] = {
    "push": lambda ps: ps.push("ads", KEYS, None, ONES),
    "push_many": lambda ps: ps.push_many(MANY),
    "lookup": lambda ps: ps.lookup("ads", KEYS),
    "evaluation": lambda ps: ps.lookup("ads", KEYS, train=False),
    "lookup_many": lambda ps: ps.lookup_many({"other": (KEYS, None), "ads": (KEYS, None)}),
}


@pytest.mark.parametrize("transport", ["best", "tcp", "grpc"])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_says_once_which_steps_are_lost(start: StartServer, call: str, transport: str) -> None:
    server = start()
    with connect(server, transport) as ps, connect(server, transport) as another:
        push(ps, 5)
        ps.save()
        push(ps, 3)  # acknowledged steps 6 to 8
        start_again(server)
        push(another, 10)
        said = lost_by(lambda: CALLS[call](ps))
        assert "table ads has lost its steps 6 to 8: this client saw its step 8 acknowledged" in said
        assert "went on from step 5, and is at step" in said
        for again in CALLS.values():
            again(ps)


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("ranks", [(1, 2), (2, 1)])
def test_ones_own_pushes_do_not_hide_a_loss(start: StartServer, lost: int, ranks: tuple[int, int]) -> None:
    server = start(ranks[0])
    with connect(server) as ps:
        push(ps, 5)
        push(ps, 2, "other")
        ps.save()
        push(ps, lost)
        push(ps, lost, "other")
        start_again(server, ranks[1])
        said = lost_by(lambda: push(ps))
        assert f"table ads has lost its steps 6 to {5 + lost}" in said
        assert f"table other has lost its steps 3 to {2 + lost}" in said
        assert "applied as the table's step 6" in said
        push(ps)
        push(ps, 1, "other")
        assert ps.describe_table("ads").steps == 7 and ps.describe_table("other").steps == 3


def test_a_loss_is_told_by_the_starts_that_follow_too(start: StartServer) -> None:
    server = start()
    with connect(server) as idle, connect(server) as another:
        push(idle, 5)
        idle.save()
        push(idle, 2)
        for _ in range(3):
            start_again(server)
            push(another, 10)
            another.save()
        assert "has lost its steps 6 to 7" in lost_by(lambda: push(idle))
        start_again(server)
        another.lookup("ads", KEYS)  # what it pushed was saved


@pytest.mark.parametrize("mode", ["none", "interval", "sync"])
def test_nothing_is_said_where_nothing_is_lost(start: StartServer, mode: str) -> None:
    server = start(mode=mode)
    with connect(server) as idle, connect(server) as busy:
        push(idle, 3)
        for _ in range(3):
            push(busy)
            if mode != "sync":
                busy.save()
            start_again(server)
        push(busy)
        busy.lookup("ads", KEYS)
        idle.lookup("ads", KEYS)
        push(idle)
        assert idle.describe_table("ads").steps == 8
    starts = json.loads((server.data / "starts.json").read_text())["starts"]
    found = [sorted(int(table["steps"]) for table in start.get("tables", [])) for start in starts]
    assert found == [[], [0, 4], [0, 5], [0, 6]]


@pytest.mark.parametrize("damage", ["none", "flipped", "emptied"])
def test_a_start_without_the_file_of_starts_still_tells_what_it_lost_itself(
    start: StartServer, damage: str
) -> None:
    server = start()
    path = server.data / "starts.json"
    with connect(server) as ps, connect(server) as another:
        push(ps, 5)
        ps.save()
        push(ps, 2)
        server.kill_all()
        text = path.read_bytes()
        if damage == "none":
            path.unlink()
        else:
            path.write_bytes(text.replace(b"1", b"2") if damage == "flipped" else b"")
        assert server.start(1), server.log
        warned = f"clients may not hear of steps that one has lost: {path} is damaged" in server.log
        assert warned == (damage != "none"), server.log
        push(another, 10)
        assert "has lost its steps 6 to 7" in lost_by(lambda: push(ps))
        assert b"starts" in path.read_bytes()
