"""What bundling has to know of an ELF file, and the one thing that patchelf cannot change in it.

Of 64-bit little-endian files alone, which all machines that Slotwise runs on have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_DYNAMIC, _DYNSYM, _VERNEED, _VERDEF = 6, 11, 0x6FFFFFFE, 0x6FFFFFFD  # types of sections
_NEEDED, _HASH, _SONAME, _RUNPATH = 1, 4, 14, 29  # tags of the dynamic section
_WEAK, _GNU_UNIQUE = 2, 10  # bindings of symbols
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol.

    Attributes:
        name: without a version.
        name_place: of the name in the file.
        place: of its entry in the file.
        binding: STB_LOCAL, STB_GLOBAL, ... as a number.
        defined: here, and not only used.
    """

    name: str
    name_place: int
    place: int
    binding: int
    defined: bool

    @property
    def unique(self) -> bool:
        """Whether the loader takes one definition for the whole process."""
        return self.binding == _GNU_UNIQUE


class ElfFile:
    """A program or shared library, as it was when it was read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes = path.read_bytes()
        if not is_elf(path):
            raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
        (sections_at,) = struct.unpack_from("<Q", self._bytes, 0x28)
        size, count = struct.unpack_from("<HH", self._bytes, 0x3A)
        self._sections = [self._section(sections_at + i * size) for i in range(count)]

    def needed(self) -> list[str]:
        """The names of the libraries that it is linked to (DT_NEEDED)."""
        return self._dynamic_strings(_NEEDED)

    def soname(self) -> str | None:
        """The name that others link to it by."""
        return next(iter(self._dynamic_strings(_SONAME)), None)

    def runpath(self) -> str | None:
        """Where the loader looks for the libraries it needs."""
        return next(iter(self._dynamic_strings(_RUNPATH)), None)

    def symbols(self) -> Iterator[Symbol]:
        for table in self._of_kind(_DYNSYM):
            for place in range(table.offset, table.offset + table.size, _SYMBOL.size):
                name, info, _, section, _, _ = _SYMBOL.unpack_from(self._bytes, place)
                name_place = self._sections[table.link].offset + name
                yield Symbol(self._string(table, name), name_place, place, info >> 4, section != 0)

    def required_versions(self) -> Iterator[tuple[str, str]]:
        """Pairs of a library and a version of its symbols: ("libc.so.6", "GLIBC_2.34")."""
        for table in self._of_kind(_VERNEED):
            for file, version in self._required(table):
                yield self._string(table, file), self._string(table, version)

    def symbol_names(self) -> dict[int, str]:
        """The names of its dynamic symbols, by their place in the file."""
        return {symbol.name_place: symbol.name for symbol in self.symbols()}

    def other_strings(self) -> dict[int, str]:
        """What else its loader reads from the table of those names, by its place: libraries, versions."""
        found = {}
        for table in self._of_kind(_DYNAMIC):
            start = self._sections[table.link].offset
            for tag in (_NEEDED, _SONAME, _RUNPATH):
                for value in self._dynamic_values(tag):
                    found[start + value] = self._string(table, value)
        for table in [*self._of_kind(_VERNEED), *self._of_kind(_VERDEF)]:
            start = self._sections[table.link].offset
            for version in self._version_names(table):
                found[start + version] = self._string(table, version)
        return found

    def has_old_hash_table(self) -> bool:
        """Whether the loader might look names up by the hash of DT_HASH, not that of DT_GNU_HASH."""
        return bool(self._dynamic_values(_HASH))

    def byte_at(self, place: int) -> int:
        return self._bytes[place]

    def replace_bytes(self, new: Mapping[int, int]) -> None:
        """Writes the file with other bytes at some places."""
        changed = bytearray(self._bytes)
        for place, byte in new.items():
            changed[place] = byte
        self._path.write_bytes(changed)
        self._bytes = bytes(changed)

    def make_unique_symbols_weak(self) -> int:
        """Rewrites the file so that it has no STB_GNU_UNIQUE symbols; returns how many it had.

        GCC gives that binding to the static variables of templates and of inline functions. The
        loader looks such a symbol up in one table for the whole process, even for a library that
        was opened with RTLD_LOCAL: two copies of one library would share those variables, each
        believing them to be its own. A weak symbol, which is what `-fno-gnu-unique` compiles them
        to, is found in the library's own scope: once among the libraries that are linked together.
        """
        infos = [symbol.place + 4 for symbol in self.symbols() if symbol.unique]
        self.replace_bytes({info: _WEAK << 4 | self._bytes[info] & 0xF for info in infos})
        return len(infos)

    def _section(self, place: int) -> _Section:
        _, kind, _, _, offset, size, link = struct.unpack_from("<IIQQQQI", self._bytes, place)
        return _Section(kind, offset, size, link)

    def _of_kind(self, kind: int) -> Iterator[_Section]:
        return (section for section in self._sections if section.kind == kind)

    def _string(self, table: _Section, offset: int) -> str:
        start = self._sections[table.link].offset + offset
        return self._bytes[start : self._bytes.index(0, start)].decode()

    def _dynamic_values(self, wanted: int) -> list[int]:
        found = []
        for table in self._of_kind(_DYNAMIC):
            for place in range(table.offset, table.offset + table.size, 16):
                tag, value = struct.unpack_from("<qQ", self._bytes, place)
                if tag == 0:  # what follows the end is room that patchelf left
                    break
                if tag == wanted:
                    found.append(value)
        return found

    def _dynamic_strings(self, wanted: int) -> list[str]:
        values = self._dynamic_values(wanted)
        return [self._string(table, value) for table in self._of_kind(_DYNAMIC) for value in values]

    def _required(self, table: _Section) -> Iterator[tuple[int, int]]:
        """Where the names of a file and of a version are among the strings, for each."""
        entry, following = table.offset, 1
        while following:
            _, count, file, first, following = struct.unpack_from("<HHIII", self._bytes, entry)
            version = entry + first
            for _ in range(count):
                _, _, _, name, after = struct.unpack_from("<IHHII", self._bytes, version)
                yield file, name
                version += after
            entry += following

    def _version_names(self, table: _Section) -> Iterator[int]:
        """Where the names of versions, and of the files that have them, are among the strings."""
        if table.kind == _VERNEED:
            for pair in self._required(table):
                yield from pair
            return
        entry, following = table.offset, 1
        while following:
            header = struct.unpack_from("<HHHHIII", self._bytes, entry)
            count, first, following = header[3], header[5], header[6]
            name = entry + first
            for _ in range(count):
                offset, after = struct.unpack_from("<II", self._bytes, name)
                yield offset
                name += after
            entry += following


def is_elf(path: Path) -> bool:
    """Whether the file is one that ElfFile can read."""
    with open(path, "rb") as file:
        return file.read(6) == b"\x7fELF\x02\x01"
