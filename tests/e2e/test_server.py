"""The server as an operator meets it: start, health, reflection, errors at the start, idling, stop."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from free_ports import free_ports
from google.protobuf import descriptor_pb2, empty_pb2, unknown_fields
from slotwise_cluster import STOP_TIMEOUT, Cluster, RankClient, StartCluster
from slotwise_cluster import refusal, run_server, server_binary, wait_until
from slotwise_wire import CALL_TIMEOUT, SERVING, Protocol, health

REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def test_health_service_says_serving(cluster: Cluster) -> None:
    for rank in cluster.ranks:
        for service in ("", "slotwise.v1.Embedding", "slotwise.v1.Admin"):
            assert health(rank.channel, service) == SERVING
    unknown = "slotwise.v1.NoSuchService"
    refusal(grpc.StatusCode.NOT_FOUND, health, cluster.ranks[0].channel, unknown)


def ask(rank: RankClient, field: int, text: str) -> bytes:
    """The reply to a ServerReflectionRequest that has a field."""
    question = bytes([field << 3 | 2, len(text)]) + text.encode()
    (reply,) = rank.channel.stream_stream(REFLECTION)(iter([question]), timeout=CALL_TIMEOUT)
    return bytes(reply)


def test_reflection_lists_the_services(cluster: Cluster) -> None:
    for rank in cluster.ranks:
        reply = ask(rank, 7, "*")  # list_services
        for service in (b"slotwise.v1.Embedding", b"slotwise.v1.Admin", b"grpc.health.v1.Health"):
            assert service in reply


def fields(message: bytes, number: int) -> list[bytes]:
    """The bytes of a message's fields of a number, without the message's type."""
    unknown = unknown_fields.UnknownFieldSet(empty_pb2.Empty.FromString(message))
    return [field.data for field in unknown if field.field_number == number]


def describe(rank: RankClient, symbol: str) -> descriptor_pb2.FileDescriptorProto:
    """The file that has a service, as the server's reflection gives it."""
    reply = ask(rank, 4, symbol)  # file_containing_symbol
    answers = fields(reply, 4)  # ServerReflectionResponse.file_descriptor_response
    assert answers, reply
    return descriptor_pb2.FileDescriptorProto.FromString(fields(answers[0], 1)[0])


def test_reflection_describes_every_service_that_it_lists(cluster: Cluster) -> None:
    health_service = "grpc.health.v1.Health"
    for service in ("slotwise.v1.Embedding", "slotwise.v1.Admin", "slotwise.v1.Rows", health_service):
        package, _, name = service.rpartition(".")
        file = describe(cluster.ranks[-1], service)
        assert file.package == package and name in [described.name for described in file.service]
    health_file = describe(cluster.ranks[0], health_service)
    assert [method.name for method in health_file.service[0].method] == ["Check", "Watch"]


def test_reflection_says_what_it_does_not_know(cluster: Cluster) -> None:
    rank = cluster.ranks[0]
    (error,) = fields(ask(rank, 4, "slotwise.v1.Nothing"), 7)  # ServerReflectionResponse.error_response
    assert b'the server has no symbol "slotwise.v1.Nothing"' in error
    (error,) = fields(ask(rank, 3, "slotwise/v1/nothing.proto"), 7)
    assert b'the server has no file "slotwise/v1/nothing.proto"' in error
    (files,) = fields(ask(rank, 3, "slotwise/v1/admin.proto"), 4)
    names = [descriptor_pb2.FileDescriptorProto.FromString(file).name for file in fields(files, 1)]
    assert names[0] == "slotwise/v1/admin.proto" and len(names) == len(set(names)) > 1, "and what it imports"
    long = b"\x22\xd0\x0f" + b"x" * 2000
    call = rank.channel.stream_stream(REFLECTION)(iter([long]), timeout=CALL_TIMEOUT)
    said = refusal(grpc.StatusCode.INVALID_ARGUMENT, list, call)
    assert said == "a question of reflection has at most 1024 bytes"


def test_topology_names_every_rank_on_every_rank(cluster: Cluster) -> None:
    for number in range(len(cluster.ranks)):
        reply = cluster.topology(number)
        assert [info.address for info in reply.ranks] == [peer.address for peer in cluster.ranks]
        assert {info.device for info in reply.ranks} == {"cpu"}
        assert reply.rank == number
        assert reply.max_message_bytes == 4 << 20
        assert reply.max_round_bytes == 8 << 20
        assert reply.version == run_server("--version").stdout.split()[-1]


def test_rank_0_of_several_says_once_how_batches_travel_and_how_fast(cluster: Cluster) -> None:
    beginnings = ("ranks exchange batches by MPI", "measured, in GB/s of all ranks' bags: reduce-scatter ")
    for rank in range(len(cluster.ranks)):
        for beginning in beginnings:
            said = [line for line in cluster.messages(rank) if line.startswith(beginning)]
            assert len(said) == (1 if rank == 0 and len(cluster.ranks) > 1 else 0)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_idle_ranks_use_less_than_three_percent_of_a_core(cluster: Cluster) -> None:
    pids = [cluster.pid(rank) for rank in range(len(cluster.ranks))]
    cluster.lookup(cluster.create(), [1], 1)  # idle after work, not just since the start
    time.sleep(0.5)  # what is measured is time itself, so this and the next are no waits for a condition
    started, used = time.monotonic(), [cpu_seconds(pid) for pid in pids]
    time.sleep(3.0)
    elapsed = time.monotonic() - started
    shares = [(cpu_seconds(pid) - before) / elapsed for pid, before in zip(pids, used)]
    assert max(shares) < 0.03, shares


def test_sigterm_to_mpirun_reaches_every_rank(start_cluster: StartCluster) -> None:
    """mpirun passes the signal on, kills all process groups as soon as one rank has ended, and exits with 1.

    The other ranks may not come to say that they have stopped; a signal to any rank is the better way.
    """
    cluster = start_cluster(4)
    cluster.process.send_signal(signal.SIGTERM)
    cluster.process.wait(timeout=STOP_TIMEOUT)
    said = [cluster.messages(rank) for rank in range(4)]
    assert all("SIGTERM from mpirun: finishing what runs" in messages for messages in said), cluster.logs()
    assert any(messages[-1] == "stopped" for messages in said), cluster.logs()


def test_sigint_to_a_rank_ends_every_rank_well(start_cluster: StartCluster) -> None:
    cluster = start_cluster(4)
    os.kill(cluster.pid(2), signal.SIGINT)
    assert cluster.process.wait(timeout=STOP_TIMEOUT) == 0
    cluster.expect_good_end()


def test_a_lone_rank_serves_under_mpirun_too(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1, within=["mpirun", "-n", "1"])
    assert cluster.lookup(cluster.create(), [1], 1).shape == (1, 4)
    cluster.stop()


def test_tables_of_the_configuration_are_there_when_it_serves(start_cluster: StartCluster) -> None:
    tables = [
        'name: "ads" dim: 8 slots: 2 optimizer { learning_rate: 0.1 adam {} }',
        'name: "users" dim: 4 combiner: COMBINER_MEAN optimizer { learning_rate: 0.1 }',
        *(f'name: "z{i:02}" dim: 4 optimizer {{ learning_rate: 1 }}' for i in range(20)),
    ]
    cluster = start_cluster(4, "".join(f"tables {{ {table} }}\n" for table in tables))
    for rank in range(4):
        ads, users, *others = cluster.tables(rank)
        assert (ads.name, users.name, len(others)) == ("ads", "users", 20)
        assert ads.optimizer.adam.beta1 == pytest.approx(0.9)
        assert users.combiner == 2
    assert cluster.lookup("ads", [1, 2], 1, 3).shape == (1, 16)


def test_ranks_take_the_ports_after_the_first(start_cluster: StartCluster) -> None:
    first = free_ports(4)
    cluster = start_cluster(4, listen=f"127.0.0.1:{first}")
    assert [rank.address for rank in cluster.ranks] == [f"127.0.0.1:{first + rank}" for rank in range(4)]


# --- starts that fail: one clear sentence, exit code 1, no rank hangs


def error_of_start(*arguments: str, ranks: int | None = None, wrapper: tuple[str, ...] = ()) -> str:
    """The one error of a server that does not start; mpirun says more around it."""
    ended = run_server(*arguments, ranks=ranks, wrapper=wrapper)
    assert ended.returncode == 1
    (error,) = errors_in(ended.stderr)
    return error


def errors_in(stderr: str) -> list[str]:
    """What a server's lines of errors say, from the rank on."""
    return re.findall(r" error (rank=.*)", stderr)


@pytest.mark.parametrize("ranks", [None, 1, 2, 4])
def test_taken_port_is_one_sentence(ranks: int | None) -> None:
    first, last = free_ports(ranks or 1), (ranks or 1) - 1
    with socket.create_server(("127.0.0.1", first + last)):
        error = error_of_start("--listen", f"127.0.0.1:{first}", "--backend", "cpu", ranks=ranks)
    assert error == f"rank={last} cannot listen at 127.0.0.1:{first + last}: Address already in use"


@pytest.mark.parametrize("field", ["metrics", "health"])
def test_taken_port_of_metrics_or_health_is_refused_by_name(field: str) -> None:
    taken = f"127.0.0.1:{free_ports(1)}"
    with socket.create_server(("127.0.0.1", int(taken.rpartition(":")[2]))):
        error = error_of_start("--listen", "127.0.0.1:0", f"--{field}-listen", taken)
    assert f"cannot listen at {taken}: the address cannot be had ({field}_listen)" in error


@contextmanager
def started_alone(file_limit: int | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of one rank that is ready, and its address; it must end well."""

    def limit_files() -> None:
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (file_limit // 2, file_limit))

    address = f"127.0.0.1:{free_ports(1)}"
    command = [str(server_binary()), "--listen", address, "--backend", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=limit_files)
    assert process.stderr is not None
    assert any(" ready at " in line for line in process.stderr), "the server ended before it was ready"
    yield process, address
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=STOP_TIMEOUT) == 0


def test_the_server_outlives_the_reader_of_its_log(protocol: Protocol) -> None:
    with started_alone() as (process, address):
        assert process.stderr is not None
        process.stderr.close()
        rank = RankClient(address, protocol)
        for name in ("first", "second"):  # each is a line of the log
            options = protocol.TableOptions(name=name, dim=4, optimizer={"learning_rate": 0.1})
            request = protocol.CreateTableRequest(options=options)
            assert rank.admin.CreateTable(request, timeout=CALL_TIMEOUT).created


def test_a_flood_of_connections_is_closed_and_leaves_the_server_hearing(protocol: Protocol) -> None:
    """Connections beyond the limit are closed at once, and there is room again when the others go."""
    with started_alone(file_limit=600) as (_, address):  # 600 files are 344 connections
        where = ("127.0.0.1", int(address.rpartition(":")[2]))
        flood = [socket.create_connection(where) for _ in range(400)]
        reader = select.poll()
        for connection in flood:
            reader.register(connection, select.POLLRDHUP | select.POLLHUP)
        wait_until(lambda: len(reader.poll(0)) >= 40, "the connections beyond the limit are closed")
        for connection in flood:
            connection.close()
        assert health(RankClient(address, protocol).channel, "") == SERVING


OPEN = "other machines may reach it"
CheckConfig = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The file of a configuration."""
    return tmp_path / "server.pbtxt"


@pytest.fixture
def check(config: Path) -> CheckConfig:
    """What --check-config says of `config`, beside flags."""
    return lambda *flags: run_server("--config", str(config), "--check-config", *flags)


@pytest.mark.parametrize(
    "text, words",
    [
        ("colour: 3", "PATH:1:1: there is no field colour"),
        ("limits {\n  step_timeout_ms: 99999999\n}", "PATH:2:3: limits.step_timeout_ms is 99999999"),
        ("\n\n  listen: 7070", "PATH:3:11: "),
        ('\ntables {\n  name: "a" optimizer { learning_rate: 1 } \n}', "PATH:2:1: tables[0].dim is 0"),
        ('tables { name: "a" dim: 1 }', "PATH:1:1: tables[0].optimizer.learning_rate is 0"),
    ],
)
def test_bad_configuration_is_one_sentence_with_its_place(config: Path, text: str, words: str) -> None:
    config.write_text(text)
    assert words.replace("PATH", str(config)) in error_of_start("--config", str(config))


@pytest.mark.parametrize("ranks", [1, 4])
def test_bad_configuration_is_said_once_for_all_ranks(config: Path, ranks: int) -> None:
    error = error_of_start("--config", str(config), ranks=ranks)
    assert error == f"rank=0 cannot read the configuration {config}: No such file or directory"


def test_cuda_without_a_device_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA" in error_of_start("--listen", "127.0.0.1:0", "--backend", "cuda", ranks=2)


@pytest.mark.parametrize(
    "configs",
    [
        [f'tables {{ name: "a" dim: {rank + 1} optimizer {{ learning_rate: 1 }} }}' for rank in range(2)],
        ["partial_sums: DATA_TYPE_FLOAT16", "partial_sums: DATA_TYPE_BFLOAT16"],
    ],
    ids=["tables", "partial_sums"],
)
def test_ranks_with_other_configurations_do_not_serve_together(tmp_path: Path, configs: list[str]) -> None:
    script = tmp_path / "rank.sh"
    for rank, config in enumerate(configs):
        (tmp_path / f"{rank}.pbtxt").write_text(f'listen: "127.0.0.1:0"\n{config}')
    script.write_text(f'#!/bin/sh\nexec "$1" --config {tmp_path}/$OMPI_COMM_WORLD_RANK.pbtxt\n')
    script.chmod(0o755)
    error = error_of_start(ranks=2, wrapper=(str(script),))
    assert "rank 1 has another configuration (limits, tables, durability, security, deterministic or" in error


def test_check_config_says_whether_it_is_right(config: Path, check: CheckConfig) -> None:
    config.write_text('tables { name: "a" dim: 1 optimizer { learning_rate: 1 } }')
    ended = check()
    assert (ended.returncode, ended.stdout) == (0, f"{config} is right: 1 table(s)\n")
    config.write_text("threads: 5000")
    ended = check()
    assert (ended.returncode, ended.stderr) == (1, f"{config}:1:1: threads is 5000: must be 0 to 4096\n")


def test_check_config_says_of_limits_what_a_start_says(
    config: Path, check: CheckConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that has no GPU is planned for as such, whether the configuration says so or not."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    # A GPU's host would set nothing aside for this.
    config.write_text('listen: "127.0.0.1:0" limits { max_shared_mib: 16777216 }')
    for backend in ("auto", "cpu"):
        error = error_of_start("--config", str(config), "--backend", backend)
        refused = error.removeprefix("rank=0 ")
        assert refused.startswith("limits.max_shared_mib: 16777216: with this a rank sets aside ")
        checked = check("--backend", backend)
        assert (checked.returncode, checked.stderr) == (0, "")
        right, said = checked.stdout.splitlines()
        assert right == f"{config} is right: 0 table(s)"
        assert said == f"here not even one rank would start: {refused}"


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path, config: Path, check: CheckConfig) -> None:
    """By --check-config and by a start, of the text, its values, its tables and the files that it names."""
    for name, mode in (("open", 0o666), ("closed", 0o600)):
        (tmp_path / name).write_text(f"a-token-of-{name}-0123456789\n")
        (tmp_path / name).chmod(mode)
    config.write_text(
        f"""tables {{ name: "a" }}
threads: 5000
security {{
  principals {{ name: "one" token_file: "{tmp_path}/open"
               grants {{ table: "*" rights: RIGHT_WRITE }}
  }}
  principals {{ name: "two" token_file: "{tmp_path}/none" }}
  principals {{ name: "three" token_file: "{tmp_path}/closed" }}
  local_users: "no one"
}}
backend: BACKEND_TPU
listen: "0.0.0.0:7070"
"""
    )
    rights = "RIGHT_READ, RIGHT_PUSH, RIGHT_ROWS, RIGHT_ADMIN or RIGHT_OBSERVE"
    errors = [
        "1:1: tables[0].dim is 0: must be 1 to 4096",
        "1:1: tables[0].optimizer.learning_rate is 0: must be finite and above 0",
        "2:1: threads is 5000: must be 0 to 4096",
        f"4:28: the token_file of principal one: cannot read {tmp_path}/open: it has mode 0666: only"
        " its owner may be able to write it (chmod go-w)",
        f"5:44: security.principals[0].grants[0].rights is RIGHT_WRITE: must be {rights}",
        f"7:28: the token_file of principal two: cannot read {tmp_path}/none: it cannot be read: No such"
        " file or directory",
        '9:3: security.local_users: "no one" is no user of this host',
        "11:10: backend is BACKEND_TPU: must be BACKEND_AUTO, BACKEND_CPU or BACKEND_CUDA",
    ]
    ended = check()
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    said = [line.removeprefix(f"{config}:") for line in lines if not line.startswith("warning: ")]
    assert said[:-1] == errors
    assert said[-1].startswith(f'12:1: listen is "0.0.0.0:7070": {OPEN}')
    started = run_server("--config", str(config), ranks=2)
    assert started.returncode == 1
    assert errors_in(started.stderr) == [f"rank=0 {config}:{line}" for line in said]


def test_a_secret_that_everybody_may_read_is_warned_of(
    tmp_path: Path, config: Path, check: CheckConfig
) -> None:
    secret = tmp_path / "token"
    secret.write_text("a-token-0123456789\n")
    secret.chmod(0o644)
    config.write_text(f'security {{ principals {{ name: "one" token_file: "{secret}" }} }}')
    ended = check()
    assert (ended.returncode, ended.stdout) == (0, f"{config} is right: 0 table(s)\n")
    assert ended.stderr == (
        f"warning: {config}:1:37: the token_file of principal one: {secret}: it has mode 0644: every user of"
        " this host may read it (chmod o-r)\n"
    )
    secret.chmod(0o640)
    assert check().stderr == ""


@pytest.mark.parametrize("field", ["listen", "metrics_listen"])
def test_a_server_that_other_machines_reach_has_to_be_asked_for(
    config: Path, check: CheckConfig, field: str
) -> None:
    flag = "--" + field.replace("_", "-")
    config.write_text(f'{field}: "0.0.0.0:7077"\n')
    ended = check()
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f'{config}:1:1: {field} is "0.0.0.0:7077": {OPEN}')
    assert "--insecure" in ended.stderr
    for flags in (("--config", str(config)), (flag, "0.0.0.0:7077")):
        assert OPEN in error_of_start(*flags)
    # The command line counts: it closes what the file opens, and opens what the file closes.
    assert check(flag, "127.0.0.1:7077").returncode == 0
    assert check("--insecure").returncode == 0
    config.write_text(f'{field}: "0.0.0.0:7077"\ninsecure: true\n')
    assert check().returncode == 0
    config.write_text("")
    assert check(flag, "[::]:7077").stderr.startswith(f'{flag}: {field} is "[::]:7077": {OPEN}')


@pytest.mark.parametrize("field", ["metrics-listen", "health-listen"])
def test_two_flags_that_name_one_port_are_refused(config: Path, check: CheckConfig, field: str) -> None:
    config.write_text('listen: "127.0.0.1:7077"\n')
    name, flag = field.replace("-", "_"), (f"--{field}", "127.0.0.1:7077")
    refused = f'--{field}: {name} is "127.0.0.1:7077": listen takes that port: "127.0.0.1:7077"'
    ended = check(*flag)
    assert (ended.returncode, ended.stderr) == (1, refused + "\n")
    assert error_of_start("--config", str(config), *flag) == f"rank=0 {refused}"
    # The command line counts.
    assert check(*flag, "--listen", "127.0.0.1:7078").returncode == 0


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--lisen", "a:1"], "--lisen"),
        (["--listen", "7070"], '"7070" is not host:port'),
        (["--metrics-listen", "7070"], "--metrics-listen"),
        (["--health-listen", "7070"], "--health-listen"),
        (["--backend", "tpu"], "tpu"),
        (["--check-config"], "--config"),
        (["--config", "", "--check-config"], "empty"),
    ],
)
def test_wrong_flags_are_refused_with_a_hint(flags: list[str], words: str) -> None:
    ended = run_server(*flags)
    assert ended.returncode > 100
    assert words in ended.stderr
    assert "--help" in ended.stderr
