"""A server that cannot live on what the system lets it have says so in a sentence, and does not start."""

from __future__ import annotations

import resource

import pytest
from slotwise_cluster import StartCluster, run_server

import slotwise


@pytest.mark.parametrize(
    ("limit", "has", "needs"),
    [
        *((f"-v {kib}", f"have {kib} KiB of address space (RLIMIT_AS, ulimit -v)", "4194304")
          for kib in (100_000, 200_000, 1_000_000, 4_194_303)),
        ("-n 63", "open 63 files (RLIMIT_NOFILE, ulimit -n)", "64"),
    ],
)  # fmt: skip
def test_too_little_is_refused_by_name(limit: str, has: str, needs: str) -> None:
    limited = ["bash", "-c", f'ulimit {limit}; exec "$@"', "limited"]
    ended = run_server("--listen", "127.0.0.1:0", wrapper=limited)
    assert ended.returncode == 1, ended
    assert ended.stderr == f"slotwise-server: this process may {has}, and a server needs at least {needs}\n"


def test_a_server_whose_files_may_not_grow_shares_no_memory_and_lives(start_cluster: StartCluster) -> None:
    largest, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, most))
    try:
        cluster = start_cluster(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, most))
    with cluster.connect() as ps:
        ps.create_table("words", dim=8, combiner="none", optimizer=slotwise.SGD(lr=1.0))
        assert ps.lookup("words", list(range(2000))).shape == (2000, 8)
        assert ps.stats()[0].shared_bytes == 0
