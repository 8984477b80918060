"""How a client puts an answer together of pages, also if the server forgets keys between two pages."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

import slotwise
from slotwise.evicted import list_evicted


def page(rounds: dict[int, list[int]], **fields: Any) -> dict[str, Any]:
    """A reply of ListEvicted, as protobuf's JSON has it."""
    gone = [
        {
            "round": str(number),
            "by": "EVICTED_BY_FULL_TABLE",
            "keys": base64.b64encode(np.array(keys, "<u8").tobytes()).decode(),
        }
        for number, keys in rounds.items()
    ]
    return {"rounds": gone, "incarnation": "77", "lineage": "5", **fields}


class Server:
    """Gives its pages one after another, and remembers what it was asked."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.pages = list(pages)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        return self.pages.pop(0)


def test_a_round_may_lie_on_several_pages() -> None:
    server = Server(
        page(
            {4: [1], 7: [2, 3]},
            complete_after="3", through_round="9", more=True, next_after_round="6", next_keys_seen="2",
        ),
        page({7: [5], 8: [6]}, complete_after="6", through_round="9"),
    )
    answer = list_evicted(server, "ads", 3, 70)
    assert [(each.round, each.by, each.keys.tolist()) for each in answer.rounds] == [
        (4, "full_table", [1]), (7, "full_table", [2, 3, 5]), (8, "full_table", [6]),
    ]
    assert (answer.complete_after, answer.gap, answer.through_round) == (3, False, 9)
    assert (answer.instance, answer.generation, answer.keys.tolist()) == (77, 5, [1, 2, 3, 5, 6])
    assert server.asked[0] == {"table": "ads", "after_round": 3, "incarnation": 70}
    assert server.asked[1] == {
        "table": "ads", "after_round": 6, "keys_seen": 2, "through_round": 9, "incarnation": 77,
    }


def test_pages_before_a_gap_are_not_part_of_the_answer() -> None:
    server = Server(
        page(
            {4: [1]},
            complete_after="3", through_round="9", more=True, next_after_round="4", next_keys_seen="0",
        ),
        page({11: [6]}, complete_after="10", gap=True, through_round="12"),
    )
    answer = list_evicted(server, "ads", 3, 0)
    assert [(each.round, each.keys.tolist()) for each in answer.rounds] == [(11, [6])]
    assert (answer.complete_after, answer.gap, answer.through_round) == (10, True, 12)


def test_an_answer_may_be_empty() -> None:
    answer = list_evicted(Server({"complete_after": "3", "through_round": "9"}), "ads", 3, 0)
    assert answer.rounds == () and answer.keys.dtype == np.uint64 and len(answer.keys) == 0


def test_a_client_says_whose_rounds_it_has_seen(
    real_ps: slotwise.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    ask = real_ps._ask

    def note(method: str, request: dict[str, Any] | None = None, **how: Any) -> dict[str, Any]:
        asked.append(request or {})
        return ask(method, request, **how)

    real_ps.create_table("ads", dim=2, optimizer=slotwise.SGD(1.0), ttl_steps=4)
    monkeypatch.setattr(real_ps, "_ask", note)
    seen = real_ps.evicted("ads", after_round=1)
    assert seen.instance == real_ps.topology().instance != 0
    for given in ({}, {"instance": 0}, {"instance": seen.instance + 1}):
        answer = real_ps.evicted("ads", after_round=seen.through_round, **given)
        assert answer.gap == ("instance" in given and given["instance"] != 0)
    assert not real_ps.evicted("ads").gap
    sent = [request["incarnation"] for request in asked if "incarnation" in request]
    assert sent == [0, seen.instance, 0, seen.instance + 1, 0]
