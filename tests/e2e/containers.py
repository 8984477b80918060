"""The services of deploy/docker-compose.yml as plain processes on this machine: no engine is needed.

What a container has of its own is translated: the image's folder is the repository, a service's name is
127.0.0.1, ports are free ones from `first_port` on, and what is mounted lies in a folder of the test's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import programs
import yaml
from programs import CTL, LAUNCH
from slotwise_cluster import server_binary
from slotwise_wire import ROOT

COMPOSE_FILE = ROOT / "deploy" / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
_IMAGE_FOLDER = "/opt/slotwise"
_IMAGE_PORT = 7070


def services() -> dict[str, dict[str, Any]]:
    """The compose file's services of our images, by name."""
    described: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
    return {name: service for name, service in described.items() if "build" in service}


def stage(name: str) -> str:
    """The instructions of a stage of the Dockerfile."""
    for text in re.split(r"^(?=FROM )", DOCKERFILE.read_text(), flags=re.MULTILINE):
        if text.partition("\n")[0].endswith(f" AS {name}"):
            return text
    raise AssertionError(f"{DOCKERFILE} has no stage {name}")


def instruction(stage_name: str, keyword: str) -> list[str]:
    """The words of ENTRYPOINT or CMD in a stage; none if it is not there."""
    found = re.search(rf"^{keyword} (\[.*\])$", stage(stage_name), re.MULTILINE)
    words: list[str] = json.loads(found[1]) if found else []
    return words


class Container:
    """A service, ready to be run here."""

    def __init__(self, name: str, first_port: int, folder: Path) -> None:
        self._service = services()[name]
        self._first_port = first_port
        self._folder = folder
        self._mounted = dict(self._mount(volume) for volume in self._service.get("volumes", []))
        own = self._service.get("environment", {})
        own = {name: self._mounted.get(value, value) for name, value in own.items()}
        self.environment = own
        self.environment["SLOTWISE_SERVER"] = str(server_binary())
        self.environment["SLOTWISE_LAUNCH"] = str(LAUNCH)
        self.environment["PYTHONPATH"] = str(ROOT / "client/python")

    def command(self) -> list[str]:
        """The image's entrypoint, then the service's command."""
        target = self._service["build"]["target"]
        return self._here([*instruction(target, "ENTRYPOINT"), *self._service["command"]])

    def health_check(self) -> list[str]:
        """What tells whether it is healthy."""
        kind, *words = self._service["healthcheck"]["test"]
        assert kind == "CMD"
        return self._here(words)

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Runs a command as if inside, to its end."""
        return programs.run(*command, folder=ROOT, timeout=120, **self.environment)

    def _mount(self, volume: str) -> tuple[str, str]:
        source, target = volume.split(":")[:2]
        here = self._folder / Path(source).name
        if source.startswith("."):
            here.write_text(self._translate((COMPOSE_FILE.parent / source).read_text()))
        return target, str(here)

    def _here(self, words: list[str]) -> list[str]:
        translated = [self._mounted.get(word) or self._translate(word) for word in words]
        if translated[0] == f"{ROOT}/bin/slotwise-ctl":
            translated[0] = str(CTL)
        elif translated[0] == "python3":
            translated[0] = sys.executable
        return translated

    def _translate(self, text: str) -> str:
        text = text.replace(_IMAGE_FOLDER, str(ROOT))
        for host in ("0.0.0.0", *services()):
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])", "127.0.0.1", text)
        return re.sub(
            r"(?<=:)70\d\d\b", lambda port: str(int(port[0]) - _IMAGE_PORT + self._first_port), text
        )
