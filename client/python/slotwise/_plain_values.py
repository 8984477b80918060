"""Values as text and tensors, for a model's file: nothing in them could run when the file is read.

(`weights_only` of torch 1.13, which is Debian's, takes no floats, and has no effect with a `pickle_module`.)
"""

from __future__ import annotations

import base64
import inspect
import json
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim import lr_scheduler, swa_utils

from slotwise.errors import InvalidArgument

_DEEPEST = 100
# The kinds of NumPy's types whose elements are bytes alone: numbers, times and texts, and no objects.
_PLAIN_KINDS = "biufcmMSU"
# Torch's schedulers have these functions in their state_dict(), by version bound to the scheduler or not.
_FUNCTIONS: dict[str, tuple[Any, str]] = {
    f"{kind.__name__}.{name}": (kind, name)
    for kind, names in (
        (lr_scheduler.OneCycleLR, ("_annealing_cos", "_annealing_linear")),
        (swa_utils.SWALR, ("_cosine_anneal", "_linear_anneal")),
    )
    for name in names
    if hasattr(kind, name)
}
_SEQUENCES: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    torch.Size: "size",
    deque: "deque",
}
_MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}


def encode(value: Any, name: str) -> tuple[str, list[torch.Tensor]]:
    """Returns a value as JSON, and its tensors, which the JSON has as places in the list.

    Args:
        value: of None, booleans, numbers of Python's, texts, bytes, lists, tuples, sets, deques, dicts,
            tensors, torch's types, sizes and devices, and NumPy's numbers and arrays.
        name: what an error calls the value.

    Raises:
        InvalidArgument: the value has something else; the message names it and its place.
    """
    tensors: list[torch.Tensor] = []
    return json.dumps(_encode(value, name, tensors, 0)), tensors


def decode(text: str, tensors: list[torch.Tensor]) -> Any:
    """Returns the value that was encoded; ValueError, KeyError, IndexError or TypeError if none was."""
    return _decode(json.loads(text), tensors)


def _encode(value: Any, place: str, tensors: list[torch.Tensor], depth: int) -> Any:
    if depth > _DEEPEST:
        raise InvalidArgument(f"{place} is more than {_DEEPEST} deep")
    if isinstance(value, (np.generic, np.ndarray)):
        return _encode_array(value, place, tensors)
    if value is None or type(value) in (bool, str) or isinstance(value, (int, float)):
        return value
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return {"tensor": len(tensors) - 1}
    if isinstance(value, (bytes, bytearray)):
        return {type(value).__name__: base64.b64encode(value).decode()}
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    if isinstance(value, (torch.dtype, torch.device)):
        return {type(value).__name__: str(value).replace("torch.", "")}
    if type(value) in _SEQUENCES:
        encoded = [_encode(each, f"{place}[{i}]", tensors, depth + 1) for i, each in enumerate(value)]
        if type(value) is deque:
            return {"deque": [encoded, value.maxlen]}
        return encoded if type(value) is list else {_SEQUENCES[type(value)]: encoded}
    if type(value) in _MAPPINGS:
        pairs = [
            [
                _encode(key, f"a key of {place}", tensors, depth + 1),
                _encode(each, f"{place}[{key!r}]", tensors, depth + 1),
            ]
            for key, each in value.items()
        ]
        return {_MAPPINGS[type(value)]: pairs}
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return {"function": _name_of(value, place)}
    raise InvalidArgument(
        f"{place} is of {type(value).__module__}.{type(value).__qualname__}: leave it out, because a file "
        f"has dicts, lists, tuples, sets, numbers, texts, bytes, tensors and NumPy's arrays"
    )


def _encode_array(
    value: np.generic | NDArray[Any], place: str, tensors: list[torch.Tensor]
) -> dict[str, Any]:
    if value.dtype.kind not in _PLAIN_KINDS or type(value) not in (np.ndarray, value.dtype.type):
        raise InvalidArgument(
            f"{place} is a {type(value).__name__} of {value.dtype}: a file has NumPy's arrays of numbers, "
            f"times and texts, so make one of these, or a list"
        )
    raw = value.tobytes()
    if not isinstance(value, np.ndarray):
        return {"scalar": [value.dtype.str, base64.b64encode(raw).decode()]}
    tensors.append(torch.from_numpy(np.frombuffer(raw, np.uint8).copy()))
    return {"array": [value.dtype.str, list(value.shape), len(tensors) - 1]}


def _name_of(function: Any, place: str) -> str:
    """Returns the name of a function that torch's schedulers have."""
    own = getattr(function, "__func__", function)
    for name, (kind, attribute) in _FUNCTIONS.items():
        if getattr(kind, attribute) is own:
            return name
    raise InvalidArgument(
        f"{place} is the function {own.__qualname__}, and a file has values alone: leave it out, and what "
        f"was made with the function keeps it when its state is loaded"
    )


def _decode(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind not in _DECODERS:
        raise ValueError(f"there are no values of kind {kind!r}")
    return _DECODERS[kind](inner, tensors)


def _pairs(inner: Any, tensors: list[torch.Tensor]) -> list[tuple[Any, Any]]:
    return [(_decode(key, tensors), _decode(each, tensors)) for key, each in inner]


def _array(dtype: str, shape: list[int], raw: bytes) -> NDArray[Any]:
    """Returns a new array of the bytes; ValueError or TypeError if they are not its bytes."""
    of_type = np.dtype(str(dtype))
    if of_type.kind not in _PLAIN_KINDS or min(shape, default=0) < 0:
        raise ValueError(f"there are no arrays of {of_type}{shape}")
    array: NDArray[Any] = np.ndarray(tuple(shape), of_type, buffer=raw).copy()
    if array.nbytes != len(raw):
        raise ValueError(f"an array of {of_type}{shape} has not {len(raw)} bytes")
    return array


def _function(name: str) -> Any:
    """Returns a function of torch's schedulers, bound if this version of torch has it bound."""
    kind, attribute = _FUNCTIONS[name]
    function = getattr(kind, attribute)
    if isinstance(inspect.getattr_static(kind, attribute), staticmethod):
        return function
    return types.MethodType(function, object.__new__(kind))  # which does not look at its scheduler


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch has no type {name!r}")
    return found


_DECODERS: dict[str, Callable[[Any, list[torch.Tensor]], Any]] = {
    "tensor": lambda inner, tensors: tensors[inner],
    "array": lambda inner, tensors: _array(inner[0], inner[1], tensors[inner[2]].numpy().tobytes()),
    "scalar": lambda inner, _: _array(inner[0], [], base64.b64decode(inner[1], validate=True))[()],
    "bytes": lambda inner, _: base64.b64decode(inner, validate=True),
    "bytearray": lambda inner, _: bytearray(base64.b64decode(inner, validate=True)),
    "complex": lambda inner, _: complex(*inner),
    "dtype": lambda inner, _: _dtype(inner),
    "device": lambda inner, _: torch.device(inner),
    "function": lambda inner, _: _function(inner),
    "tuple": lambda inner, tensors: tuple(_decode(each, tensors) for each in inner),
    "set": lambda inner, tensors: {_decode(each, tensors) for each in inner},
    "frozenset": lambda inner, tensors: frozenset(_decode(each, tensors) for each in inner),
    "size": lambda inner, tensors: torch.Size(_decode(inner, tensors)),
    "deque": lambda inner, tensors: deque(_decode(inner[0], tensors), inner[1]),
    "dict": lambda inner, tensors: dict(_pairs(inner, tensors)),
    "ordered": lambda inner, tensors: OrderedDict(_pairs(inner, tensors)),
    "counter": lambda inner, tensors: Counter(dict(_pairs(inner, tensors))),
}
