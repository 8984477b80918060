# mypy: ignore-errors
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DATA_TYPE_BFLOAT16: DataType
DATA_TYPE_FLOAT16: DataType
DATA_TYPE_FLOAT32: DataType
DATA_TYPE_UNSPECIFIED: DataType
DESCRIPTOR: _descriptor.FileDescriptor
LOOKUP_MODE_EVAL: LookupMode
LOOKUP_MODE_TRAIN: LookupMode
LOOKUP_MODE_UNSPECIFIED: LookupMode

class AcknowledgedState(_message.Message):
    __slots__ = ["incarnation", "table_step"]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TABLE_STEP_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    table_step: int
    def __init__(self, incarnation: _Optional[int] = ..., table_step: _Optional[int] = ...) -> None: ...

class LookedUpState(_message.Message):
    __slots__ = ["lineage", "table_step"]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    TABLE_STEP_FIELD_NUMBER: _ClassVar[int]
    lineage: int
    table_step: int
    def __init__(self, lineage: _Optional[int] = ..., table_step: _Optional[int] = ...) -> None: ...

class LookupManyReply(_message.Message):
    __slots__ = ["replies"]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[LookupReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[LookupReply, _Mapping]]] = ...) -> None: ...

class LookupManyRequest(_message.Message):
    __slots__ = ["lookups"]
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    lookups: _containers.RepeatedCompositeFieldContainer[LookupRequest]
    def __init__(self, lookups: _Optional[_Iterable[_Union[LookupRequest, _Mapping]]] = ...) -> None: ...

class LookupReply(_message.Message):
    __slots__ = ["data_type", "incarnation", "lineage", "lost_from", "samples", "table_step", "values", "width"]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    LOST_FROM_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    TABLE_STEP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    data_type: DataType
    incarnation: int
    lineage: int
    lost_from: int
    samples: int
    table_step: int
    values: bytes
    width: int
    def __init__(self, samples: _Optional[int] = ..., width: _Optional[int] = ..., data_type: _Optional[_Union[DataType, str]] = ..., incarnation: _Optional[int] = ..., lineage: _Optional[int] = ..., table_step: _Optional[int] = ..., lost_from: _Optional[int] = ..., values: _Optional[bytes] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ["acknowledged", "data_type", "keys", "mode", "offsets", "samples", "table", "weights"]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    acknowledged: AcknowledgedState
    data_type: DataType
    keys: bytes
    mode: LookupMode
    offsets: bytes
    samples: int
    table: str
    weights: bytes
    def __init__(self, table: _Optional[str] = ..., mode: _Optional[_Union[LookupMode, str]] = ..., samples: _Optional[int] = ..., data_type: _Optional[_Union[DataType, str]] = ..., acknowledged: _Optional[_Union[AcknowledgedState, _Mapping]] = ..., keys: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., weights: _Optional[bytes] = ...) -> None: ...

class PushManyReply(_message.Message):
    __slots__ = ["replies"]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[PushReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[PushReply, _Mapping]]] = ...) -> None: ...

class PushManyRequest(_message.Message):
    __slots__ = ["pushes"]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    pushes: _containers.RepeatedCompositeFieldContainer[PushRequest]
    def __init__(self, pushes: _Optional[_Iterable[_Union[PushRequest, _Mapping]]] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ["incarnation", "lineage", "lost_from", "newest_step", "table_step"]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    LOST_FROM_FIELD_NUMBER: _ClassVar[int]
    NEWEST_STEP_FIELD_NUMBER: _ClassVar[int]
    TABLE_STEP_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    lineage: int
    lost_from: int
    newest_step: int
    table_step: int
    def __init__(self, table_step: _Optional[int] = ..., lineage: _Optional[int] = ..., incarnation: _Optional[int] = ..., newest_step: _Optional[int] = ..., lost_from: _Optional[int] = ...) -> None: ...

class PushRequest(_message.Message):
    __slots__ = ["acknowledged", "data_type", "gradients", "keys", "learning_rate", "looked_up", "offsets", "samples", "step", "table", "weights"]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    LOOKED_UP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    acknowledged: AcknowledgedState
    data_type: DataType
    gradients: bytes
    keys: bytes
    learning_rate: float
    looked_up: LookedUpState
    offsets: bytes
    samples: int
    step: StepId
    table: str
    weights: bytes
    def __init__(self, table: _Optional[str] = ..., step: _Optional[_Union[StepId, _Mapping]] = ..., samples: _Optional[int] = ..., data_type: _Optional[_Union[DataType, str]] = ..., looked_up: _Optional[_Union[LookedUpState, _Mapping]] = ..., acknowledged: _Optional[_Union[AcknowledgedState, _Mapping]] = ..., learning_rate: _Optional[float] = ..., keys: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., gradients: _Optional[bytes] = ..., weights: _Optional[bytes] = ...) -> None: ...

class StepId(_message.Message):
    __slots__ = ["epoch", "number", "part", "parts", "place", "session", "tables"]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    number: int
    part: int
    parts: int
    place: int
    session: int
    tables: int
    def __init__(self, session: _Optional[int] = ..., number: _Optional[int] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ..., epoch: _Optional[int] = ..., place: _Optional[int] = ..., tables: _Optional[int] = ...) -> None: ...

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class LookupMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
