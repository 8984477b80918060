# mypy: ignore-errors
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
REASON_ALREADY_EXISTS: Reason
REASON_BUG: Reason
REASON_BUSY: Reason
REASON_CANCELLED: Reason
REASON_CLIENT_CLOSED: Reason
REASON_DAMAGED: Reason
REASON_DISK_FULL: Reason
REASON_INVALID_VALUE: Reason
REASON_JOURNAL_BEHIND: Reason
REASON_MALFORMED: Reason
REASON_NOT_FOUND: Reason
REASON_NO_ANSWER: Reason
REASON_NO_CHECKPOINT: Reason
REASON_NO_DATA_FOLDER: Reason
REASON_NO_MEMORY: Reason
REASON_NO_RIGHT: Reason
REASON_NO_ROOM: Reason
REASON_NO_SHARED_GPU: Reason
REASON_NO_TABLE: Reason
REASON_OTHER_OPTIONS: Reason
REASON_OTHER_VERSION: Reason
REASON_PUSH_BEFORE_FAILED: Reason
REASON_SESSION_FORGOTTEN: Reason
REASON_STARTING: Reason
REASON_STATE_REPLACED: Reason
REASON_STEPS_LOST: Reason
REASON_STEP_DIFFERS: Reason
REASON_STEP_INCOMPLETE: Reason
REASON_STEP_TOO_OLD: Reason
REASON_STOPPING: Reason
REASON_TABLE_CHANGED: Reason
REASON_TABLE_FULL: Reason
REASON_TOO_LARGE: Reason
REASON_TOO_LATE: Reason
REASON_UNKNOWN_CALLER: Reason
REASON_UNSPECIFIED: Reason
REASON_WRONG_STATE: Reason

class ErrorInfo(_message.Message):
    __slots__ = ["domain", "metadata", "reason"]
    class MetadataEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    domain: str
    metadata: _containers.ScalarMap[str, str]
    reason: str
    def __init__(self, reason: _Optional[str] = ..., domain: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ErrorStatus(_message.Message):
    __slots__ = ["code", "details", "message"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    message: bytes
    def __init__(self, code: _Optional[int] = ..., message: _Optional[bytes] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
