"""The messages of proto/slotwise/v1, as protoc makes them now, in modules of their files' names.

    from slotwise_proto import admin_pb2

They live in a descriptor pool of their own, so they never meet those of a client.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

PROTO = Path(__file__).resolve().parents[3] / "proto"
NAMES = ("admin", "data", "embedding", "errors", "rows")


def _compiled() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    with tempfile.NamedTemporaryFile(suffix=".protoset") as compiled:
        files = [f"slotwise/v1/{name}.proto" for name in NAMES]
        to = f"--descriptor_set_out={compiled.name}"
        subprocess.run(["protoc", f"-I{PROTO}", "--include_imports", to, *files], check=True)
        every = descriptor_pb2.FileDescriptorSet.FromString(Path(compiled.name).read_bytes())
    for file in every.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _class_of(pool: descriptor_pool.DescriptorPool, descriptor: Any) -> Any:
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)  # before protobuf 4.22


def _module(pool: descriptor_pool.DescriptorPool, name: str) -> Any:
    file = pool.FindFileByName(f"slotwise/v1/{name}.proto")
    module = ModuleType(f"{name}_pb2")
    for message in file.message_types_by_name.values():
        setattr(module, message.name, _class_of(pool, message))
    for enum in file.enum_types_by_name.values():
        setattr(module, enum.name, EnumTypeWrapper(enum))
        for value in enum.values:
            setattr(module, value.name, value.number)
    return module


_pool = _compiled()
admin_pb2, data_pb2, embedding_pb2, errors_pb2, rows_pb2 = (_module(_pool, name) for name in NAMES)
