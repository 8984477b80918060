"""deploy/kubernetes' manifests, and what is wrong with them, as sentences.

`schema_problems` asks the schemas of Kubernetes itself, and refuses fields that those do not know. The other
checks find what no schema can: names, labels, ports and times that have to be the same in several places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from slotwise_wire import ROOT

Document = dict[str, Any]
Problems = Iterator[str]

FOLDER = ROOT / "deploy" / "kubernetes"
SERVERS = ("statefulset.yaml", "mpijob.yaml")
POLICY = "network-policy.yaml"
# The Secrets that the chapter in deploy/README.md makes, and their files.
SECRETS = {
    "slotwise-tls": {"tls.crt", "tls.key", "ca.crt"},
    "slotwise-tokens": {"trainer", "operator", "prometheus"},
}
# An old version, one that many clusters run, and the newest whose schemas there are.
VERSIONS = ("1.27", "1.32", "1.37")
_MPIJOB_SCHEMA = json.loads((Path(__file__).parent / "mpijob_v2beta1.schema.json").read_text())
_MPI_OPERATOR = {"training.kubeflow.org/operator-name": "mpi-operator"}


def text(name: str, *, gpu: bool) -> str:
    """A manifest's text, for a server without or with GPUs, as the command in deploy/README.md makes it."""
    lines = (FOLDER / name).read_text().splitlines(keepends=True)
    if not gpu:
        return "".join(lines)
    return "".join(line.replace("# GPU: ", "", 1) for line in lines if not line.endswith(" # CPU\n"))


def documents(name: str, *, gpu: bool = False) -> list[Document]:
    """A manifest's documents, of which none is empty."""
    loaded: list[Document] = list(yaml.safe_load_all(text(name, gpu=gpu)))
    assert all(loaded), f"{name} has an empty document"
    return loaded


def name_of(document: Document) -> str:
    """KIND/NAME."""
    return f"{document['kind']}/{document['metadata']['name']}"


def of_kind(all_documents: list[Document], kind: str) -> list[Document]:
    """The documents of a kind."""
    return [document for document in all_documents if document["kind"] == kind]


# --- schemas


def schema_problems(document: Document, version: str) -> Problems:
    """What the schemas of a version of Kubernetes refuse, and for an MPIJob those of its operator."""
    try:
        if document.get("kind") != "MPIJob":
            kubernetes_validate.validate(document, version, strict=True)
            return
        jsonschema.Draft202012Validator(_MPIJOB_SCHEMA).validate(document)
        for replicas in document["spec"]["mpiReplicaSpecs"].values():
            template = {"apiVersion": "v1", "kind": "PodTemplate", "template": replicas["template"]}
            kubernetes_validate.validate(template, version, strict=True)
    except kubernetes_validate.SchemaNotFoundError as error:
        yield error.message
    except jsonschema.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"


# --- pods


@dataclass(frozen=True)
class Pod:
    """What a workload makes pods of."""

    owner: str
    labels: dict[str, str]
    spec: Document
    claims: tuple[str, ...] = ()  # volumes by a StatefulSet's claim templates
    ranks: int = 0

    @property
    def container(self) -> Document:
        """Its only container."""
        (container,) = self.spec["containers"]
        found: Document = container
        return found

    @property
    def ports(self) -> dict[str, int]:
        """Its ports, by name."""
        return {port["name"]: port["containerPort"] for port in self.container.get("ports", [])}

    @property
    def environment(self) -> dict[str, str]:
        """The container's variables."""
        return {variable["name"]: variable["value"] for variable in self.container.get("env", [])}


def pods(all_documents: list[Document]) -> list[Pod]:
    """All pods that the documents make."""
    made = []
    for document in of_kind(all_documents, "StatefulSet"):
        spec = document["spec"]
        claims = tuple(claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", []))
        template = spec["template"]
        pod = Pod(name_of(document), template["metadata"]["labels"], template["spec"], claims)
        gpus = pod.container["resources"]["limits"].get("nvidia.com/gpu", 0)
        made.append(replace(pod, ranks=int(pod.environment.get("SLOTWISE_RANKS", gpus))))
    for document in of_kind(all_documents, "MPIJob"):
        for role, replicas in document["spec"]["mpiReplicaSpecs"].items():
            template = replicas["template"]
            labels = template["metadata"]["labels"] | _MPI_OPERATOR
            ranks = document["spec"]["slotsPerWorker"] if role == "Worker" else 0
            made.append(Pod(f"{name_of(document)}.{role}", labels, template["spec"], ranks=ranks))
    return made


def _selected(selector: dict[str, str], all_pods: list[Pod]) -> list[Pod]:
    return [pod for pod in all_pods if selector.items() <= pod.labels.items()]


def pod_problems(all_documents: list[Document]) -> Problems:
    """Volumes, rights and times of the pods."""
    for pod in pods(all_documents):
        said = [*_volume_problems(pod, all_documents), *_right_problems(pod), *_grace_problems(pod)]
        yield from (f"{pod.owner}: {problem}" for problem in [*said, *_probe_problems(pod)])


def _volume_problems(pod: Pod, all_documents: list[Document]) -> Problems:
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
    mounts = pod.container["volumeMounts"]
    mounted, there = {mount["name"] for mount in mounts}, set(volumes) | set(pod.claims)
    yield from (f"mounts {name}, which is no volume" for name in sorted(mounted - there))
    yield from (f"has the volume {name}, which is mounted nowhere" for name in sorted(there - mounted))
    wanted = [("ServiceAccount", pod.spec["serviceAccountName"])]
    for volume in volumes.values():
        if "configMap" in volume:
            wanted.append(("ConfigMap", volume["configMap"]["name"]))
        if "persistentVolumeClaim" in volume:
            wanted.append(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
        if "secret" in volume and volume["secret"]["secretName"] not in SECRETS:
            yield f"there is no Secret {volume['secret']['secretName']}"
    names = {name_of(document) for document in all_documents}
    yield from (f"there is no {kind} {name}" for kind, name in wanted if f"{kind}/{name}" not in names)
    for folder in ("/tmp", *(("/dev/shm",) if pod.ranks else ())):
        if _volume_at(pod, folder).get("emptyDir", {}).get("medium") != "Memory":
            yield f"{folder} is not in memory"
    data = pod.environment.get("SLOTWISE_DATA", "/data")
    if data not in {mount["mountPath"] for mount in mounts}:
        yield f"the data folder {data} is not mounted"


def _volume_at(pod: Pod, path: str) -> Document:
    named = {mount["mountPath"]: mount["name"] for mount in pod.container["volumeMounts"]}
    for volume in pod.spec.get("volumes", []):
        if volume["name"] == named.get(path):
            there: Document = volume
            return there
    return {}


def _right_problems(pod: Pod) -> Problems:
    """The images' user, and no rights, as Kubernetes' restricted pods."""
    of_pod: Document = {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    of_container: Document = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    of_spec: Document = {"automountServiceAccountToken": False, "enableServiceLinks": False}
    for there, wanted in (
        (pod.spec["securityContext"], of_pod),
        (pod.container["securityContext"], of_container),
        (pod.spec, of_spec),
    ):
        for name, value in wanted.items():
            if there.get(name) != value:
                yield f"{name} is {there.get(name)}, not {value}"


def graces() -> tuple[int, int]:
    """Seconds: what ranks need to answer, and what mpirun then gives them."""
    (drain,) = re.findall(r"kShutdownGrace\{(\d+)\}", (ROOT / "server/main.cc").read_text())
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    (kill,) = re.findall(r"OMPI_MCA_odls_base_sigkill_timeout=(\d+)", dockerfile)
    return int(drain), int(kill)


def _grace_problems(pod: Pod) -> Problems:
    times = [*graces()]
    command = pod.container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
    if command:
        times.append(int(command[command.index("timeout") + 1]))
    times.append(pod.spec["terminationGracePeriodSeconds"])
    if times != sorted(set(times)):
        yield f"graces are not in order: {times}"


def _probe_problems(pod: Pod) -> Problems:
    probes = {kind: pod.container[kind] for kind in _PROBES if kind in pod.container}
    for kind, probe in probes.items():
        port = probe.get("httpGet", probe.get("tcpSocket", {})).get("port")
        if port not in pod.ports:
            yield f"{kind} asks the port {port}, which the container has not"
    if "livenessProbe" not in probes:
        return
    # The kubelet asks the server itself.
    paths = [probe["httpGet"]["path"] for probe in probes.values()]
    if paths != ["/readyz", "/readyz", "/livez"]:
        yield f"probes ask {paths}"
    for kind in ("startupProbe", "livenessProbe"):
        seconds = probes[kind]["periodSeconds"] * probes[kind]["failureThreshold"]
        if seconds < RECOVERY_SECONDS:
            yield f"{kind} gives up after {seconds} s, and a recovery may take {RECOVERY_SECONDS}"


RECOVERY_SECONDS = 600
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")

# --- what finds pods


def selector_problems(all_documents: list[Document]) -> Problems:
    """Selectors, Services' ports, and who belongs to whom."""
    all_pods = pods(all_documents)
    for document in all_documents:
        name, spec = name_of(document), document.get("spec", {})
        if document["kind"] == "Service":
            matched = _selected(spec["selector"], all_pods)
            if not matched:
                yield f"{name} selects no pod"
            for pod, port in ((pod, port) for pod in matched for port in spec["ports"]):
                target = port["targetPort"]
                if pod.ports.get(target) != port["port"]:
                    yield f"{name}'s port {port['port']} is no port {target} of {pod.owner}"
        elif document["kind"] == "PodDisruptionBudget":
            if _selected(spec["selector"]["matchLabels"], all_pods) != all_pods:
                yield f"{name} does not select all of the server's pods"
        elif document["kind"] == "StatefulSet":
            labels = spec["template"]["metadata"]["labels"]
            if not spec["selector"]["matchLabels"].items() <= labels.items():
                yield f"{name} does not select its own pods"
            services = {each["metadata"]["name"]: each["spec"] for each in of_kind(all_documents, "Service")}
            if services.get(spec["serviceName"], {}).get("clusterIP") != "None":
                yield f"{name}: there is no headless Service {spec['serviceName']}"
        elif document["kind"] == "MPIJob":
            yield from _job_problems(document, all_documents)


def _job_problems(job: Document, all_documents: list[Document]) -> Problems:
    budgets = [each["spec"] for each in of_kind(all_documents, "PodDisruptionBudget")]
    replicas = sum(each["replicas"] for each in job["spec"]["mpiReplicaSpecs"].values())
    # For pods of a controller without a scale, Kubernetes takes minAvailable alone, as a number.
    if [budget.get("minAvailable") for budget in budgets] != [replicas]:
        yield f"the budget does not keep all {replicas} pods"
    (home,) = re.findall(r"usermod --home (\S+)", (ROOT / "deploy/Dockerfile").read_text())
    if job["spec"]["sshAuthMountPath"] != f"{home}/.ssh":
        yield f"the keys are not mounted at {home}/.ssh"
    (port,) = re.findall(r"^Port (\d+)$", (ROOT / "deploy/host/sshd_config").read_text(), re.MULTILINE)
    for pod in pods(all_documents):
        if pod.ranks and pod.ports.get("ssh") != int(port):
            yield f"{pod.owner}'s port ssh is not {port}"
    names = {name_of(document) for document in all_documents}
    for kind, suffix in {"Service": "", "ConfigMap": "-config", "Secret": "-ssh"}.items():
        taken = f"{kind}/{job['metadata']['name']}{suffix}"
        if taken in names:
            yield f"the operator makes a {taken} itself"


# --- the configuration


def configuration(all_documents: list[Document]) -> str:
    """The server's configuration."""
    (config,) = of_kind(all_documents, "ConfigMap")
    found: str = config["data"]["server.pbtxt"]
    return found


def configuration_problems(all_documents: list[Document]) -> Problems:
    """Ports and files of the configuration, beside those of the pods with ranks."""
    config = configuration(all_documents)
    for pod in (pod for pod in pods(all_documents) if pod.ranks):
        for field, port in (("listen", "grpc"), ("metrics_listen", "metrics"), ("health_listen", "health")):
            (first,) = re.findall(rf'^{field}: "0\.0\.0\.0:(\d+)"$', config, re.MULTILINE)
            if pod.ports.get(port) != int(first):
                yield f"{field} is {first}, which is no port {port} of {pod.owner}"
            for rank in range(1, 0 if port == "health" else pod.ranks):
                if pod.ports.get(f"{port}-{rank}") != int(first) + rank:
                    yield f"{pod.owner} has no port {port}-{rank} for rank {rank}"
        for file in re.findall(r'_file: "([^"]+)"', config):
            path = Path(file)
            secret = _volume_at(pod, str(path.parent)).get("secret", {}).get("secretName", "")
            if path.name not in SECRETS.get(secret, set()):
                yield f"{file} is no file of a Secret that {pod.owner} mounts"


def policy_problems(policy: Document, all_documents: list[Document]) -> Problems:
    """Whom a NetworkPolicy lets in, beside the ports of a server's pods."""
    spec, all_pods = policy["spec"], pods(all_documents)
    own = {"podSelector": spec["podSelector"]}
    rules = [rule for rule in spec["ingress"] if rule != {"from": [own]}]
    holds = {
        "the policy is not for both ways": spec["policyTypes"] == ["Ingress", "Egress"],
        "the policy does not select all pods": (
            len(_selected(spec["podSelector"]["matchLabels"], all_pods)) == len(all_pods)
        ),
        "ranks do not reach each other at any port": (
            {"from": [own]} in spec["ingress"] and {"to": [own]} in spec["egress"]
        ),
        "somebody else than ranks reaches all ports": all(rule.get("ports") for rule in rules),
    }
    if not all(holds.values()):
        yield from (problem for problem, good in holds.items() if not good)
        return
    (trainers,) = [rule for rule in rules if rule.get("from", [{}])[0].keys() == {"podSelector"}]
    (prometheus,) = [rule for rule in rules if "namespaceSelector" in rule.get("from", [{}])[0]]
    (everybody,) = [rule for rule in rules if "from" not in rule]
    for pod in (pod for pod in all_pods if pod.ranks):
        for prefix, rule in (("grpc", trainers), ("metrics", prometheus)):
            wanted = {port for name, port in pod.ports.items() if re.fullmatch(rf"{prefix}(-\d+)?", name)}
            if not wanted <= _allowed(rule):
                yield f"{prefix} of {pod.owner} needs {sorted(wanted)}: not all are allowed"
            others = set(pod.ports.values()) - wanted
            if others & _allowed(rule):
                yield f"a pod that reaches {prefix} also reaches {sorted(others & _allowed(rule))}"
        if _allowed(everybody) != {pod.ports["health"]}:
            yield f"everybody reaches {sorted(_allowed(everybody))}, not the health port alone"


def _allowed(rule: Document) -> set[int]:
    allowed: set[int] = set()
    for port in rule["ports"]:
        allowed |= set(range(port["port"], port.get("endPort", port["port"]) + 1))
    return allowed


def problems(
    all_documents: list[Document], policy: Document, versions: tuple[str, ...] = VERSIONS
) -> list[str]:
    """All that is wrong with a server's documents and the policy for them."""
    found = []
    for version in versions:
        for document in [*all_documents, policy]:
            found += [f"{name_of(document)}: {said}" for said in schema_problems(document, version)]
    if found:
        return found
    return [
        *pod_problems(all_documents),
        *selector_problems(all_documents),
        *configuration_problems(all_documents),
        *policy_problems(policy, all_documents),
    ]
