"""An engine with the images, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine import Engine, Project


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A container engine that has the images."""
    engine = Engine()
    try:
        engine.build()
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="module")
def project(engine: Engine) -> Iterator[Project]:
    """The compose file's services, which are not started yet."""
    project = Project(engine, "slotwise-test")
    project.remove()
    yield project
    project.remove()
