"""Checks that no line of the given files has more than 110 columns: clang-format leaves comments alone.

Prints one line for each that is longer and exits 1 if there is one. Run by `./dev lint`.
"""

from __future__ import annotations

import sys
from pathlib import Path

MOST = 110


def main(files: list[str]) -> int:
    found = False
    for file in files:
        for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), start=1):
            if len(line) > MOST:
                print(f"{file}:{number}: {len(line)} columns, and at most {MOST} are allowed")
                found = True
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
