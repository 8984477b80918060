"""A server of today loads the checkpoint that each released version, and this one, has written.

kept_checkpoint.py makes one, when the version changes; those that are there stay as they are.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
from pathlib import Path
from typing import Any, cast

import pytest
import slotwise
from kept_checkpoint import FIXTURES, state, values
from slotwise import checkpoint_files
from slotwise.version import __version__

KEPT = sorted(path.parent for path in FIXTURES.glob("*/state.json"))


def unpack(kept: Path, folder: Path) -> Path:
    """The data folder of a version."""
    with tarfile.open(kept / "data.tar.xz") as archive:
        archive.extractall(folder)
    return folder / "data"


def test_this_version_is_kept() -> None:
    names = [kept.name for kept in KEPT]
    assert __version__ in names, "run tests/e2e/kept_checkpoint.py, and commit what it made"


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_a_server_of_today_has_the_state_that_was_saved(kept: Path, ranks: int, tmp_path: Path) -> None:
    says = json.loads((kept / "state.json").read_text())
    assert says["version"] == kept.name and says["tables"]
    data = unpack(kept, tmp_path)
    with slotwise.serve(ranks, data=data) as server, slotwise.connect(server.address) as ps:
        assert state(ps) == says["tables"]
        assert values(ps) == says["values"]
        (checkpoint,) = ps.checkpoints()
        assert checkpoint.id == says["id"] and checkpoint.usable
        assert ps.verify(says["id"]).bytes > 0


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_the_python_reader_names_a_version_that_it_does_not_know(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/durability/manifest_test.cc has the server's refusal."""
    data = unpack(kept, tmp_path)
    (manifest,) = data.glob("checkpoints/*/manifest.json")
    assert checkpoint_files.open(manifest.parent).keys() == json.loads(
        (kept / "state.json").read_text()
    )["tables"].keys()
    text = manifest.read_text()
    newer = re.sub(r'"format_version": [123],', '"format_version": 4,', text)
    assert newer != text
    manifest.write_text(newer)
    # With xxhash, the changed file's checksum would be what is wrong.
    monkeypatch.setitem(cast(dict[str, Any], sys.modules), "xxhash", None)
    with pytest.raises(slotwise.Error, match="format_version is 4"):
        checkpoint_files.open(manifest.parent)
