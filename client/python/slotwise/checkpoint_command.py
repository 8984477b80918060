"""`python3 -m slotwise.checkpoint_files`: checkpoints to and from Parquet and torch's weights."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from slotwise import checkpoint_files, rows
from slotwise.client import connect
from slotwise.errors import Error, InvalidArgument

_DESCRIPTION = """Reads checkpoints by their files; no server need run, and one that runs goes on.

CHECKPOINT is a checkpoint's folder (DATA/checkpoints/ID), or with --server the id of a checkpoint of
that server, whose data folder is at the same path on this machine.
"""


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; ends the program with 0 (done), 1 (refused) or 2 (makes no sense)."""
    asked = _parser().parse_args(arguments)
    try:
        asked.run(asked)
    except (Error, OSError, ImportError) as error:
        sys.exit(f"{type(error).__name__}: {error}")  # to stderr, with status 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python3 -m slotwise.checkpoint_files",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    export = commands.add_parser("export", help="to Parquet, or to weights of nn.EmbeddingBag")
    _add_checkpoint(export)
    export.add_argument("out", type=Path, help="a folder, for TABLE.parquet; or the file of weights")
    export.add_argument("--format", choices=("parquet", "torch"), default="parquet")
    export.add_argument("--without-state", action="store_true", help="parquet: values alone")
    export.add_argument(
        "--rows",
        action="append",
        type=_table_and_rows,
        metavar="TABLE=N",
        help="torch: the table's num_embeddings; row i is key i. Again for each table",
    )
    export.set_defaults(run=_export)

    load = commands.add_parser("import", help="a .parquet file, or weights, into a server's table")
    load.add_argument("file", type=Path, help="what export, or slotwise.rows.save_parquet, wrote; or weights")
    load.add_argument("table", help="made if it is not there, of a .parquet file that says how")
    load.add_argument("--server", required=True, metavar="HOST:PORT")
    load.add_argument("--without-state", action="store_true", help="rows get the state of new ones")
    load.set_defaults(run=_import)

    copy = commands.add_parser("copy", help="to a new data folder, for a server to start from")
    _add_checkpoint(copy)
    copy.add_argument("data", type=Path, help="the new data folder")
    copy.set_defaults(run=_copy)
    return parser


def _add_checkpoint(command: argparse.ArgumentParser) -> None:
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="its folder, or its id")
    command.add_argument("--server", metavar="HOST:PORT", help="of which CHECKPOINT is an id")


def _table_and_rows(text: str) -> tuple[str, int]:
    table, _, rows = text.rpartition("=")
    if not table or not rows.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not TABLE=N")
    return table, int(rows)


def _folder(asked: Any) -> str:
    if asked.server is None:
        return str(asked.checkpoint)
    with connect(asked.server) as ps:
        return ps.describe_checkpoint(asked.checkpoint).folder


def _export(asked: Any) -> None:
    if (asked.format == "torch") != bool(asked.rows):
        raise InvalidArgument("--rows TABLE=N goes with --format torch, which needs one or more")
    folder = _folder(asked)
    if asked.format == "parquet":
        written = checkpoint_files.export_parquet(folder, asked.out, with_state=not asked.without_state)
        for table, count in written.items():
            print(f"{asked.out / table}.parquet: {count:,} rows")
        return
    weights = checkpoint_files.to_state_dict(folder, dict(asked.rows))
    _save_weights(weights, asked.out)
    for name, weight in weights.items():
        print(f"{asked.out}: {name} {list(weight.shape)}")


def _save_weights(weights: dict[str, Any], target: Path) -> None:
    import torch

    with rows.new_file(target) as fresh, open(fresh, "wb") as file:
        torch.save(weights, file)


def _import(asked: Any) -> None:
    with connect(asked.server) as ps:
        if asked.file.suffix == ".parquet":
            count = rows.load_parquet(ps, asked.table, asked.file, with_state=not asked.without_state)
        else:
            count = _import_weights(ps, asked)
    print(f"{asked.table}: {count:,} rows")


def _import_weights(ps: Any, asked: Any) -> int:
    import torch

    weights = torch.load(asked.file, map_location="cpu", weights_only=True)
    name = f"{asked.table}.weight"
    if not isinstance(weights, dict) or name not in weights:
        raise InvalidArgument(f"{asked.file} is no state_dict with {name}")
    return checkpoint_files.from_state_dict(ps, weights, {asked.table: len(weights[name])})[asked.table]


def _copy(asked: Any) -> None:
    for id in checkpoint_files.copy(_folder(asked), asked.data):
        print(f"{asked.data}/checkpoints/{id}")
    print(f"slotwise-server --data {asked.data} goes on from there")
