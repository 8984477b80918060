"""Finds the core and the programs that come with the client, in the wheel or in the checkout."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from slotwise.errors import FailedPrecondition

_PACKAGE = Path(__file__).resolve().parent


def find_core() -> Path:
    """Returns the path of libslotwise.so; ImportError, which says what to do, if there is none."""
    named = os.environ.get("SLOTWISE_CORE")
    if named:
        if not os.path.isfile(named):
            raise ImportError(f"SLOTWISE_CORE is {named}, which is no file")
        return Path(named)
    name = "libslotwise.so"
    found = _in_wheel(name) or _newest_built(f"client/c/{name}", ("cuda", "cpu"))
    if found is None:
        raise ImportError(
            f"slotwise's core, {name}, is not built: run ./dev build in the checkout that "
            f"{_PACKAGE} lies in, or install the wheel"
        )
    return found


def find_server(backend: str, ranks: int) -> Path:
    """Returns the slotwise-server to start `ranks` times; FailedPrecondition if there is none."""
    named = os.environ.get("SLOTWISE_SERVER")
    if named:
        if not os.access(named, os.X_OK):
            raise FailedPrecondition(f"SLOTWISE_SERVER is {named}, which is not a program")
        return Path(named).absolute()
    if backend == "cuda":
        return _find_cuda_server()
    own = "slotwise-server-solo" if ranks == 1 else "slotwise-server"
    found = _in_wheel(own) or _newest_built("server/slotwise-server", ("cuda", "cpu"))
    if found is None:
        raise FailedPrecondition(
            "there is no slotwise-server: install the wheel, run ./dev build in the checkout, or "
            "set SLOTWISE_SERVER"
        )
    return found


def find_mpirun(ranks: int) -> str:
    """Returns Open MPI's mpirun, which starts a server of several ranks; raises as `find_server`."""
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise FailedPrecondition(
            f"a server of {ranks} ranks needs Open MPI's mpirun, which is not on PATH (Debian and "
            "Ubuntu: apt-get install openmpi-bin); a server of one rank does not"
        )
    return mpirun


def run_ctl() -> None:
    """Becomes slotwise-ctl with this process's arguments, for the command that the wheel installs."""
    found = _in_wheel("slotwise-ctl") or _newest_built("client/ctl/slotwise-ctl", ("cuda", "cpu"))
    if found is None:
        sys.exit("slotwise-ctl is not built: run ./dev build in the checkout")
    os.execv(found, [str(found), *sys.argv[1:]])


def _find_cuda_server() -> Path:
    found = _newest_built("server/slotwise-server", ("cuda",))
    on_path = shutil.which("slotwise-server")
    if found is None and on_path is None:
        raise FailedPrecondition(
            "there is no slotwise-server with CUDA: the wheel's is for the CPU. Build one where "
            "nvcc is (./dev build), and have it on PATH or in SLOTWISE_SERVER"
        )
    return found or Path(str(on_path))


def _in_wheel(name: str) -> Path | None:
    path = _PACKAGE / "_native" / name
    return path if os.access(path, os.R_OK) else None


def _newest_built(name: str, presets: Iterable[str]) -> Path | None:
    built = [_PACKAGE.parents[2] / "build" / preset / name for preset in presets]
    there = [path for path in built if os.access(path, os.R_OK)]
    return max(there, key=lambda path: path.stat().st_mtime) if there else None
