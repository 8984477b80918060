"""Which keys of a table were evicted or have expired: the answer of `Client.evicted`, page by page."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotwise.errors import InvalidArgument
from slotwise.optimizers import Json


@dataclass(frozen=True, eq=False)
class EvictedKeys:
    """The keys that one round removed from a table, on all ranks.

    Such a key has no row after the round, unless the round was one of lookups, which may evict several
    times, and give a key a row again.

    Attributes:
        round: the round's number, the same on all ranks.
        by: why the rows went: "full_table" (a batch needed room in a table that evicts), "time_to_live" (the
            rows expired) or "request" (`evict` asked for fewer rows); of a newer server, another text.
        keys: uint64, in no order.
    """

    round: int
    by: str
    keys: NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Evicted:
    """The keys of a table that were evicted or have expired. To go on, give `through_round` and `instance`.

    Attributes:
        rounds: ascending; rounds that removed no key are left out.
        complete_after: `rounds` has all keys that went in later rounds than this one, up to through_round.
        gap: whether keys that went after the asked round may be missing; else complete_after is that round.
            A cache then has to be emptied, or compared with the table.
        through_round: the last round that the answer is about.
        instance: of the server, drawn when the server started.
        generation: the table's, drawn when the table was made or loaded.
    """

    rounds: tuple[EvictedKeys, ...]
    complete_after: int
    gap: bool
    through_round: int
    instance: int
    generation: int

    @property
    def keys(self) -> NDArray[np.uint64]:
        """All rounds' keys, uint64, by round. A key that went twice is there twice."""
        none = np.empty(0, np.uint64)
        return np.concatenate([none, *(each.keys for each in self.rounds)])


def list_evicted(ask: Callable[[Json], Json], table: str, after_round: int, instance: int) -> Evicted:
    """Asks for all pages of an answer; `ask` calls ListEvicted with a request's fields."""
    request: Json = {
        "table": table,
        "after_round": _whole("after_round", after_round),
        "incarnation": _whole("instance", instance),
    }
    first: Json | None = None
    keys: dict[int, list[NDArray[np.uint64]]] = {}
    why: dict[int, str] = {}
    while True:
        page = ask(request)
        if first is None or page.get("gap", False):
            first, keys, why = page, {}, {}  # after a gap, earlier pages are no part of what is complete
        for each in page.get("rounds", []):
            number = int(each["round"])
            raw = np.frombuffer(base64.b64decode(each["keys"]), "<u8").astype(np.uint64)
            keys.setdefault(number, []).append(raw)
            why[number] = str(each.get("by", "")).removeprefix("EVICTED_BY_").lower()
        if not page.get("more", False):
            break
        request = {
            "table": table,
            "after_round": int(page.get("next_after_round", 0)),
            "keys_seen": int(page.get("next_keys_seen", 0)),
            "through_round": int(first.get("through_round", 0)),
            "incarnation": int(first.get("incarnation", 0)),
        }
    return Evicted(
        tuple(EvictedKeys(number, why[number], np.concatenate(parts)) for number, parts in keys.items()),
        complete_after=int(first.get("complete_after", 0)),
        gap=bool(first.get("gap", False)),
        through_round=int(first.get("through_round", 0)),
        instance=int(first.get("incarnation", 0)),
        generation=int(first.get("lineage", 0)),
    )


def _whole(name: str, value: int) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise InvalidArgument(f"{name} is {value!r}: must be an integer of 0 to 2**64 - 1")
    return int(value)
