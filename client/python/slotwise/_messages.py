"""Replies of the control path: from protobuf's JSON to dataclasses, by the fields' names and types."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable
from dataclasses import field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def read(kind: type[T], message: dict[str, Any], **given: Any) -> T:
    """Returns the dataclass `kind` of a message whose fields have the same names, or those of `named`.

    A field that the message lacks has protobuf's default: 0, "", False, or empty. Fields that are `given` are
    not read.
    """
    hints = _hints(cast(Hashable, kind))
    values = {
        each.name: _value(hints[each.name], message.get(each.metadata.get("message", each.name)))
        for each in fields(cast(Any, kind))
        if each.name not in given
    }
    return kind(**values, **given)


def named(message_field: str, **default: Any) -> Any:
    """Returns a dataclass's field that has another name in the message."""
    return field(metadata={"message": message_field}, **default)


class OlderNames:
    """A dataclass whose `named` fields can be read by the message's names too, which are older."""

    def __getattr__(self, name: str) -> Any:
        """Returns the field that has this name in the message."""
        for each in fields(cast(Any, self)):
            if each.metadata.get("message") == name:
                return getattr(self, each.name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(kind: Any, said: Any) -> Any:
    """Returns a field's value; `said` is None if the message lacks the field."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return tuple(_value(arguments[0], each) for each in said or ())
    if origin is dict:
        return {key: _value(arguments[1], each) for key, each in (said or {}).items()}
    if hasattr(kind, "from_message"):
        return kind.from_message(said or {})
    if is_dataclass(kind):
        return read(cast(type[Any], kind), said or {})
    assert not isinstance(kind, types.UnionType), kind
    make = cast(Callable[[Any], Any], kind)  # int, which reads the texts of 64-bit numbers; float, str, bool
    return make() if said is None else make(said)  # type: ignore[call-arg]
