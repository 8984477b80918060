"""Tables and servers as plain values, made from and into protobuf messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from slotwise._proto import admin_pb2 as pb
from slotwise.errors import InvalidArgument
from slotwise.optimizers import (
    SGD,
    Initializer,
    Optimizer,
    Uniform,
    initializer_from_proto,
    initializer_to_proto,
    optimizer_from_proto,
    optimizer_to_proto,
    shortest,
)


@dataclass(frozen=True)
class TableOptions:
    """One table.

    Attributes:
        name: 1 to 63 of A-Z a-z 0-9 _ . -, not starting with '.' or '-'.
        dim: elements a row, 1 .. 4096.
        slots: bags a sample, 1 .. 4096.
        combiner: "sum", "mean" (over the number of keys in the bag), "sqrtn" (over its root), or
            "none": every bag is one key, whose row is the result; slots must be 1.
        optimizer: SGD, Momentum, Nesterov, AdaGrad, RowWiseAdaGrad, RMSProp, Adam or FTRL.
        initializer: first values of a new row: Uniform, Normal or Constant.
        seed: 64 bits, for the first values.
        initial_rows: rows to make room for at once, over all ranks; tables grow by themselves.
        max_rows: the most rows over all ranks; past it a batch is refused whole. 0: the server's
            default, 2**30.
        max_load: at most this share of a hash table's cells is taken, 0.0625 .. 0.9375: lower is
            faster, higher smaller. 0: the server's default, 0.5.
    """

    name: str
    dim: int
    slots: int = 1
    combiner: str = "sum"
    optimizer: Optimizer = field(default_factory=lambda: SGD(lr=0.01))
    initializer: Initializer = Uniform()
    seed: int = 0
    initial_rows: int = 0
    max_rows: int = 0
    max_load: float = 0.0

    @property
    def width(self) -> int:
        """Elements a sample: slots * dim."""
        return self.slots * self.dim


@dataclass(frozen=True)
class ShardInfo:
    """One rank's share of a table: rows, places in its hash table, bytes of device memory."""

    rows: int
    cells: int
    bytes: int


@dataclass(frozen=True)
class TravelledRounds:
    """Rounds by how bags travelled between ranks; zeros if there is one.

    A step is a round; lookups that came at about the same time share one. The server takes the way
    that is faster by what it measured; both give the same numbers.

    Attributes:
        all_bags: every rank sent its part of every bag, or got every gradient.
        owned_bags: only what belongs to bags of which a rank owns keys.
    """

    all_bags: int
    owned_bags: int


@dataclass(frozen=True)
class TableInfo:
    """A table as it is.

    Attributes:
        steps: optimizer steps applied.
        shards: in rank order.
        learning_rate: what the next step will use: the rate last set, by the schedule.
        rounds: of lookups and steps, since the table was made.
    """

    options: TableOptions
    steps: int
    shards: tuple[ShardInfo, ...]
    learning_rate: float
    rounds: TravelledRounds

    @property
    def rows(self) -> int:
        """Rows over all ranks."""
        return sum(shard.rows for shard in self.shards)


@dataclass(frozen=True)
class RankInfo:
    """Where a rank listens, and its device: "cpu", or "cuda" and the device's name."""

    address: str
    device: str


@dataclass(frozen=True)
class Topology:
    """The server's version, its ranks in order, and the largest request it takes."""

    version: str
    ranks: tuple[RankInfo, ...]
    max_message_bytes: int


@dataclass(frozen=True)
class TableDigest:
    """A hash over keys, rows and optimizer state, equal for equal tables on any number of ranks."""

    digest: str
    rows: int
    steps: int


_COMBINERS = {
    "sum": pb.COMBINER_SUM,
    "mean": pb.COMBINER_MEAN,
    "sqrtn": pb.COMBINER_SQRTN,
    "none": pb.COMBINER_NONE,
}


def options_to_proto(options: TableOptions) -> pb.TableOptions:
    """InvalidArgument if a value does not even fit its field; the server checks the rest."""
    if options.combiner not in _COMBINERS:
        raise InvalidArgument(
            f"combiner is {options.combiner!r}, not one of {', '.join(_COMBINERS)}"
        )
    try:
        return pb.TableOptions(
            name=options.name,
            dim=options.dim,
            slots=options.slots,
            combiner=_COMBINERS[options.combiner],
            optimizer=optimizer_to_proto(options.optimizer),
            initializer=initializer_to_proto(options.initializer, options.seed),
            initial_rows=options.initial_rows,
            max_rows=options.max_rows,
            max_load=options.max_load,
        )
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{options}: {error}") from error


def options_from_proto(message: pb.TableOptions) -> TableOptions:
    """The options of a table of the server's, which fills every default in."""
    combiners = {number: name for name, number in _COMBINERS.items()}
    return TableOptions(
        name=message.name,
        dim=message.dim,
        slots=message.slots,
        combiner=combiners.get(message.combiner, f"combiner {message.combiner}"),
        optimizer=optimizer_from_proto(message.optimizer),
        initializer=initializer_from_proto(message.initializer),
        seed=message.initializer.seed,
        initial_rows=message.initial_rows,
        max_rows=message.max_rows,
        max_load=shortest(message.max_load),
    )


def info_from_proto(message: pb.DescribeTableReply) -> TableInfo:
    """What the server says of a table."""
    return TableInfo(
        options=options_from_proto(message.options),
        steps=message.steps,
        shards=tuple(ShardInfo(shard.rows, shard.cells, shard.bytes) for shard in message.shards),
        learning_rate=shortest(message.learning_rate),
        rounds=TravelledRounds(message.rounds.all_bags, message.rounds.owned_bags),
    )
