"""The wheel where nothing else of ours is: `./dev test wheel`. Systems are made on first use, and kept."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_system import ROOT, BareSystem, releases

_WHEEL = Path(os.environ.get("SLOTWISE_WHEEL", ""))
_ENVIRONMENT = "/root/slotwise"  # Python's virtual one
_PYTHON = f"{_ENVIRONMENT}/bin/python"

_STEP = """
import numpy as np, slotwise
ps = slotwise.connect("local")
ps.create_table("ads", dim=4, optimizer=slotwise.SGD(lr=0.5))
before = ps.lookup("ads", [7, 9])
ps.push("ads", [7, 9], None, np.ones_like(before))
assert np.allclose(ps.lookup("ads", [7, 9]), before - 0.5)
print("a step was trained")
"""


@pytest.fixture(scope="module", params=releases())
def system(request: pytest.FixtureRequest) -> Iterator[BareSystem]:
    """A bare system with the wheel in a virtual environment."""
    assert _WHEEL.suffix == ".whl", "SLOTWISE_WHEEL names no wheel: run this by ./dev test wheel"
    system = BareSystem(request.param)
    system.run(f"python3 -m venv --system-site-packages {_ENVIRONMENT}")
    system.put(_WHEEL, f"root/{_WHEEL.name}")
    begun = time.monotonic()
    system.run(f"{_PYTHON} -m pip install --no-index /root/{_WHEEL.name}")
    said = system.run(f"{_PYTHON} -c '{_STEP}'")
    took = time.monotonic() - begun
    assert said == "a step was trained\n"
    print(f"{request.param}: from pip install to a trained step in {took:.1f} s")
    assert took < 60.0
    yield system
    system.remove()


def test_the_wheel_trains_within_a_minute_of_pip_install(system: BareSystem) -> None:
    """What the fixture has just done; the other tests go on from there."""


def test_importing_takes_less_than_a_fifth_of_a_second(system: BareSystem) -> None:
    # Processor time, because others may keep the processors busy; an import waits for nothing else.
    timed = "import time; t = time.process_time(); import slotwise; print(time.process_time() - t)"
    seconds = [float(system.run(f"{_PYTHON} -c '{timed}'")) for _ in range(5)]
    print(f"import slotwise: {min(seconds):.3f} s")
    assert min(seconds) < 0.2


def test_several_ranks_want_mpirun_and_run_with_it(system: BareSystem) -> None:
    two = f"{_PYTHON} -c 'import slotwise; print(len(slotwise.serve(2, timeout=120).addresses))'"
    refused = system.run(f"{two} 2>&1 || true")
    assert "a server of 2 ranks needs Open MPI's mpirun" in refused
    system.install(["openmpi-bin"])
    assert system.run(two) == "2\n"


def test_the_command_asks_a_server(system: BareSystem) -> None:
    ask = "import slotwise, subprocess; s = slotwise.serve(); subprocess.run"
    command = f'["{_ENVIRONMENT}/bin/slotwise-ctl", "--server", s.address, "status"]'
    assert "serving" in system.run(f"{_PYTHON} -c '{ask}({command}, check=True)'").lower()


def test_adult_is_learned(system: BareSystem) -> None:
    system.install(["python3-torch", "python3-matplotlib", "python3-tqdm"])
    system.put(ROOT / "examples/adult", "root/adult")
    said = system.run(f"{_PYTHON} /root/adult/train.py --server local --epochs 1 --out /root/out", limit=600)
    auc = re.search(r"^test AUC ([0-9.]+)$", said, re.MULTILINE)
    print(auc and auc[0])
    assert auc and float(auc[1]) > 0.92
