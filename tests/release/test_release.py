"""A release of a copy of HEAD, installed where nothing else of ours is: `./dev test release`, as root.

The bare system is one of tests/wheel, of this machine's release, because that is what the package is for.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "wheel"))

from bare_system import BareSystem  # noqa: E402
from booted_system import boot  # noqa: E402

COPY = ROOT / "build" / "release-copy"  # beside the build, because its own build takes hundreds of MB
(VERSION,) = re.findall(
    r'^__version__ = "(.+)"$', (ROOT / "client/python/slotwise/version.py").read_text(), re.MULTILINE
)
_OF_COMMITS = {"NAME": "tester", "EMAIL": "tester@localhost", "DATE": "2026-11-24T12:00:00Z"}
WHO = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _OF_COMMITS.items()}


def run(*command: object, folder: Path = COPY, limit: float = 60.0, **environment: str) -> str:
    """Runs a command; what it printed. Fails if it does."""
    done = attempt(*command, folder=folder, limit=limit, **environment)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def attempt(
    *command: object, folder: Path = COPY, limit: float = 60.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | WHO | environment,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


def copy_of_head() -> None:
    """A repository in COPY whose one branch is HEAD."""
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.parent.mkdir(exist_ok=True)
    run("git", "-c", "advice.detachedHead=false", "clone", "-q", ROOT, COPY, folder=ROOT)


def add_entry() -> None:
    """Gives this version an entry in the copy's CHANGELOG.md, as the maintainer who releases it does."""
    changes = COPY / "CHANGELOG.md"
    text = changes.read_text()
    if f"\n## {VERSION}\n" not in text:
        changes.write_text(text.replace("\n## Unreleased\n", f"\n## {VERSION}\n", 1))
    if run("git", "status", "--porcelain"):
        run("git", "commit", "-qam", f"Release {VERSION}")


@pytest.fixture(scope="module")
def released() -> Iterator[Path]:
    """The dist of a release of HEAD."""
    copy_of_head()
    add_entry()
    said = run("./dev", "release", limit=3000)
    dist = COPY / "dist"
    assert (dist / "SHA256SUMS").read_text() in said
    yield dist
    shutil.rmtree(COPY)


@pytest.fixture(scope="module")
def system(released: Path) -> Iterator[BareSystem]:
    """A bare system with the package, and with the wheel in a virtual environment."""
    system = BareSystem(platform.freedesktop_os_release()["VERSION_CODENAME"])
    (package,) = released.glob("*.deb")
    (wheel,) = released.glob("*.whl")
    for file in (package, wheel):
        system.put(file, f"root/{file.name}")
    system.install([f"/root/{package.name}"])
    system.run("python3 -m venv --system-site-packages /root/slotwise")
    system.run(f"/root/slotwise/bin/python -m pip install --no-index /root/{wheel.name}")
    yield system
    system.remove()


def test_a_tree_with_changes_is_refused() -> None:
    copy_of_head()
    add_entry()
    for change in (COPY / "README.md", COPY / "new_file"):
        with open(change, "a") as file:
            file.write("one more line\n")
        done = attempt("./dev", "release")
        assert done.returncode == 1 and "refuses a tree with changes" in done.stderr, done.stderr
        assert change.name in done.stderr and not (COPY / "dist").exists()
        run("git", "stash", "-q", "--include-untracked")


def test_a_version_without_an_entry_is_refused() -> None:
    copy_of_head()
    changes = COPY / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace(f"\n## {VERSION}\n", "\n## 0.0.0\n"))
    if run("git", "status", "--porcelain"):
        run("git", "commit", "-qam", "Forget the entry")
    done = attempt("./dev", "release")
    assert done.returncode == 1 and f'has no entry "## {VERSION}"' in done.stderr, done.stderr
    assert not (COPY / "dist").exists()


def test_the_sums_are_of_all_files(released: Path) -> None:
    run("sha256sum", "--check", "--strict", "SHA256SUMS", folder=released)
    summed = {line.split()[1] for line in (released / "SHA256SUMS").read_text().splitlines()}
    files = {file.name for file in released.iterdir()} - {"SHA256SUMS"}
    assert summed == files
    kinds = sorted(re.sub(r".*?(\.tar\.gz|\.deb|\.whl)$", r"\1", name) for name in files)
    assert kinds == [".deb", ".tar.gz", ".whl"]


def test_the_source_archive_is_the_same_whenever_it_is_made(released: Path, tmp_path: Path) -> None:
    archive = released / f"slotwise-{VERSION}.tar.gz"
    script = COPY / "deploy" / "release" / "source_archive.sh"
    run("touch", "README.md", "dev")
    again = 'umask 077; exec "$@"'
    made = tmp_path / "again.tar.gz"
    run("bash", "-c", again, "again", script, VERSION, made, TZ="Asia/Tokyo", LC_ALL="C")
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (archive, made)]
    assert digests[0] == digests[1]
    with tarfile.open(archive) as files:
        names = [name.partition("/")[2] for name in files.getnames() if not files.getmember(name).isdir()]
        assert {member.mtime for member in files} == {float(run("git", "log", "-1", "--format=%ct"))}
    assert sorted(names) == sorted(run("git", "ls-files").splitlines())


def test_the_package_is_the_same_if_its_programs_are(released: Path, tmp_path: Path) -> None:
    (package,) = released.glob("*.deb")
    script, moment = COPY / "deploy/release/debian_package.sh", run("git", "log", "-1", "--format=%ct")
    run(script, COPY / "build" / "cpu", VERSION, tmp_path, SOURCE_DATE_EPOCH=moment.strip())
    assert (tmp_path / package.name).read_bytes() == package.read_bytes()


def test_the_package_says_what_it_is_and_needs(released: Path) -> None:
    (package,) = released.glob("*.deb")
    fields = dict(re.findall(r"^(\S+): (.*)$", run("dpkg-deb", "--field", package), re.MULTILINE))
    assert (fields["Package"], fields["Version"]) == ("slotwise", VERSION)
    needs = {need.split()[0] for need in fields["Depends"].split(", ")}
    assert "openmpi-bin" in needs and any(need.startswith("libgrpc++") for need in needs), needs
    listed = run("dpkg-deb", "--contents", package)
    assert all(re.match(r"\S+ root/root ", line) for line in listed.splitlines()), listed
    programs = re.findall(r"^-rwxr-xr-x .*\./usr/bin/(\S+)$", listed, re.MULTILINE)
    assert sorted(programs) == ["slotwise-ctl", "slotwise-launch", "slotwise-server"]
    assert "./lib/systemd/system/slotwise-server.service" in listed


_SERVE = """
cd /root
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
mkdir -p data
slotwise-launch --data data -n {ranks} -- slotwise-server --durability sync >log 2>&1 & launcher=$!
trap 'kill -KILL $launcher 2>/dev/null || true; cat log >&2' EXIT
slotwise-ctl status --wait 60 >/dev/null
{script}
kill $launcher
wait $launcher
trap - EXIT
"""
_LOOKUP = """
import numpy as np, slotwise
ps = slotwise.connect("127.0.0.1:7070")
before = ps.lookup("ads", [7, 9])
ps.push("ads", [7, 9], None, np.ones_like(before))
assert np.allclose(ps.lookup("ads", [7, 9]), before - 0.5)
print("a step was trained")
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_package_serves_the_wheels_client(system: BareSystem, ranks: int) -> None:
    script = f"""
slotwise-ctl drop ads --missing-ok
slotwise-ctl create ads --dim 4 --learning-rate 0.5
slotwise-ctl tables --json >tables
/root/slotwise/bin/python -c '{_LOOKUP}'
slotwise-ctl digest ads"""
    said = system.run(_SERVE.format(ranks=ranks, script=script))
    assert "a step was trained" in said
    assert re.search(r"^[0-9a-f]{32}  2 rows, 1 steps$", said, re.MULTILINE), said
    (table,) = json.loads((system.folder / "root" / "tables").read_text())["tables"]
    assert (table["name"], table["dim"]) == ("ads", 4)
    # What it has kept is there again, on another number of ranks.
    again = system.run(_SERVE.format(ranks=3 - ranks, script="slotwise-ctl digest ads"))
    assert again.splitlines()[-1] == said.splitlines()[-1]


_UNDER_SYSTEMD = """
if systemctl is-enabled slotwise-server || systemctl is-active slotwise-server; then exit 1; fi
mkdir -p /etc/slotwise
cat >/etc/slotwise/server.pbtxt <<END
durability { folder: "/var/lib/slotwise" mode: DURABILITY_MODE_SYNC }
END
echo SLOTWISE_RANKS=2 >/etc/default/slotwise-server
trap 'journalctl --no-pager -u slotwise-server -o cat' EXIT
systemctl start slotwise-server
slotwise-ctl status --wait 60
slotwise-ctl create ads --dim 4 --learning-rate 0.5
slotwise-ctl digest ads >before
systemctl kill --kill-who=main -s KILL slotwise-server
until [[ $(systemctl show -p NRestarts --value slotwise-server) == 1 ]]; do sleep 0.2; done
slotwise-ctl status --wait 60
slotwise-ctl digest ads >after
cmp before after
systemctl stop slotwise-server
systemctl show -p Result -p ExecMainStatus slotwise-server
if pidof slotwise-server; then exit 1; fi
"""


def test_the_packages_unit_serves_under_systemd(system: BareSystem) -> None:
    system.install(["systemd", "systemd-sysv"])
    said = boot(system, _UNDER_SYSTEMD)
    assert "Result=success\nExecMainStatus=0\n" in said, said


def test_removing_the_package_leaves_the_data(system: BareSystem) -> None:
    system.run("mkdir -p /root/data && touch /root/data/kept && apt-get -y purge slotwise")
    assert not list((system.folder / "usr/bin").glob("slotwise*"))
    assert (system.folder / "root/data/kept").exists()
