"""Two hosts of two ranks each: once the network between them is gone, all ranks end, on both.

The other host is a network namespace of this machine, with a host name of its own, so the test needs root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import is_gone, kill
from slotwise_cluster import MPI_ENVIRONMENT, START_TIMEOUT, STOP_TIMEOUT, server_binary, wait_until
from slotwise_wire import ROOT

HERE, THERE, SUBNET = "10.213.77.1", "10.213.77.2", "10.213.77.0/24"
RANKS = 4
LIMIT = 4.0
NEEDED = ("ip", "unshare", "mpirun")


def ip(*words: str) -> None:
    """Runs `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def link() -> Iterator[str]:
    """The network interface between this host and the other, whose namespace has the same name."""
    if os.geteuid() != 0 or not all(map(shutil.which, NEEDED)):
        pytest.skip("needs root, " + " and ".join(NEEDED))
    name = f"slotwise{os.getpid() % 10_000}"
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError:
        pytest.skip("this system does not let tests make network namespaces")
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "other", "netns", name)
        ip("addr", "add", HERE + "/24", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "addr", "add", THERE + "/24", "dev", "other")
        ip("-n", name, "link", "set", "other", "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "del", name)  # and with it its end of the link, so the link


class TwoHosts:
    """A server of four ranks, the last two on the other host."""

    def __init__(self, folder: Path, link: str) -> None:
        self.folder = folder
        # What mpirun runs instead of ssh: AGENT HOST COMMAND...
        agent = folder / "agent.sh"
        agent.write_text(
            f"#!/bin/sh\nshift\nexec ip netns exec {link} unshare --uts sh -c 'hostname other; '\"$*\"\n"
        )
        agent.chmod(0o755)
        (folder / "server.pbtxt").write_text(
            f'listen: "127.0.0.1:0" limits {{ rank_timeout_ms: {int(1000 * LIMIT)} }}'
        )
        settings = {"plm_rsh_agent": str(agent), "btl": "self,vader,tcp"}
        settings |= {"oob_tcp_if_include": SUBNET, "btl_tcp_if_include": SUBNET}
        mca = [word for name, value in settings.items() for word in ("--mca", name, value)]
        wrapper = [str(ROOT / "tests/e2e/rank.sh"), str(folder), str(server_binary())]
        self.process = subprocess.Popen(
            ["mpirun", *mca, "-H", f"{HERE}:2,{THERE}:2", "-n", str(RANKS), *wrapper]
            + ["--config", str(folder / "server.pbtxt"), "--backend", "cpu"],
            env=os.environ | MPI_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=open(folder / "mpirun.log", "wb"),
            stderr=subprocess.STDOUT,
        )

    def log(self, rank: int) -> str:
        """What a rank wrote."""
        path = self.folder / f"rank.{rank}.log"
        return path.read_text() if path.exists() else ""

    def logs(self) -> str:
        """All that was written."""
        logs = [self.log(rank) for rank in range(RANKS)]
        return "\n".join([(self.folder / "mpirun.log").read_text(), *logs])

    def pids(self) -> list[int]:
        """The ranks' processes."""
        return [int((self.folder / f"rank.{rank}.pid").read_text()) for rank in range(RANKS)]


def test_a_cut_between_hosts_ends_the_ranks_on_both(link: str, tmp_path: Path) -> None:
    hosts = TwoHosts(tmp_path, link)
    pids: list[int] = []
    try:
        ready = re.compile(r"ready at \S+: rank")
        wait_until(
            lambda: hosts.process.poll() is not None
            or all(ready.search(hosts.log(rank)) for rank in range(RANKS)),
            "four ranks ready",
            START_TIMEOUT,
        )
        assert hosts.process.poll() is None, hosts.logs()
        pids = hosts.pids()
        time.sleep(1)  # idle
        ip("link", "set", link, "down")
        wait_until(lambda: all(map(is_gone, pids)), "every rank's end", STOP_TIMEOUT)
        silent = re.compile(r"nothing was heard of rank (\d) on (\S+) for \S+ s: this rank ends")
        # Each side says who is on the other; the faster of its ranks ends the one beside it.
        for side in ({0, 1}, {2, 3}):
            heard = [silent.search(hosts.log(rank)) for rank in side]
            named = {int(line[1]) for line in heard if line}
            assert named and not named & side, hosts.logs()
    finally:
        kill(*pids)
        hosts.process.kill()
        hosts.process.wait()
