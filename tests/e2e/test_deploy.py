"""deploy/: what its containers run, run here as plain processes, and the launch script for several hosts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from containers import DOCKERFILE, Container, instruction, services
from free_ports import free_ports
from judged_times import LONG_FORMS
from programs import CTL, LAUNCH, Started, run, started
from slotwise_cluster import STOP_TIMEOUT, run_server, server_binary, wait_until
from slotwise_wire import ROOT

ENTRYPOINT = ROOT / "deploy" / "entrypoint.sh"
LAUNCH_SCRIPT = ROOT / "deploy" / "mpirun" / "launch.sh"
SERVERS = [name for name, service in services().items() if service["build"]["target"] == "server"]
TRAINERS = [name for name, service in services().items() if service["build"]["target"] == "trainer"]
ANY_PORT = ["--listen", "127.0.0.1:0", "--backend", "cpu"]
Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a script: start(*command, **environment). What a test has not ended is ended after it."""
    with ExitStack() as stack:

        def begin(*command: object, **environment: Any) -> Started:
            server: dict[str, Any] = {"SLOTWISE_SERVER": str(server_binary())}
            return stack.enter_context(started(tmp_path / "log", *command, **(server | environment)))

        yield begin


# --- the compose file


@pytest.mark.skipif(not LONG_FORMS, reason="the long form's; `./dev test containers` does it in an engine")
def test_the_adult_example_trains_through_the_cpu_profile(tmp_path: Path) -> None:
    first = free_ports(2)
    server, trainer = (Container(name, first, tmp_path) for name in ("server-cpu", "trainer-cpu"))

    def is_healthy() -> bool:
        return server.run(server.health_check()).returncode == 0

    assert not is_healthy(), "nothing is there yet"
    with started(tmp_path / "first.log", *server.command(), folder=ROOT, **server.environment) as process:
        process.wait(is_healthy, "healthy")
        trained = trainer.run([*trainer.command(), "--epochs", "1", "--batch-size", "4096"])
        assert trained.returncode == 0, trained.stderr
        auc = re.search(r"^test AUC (\S+)$", trained.stdout, re.MULTILINE)
        assert auc and float(auc[1]) > 0.85
        assert (tmp_path / "learning-curve" / "learning-curve.png").exists()
        process.stop()
        assert process.log().count('"stopped"') == 2, process.log()
    # As the restart policy does.
    with started(tmp_path / "second.log", *server.command(), folder=ROOT, **server.environment) as process:
        process.wait(is_healthy, "healthy again")
        process.stop()
        assert "1 table(s), up to round" in process.log()


def test_entrypoint_ends_as_its_server_does_so_that_a_policy_starts_it_again(
    tmp_path: Path, start: Start
) -> None:
    environment = {"SLOTWISE_RANKS": "2", "SLOTWISE_LAUNCH": str(LAUNCH), "SLOTWISE_DATA": f"{tmp_path}/data"}
    process = start(ENTRYPOINT, *ANY_PORT, "--durability", "sync", **environment)
    process.await_serving()
    process.kill_a_rank()
    # mpirun ends with the code of the first rank whose end it hears of: the killed one's, or that of the
    # other, which ends because the first is gone. A restart policy asks only whether it is 0.
    assert process.popen.wait(timeout=STOP_TIMEOUT) in {128 + signal.SIGKILL, 1}, process.log()
    assert "is not started again" in process.log()


def test_trainers_wait_for_the_server_of_their_profile() -> None:
    described = services()
    for name in TRAINERS:
        (server,) = described[name]["depends_on"]
        assert described[name]["depends_on"][server] == {"condition": "service_healthy"}
        assert described[name]["profiles"] == described[server]["profiles"]
        command = described[name]["command"]
        assert f"{server}:7070" in command
        assert float(command[command.index("--timeout") + 1]) > 600, "a server's time to recover"


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_has_a_right_configuration_is_started_again_and_has_time_to_recover(name: str) -> None:
    service = services()[name]
    volume, data = service["volumes"]
    assert data == f"server-data:{service['environment']['SLOTWISE_DATA']}"
    config = ROOT / "deploy" / volume.split(":")[0]
    ended = run_server("--config", str(config), "--check-config")
    assert ended.returncode == 0, ended.stderr
    assert f'advertise_host: "{name}"' in config.read_text()
    assert service["restart"] == "on-failure"
    assert service["healthcheck"]["start_period"] == "10m"
    assert "--start-period=10m" in DOCKERFILE.read_text()


def test_the_cpu_profile_asks_every_rank_for_its_health() -> None:
    service = services()["server-cpu"]
    ranks = int(service["environment"]["SLOTWISE_RANKS"])
    words = service["healthcheck"]["test"]
    assert words[:3] == ["CMD", "/opt/slotwise/bin/slotwise-ctl", "health"]
    assert words[-ranks:] == [f"127.0.0.1:{7070 + rank}" for rank in range(ranks)]
    assert float(words[words.index("--timeout") + 1]) < float(service["healthcheck"]["timeout"].rstrip("s"))


def test_what_the_images_copy_is_there() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    assert copied
    for source in " ".join(copied).split():
        assert (ROOT / source).exists(), source
    assert (ROOT / instruction("server", "ENTRYPOINT")[0].removeprefix("/opt/slotwise/")) == ENTRYPOINT


# --- the server container's first process


def test_a_stop_while_the_ranks_start_ends_well(start: Start) -> None:
    process = start(ENTRYPOINT, *ANY_PORT, SLOTWISE_RANKS="2")
    wait_until(lambda: handles_sigterm(process.popen.pid), "it listens for SIGTERM")
    process.stop()


BLOCKS_ALL_FOR_A_MOMENT = """
import signal, sys, time
from pathlib import Path
from typing import Any
told = Path(sys.argv[-1])
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
told.touch()
time.sleep(0.5)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
time.sleep(0.1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
told.write_text("is ready")
while signal.SIGTERM not in signal.sigpending():
    time.sleep(0.01)
"""


def test_a_stop_waits_for_a_rank_that_blocks_all_signals_for_a_moment(tmp_path: Path, start: Start) -> None:
    """As one does that starts a thread before it holds SIGTERM, of which it would die."""
    program, told = tmp_path / "rank", tmp_path / "told"
    program.write_text(f"#!{sys.executable}\n{BLOCKS_ALL_FOR_A_MOMENT}")
    program.chmod(0o755)
    process = start(ENTRYPOINT, "-", told, SLOTWISE_RANKS="1", SLOTWISE_SERVER=str(program))
    wait_until(told.exists, "all signals are blocked")
    process.stop()
    assert told.read_text() == "is ready"


def handles_sigterm(pid: int) -> bool:
    """Whether a process would not simply die of it."""
    caught = re.search(r"^SigCgt:\s*(\S+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(caught and int(caught[1], 16) & 1 << (signal.SIGTERM - 1))


def entrypoint(*arguments: object, ranks: str = "2", **environment: Any) -> tuple[int, str, str]:
    """How the container's first process ends by itself, and what it says."""
    server: dict[str, Any] = {"SLOTWISE_SERVER": str(server_binary()), "SLOTWISE_RANKS": ranks}
    ended = run(ENTRYPOINT, *arguments, **server, **environment)
    return ended.returncode, ended.stdout, ended.stderr


def test_entrypoint_answers_what_needs_no_ranks_once_and_runs_another_program() -> None:
    assert entrypoint("--version")[:2] == (0, run_server("--version").stdout)
    assert entrypoint("echo", "this", "instead")[:2] == (0, "this instead\n")


@pytest.mark.parametrize("ranks", ["0", "-1", "two", "1 -H elsewhere"])
def test_entrypoint_refuses_a_wrong_number_of_ranks(ranks: str) -> None:
    words = f'entrypoint.sh: SLOTWISE_RANKS is "{ranks}": must be a number above 0\n'
    assert entrypoint(ranks=ranks) == (1, "", words)


def test_entrypoint_fails_as_the_server_does(tmp_path: Path) -> None:
    code, _, said = entrypoint("--config", tmp_path / "none")
    assert code == 1 and f"cannot read the configuration {tmp_path}/none" in said


def test_health_check_names_who_is_not_there() -> None:
    address = f"127.0.0.1:{free_ports(1)}"
    ended = run(CTL, "health", address)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"slotwise-ctl: UNAVAILABLE: no answer from {address}: ")


# --- several hosts


def test_launch_runs_a_rank_for_each_slot(tmp_path: Path, start: Start) -> None:
    first = free_ports(2)
    (tmp_path / "hosts").write_text("# this machine alone\n\nlocalhost slots=2  # two\n")
    (tmp_path / "server.pbtxt").write_text(f'listen: "127.0.0.1:{first}"')
    files = ["--hostfile", f"{tmp_path}/hosts", "--config", f"{tmp_path}/server.pbtxt"]
    process = start(LAUNCH_SCRIPT, *files, "--", "--backend", "cpu")
    health = [CTL, "health", "--timeout", "4", f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"]
    process.wait(lambda: run(*health).returncode == 0, "healthy")
    process.stop()
    assert process.log().count(" stopped\n") == 2


def test_launch_with_a_data_folder_starts_killed_ranks_again(tmp_path: Path, start: Start) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    options = ["--hostfile", f"{tmp_path}/hosts", "--data", f"{tmp_path}/data", "--supervisor", LAUNCH]
    server = ["--backend", "cpu", "--durability", "sync", "--listen", f"127.0.0.1:{free_ports(2)}"]
    process = start(LAUNCH_SCRIPT, *options, "--", *server)
    process.await_serving()
    process.kill_a_rank()
    process.await_serving(2)
    process.stop()
    assert process.log().count(" stopped\n") == 2


@pytest.fixture
def path_with_ssh(tmp_path: Path) -> str:
    """A PATH whose ssh reaches every host but "gone": it is this one."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        "#!/bin/bash\n"
        "while [[ $1 == -o ]]; do shift 2; done\n"
        '[[ $1 != gone ]] || { echo "ssh: no such host" >&2; exit 255; }\n'
        'exec bash -c "${*:2}"\n'
    )
    ssh.chmod(0o755)
    return f"{ssh.parent}:{os.environ['PATH']}"


def look(tmp_path: Path, path: str, hosts: str, *options: object) -> subprocess.CompletedProcess[str]:
    """launch.sh --check with this hostfile."""
    (tmp_path / "hosts").write_text(hosts)
    options = ("--check", "--hostfile", tmp_path / "hosts", *options)
    return run(LAUNCH_SCRIPT, *options, PATH=path, SLOTWISE_SERVER=str(server_binary()))


def test_launch_looks_at_every_host(tmp_path: Path, path_with_ssh: str) -> None:
    ended = look(tmp_path, path_with_ssh, "node1 slots=1\nnode2 slots=2")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith("launch.sh: 2 host(s) are ready for 3 rank(s)")


def test_launch_says_which_host_is_not_ready(tmp_path: Path, path_with_ssh: str) -> None:
    bad = tmp_path / "bad.pbtxt"
    bad.write_text("threads: 5000")
    cases: list[tuple[str, list[object], str]] = [
        ("node1 slots=1\ngone slots=1\n", [], "gone: ssh: no such host"),
        ("node1 slots=1", ["--config", bad], f"node1: {bad}:1:1: threads is 5000: must be 0 to 4096"),
        ("node1 slots=1\nnode2", [], f'{tmp_path}/hosts:2: "node2" is not HOST slots=RANKS'),
        ("# none", [], f"{tmp_path}/hosts names no host"),
        ("node1 slots=1", ["--server", "/no"], "there is no program /no: name it with --server"),
    ]
    for hosts, options, words in cases:
        ended = look(tmp_path, path_with_ssh, hosts, *options)
        assert (ended.returncode, ended.stderr) == (1, f"launch.sh: {words}\n")


def test_the_command_line_counts_where_a_configuration_is_looked_at(
    tmp_path: Path, path_with_ssh: str
) -> None:
    """By launch.sh and by the container: a file may leave the folder, or any field, to them."""
    config = tmp_path / "server.pbtxt"
    config.write_text("durability { mode: DURABILITY_MODE_SYNC } threads: 5000")
    data = ["--data", tmp_path / "data", "--supervisor", LAUNCH]
    ended = look(tmp_path, path_with_ssh, "node1 slots=1", "--config", config, *data, "--", "--threads", "4")
    assert ended.returncode == 0, ended.stderr
    ended = look(tmp_path, path_with_ssh, "node1 slots=1", "--config", config, *data)
    assert ended.stderr == f"launch.sh: node1: {config}:1:43: threads is 5000: must be 0 to 4096\n"
    check = ("--config", config, "--check-config", "--threads", "4")
    assert entrypoint(*check)[0] == 1
    assert entrypoint(*check, SLOTWISE_DATA=str(tmp_path / "data"))[0] == 0


def test_launch_wants_as_many_gpus_as_ranks(tmp_path: Path, path_with_ssh: str) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "GPU 0: One"\necho "GPU 1: Two"\n')
    smi.chmod(0o755)
    assert look(tmp_path, path_with_ssh, "node1 slots=2").returncode == 0
    ended = look(tmp_path, path_with_ssh, "node1 slots=3")
    assert ended.stderr == "launch.sh: node1: has 2 GPU(s) for 3 ranks: lower its slots\n"


def test_launch_explains_itself() -> None:
    assert run(LAUNCH_SCRIPT, "--help").stdout.startswith("launch.sh [OPTIONS]")
    ended, words = run(LAUNCH_SCRIPT, "--lisen"), "there is no option --lisen: see launch.sh --help"
    assert (ended.returncode, ended.stderr) == (1, f"launch.sh: {words}\n")
