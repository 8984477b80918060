"""A folder whose files forget, in a power failure, what was not synced.

crash_at.c notes beside the folder what is synced, while a server changes the folder; ForgetfulFiles puts
the folder back to that. A file's bytes stay as of its last sync, a folder's names as of its last sync; a
name that was synced before its file was leads to an empty file. A disk may also have written some of the
rest, in any order: with `luck`, each changed page, length and name is kept or forgotten by a draw of its
own.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path
from random import Random

PAGE = 4096
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
_STATX_INO_AND_BTIME = 0x100 | 0x800
_LIBC = ctypes.CDLL(None, use_errno=True)


def identity(path: Path) -> str:
    """Returns what crash_at.c calls a file or folder: its inode's number and time of birth."""
    buffer = ctypes.create_string_buffer(256)
    if _LIBC.statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_INO_AND_BTIME, buffer) != 0:
        raise OSError(ctypes.get_errno(), "statx", str(path))
    facts = buffer.raw
    if not int.from_bytes(facts[0:4], "little") & 0x800:
        raise OSError(f"{path}: its file system does not know files' times of birth")
    inode = int.from_bytes(facts[32:40], "little")
    seconds = int.from_bytes(facts[80:88], "little", signed=True)
    return f"{inode}-{seconds}.{int.from_bytes(facts[88:92], 'little'):09d}"


class ForgetfulFiles:
    """The folder `root`, which lies where `shadow` lies, and may not exist yet."""

    def __init__(self, root: Path, shadow: Path) -> None:
        self.root = root
        self.shadow = shadow
        self.adopt()

    def adopt(self) -> None:
        """Counts everything below the root, as it is now, as synced."""
        shutil.rmtree(self.shadow, ignore_errors=True)
        for kind in ("content", "dirty", "folders"):
            (self.shadow / kind).mkdir(parents=True)
        self.root.mkdir(exist_ok=True)
        for folder, folders, files in os.walk(self.root):
            at = Path(folder)
            lines = [f"d {identity(at / name)} {name}\n" for name in folders]
            lines += [f"f {identity(at / name)} {name}\n" for name in files]
            (self.shadow / "folders" / identity(at)).write_text("".join(lines))
            for name in files:
                _copy_sparse(at / name, self.shadow / "content" / identity(at / name))

    def fail_power(self, luck: Random | None = None) -> None:
        """Puts the root back to what is synced; with `luck`, to that and some of the rest.

        REQUIRES: no process has it open to write.
        """
        present = {identity(path): path for path in [self.root, *self.root.rglob("*")]}
        fresh = self.root.with_name(self.root.name + ".after")
        shutil.rmtree(fresh, ignore_errors=True)
        self._put_back_folder(identity(self.root), fresh, present, luck)
        shutil.rmtree(self.root)
        fresh.rename(self.root)
        self.adopt()

    def _put_back_folder(self, key: str, to: Path, present: dict[str, Path], luck: Random | None) -> None:
        to.mkdir()
        for name, (kind, entry) in sorted(self._names(key, present, luck).items()):
            if kind == "d":
                self._put_back_folder(entry, to / name, present, luck)
            else:
                self._put_back_file(entry, to / name, present, luck)

    def _names(self, key: str, present: dict[str, Path], luck: Random | None) -> dict[str, tuple[str, str]]:
        synced: dict[str, tuple[str, str]] = {}
        noted = self.shadow / "folders" / key
        if noted.exists():
            for line in noted.read_text().splitlines():
                kind, entry, name = line.split(" ", 2)
                synced[name] = (kind, entry)
        if luck is None or key not in present:
            return synced
        now = {p.name: ("d" if p.is_dir() else "f", identity(p)) for p in present[key].iterdir()}
        chosen = {}
        for name in sorted(synced.keys() | now.keys()):
            one = luck.choice([synced.get(name), now.get(name)])
            if one is not None:
                chosen[name] = one
        return chosen

    def _put_back_file(self, key: str, to: Path, present: dict[str, Path], luck: Random | None) -> None:
        content = self.shadow / "content" / key
        _copy_sparse(content, to) if content.exists() else to.touch()
        dirty = self.shadow / "dirty" / key
        if luck is None or key not in present or not dirty.exists():
            return
        size = os.path.getsize(present[key])
        with open(present[key], "rb") as now, open(to, "r+b") as file:
            length = luck.choice([os.path.getsize(to), size])
            file.truncate(length)
            for line in dirty.read_text().splitlines():
                if not line.startswith("W "):
                    continue
                offset, bytes_ = map(int, line.split()[1:])
                for page in range(offset // PAGE * PAGE, offset + bytes_, PAGE):
                    if page < length and luck.random() < 0.5:
                        now.seek(page)
                        file.seek(page)
                        file.write(now.read(min(PAGE, length - page)))


def _copy_sparse(source: Path, to: Path) -> None:
    """Copies a file's bytes, and leaves holes where it has none."""
    with open(source, "rb") as read, open(to, "wb") as written:
        size = os.fstat(read.fileno()).st_size
        offset = 0
        while offset < size:
            try:
                offset = os.lseek(read.fileno(), offset, os.SEEK_DATA)
            except OSError:  # there are no more
                break
            end = os.lseek(read.fileno(), offset, os.SEEK_HOLE)
            while offset < end:
                block = os.pread(read.fileno(), min(1 << 20, end - offset), offset)
                os.pwrite(written.fileno(), block, offset)
                offset += len(block)
        written.truncate(size)
