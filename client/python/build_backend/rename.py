"""Gives the symbols of bundled libraries names that nothing else in a process has.

A library that is opened RTLD_LOCAL is still searched last: a symbol of that name in the program, or in a
library that something opened RTLD_GLOBAL (as TensorFlow opens its own, with Protobuf and gRPC in them),
comes first. Names of one's own end that, for good, and for every way of loading.

A new name has the old one's length and the old one's hash in .gnu.hash, h = 33 h + c for each character c:
where two characters x, y become x + 1, y - 33 (or x - 1, y + 33), h stays the same. So the loader's hash
tables, the symbol tables' order and all relocations stay as they are, and a rename is two bytes in the
table of strings. grpc_init becomes hQpc_init; in C++ names a pair inside an identifier is chosen, so they
still demangle.

A linker stores a name that another one ends with inside that other one. So a name changes where the
shortest name that it ends with does, in every file, whether stored so or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from elf import ElfFile

_PAIR_IN_IDENTIFIER = re.compile(r"\d([a-y])([b-z])")
_LINKERS_OWN = frozenset({"_init", "_fini", "_edata", "_end", "_etext"})


def rename_symbols(files: Iterable[Path], libraries: Iterable[Path], host: Iterable[Path]) -> int:
    """Renames in all `files` what the `libraries` among them define and the `host`'s do not.

    Returns how many names changed. ValueError if a file has another hash table than .gnu.hash.
    """
    elves = [ElfFile(path) for path in files]
    if any(elf.has_old_hash_table() for elf in elves):
        raise ValueError("a library has a hash table of names that cannot change (DT_HASH)")
    ours = {name for path in libraries for name in _defined(ElfFile(path)) if _can_change(name)}
    ours -= {name for path in host for name in _defined(ElfFile(path))}
    taken = {name for elf in elves for name in elf.symbol_names().values()}
    ours -= {name for name in ours if new_name(name, {name}) in taken}
    while in_the_way := {name for elf in elves for name in _in_the_way(elf, ours)}:
        ours -= in_the_way
    for elf in elves:
        elf.replace_bytes(_new_bytes(elf, _pairs_of(elf, ours)))
    return len(ours)


def new_name(name: str, ours: set[str]) -> str:
    """Returns what becomes of a name: the same if neither it nor an end of it is in `ours`."""
    changed = bytearray(name.encode())
    for offset in _pair(name, ours):
        step = _step(changed[offset + 1])
        changed[offset] += step
        changed[offset + 1] -= 33 * step
    return changed.decode()


def _step(second: int) -> int:
    """What is added to the first character of a pair, so that the second one stays printable."""
    return 1 if second > ord("Z") else -1


def _defined(elf: ElfFile) -> set[str]:
    return {symbol.name for symbol in elf.symbols() if symbol.defined}


def _can_change(name: str) -> bool:
    return len(name) > 1 and not name.startswith("__") and name not in _LINKERS_OWN


def _own_pair(name: str) -> int:
    """Where the pair is that changes in a name, wherever the name is."""
    found = _PAIR_IN_IDENTIFIER.search(name) if name.startswith("_Z") else None
    return found.start(1) if found else 0


def _pair(name: str, ours: set[str]) -> dict[int, str]:
    """Where a pair changes in a name, if one does, and for the sake of which name.

    That is the shortest of `ours` that the name ends with, so that both can be stored as one.
    """
    starts = [0] if name.startswith("_Z") else range(len(name) - 1, -1, -1)
    cause = next((name[start:] for start in starts if name[start:] in ours), None)
    return {} if cause is None else {len(name) - len(cause) + _own_pair(cause): cause}


def _pairs_of(elf: ElfFile, ours: set[str]) -> dict[int, str]:
    """The same of a whole file: where pairs change, each once."""
    return {
        place + offset: cause
        for place, name in elf.symbol_names().items()
        for offset, cause in _pair(name, ours).items()
    }


def _new_bytes(elf: ElfFile, pairs: Iterable[int]) -> dict[int, int]:
    new = {}
    for place in pairs:
        step = _step(elf.byte_at(place + 1))
        new[place] = elf.byte_at(place) + step
        new[place + 1] = elf.byte_at(place + 1) - 33 * step
    return new


def _in_the_way(elf: ElfFile, ours: set[str]) -> set[str]:
    """Names that must stay, because other strings of the file share their bytes, and would change."""
    pairs = _pairs_of(elf, ours)
    new = _new_bytes(elf, pairs)
    wanted = {place: new_name(name, ours) for place, name in elf.symbol_names().items()}
    in_the_way = set()
    for place, text in (wanted | elf.other_strings()).items():
        for at, character in enumerate(text.encode(), start=place):
            if new.get(at, elf.byte_at(at)) != character:
                in_the_way |= {pairs[pair] for pair in (at, at - 1) if pair in pairs}
    return in_the_way
