"""Runs the processes of a process group's trainers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from waiting import LIMIT, wait_until

needs_gloo = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo",
)


def run(folder: Path, script: str, trainers: int, *arguments: str) -> None:
    """Runs `script STORE TRAINER TRAINERS ARGUMENTS...`, as so many trainers, to their end."""
    logs = [folder / f"trainer-{trainer}.log" for trainer in range(trainers)]
    processes = []
    for trainer, log in enumerate(logs):
        with log.open("wb") as output:
            command = [sys.executable, script, str(folder / "store"), str(trainer), str(trainers), *arguments]
            paths = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
            processes.append(subprocess.Popen(command, env=os.environ | paths, stderr=output))
    try:
        # One that fails leaves the others waiting.
        wait_until(
            lambda: any(process.poll() for process in processes)
            or all(process.poll() == 0 for process in processes),
            "the trainers' end",
            4 * LIMIT,
        )
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * trainers, "\n".join(
        log.read_text() for log in logs
    )
