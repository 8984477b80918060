"""Several trainers adopt a model, and train it under DistributedDataParallel as torch's own modules."""

from __future__ import annotations

from pathlib import Path

import adopted_replica
import pytest
import trainers as trainers_of
from judged_times import LONG_FORMS
from real_server import StartReal, empty_client

import slotwise

pytestmark = trainers_of.needs_gloo


LOOPS = [(2, 2, "grow"), *([(1, 2, ""), (2, 3, "")] if LONG_FORMS else [])]
KILLS = [3, 6, 11]


@pytest.mark.parametrize("ranks, trainers, grow", LOOPS)
def test_replicas_train_as_torchs(
    start_real: StartReal, tmp_path: Path, ranks: int, trainers: int, grow: str
) -> None:
    with empty_client(start_real(ranks)) as ps:
        address = ps.topology().ranks[-1].address
        trainers_of.run(tmp_path, adopted_replica.__file__, trainers, "trains", address, grow)


def test_a_trainer_that_cannot_adopt_stops_all(start_real: StartReal, tmp_path: Path) -> None:
    with empty_client(start_real(1)) as ps:
        address = ps.topology().ranks[0].address
        trainers_of.run(tmp_path, adopted_replica.__file__, 3, "fails", address)


@pytest.mark.skipif(not LONG_FORMS, reason="the long form's; one trainer is killed in test_adopt_attach.py")
def test_trainers_that_were_killed_end_where_they_would_have(tmp_path: Path) -> None:
    results = []
    for name, kills in (("peace", []), ("killed", KILLS)):
        with slotwise.serve(2, threads=1, data=tmp_path / name) as server:
            for last in [*kills, 0]:
                folder = tmp_path / f"{name}-{last}"
                folder.mkdir()
                more = str(tmp_path / f"{name}.pt"), str(last)
                given = adopted_replica.__file__, 2, "killed", server.address, *more
                if last == 0:
                    trainers_of.run(folder, *given)
                    continue
                with pytest.raises(AssertionError, match=f"is killed behind step {last}"):
                    trainers_of.run(folder, *given)
            with slotwise.connect(server.address) as ps:
                tables = sorted(table.name for table in ps.list_tables())
                digests = [ps.digest(table).digest for table in tables]
        dense = [(tmp_path / f"{name}.{trainer}").read_text() for trainer in range(2)]
        assert tables == ["items", "tags"] and dense[0] == dense[1]
        results.append((digests, dense))
    assert results[0] == results[1]
