"""Makes the data folder of a server, for tests of all later versions: see tests/fault/test_kept_data.py.

    ./dev python tests/fault/kept_data.py tests/durability/fixtures/NAME      # NAME.tar.xz and NAME.json

Two ranks trained a table of every optimizer, with a schedule, slots and weights; saved a base of float32, a
delta of float16 and one of bfloat16, with erased keys; and pushed, imported, erased and dropped more, which
their journals have. NAME.json says what a server has that starts on it, and which step of its table each
named step was.
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
    sys.path[:0] = [str(ROOT / "client/python"), str(ROOT / "tests/e2e")]

import numpy as np  # noqa: E402
import slotwise  # noqa: E402
from crashing_server import CrashingServer  # noqa: E402
from kept_checkpoint import ownerless  # noqa: E402
from slotwise.optimizers import Optimizer  # noqa: E402

SEED = 20261122
SESSION = 0x5107_0001
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": slotwise.SGD(lr=0.1, schedule=slotwise.Schedule(warmup_steps=3)),
    "momentum": slotwise.Momentum(lr=0.1),
    "nesterov": slotwise.Nesterov(lr=0.1),
    "adagrad": slotwise.AdaGrad(lr=0.1),
    "rowwise": slotwise.RowWiseAdaGrad(lr=0.1),
    "rmsprop": slotwise.RMSProp(lr=0.1),
    "adam": slotwise.Adam(lr=0.1),
    "ftrl": slotwise.FTRL(lr=0.1),
}


class Training:
    """Steps that are drawn the same every time. Each has a name, and may be pushed again."""

    def __init__(self, epoch: int) -> None:
        self._session = slotwise.Session(SESSION, epoch=epoch)
        self._random = np.random.default_rng(SEED)

    def step(self, ps: slotwise.Client) -> dict[str, int]:
        """Pushes the next step; returns, by table, which step of the table it was."""
        draw = self._random
        pushes: dict[str, Any] = {}
        for name in OPTIMIZERS:
            slots = 2 if name == "adam" else 1
            keys = draw.integers(0, 40, (6, slots)).astype(np.uint64)
            gradients = draw.normal(size=(6, 3 * slots)).astype(np.float32)
            pushes[name] = (keys, None, gradients)
        return {name: int(number) for name, number in ps.push_many(pushes, step=self._session.next()).items()}

    def steps(self, ps: slotwise.Client) -> list[dict[str, int]]:
        return [self.step(ps) for _ in range(2)]


def erase_some(ps: slotwise.Client, first: int) -> None:
    for name in OPTIMIZERS:
        ps.erase(name, np.arange(first, first + 5, dtype=np.uint64))


def state(ps: slotwise.Client) -> dict[str, dict[str, Any]]:
    """What there is of every table."""
    tables = {}
    for table in ps.list_tables():
        info, digest = ps.describe_table(table.name), ps.digest(table.name)
        rate = round(info.base_learning_rate, 6)
        what = {"digest": digest.digest, "rows": digest.rows, "steps": digest.steps, "rate": rate}
        tables[table.name] = what
    return tables


def fill(ps: slotwise.Client) -> dict[str, Any]:
    """Fills an empty server. Returns its epoch, and which steps of their tables the steps were."""
    for name, optimizer in OPTIMIZERS.items():
        ps.create_table(name, dim=3, slots=2 if name == "adam" else 1, optimizer=optimizer)
    epoch = ps.topology().epoch
    training = Training(epoch)
    told = []
    for place, value_dtype in enumerate(("float32", "float16", "bfloat16")):
        told += training.steps(ps)
        erase_some(ps, 5 * place)
        saved = ps.save(delta=place > 0, value_dtype=value_dtype)
        assert saved.delta == (place > 0)
    told += training.steps(ps)
    erase_some(ps, 20)
    ps.import_rows("ftrl", np.arange(100, 105, dtype=np.uint64), np.ones((5, 3), np.float32))
    ps.set_learning_rate("adam", 0.5)
    ps.lookup("rowwise", np.arange(200, 205, dtype=np.uint64))
    ps.create_table("dropped", dim=2, optimizer=slotwise.SGD(lr=1.0))
    ps.drop_table("dropped")
    told += training.steps(ps)
    return {"epoch": epoch, "told": told}


def make(to: Path, work: Path) -> None:
    """Writes `to`.tar.xz and `to`.json."""
    server = CrashingServer(work, 2, "sync", "durability { max_deltas: 16 keep: 2 }")
    assert server.start(2), server.log
    with slotwise.connect(*server.addresses) as ps:
        says = fill(ps)
    server.kill_all()
    with tarfile.open(to.with_suffix(".tar.xz"), "w:xz") as archive:
        archive.add(server.data, "data", filter=ownerless)
    # Rows of 16 bits are not what they were before: what counts is what is read again.
    assert server.start(1), server.log
    with slotwise.connect(*server.addresses) as ps:
        says["tables"] = state(ps)
    server.kill_all()
    to.with_suffix(".json").write_text(json.dumps(says, indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        make(Path(sys.argv[1]), Path(folder))
