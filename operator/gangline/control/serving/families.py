"""Decides which pods a StatefulSet or a LeaderWorkerSet has really made, and what it wants of each pod group.

Anyone who may create pods can write any label, annotation or owner reference. So a pod counts only if its controller exists with
the referenced uid: the StatefulSet itself; or, of a LeaderWorkerSet, the StatefulSet of its leaders or of a leader's workers.
"""

from __future__ import annotations

from gangline.api.jobkinds.declaration import JobError
from gangline.control.mirror.changes import JobRef
from gangline.control.mirror.mirror import Mirror
from gangline.control.pod_groups.demand import Demand
from gangline.control.serving.held_index import HeldIndex
from gangline.jobs.pods.member import HeldPod
from gangline.jobs.serving import BY_RESOURCE, KINDS
from gangline.kube import resources as kube
from gangline.objects import JobObject, Stored, WorkloadObject

_KINDS = {(each.declaration.resource.api_version, each.declaration.kind): each for each in KINDS}
_POD = ("v1", "Pod")


def parent_named(workload: WorkloadObject) -> tuple[JobRef, str] | None:
    """The parent that owns a Workload, and its uid; None for Workloads of others."""
    for row in workload.owners:
        kind = _KINDS.get((row.get("apiVersion") or "", row.get("kind") or ""))
        if kind is not None:
            return (kind.declaration.resource, f"{workload.namespace}/{row['name']}"), row["uid"]
    return None


class Families:
    """Parents and their pods, as last seen."""

    def __init__(self, mirror: Mirror, held: HeldIndex) -> None:
        self._mirror = mirror
        self._held = held

    def pods_of(self, ref: JobRef, parent: JobObject) -> list[HeldPod]:
        """The pods that the parent has made."""
        return [pod for pod in self._held.pods_of(ref) if self._has_made(ref, parent, pod)]

    def _has_made(self, ref: JobRef, parent: JobObject, pod: HeldPod) -> bool:
        if ref[0] == kube.STATEFUL_SETS:
            return pod.owner[2] == parent.uid
        return self._is_of_set(pod, parent)

    def _is_of_set(self, pod: HeldPod, parent: JobObject, *, leads: bool = False) -> bool:
        """Whether the pod's StatefulSet is the parent's. `leads`: only leaders are asked about."""
        made_by = self._stateful_set_of(pod)
        if made_by is None:
            return False
        if made_by.controller_uid == parent.uid:
            return True
        owner = made_by.controller or {}
        if leads or (owner.get("apiVersion"), owner.get("kind")) != _POD:
            return False
        leader = self._held.pod(f"{pod.namespace}/{owner['name']}")
        return leader is not None and leader.uid == owner["uid"] and self._is_of_set(leader, parent, leads=True)

    def _stateful_set_of(self, pod: HeldPod) -> Stored | None:
        _, name, uid = pod.owner
        found = self._mirror.get(kube.STATEFUL_SETS, f"{pod.namespace}/{name}")
        return found if found is not None and found.uid == uid else None

    def is_outdated(self, pod: HeldPod) -> bool:
        """Whether the pod's StatefulSet has another revision by now, and rolls it out only once this pod has gone or is ready."""
        found = self._stateful_set_of(pod)
        if found is None or not pod.revision:
            return False
        current, update = found.status.get("currentRevision"), found.status.get("updateRevision")
        return pod.revision == current and current != update

    def demand(self, workload: WorkloadObject) -> Demand | None:
        """The demand of a parent for the group of a Workload; None where no parent has it."""
        named = parent_named(workload)
        if named is None:
            return None
        ref, uid = named
        parent, kind = self._mirror.job(ref), BY_RESOURCE[ref[0]]
        if parent is None or parent.uid != uid:
            return None
        try:
            wanted = sum(row["count"] for row in kind.pod_sets(parent))
        except JobError:  # its plan says what is wrong
            return None
        members = self._held.members_of(ref, workload.key)
        uids = frozenset(pod.uid for pod in members if self._has_made(ref, parent, pod))
        return Demand(wanted, in_stages=kind.comes_in_stages(parent), pods=uids)
