# mypy: ignore-errors
from slotwise_proto import embedding_pb2 as _embedding_pb2
from slotwise_proto import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ArenaPlaces(_message.Message):
    __slots__ = ["body", "body_bytes", "values", "values_bytes"]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    VALUES_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    body: int
    body_bytes: int
    values: int
    values_bytes: int
    def __init__(self, body: _Optional[int] = ..., body_bytes: _Optional[int] = ..., values: _Optional[int] = ..., values_bytes: _Optional[int] = ...) -> None: ...

class DataArrays(_message.Message):
    __slots__ = ["gradients", "keys", "offsets", "weights", "wide_offsets"]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    WIDE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    gradients: int
    keys: int
    offsets: int
    weights: int
    wide_offsets: bool
    def __init__(self, keys: _Optional[int] = ..., gradients: _Optional[int] = ..., offsets: _Optional[int] = ..., weights: _Optional[int] = ..., wide_offsets: bool = ...) -> None: ...

class DataCall(_message.Message):
    __slots__ = ["arena", "arrays", "id", "lookups", "many", "pushes", "timeout_ms", "token", "traceparent"]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    MANY_FIELD_NUMBER: _ClassVar[int]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    arena: ArenaPlaces
    arrays: _containers.RepeatedCompositeFieldContainer[DataArrays]
    id: int
    lookups: _containers.RepeatedCompositeFieldContainer[_embedding_pb2.LookupRequest]
    many: bool
    pushes: _containers.RepeatedCompositeFieldContainer[_embedding_pb2.PushRequest]
    timeout_ms: int
    token: str
    traceparent: str
    def __init__(self, id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., many: bool = ..., lookups: _Optional[_Iterable[_Union[_embedding_pb2.LookupRequest, _Mapping]]] = ..., pushes: _Optional[_Iterable[_Union[_embedding_pb2.PushRequest, _Mapping]]] = ..., arrays: _Optional[_Iterable[_Union[DataArrays, _Mapping]]] = ..., arena: _Optional[_Union[ArenaPlaces, _Mapping]] = ..., token: _Optional[str] = ..., traceparent: _Optional[str] = ...) -> None: ...

class DataReply(_message.Message):
    __slots__ = ["code", "id", "in_arena", "lookups", "message", "pushes", "reason", "retry_after_ms", "value_bytes"]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    IN_ARENA_FIELD_NUMBER: _ClassVar[int]
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    code: int
    id: int
    in_arena: bool
    lookups: _containers.RepeatedCompositeFieldContainer[_embedding_pb2.LookupReply]
    message: str
    pushes: _containers.RepeatedCompositeFieldContainer[_embedding_pb2.PushReply]
    reason: _errors_pb2.Reason
    retry_after_ms: int
    value_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., lookups: _Optional[_Iterable[_Union[_embedding_pb2.LookupReply, _Mapping]]] = ..., pushes: _Optional[_Iterable[_Union[_embedding_pb2.PushReply, _Mapping]]] = ..., value_bytes: _Optional[_Iterable[int]] = ..., in_arena: bool = ..., retry_after_ms: _Optional[int] = ..., reason: _Optional[_Union[_errors_pb2.Reason, str]] = ...) -> None: ...
