"""Slotwise's protocol for tests, made of the .proto files alone: no client of ours, no generated code.

The messages live in a descriptor pool of their own, so that they never meet those of the client in
client/python.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse{status: SERVING}
# Seconds. Nothing here takes that long, but a machine of two busy cores may, or one that is busier yet.
CALL_TIMEOUT = float(os.environ.get("SLOTWISE_TEST_PATIENCE", "60"))
CHANNEL_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


class Protocol:
    """Message classes by name, and stubs for the services."""

    def __init__(self, folder: Path) -> None:
        compiled = folder / "slotwise.protoset"
        files = [f"slotwise/v1/{name}.proto" for name in ("embedding", "rows", "admin", "data")]
        command = ["protoc", f"-I{PROTO}", "--include_imports", f"--descriptor_set_out={compiled}", *files]
        subprocess.run(command, check=True)
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file:
            self._pool.AddSerializedFile(file.SerializeToString())

    def __getattr__(self, name: str) -> Any:
        """The class of message slotwise.v1.`name`."""
        return self._class_of(self._pool.FindMessageTypeByName(f"slotwise.v1.{name}"))

    def stub(self, channel: grpc.Channel, service: str) -> Any:
        """The methods of a service; each takes a message, or bytes to send as they are."""
        descriptor = self._pool.FindServiceByName(f"slotwise.v1.{service}")
        methods = {
            method.name: self._kind_of(method, channel)(
                f"/{descriptor.full_name}/{method.name}",
                request_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
                response_deserializer=self._class_of(method.output_type).FromString,
            )
            for method in descriptor.methods
        }
        return SimpleNamespace(**methods)

    def _kind_of(self, method: Any, channel: grpc.Channel) -> Any:
        proto = descriptor_pb2.MethodDescriptorProto()
        method.CopyToProto(proto)
        if proto.server_streaming:
            return channel.unary_stream
        return channel.stream_unary if proto.client_streaming else channel.unary_unary

    def _class_of(self, descriptor: Any) -> Any:
        if hasattr(message_factory, "GetMessageClass"):
            return message_factory.GetMessageClass(descriptor)
        return message_factory.MessageFactory(self._pool).GetPrototype(descriptor)  # before protobuf 4.22


def health(channel: grpc.Channel, service: str = "") -> bytes:
    """What the standard health service answers."""
    request = bytes([0x0A, len(service)]) + service.encode() if service else b""
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    return bytes(check(request, timeout=CALL_TIMEOUT, wait_for_ready=True))
