"""Bare systems to install a wheel in: a distribution's smallest, with Python, under a folder, by chroot."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_AS_ROOT = [] if os.geteuid() == 0 else ["sudo"]
# Bare systems, kept from one run to the next, because each takes a minute to make; and a copy of each
# that the tests use.
_KEPT = ROOT / "build" / "bare-systems"
_WITH_PYTHON = ["python3", "python3-venv", "python3-numpy"]


def releases() -> list[str]:
    """The releases of this machine's distribution that a wheel is for, by their code names."""
    family = platform.freedesktop_os_release()["ID"]
    return {"debian": ["bookworm", "trixie"], "ubuntu": ["noble"]}[family]


class BareSystem:
    """One release with Python and NumPy, made new from a kept one."""

    def __init__(self, release: str) -> None:
        kept, ready = _KEPT / release, _KEPT / f"{release}.ready"
        if not ready.exists():
            _KEPT.mkdir(parents=True, exist_ok=True)
            run(["rm", "-rf", str(kept)])
            mirror = mirror_of_apt()
            run(["debootstrap", "--variant=minbase", release, str(kept), mirror], limit=1200)
            self.folder = kept
            self.install(_WITH_PYTHON)
            ready.touch()
        self.folder = _KEPT / f"{release}.used"
        run(["rm", "-rf", str(self.folder)])
        run(["cp", "-a", "--reflink=auto", str(kept), str(self.folder)])

    def remove(self) -> None:
        """Removes the copy; the kept one stays."""
        run(["rm", "-rf", str(self.folder)])

    def install(self, packages: Sequence[str]) -> None:
        """Installs packages of the release, which are kept; the clock of a test does not run here."""
        run(["cp", "/etc/resolv.conf", f"{self.folder}/etc/resolv.conf"])
        if not any((self.folder / "var/lib/apt/lists").glob("*_Packages*")):
            self.run("apt-get update", limit=600)
        self.run(f"apt-get -y --no-install-recommends install {' '.join(packages)}", limit=1800)

    def run(self, script: str, limit: float = 300.0, **environment: str) -> str:
        """Runs a shell script inside, as root; returns what it prints. Fails if it does."""
        inside = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        settings = [f"{name}={value}" for name, value in (inside | environment).items()]
        inside_command = ["chroot", str(self.folder), "env", "-i", *settings, "sh", "-euc", script]
        # With /proc, for as long as the command runs: the loader finds libraries beside a program by it.
        mount = 'mount -t proc proc "$0/proc" && exec "$@"'
        command = ["unshare", "--mount", "sh", "-euc", mount, str(self.folder), *inside_command]
        return run(command, limit=limit)

    def put(self, source: Path, target: str) -> None:
        """Copies a file, or a folder with all in it, to a path inside."""
        run(["rm", "-rf", f"{self.folder}/{target}"])
        run(["cp", "-rT", str(source), f"{self.folder}/{target}"])


def run(command: Sequence[str], limit: float = 300.0) -> str:
    """Runs a command as root; returns what it prints. Fails with what it said if it fails."""
    done = subprocess.run(
        [*_AS_ROOT, *command], capture_output=True, text=True, timeout=limit, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def mirror_of_apt() -> str:
    """Where this machine's apt has its distribution's main packages from."""
    fields = "$(RELEASE) $(COMPONENT) $(REPO_URI)"
    listed = run(["apt-get", "indextargets", "--format", fields, "Identifier: Packages"])
    own = platform.freedesktop_os_release()["VERSION_CODENAME"]
    found = re.search(rf"^{own} main (\S+)$", listed, re.MULTILINE)
    assert found, f"apt knows no source of {own}:\n{listed}"
    return found[1]
