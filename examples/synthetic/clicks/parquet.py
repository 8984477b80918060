"""Writes batches of clicks as Parquet files. Needs pyarrow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from slotwise.errors import Error, InvalidArgument

from clicks.stream import Clicks, ClickStream


class NoParquet(Error):
    """pyarrow is missing or unusable; the message says how to get it."""


def write(stream: ClickStream, batches: Iterable[Clicks], path: Path, *, shards: int = 1) -> list[Path]:
    """Writes batches, one row group each; the files get their names once all are whole.

    The columns are label: float32, 0 or 1; slot_0, slot_1, ...: uint64, or list of uint64 if a bag
    can have a number of ids other than one; dense_0, ...: float32. The files' key-value metadata
    "slotwise.synthetic" is JSON with the seed and the batch size. The true probabilities are not
    written: `ClickStream` computes them from the model and the seed.

    Args:
        stream: the stream that the batches are from.
        path: the file. With several shards, a folder for part-00000.parquet and so on, whose file k
            has every `shards`-th batch, from the k-th on. Missing folders are made.

    Returns:
        The paths of the files.

    Raises:
        NoParquet: there is no pyarrow.
        OSError: a file cannot be written.
    """
    arrow, parquet = _load()
    if shards < 1:
        raise InvalidArgument(f"shards is {shards}, not at least 1")
    files = [path] if shards == 1 else [path / f"part-{k:05d}.parquet" for k in range(shards)]
    schema = _schema(arrow, stream)
    unfinished = [file.with_name(file.name + ".unfinished") for file in files]
    files[0].parent.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            writers = [stack.enter_context(parquet.ParquetWriter(file, schema)) for file in unfinished]
            for place, clicks in enumerate(batches):
                table = _table(arrow, schema, stream, clicks)
                writers[place % shards].write_table(table)
        for file, finished in zip(unfinished, files, strict=True):
            os.replace(file, finished)
    finally:
        for file in unfinished:
            file.unlink(missing_ok=True)
    return files


def _load() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise NoParquet(f"Parquet needs pyarrow: pip install pyarrow ({error})") from error
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any, stream: ClickStream) -> Any:
    fields = [arrow.field("label", arrow.float32(), nullable=False)]
    for number, slot in enumerate(stream.model.slots):
        key = arrow.uint64()
        if not slot.single:
            key = arrow.list_(arrow.field("element", key, nullable=False))
        fields.append(arrow.field(f"slot_{number}", key, nullable=False))
    for number in range(stream.model.dense):
        fields.append(arrow.field(f"dense_{number}", arrow.float32(), nullable=False))
    origin = json.dumps({"seed": stream.seed, "batch_size": stream.batch_size})
    return arrow.schema(fields, metadata={"slotwise.synthetic": origin})


def _table(arrow: Any, schema: Any, stream: ClickStream, clicks: Clicks) -> Any:
    slots = len(stream.model.slots)
    offsets = clicks.offsets.astype(np.int64)
    starts = offsets[:-1].reshape(-1, slots)
    counts = np.diff(offsets).reshape(-1, slots)
    columns = [arrow.array(clicks.labels)]
    for number, slot in enumerate(stream.model.slots):
        ends = np.cumsum(counts[:, number])
        first = ends - counts[:, number]
        place = np.repeat(starts[:, number] - first, counts[:, number])
        keys = arrow.array(clicks.keys[place + np.arange(len(place))])
        if not slot.single:
            column_offsets = np.concatenate([[0], ends]).astype(np.int32)
            keys = arrow.ListArray.from_arrays(
                arrow.array(column_offsets), keys, type=schema.field(f"slot_{number}").type
            )
        columns.append(keys)
    columns += [arrow.array(np.ascontiguousarray(column)) for column in clicks.dense.T]
    return arrow.Table.from_arrays(columns, schema=schema)
