"""Pushes in the background, of a trainer that is interrupted and goes on."""

from __future__ import annotations

import dis
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

from slotwise import _pushes
from slotwise._pushes import Pushes

STEPS = 6


class Hang(BaseException):
    """A wait has not ended."""


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Ends waits that would not."""

    def on_alarm(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def points_of(code: CodeType) -> set[int]:
    """Where signals' handlers run in a function: behind calls and jumps back, and as it begins."""
    points, checks = set(), False
    for each in dis.get_instructions(code):
        if checks:
            points.add(each.offset)
        checks = each.opname.startswith("CALL") or each.opname in ("RESUME", "JUMP_BACKWARD")
    return points


class Trainer:
    """Pushes its steps, and is interrupted once, at some point of `_pushes.py`.

    Attributes:
        applied: the steps that were, in order.
        returned: those whose backward() returned.
        points: that the trainer's thread came to: code, and where in it.
    """

    def __init__(self, by_gpu: bool, point: tuple[CodeType, int] | None = None, time: int = 1) -> None:
        self.pushes = Pushes()
        self.applied: list[int] = []
        self.returned: list[int] = []
        self.points: dict[tuple[CodeType, int], int] = {}
        self._by_gpu, self._point, self._times = by_gpu, point, time

    def train(self) -> None:
        for step in range(STEPS):
            sys.settrace(self._trace)
            try:
                self.pushes.wait(["a"])  # forward()
                self._backward(step)
                self.returned.append(step)
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
        self.pushes.wait()

    def _backward(self, step: int) -> None:
        if self._by_gpu and step % 3 < 2:
            with self.pushes.lock:
                if self.pushes.is_idle():
                    self.pushes.begin(["a", "b"], step, lambda: None, lambda: self._apply_once(step))
                    return
        self.pushes.hand_over(["a"], lambda: self.applied.append(step))

    def _apply_once(self, step: int) -> None:
        """Is what the end of a push under way asks for: it may be asked for again."""
        if self.applied[-1:] != [step]:
            self.applied.append(step)

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename != _pushes.__file__:
            return None
        frame.f_trace_opcodes = True
        points = points_of(frame.f_code)

        def on_opcode(_: FrameType, event: str, __: Any) -> Any:
            if event == "opcode" and frame.f_lasti in points:
                point = (frame.f_code, frame.f_lasti)
                self.points[point] = frame.f_lineno
                if point == self._point:
                    self._times -= 1
                    if self._times == 0:
                        raise KeyboardInterrupt
            return on_opcode

        return on_opcode


@pytest.mark.parametrize("by_gpu", [False, True])
@pytest.mark.parametrize("time", [1, 2, 3])
def test_an_interrupted_trainer_loses_and_doubles_nothing(by_gpu: bool, time: int) -> None:
    plain = Trainer(by_gpu)
    plain.train()
    assert plain.applied == list(range(STEPS))
    assert len(plain.points) > 20
    for point, line in plain.points.items():
        trainer = Trainer(by_gpu, point, time)
        trainer.train()
        where = f"{point[0].co_name}, line {line}, for the {time}th time"
        assert len(trainer.returned) >= STEPS - 1, where
        assert trainer.applied == sorted(set(trainer.applied)), where
        assert set(trainer.returned) <= set(trainer.applied), where
        pushes = trainer.pushes
        assert not pushes.lock._is_owned(), where  # type: ignore[attr-defined]
        assert pushes.handed("ab") == pushes.settled("ab"), where
        assert pushes.settled("a")["a"] == len(trainer.applied), where


def test_of_a_wait_that_is_interrupted_the_push_goes_on() -> None:
    pushes = Pushes()
    done = threading.Event()

    def interrupted() -> None:
        if not done.is_set():
            raise KeyboardInterrupt

    with pushes.lock:
        pushes.begin(["a"], "it", interrupted, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        pushes.wait()
    assert pushes.under_way(["a"]) == "it"
    assert pushes.settled("a") == {"a": 0}
    done.set()
    pushes.wait()
    assert pushes.settled("a") == {"a": 1}


def test_what_is_behind_a_push_that_failed_is_dropped() -> None:
    pushes, applied = Pushes(), []
    ended = threading.Event()

    def fail() -> None:
        raise ValueError("refused")

    with pushes.lock:
        pushes.begin(["a"], "it", ended.wait, fail)
    for step in (1, 2):
        pushes.hand_over(["a"], lambda step=step: applied.append(step))
    ended.set()
    with pytest.raises(ValueError, match="refused"):
        pushes.wait()
    pushes.hand_over(["a"], lambda: applied.append(3))
    pushes.wait()
    assert applied == [3]
    assert pushes.settled("a") == pushes.handed("a") == {"a": 4}


def test_nothing_is_in_flight_in_a_forked_process() -> None:
    pushes = Pushes()
    go_on = threading.Event()
    pushes.hand_over(["a"], go_on.wait)
    child = os.fork()
    if child == 0:  # without the thread that sends
        signal.alarm(20)
        pushes.wait(["a"])
        pushes.wait()
        pushes.wait_quietly()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    go_on.set()
    pushes.wait()
