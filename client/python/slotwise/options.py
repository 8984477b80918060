"""Tables and servers as plain values, translated to and from protobuf's JSON of the messages."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, fields
from enum import Enum
from typing import Any

import numpy as np

from slotwise._messages import OlderNames, named, read
from slotwise.errors import InvalidArgument
from slotwise.optimizers import (
    SGD,
    Initializer,
    Json,
    Optimizer,
    Uniform,
    initializer_from_json,
    initializer_to_json,
    optimizer_from_json,
    optimizer_to_json,
    states_of,
)


@dataclass(frozen=True)
class Eviction:
    """Which rows go when a table gets full.

    If a batch would bring a table more than max_rows * at rows, the rows with the lowest scores go until
    there are at most max_rows * to, new ones included. Rows of the batch's keys stay. A row whose key comes
    again begins anew.

    Attributes:
        score: "step": the number of the table's step in which a push touched the row last (LRU). "lfu": how
            often its key occurred in applied pushes, at least 1. "step_lfu": as "lfu", and of equals the one
            that a push touched longest ago goes first.
        half_life_steps: with "lfu" and "step_lfu", counts halve whenever the table's step passes a multiple
            of this. 0: never.
        at: above 0 and at most 1.
        to: above 0 and below `at`.
    """

    score: str = "step"
    _: KW_ONLY
    half_life_steps: int = 0
    at: float = 1.0
    to: float = 0.95

    @classmethod
    def from_message(cls, message: Json) -> Eviction | None:
        """Is Slotwise's own: the eviction of a table's options, or None."""
        scores = {number: name for name, number in _SCORES.items()}
        return read(cls, message, score=scores[message["score"]]) if message else None


@dataclass(frozen=True)
class Frequency:
    """An admission: a key gets a row in the push in which it has occurred `threshold` times.

    Occurrences in applied pushes count. The push that reaches the threshold is applied whole; gradients of
    earlier ones are dropped. Lookups insert no rows; imports do.

    Attributes:
        threshold: occurrences, 1 .. 2**27 - 1; with the counter "bloom" at most 255.
        counter: "exact" counts each key, in memory that grows with the keys. "bloom" counts in a filter of a
            fixed size: it may admit a key sooner than it should, with an error that docs/semantics.md bounds,
            and its counts halve as it takes more occurrences.
        max_keys: with "exact", the most keys without a row that are counted, over all ranks. Of more, those
            that no push has touched for longest are forgotten, until 95 % of max_keys are left. 0: as many as
            max_rows.
        counter_mib: with "bloom", the MiB of the filter, over all ranks, 1 .. 2**17; must be given.
        absent: what a lookup with train=True returns for a key without a row: "initial", its initial
            values, or "zeros". Other lookups return zeros.
    """

    threshold: int
    _: KW_ONLY
    counter: str = "exact"
    max_keys: int = 0
    counter_mib: int = 0
    absent: str = "initial"


@dataclass(frozen=True)
class Probability:
    """An admission: each push that has a key without a row gives the key one with probability p.

    The draw depends on the key and the table's step alone, so that no key is shut out for ever. The push is
    applied whole to the keys that it admits. Lookups insert no rows; imports do.

    Attributes:
        p: 1e-9 .. 1.
        absent: as `Frequency.absent`.
    """

    p: float
    _: KW_ONLY
    absent: str = "initial"


@dataclass(frozen=True)
class TableOptions:
    """One table.

    Attributes:
        name: 1 to 255 of A-Z a-z 0-9 _ . - /; no part between slashes is empty or begins with '.' or '-'.
        dim: elements a row, 1 .. 4096.
        slots: bags a sample, 1 .. 4096.
        combiner: "sum", "mean" (divides by the number of keys in the bag), "sqrtn" (divides by that
            number's root), or "none": every bag has one key, whose row is the result, and slots must be 1.
        optimizer: SGD, Momentum, Nesterov, AdaGrad, RowWiseAdaGrad, RMSProp, Adam or FTRL.
        initializer: initial values of a new row: Uniform, Normal or Constant.
        seed: 64 bits, for the initial values.
        initial_rows: rows to reserve when the table is made, over all ranks; tables grow by themselves.
        max_rows: the most rows over all ranks; a batch that would exceed it is refused whole, unless the
            table evicts. 0: the server's default, 2**30.
        max_load: the largest share of a hash table's cells that is taken, 0.0625 .. 0.9375. A lower share is
            faster, and a higher share needs less memory. 0: the server's default, 0.5.
        eviction: which rows go when the table gets full. None: no row goes, and new keys are refused.
        ttl_steps: a row expires when no push has touched it for so many of the table's steps. 0: never.
        ttl_seconds: the same, by rank 0's clock. An expired row stays until a sweep; sweeps come every 16th
            of these, rounded down, and at least every step or second.
        admission: which keys get rows, a Frequency or a Probability. None: every key that is pushed, or
            looked up with train=True.
        row_dtype: what rows' values are kept as: "float32", or "float16" or "bfloat16" in half the memory.
            The optimizer's state and all arithmetic are float32.
        rounding: how a step rounds weights to 16 bits: "stochastic", by chance and right on average, or
            "nearest", which loses steps that are smaller than half the distance between two numbers.
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
    eviction: Eviction | None = None
    ttl_steps: int = 0
    ttl_seconds: int = 0
    admission: Frequency | Probability | None = None
    row_dtype: str = "float32"
    rounding: str = "stochastic"

    @property
    def has_scores(self) -> bool:
        """Whether rows have scores: the table evicts, or rows expire."""
        return self.eviction is not None or self.ttl_steps > 0 or self.ttl_seconds > 0

    @property
    def width(self) -> int:
        """Elements a sample: slots * dim."""
        return self.slots * self.dim

    @property
    def state_arrays(self) -> dict[str, int]:
        """The arrays of a row's state (`Rows.state`) in their order, and how many floats a row each has."""
        return states_of(self.optimizer, self.dim) | ({"score": 2} if self.has_scores else {})

    @property
    def pools(self) -> bool:
        """Whether a bag may have any number of keys: the combiner is not "none"."""
        return self.combiner != "none"

    @classmethod
    def from_message(cls, message: Json) -> TableOptions:
        """Is Slotwise's own: `options_from_json`."""
        return options_from_json(message)


@dataclass(frozen=True)
class ShardInfo:
    """One rank's shard of a table: rows, cells of its hash table, bytes of device memory."""

    rows: int
    cells: int
    bytes: int


@dataclass(frozen=True)
class TravelledRounds:
    """Counts rounds by how bags travelled between ranks; both counts are 0 on one rank.

    A step is one round. Lookups that arrive at about the same time share one round. The server takes the way
    that it has measured to be faster; both ways give the same numbers.

    Attributes:
        all_bags: every rank sent its part of every bag, or received every gradient.
        owned_bags: a rank sent, or got the gradients of, only bags of which it owns keys.
    """

    all_bags: int
    owned_bags: int


@dataclass(frozen=True)
class Quantiles:
    """Says how numbers of `rows` rows are spread; with no rows, all is 0.

    `p50` is the number that half of the rows are not above, and so on, rounded up to one less than a power of
    two, and at most 2**36 - 1. `p0` is of the lowest number, and `p100` of the highest.
    """

    rows: int = 0
    p0: int = 0
    p10: int = 0
    p50: int = 0
    p90: int = 0
    p99: int = 0
    p100: int = 0


@dataclass(frozen=True)
class TableInfo(OlderNames):
    """The state of a table. A number that an older server does not know is 0.

    Attributes:
        steps: optimizer steps applied.
        shards: in rank order.
        learning_rate: the rate that the next step will use: the base rate, after the schedule.
        base_learning_rate: the rate that the schedule starts from: the optimizer's `lr`, or the rate last set
            by `set_learning_rate`.
        rounds: rounds of lookups and steps, since the table was made.
        generation: drawn when the table was made; `lineage` is its older name.
        evicted_rows: rows that batches or `evict` have evicted, on all ranks, since the server's start or the
            table's load.
        expired_rows: rows that have expired and gone, since the same.
        refused_keys: of a table with an admission, occurrences of keys in pushes that got no row, since the
            same.
        candidates: of a table that admits by frequency, the keys without a row that are counted now; 0 with
            the counter "bloom", which does not know them.
        counter_blocks: with that counter, how many of its blocks have counted, on all ranks. There are 16,384
            for each MiB.
        new_rows: rows that keys got, on all ranks, since the same.
        evicted_ages: the ages of the rows that batches evicted because the table was full, since the same.
            An age is the number of the table's steps since a push touched the row last.
        youngest_evicted_age: all rows of the last such eviction were at least so old: the youngest one's age,
            rounded down to a power of two.
        ages: the ages of the rows now, if `describe_table` was asked for them and the table keeps scores.
        counts: also then, with the scores "lfu" and "step_lfu", how often the rows' keys occurred in pushes,
            halved as for evictions.
    """

    options: TableOptions
    steps: int
    shards: tuple[ShardInfo, ...]
    learning_rate: float
    base_learning_rate: float
    rounds: TravelledRounds
    generation: int = named("lineage", default=0)
    evicted_rows: int = 0
    expired_rows: int = 0
    refused_keys: int = 0
    candidates: int = 0
    counter_blocks: int = 0
    new_rows: int = 0
    evicted_ages: Quantiles = Quantiles()
    youngest_evicted_age: int = 0
    ages: Quantiles = Quantiles()
    counts: Quantiles = Quantiles()

    @property
    def rows(self) -> int:
        """Returns the rows over all ranks."""
        return sum(shard.rows for shard in self.shards)


@dataclass(frozen=True)
class RankInfo:
    """A rank's address, its device ("cpu", or "cuda" and the device's name), and its Unix socket.

    `local` is a name of Linux's abstract namespace, where clients on the rank's host share memory with the
    rank; empty: the rank shares none.
    """

    address: str
    device: str
    local: str = ""


@dataclass(frozen=True)
class Topology(OlderNames):
    """The server's version, its ranks in order, and its limits. A number that an older server lacks is 0.

    Attributes:
        max_message_bytes: the largest request.
        max_round_bytes: the most that one round gathers on a rank.
        instance: drawn when the server started; `incarnation` is its older name.
        epoch: the epoch of a session that is drawn now (`Session`).
    """

    version: str
    ranks: tuple[RankInfo, ...]
    max_message_bytes: int
    max_round_bytes: int = 0
    instance: int = named("incarnation", default=0)
    epoch: int = 0


@dataclass(frozen=True)
class TableDigest:
    """A hash over keys, rows and optimizer state, equal for equal tables on any number of ranks."""

    digest: str
    rows: int
    steps: int


_SCORES = {name: f"SCORE_{name.upper()}" for name in ("step", "lfu", "step_lfu")}
_ABSENT = {name: f"ABSENT_ROWS_{name.upper()}" for name in ("initial", "zeros")}
_COUNTERS = {name: f"COUNTER_{name.upper()}" for name in ("exact", "bloom")}
_ROW_DTYPES = {name: f"DATA_TYPE_{name.upper()}" for name in ("float32", "float16", "bfloat16")}
_ROUNDINGS = {name: f"ROUNDING_{name.upper()}" for name in ("stochastic", "nearest")}
_COMBINERS = {name: f"COMBINER_{name.upper()}" for name in ("sum", "mean", "sqrtn", "none")}
_ENUMERATIONS = {"combiner": _COMBINERS, "row_dtype": _ROW_DTYPES, "rounding": _ROUNDINGS}


def row_type_to_json(row_dtype: str | None, rounding: str | None) -> Json:
    """Returns the request's fields that are given. Raises InvalidArgument for a word that names nothing."""
    given = {"row_dtype": row_dtype, "rounding": rounding}
    return {name: _value_of(name, word) for name, word in given.items() if word is not None}


def _value_of(enumeration: str, word: str) -> str:
    values = _ENUMERATIONS[enumeration]
    if word not in values:
        raise InvalidArgument(f"{enumeration} is {word!r}, not one of {', '.join(values)}")
    return values[word]


def options_to_json(options: TableOptions) -> Json:
    """Raises InvalidArgument for a wrong combiner, class or integer; the core and server check the rest."""
    message: Json = {}
    for option in fields(TableOptions):
        value = message[option.name] = getattr(options, option.name)
        bits = 32 if option.name in ("dim", "slots") else 64
        is_whole = isinstance(value, (int, np.integer)) and 0 <= value < 1 << bits
        if str(option.type) == "int" and not is_whole:
            raise InvalidArgument(f"{option.name} is {value!r}: must be an integer of 0 to 2**{bits} - 1")
    for name in _ENUMERATIONS:
        message[name] = _value_of(name, getattr(options, name))
    message["optimizer"] = optimizer_to_json(options.optimizer)
    message["eviction"] = None if options.eviction is None else _eviction_to_json(options.eviction)
    message["admission"] = None if options.admission is None else _admission_to_json(options.admission)
    message["initializer"] = initializer_to_json(options.initializer, message.pop("seed"))
    return message


class Unaltered(Enum):
    """The type of `UNALTERED`, which says of an argument of `alter_table` that it is not given."""

    UNALTERED = "unaltered"


UNALTERED = Unaltered.UNALTERED


def alteration_to_json(given: dict[str, Any]) -> Json:
    """Returns a request's fields for the options of `alter_table` that are given. Raises InvalidArgument."""
    message: Json = {}
    for name, value in given.items():
        if name in ("eviction", "admission") and value is None:
            message["no_" + name] = True
        elif name == "eviction":
            message[name] = _eviction_to_json(value)
        elif name == "admission":
            message[name] = _admission_to_json(value)
        elif isinstance(value, (int, np.integer)) and 0 <= value < 1 << 64:
            message[name] = int(value)
        else:
            raise InvalidArgument(f"{name} is {value!r}: must be an integer of 0 to 2**64 - 1")
    return message


def _eviction_to_json(eviction: Eviction) -> Json:
    if not isinstance(eviction, Eviction):
        raise InvalidArgument(f"eviction is {eviction!r}, not an Eviction or None")
    if eviction.score not in _SCORES:
        raise InvalidArgument(f"eviction.score is {eviction.score!r}, not one of {', '.join(_SCORES)}")
    half_life = eviction.half_life_steps
    if not (isinstance(half_life, (int, np.integer)) and 0 <= half_life < 1 << 64):
        raise InvalidArgument(
            f"eviction.half_life_steps is {half_life!r}: must be an integer of 0 to 2**64 - 1"
        )
    return {
        "score": _SCORES[eviction.score],
        "half_life_steps": int(half_life),
        "at": float(eviction.at),
        "to": float(eviction.to),
    }


def _admission_to_json(admission: Frequency | Probability) -> Json:
    if not isinstance(admission, (Frequency, Probability)):
        raise InvalidArgument(f"admission is {admission!r}, not a Frequency, a Probability or None")
    if admission.absent not in _ABSENT:
        raise InvalidArgument(f"admission.absent is {admission.absent!r}, not one of {', '.join(_ABSENT)}")
    message: Json = {"absent": _ABSENT[admission.absent]}
    if isinstance(admission, Probability):
        return message | {"probability": {"p": float(admission.p)}}
    if admission.counter not in _COUNTERS:
        known = ", ".join(_COUNTERS)
        raise InvalidArgument(f"admission.counter is {admission.counter!r}, not one of {known}")
    counts: Json = {"counter": _COUNTERS[admission.counter]}
    for name in ("threshold", "max_keys", "counter_mib"):
        value = getattr(admission, name)
        if not (isinstance(value, (int, np.integer)) and 0 <= value < 1 << 64):
            raise InvalidArgument(f"admission.{name} is {value!r}: must be an integer of 0 to 2**64 - 1")
        counts[name] = int(value)
    return message | {"frequency": counts}


def _admission_from_json(message: Json) -> Frequency | Probability | None:
    absent = {number: name for name, number in _ABSENT.items()}
    if "frequency" in message:
        frequency = message["frequency"]
        counters = {value: name for name, value in _COUNTERS.items()}
        counter = counters[frequency.get("counter", _COUNTERS["exact"])]  # an older server's table has none
        return read(Frequency, frequency, counter=counter, absent=absent[message["absent"]])
    if "probability" in message:
        return read(Probability, message["probability"], absent=absent[message["absent"]])
    return None


def options_from_json(message: Json) -> TableOptions:
    """Returns the options of a server's table, in which the server has filled every default."""
    enumerations = {  # an older server's table lacks the newer ones, which are then the first of their words
        name: next(word for word, value in values.items() if value == message.get(name, value))
        for name, values in _ENUMERATIONS.items()
    }
    initializer = message.get("initializer", {})
    return read(
        TableOptions,
        {"slots": 1, **message},
        **enumerations,
        optimizer=optimizer_from_json(message.get("optimizer", {})),
        initializer=initializer_from_json(initializer),
        seed=int(initializer.get("seed", 0)),
        eviction=Eviction.from_message(message.get("eviction") or {}),
        admission=_admission_from_json(message.get("admission") or {}),
    )
