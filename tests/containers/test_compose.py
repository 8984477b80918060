"""deploy/docker-compose.yml as a user runs it: a server of two ranks and a trainer of it."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from engine import COMPOSE_FILE, ROOT, Engine, Project, wait_until

GOOD_AUC = 0.92


@pytest.fixture(scope="module")
def trained(project: Project) -> str:
    """What is printed while the trainer trains, and all containers end."""
    # The trainer's end ends all, and its exit code is the command's.
    return project.compose("up", "--no-build", "--abort-on-container-exit", limit=900)


def digest(project: Project) -> dict[str, object]:
    """What the table holds: its digest, rows and steps."""
    address = "127.0.0.1:7070"
    tables = json.loads(project.inside("server-cpu", "slotwise-ctl", "--server", address, "--json", "tables"))
    (name,) = [table["name"] for table in tables["tables"]]
    said = project.inside("server-cpu", "slotwise-ctl", "--server", address, "--json", "digest", name)
    answer: dict[str, object] = json.loads(said)
    return answer


def test_the_trainer_learns_and_all_end_well(project: Project, trained: str) -> None:
    (auc,) = re.findall(r"test AUC\D*(0\.\d+)", trained)[-1:]
    print(f"the trainer's test AUC is {auc}")
    assert float(auc) > GOOD_AUC
    for service in ("server-cpu", "trainer-cpu"):
        state = project.container(service)["State"]
        assert state["Status"] == "exited"
        assert state["ExitCode"] == 0, (service, trained[-3000:])


def test_containers_may_do_little(project: Project, trained: str) -> None:
    assert trained
    for service in ("server-cpu", "trainer-cpu"):
        container = project.container(service)
        host = container["HostConfig"]
        assert container["Config"]["User"] == "slotwise"
        assert host["ReadonlyRootfs"] and host["Init"] and not host["Privileged"]
        assert host["CapDrop"] == ["ALL"] and not host["CapAdd"]
        assert host["SecurityOpt"] == ["no-new-privileges:true"]
        assert not host["PortBindings"]
    server = project.container("server-cpu")["HostConfig"]
    assert server["ShmSize"] == 1 << 30
    gpu = yaml.safe_load(COMPOSE_FILE.read_text())["services"]["server-gpu"]
    assert gpu["ulimits"]["memlock"] == -1


def test_graces_are_in_order(engine: Engine, project: Project, trained: str) -> None:
    assert trained
    (drain,) = re.findall(r"kShutdownGrace\{(\d+)\}", (ROOT / "server/main.cc").read_text())
    variables = dict(each.split("=", 1) for each in engine.inspect("slotwise:cpu")["Config"]["Env"])
    kill = int(variables["OMPI_MCA_odls_base_sigkill_timeout"])
    container = project.container("server-cpu")["Config"]["StopTimeout"]
    assert int(drain) < kill < container


def test_a_restart_loses_nothing(engine: Engine, project: Project, trained: str) -> None:
    assert trained
    before = None
    for end in ("stop", "kill"):
        project.compose("up", "-d", "--no-build", "server-cpu")
        wait_until(lambda: project.is_healthy("server-cpu"), "the server is healthy")
        if before is None:
            before = digest(project)
        assert digest(project) == before
        assert int(str(before["steps"])) > 0
        container = project.container("server-cpu")["Id"]
        if end == "stop":
            project.compose("stop", "server-cpu")
            assert engine.inspect(container)["State"]["ExitCode"] == 0
        else:
            engine.docker("kill", container)
    project.compose("up", "-d", "--no-build", "server-cpu")
    wait_until(lambda: project.is_healthy("server-cpu"), "the server is healthy")
    assert digest(project) == before
