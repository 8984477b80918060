from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_server import FakeServer
from judged_times import LONG_FORMS
from real_server import NoServer, RealServer, StartReal, empty_client

import slotwise


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer(ranks=2) as server:
        yield server


@pytest.fixture
def fake_ps(fake: FakeServer) -> Iterator[slotwise.Client]:
    """A client of `fake`, which the test can make fail."""
    with slotwise.connect(fake.addresses[0], timeout=30.0) as ps:
        yield ps


@pytest.fixture(scope="session")
def start_real() -> Iterator[StartReal]:
    """The real server of so many ranks: one for all tests, started for the first that wants it."""
    servers: dict[int, RealServer] = {}

    def start(ranks: int) -> RealServer:
        problem = ""
        if ranks not in servers:
            try:
                servers[ranks] = RealServer(ranks)
            except NoServer as error:
                problem = str(error)
        if problem:
            pytest.fail(problem, pytrace=False)
        return servers[ranks]

    yield start
    codes = {ranks: server.stop() for ranks, server in servers.items()}
    assert not any(codes.values()), f"slotwise-server did not exit with 0: {codes}"


@pytest.fixture(scope="session")
def real(start_real: StartReal) -> RealServer:
    return start_real(2)


def client_of(request: pytest.FixtureRequest) -> Iterator[slotwise.Client]:
    """A client without tables of the fake server, or of the real one of so many ranks: "real-4"."""
    if request.param == "fake":
        yield request.getfixturevalue("fake_ps")
        return
    start_real: StartReal = request.getfixturevalue("start_real")
    with empty_client(start_real(int(request.param[5:]))) as client:
        yield client


ps = pytest.fixture(params=["fake", "real-2"], name="ps")(client_of)
RANKS = ["real-1", "real-2", "real-4"] if LONG_FORMS else ["real-4"]
any_ps = pytest.fixture(params=["fake", *RANKS], name="any_ps")(client_of)
real_ps = pytest.fixture(params=["real-1", "real-2"] if LONG_FORMS else ["real-2"], name="real_ps")(client_of)
