"""Where the pods of gangs are: what the engine decides on when nodes fail, and what is left to wait for when a gang stops.

Every pod that a job of ours has started carries the name of its Workload. Of each only a few facts are kept; the engine is told
of a gang's pods as a whole, once per round and only when something has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gangline import bounded
from gangline.api import names
from gangline.api.read import conditions
from gangline.engine import model
from gangline.kube.resources import key_of

Json: TypeAlias = dict[str, Any]
#: pods of one pod set that run at the same time
Counts: TypeAlias = Mapping[str, int]

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_GROUP: Final = "jobset.sigs.k8s.io/job-index"
_GROUPS: Final = "jobset.sigs.k8s.io/replicatedjob-replicas"


#: pods of a gang that end or have ended, for each that may live: those of a few attempts
SPARE: Final = 4

#: why pods fail through no fault of their own: what kubelet says when it can't run what was bound to its node, or goes down
_NODE_FAULTS: Final = frozenset({"UnexpectedAdmissionError", "NodeShutdown", "Terminated", "NodeLost"})
_STATUS_UNKNOWN: Final = "ContainerStatusUnknown"


@dataclass(frozen=True, slots=True)
class GangPod:
    """What is known of one pod of a gang. Times are milliseconds since the epoch, 0 = not (yet)."""

    key: str
    uid: str
    workload: str  # key
    pod_set: str
    job: str  # name of the Job that it belongs to
    node: str
    attempt: int
    created: int
    index: int | None
    group: tuple[int, int] | None  # which of how many equal Jobs of its pod set
    ready: bool
    ended: bool
    #: when its grace period is over, once it has been told to go
    due: int
    finalizers: tuple[str, ...] = ()
    #: it failed, and its node is to blame
    failed_by_node: bool = False

    @property
    def terminating(self) -> bool:
        return self.due > 0

    @property
    def alive(self) -> bool:
        """It runs, or will: it neither ended nor was told to go."""
        return not self.ended and not self.terminating

    def bound(self, count: int) -> model.BoundPod:
        """As the engine sees it; `count` pods are in its pod set, and an index beyond them is none."""
        index = self.index
        if index is not None and self.group is not None:
            number, groups = self.group
            index += number * (count // groups)
        if index is not None and index >= count:
            index = None
        name = self.key.rpartition("/")[2]
        return model.BoundPod(name, self.pod_set, self.node, index, self.ready, self.terminating, self.due)


def gang_pod(pod: Json) -> GangPod | None:
    """None for pods that no Workload stands behind."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    workload = annotations.get(names.WORKLOAD_ANNOTATION)
    if not workload:
        return None
    group, groups = bounded.whole(labels.get(_GROUP)), bounded.whole(labels.get(_GROUPS))
    return GangPod(
        key=key_of(pod),
        uid=meta.get("uid", ""),
        workload=f"{meta['namespace']}/{workload}",
        pod_set=labels.get(names.PODSET, "main"),
        job=next((ref["name"] for ref in meta.get("ownerReferences") or () if ref.get("controller")), ""),
        node=spec.get("nodeName") or "",
        attempt=bounded.whole(annotations.get(names.ATTEMPT)) or 0,
        created=conditions.millis_of(meta.get("creationTimestamp")),
        index=bounded.whole(labels.get(_INDEX)),
        group=(group, groups) if group is not None and groups else None,
        ready=conditions.is_true(status.get("conditions"), "Ready"),
        ended=status.get("phase") in ("Succeeded", "Failed"),
        due=conditions.millis_of(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        failed_by_node=_failed_by_node(status),
    )


def _failed_by_node(status: Json) -> bool:
    if status.get("phase") != "Failed":
        return False
    reason = status.get("reason") or ""
    if reason in _NODE_FAULTS or (reason.startswith("OutOf") and "/" in reason):  # OutOf<device>
        return True
    states = (row.get("state") or {} for row in status.get("containerStatuses") or ())
    return any((state.get("terminated") or {}).get("reason") == _STATUS_UNKNOWN for state in states)


@dataclass(slots=True)
class Footprints:
    """All pods of gangs. `observe` receives the engine's facts; `counts` says how many pods a Workload's pod sets have."""

    observe: Callable[[model.Change], None]
    counts: Callable[[str], Counts]
    #: Workloads of which a pod has changed since they were last looked at
    dirty: set[str] = field(default_factory=set[str])
    #: nodes of pods that have changed since they were last looked at
    touched_nodes: set[str] = field(default_factory=set[str])
    _pods: dict[str, GangPod] = field(default_factory=dict[str, GangPod])
    _of: dict[str, set[str]] = field(default_factory=dict[str, set[str]])  # Workload -> keys of its pods
    _on: dict[str, set[str]] = field(default_factory=dict[str, set[str]])  # node -> keys of the pods there
    _told: dict[str, model.Footprint] = field(default_factory=dict[str, model.Footprint])
    _untold: set[str] = field(default_factory=set[str])

    def upsert(self, pod: Json) -> None:
        found, key = gang_pod(pod), key_of(pod)
        old = self._pods.get(key)
        if found == old:
            return
        if old is not None:
            self._drop(old)
        if found is not None:
            self._pods[key] = found
            self._of.setdefault(found.workload, set()).add(key)
            if found.node:
                self._on.setdefault(found.node, set()).add(key)
                self.touched_nodes.add(found.node)
            self._note(found.workload)

    def remove(self, key: str) -> None:
        old = self._pods.get(key)
        if old is not None:
            self._drop(old)

    def _drop(self, pod: GangPod) -> None:
        del self._pods[pod.key]
        for table, name in ((self._of, pod.workload), (self._on, pod.node)):
            keys = table.get(name)
            if keys is not None:
                keys.discard(pod.key)
                if not keys:
                    del table[name]
        self._note(pod.workload)

    def _note(self, workload: str) -> None:
        self.dirty.add(workload)
        self._untold.add(workload)

    def of(self, workload: str) -> list[GangPod]:
        return [self._pods[key] for key in sorted(self._of.get(workload, ()))]

    def on(self, node: str) -> list[GangPod]:
        return [self._pods[key] for key in sorted(self._on.get(node, ()))]

    def nodes(self) -> Iterable[str]:
        """Nodes with pods of gangs, also such as are no more."""
        return self._on

    def tell(self) -> None:
        """Let the engine know what has changed."""
        untold, self._untold = self._untold, set()
        for workload in sorted(untold):
            counts = self.counts(workload)
            placed = _within(counts, (pod for pod in self.of(workload) if pod.node))
            pods = tuple(pod.bound(counts.get(pod.pod_set, 0)) for pod in placed if not pod.ended)
            failed = tuple((pod.key.rpartition("/")[2], pod.node) for pod in placed if pod.failed_by_node)
            footprint = model.Footprint(workload, pods, failed)
            if not pods and not failed:
                if self._told.pop(workload, None) is not None:
                    self.observe(model.Gone(model.Footprint, workload))
            elif self._told.get(workload) != footprint:
                self._told[workload] = footprint
                self.observe(model.Put(footprint))


def _within(counts: Counts, pods: Iterable[GangPod]) -> list[GangPod]:
    """As many pods as a gang can have: so many of each pod set that live, and `SPARE` times as many on their way out.

    The oldest of those that live count, for what comes beyond is for the job's controller to delete; of the others the newest.
    """
    if not counts:
        return list(pods)
    by_age = sorted(pods, key=lambda pod: (pod.created, pod.key))
    living, leaving = Counter[str](), Counter[str]()
    found: list[GangPod] = []
    for pod in (pod for pod in by_age if pod.alive):
        living[pod.pod_set] += 1
        if living[pod.pod_set] <= counts.get(pod.pod_set, 0):
            found.append(pod)
    for pod in (pod for pod in reversed(by_age) if not pod.alive):
        leaving[pod.pod_set] += 1
        if leaving[pod.pod_set] <= SPARE * counts.get(pod.pod_set, 0):
            found.append(pod)
    return sorted(found, key=lambda pod: pod.key)
