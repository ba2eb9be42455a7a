"""The objects that are made for a workload: its ProvisioningRequest and the PodTemplates that it names.

Names of ProvisioningRequests and their PodTemplates, the same as Kueue's: the attempt is read from a request's name.

Groups the pods of a workload that are requested: its pod sets, without those that need no new nodes, and
merged by the policy.

The additions of a provisioned request to the pods: the annotations by which they use its nodes, and node labels from its
status.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from gangline import bounded
from gangline.api import label_syntax, names
from gangline.api.read.reading import ParseError
from gangline.api.schema.v1beta2.provisioning import ProvisioningRequestConfigSpec
from gangline.jobs import podspec
from gangline.jobs.base import PodSetInfo
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects import Stored, WorkloadObject

#: fields of a pod that decide where it can be scheduled, beside the requests of its containers
_SCHEDULING = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")


@dataclass(slots=True)
class RequestGroup:
    """Pods that are requested by one template: those of the first pod set, and of the pod sets merged with it."""

    pod_set: Json
    #: of the first pod set, from the admission
    assignment: Json
    count: int
    members: list[str]

    @property
    def name(self) -> str:
        return self.pod_set["name"]


def groups(workload: WorkloadObject, config: ProvisioningRequestConfigSpec) -> list[RequestGroup]:
    """The pods to request for a workload with quota; [] where none of them needs a request.

    Raises ParseError if the admission lacks a pod set.
    """
    found: list[RequestGroup] = []
    for group in _wanted(workload, config.managed_resources or ()):
        into = next((each for each in found if _alike(each.pod_set, group.pod_set, config.pod_set_merge_policy)), None)
        if into is None:
            found.append(group)
        else:
            into.count += group.count
            into.members += group.members
    return found


def _wanted(workload: WorkloadObject, managed: Collection[str]) -> Iterator[RequestGroup]:
    assigned = {row["name"]: row for row in workload.assignments}
    for pod_set in workload.pod_sets:
        if pod_set.get("count", 1) <= 0 or (managed and not _uses(_spec(pod_set), managed)):
            continue
        assignment = assigned.get(pod_set["name"])
        if assignment is None:
            raise ParseError("status.admission.podSetAssignments", f'has no assignment of pod set "{pod_set["name"]}"')
        count = assignment.get("count", pod_set.get("count", 1))
        if count > 0:
            yield RequestGroup(pod_set, assignment, count, [pod_set["name"]])


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


_HASH_LENGTH: Final = 5
#: characters of a name that are kept: with a dash and the digest it is as long as the API server allows
_LONGEST: Final = 252 - _HASH_LENGTH
#: digits of the greatest attempt
_DIGITS: Final = 10
#: attempts that are recognized in a name that had to be cut, which does not show its attempt
_MOST_CUT: Final = 32


def request_name(workload: str, check: str, attempt: int) -> str:
    return _cut(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    return _cut(f"ppt-{request}-{pod_set}")


def attempt_of(request: str, workload: str, check: str) -> int | None:
    """The number of the attempt that a request of this name is; None for a request of another workload or check."""
    prefix = f"{workload}-{check}-"
    if request.startswith(prefix) and (number := bounded.whole(request.removeprefix(prefix))) is not None:
        return number
    if len(prefix) + _DIGITS <= _LONGEST:
        return None
    attempts = range(1, _MOST_CUT + 1)
    return next((number for number in attempts if request_name(workload, check, number) == request), None)


def _cut(name: str) -> str:
    """The name; one that is too long ends in a digest. The API server accepts no dot before it."""
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    return f"{name[:_LONGEST].rstrip('.')}-{digest}"


#: name of a ResourceFlavor -> the object
FlavorOf = Callable[[str], Stored | None]


def request(
    workload: WorkloadObject, name: str, config: ProvisioningRequestConfigSpec, groups: Sequence[RequestGroup]
) -> Json:
    pod_sets = [{"podTemplateRef": {"name": template_name(name, each.name)}, "count": each.count} for each in groups]
    spec: Json = {
        "provisioningClassName": config.provisioning_class_name,
        "parameters": {**(config.parameters or {}), **_own_parameters(workload)},
        "podSets": pod_sets,
    }
    return {**_head(kube.PROVISIONING_REQUESTS, workload, name), "spec": spec}


def is_current(request: Stored, workload: WorkloadObject, config: ProvisioningRequestConfigSpec) -> bool:
    """Whether the request asks as the configuration says now. The job's own parameters count as they were when the request was
    made.
    """
    spec = request.spec
    own, asked = _own_parameters(workload), spec.get("parameters") or {}
    return spec.get("provisioningClassName") == config.provisioning_class_name and all(
        name in own or asked.get(name) == value for name, value in (config.parameters or {}).items()
    )


def template(workload: WorkloadObject, name: str, group: RequestGroup, flavor: FlavorOf) -> Json:
    """The PodTemplate of these pods, on the nodes of their flavors. The Workload owns it until its request exists.

    Raises JobError if the pods' own node selector contradicts a flavor.
    """
    body = podspec.draft(podspec.merge(group.pod_set["template"], _flavored(group, flavor), "template"))
    _count_limits(body.get("spec") or {})
    head = _head(kube.POD_TEMPLATES, workload, name)
    head["metadata"]["annotations"] = {names.TEMPLATE_DIGEST: _digest(body)}
    return {**head, "template": body}


def adopted(template: Stored, request: Stored) -> Json:
    """The patch that gives a template to its request: it is deleted together with it."""
    others = [ref for ref in template.owners if not ref.get("controller")]
    owner = _reference(kube.PROVISIONING_REQUESTS, request)
    return {"metadata": {"resourceVersion": template.resource_version, "ownerReferences": [*others, owner]}}


def digest_of(template: Json) -> str:
    """The digest of a template, whether it was read or is about to be made."""
    return (template["metadata"].get("annotations") or {}).get(names.TEMPLATE_DIGEST, "")


def _own_parameters(workload: WorkloadObject) -> dict[str, str]:
    """The parameters that the job's annotations set."""
    return {
        key.removeprefix(names.PROVISIONING_PREFIX): value
        for key, value in workload.annotations.items()
        if key.startswith(names.PROVISIONING_PREFIX)
    }


def _flavored(group: RequestGroup, flavor: FlavorOf) -> PodSetInfo:
    selector: dict[str, str] = {}
    tolerations: list[Json] = []
    for name in dict.fromkeys((group.assignment.get("flavors") or {}).values()):
        found = flavor(name)
        spec = found.spec if found is not None else {}
        selector.update(spec.get("nodeLabels") or {})
        tolerations.extend(spec.get("tolerations") or ())
    return PodSetInfo(group.name, group.count, node_selector=selector, tolerations=tolerations)


def _count_limits(spec: Json) -> None:
    """Count limits as requests where there are none: the autoscaler sees no API server's defaults."""
    for holder in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ()), spec]:
        resources = holder.get("resources")
        if resources and resources.get("limits"):
            requests = {**resources["limits"], **(resources.get("requests") or {})}
            holder["resources"] = {**resources, "requests": requests}


def _digest(template: Json) -> str:
    return hashlib.sha256(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _head(resource: Resource, workload: WorkloadObject, name: str) -> Json:
    metadata: Json = {
        "name": name,
        "namespace": workload.namespace,
        "labels": {names.MANAGED: "true"},
        "ownerReferences": [_reference(kube.WORKLOADS, workload)],
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _reference(resource: Resource, owner: Stored) -> Json:
    """An owner reference without blockOwnerDeletion, which would need a right to the owner's finalizers."""
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "name": owner.name, "uid": owner.uid, "controller": True}


# --- updates ----------------------------------------------------------------------------------------------------------


def pod_set_updates(
    request: Stored, groups: Sequence[RequestGroup], config: ProvisioningRequestConfigSpec
) -> list[Json]:
    """`podSetUpdates` of the check: one for each pod set that was requested, alone or merged with another."""
    spec = request.spec
    asked = {row["podTemplateRef"]["name"] for row in spec.get("podSets") or ()}
    annotations = {names.CONSUMES: request.name, names.PROVISIONING_CLASS: spec["provisioningClassName"]}
    update: Json = {"annotations": annotations}
    if config.pod_set_updates is not None:
        update["nodeSelector"] = dict(_node_selector(request, config))
    requested = [group for group in groups if template_name(request.name, group.name) in asked]
    return [{"name": member, **update} for group in requested for member in group.members]


def unusable_details(request: Stored, config: ProvisioningRequestConfigSpec) -> list[str]:
    """Details that the configuration names and that the request's status does not have, or not as the value of a label."""
    found = dict(_node_selector(request, config))
    wanted = (config.pod_set_updates.node_selector if config.pod_set_updates else None) or ()
    return [row.value_from_provisioning_class_detail for row in wanted if row.key not in found]


def _node_selector(request: Stored, config: ProvisioningRequestConfigSpec) -> Iterator[tuple[str, str]]:
    details: Json = request.status.get("provisioningClassDetails") or {}
    for row in (config.pod_set_updates.node_selector if config.pod_set_updates else None) or ():
        value = details.get(row.value_from_provisioning_class_detail)
        if isinstance(value, str) and label_syntax.is_value(value):
            yield row.key, value
