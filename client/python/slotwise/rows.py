"""Reads and writes tables as files, in chunks, so that a table is never whole in memory.

    slotwise.rows.save_npy(ps, "ads", "ads-rows")       # keys.npy, values.npy, state.npy, table.json
    slotwise.rows.load_npy(ps, "ads", "ads-rows")
    slotwise.rows.save_parquet(ps, "ads", "ads.parquet")   # needs pyarrow
    slotwise.rows.load_parquet(ps, "ads", "ads.parquet")

The files hold

    keys   uint64 [rows]                           keys.npy, or the column "key"
    values float32 [rows, dim]                     values.npy, or the column "values"
    state  float32 [rows, state size]              state.npy, or the column "state"

and the table's options, as protobuf's JSON of `TableOptions`, in table.json or in the Parquet
schema's metadata under "slotwise.table". `slotwise-ctl export` and `import` use the same folders.

Rows are saved in no particular order. If clients push meanwhile, the rows may be of several steps.

The optimizer's state is saved and loaded unless `with_state=False`. With state, a table, even one without
rows, brings its count of steps, and its learning rate if `set_learning_rate` has set one; so Adam and the
schedule continue. Without state they start anew, and the logger `slotwise` warns of it. A table that is made
by loading has such a rate in any case. State is loaded only into a table of the same optimizer, whose
constants may differ.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from slotwise.client import Client
from slotwise.errors import Error, InvalidArgument, NotFound
from slotwise.optimizers import SGD, Json
from slotwise.options import TableInfo, TableOptions, options_from_json, options_to_json
from slotwise.rows_calls import Rows

PathLike = str | os.PathLike[str]
Number = TypeVar("Number", int, float)

_LOG = logging.getLogger("slotwise")
_KEYS, _VALUES, _STATE, _TABLE = "keys.npy", "values.npy", "state.npy", "table.json"
_METADATA = b"slotwise.table"
# Rows go to the client in chunks of about this many bytes, which the client cuts into messages.
_CHUNK_BYTES = 16 << 20
_MOST_TEXT = 1 << 20  # bytes of table.json
_KEYS_AT_ONCE = 1 << 24  # that are searched for repeated ones
_HEADER_BYTES = 128


def save_npy(ps: Client, table: str, folder: PathLike, *, with_state: bool = True) -> int:
    """Saves a table's rows as a folder of .npy files.

    The folder appears whole, by a rename, and replaces a table saved there earlier.

    Args:
        with_state: whether to save the optimizer's state too.

    Returns:
        How many rows were saved.

    Raises:
        FileExistsError: `folder` exists and holds no saved table.
        slotwise.NotFound: no such table.
    """
    target = Path(folder)
    if target.exists() and not (target.is_dir() and _is_ours_or_empty(target)):
        raise FileExistsError(f"{target} is there, and is no saved table")
    info = ps.describe_table(table)
    with new_beside(target) as fresh:
        with NpyWriter(fresh / _KEYS, "<u8") as keys:
            with NpyWriter(fresh / _VALUES, "<f4", info.options.dim) as values:
                if not with_state:
                    for chunk in ps.export_rows(table):
                        keys.append(chunk.keys)
                        values.append(chunk.values)
                else:
                    _save_with_state(ps, table, fresh, keys, values)
        (fresh / _TABLE).write_text(_to_json(info, keys.rows, with_state) + "\n")
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old-", dir=target.parent))
            os.rename(target, old / "table")
            os.rename(fresh, target)
            shutil.rmtree(old)
        else:
            os.rename(fresh, target)
    return keys.rows


def load_npy(ps: Client, table: str, folder: PathLike, *, with_state: bool = True) -> int:
    """Imports the rows of a saved folder into a table, and overwrites rows that exist.

    A table that does not exist is made with the options in table.json. Rows of the table that are not in the
    folder stay. Loading again does no harm.

    Args:
        with_state: whether to load the optimizer's state. False, or a folder without a state.npy, gives the
            rows the state of new rows, and leaves the table's count of steps as it is.

    Returns:
        How many rows were written.

    Raises:
        slotwise.InvalidArgument: the files do not fit each other or the table, or have a key twice, or the
            state is another optimizer's. Nothing was changed.
        slotwise.NotFound: there is neither a table nor a table.json.
    """
    source = Path(folder)
    keys, values = _map(source / _KEYS, np.uint64, 1), _map(source / _VALUES, np.float32, 2)
    state = None
    if with_state and (source / _STATE).exists():
        state = _map(source / _STATE, np.float32, 2)
    for name, array in ((_VALUES, values), (_STATE, state)):
        if array is not None and len(array) != len(keys):
            raise InvalidArgument(f"{source / name} has {len(array)} rows, {_KEYS} has {len(keys)}")
    repeated = _repeated(keys)
    if repeated is not None:
        raise InvalidArgument(f"{source / _KEYS} has key {repeated} more than once")
    target = _Target(ps, table, _text_of(source / _TABLE), state is not None)
    row_bytes = 8 + 4 * values.shape[1] + (0 if state is None else 4 * state.shape[1])
    each, written = max(1, _CHUNK_BYTES // row_bytes), 0
    for first in range(0, max(1, len(keys)), each):  # once without rows, for the count of steps
        some = slice(first, first + each)
        chunk_state = None if state is None else state[some]
        with _telling(written, source):
            written += ps.import_rows(table, keys[some], values[some], chunk_state, table_steps=target.steps)
    target.finish(written, source)
    return written


def save_parquet(ps: Client, table: str, path: PathLike, *, with_state: bool = True) -> int:
    """Saves a table's rows as one Parquet file, which appears whole, by a rename.

    The columns are key (uint64), values (fixed_size_list<float>[dim]) and, with state that is not empty,
    state (fixed_size_list<float>[state size]). Args, returns and raises as `save_npy`, and ImportError: there
    is no pyarrow.
    """
    check_pyarrow("save_parquet")
    info = ps.describe_table(table)
    chunks = ps.export_rows(table, with_state=with_state)
    return write_parquet(info, chunks, Path(path), with_state=with_state)


def write_parquet(info: TableInfo, chunks: Iterator[Rows], target: Path, *, with_state: bool) -> int:
    """Writes chunks of a table's rows as `save_parquet` does."""
    pyarrow, parquet = _pyarrow("write_parquet")
    rows = 0
    fields = [("key", pyarrow.uint64()), ("values", _list_of(pyarrow, info.options.dim))]
    with new_file(target) as fresh:
        first = next(chunks, None)
        if first is not None and first.state is not None and first.state.shape[1]:
            fields.append(("state", _list_of(pyarrow, first.state.shape[1])))
        said = _to_json(info, None, with_state)
        schema = pyarrow.schema(fields, metadata={_METADATA: said.encode()})
        with parquet.ParquetWriter(fresh, schema) as writer:
            for group in _groups(_and_then(first, chunks)):
                columns = [pyarrow.array(np.concatenate([chunk.keys for chunk in group]))]
                for name, _ in fields[1:]:
                    array = np.concatenate([getattr(chunk, name) for chunk in group])
                    flat = pyarrow.array(array.reshape(-1))
                    columns.append(pyarrow.FixedSizeListArray.from_arrays(flat, array.shape[1]))
                writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
                rows += len(columns[0])
    return rows


def load_parquet(ps: Client, table: str, path: PathLike, *, with_state: bool = True) -> int:
    """Imports the rows of a Parquet file, ours or another with the same columns, into a table.

    Works as `load_npy`. The options of a table to be made are in the schema's metadata. Lists of variable
    size are allowed if all have the table's size.

    Raises:
        As `load_npy`, and ImportError: there is no pyarrow.
    """
    _, parquet = _pyarrow("load_parquet")
    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        for name in ("key", "values"):
            if name not in schema.names:
                raise InvalidArgument(f"{path} has no column {name!r}")
        metadata = (schema.metadata or {}).get(_METADATA)
        saved = None if metadata is None else metadata.decode()
        columns = ["key", "values"]
        if with_state and "state" in schema.names:
            columns.append("state")
        # There is no column for the state of SGD, nor of a table without rows.
        target = _Target(ps, table, saved, len(columns) == 3 or (with_state and _was_saved_with_state(saved)))
        dim = target.options.dim
        each, written = max(1, _CHUNK_BYTES // (8 + 4 * dim * (2 * len(columns) - 3))), 0
        for batch in file.iter_batches(each, columns=columns):
            keys = batch.column(0).to_numpy(zero_copy_only=False)
            lists = [_rows_of(batch.column(i), path) for i in range(1, len(columns))]
            with _telling(written, path):
                written += ps.import_rows(table, keys, *lists, table_steps=target.steps)
        if file.metadata.num_rows == 0:
            none = np.zeros((0, dim), np.float32)
            ps.import_rows(table, np.zeros(0, np.uint64), none, table_steps=target.steps)
    target.finish(written, path)
    return written


class NpyWriter:
    """Writes a .npy file (version 1.0) of rows, whose number `close()` writes into a header of fixed size."""

    def __init__(self, path: Path, dtype: str, width: int | None = None) -> None:
        """Writes rows of `width` numbers, or single numbers if `width` is None."""
        self.rows = 0
        self._dtype, self._width = dtype, width
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115
        self._file.write(b" " * _HEADER_BYTES)

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()

    def append(self, rows: NDArray[Any]) -> None:
        """Writes rows of the file's dtype and width."""
        self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).reshape(-1).data)
        self.rows += len(rows)

    def close(self) -> None:
        """Writes the number of rows into the header, and waits until the file is on the disk."""
        shape = (self.rows,) if self._width is None else (self.rows, self._width)
        text = repr({"descr": self._dtype, "fortran_order": False, "shape": shape})
        magic = b"\x93NUMPY\x01\x00" + (_HEADER_BYTES - 10).to_bytes(2, "little")
        self._file.seek(0)
        self._file.write(magic + text.ljust(_HEADER_BYTES - 11).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def _save_with_state(ps: Client, table: str, folder: Path, keys: NpyWriter, values: NpyWriter) -> None:
    """Takes the state's width from the first chunk; a table without rows has state of width 0."""
    chunks = ps.export_rows(table, with_state=True)
    first = next(chunks, None)
    width = 0 if first is None or first.state is None else first.state.shape[1]
    with NpyWriter(folder / _STATE, "<f4", width) as state:
        for chunk in _and_then(first, chunks):
            keys.append(chunk.keys)
            values.append(chunk.values)
            assert chunk.state is not None  # the export asked for state
            state.append(chunk.state)


def _and_then(first: Rows | None, rest: Iterator[Rows]) -> Iterator[Rows]:
    if first is not None:
        yield first
        yield from rest


def _groups(chunks: Iterator[Rows]) -> Iterator[list[Rows]]:
    """Groups chunks to 16 MiB, because Parquet reads large row groups faster."""
    group: list[Rows] = []
    for chunk in chunks:
        group.append(chunk)
        if sum(some.values.nbytes for some in group) >= _CHUNK_BYTES:
            yield group
            group = []
    if group:
        yield group


@contextmanager
def new_beside(target: Path) -> Iterator[Path]:
    """Makes a new folder on the target's file system; removes the folder if it was not renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent))
    os.chmod(fresh, 0o777 & ~_umask())
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yields a new file, which is then flushed to the disk and renamed to its target, or removed on error."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.new-", dir=target.parent)
    os.close(handle)
    try:
        yield Path(name)
        sync(name)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def sync(path: PathLike) -> None:
    """Flushes a file, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _is_ours_or_empty(folder: Path) -> bool:
    names = set(os.listdir(folder))
    return not names or (_KEYS in names and names <= {_KEYS, _VALUES, _STATE, _TABLE})


def _to_json(info: TableInfo, rows: int | None, with_state: bool) -> str:
    """Returns the text of table.json.

    It has a "learning_rate" if `set_learning_rate` has set another rate than the options'. Files of earlier
    versions have no "learning_rate" and no "with_state".
    """
    said: dict[str, Any] = {"options": options_to_json(info.options), "steps": info.steps}
    if info.base_learning_rate not in (0, info.options.optimizer.lr):  # 0: an older server
        said["learning_rate"] = info.base_learning_rate
    said["with_state"] = with_state
    return json.dumps(said if rows is None else said | {"rows": rows}, indent=2)


@contextmanager
def _telling(written: int, source: PathLike) -> Iterator[None]:
    """Adds to an error how many rows of earlier chunks were written."""
    try:
        yield
    except Error as error:
        if not written:
            raise
        more = f"; {written} earlier rows of {source} were written before"
        raise type(error)(error.message + more, error.retry_after) from None


class _Target:
    """The table that saved rows go to, made as it was saved if it does not exist.

    Attributes:
        steps: the count of steps that the rows bring, 0 if they bring none.
    """

    def __init__(self, ps: Client, table: str, saved: str | None, brings_state: bool) -> None:
        """Raises InvalidArgument if the state is that of another optimizer than the table's."""
        self._ps, self._table, self._brings_state = ps, table, brings_state
        self._steps_before, made = 0, False
        try:
            described = ps.describe_table(table)
            self.options, self._steps_before = described.options, described.steps
        except NotFound:
            if saved is None:
                raise
            self.options, made = ps.create_table(**vars(replace(_saved_options(saved), name=table))), True
        if brings_state and saved is not None and "options" in _parsed(saved):
            theirs = type(_saved_options(saved).optimizer).__name__
            ours = type(self.options.optimizer).__name__
            if theirs != ours:
                raise InvalidArgument(
                    f"the state was saved from a table of {theirs}, and {table!r} has {ours}: "
                    "load with with_state=False, and rows get the state of new rows"
                )
        self._saved_steps = _saved_number(saved, "steps", int)
        self.steps = self._saved_steps if brings_state else 0
        # Read before a row is written, so that a broken file changes nothing.
        self._rate = _saved_number(saved, "learning_rate", float) if brings_state or made else 0

    def finish(self, rows: int, source: PathLike) -> None:
        """Sets the saved table's learning rate, and warns of state and steps that start anew."""
        if self._rate:
            self._ps.set_learning_rate(self._table, self._rate)
        if self._brings_state:
            return
        warn_of_new_state(self._table, self.options, rows, source)
        if self._saved_steps > self._steps_before:
            _LOG.warning(
                "table %s: the count of steps stays %d, and was %d in the table that %s was saved from",
                self._table,
                self._steps_before,
                self._saved_steps,
                source,
            )


def warn_of_new_state(table: str, options: TableOptions, rows: int, source: object) -> None:
    """Warns that rows came without state, if the table's optimizer keeps some."""
    if not isinstance(options.optimizer, SGD):
        _LOG.warning(
            "table %s: the state of %s starts anew in %d row(s), because none came with %s",
            table,
            type(options.optimizer).__name__,
            rows,
            source,
        )


def _saved_options(saved: str) -> TableOptions:
    try:
        return options_from_json(json.loads(saved)["options"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"the saved options of the table are broken: {error}") from error


def _parsed(saved: str | None) -> Json:
    """Returns the object that `_to_json` wrote, or {} for None."""
    try:
        said = {} if saved is None else json.loads(saved)
    except ValueError as error:
        raise InvalidArgument(f"what is saved of the table is broken: {error}") from error
    if not isinstance(said, dict):
        raise InvalidArgument("what is saved of the table is broken: it is no JSON object")
    return said


def _was_saved_with_state(saved: str | None) -> bool:
    return _parsed(saved).get("with_state") is True


def _saved_number(saved: str | None, name: str, number: Callable[[Any], Number]) -> Number:
    """Returns a number in `_to_json`'s text, of type `number`, from 0 to 2^62; 0 if it is absent."""
    value = _parsed(saved).get(name, 0)
    fits = type(value) is int or (type(value) is float and number is float)
    if not fits or not 0 <= value <= 1 << 62:
        raise InvalidArgument(f"the saved {name!r} is {value!r}, not {number.__name__} from 0 to 2^62")
    return number(value)


def _text_of(path: Path) -> str | None:
    """Returns a small file's text; None if there is no file."""
    if not path.exists():
        return None
    _check_file(path)
    if path.stat().st_size > _MOST_TEXT:
        raise InvalidArgument(f"{path} has more than {_MOST_TEXT} bytes")
    return path.read_text()


def _check_file(path: Path) -> None:
    """Raises InvalidArgument for a pipe, whose read may never end, a device or a folder."""
    if path.exists() and not path.is_file():
        raise InvalidArgument(f"{path} is no regular file")


def _repeated(keys: NDArray[np.uint64]) -> int | None:
    """Returns a key that is there more than once, or None."""
    parts = -(-len(keys) // _KEYS_AT_ONCE)
    for part in range(parts):
        pieces = (keys[first : first + _KEYS_AT_ONCE] for first in range(0, len(keys), _KEYS_AT_ONCE))
        some = np.sort(np.concatenate([piece[piece % np.uint64(parts) == part] for piece in pieces]))
        again = np.flatnonzero(some[1:] == some[:-1])
        if len(again):
            return int(some[again[0]])
    return None


def _map(path: Path, dtype: type[Any], dimensions: int) -> NDArray[Any]:
    """Returns a .npy file as an array over the file itself."""
    _check_file(path)
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise InvalidArgument(f"{path} is no .npy file of numbers: {error}") from error
    if array.dtype != dtype or array.ndim != dimensions:
        raise InvalidArgument(
            f"{path}: {array.dtype} of shape {array.shape} is not {np.dtype(dtype)} of "
            f"{dimensions} dimension(s)"
        )
    return array


def _rows_of(column: Any, path: PathLike) -> NDArray[np.float32]:
    """Returns a column of lists as [rows, elements]."""
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))  # NaN for null
    flat = column.flatten().to_numpy(zero_copy_only=False)
    if len(lengths) > 1 or flat.dtype != np.float32 or len(flat) != len(column) * sum(lengths):
        raise InvalidArgument(f"{path}: {column.type} is not a list of floats, all of one size")
    rows: NDArray[np.float32] = flat.reshape(len(column), int(sum(lengths)))
    return rows


def _list_of(pyarrow: Any, size: int) -> Any:
    return pyarrow.list_(pyarrow.float32(), size)


def check_pyarrow(what: str) -> None:
    """Raises ImportError, naming the function that needs it, if there is no pyarrow."""
    _pyarrow(what)


def _pyarrow(what: str) -> tuple[Any, Any]:
    """Imports pyarrow and pyarrow.parquet, which only the Parquet functions need."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"slotwise.rows.{what} needs pyarrow: pip install pyarrow") from error
    return pyarrow, pyarrow.parquet
