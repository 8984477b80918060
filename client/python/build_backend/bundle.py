"""Puts compiled programs and libraries into a folder, with every library they need beside them.

As auditwheel does, which neither Debian nor Ubuntu packages, with two differences: libraries keep no
symbol that the loader would share with another copy in the process (elf.py, rename.py), and libmpi.so is
left to the host, because it has to fit the host's mpirun.

A library in the folder has a name of its own (libre2-slotwise-1a2b3c4d.so.9, the hash being its
content's), because the loader takes a library that is already in the process for another of its name.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from elf import ElfFile
from rename import rename_symbols

# What every host with that glibc has: libraries that the manylinux policies allow.
HOST_LIBRARIES = frozenset(
    f"{name}.so.{version}"
    for name, version in {
        "libc": 6, "libm": 6, "libdl": 2, "librt": 1, "libpthread": 0,
        "libgcc_s": 1, "libstdc++": 6, "libz": 1, "libmpi": 40,
    }.items()
) | {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}  # fmt: skip

# The newest C++ symbols that a host may be asked for: GCC 12's, of Debian 12.
_NEWEST = {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}


class BundleError(Exception):
    """A library cannot be found, or would not load on the hosts; the text is for people."""


def bundle(files: Iterable[Path], folder: Path, glibc: tuple[int, int]) -> list[Path]:
    """Copies `files` and all the libraries that they need to `folder`, stripped.

    Returns the libraries copied, as they were found on this machine. Raises BundleError if a file
    wants a newer C library than `glibc`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = list(files)
    libraries = _libraries_of(files)
    names = {soname: _own_name(path) for soname, path in libraries.items()}
    for path in files:
        _copy(path, folder / path.name, names, soname=None)
    for soname, path in libraries.items():
        _copy(path, folder / names[soname], names, soname=names[soname])
    copies = sorted(folder.iterdir())
    host = {path for file in files for name, path in _loaded_by(file).items() if name in HOST_LIBRARIES}
    rename_symbols(copies, [folder / name for name in names.values()], host)
    for path in copies:
        _check(path, glibc)
    return sorted(libraries.values())


def licences(libraries: Iterable[Path], folder: Path) -> int:
    """Writes the copyright files of the libraries' Debian packages; returns how many."""
    folder.mkdir()
    packages = {_package_of(path) for path in libraries}
    for package in packages:
        text = Path("/usr/share/doc", package.partition(":")[0], "copyright")
        if not text.exists():
            raise BundleError(f"{package} has no {text}: a wheel cannot be given on without it")
        shutil.copyfile(text, folder / f"{text.parent.name}.txt")
    return len(packages)


def _libraries_of(files: Iterable[Path]) -> dict[str, Path]:
    """Every library below `files` that is not the host's, by the name it is linked by."""
    found: dict[str, Path] = {}
    for file in files:
        where = _loaded_by(file)
        wanted = ElfFile(file).needed()
        while wanted:
            name = wanted.pop()
            if name in HOST_LIBRARIES or name in found:
                continue
            if name not in where:
                raise BundleError(f"{file.name} needs {name}, which is not on this machine")
            found[name] = where[name]
            wanted += ElfFile(where[name]).needed()
    return dict(sorted(found.items()))


def _loaded_by(file: Path) -> dict[str, Path]:
    """What the loader finds for a file: a path for each name."""
    listed = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
    pairs = re.findall(r"^\s*(\S+) => (/\S+) \(0x", listed, re.MULTILINE)
    return {name: Path(path).resolve() for name, path in pairs}


def _own_name(path: Path) -> str:
    soname = ElfFile(path).soname() or path.name
    stem, so, version = soname.partition(".so")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    return f"{stem}-slotwise-{digest}{so}{version}"


def _copy(path: Path, target: Path, names: dict[str, str], soname: str | None) -> None:
    shutil.copyfile(path, target)
    is_library = ".so" in target.name
    target.chmod(0o644 if is_library else 0o755)
    # In this order: strip does not understand all that patchelf writes.
    _run(["strip", "--strip-unneeded", str(target)])
    if is_library:
        ElfFile(target).make_unique_symbols_weak()
    replacements: list[str] = []
    for needed in ElfFile(target).needed():
        if needed in names:
            replacements += ["--replace-needed", needed, names[needed]]
    # One kind of change at a time: older versions of patchelf give all of them the last one's value.
    for change in (["--set-soname", soname] if soname else [], replacements, ["--set-rpath", "$ORIGIN"]):
        if change:
            _run(["patchelf", *change, str(target)])


def _check(path: Path, glibc: tuple[int, int]) -> None:
    """Raises BundleError if the file would not load on a host with that glibc."""
    elf = ElfFile(path)
    for needed in elf.needed():
        if needed not in HOST_LIBRARIES and not (path.parent / needed).exists():
            raise BundleError(f"{path.name} needs {needed}, which was not bundled")
    newest = _NEWEST | {"GLIBC": (*glibc, 0)}
    for library, version in elf.required_versions():
        name, _, number = version.partition("_")
        if library in HOST_LIBRARIES and name in newest and number[:1].isdigit():
            wanted = tuple(map(int, number.split(".")))
            if wanted > newest[name]:
                raise BundleError(f"{path.name} needs {version}, newer than the wheel's hosts have")


def _package_of(library: Path) -> str:
    """The Debian package that a file is from. Packages may know it by its path before /usr merged."""
    paths = [str(library), str(library).removeprefix("/usr")]
    found = subprocess.run(["dpkg-query", "-S", *paths], capture_output=True, text=True, check=False)
    package = found.stdout.partition(": ")[0]
    if not package:
        raise BundleError(f"no Debian package has {library}, so its licence is not known")
    return package


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BundleError(f"{' '.join(command)} failed: {done.stderr.strip()}")
