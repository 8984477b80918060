"""Shows Doxygen a header of ours: plain // comments as its own ///, and no word of them as a command or tag.

The comment that opens a file becomes the file's; one behind a member becomes that member's.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_WHOLE_LINE = re.compile(r"^(\s*)//(?!/)\s?(.*)$")
_BEHIND = re.compile(r"^(\s*\S.*[;,{})\w])\s+//\s(.*)$")


def plain(text: str) -> str:
    """The words of a comment with Doxygen's own marks taken as letters; code in `...` stays code."""
    parts = text.split("`")
    return "`".join(part if i % 2 else re.sub(r"([\\@<>&#%])", r"\\\1", part) for i, part in enumerate(parts))


def show(lines: list[str]) -> list[str]:
    """The header's lines for Doxygen."""
    shown: list[str] = []
    for line in lines:
        comment = _WHOLE_LINE.match(line)
        behind = None if comment or '"' in line else _BEHIND.match(line)
        if comment and "NOLINT" not in line:
            mark = "///" if shown else "/// @file\n///"
            shown.append(f"{comment[1]}{mark} {plain(comment[2])}")
        elif behind and "NOLINT" not in line and not behind[2].startswith("namespace"):
            shown.append(f"{behind[1]} ///< {plain(behind[2])}")
        else:
            shown.append(line)
    return shown


if __name__ == "__main__":
    print("\n".join(show(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())))
