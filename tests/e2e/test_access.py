"""Tokens and rights: who may do what, on every method of every service, and what is said to whom."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from certificates import write
from slotwise_cluster import Cluster, StartCluster, run_server, server_binary, wait_until
from slotwise_metrics import METRICS, scrape, total
from slotwise_wire import CALL_TIMEOUT, Protocol

import slotwise

NAMES = ("trainer", "reader", "rows", "admin", "watcher", "other")
TOKENS = {name: f"token-of-{name}-0123456789" for name in NAMES}
GRANTS = {
    "trainer": 'table: "ads" rights: RIGHT_READ rights: RIGHT_PUSH',
    "reader": 'table: "ads" rights: RIGHT_READ',
    "rows": 'table: "ads" rights: RIGHT_ROWS',
    "admin": 'table: "*" rights: RIGHT_ADMIN',
    "watcher": 'table: "*" rights: RIGHT_OBSERVE',
    "other": 'table: "users" rights: [RIGHT_READ, RIGHT_PUSH, RIGHT_ROWS, RIGHT_ADMIN]',
}
OPTIONS = "dim: 2 optimizer { learning_rate: 0.1 sgd {} }"
TABLES = "".join(f'tables {{ name: "{name}" {OPTIONS} }}\n' for name in ("ads", "users"))
KEY = (7).to_bytes(8, "little")
ONE = np.ones(2, "<f4").tobytes()


def token_file(folder: Path, name: str) -> Path:
    """The file of a principal's token."""
    return folder / f"{name}.token"


def principals(folder: Path) -> str:
    """Writes the tokens, and returns the configuration that grants what GRANTS says."""
    folder.mkdir(parents=True, exist_ok=True)
    config = ""
    for name, grant in GRANTS.items():
        write(token_file(folder, name), f"{TOKENS[name]}\n".encode())
        file = token_file(folder, name)
        config += f'principals {{ name: "{name}" token_file: "{file}" grants {{ {grant} }} }}\n'
    return f"security {{ {config} }}\n{TABLES}"


@pytest.fixture(scope="module")
def guarded(
    protocol: Protocol, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Path]]:
    """A server of two ranks that serves nobody without a token, and the folder of the tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    data = f'durability {{ folder: "{folder}/data" }}\n'
    cluster = Cluster(2, folder / "server", protocol, principals(folder) + METRICS + data)
    yield cluster, folder
    if cluster.process.poll() is None:
        cluster.stop()


def metadata(token: str | None) -> list[tuple[str, str]]:
    """What a call carries."""
    return [] if token is None else [("authorization", f"Bearer {token}")]


def requests(protocol: Protocol) -> dict[str, Any]:
    """A request of each method, which its right alone lets through; on table "ads" where it names one."""
    p = protocol
    step = p.StepId(session=5, number=1)
    push = p.PushRequest(table="ads", step=step, samples=1, keys=KEY, gradients=ONE)
    lookup = p.LookupRequest(table="ads", samples=1, keys=KEY, mode=p.LookupRequest(mode=2).mode)
    train = p.LookupRequest(table="ads", samples=1, keys=KEY)
    options = p.TableOptions(name="made", dim=2, optimizer={"learning_rate": 0.1})
    no_checkpoint = {"id": "none"}
    return {
        "Embedding/Lookup": lookup,
        "Embedding/Push": push,
        "Embedding/LookupMany": p.LookupManyRequest(lookups=[train]),
        "Embedding/PushMany": p.PushManyRequest(pushes=[push]),
        "Rows/Export": p.ExportRequest(table="ads"),
        "Rows/Import": p.ImportRequest(table="ads", keys=KEY, values=ONE),
        "Rows/Erase": p.EraseRequest(table="ads", keys=KEY),
        "Admin/CreateTable": p.CreateTableRequest(options=options),
        "Admin/DropTable": p.DropTableRequest(table="made"),
        "Admin/ListTables": p.ListTablesRequest(),
        "Admin/DescribeTable": p.DescribeTableRequest(table="ads"),
        "Admin/SetLearningRate": p.SetLearningRateRequest(table="ads", learning_rate=0.25),
        "Admin/GetTopology": p.GetTopologyRequest(),
        "Admin/GetStats": p.GetStatsRequest(),
        "Admin/Digest": p.DigestRequest(table="ads"),
        "Admin/DescribeSession": p.DescribeSessionRequest(session=5),
        "Admin/SaveCheckpoint": p.SaveCheckpointRequest(),
        "Admin/ListCheckpoints": p.ListCheckpointsRequest(),
        "Admin/DescribeCheckpoint": p.DescribeCheckpointRequest(**no_checkpoint),
        "Admin/VerifyCheckpoint": p.VerifyCheckpointRequest(**no_checkpoint),
        "Admin/LoadCheckpoint": p.LoadCheckpointRequest(**no_checkpoint),
        "Admin/PinCheckpoint": p.PinCheckpointRequest(**no_checkpoint),
        "Admin/ReleaseCheckpoint": p.ReleaseCheckpointRequest(**no_checkpoint),
        "Admin/CompactCheckpoint": p.CompactCheckpointRequest(**no_checkpoint),
    }


OBSERVED = {"ListTables", "GetTopology", "DescribeSession", "DescribeTable", "GetStats"}
ANYBODY = {*GRANTS}
OF_ADS = {"trainer", "reader", "rows", "admin", "watcher"}
MAY: dict[str, set[str]] = {
    "Embedding/Lookup": {"trainer", "reader"},
    "Embedding/Push": {"trainer"},
    "Embedding/LookupMany": {"trainer"},  # it makes rows
    "Embedding/PushMany": {"trainer"},
    "Rows/Export": {"rows"},
    "Rows/Import": {"rows"},
    "Rows/Erase": {"rows"},
    "Admin/ListTables": ANYBODY,
    "Admin/GetTopology": ANYBODY,
    "Admin/DescribeSession": ANYBODY,
    "Admin/DescribeTable": OF_ADS,
    "Admin/Digest": {"trainer", "reader"},
    "Admin/GetStats": {"watcher"},
}


def code_of(protocol: Protocol, channel: grpc.Channel, method: str, request: Any, token: str | None) -> Any:
    """How the server ends a call."""
    service, name = method.split("/")
    call = getattr(protocol.stub(channel, service), name)
    try:
        if name == "Import":
            call(iter([request]), timeout=CALL_TIMEOUT, metadata=metadata(token))
        elif name == "Export":
            list(call(request, timeout=CALL_TIMEOUT, metadata=metadata(token)))
        else:
            call(request, timeout=CALL_TIMEOUT, metadata=metadata(token))
    except grpc.RpcError as error:
        said = f"{error.details()}"
        assert not any(secret in said for secret in TOKENS.values())
        return error.code()
    return grpc.StatusCode.OK


def test_every_method_is_in_the_table(protocol: Protocol) -> None:
    known = set(requests(protocol))
    for service in ("Embedding", "Rows", "Admin"):
        with grpc.insecure_channel("127.0.0.1:1") as channel:
            for name in vars(protocol.stub(channel, service)):
                known.discard(f"{service}/{name}")
                assert f"{service}/{name}" in requests(protocol)
    assert not known


@pytest.mark.parametrize("name", sorted(GRANTS))
def test_each_right_is_granted_and_denied(
    guarded: tuple[Cluster, Path], protocol: Protocol, name: str
) -> None:
    cluster, _ = guarded
    for method, request in requests(protocol).items():
        code = code_of(protocol, cluster.ranks[1].channel, method, request, TOKENS[name])
        may = name in MAY.get(method, {"admin"})
        if may:
            assert code not in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED), method
        else:
            assert code == grpc.StatusCode.PERMISSION_DENIED, (method, code)


def refused_calls(cluster: Cluster) -> float:
    """The calls of nobody whom the server knows, as a watcher reads them."""
    name, code = "slotwise_access_refused_total", "UNAUTHENTICATED"
    return total(cluster, name, TOKENS["watcher"], code=code)


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong-token-0123456789", TOKENS["admin"]]
    + [f"Basic {TOKENS['admin']}"]
    + [f"Bearer {TOKENS['admin'][:-1]}", f"Bearer {TOKENS['admin']}x", f"Bearer  {TOKENS['admin']}"],
)
def test_nobody_does_nothing(
    guarded: tuple[Cluster, Path], protocol: Protocol, authorization: str | None
) -> None:
    cluster, _ = guarded
    before = refused_calls(cluster)
    asked = 0
    for method, request in requests(protocol).items():
        service, name = method.split("/")
        call = getattr(protocol.stub(cluster.ranks[0].channel, service), name)
        carried = [] if authorization is None else [("authorization", authorization)]
        with pytest.raises(grpc.RpcError) as refused:
            if name == "Import":
                call(iter([request]), timeout=CALL_TIMEOUT, metadata=carried)
            elif name == "Export":
                list(call(request, timeout=CALL_TIMEOUT, metadata=carried))
            else:
                call(request, timeout=CALL_TIMEOUT, metadata=carried)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED, method
        asked += 1
    after = refused_calls(cluster)
    assert after - before == asked


def test_two_tokens_in_turn_on_one_connection(guarded: tuple[Cluster, Path], protocol: Protocol) -> None:
    cluster, _ = guarded
    push = requests(protocol)["Embedding/Push"]
    for _ in range(3):
        channel = cluster.ranks[0].channel
        assert code_of(protocol, channel, "Embedding/Push", push, TOKENS["trainer"]) == grpc.StatusCode.OK
        denied = code_of(protocol, channel, "Embedding/Push", push, TOKENS["reader"])
        assert denied == grpc.StatusCode.PERMISSION_DENIED


def test_a_refusal_says_what_is_missing_and_not_what_there_is(
    guarded: tuple[Cluster, Path], protocol: Protocol
) -> None:
    cluster, folder = guarded
    credentials = slotwise.Credentials(token_file=token_file(folder, "reader"))
    with slotwise.connect(cluster.ranks[0].address, credentials=credentials) as ps:
        assert ps.lookup("ads", [7], train=False).shape == (1, 2)
        with pytest.raises(slotwise.PermissionDenied) as train:
            ps.lookup("ads", [7])
        assert str(train.value) == 'reader may not: it needs push on table "ads" (security.principals)'
        for table in ("users", "there is none"):
            with pytest.raises(slotwise.PermissionDenied) as denied:
                ps.lookup(table, [7], train=False)
            assert f'it needs a right on table "{table}"' in str(denied.value)
        assert [table.name for table in ps.list_tables()] == ["ads"]
    with pytest.raises(slotwise.Unauthenticated, match="has no token"):
        slotwise.connect(cluster.ranks[0].address, credentials=slotwise.Credentials())


def test_who_observes_finds_all_tables_and_no_row(guarded: tuple[Cluster, Path], protocol: Protocol) -> None:
    """What ranks count names every table anyway, so a watcher may list and describe all, and nothing else."""
    cluster, folder = guarded
    credentials = slotwise.Credentials(token_file=token_file(folder, "watcher"))
    with slotwise.connect(cluster.ranks[0].address, credentials=credentials) as ps:
        tables = {table.name for table in ps.list_tables()}
        assert {"ads", "users"} <= tables
        assert ps.describe_table("ads").options.dim == 2
        with pytest.raises(slotwise.PermissionDenied, match="a right on all tables|it needs read"):
            ps.lookup("ads", [7], train=False)
    counted = "".join(map(str, scrape(cluster, 0, TOKENS["watcher"])))
    assert all(f"'{name}'" in counted for name in ("ads", "users"))
    allowed = {method for method, who in MAY.items() if "watcher" in who}
    assert allowed == {f"Admin/{name}" for name in OBSERVED}


def test_a_trainer_trains_and_the_log_names_it(guarded: tuple[Cluster, Path]) -> None:
    cluster, folder = guarded
    credentials = slotwise.Credentials(token_file=token_file(folder, "trainer"))
    with slotwise.connect(*(rank.address for rank in cluster.ranks), credentials=credentials) as ps:
        keys = np.arange(100, 200, dtype=np.uint64)
        ps.lookup("ads", keys)
        ps.push("ads", keys, None, np.ones((100, 2), np.float32))
    admin = slotwise.Credentials(token_file=token_file(folder, "admin"))
    with slotwise.connect(cluster.ranks[0].address, credentials=admin) as ps:
        ps.create_table("audited", dim=2, optimizer=slotwise.SGD(lr=0.1))
        ps.drop_table("audited")
    for what in ("made", "dropped"):
        (said,) = cluster.await_messages(f"^table audited is {what}")
        assert ", admin asked" in said, said
    everything = cluster.logs() + "".join(map(str, scrape(cluster, 0, TOKENS["watcher"])))
    for secret in TOKENS.values():
        assert secret not in everything


def lines_held_back(cluster: Cluster, of_what: str) -> int:
    """How many lines rank 0's log says that it held back, in lines of their own."""
    counted = re.compile(rf"(\d+) more lines of what {of_what} were held back")
    return sum(int(line[1]) for line in map(counted.fullmatch, cluster.messages(0)) if line)


def test_the_log_says_who_changed_and_took_rows(guarded: tuple[Cluster, Path]) -> None:
    cluster, folder = guarded
    credentials = slotwise.Credentials(token_file=token_file(folder, "rows"))
    keys = np.arange(1000, 1007, dtype=np.uint64)
    with slotwise.connect(cluster.ranks[0].address, credentials=credentials) as ps:
        ps.import_rows("ads", keys, np.ones((7, 2), np.float32))
        assert sum(len(rows.keys) for rows in ps.export_rows("ads", keys)) == 7
        assert ps.erase("ads", keys) == 7
    admin = slotwise.Credentials(token_file=token_file(folder, "admin"))
    with slotwise.connect(cluster.ranks[0].address, credentials=admin) as ps:
        ps.set_learning_rate("ads", 0.5)
        # Whoever makes and drops tables all day hides his own deeds, and nobody else's.
        for i in range(40):
            ps.create_table(f"many{i}", dim=2, optimizer=slotwise.SGD(lr=0.1))
        for i in range(40):
            ps.drop_table(f"many{i}")
    owner = slotwise.Credentials(token_file=token_file(folder, "other"))
    with slotwise.connect(cluster.ranks[0].address, credentials=owner) as ps:
        ps.set_learning_rate("users", 0.25)

    def said(what: str, who: str) -> bool:
        lines = cluster.messages(0) + cluster.messages(1)
        return any(line.startswith(what) and f", {who} asked" in line for line in lines)

    for what in ("7 rows of table ads are imported", "7 rows of table ads are erased"):
        wait_until(lambda: said(what, "rows"), what)
    wait_until(lambda: said("table ads learns at the rate 0.5", "admin"), "the rate")
    wait_until(lambda: said("table users learns at the rate 0.25", "other"), "another's rate")
    # Those who make much do not hide what they take away. What was held back is counted, though nothing
    # follows it.
    wait_until(lambda: said("table many0 is dropped", "admin"), "what is dropped")
    # Other tests' deeds may have been of the same interval.
    wait_until(lambda: lines_held_back(cluster, "admin made") >= 8, "the count of what admin made")
    wait_until(lambda: lines_held_back(cluster, "admin took away") >= 8, "the count of what admin took away")

    def exported() -> int:
        lines = [line for line in cluster.messages(0) + cluster.messages(1) if ", rows asked" in line]
        return sum(int(line.split()[0]) for line in lines if " rows of table ads are exported" in line)

    wait_until(lambda: exported() == 7, "each exported row, once")


def test_the_log_hides_no_erased_rows_behind_imports(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(1, principals(tmp_path / "tokens"))
    credentials = slotwise.Credentials(token_file=token_file(tmp_path / "tokens", "rows"))
    with slotwise.connect(cluster.ranks[0].address, credentials=credentials) as ps:
        for _ in range(40):
            ps.import_rows("ads", [7], np.ones((1, 2), np.float32))
        assert ps.erase("ads", [7]) == 1
    cluster.await_messages("^1 rows of table ads are erased, as ")


def test_the_log_says_what_was_done_with_checkpoints(start_cluster: StartCluster, tmp_path: Path) -> None:
    data = f'durability {{ folder: "{tmp_path}/data" }}\n'
    cluster = start_cluster(1, principals(tmp_path / "tokens") + data)
    rows, admin = (
        slotwise.Credentials(token_file=token_file(tmp_path / "tokens", name)) for name in ("rows", "admin")
    )
    with (
        slotwise.connect(cluster.ranks[0].address, credentials=rows) as importer,
        slotwise.connect(cluster.ranks[0].address, credentials=admin) as ps,
    ):
        importer.import_rows("ads", [7, 8], np.ones((2, 2), np.float32))
        base = ps.save().id
        importer.import_rows("ads", [9], np.ones((1, 2), np.float32))
        delta = ps.save(delta=True).id
        folded = ps.compact_checkpoint(delta).id
        ps.pin_checkpoint(base)
        ps.release_checkpoint(base)
        loaded = ps.load(base).id
        with pytest.raises(slotwise.NotFound):
            ps.pin_checkpoint("none")
    deeds = (
        f"checkpoint {base} is written: 2 rows, ",
        f"checkpoint {delta} is written: 1 rows, ",
        f"checkpoint {folded} is {delta} folded into a base, as ",
        f"checkpoint {base} is pinned, as ",
        f"checkpoint {base} is released, as ",
        f"checkpoint {base} is loaded, and saved as {loaded}, as ",
    )
    lines = cluster.await_messages(", admin asked$", len(deeds))
    for deed in deeds:
        assert len([line for line in lines if deed in line]) == 1, (deed, lines)
    # A server that ends has written its log.
    cluster.stop()
    assert cluster.await_messages(", admin asked$", len(deeds)) == lines, "what failed is no deed"


def test_the_log_says_nothing_of_who_did_nothing(
    start_cluster: StartCluster, protocol: Protocol, tmp_path: Path
) -> None:
    cluster = start_cluster(1, principals(tmp_path / "tokens"))
    asked = {name: protocol.stub(cluster.ranks[0].channel, name) for name in ("Admin", "Rows")}
    admin, rows = metadata(TOKENS["admin"]), metadata(TOKENS["rows"])
    options = protocol.TableOptions(name="made", dim=2, optimizer={"learning_rate": 0.1})
    for created in (True, False):
        request = protocol.CreateTableRequest(options=options)
        reply = asked["Admin"].CreateTable(request, metadata=admin, timeout=CALL_TIMEOUT)
        assert reply.created == created
    nothing = protocol.ExportRequest(table="ads")
    assert not list(asked["Rows"].Export(nothing, metadata=rows, timeout=CALL_TIMEOUT))
    asked["Rows"].Import(iter([]), metadata=rows, timeout=CALL_TIMEOUT)
    empty = protocol.ImportRequest(table="ads")
    asked["Rows"].Import(iter([empty]), metadata=rows, timeout=CALL_TIMEOUT)
    # This deed is logged, so that what was done before it would be in the log.
    ones = protocol.ImportRequest(table="ads", keys=KEY, values=ONE)
    asked["Rows"].Import(iter([ones]), metadata=rows, timeout=CALL_TIMEOUT)

    def deeds() -> list[str]:
        return [line.split(", as ")[0] for line in cluster.messages(0) if line.endswith(" asked")]

    wait_until(lambda: "1 rows of table ads are imported" in deeds(), "the last deed")
    assert deeds() == ["table made is made", "1 rows of table ads are imported"]


def test_a_session_names_no_tables_of_others(guarded: tuple[Cluster, Path], protocol: Protocol) -> None:
    cluster, _ = guarded
    push = requests(protocol)["Embedding/Push"]
    assert (
        code_of(protocol, cluster.ranks[0].channel, "Embedding/Push", push, TOKENS["trainer"])
        == grpc.StatusCode.OK
    )
    stub = protocol.stub(cluster.ranks[1].channel, "Admin")

    def described(name: str) -> Any:
        request = protocol.DescribeSessionRequest(session=5)
        return stub.DescribeSession(request, metadata=metadata(TOKENS[name]), timeout=CALL_TIMEOUT)

    mine = described("trainer")
    assert mine.known and [table.table for table in mine.tables] == ["ads"] and mine.last_step == 1
    theirs = described("other")
    assert not theirs.known and not theirs.tables and theirs.last_step == 0


def test_a_trace_is_in_the_log(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(1, principals(tmp_path / "tokens") + 'log_level: "debug"\n')
    traces = {door: f"{i + 1:032x}" for i, door in enumerate(("shm", "grpc"))}
    for door, trace in traces.items():
        credentials = slotwise.Credentials(token_file=token_file(tmp_path / "tokens", "trainer"))
        with slotwise.connect(cluster.ranks[0].address, door=door, credentials=credentials) as ps:
            with slotwise.trace(f"00-{trace}-00f067aa0ba902b7-01"):
                ps.lookup("ads", [7])
            ps.push("ads", [7], None, np.ones((1, 2), np.float32))
            with slotwise.trace("00-not a trace"):
                ps.push("ads", [7], None, np.ones((1, 2), np.float32))
    admin = slotwise.Credentials(token_file=token_file(tmp_path / "tokens", "admin"))
    with slotwise.connect(cluster.ranks[0].address, credentials=admin) as ps:
        with slotwise.trace(f"00-{9:032x}-00f067aa0ba902b7-00"):
            ps.drop_table("users")

    def lines(what: str) -> list[str]:
        return [line for line in cluster.messages(0) if line.startswith(what)]

    wait_until(lambda: len(lines("a push of ")) == 4, "all pushes' lines")
    wait_until(lambda: len(lines("a lookup of ")) == 2, "all lookups' lines")
    traced = lines("a lookup of ")
    for line, trace in zip(traced, traces.values()):
        assert f", trainer, trace {trace} ended OK after " in line
    assert not [line for line in lines("a push of ") if "trace" in line]
    (dropped,) = cluster.await_messages("^table users is dropped")
    assert f", admin, trace {9:032x} asked" in dropped


def test_the_port_speaks_no_data_transport(guarded: tuple[Cluster, Path]) -> None:
    cluster, _ = guarded
    host, port = cluster.ranks[0].address.split(":")
    with socket.create_connection((host, int(port)), timeout=CALL_TIMEOUT) as connection:
        connection.sendall(b"SLOTWISE" + bytes([1, 0, 0, 0, 0, 0, 0, 0]))
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
        assert not answer.startswith(b"SLOTWISE")


def test_tokens_are_read_again_when_they_change(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(1, principals(tmp_path / "tokens"))
    file = token_file(tmp_path / "tokens", "reader")
    mine = tmp_path / "mine.token"

    def serves(token: str) -> bool:
        write(mine, token.encode())
        try:
            credentials = slotwise.Credentials(token_file=mine)
            with slotwise.connect(cluster.ranks[0].address, credentials=credentials):
                return True
        except slotwise.Unauthenticated:
            return False

    old, new = TOKENS["reader"], "another-token-9876543210"
    assert serves(old) and not serves(new)
    write(file, f"{old}\n{new}\n".encode())
    wait_until(lambda: serves(new), "the new token is known")
    assert serves(old)
    write(file, f"{new}\n".encode())
    wait_until(lambda: not serves(old), "the old token is gone")
    assert serves(new)
    for wrong in (b"", b"short\n", b"has a space in the middle\n", f"{TOKENS['admin']}\n".encode()):
        before = len([line for line in cluster.messages(0) if "stay as they were" in line])
        write(file, wrong)
        wait_until(
            lambda: len([line for line in cluster.messages(0) if "stay as they were" in line]) > before,
            "the log says that the file is wrong",
        )
        assert serves(new) and not serves(old)


def test_a_client_reads_its_token_again(guarded: tuple[Cluster, Path], tmp_path: Path) -> None:
    cluster, _ = guarded
    mine = tmp_path / "mine.token"
    write(mine, TOKENS["reader"].encode())
    with slotwise.connect(cluster.ranks[0].address, credentials=slotwise.Credentials(token_file=mine)) as ps:
        assert [table.name for table in ps.list_tables()] == ["ads"]
        write(mine, TOKENS["other"].encode())
        wait_until(lambda: [table.name for table in ps.list_tables()] == ["users"], "the other token")
        mine.unlink()
        assert [table.name for table in ps.list_tables()] == ["users"]


def test_a_token_does_not_travel_in_the_clear(tmp_path: Path) -> None:
    write(tmp_path / "token", b"0123456789abcdef")
    with pytest.raises(slotwise.InvalidArgument, match="would travel to 192.0.2.1:7070 unencrypted"):
        slotwise.connect("192.0.2.1", credentials=slotwise.Credentials(token_file=tmp_path / "token"))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('principals { name: "a b" token_file: "T" }', 'security.principals[0].name is "a b": must be'),
        ('principals { name: "a" }', "has neither a token_file nor a certificate_name"),
        ('principals { name: "a" certificate_name: "x" }', "needs security.tls.client_ca_file"),
        ('principals { name: "a" token_file: "T" } principals { name: "a" token_file: "T" }', "another"),
        ('principals { name: "a" token_file: "T" grants { rights: RIGHT_READ } }', "grants[0].table is"),
        ('principals { name: "a" token_file: "T" grants { table: "x" } }', "grants[0] has no rights"),
        ('principals { name: "a" token_file: "T" grants { table: "x" rights: 9 } }', "rights is 9: must be"),
        ('principals { name: "a" token_file: "/none" }', "token_file of principal a: cannot read /none"),
        ('principals { name: "a" token_file: "S" }', "a token of 5 characters: must have 16 to 4096"),
        ('principals { name: "a" token_file: "W" }', "it has mode 0622: nobody but its owner may be able to"),
        ('principals { name: "a" token_file: "T" } principals { name: "b" token_file: "T" }', "in common"),
        ('principals { name: "a" token_file: "T" grants { table: "a*" rights: 1 } }', "grants[0].table is"),
        ('principals { name: "a" token_file: "T" grants { table: "x" rights: RIGHT_OBSERVE } }', "must be *"),
        ('local_users: "root"', "security.local_users needs security.principals"),
        ('principals { name: "a" token_file: "T" } local_users: "no one"', '"no one" is no user of'),
        ('principals { name: "a" token_file: "T" } local_users: "65534"', "is no user of this host"),
        ('tls { certificate_file: "T" }', "needs a certificate_file and a key_file"),
        ('tls { certificate_file: "/none" key_file: "T" }', "certificate_file: /none: it cannot be read"),
        ('tls { certificate_file: "T" key_file: "T" }', "it has no certificate in PEM"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, config: str, why: str) -> None:
    write(tmp_path / "good", b"0123456789abcdef")
    write(tmp_path / "bad", b"short")
    write(tmp_path / "open", b"0123456789abcdef")
    (tmp_path / "open").chmod(0o622)
    text = config
    for name, file in (("T", "good"), ("S", "bad"), ("W", "open")):
        text = text.replace(f'"{name}"', f'"{tmp_path}/{file}"')
    (tmp_path / "server.pbtxt").write_text(f"security {{ {text} }}\n")
    ended = run_server("--config", str(tmp_path / "server.pbtxt"), "--check-config")
    assert ended.returncode == 1
    assert why in ended.stderr, ended.stderr
    assert "0123456789abcdef" not in ended.stderr and "short" not in ended.stderr


def test_ctl_takes_a_token(guarded: tuple[Cluster, Path]) -> None:
    cluster, folder = guarded
    ctl = server_binary().parents[1] / "client/ctl/slotwise-ctl"

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [str(ctl), "--server", cluster.ranks[0].address, *arguments]
        return subprocess.run(
            command, env=os.environ | variables, capture_output=True, text=True, timeout=CALL_TIMEOUT
        )

    file = str(token_file(folder, "admin"))
    assert run("health").returncode == 0
    assert "has no token" in run("tables").stderr
    assert "ads" in run("tables", "--token-file", file).stdout
    assert "ads" in run("tables", SLOTWISE_TOKEN_FILE=file).stdout
    assert "admin may not: it needs observe on all tables" in run("stats", "--token-file", file).stderr
