"""A queued pod, as far as queueing depends on it.

There may be tens of thousands of them. So the rest of a pod's JSON is kept packed, in about a kilobyte, and is unpacked to create
a Workload or to start the pod.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Final

import orjson

from gangline import bounded
from gangline.api import names
from gangline.api.admission.of_jobs.identifiers import pod_group
from gangline.api.read import conditions
from gangline.api.role_hash import role_hash
from gangline.kube import resources as kube
from gangline.kube.resources import as_revision
from gangline.objects import PodObject

#: condition of a pod that is being stopped, by us or by others
TERMINATION_TARGET: Final = "TerminationTarget"
_ENDED: Final = ("Succeeded", "Failed")
_META: Final = ("name", "namespace", "uid", "labels", "annotations", "ownerReferences")


@dataclass(frozen=True, slots=True)
class KnownPod:
    """A pod as it is known, as far as a write of it or an event about it needs. `key`: `namespace/name`."""

    key: str
    uid: str
    version: str

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]


@dataclass(frozen=True, slots=True)
class GroupPod(KnownPod):
    """A pod with the label `managed`. Times are milliseconds since the epoch, 0 = not (yet)."""

    group: str  #: name of its pod group; "" for a pod that stands alone
    role: str
    queue: str
    total: int | None  #: how many pods its group has, as it says; None: not a number of at least 1
    created: int
    phase: str
    node: str
    gated: bool
    ready: bool
    deleted: int  #: when its deletion is due: when it was asked for, plus the grace period
    failed: int  #: when its containers failed
    finalizers: tuple[str, ...]
    retriable: bool
    fast: bool
    serving: bool
    #: the framework of the owner in whose place it waits, "" = none
    parent: str
    #: the Workload that it names, of a pod that stands alone; "" = it gets one of its own
    prebuilt: str
    marked: bool  #: it has the condition TerminationTarget
    imported: int  #: when `gangline admin import` made it a member of its Workload
    remade: bool  #: once it has gone, its owner makes another pod of the same name
    packed: bytes = field(repr=False)
    left_behind: bool = False  #: it says that it was left behind on a node that is out of reach
    lost: bool = False  #: it was, and the node still is: its place is free for another pod

    @property
    def ended(self) -> bool:
        return self.phase in _ENDED

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def counts(self) -> bool:
        """Whether the pod runs, will run, or has succeeded. A pod that is deleted before it got a node will never run."""
        return self.phase != "Failed" and not self.lost and (bool(self.node) or not self.deleted)

    @property
    def started(self) -> bool:
        """Whether the pod has passed the gate, and may use its quota: it has neither ended, nor was it deleted before it got a
        node.
        """
        return not self.gated and not self.ended and self.counts

    @property
    def in_the_way(self) -> bool:
        """Whether the pod was deleted and runs no more, and its successor cannot be made before it has gone, for it has the same
        name.
        """
        return self.remade and bool(self.deleted) and (self.ended or not self.node)

    @property
    def held(self) -> bool:
        """Whether the pod has our finalizer."""
        return names.MANAGED in self.finalizers

    @property
    def ordinal(self) -> int:
        """The number at the end of its name, which pods of StatefulSets have; 0 without one."""
        return bounded.whole(self.name.rpartition("-")[2]) or 0

    def without_finalizer(self) -> list[str] | None:
        """The pod's other finalizers, None = no others: the value of a merge patch."""
        return [each for each in self.finalizers if each != names.MANAGED] or None

    def manifest(self) -> PodObject:
        """`metadata` and `spec` of the pod. Not to be kept."""
        found = self.seen()
        found.pop("status", None)
        return found

    def seen(self) -> PodObject:
        """The same pod, and its `status` while it is gated. Not to be kept."""
        return PodObject(orjson.loads(zlib.decompress(self.packed)))


def is_managed(pod: PodObject) -> bool:
    """Whether the pod is queued: it has the label with the value that the webhook sets."""
    return pod.labels.get(names.MANAGED) == "true"


def group_name(pod: PodObject) -> str:
    """The group of a pod, "" = it stands alone."""
    return pod_group(pod)[0]


def read(pod: PodObject) -> GroupPod:
    """The member for a pod that is managed."""
    meta, annotations = pod.metadata, pod.annotations
    containers_ready = pod.condition("ContainersReady") or {}
    failed = containers_ready.get("status") == "False" and containers_ready.get("reason") == "PodFailed"
    gated = names.ADMISSION_GATE in pod.gates
    kept = {"metadata": {part: meta[part] for part in _META if part in meta}, "spec": pod.spec}
    if gated:  # it may run in another cluster, whose status it has then
        kept["status"] = pod.status
    group, parent = group_name(pod), annotations.get(names.SUSPENDED_BY_PARENT) or ""
    imported = (bounded.whole(annotations.get(names.IMPORTED_AT)) or 0) * 1000
    # those of a Deployment name none of their own, unless they were imported, or sent one by one by a manager cluster
    alone = imported or names.MULTIKUEUE_ORIGIN in pod.labels
    names_none = bool(group) or (bool(parent) and not alone)
    return GroupPod(
        key=pod.key,
        uid=pod.uid,
        version=pod.resource_version,
        group=group,
        role=annotations.get(names.ROLE_HASH) or role_hash(pod.spec),
        queue=pod.queue_name,
        total=bounded.whole(annotations.get(names.POD_GROUP_TOTAL)) or None,
        created=conditions.millis_of(pod.created),
        phase=pod.phase,
        node=pod.node,
        gated=gated,
        ready=pod.is_true("Ready"),
        deleted=conditions.millis_of(pod.deletion_time),
        failed=conditions.millis_of(containers_ready.get("lastTransitionTime")) if failed else 0,
        finalizers=tuple(pod.finalizers),
        retriable=annotations.get(names.RETRIABLE_IN_GROUP) != "false",
        fast=annotations.get(names.POD_GROUP_FAST) == "true",
        serving=annotations.get(names.POD_GROUP_SERVING) == "true",
        parent=parent,
        prebuilt="" if names_none else pod.prebuilt_workload,
        marked=pod.is_true(TERMINATION_TARGET),
        imported=imported,
        remade=(pod.controller or {}).get("kind") == kube.STATEFUL_SETS.kind,
        left_behind=names.LEFT_BEHIND in annotations,
        packed=zlib.compress(orjson.dumps(kept), 1),
    )


def older(pod: PodObject, member: GroupPod) -> bool:
    """Whether `pod` is an earlier version of the same pod."""
    return pod.uid == member.uid and pod.revision < as_revision(member.version)


# --- A pod that waits because its owner is queued, as far as its labels say to which group it belongs ------------------


#: label of Kubernetes on pods of StatefulSets: the revision of their template
REVISION: Final = "controller-revision-hash"
#: keys of the LeaderWorkerSet controller on pods: labels, and an annotation that only workers have
SET_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_NAME: Final = "leaderworkerset.sigs.k8s.io/leader-name"


@dataclass(frozen=True, slots=True)
class HeldPod(KnownPod):
    """A pod with the annotation `pod-suspending-parent`."""

    framework: str  #: that of the owner in whose place it waits
    owner: tuple[str, str, str]  #: apiVersion/kind, name and uid of its controller; empty texts without one
    set_name: str
    group_index: str
    is_worker: bool
    revision: str
    queue: str
    group: str  #: the pod group that it was made a member of
    gated: bool
    deleted: bool
    ended: bool

    @property
    def stays(self) -> bool:
        return not self.deleted and not self.ended


def is_held(pod: PodObject) -> bool:
    return names.SUSPENDED_BY_PARENT in pod.annotations


def read_held(pod: PodObject) -> HeldPod:
    """The record of a pod that is held."""
    labels, notes, owner = pod.labels, pod.annotations, pod.controller or {}
    return HeldPod(
        key=pod.key,
        uid=pod.uid,
        version=pod.resource_version,
        framework=notes.get(names.SUSPENDED_BY_PARENT) or "",
        owner=(f"{owner['apiVersion']}/{owner['kind']}", owner["name"], owner["uid"]) if owner else ("", "", ""),
        set_name=labels.get(SET_NAME) or "",
        group_index=labels.get(GROUP_INDEX) or "",
        is_worker=LEADER_NAME in notes,
        revision=labels.get(REVISION) or "",
        queue=pod.queue_name,
        group=group_name(pod) if is_managed(pod) else "",
        gated=names.ADMISSION_GATE in pod.gates,
        deleted=pod.deleting,
        ended=pod.has_ended,
    )
