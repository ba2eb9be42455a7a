"""What API servers send to the webhooks: reviews of real objects in a mix like a busy cluster's, and the fuzzers' corpus."""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from tests.builders.written import cluster_queue, gpujob, job, recipe, workload
from tests.fuzz import corpus, webhooks
from tests.fuzz.draw import Draw
from tests.fuzz.objects import jobset

from gangline.api import names
from gangline.api.convert import conversion
from gangline.kube import resources

Json = dict[str, Any]
#: Workloads in one review when somebody lists them in v1beta1; a page of the API server has up to 500
PAGE = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: what it is called in the figures, its path and its body."""

    name: str
    path: str
    body: bytes


def mix() -> Iterator[Asked]:
    """Without end. Jobs most, each reviewed twice; then JobSets, GPUJobs, Workloads; configuration and lists seldom."""
    rounds = [each for each, weight in _weighted() for _ in range(weight)]
    spread = [
        rounds[(number * 37) % len(rounds)] for number in range(len(rounds))
    ]  # 37 has no factor with their number
    for number in itertools.count():
        yield spread[number % len(spread)](number)


def _weighted() -> list[tuple[Callable[[int], Asked], int]]:
    both = ("/mutate", "/validate")
    made: list[tuple[Callable[[int], Asked], int]] = []
    for kind, weight, build in (("Job", 10, _job), ("JobSet", 5, _jobset), ("GPUJob", 3, _gpujob)):
        for path in both:
            made.append((_reviewing(f"{kind} {path[1:]}", path, build), weight))
    made += [
        (_reviewing("Job validate change", "/validate", _job, changed=True), 6),
        (_reviewing("Workload validate", "/validate", _workload), 8),
        (_reviewing("Workload validate change", "/validate", _workload, changed=True), 8),
    ]
    for kind, build in (("ClusterQueue", _queue), ("ClusterQueue recipe", _recipe)):
        for path in both:
            made.append((_reviewing(f"{kind} {path[1:]}", path, build), 2))
    made += [(_reviewing(f"{kind} validate", "/validate", build), 2) for kind, build in _CONFIGURATION.items()]
    for kind, build in (("Workload", _workload), ("ClusterQueue", _queue)):
        for old, new in (names.V1BETA1, names.V1BETA2), (names.V1BETA2, names.V1BETA1):
            label = f"{kind} {old.rpartition('/')[2]} to {new.rpartition('/')[2]}"
            made.append((_converting(label, build, old, new, 1), 6))
    made.append((_converting(f"{PAGE} Workloads v1beta2 to v1beta1", _workload, names.V1BETA2, names.V1BETA1, PAGE), 1))
    return made


def _reviewing(name: str, path: str, build: Callable[[int], Json], changed: bool = False) -> Callable[[int], Asked]:
    def made(number: int) -> Asked:
        obj = _stored(build(number), number)
        old = copy.deepcopy(obj) if changed else None
        if old is not None:
            old["metadata"].get("annotations", {}).clear()
        return Asked(name, path, review(obj, old))

    return made


def _converting(name: str, build: Callable[[int], Json], old: str, new: str, count: int) -> Callable[[int], Asked]:
    def made(number: int) -> Asked:
        objs = [_stored(build(number + each), number + each) for each in range(count)]
        objs = [conversion.convert(obj, old) if obj["apiVersion"] != old else obj for obj in objs]
        return Asked(name, "/convert", webhooks.conversion_review(objs, new))

    return made


def review(obj: Json, old: Json | None) -> bytes:
    """An AdmissionReview as an API server writes it."""
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": obj["kind"]}
    resource = {"group": group, "version": version, "resource": f"{obj['kind'].lower()}s"}
    request = {
        "uid": str(uuid.UUID(int=len(obj["metadata"]["name"]))),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": obj["metadata"]["name"],
        "namespace": obj["metadata"].get("namespace", ""),
        "operation": "UPDATE" if old is not None else "CREATE",
        "userInfo": {"username": "kubernetes-admin", "groups": ["kubeadm:cluster-admins", "system:authenticated"]},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-create"},
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


# --- objects, as an API server has completed them --------------------------------------------------------------------------


def _stored(obj: Json, number: int) -> Json:
    obj = copy.deepcopy(obj)
    meta = obj["metadata"]
    meta |= {"name": f"{meta['name']}-{number}", "uid": str(uuid.UUID(int=number)), "generation": 1}
    meta |= {"creationTimestamp": "2026-01-31T12:00:00Z"}
    meta.setdefault("annotations", {})["team.example.com/run"] = f"run-{number}"
    fields = {
        "f:metadata": {"f:labels": {f"f:{names.QUEUE_NAME}": {}}},
        "f:spec": {f"f:{key}": {} for key in "abcdefgh"},
    }
    tracked = {"manager": "kubectl-create", "operation": "Update", "apiVersion": obj["apiVersion"], "fieldsV1": fields}
    meta["managedFields"] = [{**tracked, "fieldsType": "FieldsV1", "time": meta["creationTimestamp"]}]
    return obj


def _job(number: int) -> Json:
    return job(queue="main", annotations={names.EXPECTED_RUNTIME: "1h"}, parallelism=1 + number % 16)


def _plain_job(number: int) -> Json:
    return job(queue="main", parallelism=1 + number % 16)


def _jobset(number: int) -> Json:
    return jobset()


def _gpujob(number: int) -> Json:
    return gpujob(queue="main")


def _workload(number: int) -> Json:
    return workload(priority=number % 100)


def _queue(number: int) -> Json:
    return cluster_queue(cohortName=f"cohort-{number % 10}")


def _recipe(number: int) -> Json:
    return recipe()


def _object(kind: str, **spec: Any) -> Callable[[int], Json]:
    body = {"apiVersion": names.V1BETA2, "kind": kind, "metadata": {"name": kind.lower(), "namespace": "team"}}
    return lambda number: {**body, "spec": spec}


_CONFIGURATION = {
    "LocalQueue": _object("LocalQueue", clusterQueue="team"),
    "ResourceFlavor": _object("ResourceFlavor", nodeLabels={"gpu": "h100"}),
    "Cohort": _object("Cohort", parentName="company"),
    "Topology": _object("Topology", levels=[{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]),
    "AdmissionCheck": _object("AdmissionCheck", controllerName="kueue.x-k8s.io/provisioning-request"),
}


def writes(namespace: str) -> Iterator[Json]:
    """Without end: objects to create on a real API server, in this namespace where they have one."""
    builders = (_plain_job, _plain_job, _workload, _queue, _recipe, *_CONFIGURATION.values())
    for number in itertools.count():
        obj = copy.deepcopy(builders[number % len(builders)](number))
        obj["metadata"] = {"name": f"bench-{number}", "namespace": namespace}
        if not resources.BY_KIND[obj["kind"]].namespaced:
            del obj["metadata"]["namespace"]
        old = number // len(builders) % 2 and obj["apiVersion"] == names.V1BETA2
        yield conversion.convert(obj, names.V1BETA1) if old else obj


# --- inputs of fuzzers -----------------------------------------------------------------------------------------------------


def hostile() -> Iterator[Asked]:
    """Every input of the corpus of the webhooks' endpoints: bytes as they are, and reviews that were drawn."""
    for path in ("/mutate", "/validate", "/convert"):
        drawn, whole = webhooks.DRAWN.get(path, (webhooks.drawn_review, webhooks.whole_reviews))
        target = f"webhooks-{path[1:]}"
        bodies = [*whole(), *corpus.inputs(f"{target}-raw"), *(drawn(Draw(data)) for data in corpus.inputs(target))]
        for body in bodies:
            yield Asked("corpus", path, body)
