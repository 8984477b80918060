"""A trainer that is killed amid a step goes on exactly where it was, with its session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import resumed_trainer
import slotwise
from resumed_trainer import STEPS
from slotwise_cluster import STOP_TIMEOUT, StartCluster, wait_until


def make_table(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=32, optimizer=slotwise.Adam(lr=0.05))


def test_killed_trainers_reach_the_state_of_one_that_was_not(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    digests = []
    for kills in (0, 4):
        cluster = start_cluster(3)
        progress = tmp_path / f"progress-{kills}"
        with slotwise.connect(cluster.ranks[0].address) as ps:
            for table in ps.list_tables():
                ps.drop_table(table.name)
            make_table(ps)
            session = ps.new_session()
            for kill in range(kills + 1):
                command = [sys.executable, resumed_trainer.__file__, cluster.ranks[kill % 3].address]
                command += [str(session.id), str(session.epoch), str(progress)]
                path = {"PYTHONPATH": os.pathsep.join(sys.path)}
                with subprocess.Popen(command, env=os.environ | path) as trainer:
                    if kill == kills:
                        assert trainer.wait(STOP_TIMEOUT * 10) == 0
                        continue
                    until = 1 + (kill + 1) * (STEPS - 4) // kills
                    wait_until(
                        lambda: trainer.poll() is not None
                        or (progress.exists() and int(progress.read_text() or 0) >= until),
                        f"step {until}",
                    )
                    trainer.kill()
                last = ps.describe_session(session).last_step
                assert last >= until - 1
            assert ps.describe_session(session).last_step == ps.describe_table("ads").steps == STEPS
            digests.append(ps.digest("ads"))
    assert digests[0] == digests[1]
