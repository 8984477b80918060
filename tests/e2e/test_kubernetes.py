"""deploy/kubernetes: whether Kubernetes takes it, its parts fit together, and the server takes its files.

No cluster is needed. `kubernetes_manifests.py` has the checks, and the mutants below show that they find what
is wrong.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from certificates import Authority
from containers import stage
from kubernetes_manifests import FOLDER, POLICY, SECRETS, SERVERS, VERSIONS
from kubernetes_manifests import configuration, documents, pods, problems, text
from programs import output_of
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
    made = output_of("bash", "-c", command, folder=ROOT)
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


# --- mutants: of each manifest, what is put in the place of what, and what is found of it

BY_NAME = "matchLabels: {app.kubernetes.io/name: slotwise}"
BY_COMPONENT = "matchLabels: {app.kubernetes.io/component: server}"
MUTANTS = {
    "statefulset.yaml": [
        ("readOnlyRootFilesystem", "readOnlyRootFileSystem", "'readOnlyRootFileSystem' was unex"),
        ("volumeClaimTemplates", "volumeClaimTemplate", "'volumeClaimTemplate' was unexpected"),
        ('SLOTWISE_RANKS, value: "2"', "SLOTWISE_RANKS, value: 2", "2 is not of type 'string'"),
        ("maxUnavailable: 0", "maxUnavailabel: 0", "'maxUnavailabel' was unexpected"),
        ("policy/v1", "policy/v2", "Couldn't find schema for kind PodDisruptionBudget"),
        ("  selector: {app.kubernetes.io/name: slotwise, app.kubernetes.io/component: server}",
         "  selector: {app: slotwise}", "Service/slotwise selects no pod"),
        ("app.kubernetes.io/component: server}\n  template",
         "app.kubernetes.io/component: servers}\n  template",
         "StatefulSet/slotwise does not select its own pods"),
        ("serviceName: slotwise", "serviceName: slotwise-server", "no headless Service"),
        ("{name: grpc, port: 7070, targetPort: grpc}", "{name: grpc, port: 7071, targetPort: grpc}",
         "Service/slotwise's port 7071 is no port grpc"),
        ("containerPort: 7071", "containerPort: 7081", "has no port grpc-1 for rank 1"),
        ('SLOTWISE_RANKS, value: "2"', 'SLOTWISE_RANKS, value: "3"', "no port grpc-2 for rank 2"),
        ('listen: "0.0.0.0:7070"', 'listen: "0.0.0.0:7170"', "listen is 7170"),
        ("port: health}", "port: healthy}", "asks the port healthy, which the container has not"),
        ("{name: shm, mountPath", "{name: shmem, mountPath", "mounts shmem, which is no volume"),
        ("medium: Memory, sizeLimit: 1Gi", "sizeLimit: 1Gi", "/dev/shm is not in memory"),
        ("secretName: slotwise-tls", "secretName: slotwise-cert", "no Secret slotwise-cert"),
        ("tokens/trainer", "tokens/train", "tokens/train is no file of a Secret"),
        ("drop: [ALL]", "drop: [NET_RAW]", "capabilities is {'drop': ['NET_RAW']}"),
        ("runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot is False"),
        ("GracePeriodSeconds: 60", "GracePeriodSeconds: 30", "graces are not in order: [5, 30, 30]"),
        ("failureThreshold: 120", "failureThreshold: 12", "startupProbe gives up after 60 s"),
        ("path: /livez", "path: /readyz", "probes ask"),
    ],
    "mpijob.yaml": [
        ("slotsPerWorker", "slotsPerWorkers", "'slotsPerWorkers' was unexpected"),
        ("cleanPodPolicy: Running", "cleanPodPolicy: running", "'running' is not one of"),
        ("restartPolicy: OnFailure", "restartPolicy: Always", "'Always' is not one of"),
        ("setHostnameAsFQDN", "setHostnameAsFqdn", "'setHostnameAsFqdn' was unexpected"),
        ("topologyKey", "topology", "'topologyKey' is a required property"),
        (f"    {BY_NAME}", f"    {BY_COMPONENT}",
         "PodDisruptionBudget/slotwise does not select all of the server's pods"),
        ("containerPort: 2222", "containerPort: 22", "port ssh is not 2222"),
        ("claimName: slotwise-data", "claimName: data", "there is no PersistentVolumeClaim data"),
        ("configMap: {name: slotwise-server}", "configMap: {name: slotwise}", "no ConfigMap slotwise"),
        ("/opt/slotwise/.ssh", "/root/.ssh", "the keys are not mounted at /opt/slotwise/.ssh"),
        ('[timeout, "45"', '[timeout, "75"', "graces are not in order: [5, 30, 75, 60]"),
        ("minAvailable: 3", "minAvailable: 2", "the budget does not keep all 3 pods"),
        ("  name: slotwise-server\n", "  name: slotwise\n", "the operator makes a Service/slotwise itself"),
    ],
    POLICY: [
        ("endPort: 7085", "endport: 7085", "'endport' was unexpected"),
        (f"  podSelector:\n    {BY_NAME}", f"  podSelector:\n    {BY_COMPONENT}",
         "the policy does not select all pods"),
        ("port: 7070, endPort: 7085", "port: 7070, endPort: 7070", "grpc of MPIJob/slotwise.Worker needs"),
        ("port: 7070, endPort: 7085", "port: 7070, endPort: 9999", "a pod that reaches grpc also reaches"),
        ("port: 8080", "port: 8081", "everybody reaches [8081], not the health port alone"),
        ("      ports:\n        - {protocol: TCP, port: 7070, endPort: 7085}\n", "",
         "else than ranks reaches all"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new", "finding"),
    [pytest.param(name, *mutant, id=mutant[2]) for name, mutants in MUTANTS.items() for mutant in mutants],
)
def test_a_mutant_is_found(name: str, old: str, new: str, finding: str) -> None:
    original = text(name, gpu=False)
    assert old in original, "the mutant changes something"
    mutant = list(yaml.safe_load_all(original.replace(old, new)))
    server, policy = (documents("mpijob.yaml"), mutant) if name == POLICY else (mutant, documents(POLICY))
    found = problems(server, policy[0], VERSIONS[-1:])
    assert any(finding in said for said in found), found
