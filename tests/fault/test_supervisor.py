"""slotwise-launch: a server that dies comes back, once, on its folder, and clients do not notice."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import slotwise
from free_ports import free_ports
from launched import BACKOFF, Launched, is_gone, kill
from programs import BUILT, LAUNCH, run
from slotwise_cluster import server_binary, wait_until

PATIENT = 600.0  # seconds; two starts of a server on a busy machine, and 3000 steps
STEPS = 24
# Bodies of programs in a server's place.
SERVES = "echo serving here; read -r _; exit 0"
STUCK = "trap '' TERM HUP INT; echo serving here; while :; do sleep 0.05; done"
HANGS = "trap '' TERM HUP INT; sleep 600 & exec sleep 600"


class Launches:
    """Launchers on one folder, one after another, and what they start."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.data = folder, folder / "data"
        self._monkeypatch = monkeypatch
        self._launched: list[Launched] = []

    def start(self, options: list[str], command: list[str], serves: bool = True) -> Launched:
        """A launcher; `serves`: returned once its server serves."""
        log = self.folder / f"log.{len(self._launched)}"
        self._launched.append(Launched(self.data, log, options, command))
        if serves:
            self._launched[-1].await_start()
        return self._launched[-1]

    def server(
        self,
        ranks: int | None = None,
        *options: str,
        port: int = 0,
        more: Sequence[str] = (),
        serves: bool = True,
    ) -> Launched:
        """A launcher of a real server, whose ranks take the ports from `port` on."""
        address = f"127.0.0.1:{port or free_ports(ranks or 1)}"
        command = [str(server_binary()), "--listen", address, "--backend", "cpu", "--threads", "1"]
        on_ranks = [] if ranks is None else ["-n", str(ranks)]
        return self.start([*on_ranks, *options], [*command, "--durability", "sync", *more], serves)

    def program(self, body: str, *options: str, serves: bool = False) -> Launched:
        """A launcher of a script in the server's place."""
        return self.start(list(options), [str(self.script("program.sh", body))], serves)

    def mpirun(self, body: str, *options: str, serves: bool = False) -> Launched:
        """A launcher of two ranks that finds a script in mpirun's place."""
        (self.folder / "bin").mkdir()
        self.script("bin/mpirun", body)
        self._monkeypatch.setenv("PATH", f"{self.folder}/bin:{os.environ['PATH']}")
        return self.start(["-n", "2", *options], ["none"], serves)

    def script(self, name: str, body: str) -> Path:
        """A script that counts its starts in the file `starts`."""
        script = self.folder / name
        script.write_text(f"#!/bin/bash\necho $$ >>{self.folder}/starts\n{body}\n")
        script.chmod(0o755)
        return script

    def starts(self) -> list[int]:
        """The processes that scripts were, one after another."""
        return self.numbers("starts")

    def numbers(self, name: str) -> list[int]:
        """The numbers in a file that scripts write."""
        file = self.folder / name
        return [int(number) for number in file.read_text().split()] if file.exists() else []

    def clean_up(self) -> None:
        """Leaves nothing behind."""
        for one in self._launched:
            one.clean_up()
            print(f"--- {one.log_file}\n{one.log()}")  # for the reader of a failed test


@pytest.fixture
def launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    launches = Launches(tmp_path, monkeypatch)
    yield launches
    launches.clean_up()


class Training:
    """Steps whose gradients are whole numbers, so that the digest says which of them were applied."""

    def __init__(self, port: int) -> None:
        self._random = np.random.default_rng(7)
        self._ps = slotwise.connect(f"127.0.0.1:{port}", timeout=60)
        self._ps.create_table("ads", dim=4, slots=2, optimizer=slotwise.SGD(lr=1.0))
        self._ps.create_table("users", dim=2, slots=1, optimizer=slotwise.Adam(lr=0.1))

    def steps(self) -> Iterator[int]:
        """Trains: one lookup, one push of one table and one of both. Yields each step's number before it."""
        for step in range(STEPS):
            yield step
            keys = self._random.integers(0, 500, (64, 2)).astype(np.uint64)
            users = self._random.integers(0, 100, (64, 1)).astype(np.uint64)
            self._ps.lookup("ads", keys)
            self._ps.push("ads", keys, None, self._gradients(8))
            both = {"ads": (keys, None, self._gradients(8)), "users": (users, None, self._gradients(2))}
            self._ps.push_many(both)

    def end(self) -> list[object]:
        """What any way through the same steps has to end in."""
        with self._ps as ps:
            return [(ps.digest(table), ps.describe_table(table).steps) for table in ("ads", "users")]

    def _gradients(self, width: int) -> np.ndarray:
        return self._random.integers(-3, 4, (64, width)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[object]]:
    """The state after all steps of an undisturbed training."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        launches, port = Launches(tmp_path_factory.mktemp("expected"), monkeypatch), free_ports(1)
        try:
            launched = launches.server(port=port)
            training = Training(port)
            assert len(list(training.steps())) == STEPS
            yield training.end()
            assert launched.stop() == 0, launched.log()
        finally:
            launches.clean_up()


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
def test_training_goes_on_through_kills(launches: Launches, expected: list[object], victims: str) -> None:
    port = free_ports(2)
    launched = launches.server(2, *BACKOFF, port=port)
    training = Training(port)
    for step in training.steps():
        if step in (5, 15):
            launched.await_start(1 + step // 10)
            chosen = VICTIMS[victims](launched)
            assert chosen
            kill(*chosen)
    assert training.end() == expected
    launched.await_start(3)
    assert launched.stop() == 0, launched.log()
    assert launched.starts() == 3, launched.log()
    assert launched.carriers() == []


def test_training_goes_on_on_other_ranks_at_other_ports(launches: Launches, expected: list[object]) -> None:
    """Each lookup and push that a new start answers tells the client all ranks before it returns."""
    port = free_ports(4)
    launched = launches.server(2, *BACKOFF, port=port)
    training = Training(port)
    for step in training.steps():
        if step == 8:  # the client knows port and port + 1; of these the new ranks have port + 1
            assert launched.stop() == 0
            launched = launches.server(3, *BACKOFF, port=port + 1, serves=False)
        if step == 16:  # the client has learned all three by now, and so finds this one
            launched.await_start()
            assert launched.stop() == 0
            launched = launches.server(None, *BACKOFF, port=port + 3, serves=False)
    assert training.end() == expected


def test_training_goes_on_through_the_launchers_death(launches: Launches, expected: list[object]) -> None:
    port = free_ports(2)
    launched = launches.server(2, *BACKOFF, port=port)
    training = Training(port)
    for step in training.steps():
        if step == 12:
            old = launched.carriers()
            kill(launched.process.pid)
            launched = launches.server(2, *BACKOFF, port=port, serves=False)
    assert all(map(is_gone, old))
    assert training.end() == expected
    assert launched.stop() == 0, launched.log()
    assert "which did not give it back" in launched.log()


# --- a client that was attached before uses the ranks of a new start as one does that connects now

# Keys whose rows are more than two parts of the least size, and fewer than three.
TWO_PARTS = np.arange(2500, dtype=np.uint64)
TRANSPORTS = {"best": [2, 3, 1], "tcp": [2, 3], "grpc": [2, 3]}


def counted(ps: slotwise.Client) -> list[slotwise.RankStats]:
    """What each rank has counted, once no call is under way."""
    stats: list[slotwise.RankStats] = []

    def is_idle() -> bool:
        stats[:] = ps.stats()
        return not any(rank.calls_under_way for rank in stats)

    wait_until(is_idle, "no call is under way")
    return stats


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_attached_client_spreads_its_parts_over_all_ranks(launches: Launches, transport: str) -> None:
    port = free_ports(3)
    launched = launches.server(TRANSPORTS[transport][0], port=port)
    gradients = np.ones((len(TWO_PARTS), 16), np.float32)
    with slotwise.connect(f"127.0.0.1:{port}", timeout=60, transport=transport) as ps:
        ps.create_table("ads", dim=16, optimizer=slotwise.SGD(lr=1.0))

        def step() -> None:
            ps.lookup("ads", TWO_PARTS)
            ps.push("ads", TWO_PARTS, None, gradients)

        for ranks in TRANSPORTS[transport]:
            if ranks != TRANSPORTS[transport][0]:
                assert launched.stop() == 0, launched.log()
                launched = launches.server(ranks, port=port)
            step()  # when it returns, the client knows all ranks
            before = counted(ps)
            for _ in range(ranks):
                step()
            since = [now.since(then) for now, then in zip(counted(ps), before, strict=True)]
            assert [rank.lookups.calls for rank in since] == [min(2, ranks)] * ranks
            assert [rank.pushes.calls for rank in since] == [min(2, ranks)] * ranks
    assert launched.stop() == 0, launched.log()


def test_an_export_knows_the_ranks_of_a_new_start(launches: Launches) -> None:
    port = free_ports(3)
    launched = launches.server(1, port=port)
    with slotwise.connect(f"127.0.0.1:{port}", timeout=60) as ps:
        ps.create_table("ads", dim=2, slots=1, optimizer=slotwise.SGD(lr=1.0))
        keys = np.arange(1000, dtype=np.uint64)
        ps.push("ads", keys.reshape(-1, 1), None, np.ones((1000, 2), np.float32))
        assert launched.stop() == 0
        launched = launches.server(3, port=port)  # the client is idle meanwhile, and knows one rank
        exported = np.concatenate([rows.keys for rows in ps.export_rows("ads")])
    assert sorted(exported) == list(keys)
    assert launched.stop() == 0


def test_a_client_that_was_idle_learns_the_ranks_of_a_new_start(
    launches: Launches, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "slotwise")
    port = free_ports(3)
    launched = launches.server(port=port)
    with slotwise.connect(f"127.0.0.1:{port}", timeout=60) as ps:
        ps.create_table("ads", dim=2, slots=1, optimizer=slotwise.SGD(lr=1.0))
        key = np.ones((1, 1), np.uint64)
        for _ in range(4):  # by every connection, so that each has one to lose
            ps.lookup("ads", key)
        assert launched.stop() == 0
        launched = launches.server(3, port=port)

        def moved() -> bool:
            ps.lookup("ads", key)
            return "the server was started again, with 3 rank(s)" in caplog.text

        wait_until(moved, "the client has heard of it")
    assert "trying again" not in caplog.text, "the first lookup is answered over a new connection"
    assert launched.stop() == 0


def test_the_cpp_client_goes_on_through_kills(launches: Launches) -> None:
    port = free_ports(2)
    launched = launches.server(2, *BACKOFF, port=port)
    push = [str(BUILT / "tests/client/push_batches"), f"127.0.0.1:{port}"]
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


def test_a_second_launcher_is_refused_and_told_by_whom(launches: Launches) -> None:
    holder = launches.program(SERVES, serves=True)
    second = launches.program("exit 7")
    assert second.await_end() == 1
    named = f"data is held by slotwise-launch on {socket.gethostname()} pid {holder.process.pid} since "
    assert named in second.log()
    assert len(launches.starts()) == 1
    assert holder.stop() == 0
    assert launches.program("exit 0").await_end() == 0


def test_it_waits_for_the_lock_of_a_launcher_that_is_ending(launches: Launches) -> None:
    launches.data.mkdir()
    with open(launches.data / "launch.lock", "w", encoding="ascii") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        holder.write("a host pid 12 since yesterday\n")
        holder.flush()
        second = launches.program(SERVES)
        wait_until(lambda: "waits 10 s for it" in second.log(), "it waits")
        assert launches.starts() == []
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


@pytest.mark.parametrize("hosts", [False, True])
def test_a_stuck_orphan_is_killed_before_anything_starts(launches: Launches, hosts: bool) -> None:
    launched = launches.program(STUCK, serves=True)
    (orphan,) = launches.starts()
    kill(launched.process.pid)
    launched.process.wait()
    assert not is_gone(orphan)
    (launches.folder / "hosts").write_text("localhost slots=1\n")
    # A process that has ended and was not waited for has no environment any more.
    body = f"grep -q . /proc/{orphan}/environ 2>/dev/null && echo still there; echo serving here; cat"
    options = ["--hostfile", f"{launches.folder}/hosts"] if hosts else []
    again = launches.program(body, *options, serves=True)
    assert is_gone(orphan)
    assert "still there" not in again.log()
    assert "killed what was left of an earlier run" in again.log()
    assert again.stop() == 0


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


@contextmanager
def orphan(code: str, *arguments: str, of: str = "an id") -> Iterator[subprocess.Popen[bytes]]:
    """A Python program of an earlier run with this id."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"SLOTWISE_LAUNCH_ID": of},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()


def test_every_host_is_swept() -> None:
    """mpirun runs the sweep on hosts; here that is this one, asked as mpirun would."""
    name = "an id:/with a space"
    with orphan(WAITS, of=name) as mine, orphan(WAITS, of=name[:-1]) as other:
        ended = run(LAUNCH, "--sweep", name)
        assert (ended.returncode, mine.wait(timeout=10)) == (0, -signal.SIGKILL)
        assert f"on {socket.gethostname()}: process {mine.pid}\n" in ended.stderr
        assert other.poll() is None


def test_an_orphan_whose_first_thread_has_ended_is_killed() -> None:
    with orphan(WAITS_WITHOUT_ITS_FIRST_THREAD) as process:
        wait_until(lambda: is_gone(process.pid), "its first thread has ended")
        assert process.poll() is None
        ended = run(LAUNCH, "--sweep", "an id")
        assert (ended.returncode, process.wait(timeout=10)) == (0, -signal.SIGKILL)
        assert f"process {process.pid}\n" in ended.stderr


@pytest.mark.parametrize("waits", [WAITS, WAITS_WITHOUT_ITS_FIRST_THREAD], ids=["whole", "without_a_thread"])
def test_an_orphan_has_let_go_of_its_locks_once_it_was_swept(tmp_path: Path, waits: str) -> None:
    with orphan(LARGE + waits, f"{tmp_path}/lock") as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        if waits != WAITS:
            wait_until(lambda: is_gone(process.pid), "its first thread has ended")
        assert run(LAUNCH, "--sweep", "an id").returncode == 0
        with open(tmp_path / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert process.wait(timeout=10) == -signal.SIGKILL


def test_nothing_starts_while_a_host_cannot_be_swept(launches: Launches) -> None:
    folder = launches.folder
    (folder / "hosts").write_text("gone slots=1\n")
    launched = launches.mpirun(f'echo "$@" >>{folder}/asked; exit 1', "--hostfile", f"{folder}/hosts")
    assert launched.await_end() == 1
    assert f"nothing of an earlier run is left on a host of {folder}/hosts" in launched.log()
    asked = (folder / "asked").read_text()
    assert asked.startswith(f"--hostfile {folder}/hosts --map-by ppr:1:node /")
    assert asked.count("\n") == 1 and f" --sweep {(launches.data / 'launch.id').read_text()[:8]}" in asked


def test_a_copy_of_the_folder_has_ranks_of_its_own(launches: Launches) -> None:
    launched = launches.program(SERVES, serves=True)
    copy = launches.folder / "copy"
    copy.mkdir()
    (copy / "launch.id").write_text((launches.data / "launch.id").read_text())
    assert Launched(copy, launches.folder / "log", [], ["/bin/true"]).await_end() == 0
    assert launched.process.poll() is None and not is_gone(launches.starts()[0])
    assert launched.stop() == 0


# --- restarts and their limit


@pytest.mark.parametrize(
    ("body", "limit", "restarts", "code", "each_says"),
    [
        ("echo serving here; exit 3", 60, 2, 3, "the server ended after 0 s with exit code 3"),
        ("kill -9 $$", 60, 1, 137, "exit code 137, SIGKILL"),
        ("while :; do sleep 0.05; done", 2, 1, 137, "does not serve after 2.00 s (--start-limit)"),
    ],
    ids=["ends", "is_killed_as_it_starts", "never_serves"],
)
def test_a_server_is_started_again_up_to_the_limit(
    launches: Launches, body: str, limit: float, restarts: int, code: int, each_says: str
) -> None:
    limits = ("--restarts", str(restarts), "--within", "600", "--start-limit", str(limit))
    launched = launches.program(body, *limits, "--backoff", "0.01")
    assert launched.await_end() == code
    assert len(launches.starts()) == launched.log().count(each_says) == restarts + 1
    assert f"restarted {restarts} times within 600 s, the most that --restarts allows" in launched.log()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_configuration_error_ends_it_at_once(launches: Launches, ranks: int) -> None:
    none = f"{launches.folder}/none"
    launched = launches.server(ranks, more=("--config", none), serves=False)
    assert launched.await_end() == 1
    log = launched.log()
    assert f"cannot read the configuration {none}" in log
    assert log.count("and is not started again: it has never served: see its log") == 1


def test_a_mode_in_the_file_goes_with_the_launchers_folder(launches: Launches) -> None:
    config = launches.folder / "server.pbtxt"
    config.write_text(f'listen: "127.0.0.1:{free_ports(1)}" durability {{ mode: DURABILITY_MODE_SYNC }}')
    launched = launches.start([], [str(server_binary()), "--config", str(config), "--backend", "cpu"])
    assert list(launches.data.glob("journal*")) != []
    assert launched.stop() == 0, launched.log()


def test_what_cannot_start_ends_it_at_once(launches: Launches) -> None:
    none = f"{launches.folder}/none"
    launched = launches.start([], [none], serves=False)
    assert launched.await_end() == 1
    assert f"cannot start {none}: No such file or directory" in launched.log()
    (launches.data / "lineage").write_text("no lineage")  # damaged data
    launched = launches.server(serves=False)
    assert launched.await_end() == 1
    assert f"{launches.data}/lineage is not a lineage" in launched.log()
    assert "it has never served" in launched.log()


def test_a_program_that_cannot_start_once_is_tried_again(launches: Launches) -> None:
    """As while a package is replaced, or while a container may have no more processes."""
    folder = launches.folder
    until_told = f"echo serving here; [[ ! -e {folder}/again ]] || read -r _"
    launched = launches.program(f"{until_told}; mv $0 {folder}/aside; exit 3", *BACKOFF)
    mine = folder / "program.sh"
    wait_until(lambda: f"cannot start {mine}: No such file" in launched.log(), "it could not be started")
    (folder / "again").touch()
    os.rename(folder / "aside", mine)
    launched.await_start(2)
    assert launched.stop() == 3


# --- stops


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_all_well(launches: Launches, ranks: int, number: signal.Signals) -> None:
    launched = launches.server(ranks)
    launched.process.send_signal(number)
    assert launched.await_end() == 0, launched.log()
    assert launched.log().count(" stopped\n") == ranks
    assert launched.carriers() == []
    assert (launched.data / "launch.lock").read_text() == ""


def test_a_stop_while_the_ranks_start_ends_well(launches: Launches) -> None:
    launched = launches.server(2, serves=False)
    wait_until(lambda: bool(launched.carriers()), "mpirun is there")
    assert launched.stop() == 0, launched.log()
    assert launched.carriers() == []


def test_a_stop_while_it_waits_to_restart_ends_it(launches: Launches) -> None:
    launched = launches.program("echo serving here; exit 3", "--backoff", "600")
    wait_until(lambda: "comes in 600.00 s" in launched.log(), "it waits")
    assert launched.stop() == 0
    assert len(launches.starts()) == 1


def test_a_second_stop_kills_a_server_that_does_not_end(launches: Launches) -> None:
    launched = launches.program(STUCK, serves=True)
    launched.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "the server finishes what runs" in launched.log(), "the first stop")

    def ended() -> bool:
        launched.process.send_signal(signal.SIGTERM)  # within a second it counts as the first
        return launched.process.poll() is not None

    wait_until(ended, "its end")
    assert launched.await_end() == 128 + signal.SIGTERM
    assert launched.carriers() == []


HABITS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def test_signals_of_habit_change_nothing_and_a_stop_of_a_rank_ends_all(launches: Launches) -> None:
    """What makes other daemons read files again, or open their logs again, ends no rank and no launcher."""
    port = free_ports(2)
    launched = launches.server(2, port=port)
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

KILLED = "mpirun has not ended 0.30 s after its ranks (--patience): it is killed"
PATIENCE = ("--patience", "0.3")


def test_a_stopped_mpirun_whose_ranks_are_dead_is_no_obstacle(launches: Launches) -> None:
    launched = launches.server(2, *BACKOFF)
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


def test_a_stop_reaches_the_ranks_of_a_stopped_mpirun(launches: Launches) -> None:
    launched = launches.server(2)
    os.kill(launched.mpirun()[0], signal.SIGSTOP)
    wait_until(lambda: " is stopped" in launched.log(), "the launcher knows")
    assert launched.stop() == 0, launched.log()
    assert launched.log().count(" stopped\n") == 2


def test_an_mpirun_that_is_stopped_before_it_has_ranks_is_woken(launches: Launches) -> None:
    launched = launches.mpirun(f"kill -STOP $$; {SERVES}", serves=True)
    assert launched.stop() == 0


def test_an_mpirun_that_does_not_end_after_its_ranks_is_killed(launches: Launches) -> None:
    """As one does that waits for its daemon on a host that is cut off."""
    rank = f"SLOTWISE_LAUNCH_RANK=1 sleep 600 & echo $! >>{launches.folder}/ranks"
    until_it_is_one = "until grep -q LAUNCH_RANK /proc/$!/environ; do sleep 0.01; done"
    launched = launches.mpirun(f"{rank}; {until_it_is_one}; {STUCK}", *PATIENCE, *BACKOFF, serves=True)
    (mpirun,), (of_mpirun,) = launches.starts(), launches.numbers("ranks")
    kill(of_mpirun)
    launched.await_start(2)
    assert is_gone(mpirun)
    assert KILLED in launched.log()


def once(folder: Path, first: str) -> str:
    """A body that does something the first time, and serves the next ones."""
    return f"[[ ! -e {folder}/later ]] || {{ {SERVES}; }}; touch {folder}/later; {first}"


def await_look(launched: Launched) -> None:
    """Returns once the launcher has looked at its mpirun again, as it does between two signals."""
    for _ in range(2):
        before = launched.log().count("SIGHUP")
        launched.process.send_signal(signal.SIGHUP)
        wait_until(lambda: launched.log().count("SIGHUP") > before, "the launcher has seen to the signal")


def test_an_mpirun_that_does_not_end_after_ranks_that_never_served_is_killed(launches: Launches) -> None:
    """As Open MPI's does at times, if ranks die within their first second."""
    rank = f"SLOTWISE_LAUNCH_RANK=1 sleep 600 & echo $! >>{launches.folder}/ranks"
    launched = launches.mpirun(once(launches.folder, f"{rank}; {HANGS}"), *PATIENCE, *BACKOFF)
    wait_until(lambda: bool(launches.numbers("ranks")), "the rank's number")
    (rank_pid,) = launches.numbers("ranks")
    carried = Path(f"/proc/{rank_pid}/environ")
    wait_until(lambda: b"SLOTWISE_LAUNCH_RANK=1" in carried.read_bytes(), "the rank is there")
    await_look(launched)
    assert len(launches.starts()) == 1
    kill(rank_pid)
    launched.await_start()
    assert is_gone(launches.starts()[0])
    assert KILLED in launched.log()
    assert launched.stop() == 0, launched.log()


def test_an_mpirun_that_starts_no_rank_is_started_again(launches: Launches) -> None:
    launched = launches.mpirun(once(launches.folder, HANGS), "--rank-limit", "1", *BACKOFF, serves=True)
    assert is_gone(launches.starts()[0])
    assert "mpirun has started no rank in 1.00 s (--rank-limit): it is killed" in launched.log()
    assert launched.stop() == 0, launched.log()


def test_a_stop_ends_an_mpirun_that_has_no_rank(launches: Launches) -> None:
    launched = launches.mpirun(HANGS, *PATIENCE)
    wait_until(lambda: bool(launches.starts()), "mpirun is there")
    assert launched.stop() == 0, launched.log()
    assert "not ended 0.30 s after the stop, and has no rank (--patience): it is killed" in launched.log()
    assert launched.carriers() == []


def test_a_stop_ends_an_mpirun_whose_ranks_elsewhere_have_ended(launches: Launches) -> None:
    """Of ranks on other hosts the launcher sees that rank 0 holds the folder, as this mpirun does."""
    folder = launches.folder
    launches.data.mkdir()
    body = f"exec 9>>{launches.data}/server.lock; flock 9; touch {folder}/holds"
    until_told = f"until [[ -e {folder}/go ]]; do sleep 0.01; done; echo serving here; read -r _"
    launched = launches.mpirun(f"{body}; {until_told}; exec 9>&-; {HANGS}", *PATIENCE)
    wait_until((folder / "holds").exists, "the folder is held")
    await_look(launched)
    (folder / "go").touch()
    launched.await_start()
    assert launched.stop() == 128 + signal.SIGKILL
    assert KILLED in launched.log()
    assert launched.carriers() == []


# --- its command line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("-- true", "--data is required"),
        ("--data DATA", "the server's command is missing"),
        ("--data DATA -- true --data=x", "have --data, which slotwise-launch adds"),
        ("--data DATA -n 0 -- true", "--ranks"),
        ("--data DATA --backoff nan -- true", "--backoff"),
        ("--data DATA --hostfile DATA/none -- true", "--hostfile"),
    ],
)
def test_the_command_line_is_checked(tmp_path: Path, arguments: str, words: str) -> None:
    ended = run(LAUNCH, *arguments.replace("DATA", f"{tmp_path}/data").split())
    assert ended.returncode == 1
    assert words in ended.stdout + ended.stderr
    assert not (tmp_path / "data").exists()
