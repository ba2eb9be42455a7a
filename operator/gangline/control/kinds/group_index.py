"""The queued pods by their groups, and which groups changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gangline.api import names
from gangline.control.feed.changes import JobRef
from gangline.control.feed.mirror import HeadError, Mirror
from gangline.control.parts.changed_keys import KeySet
from gangline.jobs.pods import composition, member
from gangline.jobs.pods.group import PodGroup
from gangline.jobs.pods.member import GroupPod
from gangline.kube import resources as kube
from gangline.kube.resources import Resource
from gangline.objects import PodObject, WorkloadObject

#: stands for pod groups, which are no objects: the key of a group is (POD_GROUPS, namespace/name), of a pod that stands alone
#: (PODS, namespace/name)
POD_GROUPS: Final = Resource("", "v1", "podgroups", kind="PodGroup")


#: bytes that a pod takes in memory beside what is packed, about
_WEIGHT: Final = 2048


class GroupIndex:
    """All pods with the label `managed`, as far as their namespace has memory for them."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        #: groups with a pod that has changed, appeared or gone
        self.changed = KeySet[JobRef](lambda ref: ref in self._of)
        #: Workloads of groups whose last pod is gone
        self.emptied: set[str] = set()
        self._members: dict[str, GroupPod] = {}
        self._of: dict[JobRef, set[str]] = {}
        #: Workload -> the pods that stand alone which it is named after, or which name it
        self._by_workload: dict[str, set[JobRef]] = {}

    # --- in ---

    def upsert(self, pod: PodObject) -> None:
        key = pod.key
        old = self._members.get(key)
        if not member.is_managed(pod) or pod.namespace in names.EXCLUDED_NAMESPACES:
            self.remove(key)
            return
        if old is not None and member.older(pod, old):
            return
        new = member.read(pod)
        if old is not None and (old.uid, old.group) != (new.uid, new.group):
            self.remove(key)
        kept = bool(new.node) or (old is not None and old.uid == new.uid)
        if why := self._mirror.intake.keep(POD_GROUPS, key, _WEIGHT + len(new.packed), runs=kept):
            self.remove(key)
            self._mirror.complain(pod, HeadError(why))
            return
        ref = ref_of(new)
        self._members[key] = new
        self._of.setdefault(ref, set()).add(key)
        if not new.group:
            self._by_workload.setdefault(_workload_key(new), set()).add(ref)
        self.changed.add(ref)

    def remove(self, key: str) -> None:
        old = self._members.pop(key, None)
        if old is None:
            return
        self._mirror.intake.forget(POD_GROUPS, key)
        ref = ref_of(old)
        keys = self._of[ref]
        keys.discard(key)
        if not keys:
            del self._of[ref]
            self.emptied.add(ref[1] if old.group else _workload_key(old))
        if not old.group:
            self._forget(_workload_key(old), ref)
        self.changed.add(ref)

    def _forget(self, workload: str, ref: JobRef) -> None:
        known = self._by_workload.get(workload, set())
        known.discard(ref)
        if not known:
            self._by_workload.pop(workload, None)

    # --- out ---

    def group(self, ref: JobRef) -> PodGroup | None:
        """The group; None if it has no pods."""
        keys = self._of.get(ref)
        if not keys:
            return None
        pods = (self._members[key] for key in keys)
        return PodGroup.of(ref[1].partition("/")[2], pods, alone=ref[0] == kube.PODS)

    def refs(self) -> list[JobRef]:
        return list(self._of)

    def pod(self, key: str) -> GroupPod | None:
        return self._members.get(key)

    def workload_of(self, group: PodGroup) -> WorkloadObject | None:
        """The Workload of the group's name; of a pod that stands alone any that the pod controls, the one with quota first,
        unless it names one.
        """
        if not group.alone or group.prebuilt:
            return self._mirror.workloads.get(workload_key(group))
        owned = self._mirror.workloads_of_uid(group.pods[0].uid)
        return min(owned, key=lambda each: (not each.holds_quota, each.name), default=None)

    def members(self, workload: WorkloadObject) -> Sequence[GroupPod]:
        """The pods of the group behind a Workload."""
        ref = self.behind(workload.key, workload)
        group = self.group(ref) if ref is not None else None
        return group.pods if group is not None else ()

    def plan_again(self, workload: WorkloadObject) -> None:
        """Let the group behind a Workload be planned again."""
        ref = self.behind(workload.key, workload)
        if ref is not None:
            self.changed.add(ref)

    def changed_workloads(self) -> set[str]:
        """The Workloads of groups that have changed, and are not planned yet."""
        found = set(self.emptied)
        for ref in self.changed:
            group = self.group(ref)
            workload = self.workload_of(group) if group is not None else None
            if workload is not None:
                found.add(workload.key)
        return found

    def behind(self, key: str, workload: WorkloadObject | None) -> JobRef | None:
        """The group that a Workload belongs to, whether it has pods or not; None for Workloads of other jobs.

        `workload` is None for a deleted one: then only its name tells.
        """
        if workload is None:
            group = (POD_GROUPS, key)
            return group if group in self._of else self._named(key)
        if composition.is_of_group(workload):
            return POD_GROUPS, key
        owner = workload.controller
        if owner is not None and (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod"):
            ref = (kube.PODS, f"{workload.namespace}/{owner['name']}")
            pod = self._members.get(ref[1])
            return ref if pod is None or pod.uid == owner["uid"] else (kube.PODS, f"{ref[1]}#{owner['uid']}")
        group = (POD_GROUPS, key)  # a Workload of another job may have the group's name
        if group in self._of:
            return group
        return self._named(key) if owner is None else None

    def _named(self, workload: str) -> JobRef | None:
        """The pod that stands alone which a Workload is named after, or which names it: the first of several."""
        return min(self._by_workload.get(workload, ()), key=lambda ref: ref[1], default=None)


def ref_of(pod: GroupPod) -> JobRef:
    return (POD_GROUPS, f"{pod.namespace}/{pod.group}") if pod.group else (kube.PODS, pod.key)


def workload_key(group: PodGroup) -> str:
    return f"{group.pods[0].namespace}/{composition.workload_name(group)}"


def _workload_key(pod: GroupPod) -> str:
    return f"{pod.namespace}/{composition.alone_name(pod)}"
