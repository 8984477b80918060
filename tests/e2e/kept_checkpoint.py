"""Makes a small data folder of this version, with one checkpoint, for the servers of all later versions.

    ./dev python tests/e2e/kept_checkpoint.py   # tests/fixtures/VERSION/data.tar.xz, and state.json beside it

tests/e2e/test_kept_versions.py starts servers on it. A version that was released keeps its folder as it is.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "client" / "python")]

import numpy as np  # noqa: E402
import slotwise  # noqa: E402
from slotwise.version import __version__  # noqa: E402

FIXTURES = ROOT / "tests" / "fixtures"
SEED = 20261124


def state(ps: slotwise.Client) -> dict[str, dict[str, Any]]:
    """What a server has of each of its tables."""
    tables = {}
    for table in ps.list_tables():
        digest = ps.digest(table.name)
        tables[table.name] = {"digest": digest.digest, "rows": digest.rows, "steps": digest.steps}
    return tables


def values(ps: slotwise.Client) -> list[list[float]]:
    """Some rows of the first table as numbers, because a digest says nothing of which number is wrong."""
    rows: np.ndarray = ps.lookup("clicks", np.arange(4, dtype=np.uint64), train=False)
    return [[float(element) for element in row] for row in rows]


def fill(ps: slotwise.Client) -> None:
    """Trains two tables by a few steps that are drawn the same every time."""
    draw = np.random.default_rng(SEED)
    ps.create_table("clicks", dim=4, optimizer=slotwise.Adam(lr=0.1))
    ps.create_table("users", dim=3, slots=2, combiner="mean", optimizer=slotwise.RowWiseAdaGrad(lr=0.1))
    for _ in range(5):
        keys = draw.integers(0, 40, 20, dtype=np.uint64)
        ps.push("clicks", keys, None, draw.normal(size=(20, 4)).astype(np.float32))
        ps.push("users", keys, None, draw.normal(size=(10, 6)).astype(np.float32))
    ps.erase("clicks", np.arange(5, 8, dtype=np.uint64))


def make(folder: Path) -> None:
    """Writes `folder`."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        data = Path(work) / "data"
        with slotwise.serve(data=data) as server, slotwise.connect(server.address) as ps:
            fill(ps)
            saved = ps.save()
            says = {"version": __version__, "id": saved.id, "tables": state(ps), "values": values(ps)}
        with tarfile.open(folder / "data.tar.xz", "w:xz") as archive:
            for part in ("lineage", f"checkpoints/{saved.id}"):
                archive.add(data / part, f"data/{part}", filter=ownerless)
    (folder / "state.json").write_text(json.dumps(says, indent=1) + "\n")


def ownerless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file of an archive, without its owner."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    make(FIXTURES / __version__)
