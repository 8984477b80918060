"""Values as text and tensors: what a model's file has, and nothing that could run as it is read.

(torch's own `weights_only` of 1.13, which is Debian's, takes no floats, and its `pickle_module` has
no effect there.)
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from typing import Any

import torch

from slotwise.errors import InvalidArgument

_DEEPEST = 100


def encode(value: Any, name: str) -> tuple[str, list[torch.Tensor]]:
    """Returns a value as JSON, in which tensors are numbers of the list's.

    Args:
        value: of None, booleans, numbers of Python's, texts, bytes, lists, tuples, sets, dicts and
            tensors.
        name: what an error calls the value.

    Raises:
        InvalidArgument: it has something else; names it and its place.
    """
    tensors: list[torch.Tensor] = []
    return json.dumps(_encode(value, name, tensors, 0)), tensors


def decode(text: str, tensors: list[torch.Tensor]) -> Any:
    """Returns what was encoded. Raises ValueError, KeyError, IndexError or TypeError: nothing was."""
    return _decode(json.loads(text), tensors)


def _encode(value: Any, place: str, tensors: list[torch.Tensor], depth: int) -> Any:
    if depth > _DEEPEST:
        raise InvalidArgument(f"{place} is more than {_DEEPEST} deep")
    if value is None or type(value) in (bool, str) or isinstance(value, (int, float)):
        return value
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return {"tensor": len(tensors) - 1}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if type(value) in (list, tuple, set):
        encoded = [_encode(each, f"{place}[{i}]", tensors, depth + 1) for i, each in enumerate(value)]
        return encoded if type(value) is list else {type(value).__name__: encoded}
    if type(value) in (dict, OrderedDict):
        pairs = [
            [
                _encode(key, f"a key of {place}", tensors, depth + 1),
                _encode(each, f"{place}[{key!r}]", tensors, depth + 1),
            ]
            for key, each in value.items()
        ]
        return {"dict" if type(value) is dict else "ordered": pairs}
    raise InvalidArgument(
        f"{place} is of {type(value).__module__}.{type(value).__qualname__}: a file has dicts, lists, "
        f"tuples, sets, numbers, texts, bytes and tensors"
    )


def _decode(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "bytes":
        return base64.b64decode(inner, validate=True)
    if kind in ("dict", "ordered"):
        pairs = [(_decode(key, tensors), _decode(each, tensors)) for key, each in inner]
        return dict(pairs) if kind == "dict" else OrderedDict(pairs)
    if kind in ("tuple", "set"):
        return (tuple if kind == "tuple" else set)(_decode(each, tensors) for each in inner)
    raise ValueError(f"there are no values of kind {kind!r}")
