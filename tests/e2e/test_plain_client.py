"""The .proto files are enough to use Slotwise."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from programs import output_of
from slotwise_cluster import Cluster
from slotwise_wire import PROTO


def generate(folder: Path) -> None:
    """Has protoc write the messages and stubs of all services."""
    plugin = shutil.which("grpc_python_plugin")
    assert plugin, "grpc_python_plugin is missing: apt-get install protobuf-compiler-grpc"
    command = ["protoc", f"-I{PROTO}", f"--plugin=protoc-gen-grpc_python={plugin}"]
    command += [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    files = [f"slotwise/v1/{name}.proto" for name in ("admin", "embedding", "rows")]
    subprocess.run([*command, *files], check=True)


def test_client_generated_from_the_protos_uses_every_service(cluster: Cluster, tmp_path: Path) -> None:
    generate(tmp_path)
    program = Path(__file__).with_name("plain_client.py")
    options = (program, cluster.ranks[-1].address)
    assert output_of(sys.executable, *options, timeout=120, PYTHONPATH=str(tmp_path)) == "trained\n"
