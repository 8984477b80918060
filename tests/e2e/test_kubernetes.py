"""deploy/kubernetes: whether Kubernetes takes it, its parts fit together, and the server takes its files.

No cluster is needed. `kubernetes_manifests.py` has the checks, and the mutants below show that they find what
is wrong.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from certificates import Authority
from containers import stage
from kubernetes_manifests import (
    FOLDER,
    POLICY,
    SECRETS,
    SERVERS,
    VERSIONS,
    configuration,
    documents,
    pods,
    problems,
    text,
)
from slotwise_cluster import run_server
from slotwise_wire import ROOT

README = ROOT / "deploy" / "README.md"
KINDS = [pytest.param(False, id="cpu"), pytest.param(True, id="gpu")]


@pytest.mark.parametrize("gpu", KINDS)
@pytest.mark.parametrize("name", SERVERS)
def test_kubernetes_takes_the_manifests_and_they_fit_together(name: str, gpu: bool) -> None:
    (policy,) = documents(POLICY)
    assert problems(documents(name, gpu=gpu), policy) == []


def test_every_manifest_is_looked_at() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*SERVERS, POLICY}


@pytest.mark.parametrize("name", SERVERS)
def test_the_command_of_the_docs_makes_a_server_with_gpus(name: str) -> None:
    pattern = rf"^    (sed .*deploy/kubernetes/{name}) >\S+$"
    (command,) = re.findall(pattern, README.read_text(), re.MULTILINE)
    ended = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    made = ended.stdout
    assert made == text(name, gpu=True)
    server = next(pod for pod in pods(list(yaml.safe_load_all(made))) if pod.ranks)
    assert server.container["resources"]["limits"]["nvidia.com/gpu"] == server.ranks
    assert server.container["image"].endswith(":cuda")
    assert "\nbackend: BACKEND_CUDA\n" in configuration(documents(name, gpu=True))


@pytest.mark.parametrize("gpu", KINDS)
@pytest.mark.parametrize("name", SERVERS)
def test_the_server_takes_the_configuration(name: str, gpu: bool, tmp_path: Path) -> None:
    config = configuration(documents(name, gpu=gpu))
    certificate, key = Authority(tmp_path, "an authority").issue("server", "slotwise-server")
    for file in re.findall(r'_file: "([^"]+)"', config):
        stand_in = {"tls.crt": certificate, "tls.key": key}.get(Path(file).name, tmp_path / Path(file).name)
        if not stand_in.exists():
            stand_in.write_text(f"a-token-for-{stand_in.name}\n")
        config = config.replace(file, str(stand_in))
    (tmp_path / "server.pbtxt").write_text(config)
    ended = run_server("--config", str(tmp_path / "server.pbtxt"), "--check-config")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", SERVERS)
def test_images_have_what_is_run(name: str) -> None:
    for pod in pods(documents(name)):
        repository, _, _ = pod.container["image"].partition(":")
        target = {"slotwise": "server", "slotwise-host": "host"}[repository]
        for word in [*pod.container.get("command", []), *pod.container.get("args", [])]:
            if word.startswith("/opt/slotwise/bin/"):
                assert Path(word).name in stage("build")
            elif word.startswith("/opt/slotwise/"):
                there = word.removeprefix("/opt/slotwise/")
                assert (ROOT / there).is_file() and there in stage(target)


def test_the_docs_make_the_secrets() -> None:
    for name, files in SECRETS.items():
        pattern = rf"^    kubectl create secret generic {name} (.*)$"
        (options,) = re.findall(pattern, README.read_text(), re.MULTILINE)
        assert set(re.findall(r"--from-file=([\w.]+)=", options)) == files


# --- mutants: a manifest, what is put in the place of what, and what is found

SELECTOR = "app.kubernetes.io/component: server}"
MUTANTS = [
    # what Kubernetes' schemas refuse
    (
        "statefulset.yaml",
        "readOnlyRootFilesystem",
        "readOnlyRootFileSystem",
        "'readOnlyRootFileSystem' was unex",
    ),
    (
        "statefulset.yaml",
        "volumeClaimTemplates",
        "volumeClaimTemplate",
        "'volumeClaimTemplate' was unexpected",
    ),
    (
        "statefulset.yaml",
        'SLOTWISE_RANKS, value: "2"',
        "SLOTWISE_RANKS, value: 2",
        "2 is not of type 'string'",
    ),
    ("statefulset.yaml", "maxUnavailable: 0", "maxUnavailabel: 0", "'maxUnavailabel' was unexpected"),
    ("statefulset.yaml", "policy/v1", "policy/v2", "Couldn't find schema for kind PodDisruptionBudget"),
    (POLICY, "endPort: 7085", "endport: 7085", "'endport' was unexpected"),
    ("mpijob.yaml", "slotsPerWorker", "slotsPerWorkers", "'slotsPerWorkers' was unexpected"),
    ("mpijob.yaml", "cleanPodPolicy: Running", "cleanPodPolicy: running", "'running' is not one of"),
    ("mpijob.yaml", "restartPolicy: OnFailure", "restartPolicy: Always", "'Always' is not one of"),
    ("mpijob.yaml", "setHostnameAsFQDN", "setHostnameAsFqdn", "'setHostnameAsFqdn' was unexpected"),
    ("mpijob.yaml", "topologyKey", "topology", "'topologyKey' is a required property"),
    # selectors
    (
        "statefulset.yaml",
        f"  selector: {{app.kubernetes.io/name: slotwise, {SELECTOR}",
        "  selector: {app: slotwise}",
        "Service/slotwise selects no pod",
    ),
    (
        "statefulset.yaml",
        SELECTOR + "\n  template",
        "app.kubernetes.io/component: servers}\n  template",
        "StatefulSet/slotwise does not select its own pods",
    ),
    ("statefulset.yaml", "serviceName: slotwise", "serviceName: slotwise-server", "no headless Service"),
    (
        "mpijob.yaml",
        "    matchLabels: {app.kubernetes.io/name: slotwise}",
        f"    matchLabels: {{{SELECTOR}",
        "PodDisruptionBudget/slotwise does not select all of the server's pods",
    ),
    (
        POLICY,
        "  podSelector:\n    matchLabels: {app.kubernetes.io/name: slotwise}",
        f"  podSelector:\n    matchLabels: {{{SELECTOR}",
        "the policy does not select all pods",
    ),
    # ports
    (
        "statefulset.yaml",
        "{name: grpc, port: 7070, targetPort: grpc}",
        "{name: grpc, port: 7071, targetPort: grpc}",
        "Service/slotwise's port 7071 is no port grpc",
    ),
    ("statefulset.yaml", "containerPort: 7071", "containerPort: 7081", "has no port grpc-1 for rank 1"),
    (
        "statefulset.yaml",
        'SLOTWISE_RANKS, value: "2"',
        'SLOTWISE_RANKS, value: "3"',
        "no port grpc-2 for rank 2",
    ),
    ("statefulset.yaml", 'listen: "0.0.0.0:7070"', 'listen: "0.0.0.0:7170"', "listen is 7170"),
    (
        "statefulset.yaml",
        "port: health}",
        "port: healthy}",
        "asks the port healthy, which the container has not",
    ),
    ("mpijob.yaml", "containerPort: 2222", "containerPort: 22", "port ssh is not 2222"),
    (
        POLICY,
        "port: 7070, endPort: 7085",
        "port: 7070, endPort: 7070",
        "grpc of MPIJob/slotwise.Worker needs",
    ),
    (POLICY, "port: 7070, endPort: 7085", "port: 7070, endPort: 9999", "whoever reaches grpc also reaches"),
    (POLICY, "port: 8080", "port: 8081", "everybody reaches [8081], not the health port alone"),
    (
        POLICY,
        "      ports:\n        - {protocol: TCP, port: 7070, endPort: 7085}\n",
        "",
        "else than ranks reaches all",
    ),
    # volumes and files
    (
        "statefulset.yaml",
        "{name: shm, mountPath",
        "{name: shmem, mountPath",
        "mounts shmem, which is no volume",
    ),
    ("statefulset.yaml", "medium: Memory, sizeLimit: 1Gi", "sizeLimit: 1Gi", "/dev/shm is not in memory"),
    ("statefulset.yaml", "secretName: slotwise-tls", "secretName: slotwise-cert", "no Secret slotwise-cert"),
    ("statefulset.yaml", "tokens/trainer", "tokens/train", "tokens/train is no file of a Secret"),
    ("mpijob.yaml", "claimName: slotwise-data", "claimName: data", "there is no PersistentVolumeClaim data"),
    (
        "mpijob.yaml",
        "configMap: {name: slotwise-server}",
        "configMap: {name: slotwise}",
        "no ConfigMap slotwise",
    ),
    ("mpijob.yaml", "/opt/slotwise/.ssh", "/root/.ssh", "the keys are not mounted at /opt/slotwise/.ssh"),
    # rights and times
    ("statefulset.yaml", "drop: [ALL]", "drop: [NET_RAW]", "capabilities is {'drop': ['NET_RAW']}"),
    ("statefulset.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot is False"),
    (
        "statefulset.yaml",
        "GracePeriodSeconds: 60",
        "GracePeriodSeconds: 30",
        "graces are not in order: [5, 30, 30]",
    ),
    ("mpijob.yaml", '[timeout, "45"', '[timeout, "75"', "graces are not in order: [5, 30, 75, 60]"),
    ("statefulset.yaml", "failureThreshold: 120", "failureThreshold: 12", "startupProbe gives up after 60 s"),
    ("statefulset.yaml", "path: /livez", "path: /readyz", "probes ask"),
    ("mpijob.yaml", "minAvailable: 3", "minAvailable: 2", "the budget does not keep all 3 pods"),
    (
        "mpijob.yaml",
        "  name: slotwise-server\n",
        "  name: slotwise\n",
        "the operator makes a Service/slotwise itself",
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "finding"), MUTANTS, ids=[mutant[3] for mutant in MUTANTS])
def test_a_mutant_is_found(name: str, old: str, new: str, finding: str) -> None:
    original = text(name, gpu=False)
    assert old in original, "the mutant changes something"
    newest = VERSIONS[-1:]
    mutant = list(yaml.safe_load_all(original.replace(old, new)))
    if name == POLICY:
        found = problems(documents("mpijob.yaml"), mutant[0], newest)
    else:
        found = problems(mutant, documents(POLICY)[0], newest)
    assert any(finding in said for said in found), found
