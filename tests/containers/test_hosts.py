"""Several hosts: containers on one network with sshd, on which deploy/mpirun/launch.sh starts a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from engine import IMAGES, ROOT, Engine, wait_until

NETWORK = "slotwise-test-hosts"
IMAGE = "slotwise-test-host"
# The image of a host, and what an operator adds: a configuration, and keys that lie there as a Secret's
# do. They belong to root, everybody may read them, and everybody might write to their folder.
DOCKERFILE = rf"""
FROM {IMAGES["host"]}
USER root
RUN ssh-keygen -q -t ed25519 -N '' -f .ssh/id_rsa && cp .ssh/id_rsa.pub .ssh/authorized_keys \
 && chmod 644 .ssh/* && chmod 1777 .ssh \
 && printf 'listen: "0.0.0.0:7070"\ninsecure: true\nlimits {{ rank_timeout_ms: 5000 }}\n' >/etc/server.pbtxt
COPY mpirun /opt/slotwise/deploy/mpirun
USER slotwise
"""
# What a container of deploy/kubernetes/mpijob.yaml may do: write to /tmp, and nothing else.
RIGHTS = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
GOOD_AUC = 0.92


@pytest.fixture(scope="module")
def host_image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of a host, made of the server's."""
    file = tmp_path_factory.mktemp("host") / "Dockerfile"
    file.write_text(DOCKERFILE)
    engine.docker("build", "--network=host", "-f", str(file), "-t", IMAGE, str(ROOT / "deploy"))
    return IMAGE


class Hosts:
    """So many hosts, h1 and on, of which the first starts a server with so many ranks on each."""

    def __init__(self, engine: Engine, count: int, ranks: int) -> None:
        self._engine = engine
        self.names = [f"h{i + 1}" for i in range(count)]
        self._ranks = ranks

    def container(self, host: str) -> str:
        """The name of a host's container."""
        return f"{NETWORK}-{host}"

    def start(self, image: str) -> None:
        """Starts the hosts, and the server; returns once all ranks serve."""
        for host in self.names:
            network = ("--network", NETWORK, "--hostname", host, "--network-alias", host)
            options = (*network, *RIGHTS, "--shm-size", "512m", "--name", self.container(host))
            self._engine.docker("run", "-d", *options, image)
        lines = "".join(f"{host} slots={self._ranks}\\n" for host in self.names)
        self.run(self.names[0], f"printf '{lines}' >/tmp/hosts")
        self.launch()

    def launch(self) -> None:
        """Starts the server; returns once all ranks serve."""
        launch = "deploy/mpirun/launch.sh --hostfile /tmp/hosts --config /etc/server.pbtxt"
        script = f"{launch} >/tmp/log 2>&1; echo ended $? >>/tmp/log"
        first = self.container(self.names[0])
        self._engine.docker("exec", "-d", first, "bash", "-c", script)
        ports = range(7070, 7070 + self._ranks)
        addresses = " ".join(f"{host}:{port}" for host in self.names for port in ports)
        health = f"slotwise-ctl health --quiet --wait 120 {addresses}"
        self.run(self.names[0], f"{health} || (cat /tmp/log; false)")

    def run(self, host: str, script: str) -> str:
        """Runs a shell script on a host."""
        return self._engine.docker("exec", self.container(host), "bash", "-c", script)

    def ranks_on(self, host: str) -> str:
        """The processes of ranks on a host, or "none"."""
        return self.run(host, "pidof slotwise-server || echo none").strip()

    def keys(self) -> list[str]:
        """The hosts' keys, as sshd tells any client."""
        said = self.run(self.names[0], f"ssh-keyscan -p 2222 {' '.join(self.names)} 2>/dev/null")
        return [line.split()[-1] for line in said.splitlines() if not line.startswith("#")]

    def log(self) -> str:
        """What the launcher and all ranks have said."""
        return self.run(self.names[0], "cat /tmp/log")

    def await_end(self) -> str:
        """Waits until the launcher has ended; returns all that was said."""
        wait_until(lambda: "\nended " in self.log(), "the launcher's end", 60)
        return self.log()

    def remove(self) -> None:
        """Removes the hosts."""
        for host in self.names:
            self._engine.docker("rm", "-f", self.container(host), good=False)


@contextmanager
def running(engine: Engine, image: str, count: int, ranks: int) -> Iterator[Hosts]:
    """Hosts with a server that serves."""
    hosts = Hosts(engine, count, ranks)
    hosts.remove()
    engine.docker("network", "rm", NETWORK, good=False)
    engine.docker("network", "create", NETWORK)
    try:
        hosts.start(image)
        yield hosts
    finally:
        hosts.remove()
        engine.docker("network", "rm", NETWORK)


def train(engine: Engine) -> float:
    """Trains in a container of its own; the test AUC."""
    script = "python3 -u examples/adult/train.py --server h1:7070 --timeout 60 --epochs 1 --out /tmp"
    said = engine.inside(IMAGES["trainer"], script, "--network", NETWORK)
    return float(re.findall(r"test AUC (0\.\d+)", said)[-1])


def test_the_image_has_no_keys(engine: Engine) -> None:
    said = engine.inside(IMAGES["host"], "ls -A /etc/ssh .ssh; id -un")
    assert "_key" not in said and "id_" not in said
    assert said.endswith("slotwise\n")


@pytest.mark.parametrize(("count", "ranks"), [(2, 2), (4, 1)])
def test_a_trainer_learns_on_several_hosts(engine: Engine, host_image: str, count: int, ranks: int) -> None:
    with running(engine, host_image, count, ranks) as hosts:
        for host in hosts.names:
            assert hosts.run(host, "id -un").strip() == "slotwise"
        assert len(set(hosts.keys())) == count, "every host has a key of its own"
        assert train(engine) > GOOD_AUC
        topology = hosts.run("h1", "slotwise-ctl --json status")
        addresses = re.findall(r'"address":\s*"(h\d:\d+)"', topology)
        assert addresses == [f"h{h + 1}:{7070 + rank}" for h in range(count) for rank in range(ranks)]
        hosts.run("h1", "kill -TERM $(pidof -s slotwise-server)")
        assert hosts.await_end().endswith("ended 0\n")


def test_a_slow_network_is_only_slow(engine: Engine, host_image: str) -> None:
    with running(engine, host_image, 2, 1) as hosts:
        container = hosts.container("h2")
        # A container may not change its network: a namespace of the engine's host does it from outside.
        process = str(engine.inspect(container)["State"]["Pid"])
        netem = ("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "5ms")
        said = engine.run("nsenter", "-t", process, "-n", *netem, good=False)
        if "qdisc kind is unknown" in said:
            pytest.skip("this machine's kernel has no netem")
        assert not said
        assert train(engine) > GOOD_AUC


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_a_host_that_is_gone_ends_all_ranks(engine: Engine, host_image: str, how: str) -> None:
    with running(engine, host_image, 2, 2) as hosts:
        if how == "killed":
            engine.docker("kill", hosts.container("h2"))
        else:
            engine.docker("network", "disconnect", NETWORK, hosts.container("h2"))
        wait_until(lambda: hosts.ranks_on("h1") == "none", "the end of the ranks that are left", 60)
        said = hosts.log()
        assert re.search("rank [23]", said), "the log names a rank of the host that is gone"
        if how == "killed":  # a launcher does not hear that a network is cut, and waits for the other host's
            assert not hosts.await_end().endswith("ended 0\n")
            return
        # The ranks beyond the cut have ended, too: none is left that would go on by itself when it is mended.
        wait_until(lambda: hosts.ranks_on("h2") == "none", "the end of the ranks beyond the cut", 60)
        engine.docker("network", "connect", "--alias", "h2", NETWORK, hosts.container("h2"))
        hosts.run("h1", "kill -KILL $(pidof mpirun)")
        hosts.await_end()
        hosts.launch()
        assert train(engine) > GOOD_AUC
