"""Programs that a test runs to their end, and where the built ones are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from slotwise_cluster import MPI_ENVIRONMENT, server_binary
from slotwise_wire import CALL_TIMEOUT

BUILT = server_binary().parents[1]
CTL = BUILT / "client/ctl/slotwise-ctl"
LAUNCH = Path(os.environ.get("SLOTWISE_LAUNCH", BUILT / "server/launch/slotwise-launch"))


def run(
    *command: object, timeout: float = CALL_TIMEOUT, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program, which may fail."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | MPI_ENVIRONMENT | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def output_of(
    *command: object, timeout: float = CALL_TIMEOUT, folder: Path | None = None, **environment: str
) -> str:
    """Runs a program that must end well; what it printed."""
    ended = run(*command, timeout=timeout, folder=folder, **environment)
    assert ended.returncode == 0, f"{command}:\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout
