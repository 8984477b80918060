"""The PEP 517 backend: what pip is told, and what it packs. (`./dev test wheel` installs a whole wheel.)"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import slotwise

_PACKAGE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_PACKAGE / "build_backend"))

import slotwise_build  # noqa: E402


def test_a_package_outside_a_checkout_is_refused_by_pip(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("tests", "build", "__pycache__")
    shutil.copytree(_PACKAGE, tmp_path / "a/b/python", ignore=ignored)
    command = ["/usr/bin/python3", "-m", "pip", "wheel", "--no-build-isolation", "--no-index", "--no-deps"]
    done = subprocess.run([*command, "a/b/python"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "lies in no checkout of Slotwise" in done.stdout + done.stderr


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemExit, match="cmake, .*patchelf.* run ./dev setup build"):
        slotwise_build.build_wheel(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_there_is_no_source_distribution(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="./dev wheel makes a wheel"):
        slotwise_build.build_sdist(str(tmp_path))


def test_metadata_wants_numpy_alone_and_leaves_the_checkout_as_it_was(tmp_path: Path) -> None:
    before = sorted(os.listdir(_PACKAGE))
    name = slotwise_build.prepare_metadata_for_build_wheel(str(tmp_path))
    metadata = (tmp_path / name / "METADATA").read_text().splitlines()
    needed = [line for line in metadata if line.startswith("Requires-Dist") and "extra" not in line]
    assert [line.split()[1].partition(">")[0] for line in needed] == ["numpy"]
    assert f"Version: {slotwise.__version__}" in metadata
    assert sorted(os.listdir(_PACKAGE)) == before


def test_packing_gives_the_same_bytes_with_a_record_and_modes(tmp_path: Path) -> None:
    contents = tmp_path / "contents"
    files = {"slotwise/_native/program": 0o755, "slotwise/a.py": 0o600, "s.dist-info/RECORD": 0o644}
    for name, mode in files.items():
        (contents / name).parent.mkdir(parents=True, exist_ok=True)
        (contents / name).write_text(name)
        (contents / name).chmod(mode)
    record = contents / "s.dist-info/RECORD"
    wheels = [tmp_path / "one.whl", tmp_path / "two.whl"]
    for wheel in wheels:
        record.write_text("old")
        slotwise_build._pack(contents, wheel)
        os.utime(contents / "slotwise/a.py", (2e9, 2e9))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as archive:
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
        assert modes["slotwise/_native/program"] == 0o755 and modes["slotwise/a.py"] == 0o644
        rows = list(csv.reader(archive.read("s.dist-info/RECORD").decode().splitlines()))
        assert [row[0] for row in rows] == archive.namelist()
        for name, digest, size in rows[:-1]:
            data = archive.read(name)
            wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={wanted}", str(len(data)))
        assert rows[-1] == ["s.dist-info/RECORD", "", ""]


def test_a_full_disk_leaves_no_wheel(tmp_path: Path) -> None:
    contents = tmp_path / "contents/s.dist-info"
    contents.mkdir(parents=True)
    (contents / "RECORD").write_text("")
    (tmp_path / "a.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        slotwise_build._pack(contents.parent, tmp_path / "a.whl")
    assert not (tmp_path / "a.whl").exists()
