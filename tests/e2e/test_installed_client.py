"""The C++ client as others get it: installed, found by find_package, and used by a program of its own."""

from __future__ import annotations

import re
from pathlib import Path

from programs import BUILT, output_of
from slotwise_cluster import StartCluster
from slotwise_wire import ROOT


def test_the_example_builds_against_the_installed_client_and_trains(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cache = (BUILT / "CMakeCache.txt").read_text()
    sanitizers = re.search(r"^SLOTWISE_SANITIZE:STRING=(.+)$", cache, re.MULTILINE)
    flags = f"-fsanitize={sanitizers[1]}" if sanitizers else ""
    prefix, build = tmp_path / "prefix", tmp_path / "build"
    found = (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_FLAGS={flags}")
    output_of("cmake", "--install", BUILT, "--prefix", prefix, "--component", "client", timeout=120)
    output_of("cmake", "-S", ROOT / "examples/cpp", "-B", build, "-G", "Ninja", *found, timeout=120)
    output_of("cmake", "--build", build, timeout=120)
    trained = output_of(build / "train", start_cluster(2).ranks[1].address)
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", trained)]
    assert len(losses) == 4 and losses[-1] < 0.6 * losses[0], trained
    assert "the table has 150 rows after 60 steps" in trained
