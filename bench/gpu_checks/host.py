"""What machine this is."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path


def describe() -> dict[str, str | list[str]]:
    """What a reader of the figures wants to know; what cannot be found out is "not there"."""
    return {
        "gpus": gpus(),
        "driver": _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "cuda": _cuda_of_driver(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": _system(),
        "mpi": _first_line("mpirun", "--version"),
        "python": platform.python_version(),
    }


def gpus() -> list[str]:
    """`nvidia-smi -L`, a line a GPU."""
    return [line for line in _output("nvidia-smi", "-L").splitlines() if line.startswith("GPU ")]


def _cuda_of_driver() -> str:
    found = re.search(r"CUDA Version: *(\S+)", _output("nvidia-smi"))
    return found[1] if found else "not there"


def _processor() -> str:
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    return found[1] if found else platform.machine()


def _system() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, kernel {platform.release()}"
    except (OSError, KeyError):
        return platform.platform()


def _first_line(*command: str) -> str:
    lines = _output(*command).splitlines()
    return lines[0].strip() if lines else "not there"


def _output(*command: str) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""
