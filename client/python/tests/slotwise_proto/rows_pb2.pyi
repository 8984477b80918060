# mypy: ignore-errors
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class EraseReply(_message.Message):
    __slots__ = ["rows"]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    def __init__(self, rows: _Optional[int] = ...) -> None: ...

class EraseRequest(_message.Message):
    __slots__ = ["keys", "table"]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    keys: bytes
    table: str
    def __init__(self, table: _Optional[str] = ..., keys: _Optional[bytes] = ...) -> None: ...

class ExportReply(_message.Message):
    __slots__ = ["dim", "keys", "lineage", "state", "state_size", "values"]
    DIM_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_SIZE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    dim: int
    keys: bytes
    lineage: int
    state: bytes
    state_size: int
    values: bytes
    def __init__(self, dim: _Optional[int] = ..., state_size: _Optional[int] = ..., lineage: _Optional[int] = ..., keys: _Optional[bytes] = ..., values: _Optional[bytes] = ..., state: _Optional[bytes] = ...) -> None: ...

class ExportRequest(_message.Message):
    __slots__ = ["keys", "table", "with_state"]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    WITH_STATE_FIELD_NUMBER: _ClassVar[int]
    keys: bytes
    table: str
    with_state: bool
    def __init__(self, table: _Optional[str] = ..., with_state: bool = ..., keys: _Optional[bytes] = ...) -> None: ...

class ImportReply(_message.Message):
    __slots__ = ["lineage", "rows"]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    lineage: int
    rows: int
    def __init__(self, rows: _Optional[int] = ..., lineage: _Optional[int] = ...) -> None: ...

class ImportRequest(_message.Message):
    __slots__ = ["keys", "state", "table", "table_steps", "values"]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_STEPS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    keys: bytes
    state: bytes
    table: str
    table_steps: int
    values: bytes
    def __init__(self, table: _Optional[str] = ..., table_steps: _Optional[int] = ..., keys: _Optional[bytes] = ..., values: _Optional[bytes] = ..., state: _Optional[bytes] = ...) -> None: ...
