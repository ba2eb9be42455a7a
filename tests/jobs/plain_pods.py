"""Plain pods as the API server has them once the webhook has seen them."""

from __future__ import annotations

import copy
from typing import Any

from tests.objects import PodObject

from gangline.api import admission, names
from gangline.api.admission import AdmissionFacts
from gangline.jobs.pods import member
from gangline.jobs.pods.group import PodGroup
from gangline.jobs.pods.member import GroupPod

Json = dict[str, Any]


def a_pod(name: str, *, group: str = "", total: int = 0, cpu: str = "1", age: int = 0, **annotations: str) -> PodObject:
    """A queued pod, `age` seconds younger than the first ones. Keyword `fast="true"` etc. set the annotations of groups."""
    labels = {names.QUEUE_NAME: "lq"}
    notes = {f"{names.GROUP}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    if group:
        labels[names.POD_GROUP] = group
        notes[names.POD_GROUP_TOTAL] = str(total)
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": f"2026-11-25T00:{age // 60:02}:{age % 60:02}Z",
            "labels": labels,
            "annotations": notes,
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"},
    }
    return PodObject(admission.default(pod, None, AdmissionFacts()).obj)


def gang(name: str, *cpus: str, **annotations: str) -> list[PodObject]:
    return [a_pod(f"{name}-{i}", group=name, total=len(cpus), cpu=cpu, **annotations) for i, cpu in enumerate(cpus)]


def changed(
    pod: PodObject, *, phase: str = "", started: bool = False, node: str = "", deleted: bool = False
) -> PodObject:
    pod = copy.deepcopy(pod)
    if started or node:
        pod["spec"].pop("schedulingGates", None)
    if node:
        pod["spec"]["nodeName"] = node
    if phase:
        pod["status"]["phase"] = phase
    if deleted:
        pod["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
    return pod


def read(*pods: PodObject) -> list[GroupPod]:
    return [member.read(pod) for pod in pods]


def group_of(*pods: PodObject, alone: bool = False) -> PodGroup:
    first = read(pods[0])[0]
    return PodGroup.of(first.name if alone else first.group, read(*pods), alone=alone)
