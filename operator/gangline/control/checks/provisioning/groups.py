"""Groups the pods of a workload that are requested: its pod sets, without those that need no new nodes, and
merged by the policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gangline.api.read.reading import ParseError
from gangline.api.schema.v1beta2.provisioning import ProvisioningRequestConfigSpec
from gangline.jobs import podspec
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

#: fields of a pod that decide where it can be scheduled, beside the requests of its containers
_SCHEDULING = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")


@dataclass(slots=True)
class Group:
    """Pods that are requested by one template: those of the first pod set, and of the pod sets merged with it."""

    pod_set: Json
    #: of the first pod set, from the admission
    assignment: Json
    count: int
    members: list[str]

    @property
    def name(self) -> str:
        return self.pod_set["name"]


def groups(workload: WorkloadObject, config: ProvisioningRequestConfigSpec) -> list[Group]:
    """The pods to request for a workload with quota; [] where none of them needs a request.

    Raises ParseError if the admission lacks a pod set.
    """
    found: list[Group] = []
    for group in _wanted(workload, config.managed_resources or ()):
        into = next((each for each in found if _alike(each.pod_set, group.pod_set, config.pod_set_merge_policy)), None)
        if into is None:
            found.append(group)
        else:
            into.count += group.count
            into.members += group.members
    return found


def _wanted(workload: WorkloadObject, managed: Collection[str]) -> Iterator[Group]:
    assigned = {row["name"]: row for row in workload.assignments}
    for pod_set in workload.pod_sets:
        if pod_set.get("count", 1) <= 0 or (managed and not _uses(_spec(pod_set), managed)):
            continue
        assignment = assigned.get(pod_set["name"])
        if assignment is None:
            raise ParseError("status.admission.podSetAssignments", f'has no assignment of pod set "{pod_set["name"]}"')
        count = assignment.get("count", pod_set.get("count", 1))
        if count > 0:
            yield Group(pod_set, assignment, count, [pod_set["name"]])


def _uses(spec: Json, resources: Collection[str]) -> bool:
    return any(
        resource in ((container.get("resources") or {}).get(part) or {})
        for container in _containers(spec)
        for part in ("requests", "limits")
        for resource in resources
    )


def _alike(one: Json, other: Json, policy: str | None) -> bool:
    match policy:
        case "IdenticalPodTemplates":
            return podspec.same(one["template"], other["template"])
        case "IdenticalWorkloadSchedulingRequirements":
            return podspec.same(_requirements(_spec(one)), _requirements(_spec(other)))
        case _:
            return False


def _requirements(spec: Json) -> Json:
    """The fields that decide where the pods can be scheduled. Absent requests count: containers are compared one by one."""
    requests = {
        part: [{"requests": (row.get("resources") or {}).get("requests"), "at": i} for i, row in enumerate(rows)]
        for part in ("containers", "initContainers")
        if (rows := spec.get(part))
    }
    return requests | {name: spec[name] for name in _SCHEDULING if name in spec}


def _spec(pod_set: Json) -> Json:
    return (pod_set.get("template") or {}).get("spec") or {}


def _containers(spec: Json) -> Iterator[Json]:
    for part in ("initContainers", "containers"):
        yield from spec.get(part) or ()
