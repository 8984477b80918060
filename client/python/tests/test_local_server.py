"""slotwise.serve(), and slotwise.connect("local"): a server for the life of one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from real_server import find_binary
from waiting import LIMIT, wait_until

import slotwise
from slotwise import local_server

_PACKAGE = Path(slotwise.__file__).resolve().parents[1]


def trains(address: str) -> bool:
    """Whether one step changes a row of a server that has no table "ads"."""
    with slotwise.connect(address) as ps:
        ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.5))
        before = ps.lookup("ads", [7, 9])
        ps.push("ads", [7, 9], None, np.ones_like(before))
        after = ps.lookup("ads", [7, 9])
    return bool(np.allclose(after, before - 0.5))


def is_running(pid: int) -> bool:
    """Whether the process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_end(pid: int) -> None:
    wait_until(lambda: not is_running(pid), f"the end of process {pid}")


class Notebook:
    """A Python process that is told what to do, line by line, and answers each with one line."""

    _LOOP = "import sys\nfor line in sys.stdin: exec(line.replace(' ;; ', chr(10)), globals())"

    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", self._LOOP],
            env=os.environ | {"PYTHONPATH": str(_PACKAGE)} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def say(self, line: str) -> str:
        """Executes `line`, in which " ;; " ends a line, and returns what it prints."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def serve(self, how: str = "") -> tuple[int, str]:
        """Starts a server there; returns its process and its address."""
        said = self.say(f"import slotwise ;; s = slotwise.serve({how}) ;; print(s.pid, s.address)")
        pid, address = said.split()
        return int(pid), address

    def __enter__(self) -> Notebook:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Lets the process come to its end."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(LIMIT)


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    with Notebook() as notebook:
        yield notebook


@pytest.fixture(autouse=True)
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short name: mpirun's sockets lie there too."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_server_trains_and_ends_when_it_is_closed(ranks: int) -> None:
    with slotwise.serve(ranks) as server:
        assert len(server.addresses) == ranks and server.address == server.addresses[0]
        with slotwise.connect(server.addresses[-1]) as ps:
            assert len(ps.topology().ranks) == ranks
        assert trains(server.address)
        # The server's log has a thread of its own, so a line may come later than an answer.
        wait_until(lambda: "ready at " + server.address in server.log.read_text(), "the line in the log")
    assert not is_running(server.pid)
    assert not server.log.exists()
    server.close()  # again: harmless


def test_a_solo_server_needs_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    solo = find_binary().with_name("slotwise-server-solo")
    assert "libmpi" not in subprocess.run(["ldd", solo], capture_output=True, text=True).stdout
    monkeypatch.setenv("SLOTWISE_SERVER", str(solo))
    with slotwise.serve() as server:
        assert trains(server.address)
    with pytest.raises(slotwise.Unavailable, match="built without MPI"):
        slotwise.serve(2)


def test_a_configuration_counts_and_its_mistake_is_told(tmp_path: Path) -> None:
    config = tmp_path / "server.pbtxt"
    config.write_text('log_level: "error" tables { name: "users" dim: 3 optimizer { learning_rate: 1 } }')
    with slotwise.serve(config=config) as server, slotwise.connect(server.address) as ps:
        assert [table.name for table in ps.list_tables()] == ["users"]
    config.write_text("colour: 3")
    with pytest.raises(slotwise.Unavailable, match='(?s)status 1; its log.*there is no field colour'):
        slotwise.serve(config=config)


def test_several_processes_serve_at_once() -> None:
    notebooks = [Notebook() for _ in range(3)]
    with ThreadPoolExecutor() as threads:
        served = list(threads.map(Notebook.serve, notebooks))
    assert len({address for _, address in served}) == 3
    assert all(trains(address) for _, address in served)
    for notebook, (pid, _) in zip(notebooks, served):
        assert notebook.end() == 0
        assert not is_running(pid)  # it was waited for


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_server_ends_with_a_process_that_is_killed(notebook: Notebook, ranks: int) -> None:
    """A forked child, which lives on, does not keep its parent's server."""
    pid, _ = notebook.serve(f"{ranks}")
    child = "import os, time ;; child = os.fork() ;; if not child: time.sleep(600)"
    child_pid = int(notebook.say(f"{child} ;; print(child)"))
    notebook.process.kill()
    try:
        await_end(pid)
        assert is_running(child_pid)
    finally:
        os.kill(child_pid, signal.SIGKILL)


def test_a_server_outlives_the_thread_that_started_it() -> None:
    servers: list[slotwise.Server] = []
    thread = threading.Thread(target=lambda: servers.append(slotwise.serve()))
    thread.start()
    thread.join()
    with servers[0] as server:
        assert trains(server.address)


def test_a_server_outlives_ctrl_c(notebook: Notebook) -> None:
    notebook.say("import signal ;; signal.signal(signal.SIGINT, lambda *_: None) ;; print()")
    pid, address = notebook.serve()
    os.killpg(notebook.process.pid, signal.SIGINT)  # as a terminal does
    assert trains(address)
    assert notebook.end() == 0
    assert not is_running(pid)


def test_a_forked_child_does_not_end_its_parents_server(notebook: Notebook) -> None:
    _, address = notebook.serve()
    child = "import os ;; child = os.fork() ;; if not child: s.close(); sys.exit(0)"
    assert notebook.say(f"{child} ;; print(os.waitpid(child, 0)[1])") == "0"
    assert trains(address)


def test_connect_local_starts_one_server_for_the_process(notebook: Notebook) -> None:
    notebook.say("import slotwise ;; from concurrent.futures import ThreadPoolExecutor ;; print()")
    clients = "ThreadPoolExecutor(4).map(lambda _: repr(slotwise.connect('local')), range(4))"
    assert notebook.say(f"print(len(set({clients})))") == "1"
    pid = notebook.say("from slotwise import local_server ;; print(local_server._shared.pid)")
    assert is_running(int(pid))
    assert notebook.end() == 0
    assert not is_running(int(pid))


def test_connect_local_tells_once_that_its_server_died(notebook: Notebook) -> None:
    notebook.say("import slotwise, os ;; from slotwise.local_server import shared_server ;; print()")
    first = notebook.say("print(shared_server().pid)")
    os.kill(int(first), signal.SIGKILL)
    # Until its last thread has ended; the file in /proc would call it a zombie a little earlier.
    notebook.say(f"import os ;; print(os.waitid(os.P_PID, {first}, os.WEXITED | os.WNOWAIT))")
    again = "try: shared_server() ;; except slotwise.FailedPrecondition as error: said = str(error)"
    said = notebook.say(f"{again} ;; print(said.replace(chr(10), ' '))")
    assert "by signal 9" in said and said.endswith("Its tables are gone.")
    assert int(notebook.say("print(shared_server().pid)")) != int(first)


def stand_in(path: Path, then: str) -> str:
    """A program in a server's place, which says that it serves at a port where no server listens.

    Args:
        then: what it does when its input has ended.
    """
    program = path / "stand_in"
    program.write_text(f"#!/bin/sh\necho serving 127.0.0.1:1\ncat >/dev/null\n{then}\n")
    program.chmod(0o755)
    return str(program)


def signalled(path: Path, name: str) -> Notebook:
    """A notebook whose server sends it a signal, as it ends, and waits for a file "handled"."""
    wait = f"until [ -e {path}/handled ]; do sleep 0.01; done"
    server = stand_in(path, f"kill -{name} $PPID\n{wait}")
    return Notebook(SLOTWISE_SERVER=server, TMPDIR=str(path))


@pytest.mark.parametrize("close", ["s.close()", "local_server._close_servers()"])
def test_a_signals_handler_may_close_a_server_that_is_closing(tmp_path: Path, close: str) -> None:
    with signalled(tmp_path, "USR1") as notebook:
        pid, _ = notebook.serve()
        handled = f"open('{tmp_path}/handled', 'w').close()"
        handle = f"def handle(*_): ;;  s.close() ;;  s.why_ended() ;;  {handled}"
        notebook.say(f"{handle} ;; import signal ;; signal.signal(signal.SIGUSR1, handle) ;; print()")
        late = f"faulthandler.dump_traceback_later({LIMIT}, exit=True)"
        notebook.say(f"import faulthandler ;; {late} ;; print()")
        closing = f"from slotwise import local_server ;; {close}"
        assert notebook.say(f"{closing} ;; print(s._process.returncode, s.why_ended())") == "0 None"
        assert not is_running(pid) and not list(tmp_path.glob("*.log"))
        assert notebook.end() == 0


def test_a_close_that_a_handler_has_broken_off_can_be_called_again(tmp_path: Path) -> None:
    wait = f"until [ -e {tmp_path}/handled ]; do sleep 0.01; done"
    program = stand_in(tmp_path, f"kill -INT $PPID\n{wait}")
    notebook = Notebook(SLOTWISE_SERVER=program, TMPDIR=str(tmp_path))
    try:
        pid, _ = notebook.serve()
        catch = "signal.signal(signal.SIGINT, signal.default_int_handler)"
        notebook.say(f"import signal ;; {catch} ;; print()")
        said = "try: s.close() ;; except KeyboardInterrupt: print('interrupted')"
        assert notebook.say(said) == "interrupted"
        (tmp_path / "handled").touch()
        assert notebook.say("s.close() ;; print(s._process.returncode, s.why_ended())") == "0 None"
        assert not is_running(pid) and not list(tmp_path.glob("*.log"))
        assert notebook.end() == 0
    finally:
        notebook.process.kill()
        notebook.process.wait()


def test_a_server_tells_why_it_ended_unless_it_was_closed() -> None:
    closed, killed = slotwise.serve(), slotwise.serve()
    assert closed.why_ended() is None and killed.why_ended() is None
    closed.close()
    assert closed.why_ended() is None
    os.kill(killed.pid, signal.SIGKILL)
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    killed.close()
    assert "has ended, by signal 9" in str(killed.why_ended())


@pytest.fixture
def no_shared_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has no server of connect("local") yet."""
    monkeypatch.setattr(local_server, "_shared", None)
    yield
    if local_server._shared is not None:
        local_server._shared.close()


def test_connect_local_does_not_wait_longer_for_another_threads_start(no_shared_server: None) -> None:
    message = "another thread has been starting the server of this process for 0.1 s"
    with local_server._shared_lock, pytest.raises(slotwise.DeadlineExceeded, match=message):
        slotwise.connect("local", timeout=0.1)


def test_connect_local_connects_in_what_its_server_left_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_shared_server: None
) -> None:
    monkeypatch.setenv("SLOTWISE_SERVER", stand_in(tmp_path, ""))
    given: list[float] = []

    class Answer:
        def close(self) -> None:
            given.append(0.0)

    def connect(address: str, timeout: float, credentials: slotwise.Credentials) -> Answer:
        assert address == "127.0.0.1:1"
        assert credentials == slotwise.Credentials()  # that server does not ask who calls
        given.append(timeout)
        return Answer()

    for _ in range(2):  # the server is there at the second
        assert local_server.shared_address(LIMIT, connect) == "127.0.0.1:1"
        assert len(given) == 2 and 0 < given[0] < LIMIT
    with pytest.raises(slotwise.Error, match="127.0.0.1:1"):
        slotwise.connect("local", timeout=0.1)


def test_connect_local_replaces_a_server_that_was_closed(no_shared_server: None) -> None:
    first = local_server.shared_server()
    assert local_server.shared_server(float("inf")) is first
    first.close()
    assert trains(local_server.shared_server().address)


def test_a_trainer_that_mpirun_started_can_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "OMPI_MCA_ess"):
        monkeypatch.setenv(name, "2")
    with slotwise.serve() as server:
        assert trains(server.address)


def test_several_ranks_without_mpirun_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTWISE_SERVER", str(find_binary()))
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(slotwise.FailedPrecondition, match="4 ranks needs Open MPI's mpirun"):
        slotwise.serve(4)
    with slotwise.serve() as server:
        assert trains(server.address)


def test_a_server_that_does_not_start_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = tmp_path / "stuck"
    stuck.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\necho waiting >&2\nexec sleep 600\n")
    stuck.chmod(0o755)
    monkeypatch.setenv("SLOTWISE_SERVER", str(stuck))
    with pytest.raises(slotwise.Unavailable, match="(?s)not serving after 2 s; .*waiting"):
        slotwise.serve(timeout=2)
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_what_cannot_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTWISE_SERVER", "/nonexistent/server")
    with pytest.raises(slotwise.FailedPrecondition, match="SLOTWISE_SERVER is /nonexistent/server"):
        slotwise.serve()
    monkeypatch.setenv("SLOTWISE_SERVER", str(tmp_path))
    with pytest.raises(slotwise.FailedPrecondition, match="cannot start .*: Permission denied"):
        slotwise.serve()
    monkeypatch.delenv("SLOTWISE_SERVER")
    monkeypatch.setattr("slotwise.programs._PACKAGE", tmp_path / "a/b/c/slotwise")
    with pytest.raises(slotwise.FailedPrecondition, match="run ./dev build"):
        slotwise.serve()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(slotwise.FailedPrecondition, match="no slotwise-server with CUDA"):
        slotwise.serve(backend="cuda")
    assert list(tmp_path.iterdir()) == []  # no log was left


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(slotwise.FailedPrecondition, match="nowhere/server.log: No such file"):
        slotwise.serve(log=tmp_path / "nowhere/server.log")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(slotwise.FailedPrecondition, match="a temporary file: No such file"):
        slotwise.serve()


def test_a_process_without_file_descriptors_is_told(notebook: Notebook, tmp_path: Path) -> None:
    notebook.say(f"import slotwise, tempfile, os ;; tempfile.tempdir = '{tmp_path}' ;; print()")
    notebook.say("import resource ;; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)) ;; print()")
    fill = "files = [] ;; while True: ;;  try: files.append(os.open('/dev/null', 0)) ;;  except: break"
    notebook.say(f"{fill} ;; print()")
    serve = "try: slotwise.serve() ;; except slotwise.FailedPrecondition as error: said = str(error)"
    said = []
    for _ in range(8):  # the log, a pipe, the program's output and what tells of its start want some
        said.append(notebook.say(f"said = 'it serves' ;; {serve} ;; print(said)"))
        if said[-1] == "it serves":
            break
        assert said[-1].endswith("Too many open files") and list(tmp_path.iterdir()) == []
        notebook.say("os.close(files.pop()) ;; print()")
    assert said[0].startswith("cannot write the server's log") and said[-1] == "it serves"
    assert any(sentence.startswith("cannot start ") for sentence in said)


def test_a_server_lives_without_a_home_and_with_a_full_disk() -> None:
    notebook = Notebook(HOME="/nonexistent")
    pid, address = notebook.serve("log='/dev/full'")
    assert trains(address)
    assert notebook.end() == 0
    assert not is_running(pid)


@pytest.mark.parametrize("timeout", [3e6, 1e30, float("inf")])
def test_a_start_may_take_any_time(timeout: float) -> None:
    with slotwise.serve(timeout=timeout) as server:
        assert trains(server.address)


@pytest.mark.parametrize("name", ["config", "log"])
def test_a_path_with_a_null_character_is_refused(name: str) -> None:
    with pytest.raises(slotwise.InvalidArgument, match=rf"{name} is 'a\\x00b', and no path has a null"):
        slotwise.serve(**{name: "a\0b"})  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_start_that_raises_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error("no")

    before = os.listdir("/proc/self/fd")
    for broken in ("slotwise.local_server.subprocess.Popen", "slotwise.local_server.select.poll"):
        with monkeypatch.context() as patched:
            patched.setattr(broken, refuse)
            with pytest.raises(error, match="no"):
                slotwise.serve()
        assert os.listdir("/proc/self/fd") == before and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"ranks": 0}, {"threads": -1}, {"timeout": 0}, {"backend": "tpu"}])
def test_wrong_arguments_are_refused(wrong: dict[str, int | str]) -> None:
    with pytest.raises(slotwise.InvalidArgument, match=str(next(iter(wrong.values())))):
        slotwise.serve(**wrong)  # type: ignore[arg-type]
