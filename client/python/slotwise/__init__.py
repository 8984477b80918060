"""Client for Slotwise, a multi-GPU embedding parameter server.

    import slotwise

    ps = slotwise.connect("host:7070")
    ps.create_table("ads", dim=16, slots=26, optimizer=slotwise.AdaGrad(lr=0.05))
    values = ps.lookup("ads", keys, offsets)          # float32 [samples, slots * dim]
    ps.push("ads", keys, offsets, gradients)          # one optimizer step

With torch, `slotwise.torch.EmbeddingBag(ps, "ads")` does both. Retries are logged by the logger
"slotwise".
"""

from slotwise.client import Client, connect
from slotwise.errors import (
    AlreadyExists,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from slotwise.options import (
    SGD,
    AdaGrad,
    Adam,
    RankInfo,
    ShardInfo,
    TableDigest,
    TableInfo,
    TableOptions,
    Topology,
    Uniform,
)
from slotwise.session import Session, Step

__all__ = [
    "SGD",
    "AdaGrad",
    "Adam",
    "AlreadyExists",
    "Client",
    "DeadlineExceeded",
    "Error",
    "FailedPrecondition",
    "InvalidArgument",
    "NotFound",
    "RankInfo",
    "ResourceExhausted",
    "Session",
    "ShardInfo",
    "Step",
    "TableDigest",
    "TableInfo",
    "TableOptions",
    "Topology",
    "Unavailable",
    "Uniform",
    "connect",
]
