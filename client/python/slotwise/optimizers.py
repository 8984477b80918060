"""Optimizers and initializers of tables; the formulas are in docs/semantics.md.

Each class is one message of proto/slotwise/v1/admin.proto: the class's fields, except `lr`,
`weight_decay` and `schedule`, have the names of the message's fields. The core takes and gives
messages as protobuf's JSON, in which a 64-bit integer is a text and a default may be absent.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from slotwise._messages import read
from slotwise.errors import InvalidArgument

Json = dict[str, Any]


@dataclass(frozen=True)
class Schedule:
    """The schedule of an optimizer's `lr` over the table's steps t = 1, 2, ...

    Warm-up: while t <= warmup_steps the rate is lr * t / warmup_steps. Decay: with decay_steps > 0, after
    step decay_start the rate is end_lr + (lr - end_lr) * (1 - d) ** decay_power, where d =
    min(t - decay_start, decay_steps) / decay_steps. Otherwise the rate is lr, so the default schedule
    changes nothing.

    Attributes:
        warmup_steps: 0 means no warm-up.
        decay_start: at least warmup_steps.
        decay_steps: how many steps the decay takes; 0 means no decay.
        decay_power: finite and above 0; 1: a straight line.
        end_lr: the rate after the decay, finite, at least 0. A table of FTRL, which divides by the
            rate, has to name one above 0 if there is a decay.
    """

    warmup_steps: int = 0
    decay_start: int = 0
    decay_steps: int = 0
    decay_power: float = 2.0
    end_lr: float = 0.0


@dataclass(frozen=True)
class SGD:
    """w -= lr * g. All optimizers: g += weight_decay * w first, for the rows a step touches."""

    lr: float
    weight_decay: float = 0.0
    schedule: Schedule = Schedule()


@dataclass(frozen=True)
class Momentum:
    """v = momentum * v - lr * g; w += v."""

    lr: float
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Schedule = Schedule()


@dataclass(frozen=True)
class Nesterov:
    """a' = momentum * a - lr * g; w += -momentum * a + (1 + momentum) * a'; a = a'."""

    lr: float
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Schedule = Schedule()


@dataclass(frozen=True)
class AdaGrad:
    """s += g * g; w -= lr * g / (sqrt(s) + epsilon); s starts at `initial_accumulator`."""

    lr: float
    epsilon: float = 1e-10
    initial_accumulator: float = 0.0
    weight_decay: float = 0.0
    schedule: Schedule = Schedule()


@dataclass(frozen=True)
class RowWiseAdaGrad:
    """AdaGrad with one s a row, of the mean of the row's g * g: the state is dim times smaller."""

    lr: float
    epsilon: float = 1e-10
    initial_accumulator: float = 0.0
    weight_decay: float = 0.0
    schedule: Schedule = Schedule()


@dataclass(frozen=True)
class RMSProp:
    """v = beta * v + (1 - beta) * g * g; w -= lr * g / (sqrt(v) + epsilon)."""

    lr: float
    beta: float = 0.99
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    schedule: Schedule = Schedule()


@dataclass(frozen=True)
class Adam:
    """Lazy Adam: a step changes only the rows that it touches; t counts the table's steps.

    As it stands it is `torch.optim.SparseAdam`. With `corrected_epsilon` a touched row moves as by
    `torch.optim.Adam`, and with `decoupled_decay` too as by `AdamW`.

    Attributes:
        corrected_epsilon: whether epsilon is added to the root of the corrected v, not to the root of v.
        decoupled_decay: whether `weight_decay` shrinks the rows, w -= lr * weight_decay * w, apart from g.
    """

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    schedule: Schedule = Schedule()
    corrected_epsilon: bool = False
    decoupled_decay: bool = False


@dataclass(frozen=True)
class FTRL:
    """FTRL-proximal: `lambda1` makes rows sparse, and `lambda2` makes them small.

    A row's first update replaces its initial value.
    """

    lr: float
    lambda1: float = 0.0
    lambda2: float = 0.0
    beta: float = 1.0
    weight_decay: float = 0.0
    schedule: Schedule = Schedule()


@dataclass(frozen=True)
class Uniform:
    """Draws a new row's initial values from [low, high), by (seed, key, element) alone."""

    low: float = -0.05
    high: float = 0.05


@dataclass(frozen=True)
class Normal:
    """Draws a new row's initial values from a normal distribution, by (seed, key, element) alone."""

    mean: float = 0.0
    deviation: float = 0.05


@dataclass(frozen=True)
class Constant:
    """Sets all of a new row's initial values to `value`."""

    value: float = 0.0


Optimizer = SGD | Momentum | Nesterov | AdaGrad | RowWiseAdaGrad | RMSProp | Adam | FTRL
Initializer = Uniform | Normal | Constant

_OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "nesterov": Nesterov,
    "adagrad": AdaGrad,
    "rowwise_adagrad": RowWiseAdaGrad,
    "rmsprop": RMSProp,
    "adam": Adam,
    "ftrl": FTRL,
}
# The arrays of a row's state, by their names in a checkpoint.
_STATES: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("v",),
    "nesterov": ("a",),
    "adagrad": ("s",),
    "rowwise_adagrad": ("s",),
    "rmsprop": ("v",),
    "adam": ("m", "v"),
    "ftrl": ("z", "n"),
}
_ONE_FLOAT_A_ROW = ("rowwise_adagrad",)  # of the others, each array has as many as the row
_INITIALIZERS: dict[str, type[Initializer]] = {"uniform": Uniform, "normal": Normal, "constant": Constant}


def states_of(optimizer: Optimizer, dim: int) -> dict[str, int]:
    """Returns the arrays of a row's state, in their order, and how many floats a row each has."""
    name = next(name for name, kind in _OPTIMIZERS.items() if type(optimizer) is kind)
    return dict.fromkeys(_STATES[name], 1 if name in _ONE_FLOAT_A_ROW else dim)


def optimizer_to_json(optimizer: Optimizer) -> Json:
    """Raises InvalidArgument for another class."""
    message: Json = {"learning_rate": getattr(optimizer, "lr", 0.0)}
    message.update(_to_json(optimizer, _OPTIMIZERS, "optimizer"))
    message["weight_decay"] = optimizer.weight_decay
    if optimizer.schedule != Schedule():
        message["schedule"] = _schedule_to_json(optimizer.schedule)
    return message


def initializer_to_json(initializer: Initializer, seed: int) -> Json:
    """Raises as `optimizer_to_json`."""
    return {"seed": seed, **_to_json(initializer, _INITIALIZERS, "initializer")}


def optimizer_from_json(message: Json) -> Optimizer:
    """Returns the optimizer of a server's table, in which the server has filled every default."""
    optimizer: Optimizer = _from_json(
        message,
        _OPTIMIZERS,
        lr=float(message.get("learning_rate", 0)),
        weight_decay=float(message.get("weight_decay", 0)),
        schedule=_schedule_from_json(message.get("schedule", {})),
    )
    return optimizer


def initializer_from_json(message: Json) -> Initializer:
    """Returns the initializer of a server's table, in which the server has filled every default."""
    initializer: Initializer = _from_json(message, _INITIALIZERS)
    return initializer


def _schedule_to_json(schedule: Schedule) -> Json:
    if not isinstance(schedule, Schedule):
        raise InvalidArgument(f"schedule is {schedule!r}, not a Schedule")
    message = asdict(schedule)
    message["end_learning_rate"] = message.pop("end_lr")
    return message


def _schedule_from_json(message: Json) -> Schedule:
    named = {**message, "end_lr": message.get("end_learning_rate")}
    return read(Schedule, {"decay_power": 2.0, **named})


_NOT_CONSTANTS = ("lr", "weight_decay", "schedule")


def _to_json(value: Any, kinds: dict[str, Any], what: str) -> Json:
    """Returns a dataclass as the member of its message's `kind`."""
    name = next((name for name, kind in kinds.items() if type(value) is kind), None)
    if name is None:
        names = ", ".join(kind.__name__ for kind in kinds.values())
        given = value.__name__ if isinstance(value, type) else repr(value)
        raise InvalidArgument(f"{what} is {given}: must be an object of slotwise's classes {names}")
    constants = (field.name for field in fields(value) if field.name not in _NOT_CONSTANTS)
    return {name: {constant: getattr(value, constant) for constant in constants}}


def _from_json(message: Json, kinds: dict[str, Any], **more: Any) -> Any:
    """Returns a message's `kind` as the dataclass of that name."""
    name = next((name for name in kinds if name in message), next(iter(kinds)))
    kind, inner = kinds[name], message.get(name, {})
    # A number of the message may be 0, and then absent, where the class's default is another.
    constants: dict[str, float | bool] = {}
    for field in fields(kind):
        if field.name not in _NOT_CONSTANTS:
            value = inner.get(field.name, 0)
            constants[field.name] = bool(value) if isinstance(field.default, bool) else float(value)
    return kind(**constants, **more)
