"""The Workload of a pod group, and the writes that start and stop a pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from gangline.api import names
from gangline.api.read import merge
from gangline.api.schema.v1beta2.workload import MAX_POD_SETS
from gangline.jobs import podspec, workload
from gangline.jobs.base import JobError, PodSetInfo
from gangline.jobs.pods.group import MAIN, PodGroup
from gangline.jobs.pods.member import TERMINATION_TARGET, GroupPod
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import PodObject, WorkloadObject

_COPIED: Final = (names.ADMISSION_GATED_BY, names.PRIORITY_BOOST, *names.DEPENDENCIES, *names.HINTS)


def pod_sets(group: PodGroup) -> list[Json]:
    """One pod set per role, in the order of their names; `group.pods` are those that are kept. Raises JobError."""
    if group.alone:
        return [_pod_set(MAIN, 1, group.pods[0])]
    if group.fast:
        return [_pod_set(group.leader.role, group.total, group.leader)]
    roles: dict[str, list[GroupPod]] = {}
    for pod in group.pods:
        roles.setdefault(pod.role, []).append(pod)
    if len(roles) > MAX_POD_SETS:
        raise JobError(f"pod group can't include more than {MAX_POD_SETS} roles")
    return [_pod_set(role, len(pods), pods[0]) for role, pods in sorted(roles.items())]


def _pod_set(name: str, count: int, pod: GroupPod) -> Json:
    manifest = pod.manifest()
    body: Json = {"name": name, "count": count, "template": {"spec": manifest.spec}}
    if request := podspec.topology_request(manifest, names.POD_GROUP_INDEX, path=""):
        body["topologyRequest"] = request
    return body


def workload_name(group: PodGroup) -> str:
    """The name of the group's Workload, as in Kueue: that of the group, the one that the pod names, or `pod-<name>-<hash>`."""
    return alone_name(group.pods[0]) if group.alone else group.name


def alone_name(pod: GroupPod) -> str:
    """The name of the Workload of a pod that stands alone."""
    return pod.prebuilt or workload.name_for("Pod", "", pod.name, pod.uid)


def new_workload(
    group: PodGroup,
    sets: Sequence[Json],
    *,
    priority: int,
    priority_class_ref: Mapping[str, str] | None,
    labels_to_copy: Sequence[str] = (),
    annotations_to_copy: Sequence[str] = (),
) -> Json:
    """A Workload (v1beta2) for the pods that are kept. Raises JobError."""
    leader = group.leader
    manifest = leader.manifest()
    spec: Json = {"podSets": list(sets), "priority": priority, "queueName": leader.queue}
    if not leader.queue:
        del spec["queueName"]
    if priority_class_ref:
        spec["priorityClassRef"] = dict(priority_class_ref)
    if (limit := workload.max_execution_seconds(manifest)) is not None:
        spec["maximumExecutionTimeSeconds"] = limit
    annotations = _common(group, "annotation", annotations_to_copy) | {
        key: value
        for key, value in manifest.annotations.items()
        if key.startswith(names.PROVISIONING_PREFIX) or key in _COPIED
    }
    labels = _common(group, "label", labels_to_copy)
    if user := manifest.labels.get(names.USER):
        labels[names.USER] = user
    if group.alone:
        labels[names.JOB_UID] = leader.uid
    else:
        annotations[names.IS_GROUP_WORKLOAD] = "true"
    metadata: Json = {
        "name": workload_name(group),
        "namespace": leader.namespace,
        "labels": labels,
        "annotations": annotations,
        "finalizers": [names.IN_USE_FINALIZER],
        "ownerReferences": owners(group),
    }
    return {"apiVersion": names.V1BETA2, "kind": "Workload", "metadata": metadata, "spec": spec}


def is_of_group(workload: WorkloadObject) -> bool:
    """Whether a Workload is a pod group's, or that of what serves with one."""
    return workload.annotations.get(names.IS_GROUP_WORKLOAD) == "true"


def is_of_pods(workload: WorkloadObject) -> bool:
    """Whether a Workload is a pod group's, or that of a pod that stands alone."""
    return is_of_group(workload) or (workload.controller or {}).get("kind") == kube.PODS.kind


def owners(group: PodGroup) -> list[Json]:
    """The owner references of its Workload: to the pod that controls it, or to all pods of the group, none of which does."""
    controls = {"controller": True, "blockOwnerDeletion": True} if group.alone else {}
    return [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, **controls} for pod in group.pods]


def _common(group: PodGroup, what: str, keys: Sequence[str]) -> dict[str, str]:
    """Labels or annotations with these keys, of which all pods that have them have the same."""
    found: dict[str, str] = {}
    for pod in group.pods if keys else ():
        manifest = pod.manifest()
        written = manifest.labels if what == "label" else manifest.annotations
        for key in keys:
            if key in written and found.setdefault(key, written[key]) != written[key]:
                raise JobError(f"constructing workload: pods have different {what} values", f"metadata.{what}s[{key}]")
    return found


# --- the writes of one pod --------------------------------------------------------------------------------------------


def start(pod: GroupPod, info: PodSetInfo) -> Json:
    """The merge patch that lets a gated pod start as it was admitted.

    Raises JobError if its labels or its node selector contradict the admission. A gate cannot be added to a pod: it waits for a
    place by topology, or for its node, at the gate that the webhook gave it, which goes where it need not wait for either.
    """
    manifest = pod.manifest()
    merged = podspec.merge(manifest, replace(info, scheduling_gates=()), path="")
    gates = [gate for gate in manifest.spec.get("schedulingGates") or () if gate["name"] != names.ADMISSION_GATE]
    if not any(gate["name"] in (names.TOPOLOGY_GATE, names.DOMAIN_GATE) for gate in info.scheduling_gates):
        gates = [gate for gate in gates if gate["name"] != names.TOPOLOGY_GATE]
    wanted = {**merged, "spec": {**merged["spec"], "schedulingGates": gates or None}}
    body = merge.difference(manifest, wanted)
    return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": pod.version}}


def not_kept(pod: PodObject, info: PodSetInfo) -> list[str]:
    """What the patch of `start` has added to a pod, and the pod, as the API server has stored it, lacks."""
    return podspec.lacking(podspec.parts_of(pod), podspec.additions_of(replace(info, scheduling_gates=())))


def marked(pod: GroupPod, reason: str, message: str, at: str) -> Json:
    """The strategic merge patch of the status of a pod that is about to be deleted: it says why."""
    row = {"type": TERMINATION_TARGET, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}
    return {"metadata": {"uid": pod.uid}, "status": {"conditions": [row]}}


def released(pod: GroupPod) -> Json:
    """The merge patch that removes our finalizer."""
    return {"metadata": {"resourceVersion": pod.version, "finalizers": pod.without_finalizer()}}
