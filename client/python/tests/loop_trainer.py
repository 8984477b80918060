"""One of two trainers under DistributedDataParallel, as a process: see test_loops.py.

    loop_trainer.py STORE TRAINER TRAINERS CELLS ADDRESS...

Trains the cells of loops.py that a JSON file names, on the server of one rank, and on that of two.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import loops
from torch import distributed

import slotwise


def main() -> None:
    """The process."""
    store, trainer, trainers, cells, *addresses = sys.argv[1:]
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(trainer), world_size=int(trainers)
    )
    for fields in json.loads(Path(cells).read_text(encoding="utf-8")):
        cell = loops.Cell(**fields)
        with slotwise.connect(addresses[cell.ranks - 1], timeout=60) as ps:
            loops.run(cell, ps, int(trainer), distributed.barrier)
            distributed.barrier()
            if trainer == "0":
                for table in ps.list_tables():
                    ps.drop_table(table.name)
            distributed.barrier()


if __name__ == "__main__":
    main()
