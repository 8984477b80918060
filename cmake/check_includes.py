"""Checks that rooms include each other one way only, and that docs/design.md says which way.

Prints one line for each forbidden #include, and for each room of which the page says something else, and
exits 1 if there is one. Run by `./dev lint` and by CTest.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What server/collective shows of itself.
COLLECTIVE_HEADERS = {
    f"server/collective/{name}.h" for name in ("bell", "collective", "device_array", "exchange")
}

# A room is a folder. A room within another one may be included by the outer one, and by all that may include
# the outer one. Of each: the rooms (or the only files of a room) and the libraries that it may include.
# A room may include itself, the contracts and the standard library. Tests, benchmarks and main.cc see all.
ROOMS: dict[str, tuple[set[str], set[str]]] = {
    "include": (set(), set()),
    "kernels": (set(), {"tbb", "cuda"}),
    "server/access": (set(), {"spdlog", "openssl"}),
    "server/collective": (
        {"kernels/shard.h", "kernels/backend/cuda_check.cuh", "server/counters"},
        {"mpi", "nccl", "cuda"},
    ),
    "server/counters": (set(), set()),
    "server/durability": (
        {"proto", "server/counters", "wire/json.h", "wire/table_options_proto.h"},
        {"grpc"},
    ),
    "server/engine/schedule": (
        {f"server/engine/{name}.h" for name in ("batch_part", "budget", "caller", "clock", "tables")},
        set(),
    ),
    "server/engine": (
        {*COLLECTIVE_HEADERS, "kernels/shard.h", "server/access", "server/counters", "server/durability"},
        {"spdlog"},
    ),
    "wire": ({"proto"}, {"grpc", "asio"}),
    "server/intake": ({"server/access", "server/counters", "server/engine", "proto", "wire"}, {"spdlog"}),
    "server/data": ({"server/access", "server/intake", "server/engine", "proto", "wire"}, {"asio", "spdlog"}),
    "server/rpc": (
        {
            "server/access",
            "server/data",
            "server/intake",
            "server/engine",
            "server/durability",
            "proto",
            "wire",
        },
        {"grpc", "openssl", "spdlog"},
    ),
    "server/ops": ({"server/access", "server/counters", "proto"}, {"grpc", "prometheus", "spdlog"}),
    "server/launch": (
        {
            *(f"server/durability/{name}.h" for name in ("folder_lock", "open_file", "small_file")),
            "wire/standard_output.h",
        },
        {"spdlog"},
    ),
    "client/cpp": ({"proto", "wire"}, {"grpc", "asio"}),
    "client/c": ({"wire"}, set()),
    "client/ctl": ({"proto", "wire"}, {"grpc"}),
}

# Which #include <...> belongs to which library. What matches none is the standard library, or harmless.
LIBRARIES = {
    "cuda": re.compile(r"cuda|cub/|thrust/|curand|cooperative_groups|nv/"),
    "nccl": re.compile(r"nccl"),
    "mpi": re.compile(r"mpi"),
    "tbb": re.compile(r"(oneapi/)?tbb/"),
    "grpc": re.compile(r"grpc|google/protobuf/"),
    "spdlog": re.compile(r"spdlog/"),
    "asio": re.compile(r"asio"),
    "openssl": re.compile(r"openssl/"),
    "prometheus": re.compile(r"prometheus/|CivetServer|civetweb"),
}
CUDA_FILES = re.compile(r"kernels/backend/cuda[a-z_]*\.cuh$|.*\.cu$|server/collective/nccl[a-z_]*\.[^/]*$")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def room_of(path: str) -> str:
    """The room that a file of the repository, or an #include "...", lies in; "" if in none."""
    if path.startswith(("slotwise/v1/", "grpc/health/", "grpc/reflection/")):
        return "proto"
    if path.startswith("slotwise/"):
        return "include"
    return next((room for room in ROOMS if path.startswith(room + "/")), "")


def objection(file: str, bracket: str, included: str) -> str | None:
    """Why `file` may not include `included`, or None if it may."""
    room = room_of(file)
    matching = (name for name, pattern in LIBRARIES.items() if pattern.match(included))
    library = next(matching, None) if bracket == "<" else None
    if library in ("cuda", "nccl") and not CUDA_FILES.match(file):
        return "CUDA headers belong in kernels/backend/cuda*.cuh, *.cu and server/collective/nccl* alone"
    if room not in ROOMS:
        return None
    rooms, libraries = ROOMS[room]
    if library and library not in libraries:
        return f"{room} does not know {library}"
    if bracket == "<":
        return None
    if "/" not in included:
        return "write the path from the repository's root"
    target = room_of(included)
    if any(target == known or target.startswith(f"{known}/") for known in {room, "include", *rooms}):
        return None
    if included in rooms:
        return None
    return f"{room} may not know {target or 'that'}"


def told(page: str) -> dict[str, set[str]]:
    """Of each room that the page's table has, what it says that the room may include."""
    rows = re.findall(r"^\| `([\w/]+)` \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    return {room: set(re.findall(r"`([^`]+)`", f"{rooms} {libraries}")) for room, rooms, libraries in rows}


def complaints_about(page: str) -> list[str]:
    """Where the page and ROOMS differ."""
    rows = told(page[page.index("## Rooms, and who may know whom") : page.index("## Threads")])
    true = {room: rooms | libraries for room, (rooms, libraries) in ROOMS.items()}
    return [
        f"docs/design.md: {room}: not {sorted(rows.get(room, set()))} but {sorted(true.get(room, set()))}"
        for room in sorted(rows.keys() | true.keys())
        if rows.get(room) != true.get(room)
    ]


def main() -> int:
    """Checks every C++ and CUDA file below the rooms, and the page."""
    complaints = complaints_about((ROOT / "docs" / "design.md").read_text(encoding="utf-8"))
    folders = ("include", "wire", "kernels", "server", "client", "tests", "bench")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    files = [path for path in paths if re.fullmatch(r"\.(h|inl|cc|cuh?)", path.suffix)]
    for path in sorted(files):
        file = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            why = objection(file, match[1], match[2])
            if why:
                line = text.count("\n", 0, match.start(2)) + 1
                complaints.append(f"{file}:{line}: #include of {match[2]}: {why}")
    print("\n".join(complaints) if complaints else f"includes go one way in {len(files)} files")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
