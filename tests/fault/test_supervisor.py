"""slotwise-launch: a server that dies comes back, once, on its folder, and clients do not notice."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import slotwise
from free_ports import free_ports
from launched import BACKOFF, Launched, is_gone, kill, launch_binary
from slotwise_cluster import server_binary, wait_until

PATIENT = 600.0  # seconds; two starts of a server on a busy machine, and 3000 steps

Launch = Callable[..., Launched]
STEPS = 24


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts launchers: launch(options, server); the folder is tmp_path/data."""
    launched: list[Launched] = []

    def start(options: list[str], server: list[str]) -> Launched:
        data = tmp_path / "data"
        launched.append(Launched(data, tmp_path / f"log.{len(launched)}", options, server))
        return launched[-1]

    yield start
    for one in launched:
        one.clean_up()
        print(f"--- {one.log_file}\n{one.log()}")  # for whoever looks into a failure


def server(port: int, *more: str) -> list[str]:
    """A real server's command."""
    arguments = ["--listen", f"127.0.0.1:{port}", "--backend", "cpu", "--threads", "1"]
    return [str(server_binary()), *arguments, "--durability", "sync", *more]


def program(folder: Path, body: str, name: str = "program.sh") -> list[str]:
    """A script in the server's place; it counts its starts in the file `starts`."""
    script = folder / name
    script.write_text(f"#!/bin/bash\necho $$ >>{folder}/starts\n{body}\n")
    script.chmod(0o755)
    return [str(script)]


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A script in mpirun's place; it counts its starts as `program` does."""
    (folder / "bin").mkdir()
    program(folder, body, "bin/mpirun")
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


def starts(folder: Path) -> list[int]:
    """The processes that `program` was, one after another."""
    file = folder / "starts"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


class Training:
    """Steps whose gradients are whole numbers, so that the digest says which of them were applied."""

    def __init__(self, port: int) -> None:
        self._random = np.random.default_rng(7)
        self.ps = slotwise.connect(f"127.0.0.1:{port}", timeout=60)
        self.ps.create_table("ads", dim=4, slots=2, optimizer=slotwise.SGD(lr=1.0))
        self.ps.create_table("users", dim=2, slots=1, optimizer=slotwise.Adam(lr=0.1))

    def step(self) -> None:
        """One lookup, one push of one table and one of both."""
        keys = self._random.integers(0, 500, (64, 2)).astype(np.uint64)
        users = self._random.integers(0, 100, (64, 1)).astype(np.uint64)
        self.ps.lookup("ads", keys)
        self.ps.push("ads", keys, None, self._gradients(8))
        both = {"ads": (keys, None, self._gradients(8)), "users": (users, None, self._gradients(2))}
        self.ps.push_many(both)

    def state(self) -> list[object]:
        """What any way through the same steps has to end in."""
        return [(self.ps.digest(table), self.ps.describe_table(table).steps) for table in ("ads", "users")]

    def _gradients(self, width: int) -> np.ndarray:
        return self._random.integers(-3, 4, (64, width)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The state after all steps of a training that nobody disturbs."""
    folder = tmp_path_factory.mktemp("expected")
    port = free_ports(1)
    launched = Launched(folder / "data", folder / "log", [], server(port))
    try:
        launched.await_start()
        training = Training(port)
        for _ in range(STEPS):
            training.step()
        state = training.state()
        training.ps.close()
        assert launched.stop() == 0, launched.log()
        return state
    finally:
        launched.clean_up()


def one_rank(launched: Launched) -> list[int]:
    """A rank that is not the first."""
    return launched.ranks()[-1:]


VICTIMS: dict[str, Callable[[Launched], list[int]]] = {
    "a_rank": one_rank,
    "mpirun": Launched.mpirun,
    "all_ranks": Launched.ranks,
    "everything_but_the_launcher": Launched.carriers,
}


@pytest.mark.parametrize("victims", VICTIMS)
def test_training_goes_on_through_kills(launch: Launch, expected: list[object], victims: str) -> None:
    port = free_ports(2)
    launched = launch(["-n", "2", *BACKOFF], server(port))
    launched.await_start()
    training = Training(port)
    for step in range(STEPS):
        if step in (5, 15):
            launched.await_start(1 + step // 10)
            chosen = VICTIMS[victims](launched)
            assert chosen
            kill(*chosen)
        training.step()
    assert training.state() == expected
    training.ps.close()
    launched.await_start(3)
    assert launched.stop() == 0, launched.log()
    assert launched.starts() == 3, launched.log()
    assert launched.carriers() == []


def test_training_goes_on_on_other_ranks_at_other_ports(launch: Launch, expected: list[object]) -> None:
    """Each lookup and push that a new start answers tells the client all ranks before it returns."""
    port = free_ports(4)
    launched = launch(["-n", "2", *BACKOFF], server(port))
    launched.await_start()
    training = Training(port)
    for step in range(STEPS):
        if step == 8:  # the client knows port and port + 1; of these the new ranks have port + 1
            assert launched.stop() == 0
            launched = launch(["-n", "3", *BACKOFF], server(port + 1))
        if step == 16:  # the client has learned all three by now, and so finds this one
            launched.await_start()
            assert launched.stop() == 0
            launched = launch(BACKOFF, server(port + 3))
        training.step()
    assert training.state() == expected
    training.ps.close()


# --- a client that was attached before uses the ranks of a new start as one does that connects now

# Keys whose rows are more than two parts of the least size, and fewer than three.
TWO_PARTS = np.arange(2500, dtype=np.uint64)
DOORS = {"best": [2, 3, 1], "tcp": [2, 3], "grpc": [2, 3]}


def counted(ps: slotwise.Client) -> list[slotwise.RankStats]:
    """What each rank has counted, once no call is under way."""
    stats: list[slotwise.RankStats] = []

    def is_idle() -> bool:
        stats[:] = ps.stats()
        return not any(rank.calls_under_way for rank in stats)

    wait_until(is_idle, "no call is under way")
    return stats


@pytest.mark.parametrize("door", DOORS)
def test_an_attached_client_spreads_its_parts_over_all_ranks(launch: Launch, door: str) -> None:
    port = free_ports(3)
    launched = launch(["-n", str(DOORS[door][0])], server(port))
    launched.await_start()
    gradients = np.ones((len(TWO_PARTS), 16), np.float32)
    with slotwise.connect(f"127.0.0.1:{port}", timeout=60, door=door) as ps:
        ps.create_table("ads", dim=16, optimizer=slotwise.SGD(lr=1.0))

        def step() -> None:
            ps.lookup("ads", TWO_PARTS)
            ps.push("ads", TWO_PARTS, None, gradients)

        for ranks in DOORS[door]:
            if ranks != DOORS[door][0]:
                assert launched.stop() == 0, launched.log()
                launched = launch(["-n", str(ranks)], server(port))
                launched.await_start()
            step()  # when it returns, the client knows all ranks
            before = counted(ps)
            for _ in range(ranks):
                step()
            since = [now.since(then) for now, then in zip(counted(ps), before, strict=True)]
            assert [rank.lookups.calls for rank in since] == [min(2, ranks)] * ranks
            assert [rank.pushes.calls for rank in since] == [min(2, ranks)] * ranks
    assert launched.stop() == 0, launched.log()


def test_training_goes_on_through_the_launchers_death(launch: Launch, expected: list[object]) -> None:
    port = free_ports(2)
    launched = launch(["-n", "2", *BACKOFF], server(port))
    launched.await_start()
    training = Training(port)
    for step in range(STEPS):
        if step == 12:
            old = launched.carriers()
            kill(launched.process.pid)
            launched = launch(["-n", "2", *BACKOFF], server(port))
        training.step()
    assert all(map(is_gone, old))
    assert training.state() == expected
    training.ps.close()
    assert launched.stop() == 0, launched.log()
    assert "which did not give it back" in launched.log()


def test_an_export_knows_the_ranks_of_a_new_start(launch: Launch) -> None:
    port = free_ports(3)
    launched = launch(["-n", "1"], server(port))
    launched.await_start()
    with slotwise.connect(f"127.0.0.1:{port}", timeout=60) as ps:
        ps.create_table("ads", dim=2, slots=1, optimizer=slotwise.SGD(lr=1.0))
        keys = np.arange(1000, dtype=np.uint64)
        ps.push("ads", keys.reshape(-1, 1), None, np.ones((1000, 2), np.float32))
        assert launched.stop() == 0
        launched = launch(["-n", "3"], server(port))  # the client is idle meanwhile, and knows one rank
        launched.await_start()
        exported = np.concatenate([rows.keys for rows in ps.export_rows("ads")])
    assert sorted(exported) == list(keys)
    assert launched.stop() == 0


def test_a_client_that_was_idle_learns_the_ranks_of_a_new_start(
    launch: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "slotwise")
    port = free_ports(3)
    launched = launch([], server(port))
    launched.await_start()
    with slotwise.connect(f"127.0.0.1:{port}", timeout=60) as ps:
        ps.create_table("ads", dim=2, slots=1, optimizer=slotwise.SGD(lr=1.0))
        key = np.ones((1, 1), np.uint64)
        for _ in range(4):  # by every connection, so that each has one to lose
            ps.lookup("ads", key)
        assert launched.stop() == 0
        launched = launch(["-n", "3"], server(port))
        launched.await_start()

        def moved() -> bool:
            ps.lookup("ads", key)
            return "the server was started again, with 3 rank(s)" in caplog.text

        wait_until(moved, "the client has heard of it")
    assert "trying again" not in caplog.text, "the first lookup is answered over a new connection"
    assert launched.stop() == 0


def test_the_cpp_client_goes_on_through_kills(launch: Launch) -> None:
    port = free_ports(2)
    launched = launch(["-n", "2", *BACKOFF], server(port))
    launched.await_start()
    push = [str(server_binary().parents[1] / "tests/client/push_batches"), f"127.0.0.1:{port}"]
    with slotwise.connect(f"127.0.0.1:{port}", timeout=PATIENT) as ps:
        for table in ("calm", "wild"):
            ps.create_table(table, dim=8, slots=3, optimizer=slotwise.Adam(lr=0.01), seed=7)
        batches = ["7", "3000", "100", "3", "8", "plain"]  # the kills come long before the last step
        subprocess.run([*push, "calm", *batches], check=True, timeout=PATIENT)
        pushing = subprocess.Popen([*push, "wild", *batches])
        try:
            for number in (1, 2):
                launched.await_start(number)
                wait_until(lambda: ps.describe_table("wild").steps >= 100 * number, f"{100 * number} steps")
                assert pushing.poll() is None
                kill(*one_rank(launched))
            assert pushing.wait(timeout=PATIENT) == 0
        finally:
            pushing.kill()
        assert ps.digest("wild") == ps.digest("calm")
    assert launched.starts() == 3


# --- the folder's lock


def test_a_second_launcher_is_refused_and_told_by_whom(launch: Launch, tmp_path: Path) -> None:
    holder = launch([], program(tmp_path, "echo serving here; read -r _; exit 0"))
    holder.await_start()
    second = launch([], program(tmp_path, "exit 7"))
    assert second.await_end() == 1
    named = f"data is held by slotwise-launch on {socket.gethostname()} pid {holder.process.pid} since "
    assert named in second.log()
    assert len(starts(tmp_path)) == 1
    assert holder.stop() == 0
    assert launch([], program(tmp_path, "exit 0")).await_end() == 0


def test_it_waits_for_the_lock_of_a_launcher_that_is_ending(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with open(tmp_path / "data" / "launch.lock", "w", encoding="ascii") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        holder.write("a host pid 12 since yesterday\n")
        holder.flush()
        second = launch([], program(tmp_path, "echo serving here; read -r _; exit 0"))
        wait_until(lambda: "waits 10 s for it" in second.log(), "it waits")
        assert starts(tmp_path) == []
    second.await_start()
    assert "is held by slotwise-launch on a host pid 12 since yesterday: waits 10 s for it" in second.log()
    assert second.stop() == 0


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cases = {
        tmp_path / "none" / "data": f"cannot make {tmp_path}/none/data: No such file or directory",
        tmp_path / "file": f"cannot lock {tmp_path}/file/launch.lock: Not a directory",
    }
    for folder, words in cases.items():
        launched = Launched(folder, tmp_path / "log", [], ["/bin/true"])
        assert launched.await_end() == 1
        assert words in launched.log()


# --- what is left of an old run

STUCK = "trap '' TERM HUP INT; echo serving here; while :; do sleep 0.05; done"


@pytest.mark.parametrize("hosts", [False, True])
def test_a_stuck_orphan_is_killed_before_anything_starts(launch: Launch, tmp_path: Path, hosts: bool) -> None:
    launched = launch([], program(tmp_path, STUCK))
    launched.await_start()
    (orphan,) = starts(tmp_path)
    kill(launched.process.pid)
    launched.process.wait()
    assert not is_gone(orphan)
    (tmp_path / "hosts").write_text("localhost slots=1\n")
    # A process that nobody has waited for has no environment any more.
    body = f"grep -q . /proc/{orphan}/environ 2>/dev/null && echo still there; echo serving here; cat"
    again = launch(["--hostfile", f"{tmp_path}/hosts"] if hosts else [], program(tmp_path, body))
    again.await_start()
    assert is_gone(orphan)
    assert "still there" not in again.log()
    assert "killed what was left of an earlier run" in again.log()
    assert again.stop() == 0


def test_every_host_is_swept(tmp_path: Path) -> None:
    """mpirun runs the sweep on hosts; here that is this one, asked as mpirun would."""
    name = "an id:/with a space"
    orphan = subprocess.Popen(["sleep", "600"], env=os.environ | {"SLOTWISE_LAUNCH_ID": name})
    other = subprocess.Popen(["sleep", "600"], env=os.environ | {"SLOTWISE_LAUNCH_ID": name[:-1]})
    try:
        sweep = [str(launch_binary()), "--sweep", name]
        ended = subprocess.run(sweep, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, orphan.wait(timeout=10)) == (0, -signal.SIGKILL)
        assert f"on {socket.gethostname()}: process {orphan.pid}\n" in ended.stderr
        assert other.poll() is None
    finally:
        orphan.kill()
        other.kill()


WAITS = """
import sys
sys.stdin.readline()
"""
# Its first thread ends, as that of a process that is ending may before the others do.
WAITS_WITHOUT_ITS_FIRST_THREAD = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.readline).start()
ctypes.CDLL(None).pthread_exit(None)
"""
# The end of such a process takes the kernel some tenths of a second, because it has memory in small pages.
LARGE = """
import fcntl, mmap, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
memory = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, len(memory), mmap.PAGESIZE):
    memory[at] = 1
print("ready", flush=True)
"""


def orphan(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A Python program of an earlier run."""
    environment = os.environ | {"SLOTWISE_LAUNCH_ID": "an id"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def sweep() -> subprocess.CompletedProcess[str]:
    """Kills what `orphan` has made."""
    command = [str(launch_binary()), "--sweep", "an id"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_orphan_whose_first_thread_has_ended_is_killed() -> None:
    process = orphan(WAITS_WITHOUT_ITS_FIRST_THREAD)
    try:
        wait_until(lambda: is_gone(process.pid), "its first thread has ended")
        assert process.poll() is None
        ended = sweep()
        assert (ended.returncode, process.wait(timeout=10)) == (0, -signal.SIGKILL)
        assert f"process {process.pid}\n" in ended.stderr
    finally:
        process.kill()


@pytest.mark.parametrize("waits", [WAITS, WAITS_WITHOUT_ITS_FIRST_THREAD], ids=["whole", "without_a_thread"])
def test_an_orphan_has_let_go_of_its_locks_once_it_was_swept(tmp_path: Path, waits: str) -> None:
    process = orphan(LARGE + waits, f"{tmp_path}/lock")
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        if waits != WAITS:
            wait_until(lambda: is_gone(process.pid), "its first thread has ended")
        assert sweep().returncode == 0
        with open(tmp_path / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert process.wait(timeout=10) == -signal.SIGKILL
    finally:
        process.kill()


def test_nothing_starts_while_a_host_cannot_be_swept(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts").write_text("gone slots=1\n")
    stand_in(tmp_path, monkeypatch, f'echo "$@" >>{tmp_path}/asked; exit 1')
    launched = launch(["--hostfile", f"{tmp_path}/hosts"], program(tmp_path, "exit 0"))
    assert launched.await_end() == 1
    assert f"nothing of an earlier run is left on a host of {tmp_path}/hosts" in launched.log()
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith(f"--hostfile {tmp_path}/hosts --map-by ppr:1:node /")
    assert asked.count("\n") == 1 and f" --sweep {(tmp_path / 'data' / 'launch.id').read_text()[:8]}" in asked


def test_a_copy_of_the_folder_has_ranks_of_its_own(launch: Launch, tmp_path: Path) -> None:
    launched = launch([], program(tmp_path, "echo serving here; read -r _; exit 0"))
    launched.await_start()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "launch.id").write_text((tmp_path / "data" / "launch.id").read_text())
    assert Launched(tmp_path / "copy", tmp_path / "log", [], ["/bin/true"]).await_end() == 0
    assert launched.process.poll() is None and not is_gone(starts(tmp_path)[0])
    assert launched.stop() == 0


# --- restarts and their limit


def test_it_gives_up_at_the_limit_with_the_servers_exit_code(launch: Launch, tmp_path: Path) -> None:
    options = ["--restarts", "2", "--within", "600", "--backoff", "0.01"]
    launched = launch(options, program(tmp_path, "echo serving here; exit 3"))
    assert launched.await_end() == 3
    assert len(starts(tmp_path)) == 3
    assert "restarted 2 times within 600 s, the most that --restarts allows" in launched.log()


def test_a_server_that_is_killed_as_it_starts_is_started_again(launch: Launch, tmp_path: Path) -> None:
    launched = launch(["--restarts", "1", "--backoff", "0.01"], program(tmp_path, "kill -9 $$"))
    assert launched.await_end() == 128 + signal.SIGKILL
    assert len(starts(tmp_path)) == 2
    assert "exit code 137, SIGKILL" in launched.log()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_configuration_error_ends_it_at_once(launch: Launch, tmp_path: Path, ranks: int) -> None:
    launched = launch(["-n", str(ranks)], server(free_ports(2), "--config", f"{tmp_path}/none"))
    assert launched.await_end() == 1
    log = launched.log()
    assert f"cannot read the configuration {tmp_path}/none" in log
    assert log.count("and is not started again: it has never served: see its log") == 1


def test_a_mode_in_the_file_goes_with_the_launchers_folder(launch: Launch, tmp_path: Path) -> None:
    config = tmp_path / "server.pbtxt"
    config.write_text(f'listen: "127.0.0.1:{free_ports(1)}" durability {{ mode: DURABILITY_MODE_SYNC }}')
    launched = launch([], [str(server_binary()), "--config", str(config), "--backend", "cpu"])
    launched.await_start()
    assert list((tmp_path / "data").glob("journal*")) != []
    assert launched.stop() == 0, launched.log()


def test_damaged_data_ends_it_at_once(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lineage").write_text("no lineage")
    launched = launch([], server(free_ports(1)))
    assert launched.await_end() == 1
    assert f"{tmp_path}/data/lineage is not a lineage" in launched.log()
    assert "it has never served" in launched.log()


def test_a_program_that_is_not_there_ends_it(launch: Launch, tmp_path: Path) -> None:
    launched = launch([], [f"{tmp_path}/none"])
    assert launched.await_end() == 1
    assert f"cannot start {tmp_path}/none: No such file or directory" in launched.log()


# --- stops


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_all_well(launch: Launch, ranks: int, number: signal.Signals) -> None:
    launched = launch(["-n", str(ranks)], server(free_ports(2)))
    launched.await_start()
    launched.process.send_signal(number)
    assert launched.await_end() == 0, launched.log()
    assert launched.log().count(" stopped\n") == ranks
    assert launched.carriers() == []
    assert (launched.data / "launch.lock").read_text() == ""


def test_a_stop_while_the_ranks_start_ends_well(launch: Launch) -> None:
    launched = launch(["-n", "2"], server(free_ports(2)))
    wait_until(lambda: bool(launched.carriers()), "mpirun is there")
    assert launched.stop() == 0, launched.log()
    assert launched.carriers() == []


def test_a_stop_while_it_waits_to_restart_ends_it(launch: Launch, tmp_path: Path) -> None:
    launched = launch(["--backoff", "600"], program(tmp_path, "echo serving here; exit 3"))
    wait_until(lambda: "comes in 600.00 s" in launched.log(), "it waits")
    assert launched.stop() == 0
    assert len(starts(tmp_path)) == 1


def test_a_second_stop_kills_a_server_that_does_not_end(launch: Launch, tmp_path: Path) -> None:
    launched = launch([], program(tmp_path, STUCK))
    launched.await_start()
    launched.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "the server finishes what runs" in launched.log(), "the first stop")

    def ended() -> bool:
        launched.process.send_signal(signal.SIGTERM)  # within a second it counts as the first
        return launched.process.poll() is not None

    wait_until(ended, "its end")
    assert launched.await_end() == 128 + signal.SIGTERM
    assert launched.carriers() == []


def test_a_server_that_was_told_to_end_is_not_started_again(launch: Launch) -> None:
    launched = launch(["-n", "2"], server(free_ports(2)))
    launched.await_start()
    os.kill(launched.ranks()[1], signal.SIGTERM)
    assert launched.await_end() == 0, launched.log()
    assert launched.starts() == 1


HABITS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def test_signals_of_habit_change_nothing(launch: Launch) -> None:
    """What makes other daemons read files again, or open their logs again, ends no rank and no launcher."""
    port = free_ports(2)
    launched = launch(["-n", "2"], server(port))
    launched.await_start()
    for number in HABITS:
        for pid in (launched.process.pid, *launched.ranks()):
            os.kill(pid, number)
        line = rf" (launch|rank=\d) {number.name} from .* is ignored"
        wait_until(lambda: len(re.findall(line, launched.log())) == 3, f"all have heard {number.name}")
    with slotwise.connect(f"127.0.0.1:{port}", timeout=60) as ps:
        assert ps.list_tables() == []
    assert "the files of tokens and certificates are read again when they change" in launched.log()
    os.kill(launched.ranks()[1], signal.SIGTERM)  # which it still hears
    assert launched.await_end() == 0, launched.log()
    assert launched.starts() == 1


# --- an mpirun that is stuck


def test_a_stopped_mpirun_whose_ranks_are_dead_is_no_obstacle(launch: Launch) -> None:
    launched = launch(["-n", "2", *BACKOFF], server(free_ports(2)))
    launched.await_start()
    (mpirun,) = launched.mpirun()
    ranks = launched.ranks()
    os.kill(mpirun, signal.SIGSTOP)
    wait_until(lambda: f"process {mpirun} is stopped" in launched.log(), "the launcher knows")
    launched.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP" in launched.log(), "the launcher has seen to it")
    assert launched.ranks() == ranks and "SIGCONT" not in launched.log().partition(" is stopped: SIGCONT")[2]
    kill(*ranks)
    launched.await_start(2)
    assert is_gone(mpirun) and "none of its ranks runs here: it gets SIGCONT" in launched.log()
    assert launched.stop() == 0, launched.log()


def test_a_stop_reaches_the_ranks_of_a_stopped_mpirun(launch: Launch) -> None:
    launched = launch(["-n", "2"], server(free_ports(2)))
    launched.await_start()
    os.kill(launched.mpirun()[0], signal.SIGSTOP)
    wait_until(lambda: " is stopped" in launched.log(), "the launcher knows")
    assert launched.stop() == 0, launched.log()
    assert launched.log().count(" stopped\n") == 2


def test_an_mpirun_that_is_stopped_before_it_has_ranks_is_woken(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "kill -STOP $$; echo serving here; read -r _; exit 0")
    launched = launch(["-n", "2"], ["none"])
    launched.await_start()
    assert launched.stop() == 0


def test_an_mpirun_that_does_not_end_after_its_ranks_is_killed(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that waits for its daemon on a host that is cut off."""
    rank = f"SLOTWISE_LAUNCH_RANK=1 sleep 600 & echo $! >>{tmp_path}/ranks"
    until_it_is_one = "until grep -q LAUNCH_RANK /proc/$!/environ; do sleep 0.01; done"
    stand_in(tmp_path, monkeypatch, f"{rank}; {until_it_is_one}; {STUCK}")
    launched = launch(["-n", "2", "--patience", "0.3", *BACKOFF], ["none"])
    launched.await_start()
    (mpirun,), (of_mpirun,) = starts(tmp_path), (tmp_path / "ranks").read_text().split()
    kill(int(of_mpirun))
    launched.await_start(2)
    assert is_gone(mpirun)
    assert "mpirun has not ended 0.30 s after its ranks (--patience): it is killed" in launched.log()


HANGS = "trap '' TERM HUP INT; sleep 600 & exec sleep 600"


def once(folder: Path, first: str) -> str:
    """A body that does something the first time, and serves the next ones."""
    later = "echo serving here; read -r _; exit 0"
    return f"[[ ! -e {folder}/later ]] || {{ {later}; }}; touch {folder}/later; {first}"


def await_look(launched: Launched) -> None:
    """Returns once the launcher has looked at its mpirun again, as it does between two signals."""
    for _ in range(2):
        before = launched.log().count("SIGHUP")
        launched.process.send_signal(signal.SIGHUP)
        wait_until(lambda: launched.log().count("SIGHUP") > before, "the launcher has seen to the signal")


def test_an_mpirun_that_does_not_end_after_ranks_that_never_served_is_killed(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Open MPI's does at times, if ranks die within their first second."""
    rank = f"SLOTWISE_LAUNCH_RANK=1 sleep 600 & echo $! >>{tmp_path}/ranks"
    stand_in(tmp_path, monkeypatch, once(tmp_path, f"{rank}; {HANGS}"))
    launched = launch(["-n", "2", "--patience", "0.3", *BACKOFF], ["none"])

    def ranks() -> list[str]:
        file = tmp_path / "ranks"
        return file.read_text().split() if file.exists() else []

    wait_until(lambda: bool(ranks()), "the rank's number")
    (rank_pid,) = map(int, ranks())
    carried = Path(f"/proc/{rank_pid}/environ")
    wait_until(lambda: b"SLOTWISE_LAUNCH_RANK=1" in carried.read_bytes(), "the rank is there")
    await_look(launched)
    assert len(starts(tmp_path)) == 1
    kill(rank_pid)
    launched.await_start()
    assert is_gone(starts(tmp_path)[0])
    assert "mpirun has not ended 0.30 s after its ranks (--patience): it is killed" in launched.log()
    assert launched.stop() == 0, launched.log()


def test_an_mpirun_that_starts_no_rank_is_started_again(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, once(tmp_path, HANGS))
    launched = launch(["-n", "2", "--rank-limit", "1", *BACKOFF], ["none"])
    launched.await_start()
    assert is_gone(starts(tmp_path)[0])
    assert "mpirun has started no rank in 1.00 s (--rank-limit): it is killed" in launched.log()
    assert launched.stop() == 0, launched.log()


def test_a_stop_ends_an_mpirun_that_has_no_rank(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, HANGS)
    launched = launch(["-n", "2", "--patience", "0.3"], ["none"])
    wait_until(lambda: bool(starts(tmp_path)), "mpirun is there")
    assert launched.stop() == 0, launched.log()
    assert "not ended 0.30 s after the stop, and has no rank (--patience): it is killed" in launched.log()
    assert launched.carriers() == []


def test_a_stop_ends_an_mpirun_whose_ranks_elsewhere_have_ended(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ranks on other hosts the launcher sees that rank 0 holds the folder, as this mpirun does."""
    (tmp_path / "data").mkdir()
    body = f"exec 9>>{tmp_path}/data/server.lock; flock 9; touch {tmp_path}/holds"
    until_told = f"until [[ -e {tmp_path}/go ]]; do sleep 0.01; done; echo serving here; read -r _"
    stand_in(tmp_path, monkeypatch, f"{body}; {until_told}; exec 9>&-; {HANGS}")
    launched = launch(["-n", "2", "--patience", "0.3"], ["none"])
    wait_until((tmp_path / "holds").exists, "the folder is held")
    await_look(launched)
    (tmp_path / "go").touch()
    launched.await_start()
    assert launched.stop() == 128 + signal.SIGKILL
    assert "mpirun has not ended 0.30 s after its ranks (--patience): it is killed" in launched.log()
    assert launched.carriers() == []


def test_a_server_that_never_serves_is_started_again(launch: Launch, tmp_path: Path) -> None:
    options = ["--start-limit", "0.2", "--restarts", "1", "--backoff", "0.01"]
    launched = launch(options, program(tmp_path, "while :; do sleep 0.05; done"))
    assert launched.await_end() == 128 + signal.SIGKILL
    assert len(starts(tmp_path)) == 2
    assert launched.log().count("the server does not serve after 0.20 s (--start-limit)") == 2


def test_a_program_that_cannot_start_once_is_tried_again(launch: Launch, tmp_path: Path) -> None:
    """As while a package is replaced, or while a container may have no more processes."""
    until_told = f"echo serving here; [[ ! -e {tmp_path}/again ]] || read -r _"
    mine = program(tmp_path, f"{until_told}; mv $0 {tmp_path}/aside; exit 3")
    launched = launch(BACKOFF, mine)
    wait_until(lambda: f"cannot start {mine[0]}: No such file" in launched.log(), "it could not be started")
    (tmp_path / "again").touch()
    os.rename(tmp_path / "aside", mine[0])
    launched.await_start(2)
    launched.process.send_signal(signal.SIGTERM)
    assert launched.await_end() == 3


# --- its command line


def test_the_command_line_is_checked(tmp_path: Path) -> None:
    cases = {
        ("--", "true"): "--data is required",
        ("--data", f"{tmp_path}/data"): "the server's command is missing",
        ("--data", f"{tmp_path}/data", "--", "true", "--data=x"): "have --data, which slotwise-launch adds",
        ("--data", f"{tmp_path}/data", "-n", "0", "--", "true"): "--ranks",
        ("--data", f"{tmp_path}/data", "--backoff", "nan", "--", "true"): "--backoff",
        ("--data", f"{tmp_path}/data", "--hostfile", f"{tmp_path}/none", "--", "true"): "--hostfile",
    }
    for arguments, words in cases.items():
        command = [str(launch_binary()), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 1, arguments
        assert words in ended.stdout + ended.stderr
    assert not (tmp_path / "data").exists()
