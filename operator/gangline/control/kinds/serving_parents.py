"""Decides which pods a StatefulSet or a LeaderWorkerSet has really made, and what it wants of each pod group.

Anyone who may create pods can write any label, annotation or owner reference. So a pod counts only if its controller exists with
the referenced uid: the StatefulSet itself; or, of a LeaderWorkerSet, the StatefulSet of its leaders or of a leader's workers.

The pods that wait in the place of StatefulSets and LeaderWorkerSets, by the owner that they name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import TypeVar

from gangline.api import names
from gangline.api.jobkinds.declaration import JobError
from gangline.control.feed.changes import JobRef
from gangline.control.feed.mirror import Mirror
from gangline.control.kinds.group_plan import GroupDemand
from gangline.control.parts.changed_keys import KeySet
from gangline.jobs.pods.member import HeldPod, is_held, read_held
from gangline.jobs.serving import BY_FRAMEWORK, BY_RESOURCE, KINDS
from gangline.kube import resources as kube
from gangline.kube.resources import as_revision
from gangline.objects import JobObject, PodObject, Stored, WorkloadObject

K = TypeVar("K", bound=Hashable)

_STATEFUL_SET = f"{kube.STATEFUL_SETS.api_version}/{kube.STATEFUL_SETS.kind}"


class HeldIndex:
    """The pods that wait for a parent of these frameworks."""

    def __init__(self, frameworks: Collection[str], exists: Callable[[JobRef], bool] = lambda ref: True) -> None:
        """`exists` says of a parent whether it is worth planning."""
        #: parents to plan: they, a pod or a Workload of theirs has changed, appeared or gone
        self.changed = KeySet[JobRef](exists)
        self.frameworks = frozenset(frameworks) & BY_FRAMEWORK.keys()
        self._pods: dict[str, HeldPod] = {}
        self._of: dict[JobRef, set[str]] = {}
        self._in: dict[str, set[str]] = {}  # pod group, which is that of a Workload -> keys of its pods

    def upsert(self, pod: PodObject) -> None:
        key, old = pod.key, self._pods.get(pod.key)
        if not is_held(pod) or pod.namespace in names.EXCLUDED_NAMESPACES:
            self.remove(key)
            return
        new = read_held(pod)
        if old is not None and old.uid == new.uid and as_revision(new.version) < as_revision(old.version):
            return
        ref = self._parent_of(new)
        self.remove(key)
        if ref is None:
            return
        self._pods[key] = new
        self._of.setdefault(ref, set()).add(key)
        if new.group:
            self._in.setdefault(f"{new.namespace}/{new.group}", set()).add(key)
        self.changed.add(ref)

    def remove(self, key: str) -> HeldPod | None:
        """Forget a pod. Returns it if it was known."""
        old = self._pods.pop(key, None)
        ref = self._parent_of(old) if old is not None else None
        if old is not None and ref is not None:
            _discard(self._of, ref, key)
            if old.group:
                _discard(self._in, f"{old.namespace}/{old.group}", key)
            self.changed.add(ref)
        return old

    def pod(self, key: str) -> HeldPod | None:
        return self._pods.get(key)

    def pods_of(self, ref: JobRef) -> list[HeldPod]:
        """The pods that name this parent, whether it has made them or not."""
        return [self._pods[key] for key in sorted(self._of.get(ref, ()))]

    def members_of(self, ref: JobRef, group: str) -> list[HeldPod]:
        """The pods that name this parent and are members of the pod group of this key."""
        return [self._pods[key] for key in sorted(self._in.get(group, ())) if key in self._of.get(ref, ())]

    def refs(self) -> list[JobRef]:
        return list(self._of)

    def _parent_of(self, pod: HeldPod) -> JobRef | None:
        if pod.framework not in self.frameworks:
            return None
        resource = BY_FRAMEWORK[pod.framework].declaration.resource
        kind, name, _ = pod.owner
        if resource != kube.STATEFUL_SETS:
            name = pod.set_name
        elif kind != _STATEFUL_SET:
            return None
        return (resource, f"{pod.namespace}/{name}") if name else None


def _discard(table: dict[K, set[str]], at: K, key: str) -> None:
    table[at].discard(key)
    if not table[at]:
        del table[at]


_KINDS = {(each.declaration.resource.api_version, each.declaration.kind): each for each in KINDS}
_POD = ("v1", "Pod")


def parent_named(workload: WorkloadObject) -> tuple[JobRef, str] | None:
    """The parent that owns a Workload, and its uid; None for Workloads of others."""
    for row in workload.owners:
        kind = _KINDS.get((row.get("apiVersion") or "", row.get("kind") or ""))
        if kind is not None:
            return (kind.declaration.resource, f"{workload.namespace}/{row['name']}"), row["uid"]
    return None


class ServedParents:
    """Parents and their pods, as last seen."""

    def __init__(self, mirror: Mirror, held: HeldIndex) -> None:
        self._mirror = mirror
        self.held = held

    def pods_of(self, ref: JobRef, parent: JobObject) -> list[HeldPod]:
        """The pods that the parent has made."""
        return [pod for pod in self.held.pods_of(ref) if self._has_made(ref, parent, pod)]

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
        leader = self.held.pod(f"{pod.namespace}/{owner['name']}")
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

    def demand(self, workload: WorkloadObject) -> GroupDemand | None:
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
        members = self.held.members_of(ref, workload.key)
        uids = frozenset(pod.uid for pod in members if self._has_made(ref, parent, pod))
        return GroupDemand(wanted, in_stages=kind.comes_in_stages(parent), pods=uids)
