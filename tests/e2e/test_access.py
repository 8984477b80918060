"""Tokens and rights: who may do what, on every method of every service, and what is said to whom."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from certificates import write
from programs import CTL, run
from slotwise_cluster import Cluster, StartCluster, refusal, run_server, wait_until
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


def principals(folder: Path) -> str:
    """Writes the tokens, and returns the configuration that grants what GRANTS says."""
    folder.mkdir(parents=True, exist_ok=True)
    config = ""
    for name, grant in GRANTS.items():
        file = folder / f"{name}.token"
        write(file, f"{TOKENS[name]}\n".encode())
        config += f'principals {{ name: "{name}" token_file: "{file}" grants {{ {grant} }} }}\n'
    return f"security {{ {config} }}\n{TABLES}"


class Guarded:
    """A server that serves no call without a token, and the folder of the tokens."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def connect(self, name: str, transport: str | None = None) -> slotwise.Client:
        """A client who has a principal's token."""
        return self.cluster.connect(token_file=self.folder / f"{name}.token", transport=transport)

    def refused(self) -> float:
        """The calls of callers that the server does not know, as a watcher reads them."""
        name, code = "slotwise_access_refused_total", "UNAUTHENTICATED"
        return total(self.cluster, name, TOKENS["watcher"], code=code)


@pytest.fixture(scope="module")
def guarded(protocol: Protocol, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Of two ranks, for a module's tests."""
    folder = tmp_path_factory.mktemp("guarded")
    data = f'durability {{ folder: "{folder}/data" }}\n'
    cluster = Cluster(2, folder / "server", protocol, principals(folder) + METRICS + data)
    yield Guarded(cluster, folder)
    if cluster.process.poll() is None:
        cluster.stop()


@pytest.fixture
def alone(start_cluster: StartCluster, tmp_path: Path) -> Guarded:
    """Of one rank, for one test: with debug lines, and checkpoints."""
    folder = tmp_path / "tokens"
    more = f'log_level: "debug"\ndurability {{ folder: "{tmp_path}/data" }}\n'
    return Guarded(start_cluster(1, principals(folder) + more), folder)


def metadata(token: str) -> list[tuple[str, str]]:
    """What a call carries."""
    return [("authorization", f"Bearer {token}")]


def requests(protocol: Protocol) -> dict[str, Any]:
    """A request of each method, which its right alone lets through; on table "ads" where it names one."""
    p = protocol
    step = p.StepId(session=5, number=1)
    push = p.PushRequest(table="ads", step=step, samples=1, keys=KEY, gradients=ONE)
    lookup = p.LookupRequest(table="ads", samples=1, keys=KEY, mode=p.LookupRequest(mode=2).mode)
    train = p.LookupRequest(table="ads", samples=1, keys=KEY)
    options = p.TableOptions(name="made", dim=2, optimizer={"learning_rate": 0.1})
    of_checkpoints = ("Describe", "Verify", "Load", "Pin", "Release", "Compact")
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
        "Admin/AlterTable": p.AlterTableRequest(table="ads", max_rows=1000),
        "Admin/EvictRows": p.EvictRowsRequest(table="ads", keep_rows=5),
        "Admin/ListEvicted": p.ListEvictedRequest(table="ads"),
        "Admin/ListTables": p.ListTablesRequest(),
        "Admin/DescribeTable": p.DescribeTableRequest(table="ads"),
        "Admin/SetLearningRate": p.SetLearningRateRequest(table="ads", learning_rate=0.25),
        "Admin/GetTopology": p.GetTopologyRequest(),
        "Admin/GetStats": p.GetStatsRequest(),
        "Admin/Digest": p.DigestRequest(table="ads"),
        "Admin/DescribeSession": p.DescribeSessionRequest(session=5),
        "Admin/SaveCheckpoint": p.SaveCheckpointRequest(),
        "Admin/ListCheckpoints": p.ListCheckpointsRequest(),
        **{f"Admin/{v}Checkpoint": getattr(p, f"{v}CheckpointRequest")(id="none") for v in of_checkpoints},
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
    "Admin/ListEvicted": {"rows"},
    "Admin/ListTables": ANYBODY,
    "Admin/GetTopology": ANYBODY,
    "Admin/DescribeSession": ANYBODY,
    "Admin/DescribeTable": OF_ADS,
    "Admin/Digest": {"trainer", "reader"},
    "Admin/GetStats": {"watcher"},
}


def send(protocol: Protocol, channel: grpc.Channel, method: str, request: Any, carried: Any) -> None:
    """Calls a method, with metadata."""
    service, name = method.split("/")
    call = getattr(protocol.stub(channel, service), name)
    reply = call(iter([request]) if name == "Import" else request, timeout=CALL_TIMEOUT, metadata=carried)
    if name == "Export":
        list(reply)


def code_of(protocol: Protocol, channel: grpc.Channel, method: str, request: Any, token: str) -> Any:
    """How the server ends a call."""
    try:
        send(protocol, channel, method, request, metadata(token))
    except grpc.RpcError as error:
        assert not any(secret in f"{error.details()}" for secret in TOKENS.values())
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
def test_each_right_is_granted_and_denied(guarded: Guarded, protocol: Protocol, name: str) -> None:
    for method, request in requests(protocol).items():
        code = code_of(protocol, guarded.cluster.ranks[1].channel, method, request, TOKENS[name])
        if name in MAY.get(method, {"admin"}):
            assert code not in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED), method
        else:
            assert code == grpc.StatusCode.PERMISSION_DENIED, (method, code)


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong-token-0123456789", TOKENS["admin"]]
    + [f"Basic {TOKENS['admin']}"]
    + [f"Bearer {TOKENS['admin'][:-1]}", f"Bearer {TOKENS['admin']}x", f"Bearer  {TOKENS['admin']}"],
)
def test_unknown_callers_do_nothing(guarded: Guarded, protocol: Protocol, authorization: str | None) -> None:
    before, channel = guarded.refused(), guarded.cluster.ranks[0].channel
    carried = [] if authorization is None else [("authorization", authorization)]
    for method, request in requests(protocol).items():
        refusal(grpc.StatusCode.UNAUTHENTICATED, send, protocol, channel, method, request, carried)
    assert guarded.refused() - before == len(requests(protocol))


def test_two_tokens_in_turn_on_one_connection(guarded: Guarded, protocol: Protocol) -> None:
    push, channel = requests(protocol)["Embedding/Push"], guarded.cluster.ranks[0].channel
    for _ in range(3):
        assert code_of(protocol, channel, "Embedding/Push", push, TOKENS["trainer"]) == grpc.StatusCode.OK
        denied = code_of(protocol, channel, "Embedding/Push", push, TOKENS["reader"])
        assert denied == grpc.StatusCode.PERMISSION_DENIED


def test_a_refusal_says_what_is_missing_and_not_what_there_is(guarded: Guarded) -> None:
    with guarded.connect("reader") as ps:
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
        guarded.cluster.connect(credentials=slotwise.Credentials())


def test_who_observes_finds_all_tables_and_no_row(guarded: Guarded) -> None:
    """What ranks count names every table anyway, so a watcher may list and describe all, and nothing else."""
    with guarded.connect("watcher") as ps:
        assert {"ads", "users"} <= {table.name for table in ps.list_tables()}
        assert ps.describe_table("ads").options.dim == 2
        with pytest.raises(slotwise.PermissionDenied, match="a right on all tables|it needs read"):
            ps.lookup("ads", [7], train=False)
    counted = "".join(map(str, scrape(guarded.cluster, 0, TOKENS["watcher"])))
    assert all(f"'{name}'" in counted for name in ("ads", "users"))
    allowed = {method for method, who in MAY.items() if "watcher" in who}
    assert allowed == {f"Admin/{name}" for name in OBSERVED}


def test_a_trainer_trains_and_the_log_names_it(guarded: Guarded) -> None:
    cluster, keys = guarded.cluster, np.arange(100, 200, dtype=np.uint64)
    credentials = slotwise.Credentials(token_file=guarded.folder / "trainer.token")
    with slotwise.connect(*(rank.address for rank in cluster.ranks), credentials=credentials) as ps:
        ps.lookup("ads", keys)
        ps.push("ads", keys, None, np.ones((100, 2), np.float32))
    with guarded.connect("admin") as ps:
        ps.create_table("audited", dim=2, optimizer=slotwise.SGD(lr=0.1))
        ps.drop_table("audited")
    for what in ("made", "dropped"):
        (said,) = cluster.await_messages(f"^table audited is {what}")
        assert ", admin asked" in said, said
    everything = cluster.logs() + "".join(map(str, scrape(cluster, 0, TOKENS["watcher"])))
    assert not any(secret in everything for secret in TOKENS.values())


def lines_held_back(cluster: Cluster, of_what: str) -> int:
    """How many lines rank 0's log says that it held back, in lines of their own."""
    counted = re.compile(rf"(\d+) more lines of what {of_what} were held back")
    return sum(int(line[1]) for line in map(counted.fullmatch, cluster.messages(0)) if line)


def test_the_log_says_who_changed_and_took_rows(guarded: Guarded) -> None:
    cluster, keys = guarded.cluster, np.arange(1000, 1007, dtype=np.uint64)
    with guarded.connect("rows") as ps:
        ps.import_rows("ads", keys, np.ones((7, 2), np.float32))
        assert sum(len(rows.keys) for rows in ps.export_rows("ads", keys)) == 7
        assert ps.erase("ads", keys) == 7
    with guarded.connect("admin") as ps:
        ps.set_learning_rate("ads", 0.5)
        ps.alter_table("ads", max_rows=2000)
        # A principal that makes and drops tables all day hides its own deeds, and no other's.
        for i in range(40):
            ps.create_table(f"many{i}", dim=2, optimizer=slotwise.SGD(lr=0.1))
        for i in range(40):
            ps.drop_table(f"many{i}")
    with guarded.connect("other") as ps:
        ps.set_learning_rate("users", 0.25)

    def said(what: str, who: str) -> bool:
        lines = cluster.messages(0) + cluster.messages(1)
        return any(line.startswith(what) and f", {who} asked" in line for line in lines)

    # Those who make much do not hide what they take away. What was held back is counted, though nothing
    # follows it.
    for what, who in (
        ("7 rows of table ads are imported", "rows"),
        ("7 rows of table ads are erased", "rows"),
        ("table ads learns at the rate 0.5", "admin"),
        ("table ads is altered", "admin"),
        ("table users learns at the rate 0.25", "other"),
        ("table many0 is dropped", "admin"),
    ):
        wait_until(lambda: said(what, who), what)
    # Other tests' deeds may have been of the same interval.
    wait_until(lambda: lines_held_back(cluster, "admin made") >= 8, "the count of what admin made")
    wait_until(lambda: lines_held_back(cluster, "admin took away") >= 8, "the count of what admin took away")

    def exported() -> int:
        lines = [line for line in cluster.messages(0) + cluster.messages(1) if ", rows asked" in line]
        return sum(int(line.split()[0]) for line in lines if " rows of table ads are exported" in line)

    wait_until(lambda: exported() == 7, "each exported row, once")


def test_the_log_hides_no_erased_rows_behind_imports(alone: Guarded) -> None:
    with alone.connect("rows") as ps:
        for _ in range(40):
            ps.import_rows("ads", [7], np.ones((1, 2), np.float32))
        assert ps.erase("ads", [7]) == 1
    alone.cluster.await_messages("^1 rows of table ads are erased, as ")


def test_the_log_says_what_was_done_with_checkpoints(alone: Guarded) -> None:
    with alone.connect("rows") as importer, alone.connect("admin") as ps:
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
    lines = alone.cluster.await_messages(", admin asked$", len(deeds))
    for deed in deeds:
        assert len([line for line in lines if deed in line]) == 1, (deed, lines)
    # A server that ends has written its log.
    alone.cluster.stop()
    assert alone.cluster.await_messages(", admin asked$", len(deeds)) == lines, "what failed is no deed"


def test_the_log_says_nothing_of_who_did_nothing(alone: Guarded, protocol: Protocol) -> None:
    cluster = alone.cluster
    asked = {name: protocol.stub(cluster.ranks[0].channel, name) for name in ("Admin", "Rows")}
    admin, rows = metadata(TOKENS["admin"]), metadata(TOKENS["rows"])
    options = protocol.TableOptions(name="made", dim=2, optimizer={"learning_rate": 0.1})
    for created in (True, False):
        request = protocol.CreateTableRequest(options=options)
        reply = asked["Admin"].CreateTable(request, metadata=admin, timeout=CALL_TIMEOUT)
        assert reply.created == created
    nothing = protocol.ExportRequest(table="ads")
    assert not list(asked["Rows"].Export(nothing, metadata=rows, timeout=CALL_TIMEOUT))
    empty = protocol.ImportRequest(table="ads")
    # The last deed is logged, so that what was done before it would be in the log.
    ones = protocol.ImportRequest(table="ads", keys=KEY, values=ONE)
    for messages in ([], [empty], [ones]):
        asked["Rows"].Import(iter(messages), metadata=rows, timeout=CALL_TIMEOUT)

    def deeds() -> list[str]:
        return [line.split(", as ")[0] for line in cluster.messages(0) if line.endswith(" asked")]

    wait_until(lambda: "1 rows of table ads are imported" in deeds(), "the last deed")
    assert deeds() == ["table made is made", "1 rows of table ads are imported"]


def test_a_session_names_no_tables_of_others(guarded: Guarded, protocol: Protocol) -> None:
    channels = [rank.channel for rank in guarded.cluster.ranks]
    push = requests(protocol)["Embedding/Push"]
    assert code_of(protocol, channels[0], "Embedding/Push", push, TOKENS["trainer"]) == grpc.StatusCode.OK
    stub = protocol.stub(channels[1], "Admin")

    def described(name: str) -> Any:
        request = protocol.DescribeSessionRequest(session=5)
        return stub.DescribeSession(request, metadata=metadata(TOKENS[name]), timeout=CALL_TIMEOUT)

    mine = described("trainer")
    assert mine.known and [table.table for table in mine.tables] == ["ads"] and mine.last_step == 1
    theirs = described("other")
    assert not theirs.known and not theirs.tables and theirs.last_step == 0


def test_a_trace_is_in_the_log(alone: Guarded) -> None:
    cluster, ones = alone.cluster, np.ones((1, 2), np.float32)
    traces = {transport: f"{i + 1:032x}" for i, transport in enumerate(("shm", "grpc"))}
    for transport, trace in traces.items():
        with alone.connect("trainer", transport) as ps:
            with slotwise.trace(f"00-{trace}-00f067aa0ba902b7-01"):
                ps.lookup("ads", [7])
            ps.push("ads", [7], None, ones)
            with slotwise.trace("00-not a trace"):
                ps.push("ads", [7], None, ones)
    with alone.connect("admin") as ps, slotwise.trace(f"00-{9:032x}-00f067aa0ba902b7-00"):
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


def test_the_port_speaks_no_data_transport(guarded: Guarded) -> None:
    host, port = guarded.cluster.ranks[0].address.split(":")
    with socket.create_connection((host, int(port)), timeout=CALL_TIMEOUT) as connection:
        connection.sendall(b"SLOTWISE" + bytes([1, 0, 0, 0, 0, 0, 0, 0]))
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
        assert not answer.startswith(b"SLOTWISE")


def test_tokens_are_read_again_when_they_change(alone: Guarded, tmp_path: Path) -> None:
    file, mine = alone.folder / "reader.token", tmp_path / "mine.token"

    def serves(token: str) -> bool:
        write(mine, token.encode())
        try:
            with alone.cluster.connect(token_file=mine):
                return True
        except slotwise.Unauthenticated:
            return False

    def complaints() -> int:
        return len([line for line in alone.cluster.messages(0) if "stay as they were" in line])

    old, new = TOKENS["reader"], "another-token-9876543210"
    assert serves(old) and not serves(new)
    write(file, f"{old}\n{new}\n".encode())
    wait_until(lambda: serves(new), "the new token is known")
    assert serves(old)
    write(file, f"{new}\n".encode())
    wait_until(lambda: not serves(old), "the old token is gone")
    assert serves(new)
    for wrong in (b"", b"short\n", b"has a space in the middle\n", f"{TOKENS['admin']}\n".encode()):
        before = complaints()
        write(file, wrong)
        wait_until(lambda: complaints() > before, "the log says that the file is wrong")
        assert serves(new) and not serves(old)


def test_a_client_reads_its_token_again(guarded: Guarded, tmp_path: Path) -> None:
    mine = tmp_path / "mine.token"
    write(mine, TOKENS["reader"].encode())
    with guarded.cluster.connect(token_file=mine) as ps:

        def names() -> list[str]:
            return [table.name for table in ps.list_tables()]

        assert names() == ["ads"]
        write(mine, TOKENS["other"].encode())
        wait_until(lambda: names() == ["users"], "the other token")
        mine.unlink()
        assert names() == ["users"]


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
        ('principals { name: "a" token_file: "W" }', "it has mode 0622: only its owner may be able to"),
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
    good = b"0123456789abcdef"
    for name, token, mode in (("T", good, 0o600), ("S", b"short", 0o600), ("W", good, 0o622)):
        write(tmp_path / name, token)
        (tmp_path / name).chmod(mode)
        config = config.replace(f'"{name}"', f'"{tmp_path}/{name}"')
    (tmp_path / "server.pbtxt").write_text(f"security {{ {config} }}\n")
    ended = run_server("--config", str(tmp_path / "server.pbtxt"), "--check-config")
    assert ended.returncode == 1
    assert why in ended.stderr, ended.stderr
    assert "0123456789abcdef" not in ended.stderr and "short" not in ended.stderr


def test_ctl_takes_a_token(guarded: Guarded) -> None:
    ctl, file = [CTL, "--server", guarded.cluster.ranks[0].address], guarded.folder / "admin.token"
    assert run(*ctl, "health").returncode == 0
    assert "has no token" in run(*ctl, "tables").stderr
    assert "ads" in run(*ctl, "tables", "--token-file", file).stdout
    assert "ads" in run(*ctl, "tables", SLOTWISE_TOKEN_FILE=str(file)).stdout
    refused = run(*ctl, "stats", "--token-file", file).stderr
    assert "admin may not: it needs observe on all tables" in refused
