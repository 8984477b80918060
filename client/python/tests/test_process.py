"""The core and the process that it is in: signals, forks, threads, servers and interpreters that end."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import threading
from concurrent.futures import wait
from functools import partial
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer, Gate, refuse
from free_ports import free_ports
from judged_times import LONG_FORMS
from real_server import RealServer, empty_client
from waiting import LIMIT, NO_ANSWER, connect_briefly, run_at_once, wait_until

import slotwise

LOOKUPS = 20_000 if LONG_FORMS else 4000


def run(program: str, limit: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a program in a fresh interpreter; one that does not end fails the test."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=limit,
    )


@pytest.mark.parametrize("method", ["Digest", "Export"])
def test_ctrl_c_ends_the_call_that_the_main_thread_is_in(fake: FakeServer, method: str) -> None:
    """It does not wait for the server, and the client goes on."""
    gate, main = Gate(fake, method), threading.main_thread().ident
    assert main is not None
    interrupt = threading.Thread(
        target=lambda: (gate.wait_for_call(), signal.pthread_kill(main, signal.SIGINT))
    )
    with slotwise.connect(fake.addresses[0], timeout=20) as ps:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            ps.digest("ads") if method == "Digest" else list(ps.export_rows("ads"))
        assert gate.passed == 0
        gate.opened.set()
        interrupt.join()
        assert ps.list_tables() == []


def test_ctrl_c_ends_connecting(fake: FakeServer) -> None:
    program = """
import os, signal, threading, time, slotwise
try:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    slotwise.connect("127.0.0.1:1", timeout=600)
except KeyboardInterrupt:
    print("interrupted")
"""
    ended = run(program)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "raise SystemExit"])
def test_an_interpreter_ends_in_the_middle_of_calls(real: RealServer, end: str) -> None:
    """Of futures that are not waited for, and of calls in threads that are not joined."""
    empty_client(real).close()
    program = f"""
import sys, threading
import numpy as np, slotwise
ps = slotwise.connect("{real.address}")
ps.create_table("ads", dim=64, slots=8, optimizer=slotwise.SGD(lr=0.1))
keys = np.arange(8000).reshape(1000, 8)
values = ps.lookup("ads", keys)
futures = [ps.lookup_async("ads", keys) for _ in range(30)]
futures += [ps.push_async("ads", keys, None, values) for _ in range(10)]
begun = threading.Barrier(5)

def forever():
    begun.wait()
    while True:
        ps.lookup("ads", keys)

for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
begun.wait()
print("ending", flush=True)
{end}
"""
    ended = run(program)
    assert (ended.returncode, ended.stdout) == (0, "ending\n"), ended.stderr
    # The program's threads may say that the client is closed, all at once; the interpreter must not.
    assert "Fatal" not in ended.stderr and "terminate called" not in ended.stderr, ended.stderr


def test_an_interpreter_ends_after_a_call_that_failed(fake: FakeServer) -> None:
    program = f"""
import slotwise
try:
    slotwise.connect("127.0.0.1:1", timeout=0.5)
except slotwise.Unavailable:
    ps = slotwise.connect("{fake.addresses[0]}")
    try:
        ps.lookup("none", [1])
    except slotwise.NotFound:
        print("not found")
"""
    ended = run(program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "not found\n", "")


def test_exported_rows_have_types_that_no_signal_can_change(
    real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy asks Python about types of ctypes, and takes them for objects if that raises."""
    internal = pytest.importorskip("numpy.core._internal")

    def interrupted(_: Any) -> bool:
        raise KeyboardInterrupt

    with empty_client(real) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.5))
        ps.lookup("ads", np.arange(10))
        monkeypatch.setattr(internal, "npy_ctypes_check", interrupted)
        for rows in ps.export_rows("ads", with_state=True):
            assert (rows.keys.dtype, rows.values.dtype) == (np.uint64, np.float32)


def test_a_forked_child_is_told_what_to_do_and_the_parent_goes_on(fake: FakeServer) -> None:
    program = f"""
import gc, multiprocessing, slotwise
ps = slotwise.connect("{fake.addresses[0]}")
pending = ps.lookup_async("none", [1])
ps.list_tables()

def child():
    look_up = lambda: ps.lookup_async("ads", [1])
    for call in (ps.list_tables, look_up, lambda: slotwise.connect("127.0.0.1:1")):
        try:
            call()
        except slotwise.FailedPrecondition as error:
            print(error.message, flush=True)
    ps.close()
    gc.collect()

process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(20)
print(process.exitcode, ps.list_tables())
"""
    ended = run(program)
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0 and len(lines) == 4, ended.stdout + ended.stderr
    assert all("call slotwise.connect() in a process of its own" in line for line in lines[:2])
    assert "this process was forked from one that had connected" in lines[2]
    assert lines[3] == "0 []"


def test_a_child_that_was_forked_before_can_connect(fake: FakeServer) -> None:
    program = f"""
import multiprocessing, slotwise

def child():
    with slotwise.connect("{fake.addresses[0]}") as ps:
        print(ps.list_tables(), flush=True)

process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(20)
slotwise.connect("{fake.addresses[0]}").close()
process = multiprocessing.get_context("spawn")
print("ok")
"""
    ended = run(program)
    assert (ended.returncode, ended.stdout) == (0, "[]\nok\n"), ended.stderr


def test_a_killed_server_fails_calls_in_time_and_a_new_one_is_found() -> None:
    port = free_ports(1)
    server = RealServer(1, port=port)
    with slotwise.connect(server.address, timeout=3) as ps:
        ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
        ps.lookup("ads", [1])
        server.kill()
        futures = [ps.lookup_async("ads", [i]) for i in range(10)]
        assert not wait(futures, LIMIT).not_done
        for future in futures:
            with pytest.raises((slotwise.Unavailable, slotwise.DeadlineExceeded)):
                future.result(0)
        again = RealServer(1, port=port)
        try:
            ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
            assert ps.lookup("ads", [1]).shape == (1, 2)
        finally:
            again.stop()


def test_64_threads_share_a_client(real: RealServer) -> None:
    with empty_client(real) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=1.0))
        first = ps.lookup("ads", np.arange(64))

        def train(thread: int) -> None:
            for _ in range(20):
                assert ps.lookup("ads", [thread]).shape == (1, 4)
                ps.push("ads", [thread], None, np.ones((1, 4), dtype=np.float32))
                ps.lookup_async("ads", [thread]).result(30)

        run_at_once(*(partial(train, thread) for thread in range(64)))
        assert ps.describe_table("ads").steps == 64 * 20
        np.testing.assert_allclose(ps.lookup("ads", np.arange(64)), first - 20, atol=1e-4)


def references(*things: Any) -> list[int]:
    return [sys.getrefcount(thing) for thing in things]


def test_references_and_memory_stay_flat(real: RealServer) -> None:
    """Many calls, half of them with futures, a tenth of them refused."""
    keys, wrong = np.arange(64), np.array([0, 2, 1, 64])
    with empty_client(real) as ps:
        ps.create_table("ads", dim=16, optimizer=slotwise.SGD(lr=0.5))
        out = np.empty((64, 16), dtype=np.float32)

        def call(count: int) -> None:
            for i in range(count):
                if i % 10 == 9:
                    with pytest.raises(slotwise.InvalidArgument):
                        ps.lookup("ads", keys, wrong)
                elif i % 2:
                    ps.lookup_async("ads", keys, out=out).result(20)
                else:
                    ps.lookup("ads", keys)

        call(2000)
        before = references(keys, wrong, out, ps)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        call(LOOKUPS)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
        # The thread that ends futures may still hold the last call's arrays for a moment.
        wait_until(
            lambda: all(now <= then for now, then in zip(references(keys, wrong, out, ps), before)),
            "no array, nor the client, has new references",
        )
        assert grown < 8 << 10, f"{grown} KiB more after {LOOKUPS} calls"


def test_results_are_torchs_without_a_copy(real: RealServer) -> None:
    import torch

    with empty_client(real) as ps:
        ps.create_table("ads", dim=2, optimizer=slotwise.SGD(lr=0.5))
        values = ps.lookup("ads", [1, 2])
        tensor = torch.from_dlpack(values)
        tensor[0, 0] = 7
        assert values[0, 0] == 7
        given = torch.zeros((2, 2))
        ps.lookup("ads", torch.tensor([1, 2]), out=given.numpy())
        np.testing.assert_array_equal(given.numpy()[1], values[1])


def test_importing_loads_neither_torch_nor_grpc() -> None:
    names = "sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'grpc', 'google'})"
    ended = run(f"import sys, slotwise; print({names})")
    assert ended.stdout == "[]\n", ended.stdout + ended.stderr


@pytest.mark.parametrize("what", ["waits", "calls"])
def test_a_handler_of_the_logger_may_wait_and_call(fake: FakeServer, what: str) -> None:
    """The call ends at its deadline all the same, and the line comes."""
    handled, opened = threading.Event(), threading.Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if what == "waits":
                opened.wait(LIMIT)
            else:
                other.list_tables()
            handled.set()

    fake.before = refuse("Digest")
    logger, handler = logging.getLogger("slotwise"), Handler()
    logger.addHandler(handler)
    logger.setLevel("INFO")
    try:
        with connect_briefly(fake.addresses[0], timeout=1.0) as ps:
            with slotwise.connect(fake.addresses[0]) as other:
                with pytest.raises(NO_ANSWER):
                    ps.digest("ads")
                if what == "waits":
                    assert not handled.is_set(), "the call has not waited for the handler"
                opened.set()
                assert handled.wait(LIMIT)
    finally:
        opened.set()
        logger.removeHandler(handler)
        logger.setLevel("NOTSET")


def test_retries_are_logged(fake: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    fake.before = refuse("ListTables", times=2)
    caplog.set_level("INFO", logger="slotwise")
    with slotwise.connect(fake.addresses[0], timeout=20) as ps:
        assert ps.list_tables() == []

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "slotwise"]

    wait_until(lambda: len(lines()) >= 2, "two lines")  # they are told by a thread of their own
    assert len(lines()) == 2
    assert all(line.endswith(": UNAVAILABLE: as the test wishes; trying again") for line in lines())
