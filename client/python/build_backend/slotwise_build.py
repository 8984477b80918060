"""Builds the wheel: what pip runs for `pip install ./client/python` (PEP 517), and `./dev wheel`.

setuptools makes a wheel of the Python files; what CMake compiles in the checkout is put into it, with
the libraries that it needs.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bundle import BundleError, bundle, licences
from setuptools import build_meta

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parents[1]
_BUILD = _CHECKOUT / "build" / "cpu"
_TOOLS = ["cmake", "ninja", "c++", "protoc", "patchelf", "strip", "ldd", "dpkg-query"]

# What the wheel carries, by CMake's target.
_COMPILED = {
    "slotwise_core": "client/c/libslotwise.so",
    "slotwise-server": "server/slotwise-server",
    "slotwise-server-solo": "server/slotwise-server-solo",
    "slotwise-ctl": "client/ctl/slotwise-ctl",
}

# Of what is compiled into these from headers alone, the licences are these packages'.
_HEADERS = [Path("/usr/include/CLI/CLI.hpp")]

# An editable install is the checkout itself, which finds what `./dev build` made.
build_editable = build_meta.build_editable
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel

Settings = Any  # pip's --config-settings, of which there are none


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Compiles, and writes the wheel into the folder; returns its name."""
    _compile()
    target = Path(wheel_directory).absolute()
    with _staging() as folder:
        pure = folder / str(build_meta.build_wheel(str(folder)))
        contents = folder / "contents"
        with zipfile.ZipFile(pure) as archive:
            archive.extractall(contents)
        glibc = _glibc()
        try:
            native = contents / "slotwise" / "_native"
            libraries = bundle([_BUILD / path for path in _COMPILED.values()], native, glibc)
            licences([*libraries, *_HEADERS], native / "licences")
        except BundleError as error:
            sys.exit(f"slotwise: {error}")
        tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"
        wheel = target / pure.name.replace("py3-none-any", tag)
        _retag(contents, tag)
        _pack(contents, wheel)
    return wheel.name


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """Writes the wheel's metadata, for which nothing is compiled."""
    target = Path(metadata_directory).absolute()
    with _staging():
        name: str = build_meta.prepare_metadata_for_build_wheel(str(target))
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Refuses: the package alone cannot be compiled."""
    sys.exit("slotwise: there is no source distribution but the repository: ./dev wheel makes a wheel")


def _compile() -> None:
    """Brings what the wheel carries up to date in build/cpu."""
    _check_checkout()
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        sys.exit(
            f"slotwise: compiling needs {', '.join(missing)}, which is not here: run ./dev setup "
            "build and ./dev setup wheel, or install a wheel that ./dev wheel made elsewhere"
        )
    configure = ["cmake", "--preset", "cpu"]
    build = ["cmake", "--build", str(_BUILD), "--target", *_COMPILED]
    for command in (configure, build):
        if subprocess.run(command, cwd=_CHECKOUT, check=False).returncode:
            sys.exit(f"slotwise: {' '.join(command)} failed (above): did ./dev setup build run?")


def _check_checkout() -> None:
    if not (_CHECKOUT / "CMakePresets.json").exists():
        sys.exit(
            f"slotwise: {_PACKAGE} lies in no checkout of Slotwise, whose C++ sources the package "
            "is built from: install from a checkout, or a wheel that ./dev wheel made in one"
        )


@contextlib.contextmanager
def _staging() -> Iterator[Path]:
    """A copy of the Python sources, as the working directory.

    What setuptools leaves behind stays there, and nothing that it left behind earlier is taken.
    """
    _check_checkout()
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="slotwise-wheel-") as name:
        folder = Path(name)
        ignored = shutil.ignore_patterns("__pycache__", "_native")
        shutil.copytree(_PACKAGE / "slotwise", folder / "slotwise", ignore=ignored)
        for file in (_PACKAGE / "pyproject.toml", _PACKAGE / "README.md", _CHECKOUT / "LICENSE"):
            shutil.copy(file, folder)
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def _glibc() -> tuple[int, int]:
    """The version of this machine's C library; hosts have this one or a newer one."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if name != "glibc":
        sys.exit("slotwise: this machine's C library is not glibc, for which alone wheels are made")
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _retag(contents: Path, tag: str) -> None:
    (wheel,) = contents.glob("*.dist-info/WHEEL")
    replaced = ("Tag:", "Root-Is-Purelib:")
    kept = [line for line in wheel.read_text().splitlines() if line and not line.startswith(replaced)]
    wheel.write_text("\n".join([*kept, "Root-Is-Purelib: false", f"Tag: {tag}"]) + "\n")


def _pack(contents: Path, wheel: Path) -> None:
    """Writes the wheel, the same bytes from the same contents, with a new RECORD."""
    (record,) = contents.glob("*.dist-info/RECORD")
    record.unlink()
    lines = []
    partial = wheel.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(path for path in contents.rglob("*") if path.is_file()):
            name, data = str(path.relative_to(contents)), path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
            _add(archive, name, data, path.stat().st_mode)
        name = str(record.relative_to(contents))
        _add(archive, name, "".join([*lines, f"{name},,\n"]).encode(), 0o100644)
    partial.replace(wheel)


def _add(archive: zipfile.ZipFile, name: str, data: bytes, mode: int) -> None:
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.external_attr = (0o100755 if mode & 0o100 else 0o100644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)
