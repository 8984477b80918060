"""A server that cannot live on what the system lets it have says so in a sentence, and does not start."""

from __future__ import annotations

import resource

import pytest
from slotwise_cluster import StartCluster, run_server

import slotwise


@pytest.mark.parametrize("kib", [100_000, 200_000, 1_000_000, 4_194_303])
def test_too_little_address_space_is_refused_by_name(kib: int) -> None:
    limited = ["bash", "-c", f'ulimit -v {kib}; exec "$@"', "limited"]
    ended = run_server("--listen", "127.0.0.1:0", wrapper=limited)
    assert ended.returncode == 1, ended
    assert ended.stderr == (
        f"slotwise-server: this process may have {kib} KiB of address space (RLIMIT_AS, ulimit -v), "
        "and a server needs at least 4194304\n"
    )


def test_too_few_files_are_refused_by_name() -> None:
    limited = ["bash", "-c", 'ulimit -n 63; exec "$@"', "limited"]
    ended = run_server("--listen", "127.0.0.1:0", wrapper=limited)
    assert ended.returncode == 1, ended
    assert ended.stderr == (
        "slotwise-server: this process may open 63 files (RLIMIT_NOFILE, ulimit -n), and a server needs at "
        "least 64\n"
    )


def test_a_server_whose_files_may_not_grow_shares_no_memory_and_lives(
    start_cluster: StartCluster,
) -> None:
    largest, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, most))
    try:
        cluster = start_cluster(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, most))
    with slotwise.connect(cluster.ranks[0].address) as ps:
        ps.create_table("words", dim=8, combiner="none", optimizer=slotwise.SGD(lr=1.0))
        assert ps.lookup("words", list(range(2000))).shape == (2000, 8)
        assert ps.stats()[0].shared_bytes == 0


def test_a_configuration_without_a_name_is_refused() -> None:
    ended = run_server("--config", "", "--check-config")
    assert ended.returncode > 100, ended
    assert "--config" in ended.stderr and "empty" in ended.stderr
