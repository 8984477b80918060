"""Tables and servers as plain values, made from and into protobuf messages."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from slotwise._proto import admin_pb2 as pb
from slotwise.errors import InvalidArgument


@dataclass(frozen=True)
class SGD:
    """w -= lr * g."""

    lr: float


@dataclass(frozen=True)
class AdaGrad:
    """s += g * g; w -= lr * g / (sqrt(s) + epsilon); s starts at `initial_accumulator`."""

    lr: float
    epsilon: float = 1e-10
    initial_accumulator: float = 0.0


@dataclass(frozen=True)
class Adam:
    """Lazy Adam: only rows that a step touches move; t counts the table's steps."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


Optimizer = SGD | AdaGrad | Adam


@dataclass(frozen=True)
class Uniform:
    """First values of a new row: uniform in [low, high), from (seed, key, element) alone."""

    low: float = -0.05
    high: float = 0.05


@dataclass(frozen=True)
class TableOptions:
    """One table.

    Attributes:
        name: 1 to 63 of A-Z a-z 0-9 _ . -, not starting with '.' or '-'.
        dim: elements a row, 1 .. 4096.
        slots: bags a sample, 1 .. 4096.
        combiner: "sum" or "mean": how the rows of a bag become one.
        optimizer: SGD, AdaGrad or Adam.
        initializer: first values of a new row.
        seed: 64 bits, for the first values.
        initial_rows: rows to make room for at once, over all ranks; tables grow by themselves.
        max_rows: the most rows over all ranks; past it a batch is refused whole. 0: the server's
            default, 2**30.
    """

    name: str
    dim: int
    slots: int = 1
    combiner: str = "sum"
    optimizer: Optimizer = field(default_factory=lambda: SGD(lr=0.01))
    initializer: Uniform = Uniform()
    seed: int = 0
    initial_rows: int = 0
    max_rows: int = 0

    @property
    def width(self) -> int:
        """Elements a sample: slots * dim."""
        return self.slots * self.dim


@dataclass(frozen=True)
class ShardInfo:
    """One rank's share of a table: rows, places in its hash table, bytes of device memory."""

    rows: int
    slots: int
    bytes: int


@dataclass(frozen=True)
class TableInfo:
    """A table's options, optimizer steps applied, and shards in rank order."""

    options: TableOptions
    steps: int
    shards: tuple[ShardInfo, ...]

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


_COMBINERS = {"sum": pb.COMBINER_SUM, "mean": pb.COMBINER_MEAN}


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
            optimizer=_optimizer_to_proto(options.optimizer),
            initializer=pb.Initializer(
                seed=options.seed,
                uniform=pb.Uniform(low=options.initializer.low, high=options.initializer.high),
            ),
            initial_rows=options.initial_rows,
            max_rows=options.max_rows,
        )
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{options}: {error}") from error


def options_from_proto(message: pb.TableOptions) -> TableOptions:
    """The options of a table of the server's, which fills every default in."""
    combiners = {number: name for name, number in _COMBINERS.items()}
    uniform = message.initializer.uniform
    return TableOptions(
        name=message.name,
        dim=message.dim,
        slots=message.slots,
        combiner=combiners.get(message.combiner, f"combiner {message.combiner}"),
        optimizer=_optimizer_from_proto(message.optimizer),
        initializer=Uniform(_shortest(uniform.low), _shortest(uniform.high)),
        seed=message.initializer.seed,
        initial_rows=message.initial_rows,
        max_rows=message.max_rows,
    )


def _optimizer_to_proto(optimizer: Optimizer) -> pb.Optimizer:
    if not isinstance(optimizer, (SGD, AdaGrad, Adam)):
        raise InvalidArgument(f"optimizer is {optimizer!r}, not an SGD, AdaGrad or Adam")
    message = pb.Optimizer(learning_rate=optimizer.lr)
    if isinstance(optimizer, SGD):
        message.sgd.SetInParent()
    elif isinstance(optimizer, AdaGrad):
        message.adagrad.epsilon = optimizer.epsilon
        message.adagrad.initial_accumulator = optimizer.initial_accumulator
    else:
        message.adam.beta1 = optimizer.beta1
        message.adam.beta2 = optimizer.beta2
        message.adam.epsilon = optimizer.epsilon
    return message


def _optimizer_from_proto(message: pb.Optimizer) -> Optimizer:
    lr = _shortest(message.learning_rate)
    kind = message.WhichOneof("kind")
    if kind == "adagrad":
        adagrad = message.adagrad
        return AdaGrad(lr, _shortest(adagrad.epsilon), _shortest(adagrad.initial_accumulator))
    if kind == "adam":
        adam = message.adam
        return Adam(lr, _shortest(adam.beta1), _shortest(adam.beta2), _shortest(adam.epsilon))
    return SGD(lr)


def _shortest(value: float) -> float:
    """The shortest decimal of a float32: 0.05 comes back as 0.05, not as 0.05000000074505806."""
    return float(str(np.float32(value)))
