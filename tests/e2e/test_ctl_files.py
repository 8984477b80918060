"""Files that slotwise-ctl is given: wrong ones are refused by name, and none is waited for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest
import slotwise
from free_ports import free_ports
from programs import CTL
from slotwise_cluster import Cluster
from slotwise_wire import Protocol

MOST_OPTIONS_BYTES = 1 << 20
MOST_STEPS = 2**62


def run(server: Cluster | None, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs slotwise-ctl, with a server or with none."""
    address = server.ranks[0].address if server else f"127.0.0.1:{free_ports(1)}"
    return programs.run(CTL, *arguments, "--server", address)


@pytest.fixture(scope="module")
def server(protocol: Protocol, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(1, tmp_path_factory.mktemp("cluster"), protocol)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def exported(server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of Adam, of 50 rows and one step, as a folder."""
    folder = tmp_path_factory.mktemp("exported") / "rows"
    with server.connect() as ps:
        ps.create_table("saved", dim=4, optimizer=slotwise.Adam(lr=0.1))
        ps.push("saved", np.arange(50, dtype=np.uint64), None, np.ones((50, 4), np.float32))
    assert run(server, "export", "saved", folder).returncode == 0
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "rows"))


def load(server: Cluster, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert run(server, "drop", "--missing-ok", "loaded").returncode == 0
    return run(server, "import", "loaded", folder, *flags)


def refusal(server: Cluster, folder: Path, *flags: str) -> str:
    """Why an import is refused, which makes no table."""
    done = load(server, folder, *flags)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert run(server, "describe", "loaded").returncode == 1
    return done.stderr.removeprefix("slotwise-ctl: INVALID_ARGUMENT: ").rstrip("\n")


def change(folder: Path, said: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "table.json"
    whole = json.loads(path.read_text())
    other = said(whole)
    path.write_text(json.dumps(whole if other is None else other))


COUNT = f"a whole number from 0 to {MOST_STEPS}"
ROWS = f"a whole number from 0 to {2**40}"


@pytest.mark.parametrize(
    ("name", "value", "shown", "wanted"),
    [
        ("steps", "x", '"x"', COUNT),
        ("steps", None, "null", COUNT),
        ("steps", [], "[]", COUNT),
        ("steps", -1, "-1", COUNT),
        ("steps", 2**70, "1.1805916207174113e+21", COUNT),
        ("steps", MOST_STEPS + 1, str(MOST_STEPS + 1), COUNT),
        ("steps", 1e3, "1000.0", COUNT),
        ("steps", True, "true", COUNT),
        ("steps", "é" * 99, '"' + "\\u00e9" * 9 + "\\u00e...", COUNT),
        ("rows", -1, "-1", ROWS),
        ("rows", "50", '"50"', ROWS),
        ("learning_rate", 0, "0", "finite and above 0"),
        ("learning_rate", "0.1", '"0.1"', "finite and above 0"),
        ("learning_rate", 1e39, "1e+39", "finite and above 0"),
        ("with_state", 1, "1", "true or false"),
        ("options", [], "[]", "an object"),
    ],
)
def test_a_table_json_is_refused_by_name_and_value(
    server: Cluster, folder: Path, name: str, value: Any, shown: str, wanted: str
) -> None:
    change(folder, lambda said: said.update({name: value}))
    assert refusal(server, folder) == f'{folder}/table.json: "{name}" is {shown}: must be {wanted}'


@pytest.mark.parametrize("name", ["options", "steps", "rows"])
def test_a_table_json_has_what_every_export_has_written(server: Cluster, folder: Path, name: str) -> None:
    change(folder, lambda said: said.pop(name) and None)
    assert refusal(server, folder).startswith(f'{folder}/table.json has no "{name}": it must be ')


def test_a_table_json_of_an_older_export_may_leave_its_state_unsaid(server: Cluster, folder: Path) -> None:
    change(folder, lambda said: said.pop("with_state") and None)
    assert load(server, folder).returncode == 0
    change(folder, lambda said: said.update(steps=MOST_STEPS))
    assert load(server, folder).returncode == 0
    assert json.loads(run(server, "describe", "loaded", "--json").stdout)["steps"] == MOST_STEPS


@pytest.mark.parametrize(
    "text",
    ["[]", "", "{", "null", '"options"', "\xff", "[" * 500_000, '{"options":' * 500],
    ids=["list", "empty", "cut", "null", "text", "no_utf8", "deep_lists", "deep_objects"],
)
def test_what_is_no_object_is_not_taken_for_a_missing_table_json(
    server: Cluster, folder: Path, text: str
) -> None:
    (folder / "table.json").write_text(text, encoding="latin-1")
    why = "has objects in objects, more than 100" if len(text) > 500 else "is no JSON object"
    assert refusal(server, folder) == f"{folder}/table.json {why}"
    (folder / "table.json").write_text("{}")
    assert refusal(server, folder).startswith(f'{folder}/table.json has no "options"')
    (folder / "table.json").unlink()
    assert "NOT_FOUND" in refusal(server, folder)


def test_a_table_json_agrees_with_its_arrays(server: Cluster, folder: Path) -> None:
    change(folder, lambda said: said.update(rows=49))
    assert refusal(server, folder) == f'{folder}/table.json: "rows" is 49, but keys.npy has 50'
    change(folder, lambda said: said.update(rows=50, with_state=False))
    hint = ": import --without-state, and rows get the state of new rows"
    said = f'{folder}/table.json: "with_state" is'
    assert refusal(server, folder) == f"{said} false, but state.npy is there{hint}"
    assert load(server, folder, "--without-state").returncode == 0
    change(folder, lambda said: said.update(with_state=True))
    (folder / "state.npy").unlink()
    assert refusal(server, folder) == f"{said} true, but state.npy is not{hint}"
    assert load(server, folder, "--without-state").returncode == 0


def test_a_key_that_is_there_twice_is_refused(server: Cluster, folder: Path) -> None:
    keys = np.load(folder / "keys.npy")
    np.save(folder / "keys.npy", np.concatenate([keys[:-1], keys[:1]]))
    why = f"has key {keys[0]} twice: a table has one row of a key"
    assert refusal(server, folder) == f"{folder}/keys.npy {why}"


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


SPARSE = f"has {1 << 40} bytes: a file of a table's options must have at most {MOST_OPTIONS_BYTES}"


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("file", ["keys.npy", "values.npy", "state.npy", "table.json"])
@pytest.mark.parametrize("make", [os.mkfifo, zeros, Path.mkdir, sparse])
def test_only_regular_files_are_imported(
    server: Cluster, folder: Path, file: str, make: Callable[[Path], None]
) -> None:
    (folder / file).unlink()
    make(folder / file)
    why = f"cannot read {folder}/{file}: it is no regular file"
    if make is sparse and file == "table.json":
        why = f"{folder}/{file} {SPARSE}"
    elif make is sparse:
        why = f"{folder}/{file} is no array of rows: not a .npy file"
    assert refusal(server, folder) == why


@pytest.mark.parametrize("make", [os.mkfifo, zeros, sparse])
def test_only_a_small_regular_file_has_a_tables_options(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "t.pbtxt"
    make(path)
    done = run(None, "create", "t", "-f", path)
    why = f"{path} {SPARSE}" if make is sparse else f"cannot read {path}: it is no regular file"
    assert (done.returncode, done.stderr) == (1, f"slotwise-ctl: INVALID_ARGUMENT: {why}\n")


@pytest.mark.parametrize("below", ["-1", " -1", "-18446744073709551615"])
@pytest.mark.parametrize(
    "command",
    [
        "create t --dim 2 --seed",
        "create t --dim 2 --initial-rows",
        "create t --dim 2 --max-rows",
        "plan --dim 2 --rows",
        "plan --dim 2 --rows 1 --batch",
    ],
)
def test_a_number_below_0_is_no_large_one(command: str, below: str) -> None:
    done = run(None, *command.split(), below)
    assert done.returncode == 2 and f"{below} is below 0" in done.stderr
