"""deploy/systemd's unit: what systemd says of it, and what it starts, run here as a plain process.

systemd need not be the first process here: that the server lives with what the unit takes from it is shown by
tests/release, which boots a system.
"""

from __future__ import annotations

import re
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from programs import LAUNCH, output_of, run, started
from slotwise_cluster import server_binary
from slotwise_wire import ROOT

UNIT = ROOT / "deploy" / "systemd" / "slotwise-server.service"
# Of 10; systemd calls up to 2 "OK", and what more than 5 has "medium".
MOST_EXPOSED = 2.5
PROGRAMS = ("slotwise-server", "slotwise-launch")


def settings(text: str) -> dict[str, list[str]]:
    """The unit's settings, each with all of its values."""
    found: dict[str, list[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def only(name: str) -> str:
    """The value of a setting that is there once."""
    (value,) = settings(UNIT.read_text())[name]
    return value


def environment() -> dict[str, str]:
    """The variables that the unit sets."""
    words = [word for value in settings(UNIT.read_text())["Environment"] for word in shlex.split(value)]
    return dict(word.split("=", 1) for word in words)


def verify(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """systemd-analyze verify of a unit whose programs are stand-ins."""
    for program in PROGRAMS:
        stand_in = tmp_path / program
        stand_in.write_text("#!/bin/sh\n")
        stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
        text = text.replace(f"/usr/bin/{program}", str(stand_in))
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    return run("systemd-analyze", "verify", "--man=no", unit)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    ended = verify(tmp_path, UNIT.read_text())
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("TimeoutStopSec", "TimeoutStopSecs", "'TimeoutStopSecs'"),
        ("KillMode=mixed", "KillMode=some", "some"),
        ("Restart=on-abnormal", "Restart=on-abnormality", "on-abnormality"),
        ("@system-service", "@system-services", "@system-services"),
        ("ExecStart=/usr/bin/", "ExecStart=/usr/lib/none/", "not executable"),
    ],
)
def test_a_mutant_is_found(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = UNIT.read_text()
    assert old in text
    ended = verify(tmp_path, text.replace(old, new))
    assert words in ended.stderr, ended


def test_the_unit_leaves_the_server_few_rights() -> None:
    limits = ("--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}")
    print(output_of("systemd-analyze", "security", *limits, UNIT).splitlines()[-1])


def test_graces_are_in_order() -> None:
    (drain,) = re.findall(r"kShutdownGrace\{(\d+)\}", (ROOT / "server/main.cc").read_text())
    kill = environment()["OMPI_MCA_odls_base_sigkill_timeout"]
    assert int(drain) < int(kill) < int(only("TimeoutStopSec"))
    # Every process of the group would else hear SIGTERM, and mpirun kills its ranks then.
    assert only("KillMode") == "mixed"


def test_the_package_has_the_unit_and_starts_nothing() -> None:
    script = (ROOT / "deploy/release/debian_package.sh").read_text()
    assert f'"$root/lib/systemd/system" "$source/deploy/systemd/{UNIT.name}"' in script
    assert not re.search("systemctl|postinst|deb-systemd", script)


def test_what_the_unit_starts_serves_and_stops(tmp_path: Path) -> None:
    sync = "durability { mode: DURABILITY_MODE_SYNC }"  # the unit says where
    (tmp_path / "server.pbtxt").write_text(f'listen: "127.0.0.1:0"\nbackend: BACKEND_CPU\n{sync}\n')
    variables: dict[str, Any] = environment() | {"SLOTWISE_RANKS": "2", "SLOTWISE_FLAGS": "--threads 1"}
    places = {
        "/usr/bin/slotwise-server": str(server_binary()),
        "/usr/bin/slotwise-launch": str(LAUNCH),
        "/etc/slotwise": str(tmp_path),
        "%S/slotwise": str(tmp_path / "data"),
        "${SLOTWISE_RANKS}": variables["SLOTWISE_RANKS"],
        "$SLOTWISE_FLAGS": variables["SLOTWISE_FLAGS"],
    }

    def here(command: str) -> list[str]:
        for there, place in places.items():
            command = command.replace(there, place)
        return command.split()

    (variables["HOME"],) = here(variables["HOME"])

    output_of(*here(only("ExecStartPre")))
    with started(tmp_path / "log", *here(only("ExecStart")), **variables) as process:
        process.await_serving()
        process.stop()
        assert process.log().count(" stopped\n") == 2, process.log()
