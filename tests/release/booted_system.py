"""Boots a bare system with a systemd of its own, in systemd-nspawn, to see what becomes of its units."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "wheel"))

from bare_system import BareSystem, run  # noqa: E402

_UNIT = """
[Unit]
After=basic.target
[Service]
Type=oneshot
StandardOutput=file:/root/booted.out
StandardError=inherit
ExecStart=/bin/bash -euxc '. /root/booted.sh'
ExecStopPost=/bin/bash -c 'echo "$EXIT_STATUS" >/root/booted.status'
ExecStopPost=-/bin/systemctl --force --force poweroff
"""


def boot(system: BareSystem, script: str, limit: float = 300.0) -> str:
    """Boots a system that has systemd, runs a bash script in it, and shuts it down; what the script printed.

    The system has a network of its own, with the loopback interface alone. Fails if the script does.
    """
    folder = system.folder
    (folder / "root/booted.sh").write_text(script)
    (folder / "etc/systemd/system/booted.service").write_text(_UNIT)
    for left in ("booted.out", "booted.status"):
        (folder / "root" / left).unlink(missing_ok=True)
    options = ["--quiet", "--private-network", "--capability=CAP_IPC_LOCK", f"--directory={folder}"]
    if not os.path.isdir("/run/systemd/system"):  # this machine has no systemd to tell of it
        options += ["--register=no", "--keep-unit"]
    units = ["systemd.unit=multi-user.target", "systemd.wants=booted.service"]
    run(["timeout", str(limit), "systemd-nspawn", *options, "--boot", *units], limit=limit + 30)
    said = (folder / "root/booted.out").read_text()
    status = (folder / "root/booted.status").read_text().strip()
    assert status == "0", f"ended with {status}:\n{said}"
    return said
