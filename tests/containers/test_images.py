"""The images: small, without Python, not run as root, and with a list of what they are made of."""

from __future__ import annotations

import re

import pytest
from engine import IMAGES, VERSION, Engine

SERVER = IMAGES["server"]
MOST_BYTES = 150_000_000


def test_the_server_is_small_on_top_of_its_base(engine: Engine) -> None:
    added = engine.inspect(SERVER)["Size"] - engine.inspect("debian:12-slim")["Size"]
    print(f"slotwise:cpu has {added / 1e6:.0f} MB on top of its base")
    assert added < MOST_BYTES


@pytest.mark.parametrize("image", IMAGES.values())
def test_an_image_says_what_it_is(engine: Engine, image: str) -> None:
    config = engine.inspect(image)["Config"]
    prefix = "org.opencontainers.image."
    labels = {name.removeprefix(prefix): value for name, value in config["Labels"].items()}
    assert {"title", "description", "licenses", "version", "revision"} <= set(labels)
    assert labels["version"] == VERSION
    assert re.fullmatch("[0-9a-f]{40}|unknown", labels["revision"])
    assert config["User"] == "slotwise"


def test_the_server_needs_no_python_and_no_compiler(engine: Engine) -> None:
    for program in ("python3", "perl5", "g++", "cmake", "git"):
        said = engine.inside(SERVER, f"command -v {program} || echo there is none")
        assert said.strip() == "there is none", said


def test_its_list_of_packages_is_dpkgs(engine: Engine) -> None:
    spdx = engine.inside(SERVER, "cat /opt/slotwise/packages.spdx")
    assert spdx.startswith("SPDXVersion: SPDX-2.3\n")
    listed = set(re.findall(r"PackageName: (\S+)\nSPDXID: \S+\nPackageVersion: (\S+)", spdx))
    installed = engine.inside(SERVER, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'")
    expected = {(line.split()[0], line.split()[1]) for line in installed.splitlines() if line.endswith("ii ")}
    assert listed - {("slotwise", VERSION)} == expected
    assert ("slotwise", VERSION) in listed
    ids = re.findall(r"^SPDXID: (\S+)$", spdx, re.MULTILINE)
    assert len(ids) == len(set(ids)) == len(expected) + 2
    for each in re.findall(r"^Relationship: (\S+) \S+ (\S+)$", spdx, re.MULTILINE):
        assert set(each) <= set(ids)


def test_it_serves_with_nothing_to_write_to_and_no_rights(engine: Engine) -> None:
    options = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    script = (
        "id -u; ! touch /opt/slotwise/x 2>/dev/null; deploy/entrypoint.sh & "
        "bin/slotwise-ctl health --wait 60; kill -TERM $!; wait $!; echo ended $?"
    )
    said = engine.inside(SERVER, script, *options).splitlines()
    assert said[0] == "10001"
    assert "127.0.0.1:7070 is SERVING" in said
    assert said[-1] == "ended 0"
