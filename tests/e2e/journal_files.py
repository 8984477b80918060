"""What stands in the files of a journal: server/durability/journal_format.h."""

from __future__ import annotations

from pathlib import Path

SEGMENT_HEADER, RECORD_HEADER = 128, 64


def records_of(path: Path) -> list[int]:
    """Where records begin in a file, and where the last one ends."""
    data = path.read_bytes()
    assert data[:8] == b"SLWJRNL\n"
    places = [SEGMENT_HEADER]
    while data[places[-1] : places[-1] + 4] == b"SLWR":
        body = int.from_bytes(data[places[-1] + 16 : places[-1] + 24], "little")
        places.append(places[-1] + RECORD_HEADER + (body + 7) // 8 * 8)
    return places
