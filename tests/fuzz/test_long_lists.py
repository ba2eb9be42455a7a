"""Objects with as many list entries as fit into one: validating, completing and reading them takes work in proportion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.fuzz import worst
from tests.objects import JobObject

from gangline import jobs
from gangline.api import admission, names
from gangline.api.read import parse
from gangline.api.read.reading import ParseError
from gangline.api.read.workloads import parse_workload
from gangline.jobs.base import JobError
from gangline_webhooks import app

FEW = 160
#: what twice as many entries may cost more
GROWTH = 2.1


class Text(str):
    """A text whose comparisons count as steps, so that a search of a list does not look like one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __deepcopy__(self, memo: object) -> Text:
        return self


def written(value: Any) -> Any:
    """A copy of the JSON with such texts."""
    if isinstance(value, str):
        return Text(value)
    if isinstance(value, list):
        return [written(each) for each in value]
    return {Text(key): written(each) for key, each in value.items()} if isinstance(value, dict) else value


def entries(n: int, make: Callable[[str], Any]) -> list[Any]:
    return [make(f"e{i}") for i in range(n)]


def amounts(n: int) -> dict[str, str]:
    return {f"example.com/r{i}": "1" for i in range(n)}


def labels(n: int) -> dict[str, str]:
    return {f"example.com/l{i}": f"v{i}" for i in range(n)}


def pod(name: str = "c", **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [container(name)], "restartPolicy": "Never", **spec}}


def container(name: str) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": "1"}}}


def toleration(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "Equal", "value": "v", "effect": "NoSchedule"}


def expression(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": ["a", "b"]}


def pods(n: int) -> dict[str, dict[str, Any]]:
    """Pod templates with one list that is long."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": entries(n, expression)}]}
    return {
        "containers": pod(containers=entries(n, container)),
        "initContainers": pod(initContainers=entries(n, container)),
        "env": pod(containers=[{**container("c"), "env": entries(n, lambda name: {"name": name, "value": name})}]),
        "requests": pod(containers=[{"name": "c", "resources": {"requests": amounts(n), "limits": amounts(n)}}]),
        "overhead": pod(overhead=amounts(n)),
        "tolerations": pod(tolerations=entries(n, toleration)),
        "nodeSelector": pod(nodeSelector=labels(n)),
        "schedulingGates": pod(schedulingGates=entries(n, lambda name: {"name": name})),
        "matchExpressions": pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}),
        "template annotations": {**pod(), "metadata": {"annotations": labels(n), "labels": labels(n)}},
    }


def metas(n: int) -> dict[str, dict[str, Any]]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "uid": "u"}
    gates = ",".join(entries(n, lambda name: f"example.com/{name}"))
    return {
        "labels": {"labels": labels(n)},
        "annotations": {"annotations": labels(n)},
        "ownerReferences": {"ownerReferences": entries(n, lambda name: {**owner, "name": name})},
        "finalizers": {"finalizers": entries(n, lambda name: f"example.com/{name}")},
        "gates": {"annotations": {names.ADMISSION_GATED_BY: gates}},
    }


def made(kind: str, spec: Any, meta: Any = None, status: Any = None, version: str = names.V1BETA2) -> dict[str, Any]:
    base = {"name": "name", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-31T12:00:00Z"}
    mine = meta or {}
    if kind in ("Job", "JobSet", "GPUJob"):
        mine = {**mine, "labels": {names.QUEUE_NAME: "queue", **mine.get("labels", {})}}
    found = {"apiVersion": version, "kind": kind, "metadata": {**base, **mine}, "spec": spec}
    return {**found, "status": status} if status is not None else found


def job(template: Any, meta: Any = None) -> dict[str, Any]:
    return made("Job", {"suspend": True, "parallelism": 1, "template": template}, meta, version="batch/v1")


def job_set(rows: list[Any]) -> dict[str, Any]:
    return made("JobSet", {"suspend": True, "replicatedJobs": rows}, version="jobset.x-k8s.io/v1alpha2")


def gpu_job(rows: list[Any]) -> dict[str, Any]:
    return made("GPUJob", {"roles": rows}, version="gangline.io/v1alpha1")


def workload(pod_sets: list[Any], status: Any = None, meta: Any = None) -> dict[str, Any]:
    return made("Workload", {"queueName": "queue", "podSets": pod_sets}, meta, status or {})


def pod_set(name: str, template: Any = None) -> dict[str, Any]:
    return {"name": name, "count": 1, "template": template or pod()}


def queue(flavors: list[str], resources: list[str], **more: Any) -> dict[str, Any]:
    rows = [{"name": name, "nominalQuota": "1"} for name in resources]
    group = {"coveredResources": resources, "flavors": [{"name": name, "resources": rows} for name in flavors]}
    return made("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": [group], **more})


def checks(n: int, flavor: str) -> dict[str, Any]:
    rows = entries(n, lambda name: {"name": name, "onFlavors": [flavor.format(name)]})
    return {"admissionChecksStrategy": {"admissionChecks": rows}}


def statuses(n: int) -> dict[str, dict[str, Any]]:
    at = "2026-01-31T12:00:00Z"
    condition = {"status": "True", "reason": "Some", "message": "", "lastTransitionTime": at}
    reserved = {**condition, "type": names.QUOTA_RESERVED}
    rows = entries(n, lambda name: {"name": name, "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}})
    updates = entries(n, lambda name: {"name": f"x{name}", "labels": {"a": "b"}})
    check = {"state": "Ready", "message": "", "lastTransitionTime": at}
    return {
        "conditions": {"conditions": entries(n, lambda name: {**condition, "type": name})},
        "assignments": {
            "conditions": [reserved],
            "admission": {"clusterQueue": "queue", "podSetAssignments": rows},
        },
        "reclaimable pods": {"reclaimablePods": entries(n, lambda name: {"name": name, "count": 1})},
        "reclaimable pods of no pod set": {
            "reclaimablePods": entries(n, lambda name: {"name": f"x{name}", "count": 1})
        },
        "admission checks": {"admissionChecks": entries(n, lambda name: {**check, "name": name})},
        "updates of no pod set": {"admissionChecks": [{**check, "name": "c", "podSetUpdates": updates}]},
    }


def objects(n: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, template in pods(n).items():
        found[f"Job, {name}"] = job(template)
        found[f"Workload, {name}"] = workload([pod_set("main", template)])
        found[f"JobSet, {name}"] = job_set([{"name": "a", "template": {"spec": {"template": template}}}])
        found[f"GPUJob, {name}"] = gpu_job([{"name": "a", "template": template}])
    for name, meta in metas(n).items():
        found[f"Job, {name}"] = job(pod(), meta)
        found[f"Workload, meta {name}"] = workload([pod_set("main")], meta=meta)
    for name, status in statuses(n).items():
        found[f"Workload, {name}"] = workload(entries(n, pod_set), status)
    found["JobSet, replicatedJobs"] = job_set(
        entries(n, lambda name: {"name": name, "template": {"spec": {"template": pod()}}})
    )
    found["JobSet, the same name"] = job_set([{"name": "a", "template": {"spec": {"template": pod()}}}] * n)
    found["GPUJob, roles"] = gpu_job(entries(n, lambda name: {"name": name, "template": pod()}))
    found["Workload, podSets"] = workload(entries(n, pod_set))
    found["Workload, the same name"] = workload([pod_set("a")] * n)
    found["ClusterQueue, flavors"] = queue(entries(n, str), ["cpu"])
    found["ClusterQueue, resources"] = queue(["f"], entries(n, str))
    groups = entries(n, lambda name: {"coveredResources": [name], "flavors": [{"name": name, "resources": []}]})
    found["ClusterQueue, groups"] = made("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": groups})
    found["ClusterQueue, checks"] = queue(entries(n, str), ["cpu"], **checks(n, "{}"))
    found["ClusterQueue, checks of no flavor"] = queue(entries(n, str), ["cpu"], **checks(n, "x{}"))
    selector = {"matchExpressions": entries(n, expression), "matchLabels": labels(n)}
    found["ClusterQueue, selector"] = queue(["f"], ["cpu"], namespaceSelector=selector)
    taint = {"value": "v", "effect": "NoSchedule"}
    found["ResourceFlavor"] = made(
        "ResourceFlavor",
        {
            "nodeLabels": labels(n),
            "nodeTaints": entries(n, lambda key: {**taint, "key": key}),
            "tolerations": entries(n, toleration),
        },
    )
    found["Topology"] = made("Topology", {"levels": entries(n, lambda name: {"nodeLabel": name})})
    return found


READERS: dict[str, Callable[[Any], object]] = {
    "ClusterQueue": parse.cluster_queue,
    "ResourceFlavor": parse.flavor,
    "Topology": parse.topology,
    "Workload": parse_workload.workload,
}


def admitted(obj: Any, old: Any) -> None:
    """What the webhooks do with it."""
    completed = admission.default(obj, old, admission.AdmissionFacts()).obj
    app.diff(obj, completed)
    errors = admission.validate(completed, old, admission.AdmissionFacts())
    "; ".join(str(error) for error in errors[:32])


def read(obj: Any) -> None:
    """What the operator makes of it."""
    kind = jobs.kind_of(obj["apiVersion"], obj["kind"])
    try:
        if kind is not None:
            kind.pod_sets(JobObject(obj))
            kind.runtime_hints(JobObject(obj))
        else:
            READERS[obj["kind"]](obj)
    except (JobError, ParseError):
        pass


def changed(obj: Any) -> Any:
    """The object before its last change."""
    return {**obj, "spec": {**obj["spec"], "before": "x"}, "status": {**obj.get("status", {}), "before": "x"}}


FEWER, MORE = objects(FEW), objects(2 * FEW)


def assert_in_proportion(work: Callable[[Any], None], fewer: Any, more: Any) -> None:
    small, large = written(fewer), written(more)
    work(written(fewer))  # what is remembered from one to the next is in place
    before, after = worst.steps(lambda: work(small)), worst.steps(lambda: work(large))
    assert after <= GROWTH * before + 500, f"{before} → {after} steps"


@pytest.mark.parametrize("name", FEWER)
def test_a_new_object_with_long_lists_is_admitted_in_proportion(name: str):
    assert_in_proportion(lambda obj: admitted(obj, None), FEWER[name], MORE[name])


@pytest.mark.parametrize("name", FEWER)
def test_a_change_of_long_lists_is_admitted_in_proportion(name: str):
    assert_in_proportion(lambda obj: admitted(obj, changed(obj)), FEWER[name], MORE[name])


@pytest.mark.parametrize("name", FEWER)
def test_an_object_with_long_lists_is_read_in_proportion(name: str):
    assert_in_proportion(read, FEWER[name], MORE[name])


def test_a_search_of_a_list_is_found_to_be_quadratic():
    def search(obj: Any) -> None:
        rows = obj["spec"]["podSets"]
        for row in rows:
            assert row["name"] in [other["name"][:] + "" for other in rows] or row["name"] in [r["name"] for r in rows]

    with pytest.raises(AssertionError, match="steps"):
        assert_in_proportion(search, FEWER["Workload, podSets"], MORE["Workload, podSets"])
