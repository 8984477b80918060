"""Reads checkpoints from their folders, without a server: numpy alone.

    from slotwise import checkpoint_files

    files = checkpoint_files.open("data/checkpoints/000000000042-0123456789abcdef")
    for rows in files["ads"].chunks():                  # slotwise.Rows: keys, values, state
        ...
    checkpoint_files.export_parquet(folder, "exported")     # ads.parquet, ...; needs pyarrow
    model.load_state_dict(checkpoint_files.to_state_dict(folder, {"ads": 1_000_000}))   # torch
    checkpoint_files.copy(folder, "data2")              # slotwise-server --data data2 goes on from it

`python3 -m slotwise.checkpoint_files --help` does the same from the command line.

A delta is read with all that it builds on, from the folders beside its own. Sizes are always checked, and
checksums if the package xxhash is there. Only the keys of deltas are whole in memory. A damaged file raises
slotwise.DataLoss, naming the file. A running server removes old checkpoints that are not pinned: one that
goes while it is read raises slotwise.NotFound.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise import rows as rows_module
from slotwise.checkpoint_manifest import Manifest, read_chain, table_options
from slotwise.errors import DataLoss, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from slotwise.optimizers import Json
from slotwise.options import TableInfo, TravelledRounds
from slotwise.rows_calls import Rows

PathLike = str | os.PathLike[str]
# The keys of a weight's rows: row i is key i, for so many rows; or each key's row.
Indices = int | Mapping[int, int]

_CHUNK_BYTES = 16 << 20
_VALUE_TYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
_CANDIDATES = "/.candidates"  # ends the names of tables that count keys before these get rows


@contextmanager
def _while_there(folders: Sequence[Path]) -> Iterator[None]:
    """Makes errors NotFound if these checkpoints went meanwhile (a removal renames them), else DataLoss."""
    try:
        yield
    except (DataLoss, OSError) as error:
        _refuse_if_gone(folders, error)
        if isinstance(error, OSError):
            raise DataLoss(f"cannot read {error.filename}: {error.strerror}") from error
        raise


def _refuse_if_gone(folders: Sequence[Path], error: Exception) -> None:
    for folder in folders:
        if not (folder / "manifest.json").is_file():
            raise NotFound(
                f"{folder} went while it was read: a server removes what newer checkpoints make old, "
                "unless it is pinned"
            ) from error


class CheckpointTable:
    """A table in a checkpoint.

    Attributes:
        info: its options, steps and generation, as `Client.describe_table` has them. Both learning rates are
            the base rate, and there are no shards.
        state_names: the optimizer's arrays, in the order of `Rows.state`.
    """

    def __init__(self, chain: list[Manifest], id: int, hasher: Any) -> None:
        """Use `open`."""
        self._folders = [link.folder for link in chain]
        self._links = [
            _Link(link, entry, hasher) for link in chain for entry in link.says["tables"] if entry["id"] == id
        ]
        says = self._links[-1].says
        if any(link.says["lineage"] != says["lineage"] for link in self._links):
            raise DataLoss(f"{chain[-1].folder}: table {id} has another generation in its chain")
        options = table_options(says["options"])
        rate = float(str(np.float32(says["learning_rate"])))
        self.info = TableInfo(
            options, says["steps"], (), rate, rate, TravelledRounds(0, 0), int(says["lineage"], 16)
        )
        self.state_names = tuple(options.state_arrays)

    def chunks(self, *, with_state: bool = True) -> Iterator[Rows]:
        """Yields all rows, in no order, in chunks of about 16 MiB.

        Raises:
            DataLoss: a file is missing, has another size, or is damaged.
            NotFound: the checkpoint, or one that it builds on, was removed meanwhile.
        """
        with _while_there(self._folders):
            yield from self._chunks(with_state)

    def _chunks(self, with_state: bool) -> Iterator[Rows]:
        decided = np.zeros(0, np.uint64)  # keys that newer links have, or have erased; sorted
        for link in reversed(self._links):
            newer = []
            for rank in range(len(link.says["ranks"])):
                arrays = link.open(rank)
                yield from _rows_of(arrays, decided, link.says["value_type"], with_state)
                newer += [arrays["keys"], arrays.get("erased", arrays["keys"][:0])]
            if link is not self._links[0]:
                decided = np.unique(np.concatenate([decided, *newer]))

    def read(self, *, with_state: bool = True) -> Rows:
        """Returns all rows at once, in the order of their keys."""
        chunks = list(self.chunks(with_state=with_state))
        dim, width = self.info.options.dim, self.state_size if with_state else 0
        keys = np.concatenate([np.zeros(0, np.uint64), *(chunk.keys for chunk in chunks)])
        order = np.argsort(keys, kind="stable")

        def joined(arrays: list[Any], columns: int) -> NDArray[np.float32]:
            rows: NDArray[np.float32] = np.concatenate([np.zeros((0, columns), np.float32), *arrays])
            return rows[order]

        values = joined([chunk.values for chunk in chunks], dim)
        state = joined([chunk.state for chunk in chunks], width) if with_state else None
        return Rows(keys[order], values, state)

    @property
    def state_size(self) -> int:
        """Returns the floats of a row's state."""
        return sum(self.info.options.state_arrays.values())


class CheckpointFiles(Mapping[str, CheckpointTable]):
    """A checkpoint's tables by name, as `open` returns them.

    Attributes:
        chain: the folders that it is read from, the base first.
        manifest: its own manifest.json.
    """

    def __init__(self, chain: list[Manifest], hasher: Any) -> None:
        """Use `open`."""
        self.chain = tuple(link.folder for link in chain)
        self.manifest = chain[-1].says
        self._tables = {
            entry["options"]["name"]: CheckpointTable(chain, entry["id"], hasher)
            for entry in self.manifest["tables"]
            if not entry["options"]["name"].endswith(_CANDIDATES)
        }

    def __getitem__(self, name: str) -> CheckpointTable:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def open(folder: PathLike, *, verify: bool | None = None) -> CheckpointFiles:
    """Opens a checkpoint's folder.

    Args:
        verify: whether to compare checksums. None: if the package xxhash is there.

    Raises:
        NotFound: `folder` is no checkpoint's, or was removed meanwhile.
        DataLoss: its manifest, or its chain's, is damaged, or a link is missing.
        InvalidArgument: it is of another version of Slotwise.
        ImportError: `verify` is True, and there is no xxhash.
    """
    hasher = None
    if verify is not False:
        try:
            import xxhash

            hasher = xxhash.xxh3_64_hexdigest
        except ImportError as error:
            if verify:
                raise ImportError(
                    "checkpoint_files.open(verify=True) needs xxhash: pip install xxhash"
                ) from error
    try:
        path = Path(os.path.abspath(folder))
        with _while_there([path] if (path / "manifest.json").is_file() else []):
            return CheckpointFiles(read_chain(path, hasher), hasher)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise DataLoss(f"{folder}: its manifest lacks something: {error!r}") from error


def export_parquet(
    folder: PathLike, out: PathLike, *, with_state: bool = True, verify: bool | None = None
) -> dict[str, int]:
    """Writes each table of a checkpoint to `out`/TABLE.parquet, and returns their rows.

    The files are those of `slotwise.rows.save_parquet`.

    Raises:
        As `open`, and ImportError: there is no pyarrow.
    """
    rows_module.check_pyarrow("export_parquet")
    files, target = open(folder, verify=verify), Path(out)
    for name in files:  # which may have slashes
        (target / name).parent.mkdir(parents=True, exist_ok=True)
    return {
        name: rows_module.write_parquet(
            table.info, table.chunks(with_state=with_state), target / f"{name}.parquet", with_state=with_state
        )
        for name, table in files.items()
    }


def copy(folder: PathLike, data: PathLike) -> list[str]:
    """Copies a checkpoint, and all that it builds on, to a new data folder.

    A server that starts there has the checkpoint's state, with the same generations. The folder appears
    whole, by a rename, once all is on the disk.

    Args:
        folder: the checkpoint's, in the `checkpoints` of a data folder, which a server may use.
        data: the new data folder, which does not exist yet, or is empty.

    Returns:
        The ids of the copied checkpoints, the base first.

    Raises:
        As `open`; InvalidArgument: `data` is not empty, is no folder, or cannot be made; NotFound: the old
        data folder has no lineage; ResourceExhausted: the disk is full; FailedPrecondition: something else
        went wrong, which the message names.
    """
    source, target = Path(os.path.abspath(folder)), Path(os.path.abspath(data))
    chain = open(source).chain
    lineage = source.parents[1] / "lineage"
    if not lineage.is_file():
        raise NotFound(f"there is no {lineage}, which every data folder has")
    with ExitStack() as stack:
        try:
            if target.exists() and any(target.iterdir()):
                raise InvalidArgument(f"{target} is not empty")
            fresh = stack.enter_context(rows_module.new_beside(target))
        except OSError as error:
            raise InvalidArgument(f"{target} cannot be made: {error}") from error
        try:
            shutil.copyfile(lineage, fresh / "lineage")
            for link in chain:
                _copy_all(link, fresh / "checkpoints" / link.name)
            _sync_all(fresh)
            os.rename(fresh, target)
            rows_module.sync(target.parent)
        except OSError as error:
            _refuse_if_gone(chain, error)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            kind = ResourceExhausted if full else FailedPrecondition
            raise kind(f"cannot copy {source} to {target}: {error}") from error
    return [link.name for link in chain]


def _copy_all(folder: Path, target: Path) -> None:
    os.makedirs(target)
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            _copy_all(entry, target / entry.name)
        else:
            shutil.copyfile(entry, target / entry.name)


def _sync_all(folder: Path) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            rows_module.sync(Path(place, name))
        rows_module.sync(place)


def to_state_dict(
    folder: PathLike, tables: Mapping[str, Indices], *, absent: float = 0.0, verify: bool | None = None
) -> dict[str, Any]:
    """Returns tables as the weights of plain torch.nn.EmbeddingBag or Embedding modules.

    Args:
        tables: for each wanted table, its `num_embeddings`, where key i has row i; or a dict of each key's
            row, of which the largest is the last row.
        absent: fills the rows of keys that the table does not have. (The server would give a new key its
            initializer's values.)

    Returns:
        {"TABLE.weight": float32 tensor [num_embeddings, dim]}, for load_state_dict of a torch.nn.ModuleDict.

    Raises:
        As `open`; NotFound: there is no such table in the checkpoint; InvalidArgument: a key has no row,
        because it is `num_embeddings` or larger, or not in the dict.
    """
    import torch

    files, weights = open(folder, verify=verify), {}
    for name, indices in tables.items():
        if name not in files:
            raise NotFound(f"there is no table {name!r} in {folder}: it has {', '.join(files)}")
        places = _Places(name, indices)
        weight = np.full((places.count, files[name].info.options.dim), absent, np.float32)
        for chunk in files[name].chunks(with_state=False):
            weight[places.of(chunk.keys)] = chunk.values
        weights[f"{name}.weight"] = torch.from_numpy(weight)
    return weights


def from_state_dict(ps: Any, state_dict: Mapping[str, Any], tables: Mapping[str, Indices]) -> dict[str, int]:
    """Imports weights that `to_state_dict` returned, or a model has, into a server's tables.

    Args:
        ps: a `slotwise.Client`. The tables exist.
        state_dict: has a "TABLE.weight" for each table.
        tables: as for `to_state_dict`. Rows without a key are not imported.

    Returns:
        How many rows of each table were written. They get the state of new rows; the logger `slotwise` warns
        if the table's optimizer keeps state.

    Raises:
        NotFound: there is no such weight, or table.
        InvalidArgument: the weight has another size than `tables` says, or than the table's dim.
    """
    written = {}
    for name, indices in tables.items():
        if f"{name}.weight" not in state_dict:
            raise NotFound(f"there is no {name}.weight in the state_dict")
        weight = np.asarray(state_dict[f"{name}.weight"].detach().cpu().float().numpy())
        places = _Places(name, indices)
        if weight.ndim != 2 or len(weight) != places.count:
            raise InvalidArgument(f"{name}.weight has shape {weight.shape}, not ({places.count}, dim)")
        keys, rows = places.all()
        each = max(1, _CHUNK_BYTES // max(1, 4 * weight.shape[1]))
        written[name] = sum(
            ps.import_rows(name, keys[first : first + each], weight[rows[first : first + each]])
            for first in range(0, len(keys), each)
        )
        options = ps.describe_table(name).options
        rows_module.warn_of_new_state(name, options, written[name], f"{name}.weight")
    return written


class _Places:
    """Where keys lie in a weight."""

    def __init__(self, table: str, indices: Indices) -> None:
        self._table = table
        self._keys: NDArray[np.uint64] | None = None
        if isinstance(indices, Mapping):
            keys = np.fromiter((key % (1 << 64) for key in indices), np.uint64, len(indices))
            rows = np.fromiter(indices.values(), np.int64, len(indices))
            order = np.argsort(keys)
            self._keys, self._rows = keys[order], rows[order]
            self.count = int(rows.max()) + 1 if len(rows) else 0
            if len(np.unique(rows)) != len(rows) or (len(rows) and rows.min() < 0):
                raise InvalidArgument(f"{table}: two keys have one row, or a row is below 0")
        else:
            self.count = int(indices)
            if self.count < 0:
                raise InvalidArgument(f"{table}: num_embeddings is {indices}: must be 0 or more")

    def of(self, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Returns the rows of keys, or raises InvalidArgument."""
        if self._keys is None:
            known, places = keys < np.uint64(self.count), keys.astype(np.int64)
        else:
            found = np.searchsorted(self._keys, keys)
            known = found < len(self._keys)
            known[known] = self._keys[found[known]] == keys[known]
            places = self._rows[np.where(known, found, 0)] if len(self._keys) else found
        if not known.all():
            raise InvalidArgument(
                f"{self._table}: key {keys[~known][0]} of the table has no row among "
                f"{self.count}: name more, or give it one"
            )
        return places

    def all(self) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Returns all keys and their rows."""
        if self._keys is None:
            return np.arange(self.count, dtype=np.uint64), np.arange(self.count)
        return self._keys, self._rows


class _Link:
    """A table's files in one checkpoint of a chain."""

    def __init__(self, manifest: Manifest, says: Json, hasher: Any) -> None:
        self.says = says
        self._folder = manifest.folder / f"table-{int(says['id'])}"
        self._is_delta = manifest.says["parent"] is not None
        self._hasher = hasher
        self._verified: set[Path] = set()

    def open(self, rank: int) -> dict[str, NDArray[Any]]:
        """Returns a rank's arrays by name, over the files themselves."""
        rank_says, options = self.says["ranks"][rank], table_options(self.says["options"])
        files = {file["name"]: file for file in rank_says["files"]}
        rows, dim = rank_says["rows"], options.dim
        wanted: dict[str, tuple[str, tuple[int, ...]]] = {
            "keys": ("<u8", (rows,)),
            "rows": (_VALUE_TYPES[self.says["value_type"]], (rows, dim)),
        }
        for name, width in options.state_arrays.items():
            wanted[name] = ("<u8", (rows,)) if name == "score" else ("<f4", (rows, width))
        if self._is_delta:
            wanted["erased"] = ("<u8", (rank_says["erased"],))
        arrays = {
            name: self._map(files[f"rank-{rank}.{name}.npy"], f"rank-{rank}.{name}.npy", *shape)
            for name, shape in wanted.items()
        }
        if options.has_scores:
            arrays["score"] = arrays["score"].view("<f4").reshape(rows, 2)
        return arrays

    def _map(self, says: Json, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        path = self._folder / name
        try:
            size = path.stat().st_size
        except OSError:
            raise DataLoss(f"{path} is missing") from None
        if size != says["bytes"]:
            raise DataLoss(f"{path} has {size} bytes, not {says['bytes']}")
        if self._hasher is not None and path not in self._verified:
            self._verify(path, says)
        if 0 in shape:
            return np.zeros(shape, dtype)
        try:
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError) as error:
            raise DataLoss(f"{path} is damaged: {error}") from error
        if array.dtype != np.dtype(dtype) or array.shape != shape or not array.flags.c_contiguous:
            order = "" if array.flags.c_contiguous else " in Fortran's order"
            raise DataLoss(f"{path} has {array.dtype}{list(array.shape)}{order}, not {dtype}{list(shape)}")
        return array

    def _verify(self, path: Path, says: Json) -> None:
        block, checksums = says["block_bytes"], says["block_xxh3"]
        with path.open("rb") as file:
            for number in range(0, len(checksums) // 16):
                if self._hasher(file.read(block)) != checksums[16 * number : 16 * number + 16]:
                    raise DataLoss(f"{path} is damaged: block {number} is not what was written")
        self._verified.add(path)


def _rows_of(
    arrays: dict[str, NDArray[Any]], decided: NDArray[np.uint64], value_type: str, with_state: bool
) -> Iterator[Rows]:
    """Yields the rows of a rank's files whose keys are not `decided`."""
    keys, values = arrays["keys"], arrays["rows"]
    states = [array for name, array in arrays.items() if name not in ("keys", "rows", "erased")]
    width = values.shape[1] + (sum(state.shape[1] for state in states) if with_state else 0)
    each = max(1, _CHUNK_BYTES // (8 + 4 * width))
    for first in range(0, len(keys), each):
        some = np.asarray(keys[first : first + each])
        kept = np.flatnonzero(~_contains(decided, some))
        if not len(kept):
            continue
        state = None
        if with_state:
            none = np.zeros((len(kept), 0), np.float32)
            state = np.concatenate([none, *(s[first : first + each][kept] for s in states)], axis=1)
        rows = Rows(some[kept], _as_floats(values[first : first + each][kept], value_type), state)
        numbers = width - values.shape[1] - (2 if "score" in arrays else 0)
        if not np.isfinite(rows.values).all() or not (state is None or np.isfinite(state[:, :numbers]).all()):
            folder = Path(str(getattr(values, "filename", ""))).parent
            raise DataLoss(f"{folder} has a row that is not finite, from row {first} of a rank on")
        yield rows


def _contains(sorted_keys: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Returns for each key whether it is among `sorted_keys`."""
    if not len(sorted_keys):
        return np.zeros(len(keys), np.bool_)
    found = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    equal: NDArray[np.bool_] = sorted_keys[found] == keys
    return equal


def _as_floats(values: NDArray[Any], value_type: str) -> NDArray[np.float32]:
    if value_type == "bfloat16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(values, dtype=np.float32)


if __name__ == "__main__":
    from slotwise import checkpoint_command

    checkpoint_command.main()
