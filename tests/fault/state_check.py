"""Checks what a server that has recovered holds, of all that trainers did (marked_steps.py)."""

from __future__ import annotations

import numpy as np
import slotwise
from crashing_server import CrashingServer
from marked_steps import DIM, HOT_KEYS, Referee
from marking_trainer import TABLES
from slotwise_cluster import RankClient
from slotwise_wire import CALL_TIMEOUT, Protocol

EVAL = 2  # LookupMode


class StateCheck:
    """Checks one server, again and again."""

    def __init__(self, server: CrashingServer, referee: Referee, protocol: Protocol) -> None:
        self._server = server
        self._referee = referee
        self._protocol = protocol

    def run(self) -> None:
        """Raises AssertionError with what is wrong. REQUIRES: nothing is under way."""
        referee = self._referee
        markers: dict[str, list[int]] = {table: [] for table in (*TABLES, "rates")}
        for step in referee.steps:
            for table, marker in step.markers():
                markers[table].append(marker)
        values = {table: self._values(table, keys) for table, keys in markers.items()}
        referee.judge_steps(values)
        sums, counts = referee.hot_sums(), referee.step_counts()
        with slotwise.connect(*self._server.addresses, timeout=CALL_TIMEOUT) as client:
            for table in TABLES:
                for key, value in self._values(table, list(range(1, HOT_KEYS + 1))).items():
                    referee.expect(f"row {key} of {table}, which all share,", value, sums[table, key])
            for table in markers:
                info = client.describe_table(table)
                referee.expect(f"the count of steps of {table}", info.steps, counts[table])
                if table == "rates":
                    referee.judge(referee.rate, info.base_learning_rate)
            self._check_rows(client)
            there = {options.name for options in client.list_tables()}
            for name, fact in referee.tables.items():
                referee.judge(fact, 1.0 if name in there else None)
        assert self._referee.found.good, "; ".join(self._referee.found.wrong[:20])

    def _check_rows(self, client: slotwise.Client) -> None:
        for table in TABLES:
            facts = [fact for fact in self._referee.facts if fact.table == table]
            if not facts:
                continue
            wanted = np.array([key for fact in facts for key in fact.keys], np.uint64)
            rows: dict[int, float] = {}
            for chunk in client.export_rows(table, wanted):
                assert (chunk.values == chunk.values[:, :1]).all(), f"{table}: a row is torn: {chunk}"
                rows.update(zip(chunk.keys.tolist(), chunk.values[:, 0].tolist()))
            for fact in facts:
                seen = {rows.get(key) for key in fact.keys}
                if len(seen) > 1:
                    self._referee.found.wrong.append(f"{fact.name} differs: {seen}")
                else:
                    self._referee.judge(fact, seen.pop())

    def _values(self, table: str, keys: list[int]) -> dict[int, float]:
        """Returns what every rank's lookup finds, which is the same."""
        request = self._protocol.LookupRequest(
            table=table, keys=np.array(keys, "<u8").tobytes(), samples=len(keys), mode=EVAL
        )
        if not keys:
            return {}
        answers = []
        for address in self._server.addresses:
            rank = RankClient(address, self._protocol)
            reply = rank.embedding.Lookup(request, timeout=CALL_TIMEOUT, wait_for_ready=True)
            rank.channel.close()
            answers.append(np.frombuffer(reply.values, "<f4").reshape(len(keys), DIM))
        for answer in answers:
            assert (answer == answers[0]).all(), f"ranks answer differently of {table}"
        assert (answers[0] == answers[0][:, :1]).all(), f"{table}: a row is torn"
        return dict(zip(keys, answers[0][:, 0].tolist()))
