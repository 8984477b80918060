"""A container engine of the tests' own, and the images that they run, built from deploy/Dockerfile."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/wheel"))
import bare_system  # noqa: E402

COMPOSE_FILE = ROOT / "deploy/docker-compose.yml"
IMAGES = {"server": "slotwise:cpu", "host": "slotwise-host:cpu", "trainer": "slotwise-trainer"}
DEBIAN = "bookworm"
(VERSION,) = re.findall(
    r'^__version__ = "(.+)"$', (ROOT / "client/python/slotwise/version.py").read_text(), re.MULTILINE
)
# Seconds. The images take ten minutes on two busy cores.
BUILD_LIMIT = 3600.0
LIMIT = 300.0
MOST_OF_CCACHE = 2 << 30  # bytes: to copy more takes longer than to compile


def wait_until(condition: Callable[[], bool], what: str, limit: float = LIMIT) -> None:
    """Returns once `condition` holds; fails, naming `what`, if it does not in time."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit} s"
        time.sleep(0.2)


class Engine:
    """A dockerd with a folder of its own, which ends with it.

    With the environment's SLOTWISE_CONTAINER_ENGINE ("unix:///run/docker.sock") that one is used, with the
    images that it has, and left as it is but for these tests' containers.
    """

    def __init__(self) -> None:
        self.host = os.environ.get("SLOTWISE_CONTAINER_ENGINE", "")
        self._daemon: subprocess.Popen[bytes] | None = None
        if self.host:
            return
        # The names of Unix sockets are short.
        self._folder = Path(tempfile.mkdtemp(prefix="slotwise-engine-"))
        self.host = f"unix://{self._folder}/docker.sock"
        command = ["dockerd", "--data-root", f"{self._folder}/data", "--exec-root", f"{self._folder}/exec"]
        with open(self._folder / "log", "wb") as log:
            self._daemon = subprocess.Popen(
                [*command, "-H", self.host, "-p", f"{self._folder}/pid"], stdout=log, stderr=log
            )
        wait_until(self._answers, "dockerd answers")

    def close(self) -> None:
        """Ends the daemon, by its own process, and removes its folder."""
        if self._daemon is None:
            return
        self._daemon.send_signal(signal.SIGTERM)
        self._daemon.wait(LIMIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, *command: str, limit: float = LIMIT, good: bool = True, **variables: str) -> str:
        """Runs a program that talks to the engine; returns what it prints. With `good`, fails if it does."""
        environment, out = self._environment() | variables, subprocess.PIPE
        ended = subprocess.run(
            command, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True, timeout=limit, cwd=ROOT
        )
        said = f"{command}: exit {ended.returncode}\n{ended.stdout[-5000:]}"
        assert not good or ended.returncode == 0, said
        return ended.stdout

    def docker(self, *arguments: str, limit: float = LIMIT, good: bool = True) -> str:
        """Runs docker."""
        return self.run("docker", *arguments, limit=limit, good=good)

    def inspect(self, name: str) -> Any:
        """What the engine knows of an image or a container."""
        return json.loads(self.docker("inspect", name))[0]

    def inside(self, image: str, script: str, *options: str) -> str:
        """Runs a shell script in a container of an image; returns what it prints."""
        return self.docker("run", "--rm", *options, "--entrypoint", "sh", image, "-euc", script)

    def build(self) -> None:
        """Makes the base image of this machine's mirror, and the images of it."""
        if not self.docker("images", "-q", "debian:12"):
            self._import_base()
        build_image = "debian:12" if self._daemon is None else self._make_build_image()
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
        ).stdout.strip()
        for target, name in IMAGES.items():
            if self._daemon is None and self.docker("images", "-q", name):
                continue
            self.docker(
                *("build", "--network=host", "-f", "deploy/Dockerfile", "--target", target, "-t", name),
                *("--build-arg", f"VERSION={VERSION}", "--build-arg", f"REVISION={commit or 'unknown'}"),
                *("--build-arg", f"CPU_IMAGE={build_image}"),
                ".",
                limit=BUILD_LIMIT,
            )

    def _make_build_image(self) -> str:
        """An image to compile on: Debian 12 with what this machine's ccache has.

        Where this machine runs Debian 12 as well, what was compiled here is not compiled again.
        """
        if not shutil.which("ccache"):
            return "debian:12"
        where = ["ccache", "--get-config", "cache_dir"]
        folder = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        if not 0 < size <= MOST_OF_CCACHE:
            print(f"ccache's {folder} has {size} bytes: images are compiled without it")
            return "debian:12"
        name = "slotwise-build:cpu"
        with tempfile.NamedTemporaryFile("w", suffix=".Dockerfile") as file:
            file.write("FROM debian:12\nCOPY . /root/.cache/ccache/\n")
            # Objects that were compiled with warnings as errors are others for ccache.
            file.write(f"ENV SLOTWISE_WERROR={os.environ.get('SLOTWISE_WERROR', 'OFF')}\n")
            file.flush()
            self.docker("build", "-f", file.name, "-t", name, str(folder), limit=BUILD_LIMIT)
        return name

    def _import_base(self) -> None:
        with tempfile.TemporaryDirectory(prefix="slotwise-base-") as folder:
            root = Path(folder) / "root"
            mirror = bare_system.mirror_of_apt()
            packages = "--include=ca-certificates"
            bare_system.run(
                ["debootstrap", "--variant=minbase", packages, DEBIAN, str(root), mirror], limit=1200
            )
            for cache in ("var/cache/apt", "var/lib/apt/lists"):
                shutil.rmtree(root / cache)
                (root / cache).mkdir()
            # Debian's own image has this file too: dpkg does not wait for the disk.
            (root / "etc/dpkg/dpkg.cfg.d/docker-apt-speedup").write_text("force-unsafe-io\n")
            archive = ["tar", "-C", str(root), "-c", "."]
            with subprocess.Popen(archive, stdout=subprocess.PIPE) as packed:
                into = ["docker", "import", "-", "debian:12"]
                environment = self._environment()
                subprocess.run(into, stdin=packed.stdout, env=environment, check=True, timeout=LIMIT)
            self.docker("tag", "debian:12", "debian:12-slim")

    def _answers(self) -> bool:
        assert self._daemon is not None and self._daemon.poll() is None, (self._folder / "log").read_text()
        version = ["docker", "version"]
        return subprocess.run(version, env=self._environment(), capture_output=True).returncode == 0

    def _environment(self) -> dict[str, str]:
        environment = os.environ | {"DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "1"}
        # Debian's docker has BuildKit built in; another one on the path may lack it.
        return environment | {"PATH": f"/usr/bin:{environment['PATH']}"}


class Project:
    """deploy/docker-compose.yml's profile cpu, as a user runs it."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name

    def compose(self, *arguments: str, limit: float = LIMIT, good: bool = True) -> str:
        """Runs docker-compose."""
        command = ["docker-compose", "-p", self.name, "-f", str(COMPOSE_FILE), "--profile", "cpu"]
        return self._engine.run(*command, *arguments, limit=limit, good=good)

    def container(self, service: str) -> Any:
        """What the engine knows of a service's container."""
        return self._engine.inspect(self.compose("ps", "-q", service).split()[-1])

    def is_healthy(self, service: str) -> bool:
        """Whether the health check says so."""
        return bool(self.container(service)["State"]["Health"]["Status"] == "healthy")

    def inside(self, service: str, *command: str) -> str:
        """Runs a command in a service's container."""
        return self.compose("exec", "-T", service, *command)

    def remove(self) -> None:
        """Removes its containers, volumes and network."""
        self.compose("down", "--volumes", "--timeout", "60")


def names(lines: str) -> Sequence[str]:
    """The lines, without those that are empty."""
    return [line for line in lines.splitlines() if line]
