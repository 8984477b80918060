# mypy: ignore-errors
from slotwise_proto import embedding_pb2 as _embedding_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

COMBINER_MEAN: Combiner
COMBINER_NONE: Combiner
COMBINER_SQRTN: Combiner
COMBINER_SUM: Combiner
COMBINER_UNSPECIFIED: Combiner
DESCRIPTOR: _descriptor.FileDescriptor

class AdaGrad(_message.Message):
    __slots__ = ["epsilon", "initial_accumulator"]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    INITIAL_ACCUMULATOR_FIELD_NUMBER: _ClassVar[int]
    epsilon: float
    initial_accumulator: float
    def __init__(self, epsilon: _Optional[float] = ..., initial_accumulator: _Optional[float] = ...) -> None: ...

class Adam(_message.Message):
    __slots__ = ["beta1", "beta2", "corrected_epsilon", "decoupled_decay", "epsilon"]
    BETA1_FIELD_NUMBER: _ClassVar[int]
    BETA2_FIELD_NUMBER: _ClassVar[int]
    CORRECTED_EPSILON_FIELD_NUMBER: _ClassVar[int]
    DECOUPLED_DECAY_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    beta1: float
    beta2: float
    corrected_epsilon: bool
    decoupled_decay: bool
    epsilon: float
    def __init__(self, beta1: _Optional[float] = ..., beta2: _Optional[float] = ..., epsilon: _Optional[float] = ..., corrected_epsilon: bool = ..., decoupled_decay: bool = ...) -> None: ...

class CallStats(_message.Message):
    __slots__ = ["bytes_in", "bytes_out", "calls", "keys", "latency", "refusals", "samples", "stages"]
    class RefusalsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class StagesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: DurationStats
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[DurationStats, _Mapping]] = ...) -> None: ...
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    bytes_in: int
    bytes_out: int
    calls: int
    keys: int
    latency: DurationStats
    refusals: _containers.ScalarMap[str, int]
    samples: int
    stages: _containers.MessageMap[str, DurationStats]
    def __init__(self, calls: _Optional[int] = ..., samples: _Optional[int] = ..., keys: _Optional[int] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., refusals: _Optional[_Mapping[str, int]] = ..., latency: _Optional[_Union[DurationStats, _Mapping]] = ..., stages: _Optional[_Mapping[str, DurationStats]] = ...) -> None: ...

class CheckpointInfo(_message.Message):
    __slots__ = ["bytes", "created", "folds", "id", "kept_for_load", "parent", "pinned", "ranks", "round", "rows", "tables", "usable", "why_not"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    FOLDS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    KEPT_FOR_LOAD_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    USABLE_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    created: int
    folds: str
    id: str
    kept_for_load: bool
    parent: str
    pinned: bool
    ranks: int
    round: int
    rows: int
    tables: _containers.RepeatedCompositeFieldContainer[CheckpointTable]
    usable: bool
    why_not: str
    def __init__(self, id: _Optional[str] = ..., parent: _Optional[str] = ..., folds: _Optional[str] = ..., created: _Optional[int] = ..., round: _Optional[int] = ..., ranks: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[CheckpointTable, _Mapping]]] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., usable: bool = ..., why_not: _Optional[str] = ..., pinned: bool = ..., kept_for_load: bool = ...) -> None: ...

class CheckpointTable(_message.Message):
    __slots__ = ["name", "rows"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    name: str
    rows: int
    def __init__(self, name: _Optional[str] = ..., rows: _Optional[int] = ...) -> None: ...

class CompactCheckpointReply(_message.Message):
    __slots__ = ["checkpoint"]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: CheckpointInfo
    def __init__(self, checkpoint: _Optional[_Union[CheckpointInfo, _Mapping]] = ...) -> None: ...

class CompactCheckpointRequest(_message.Message):
    __slots__ = ["id"]
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Constant(_message.Message):
    __slots__ = ["value"]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: float
    def __init__(self, value: _Optional[float] = ...) -> None: ...

class CreateTableReply(_message.Message):
    __slots__ = ["created", "options"]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    created: bool
    options: TableOptions
    def __init__(self, options: _Optional[_Union[TableOptions, _Mapping]] = ..., created: bool = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ["options"]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    options: TableOptions
    def __init__(self, options: _Optional[_Union[TableOptions, _Mapping]] = ...) -> None: ...

class DescribeCheckpointReply(_message.Message):
    __slots__ = ["chain", "checkpoint", "folder", "manifest"]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    chain: _containers.RepeatedScalarFieldContainer[str]
    checkpoint: CheckpointInfo
    folder: str
    manifest: str
    def __init__(self, checkpoint: _Optional[_Union[CheckpointInfo, _Mapping]] = ..., chain: _Optional[_Iterable[str]] = ..., folder: _Optional[str] = ..., manifest: _Optional[str] = ...) -> None: ...

class DescribeCheckpointRequest(_message.Message):
    __slots__ = ["id"]
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class DescribeSessionReply(_message.Message):
    __slots__ = ["epoch", "incarnation", "known", "last_step", "may_be_forgotten", "tables"]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    MAY_BE_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    incarnation: int
    known: bool
    last_step: int
    may_be_forgotten: bool
    tables: _containers.RepeatedCompositeFieldContainer[SessionTable]
    def __init__(self, known: bool = ..., last_step: _Optional[int] = ..., epoch: _Optional[int] = ..., may_be_forgotten: bool = ..., tables: _Optional[_Iterable[_Union[SessionTable, _Mapping]]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class DescribeSessionRequest(_message.Message):
    __slots__ = ["epoch", "session"]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    session: int
    def __init__(self, session: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class DescribeTableReply(_message.Message):
    __slots__ = ["base_learning_rate", "learning_rate", "lineage", "lost_from", "options", "rounds", "shards", "steps"]
    BASE_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    LOST_FROM_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    base_learning_rate: float
    learning_rate: float
    lineage: int
    lost_from: int
    options: TableOptions
    rounds: TravelledRounds
    shards: _containers.RepeatedCompositeFieldContainer[ShardInfo]
    steps: int
    def __init__(self, options: _Optional[_Union[TableOptions, _Mapping]] = ..., steps: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[ShardInfo, _Mapping]]] = ..., learning_rate: _Optional[float] = ..., rounds: _Optional[_Union[TravelledRounds, _Mapping]] = ..., base_learning_rate: _Optional[float] = ..., lineage: _Optional[int] = ..., lost_from: _Optional[int] = ...) -> None: ...

class DescribeTableRequest(_message.Message):
    __slots__ = ["acknowledged", "table"]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    acknowledged: _embedding_pb2.AcknowledgedState
    table: str
    def __init__(self, table: _Optional[str] = ..., acknowledged: _Optional[_Union[_embedding_pb2.AcknowledgedState, _Mapping]] = ...) -> None: ...

class DigestReply(_message.Message):
    __slots__ = ["digest", "rows", "steps"]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    digest: str
    rows: int
    steps: int
    def __init__(self, digest: _Optional[str] = ..., rows: _Optional[int] = ..., steps: _Optional[int] = ...) -> None: ...

class DigestRequest(_message.Message):
    __slots__ = ["table"]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class DropTableReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class DropTableRequest(_message.Message):
    __slots__ = ["table"]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class DurationStats(_message.Message):
    __slots__ = ["buckets", "sum_ns"]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    SUM_NS_FIELD_NUMBER: _ClassVar[int]
    buckets: _containers.RepeatedScalarFieldContainer[int]
    sum_ns: int
    def __init__(self, sum_ns: _Optional[int] = ..., buckets: _Optional[_Iterable[int]] = ...) -> None: ...

class Ftrl(_message.Message):
    __slots__ = ["beta", "lambda1", "lambda2"]
    BETA_FIELD_NUMBER: _ClassVar[int]
    LAMBDA1_FIELD_NUMBER: _ClassVar[int]
    LAMBDA2_FIELD_NUMBER: _ClassVar[int]
    beta: float
    lambda1: float
    lambda2: float
    def __init__(self, lambda1: _Optional[float] = ..., lambda2: _Optional[float] = ..., beta: _Optional[float] = ...) -> None: ...

class GetStatsReply(_message.Message):
    __slots__ = ["announced_requests", "busy_ns", "calls_under_way", "data_connections", "gpu_arena_bytes", "inbox_bytes", "inbox_requests", "incarnation", "lookups", "max_gpu_arena_bytes", "max_inbox_bytes", "max_received_bytes", "max_shared_bytes", "pushes", "rank", "received_bytes", "rounds", "shared_bytes", "started", "uptime_ns"]
    ANNOUNCED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    BUSY_NS_FIELD_NUMBER: _ClassVar[int]
    CALLS_UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    DATA_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    GPU_ARENA_BYTES_FIELD_NUMBER: _ClassVar[int]
    INBOX_BYTES_FIELD_NUMBER: _ClassVar[int]
    INBOX_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    MAX_GPU_ARENA_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_INBOX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_SHARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    SHARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    UPTIME_NS_FIELD_NUMBER: _ClassVar[int]
    announced_requests: int
    busy_ns: int
    calls_under_way: int
    data_connections: int
    gpu_arena_bytes: int
    inbox_bytes: int
    inbox_requests: int
    incarnation: int
    lookups: CallStats
    max_gpu_arena_bytes: int
    max_inbox_bytes: int
    max_received_bytes: int
    max_shared_bytes: int
    pushes: CallStats
    rank: int
    received_bytes: int
    rounds: int
    shared_bytes: int
    started: int
    uptime_ns: int
    def __init__(self, rank: _Optional[int] = ..., incarnation: _Optional[int] = ..., started: _Optional[int] = ..., uptime_ns: _Optional[int] = ..., lookups: _Optional[_Union[CallStats, _Mapping]] = ..., pushes: _Optional[_Union[CallStats, _Mapping]] = ..., rounds: _Optional[int] = ..., calls_under_way: _Optional[int] = ..., inbox_requests: _Optional[int] = ..., announced_requests: _Optional[int] = ..., inbox_bytes: _Optional[int] = ..., max_inbox_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., max_received_bytes: _Optional[int] = ..., shared_bytes: _Optional[int] = ..., max_shared_bytes: _Optional[int] = ..., gpu_arena_bytes: _Optional[int] = ..., max_gpu_arena_bytes: _Optional[int] = ..., data_connections: _Optional[int] = ..., busy_ns: _Optional[int] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetTopologyReply(_message.Message):
    __slots__ = ["data_version", "epoch", "gives_reasons", "incarnation", "max_message_bytes", "max_round_bytes", "rank", "ranks", "version"]
    DATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GIVES_REASONS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_ROUND_BYTES_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    data_version: int
    epoch: int
    gives_reasons: bool
    incarnation: int
    max_message_bytes: int
    max_round_bytes: int
    rank: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankInfo]
    version: str
    def __init__(self, version: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[RankInfo, _Mapping]]] = ..., rank: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., max_round_bytes: _Optional[int] = ..., data_version: _Optional[int] = ..., gives_reasons: bool = ...) -> None: ...

class GetTopologyRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Initializer(_message.Message):
    __slots__ = ["constant", "normal", "seed", "uniform"]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    NORMAL_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    UNIFORM_FIELD_NUMBER: _ClassVar[int]
    constant: Constant
    normal: Normal
    seed: int
    uniform: Uniform
    def __init__(self, seed: _Optional[int] = ..., uniform: _Optional[_Union[Uniform, _Mapping]] = ..., normal: _Optional[_Union[Normal, _Mapping]] = ..., constant: _Optional[_Union[Constant, _Mapping]] = ...) -> None: ...

class ListCheckpointsReply(_message.Message):
    __slots__ = ["checkpoints"]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[CheckpointInfo]
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[CheckpointInfo, _Mapping]]] = ...) -> None: ...

class ListCheckpointsRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListTablesReply(_message.Message):
    __slots__ = ["tables"]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[TableOptions]
    def __init__(self, tables: _Optional[_Iterable[_Union[TableOptions, _Mapping]]] = ...) -> None: ...

class ListTablesRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class LoadCheckpointReply(_message.Message):
    __slots__ = ["bytes", "id", "round", "rows"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    id: str
    round: int
    rows: int
    def __init__(self, id: _Optional[str] = ..., round: _Optional[int] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class LoadCheckpointRequest(_message.Message):
    __slots__ = ["id", "some"]
    ID_FIELD_NUMBER: _ClassVar[int]
    SOME_FIELD_NUMBER: _ClassVar[int]
    id: str
    some: TablesOfCheckpoint
    def __init__(self, id: _Optional[str] = ..., some: _Optional[_Union[TablesOfCheckpoint, _Mapping]] = ...) -> None: ...

class Momentum(_message.Message):
    __slots__ = ["momentum"]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    momentum: float
    def __init__(self, momentum: _Optional[float] = ...) -> None: ...

class Nesterov(_message.Message):
    __slots__ = ["momentum"]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    momentum: float
    def __init__(self, momentum: _Optional[float] = ...) -> None: ...

class Normal(_message.Message):
    __slots__ = ["deviation", "mean"]
    DEVIATION_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    deviation: float
    mean: float
    def __init__(self, mean: _Optional[float] = ..., deviation: _Optional[float] = ...) -> None: ...

class Optimizer(_message.Message):
    __slots__ = ["adagrad", "adam", "ftrl", "learning_rate", "momentum", "nesterov", "rmsprop", "rowwise_adagrad", "schedule", "sgd", "weight_decay"]
    ADAGRAD_FIELD_NUMBER: _ClassVar[int]
    ADAM_FIELD_NUMBER: _ClassVar[int]
    FTRL_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    NESTEROV_FIELD_NUMBER: _ClassVar[int]
    RMSPROP_FIELD_NUMBER: _ClassVar[int]
    ROWWISE_ADAGRAD_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SGD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    adagrad: AdaGrad
    adam: Adam
    ftrl: Ftrl
    learning_rate: float
    momentum: Momentum
    nesterov: Nesterov
    rmsprop: RmsProp
    rowwise_adagrad: RowWiseAdaGrad
    schedule: Schedule
    sgd: Sgd
    weight_decay: float
    def __init__(self, learning_rate: _Optional[float] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., weight_decay: _Optional[float] = ..., sgd: _Optional[_Union[Sgd, _Mapping]] = ..., adagrad: _Optional[_Union[AdaGrad, _Mapping]] = ..., adam: _Optional[_Union[Adam, _Mapping]] = ..., momentum: _Optional[_Union[Momentum, _Mapping]] = ..., nesterov: _Optional[_Union[Nesterov, _Mapping]] = ..., rowwise_adagrad: _Optional[_Union[RowWiseAdaGrad, _Mapping]] = ..., rmsprop: _Optional[_Union[RmsProp, _Mapping]] = ..., ftrl: _Optional[_Union[Ftrl, _Mapping]] = ...) -> None: ...

class PinCheckpointReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class PinCheckpointRequest(_message.Message):
    __slots__ = ["id"]
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RankInfo(_message.Message):
    __slots__ = ["address", "device", "gpu", "local", "local_user"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    LOCAL_USER_FIELD_NUMBER: _ClassVar[int]
    address: str
    device: str
    gpu: str
    local: str
    local_user: int
    def __init__(self, address: _Optional[str] = ..., device: _Optional[str] = ..., local: _Optional[str] = ..., gpu: _Optional[str] = ..., local_user: _Optional[int] = ...) -> None: ...

class ReleaseCheckpointReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ReleaseCheckpointRequest(_message.Message):
    __slots__ = ["id"]
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RmsProp(_message.Message):
    __slots__ = ["beta", "epsilon"]
    BETA_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    beta: float
    epsilon: float
    def __init__(self, beta: _Optional[float] = ..., epsilon: _Optional[float] = ...) -> None: ...

class RowWiseAdaGrad(_message.Message):
    __slots__ = ["epsilon", "initial_accumulator"]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    INITIAL_ACCUMULATOR_FIELD_NUMBER: _ClassVar[int]
    epsilon: float
    initial_accumulator: float
    def __init__(self, epsilon: _Optional[float] = ..., initial_accumulator: _Optional[float] = ...) -> None: ...

class SaveCheckpointReply(_message.Message):
    __slots__ = ["bytes", "delta", "id", "round", "rows"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    delta: bool
    id: str
    round: int
    rows: int
    def __init__(self, id: _Optional[str] = ..., delta: bool = ..., round: _Optional[int] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SaveCheckpointRequest(_message.Message):
    __slots__ = ["delta", "value_type"]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    VALUE_TYPE_FIELD_NUMBER: _ClassVar[int]
    delta: bool
    value_type: _embedding_pb2.DataType
    def __init__(self, delta: bool = ..., value_type: _Optional[_Union[_embedding_pb2.DataType, str]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ["decay_power", "decay_start", "decay_steps", "end_learning_rate", "warmup_steps"]
    DECAY_POWER_FIELD_NUMBER: _ClassVar[int]
    DECAY_START_FIELD_NUMBER: _ClassVar[int]
    DECAY_STEPS_FIELD_NUMBER: _ClassVar[int]
    END_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    WARMUP_STEPS_FIELD_NUMBER: _ClassVar[int]
    decay_power: float
    decay_start: int
    decay_steps: int
    end_learning_rate: float
    warmup_steps: int
    def __init__(self, warmup_steps: _Optional[int] = ..., decay_start: _Optional[int] = ..., decay_steps: _Optional[int] = ..., decay_power: _Optional[float] = ..., end_learning_rate: _Optional[float] = ...) -> None: ...

class SessionTable(_message.Message):
    __slots__ = ["last_step", "table"]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    last_step: int
    table: str
    def __init__(self, table: _Optional[str] = ..., last_step: _Optional[int] = ...) -> None: ...

class SetLearningRateReply(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class SetLearningRateRequest(_message.Message):
    __slots__ = ["learning_rate", "table"]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    learning_rate: float
    table: str
    def __init__(self, table: _Optional[str] = ..., learning_rate: _Optional[float] = ...) -> None: ...

class Sgd(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ShardInfo(_message.Message):
    __slots__ = ["bytes", "cells", "rows"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    cells: int
    rows: int
    def __init__(self, rows: _Optional[int] = ..., cells: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class TableOptions(_message.Message):
    __slots__ = ["combiner", "dim", "initial_rows", "initializer", "max_load", "max_rows", "name", "optimizer", "slots"]
    COMBINER_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    INITIALIZER_FIELD_NUMBER: _ClassVar[int]
    INITIAL_ROWS_FIELD_NUMBER: _ClassVar[int]
    MAX_LOAD_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    combiner: Combiner
    dim: int
    initial_rows: int
    initializer: Initializer
    max_load: float
    max_rows: int
    name: str
    optimizer: Optimizer
    slots: int
    def __init__(self, name: _Optional[str] = ..., dim: _Optional[int] = ..., slots: _Optional[int] = ..., combiner: _Optional[_Union[Combiner, str]] = ..., optimizer: _Optional[_Union[Optimizer, _Mapping]] = ..., initializer: _Optional[_Union[Initializer, _Mapping]] = ..., initial_rows: _Optional[int] = ..., max_rows: _Optional[int] = ..., max_load: _Optional[float] = ...) -> None: ...

class TablesOfCheckpoint(_message.Message):
    __slots__ = ["id", "tables"]
    ID_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    id: str
    tables: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., tables: _Optional[_Iterable[str]] = ...) -> None: ...

class TravelledRounds(_message.Message):
    __slots__ = ["all_bags", "owned_bags"]
    ALL_BAGS_FIELD_NUMBER: _ClassVar[int]
    OWNED_BAGS_FIELD_NUMBER: _ClassVar[int]
    all_bags: int
    owned_bags: int
    def __init__(self, all_bags: _Optional[int] = ..., owned_bags: _Optional[int] = ...) -> None: ...

class Uniform(_message.Message):
    __slots__ = ["high", "low"]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    high: float
    low: float
    def __init__(self, low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class VerifyCheckpointReply(_message.Message):
    __slots__ = ["bytes", "chain", "files"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    chain: _containers.RepeatedScalarFieldContainer[str]
    files: int
    def __init__(self, chain: _Optional[_Iterable[str]] = ..., files: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class VerifyCheckpointRequest(_message.Message):
    __slots__ = ["id"]
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Combiner(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
