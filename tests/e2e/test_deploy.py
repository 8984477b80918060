"""deploy/: what its containers run, run here as plain processes, and the launch script for several hosts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import CTL, DOCKERFILE, Container, instruction, services
from free_ports import free_ports
from judged_times import LONG_FORMS
from slotwise_cluster import MPI_ENVIRONMENT, STOP_TIMEOUT, run_server, server_binary, wait_until
from slotwise_wire import ROOT

ENTRYPOINT = ROOT / "deploy" / "entrypoint.sh"
LAUNCH = ROOT / "deploy" / "mpirun" / "launch.sh"
SUPERVISOR = str(server_binary().parent / "launch" / "slotwise-launch")
ENVIRONMENT = os.environ | MPI_ENVIRONMENT | {"SLOTWISE_SERVER": str(server_binary())}
SERVERS = [name for name, service in services().items() if service["build"]["target"] == "server"]
TRAINERS = [name for name, service in services().items() if service["build"]["target"] == "trainer"]


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script that is expected to end by itself."""
    return subprocess.run(
        [str(word) for word in command],
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def is_healthy(*addresses: str) -> bool:
    """What the containers' health check says."""
    return run(CTL, "health", "--timeout", "4", *addresses).returncode == 0


def stop(process: subprocess.Popen[bytes]) -> int:
    """SIGTERM, as `docker stop` sends it; the exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=STOP_TIMEOUT)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test adds are stopped after it, if it did not come to that."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            stop(process)


# --- the compose file


@pytest.mark.skipif(not LONG_FORMS, reason="the long form's; `./dev test containers` does it in an engine")
def test_the_adult_example_trains_through_the_cpu_profile(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    first = free_ports(2)
    server, trainer = (Container(name, first, tmp_path) for name in ("server-cpu", "trainer-cpu"))
    assert server.run(server.health_check()).returncode != 0, "nothing is there yet"

    process = server.start(tmp_path / "server.log")
    started.append(process)
    wait_until(
        lambda: process.poll() is not None or server.run(server.health_check()).returncode == 0, "healthy"
    )
    assert process.poll() is None, (tmp_path / "server.log").read_text()

    trained = trainer.run([*trainer.command(), "--epochs", "1", "--batch-size", "4096"])
    assert trained.returncode == 0, trained.stderr
    auc = re.search(r"^test AUC (\S+)$", trained.stdout, re.MULTILINE)
    assert auc and float(auc[1]) > 0.85
    assert (tmp_path / "learning-curve" / "learning-curve.png").exists()

    assert stop(process) == 0
    log = (tmp_path / "server.log").read_text()
    assert log.count('"stopped"') == 2, log

    process = server.start(tmp_path / "server.log")  # as the restart policy does
    started.append(process)
    wait_until(lambda: server.run(server.health_check()).returncode == 0, "healthy again")
    assert stop(process) == 0
    assert "1 table(s), up to round" in (tmp_path / "server.log").read_text()


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_started_again_and_has_time_to_recover(name: str) -> None:
    service = services()[name]
    assert service["restart"] == "on-failure"
    assert service["healthcheck"]["start_period"] == "10m"
    assert "--start-period=10m" in DOCKERFILE.read_text()
    for trainer in (services()[name] for name in TRAINERS):
        command = trainer["command"]
        assert float(command[command.index("--timeout") + 1]) > 600


def test_entrypoint_ends_as_its_server_does_so_that_a_policy_starts_it_again(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    environment = ENVIRONMENT | {"SLOTWISE_RANKS": "2", "SLOTWISE_LAUNCH": SUPERVISOR}
    environment["SLOTWISE_DATA"] = f"{tmp_path}/data"
    command = [str(ENTRYPOINT), "--listen", "127.0.0.1:0", "--backend", "cpu", "--durability", "sync"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    started.append(process)
    wait_until(lambda: " launch serving at " in (tmp_path / "log").read_text(), "serving")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (mpirun,) = map(int, children)
    rank = int(Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text().split()[0])
    os.kill(rank, signal.SIGKILL)
    # mpirun ends with the code of the first rank whose end it hears of: the killed one's, or that of the
    # other, which ends because the first is gone. A restart policy asks only whether it is 0.
    assert process.wait(timeout=STOP_TIMEOUT) in {128 + signal.SIGKILL, 1}, (tmp_path / "log").read_text()
    assert "is not started again" in (tmp_path / "log").read_text()


def test_trainers_wait_for_the_server_of_their_profile() -> None:
    described = services()
    for name in TRAINERS:
        (server,) = described[name]["depends_on"]
        assert described[name]["depends_on"][server] == {"condition": "service_healthy"}
        assert described[name]["profiles"] == described[server]["profiles"]
        assert f"{server}:7070" in described[name]["command"]


@pytest.mark.parametrize("name", SERVERS)
def test_the_configurations_are_right_and_name_the_service(name: str) -> None:
    volume, data = services()[name]["volumes"]
    assert data == f"server-data:{services()[name]['environment']['SLOTWISE_DATA']}"
    config = ROOT / "deploy" / volume.split(":")[0]
    ended = run_server("--config", str(config), "--check-config")
    assert ended.returncode == 0, ended.stderr
    assert f'advertise_host: "{name}"' in config.read_text()


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


def test_a_stop_while_the_ranks_start_ends_well(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    with open(tmp_path / "log", "wb") as log:
        command = [str(ENTRYPOINT), "--listen", "127.0.0.1:0", "--backend", "cpu"]
        environment = ENVIRONMENT | {"SLOTWISE_RANKS": "2"}
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    started.append(process)
    wait_until(lambda: handles_sigterm(process.pid), "it listens for SIGTERM")
    assert stop(process) == 0, (tmp_path / "log").read_text()


BLOCKS_ALL_FOR_A_MOMENT = """
import signal, sys, time
from pathlib import Path
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


def test_a_stop_waits_for_a_rank_that_blocks_all_signals_for_a_moment(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    """As one does that starts a thread before it holds SIGTERM, of which it would die."""
    program, told = tmp_path / "rank", tmp_path / "told"
    program.write_text(f"#!{sys.executable}\n{BLOCKS_ALL_FOR_A_MOMENT}")
    program.chmod(0o755)
    environment = ENVIRONMENT | {"SLOTWISE_RANKS": "1", "SLOTWISE_SERVER": str(program)}
    process = subprocess.Popen([str(ENTRYPOINT), "-", str(told)], env=environment)
    started.append(process)
    wait_until(told.exists, "all signals are blocked")
    assert stop(process) == 0
    assert told.read_text() == "is ready"


def handles_sigterm(pid: int) -> bool:
    """Whether a process would not simply die of it."""
    caught = re.search(r"^SigCgt:\s*(\S+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(caught and int(caught[1], 16) & 1 << (signal.SIGTERM - 1))


def test_entrypoint_answers_what_needs_no_ranks_once() -> None:
    ended = run(ENTRYPOINT, "--version", SLOTWISE_RANKS="2")
    assert (ended.returncode, ended.stdout) == (0, run_server("--version").stdout)


def test_entrypoint_runs_another_program() -> None:
    ended = run(ENTRYPOINT, "echo", "this", "instead")
    assert (ended.returncode, ended.stdout) == (0, "this instead\n")


@pytest.mark.parametrize("ranks", ["0", "-1", "two", "1 -H elsewhere"])
def test_entrypoint_refuses_a_wrong_number_of_ranks(ranks: str) -> None:
    ended = run(ENTRYPOINT, SLOTWISE_RANKS=ranks)
    assert ended.returncode == 1
    assert ended.stderr == f'entrypoint.sh: SLOTWISE_RANKS is "{ranks}": must be a number above 0\n'


def test_entrypoint_fails_as_the_server_does(tmp_path: Path) -> None:
    ended = run(ENTRYPOINT, "--config", tmp_path / "none", SLOTWISE_RANKS="2")
    assert ended.returncode == 1
    assert f"cannot read the configuration {tmp_path}/none" in ended.stderr


def test_health_check_names_who_is_not_there() -> None:
    address = f"127.0.0.1:{free_ports(1)}"
    ended = run(CTL, "health", address)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"slotwise-ctl: UNAVAILABLE: no answer from {address}: ")


# --- several hosts


def test_launch_runs_a_rank_for_each_slot(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    first = free_ports(2)
    (tmp_path / "hosts").write_text("# this machine alone\n\nlocalhost slots=2  # two\n")
    (tmp_path / "server.pbtxt").write_text(f'listen: "127.0.0.1:{first}"')
    with open(tmp_path / "log", "wb") as log:
        command = [str(LAUNCH), "--hostfile", f"{tmp_path}/hosts", "--config", f"{tmp_path}/server.pbtxt"]
        command += ["--", "--backend", "cpu"]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log)
    started.append(process)
    addresses = [f"127.0.0.1:{first + rank}" for rank in range(2)]
    wait_until(lambda: process.poll() is not None or is_healthy(*addresses), "healthy")
    assert stop(process) == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text().count(" stopped\n") == 2


def test_launch_with_a_data_folder_starts_killed_ranks_again(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    first = free_ports(2)
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    command = [str(LAUNCH), "--hostfile", f"{tmp_path}/hosts", "--data", f"{tmp_path}/data"]
    command += ["--supervisor", SUPERVISOR, "--", "--backend", "cpu", "--durability", "sync"]
    command += ["--listen", f"127.0.0.1:{first}"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log)
    started.append(process)
    log_of = (tmp_path / "log").read_text
    wait_until(lambda: process.poll() is not None or log_of().count(" launch serving at ") == 1, "serving")
    (mpirun,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    os.kill(int(Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text().split()[0]), signal.SIGKILL)
    wait_until(lambda: process.poll() is not None or log_of().count(" launch serving at ") == 2, "again")
    assert stop(process) == 0, log_of()
    assert log_of().count(" stopped\n") == 2


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
    return run(LAUNCH, "--check", "--hostfile", tmp_path / "hosts", *options, PATH=path)


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
    data = ["--data", tmp_path / "data", "--supervisor", SUPERVISOR]
    ended = look(tmp_path, path_with_ssh, "node1 slots=1", "--config", config, *data, "--", "--threads", "4")
    assert ended.returncode == 0, ended.stderr
    ended = look(tmp_path, path_with_ssh, "node1 slots=1", "--config", config, *data)
    assert ended.stderr == f"launch.sh: node1: {config}:1:43: threads is 5000: must be 0 to 4096\n"
    check = (ENTRYPOINT, "--config", config, "--check-config", "--threads", "4")
    assert run(*check).returncode == 1
    assert run(*check, SLOTWISE_DATA=str(tmp_path / "data")).returncode == 0


def test_launch_wants_as_many_gpus_as_ranks(tmp_path: Path, path_with_ssh: str) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "GPU 0: One"\necho "GPU 1: Two"\n')
    smi.chmod(0o755)
    assert look(tmp_path, path_with_ssh, "node1 slots=2").returncode == 0
    ended = look(tmp_path, path_with_ssh, "node1 slots=3")
    assert ended.stderr == "launch.sh: node1: has 2 GPU(s) for 3 ranks: lower its slots\n"


def test_launch_explains_itself() -> None:
    assert run(LAUNCH, "--help").stdout.startswith("launch.sh [OPTIONS]")
    ended = run(LAUNCH, "--lisen")
    assert (ended.returncode, ended.stderr) == (
        1,
        "launch.sh: there is no option --lisen: see launch.sh --help\n",
    )
