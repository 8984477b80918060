"""Client for Slotwise, a multi-GPU embedding parameter server.

    import slotwise

    ps = slotwise.connect("host:7070")
    ps.create_table("ads", dim=16, slots=2, optimizer=slotwise.AdaGrad(lr=0.05))
    values = ps.lookup("ads", keys, offsets)          # float32 [samples, slots * dim]
    ps.push("ads", keys, offsets, gradients)          # one optimizer step

With torch, `slotwise.torch.EmbeddingBag(ps, "ads")` does both. The logger "slotwise" logs retries.
`slotwise.serve()`, and `slotwise.connect("local")` by itself, start a server for this process.
"""

from slotwise.checkpoint_calls import Checkpoint, CheckpointDetails, ListedCheckpoint, Verification
from slotwise.client import Client, connect
from slotwise.credentials import Credentials
from slotwise.errors import (
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Reason,
    StatusCode,
    Unauthenticated,
    Unavailable,
)
from slotwise.evicted import Evicted, EvictedKeys
from slotwise.futures import Future
from slotwise.known_ids import positions
from slotwise.local_server import Server, serve
from slotwise.optimizers import (
    FTRL,
    SGD,
    AdaGrad,
    Adam,
    Constant,
    Momentum,
    Nesterov,
    Normal,
    RMSProp,
    RowWiseAdaGrad,
    Schedule,
    Uniform,
)
from slotwise.options import (
    Quantiles,
    RankInfo,
    ShardInfo,
    TableDigest,
    TableInfo,
    Eviction,
    Frequency,
    Probability,
    TableOptions,
    Topology,
    TravelledRounds,
)
from slotwise.rows_calls import Rows
from slotwise.session import Session, SessionInfo, Step
from slotwise.stats import CallStats, Durations, RankStats
from slotwise.text_ids import hash_ids
from slotwise.tracing import trace
from slotwise.version import __version__

__all__ = [
    "FTRL",
    "SGD",
    "AdaGrad",
    "Adam",
    "AlreadyExists",
    "CallStats",
    "Cancelled",
    "Checkpoint",
    "CheckpointDetails",
    "Client",
    "Constant",
    "Credentials",
    "DataLoss",
    "DeadlineExceeded",
    "Durations",
    "Error",
    "FailedPrecondition",
    "Future",
    "InvalidArgument",
    "ListedCheckpoint",
    "Momentum",
    "Nesterov",
    "Normal",
    "NotFound",
    "PermissionDenied",
    "Quantiles",
    "RMSProp",
    "RankInfo",
    "RankStats",
    "ResourceExhausted",
    "RowWiseAdaGrad",
    "Rows",
    "Schedule",
    "Server",
    "Session",
    "SessionInfo",
    "ShardInfo",
    "Reason",
    "StatusCode",
    "Step",
    "TableDigest",
    "TableInfo",
    "Evicted",
    "EvictedKeys",
    "Eviction",
    "Frequency",
    "Probability",
    "TableOptions",
    "Topology",
    "TravelledRounds",
    "Unauthenticated",
    "Unavailable",
    "Uniform",
    "Verification",
    "__version__",
    "connect",
    "hash_ids",
    "positions",
    "serve",
    "trace",
]
