"""The C++ client as others get it: installed, found by find_package, and used by a program of its own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from slotwise_cluster import StartCluster, server_binary
from slotwise_wire import ROOT


def test_the_example_builds_against_the_installed_client_and_trains(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    build = server_binary().parents[1]
    cache = (build / "CMakeCache.txt").read_text()
    sanitizers = re.search(r"^SLOTWISE_SANITIZE:STRING=(.+)$", cache, re.MULTILINE)
    flags = f"-fsanitize={sanitizers[1]}" if sanitizers else ""
    commands = [
        ["cmake", "--install", str(build), "--prefix", str(tmp_path / "prefix"), "--component", "client"],
        ["cmake", "-S", str(ROOT / "examples/cpp"), "-B", str(tmp_path / "build"), "-G", "Ninja",
         f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}", f"-DCMAKE_CXX_FLAGS={flags}"],
        ["cmake", "--build", str(tmp_path / "build")],
    ]  # fmt: skip
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"

    cluster = start_cluster(2)
    program = [str(tmp_path / "build/train"), cluster.ranks[1].address]
    trained = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert trained.returncode == 0, trained.stderr
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", trained.stdout)]
    assert len(losses) == 4 and losses[-1] < 0.6 * losses[0], trained.stdout
    assert "the table has 150 rows after 60 steps" in trained.stdout
