"""The objects that are made for a workload: its ProvisioningRequest and the PodTemplates that it names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import orjson

from gangline.api import names
from gangline.api.schema.v1beta2.provisioning import ProvisioningRequestConfigSpec
from gangline.control.checks.provisioning.groups import Group
from gangline.control.checks.provisioning.naming import template_name
from gangline.jobs import podspec
from gangline.jobs.base import PodSetInfo
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource
from gangline.objects import Stored, WorkloadObject

#: name of a ResourceFlavor -> the object
FlavorOf = Callable[[str], Stored | None]


def request(
    workload: WorkloadObject, name: str, config: ProvisioningRequestConfigSpec, groups: Sequence[Group]
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


def template(workload: WorkloadObject, name: str, group: Group, flavor: FlavorOf) -> Json:
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


def _flavored(group: Group, flavor: FlavorOf) -> PodSetInfo:
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
