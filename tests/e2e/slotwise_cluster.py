"""A server of several ranks on this machine, started by mpirun, for the tests to drive over gRPC."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import grpc
import numpy as np
import pytest
from slotwise_wire import CALL_TIMEOUT, CHANNEL_OPTIONS, ROOT, SERVING, Protocol, health

if TYPE_CHECKING:  # tests/abuse does without our client
    import slotwise

Keys = Union[Sequence[int], np.ndarray]

START_TIMEOUT = CALL_TIMEOUT
STOP_TIMEOUT = CALL_TIMEOUT
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5's
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}


def server_binary() -> Path:
    """$SLOTWISE_SERVER, or the newest that was built here."""
    named = os.environ.get("SLOTWISE_SERVER")
    if named:
        return Path(named).resolve()
    built = [ROOT / f"build/{preset}/server/slotwise-server" for preset in ("cuda", "cpu")]
    there = [path for path in built if path.exists()]
    assert there, "there is no slotwise-server: run ./dev build, or set SLOTWISE_SERVER"
    return max(there, key=lambda path: path.stat().st_mtime)


def run_server(*arguments: str, ranks: int | None = None, wrapper: Sequence[str] = ()) -> Any:
    """Runs a server that is expected to end by itself: its exit code, stdout and stderr."""
    launcher = [] if ranks is None else ["mpirun", "-n", str(ranks)]
    command = [*launcher, *wrapper, str(server_binary()), *arguments]
    environment = os.environ | MPI_ENVIRONMENT
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=START_TIMEOUT)


def wait_until(condition: Callable[[], bool], what: str, timeout: float = START_TIMEOUT) -> None:
    """Returns once `condition` holds; fails, naming `what`, if it does not in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout} s"
        time.sleep(0.02)


def refusal(code: grpc.StatusCode, call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """What is said as a call is refused with this code."""
    with pytest.raises(grpc.RpcError) as refused:
        call(*arguments, **named)
    assert refused.value.code() == code, refused.value
    return str(refused.value.details())


class RankClient:
    """One rank: its address and its services."""

    def __init__(self, address: str, protocol: Protocol, tls: grpc.ChannelCredentials | None = None) -> None:
        self.address = address
        self.channel = (
            grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
            if tls is None
            else grpc.secure_channel(address, tls, options=CHANNEL_OPTIONS)
        )
        self.embedding = protocol.stub(self.channel, "Embedding")
        self.admin = protocol.stub(self.channel, "Admin")


class Cluster:
    """`mpirun -n ranks slotwise-server`, CPU backend, a port for each rank; serving once constructed.

    A lone rank is started without mpirun, which takes ten times as long. `tls`: the server speaks TLS, and
    these are what a client needs. `within`: what comes before the command, mpirun included.
    """

    _names = itertools.count()

    def __init__(
        self,
        ranks: int,
        folder: Path,
        protocol: Protocol,
        config: str = "",
        listen: str = "127.0.0.1:0",
        tls: grpc.ChannelCredentials | None = None,
        within: Sequence[str] = (),
    ) -> None:
        self.protocol = protocol
        self._folder = folder
        self._sessions = itertools.count(1)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "server.pbtxt").write_text(f'listen: "{listen}"\nlog_format: LOG_FORMAT_JSON\n{config}')
        wrapper = [str(Path(__file__).with_name("rank.sh")), str(folder)]
        server = [str(server_binary()), "--config", str(folder / "server.pbtxt"), "--backend", "cpu"]
        launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        self._size = ranks
        with open(folder / "mpirun.log", "wb") as log:
            self.process = subprocess.Popen(
                [*within, *launcher, *wrapper, *server],
                env=os.environ | MPI_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(self._all_ready_or_ended, f"{ranks} ranks ready")
            assert self.process.poll() is None, self.logs()
            self.ranks = [RankClient(self._address(rank) or "", protocol, tls) for rank in range(self._size)]
            for rank in self.ranks:
                assert health(rank.channel) == SERVING
        except BaseException:
            self.process.kill()
            raise

    # --- what the ranks say and how they end

    def log(self, rank: int) -> list[dict[str, Any]]:
        """A rank's log, a dictionary a line."""
        path = self._folder / f"rank.{rank}.log"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def logs(self) -> str:
        """Everything that was written, for a failure's message."""
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(self._folder.glob("*.log")))

    def messages(self, rank: int) -> list[str]:
        """The sentences of a rank's log."""
        return [line["message"] for line in self.log(rank)]

    def await_messages(self, pattern: str, count: int = 1) -> list[str]:
        """The sentences of all ranks in which the pattern is found, once there are at least `count`.

        A rank's log has a thread of its own, so that a line may come later than the reply of which it speaks.
        """

        def found() -> list[str]:
            lines = itertools.chain.from_iterable(map(self.messages, range(self._size)))
            return [line for line in lines if re.search(pattern, line)]

        try:
            wait_until(lambda: len(found()) >= count, f'{count} lines with "{pattern}" in the log')
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.logs()}") from None
        return found()

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return int((self._folder / f"rank.{rank}.pid").read_text())

    def exit_codes(self) -> list[int]:
        """Every rank's own exit code. mpirun's says little: signalled itself, it exits 1 whatever they do."""
        return [int((self._folder / f"rank.{rank}.exit").read_text()) for rank in range(self._size)]

    def stop(self) -> None:
        """SIGTERM to one rank; every rank must finish and exit with 0, and so must mpirun."""
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended before it was told to:\n{self.logs()}")
        os.kill(self.pid(self._size - 1), signal.SIGTERM)
        status = self.process.wait(timeout=STOP_TIMEOUT)
        assert status == 0, self.logs()
        self.expect_good_end()

    def expect_good_end(self) -> None:
        """Asserts that every rank exited with 0 and said so."""
        wait_until(lambda: len(list(self._folder.glob("rank.*.exit"))) == self._size, "every rank's end")
        assert self.exit_codes() == [0] * self._size, self.logs()
        self.expect_finished()

    def expect_finished(self) -> None:
        """Asserts that every rank finished its work."""
        for rank in range(self._size):
            assert self.messages(rank)[-1] == "stopped", self.logs()

    def _address(self, rank: int) -> str | None:
        for message in self.messages(rank):
            if match := re.match(r"ready at (\S+): rank", message):
                return match[1]
        return None

    def _all_ready_or_ended(self) -> bool:
        return self.process.poll() is not None or all(self._address(r) for r in range(self._size))

    # --- what tests do with it

    def rank(self, number: int) -> RankClient:
        """A rank, counted on from the last to the first again."""
        return self.ranks[number % len(self.ranks)]

    def session(self) -> int:
        """A session that no other test of this cluster uses."""
        return next(self._sessions)

    def create(self, table: str | None = None, **options: Any) -> str:
        """Makes a table: SGD with rate 0.5, dim 4, one slot, unless `options` say otherwise; its name."""
        name = table or f"table_{next(self._names)}"
        message = self.options(name, **options)
        request = self.protocol.CreateTableRequest(options=message)
        self.ranks[0].admin.CreateTable(request, timeout=CALL_TIMEOUT)
        return name

    def options(self, name: str, **options: Any) -> Any:
        """The message TableOptions that `create` would send."""
        message = self.protocol.TableOptions(name=name, dim=4)
        message.optimizer.learning_rate = 0.5
        message.initializer.seed = 17
        message.MergeFrom(self.protocol.TableOptions(**options))
        return message

    def digest(self, table: str, rank: int = 0) -> tuple[str, int, int]:
        """(digest, rows, steps) of a table."""
        request = self.protocol.DigestRequest(table=table)
        reply = self.rank(rank).admin.Digest(request, timeout=CALL_TIMEOUT)
        return reply.digest, reply.rows, reply.steps

    def topology(self, rank: int = 0) -> Any:
        """A message GetTopologyReply."""
        request = self.protocol.GetTopologyRequest()
        return self.rank(rank).admin.GetTopology(request, timeout=CALL_TIMEOUT)

    def describe(self, table: str, rank: int = 0) -> Any:
        """A message DescribeTableReply."""
        request = self.protocol.DescribeTableRequest(table=table)
        return self.rank(rank).admin.DescribeTable(request, timeout=CALL_TIMEOUT)

    def lookup_request(self, table: str, keys: Keys, samples: int, **fields: Any) -> Any:
        """A message LookupRequest; `offsets` are numbers, left out if not given."""
        if "offsets" in fields:
            fields["offsets"] = np.asarray(fields["offsets"], "<u4").tobytes()
        key_bytes = np.asarray(keys, "<u8").tobytes()
        return self.protocol.LookupRequest(table=table, keys=key_bytes, samples=samples, **fields)

    def lookup(self, table: str, keys: Keys, samples: int, rank: int = 0, **fields: Any) -> np.ndarray:
        """The pooled values, a row a sample."""
        request = self.lookup_request(table, keys, samples, **fields)
        reply = self.rank(rank).embedding.Lookup(request, timeout=CALL_TIMEOUT)
        assert reply.samples == samples
        return np.frombuffer(reply.values, "<f4").reshape(reply.samples, reply.width)

    def push_request(
        self, table: str, keys: Keys, gradients: np.ndarray, step: dict[str, int] | None = None, **fields: Any
    ) -> Any:
        """A message PushRequest, of as many samples as `gradients` has rows; by default of a new session."""
        step = step or {"session": self.session(), "number": 1}
        if "offsets" in fields:
            fields["offsets"] = np.asarray(fields["offsets"], "<u4").tobytes()
        return self.protocol.PushRequest(
            table=table,
            step=self.protocol.StepId(**step),
            samples=len(gradients),
            keys=np.asarray(keys, "<u8").tobytes(),
            gradients=np.asarray(gradients, "<f4").tobytes(),
            **fields,
        )

    def push(self, request: Any, rank: int = 0) -> int:
        """Sends a PushRequest; the table's step it was applied as."""
        return int(self.rank(rank).embedding.Push(request, timeout=CALL_TIMEOUT).table_step)

    def begin_push(self, request: Any, rank: int = 0) -> Any:
        """Sends a PushRequest; its call, which may wait for other parts of the step."""
        return self.rank(rank).embedding.Push.future(request, timeout=CALL_TIMEOUT)

    def drop(self, table: str, rank: int = 0) -> None:
        """Drops a table."""
        request = self.protocol.DropTableRequest(table=table)
        self.rank(rank).admin.DropTable(request, timeout=CALL_TIMEOUT)

    def tables(self, rank: int = 0) -> list[Any]:
        """The messages TableOptions of all tables."""
        request = self.protocol.ListTablesRequest()
        return list(self.rank(rank).admin.ListTables(request, timeout=CALL_TIMEOUT).tables)

    def connect(self, rank: int = 0, token_file: Path | None = None, **options: Any) -> slotwise.Client:
        """Our own client of a rank."""
        import slotwise

        if token_file is not None:
            options["credentials"] = slotwise.Credentials(token_file=token_file)
        return slotwise.connect(self.ranks[rank].address, **options)


StartCluster = Callable[..., Cluster]  # (ranks, config, **more of Cluster), as the fixture start_cluster
