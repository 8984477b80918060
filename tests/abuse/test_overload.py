"""A server that is offered ten times what it can take serves as much as ever, and small clients as soon.

tests/abuse/overload is the same for longer.
"""

from __future__ import annotations

import overload_run
import pytest
from judged_times import LONG_FORMS, judges_times
from slotwise_cluster import StartCluster

SECONDS = 12.0 if LONG_FORMS or judges_times() else 4.0
# Of a second that others take a part of.
TOLERANCE = 0.25


@pytest.mark.parametrize("transport", ["best", "grpc"] if LONG_FORMS else ["grpc"])
def test_ten_times_what_a_server_can_take(start_cluster: StartCluster, transport: str) -> None:
    outcome = overload_run.run(lambda config: start_cluster(1, config), transport, SECONDS, TOLERANCE)
    print(*outcome.lines, sep="\n")
    assert outcome.failures == []
