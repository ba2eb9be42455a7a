"""Decides to which gang a pod belongs: its annotation names a Workload, and its owners have to prove it.

Anyone who may create pods can write any annotation. So a pod counts as one of a gang only where the chain of its controllers
leads to the owner of the Workload; each controller must exist with the referenced uid in the pod's namespace. A pod without that
proof counts as foreign; it is looked at again when an owner or the Workload appears. A proven pod stays with its gang until it
is gone, whatever is written on it later and whoever owned it: only one that the operator itself left behind on a node that is
out of reach (`control.nodes.recovery.fencing`) leaves its gang.

A job that is deleted with `--cascade=orphan` takes the proof with it, for its pods and for its Workload. A Workload that
belonged to a job once and has no owner any more therefore counts the pods of its namespace that name it: they keep its quota,
and nobody else's.

A pod may also belong to one that is proven: drivers of Spark create their executors.

A pod that is queued itself owns its Workload, alone or with the other pods of its group. That is proof, too: only who may write
Workloads can make it an owner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gangline.api import names
from gangline.control.feed import slices
from gangline.control.feed.mirror import HeadError, Mirror
from gangline.control.feed.pod import claimed_slice, claimed_workload
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.isolation.intake import measure
from gangline.control.parts.changed_keys import ChangedKeys, KeySet
from gangline.kube import resources as kube
from gangline.objects import NodeObject, PodObject, WorkloadObject


def lost_its_job(workload: WorkloadObject) -> bool:
    """Whether the Workload belonged to a job once, which is gone, or from which it was parted."""
    return not workload.owners and names.JOB_UID in workload.labels


@dataclass(slots=True)
class PodOwners:
    """The pods that were proven to belong to a gang, and those that only claim to."""

    mirror: Mirror
    #: whether the pods of a node (None = a deleted one) cannot be reached
    out_of_reach: Callable[[NodeObject | None], bool] = lambda node: node is None
    #: uid of a pod -> its Workload
    _proven: dict[str, str] = field(default_factory=dict[str, str])
    #: pod -> its newest version, and claimed Workload -> the pods that claim it without proof
    _unproven: dict[str, PodObject] = field(default_factory=dict[str, PodObject])
    _claims: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _uids: dict[str, str] = field(default_factory=dict[str, str])
    #: uid of a controller -> the pods that claim a Workload without proof; and the pods among these controllers that have been
    #: proven since
    _controlled: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _drivers: set[str] = field(default_factory=set[str])
    #: Workloads whose set of unproven claims changed
    changed: ChangedKeys[str] = field(default_factory=ChangedKeys[str])
    #: Workloads that appeared, or whose owners appeared or went
    _arrived: KeySet[str] = field(init=False)

    def __post_init__(self) -> None:
        self._arrived = self.mirror.changes.arrived.subscribe(worth=self.mirror.has(kube.WORKLOADS))
        self.mirror.changes.unowned.feed(self._arrived)

    def gang_of(self, pod: PodObject) -> str | None:
        """Returns the key of the Workload that the pod belongs to, None for a foreign pod; remembers the result."""
        key, uid, claimed = pod.key, pod.uid, claimed_workload(pod)
        self.forget(key)
        if self._was_left_behind(pod):
            self._proven.pop(uid, None)
        found = self._proven.get(uid)
        if claimed is not None and claimed_slice(pod):
            found = self._current_slice(pod, claimed) or found
        elif claimed is not None and (
            self._is_its_own(pod, claimed) or (found is None and self._is_proof(pod, claimed))
        ):
            found = claimed
        if found is not None:
            if uid not in self._proven and uid in self._controlled:
                self._drivers.add(uid)
            self._proven[uid] = found
            self._uids[key] = uid
        elif claimed is not None and self.may_keep(key, pod):
            self._unproven[key] = pod
            self._claims.setdefault(claimed, set()).add(key)
            self._controlled.setdefault(pod.controller_uid or "", set()).add(key)
            self.changed.add(claimed)
        return found

    def may_keep(self, key: str, pod: PodObject) -> bool:
        """Whether the namespace has room for the JSON of a pod. If so, it counts until the pod is looked at again or gone;
        if not, the pod's owner hears of it.
        """
        weight, runs = measure(kube.PODS, pod).weight, bool(pod.node)
        why = self.mirror.intake.keep(kube.PODS, key, weight, runs=runs)
        if why:
            self.mirror.complain(pod, HeadError(why))
        return not why

    def _was_left_behind(self, pod: PodObject) -> bool:
        """Whether the operator parted the pod from its gang. The annotation alone, which anybody can write, does not do that."""
        if pod.controller_uid is not None or not pod.deleting:
            return False
        if names.LEFT_BEHIND not in pod.annotations:
            return False
        return bool(pod.node) and self.out_of_reach(self.mirror.nodes.get(pod.node))

    def claimants(self, workload: str) -> list[PodObject]:
        """The pods that claim to belong to the Workload without proof."""
        return [self._unproven[key] for key in sorted(self._claims.get(workload, ()))]

    def forget(self, key: str, *, gone: bool = False) -> None:
        self.mirror.intake.forget(kube.PODS, key)
        pod = self._unproven.pop(key, None)
        if pod is not None:
            claimed = claimed_workload(pod) or ""
            self.changed.add(claimed)
            for table, name in ((self._claims, claimed), (self._controlled, pod.controller_uid or "")):
                table[name].discard(key)
                if not table[name]:
                    del table[name]
        if gone:
            self._proven.pop(self._uids.pop(key, ""), None)

    def provable(self) -> list[PodObject]:
        """Pods that have to be looked at again, since their owners or Workloads have appeared, or the pod that controls them was
        proven.
        """
        arrived = self._arrived.take()
        firsts = {key for key in map(self._first_slice, arrived) if key}
        drivers, self._drivers = self._drivers, set()
        keys = {key for workload in arrived | firsts for key in self._claims.get(workload, ())}
        keys |= {key for driver in drivers for key in self._controlled.get(driver, ())}
        return [self._unproven[key] for key in sorted(keys)]

    def _first_slice(self, workload: str) -> str:
        """The key of the first slice of an elastic job's Workload, which pods claim."""
        found = self.mirror.workloads.get(workload)
        return f"{found.namespace}/{slices.slice_name(found)}" if found is not None else ""

    def _current_slice(self, pod: PodObject, first: str) -> str | None:
        """The slice with which the elastic job runs that created the pod."""
        if not self._is_selected_by_its_job(pod):
            return None
        for uid in self.mirror.controllers_of(pod):
            if (found := self.mirror.current_slice(uid, first)) is not None:
                return found
        return None

    def _is_its_own(self, pod: PodObject, claimed: str) -> bool:
        """Whether the pod is queued itself, and owns the Workload that it names."""
        workload = self.mirror.workloads.get(claimed)
        return workload is not None and _owns(pod, workload)

    def _is_proof(self, pod: PodObject, claimed: str) -> bool:
        workload = self.mirror.workloads.get(claimed)
        if workload is not None and lost_its_job(workload):
            return True
        if workload is not None and self._is_of_a_member(pod, workload):
            return True
        owner = workload.controller_uid if workload is not None else None
        if owner is None or not self._is_selected_by_its_job(pod):
            return False
        return owner in self.mirror.controllers_of(pod)

    def _is_of_a_member(self, pod: PodObject, workload: WorkloadObject) -> bool:
        """Whether a proven pod of the gang controls it, and it has the label by which the job's controller finds its pods."""
        ref = self.mirror.job_of(workload) if self._proven.get(pod.controller_uid or "") == workload.key else None
        job = self.mirror.job(ref) if ref is not None else None
        if ref is None or job is None or (kind := JOB_KINDS.get(ref[0])) is None or not kind.declaration.found_by:
            return False
        labels = pod.labels
        return labels.get(kind.declaration.found_by[0]) == job.name

    def _is_selected_by_its_job(self, pod: PodObject) -> bool:
        """Whether the pod's Job selects it: a Job counts and deletes only pods that its selector selects, whatever their
        owners."""
        ref = self.mirror.owner_of(pod)
        if ref is None or ref[0] != kube.JOBS:
            return ref is not None
        selector = (self.mirror.objects[ref[0]][ref[1]].spec.get("selector") or {}).get("matchLabels") or {}
        return selector.items() <= pod.labels.items()


def _owns(pod: PodObject, workload: WorkloadObject) -> bool:
    return any(ref["uid"] == pod.uid for ref in workload.owners)
