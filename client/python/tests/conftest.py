from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_server import FakeServer
from real_server import NoServer, RealServer

import slotwise


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    server = FakeServer(ranks=2)
    yield server
    server.stop()


@pytest.fixture
def fake_ps(fake: FakeServer) -> Iterator[slotwise.Client]:
    """A client of `fake`, which the test can make fail."""
    with slotwise.connect(fake.addresses[0], timeout=10.0) as ps:
        yield ps


@pytest.fixture(scope="session")
def real() -> Iterator[RealServer]:
    server, problem = None, ""
    try:
        server = RealServer(ranks=2)
    except NoServer as error:
        problem = str(error)
    if server is None:
        pytest.fail(problem, pytrace=False)
    yield server
    assert server.stop() == 0, "slotwise-server did not exit with 0"


@pytest.fixture(params=["fake", "real"])
def ps(request: pytest.FixtureRequest) -> Iterator[slotwise.Client]:
    """A client of a server without tables: once the fake one, once the real one."""
    if request.param == "fake":
        yield request.getfixturevalue("fake_ps")
        return
    with slotwise.connect(request.getfixturevalue("real").address) as client:
        for table in client.list_tables():
            client.drop_table(table.name)
        yield client
