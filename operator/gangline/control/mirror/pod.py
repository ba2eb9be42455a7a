"""One pod as the operator needs it: the only module that reads a pod's JSON for its gang."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gangline import bounded
from gangline.api import names
from gangline.api.read import conditions
from gangline.engine import model
from gangline.kube.resources import Json, condition_of, controller_of, deleting, key_of, true_condition

#: the scheduling gate of pods that wait until their domain is known
GATE: Final[Json] = {"name": names.DOMAIN_GATE}
#: a pod keeps it until its Job has counted it
TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_GROUP: Final = "jobset.sigs.k8s.io/job-index"
_GROUPS: Final = "jobset.sigs.k8s.io/replicatedjob-replicas"

#: reasons of pods that failed because of their node: kubelet's reasons when it cannot run a bound pod, or shuts down
_NODE_FAULTS: Final = frozenset({"UnexpectedAdmissionError", "NodeShutdown", "Terminated", "NodeLost"})
_STATUS_UNKNOWN: Final = "ContainerStatusUnknown"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a gang, or one that waits at a Gangline gate. Times are milliseconds since the epoch, 0 = not (yet)."""

    key: str
    uid: str
    workload: str  #: key of the Workload that it belongs to; "" for a foreign pod
    pod_set: str
    job: str  #: name of the Job that it belongs to
    node: str
    attempt: int
    created: int
    index: int | None
    group: tuple[int, int] | None  #: (index of its Job, number of equal Jobs) within its pod set
    ready: bool
    ended: bool
    #: when its grace period ends, if it is being deleted
    due: int
    finalizers: tuple[str, ...] = ()
    #: it failed, and its node is the cause
    failed_by_node: bool = False
    #: its containers have ended well, and its Job has not counted it yet
    completing: bool = field(default=False, compare=False)
    #: its gang has a topology assignment, which gives its domain
    placed: bool = field(default=False, compare=False)
    #: it waits until its domain is known
    at_domain_gate: bool = field(default=False, compare=False)
    #: the progress that it reports by its annotation
    progress: str = field(default="", compare=False)
    #: its newest JSON, kept only where a gate may have to be removed from it
    manifest: Json = field(default_factory=dict[str, Any], compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def terminating(self) -> bool:
        return self.due > 0

    @property
    def alive(self) -> bool:
        """Whether it runs or will run: it has neither ended nor is being deleted."""
        return not self.ended and not self.terminating

    def bound(self, count: int) -> model.BoundPod:
        """The pod as the engine sees it; `count` pods are in its pod set, and an index beyond them counts as none."""
        index = self.index
        if index is not None and self.group is not None:
            number, groups = self.group
            index += number * (count // groups)
        if index is not None and index >= count:
            index = None
        return model.BoundPod(self.name, self.pod_set, self.node, index, self.ready, self.terminating, self.due)


def claimed_workload(pod: Json) -> str | None:
    """The key of the Workload that a pod's JSON claims to belong to. Anyone who creates pods can write it."""
    meta = pod["metadata"]
    name = (meta.get("annotations") or {}).get(names.WORKLOAD_ANNOTATION)
    return f"{meta['namespace']}/{name}" if name else None


def waits_at_domain_gate(pod: Json) -> bool:
    return not deleting(pod) and GATE in (pod["spec"].get("schedulingGates") or ())


def read_pod(pod: Json, workload: str) -> Pod:
    """The pod of a Workload that it was proven to belong to ("" = of none)."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    group, groups = bounded.whole(labels.get(_GROUP)), bounded.whole(labels.get(_GROUPS))
    placed, gated = names.TAS_LABEL in labels, waits_at_domain_gate(pod)
    return Pod(
        key=key_of(pod),
        uid=meta.get("uid", ""),
        workload=workload,
        pod_set=labels.get(names.PODSET, "main"),
        job=(controller_of(pod) or {"name": ""})["name"],
        node=spec.get("nodeName") or "",
        attempt=bounded.whole(annotations.get(names.ATTEMPT)) or 0,
        created=conditions.millis_of(meta.get("creationTimestamp")),
        index=bounded.whole(labels.get(_INDEX)),
        group=(group, groups) if group is not None and groups else None,
        ready=true_condition(pod, "Ready") is not None,
        ended=status.get("phase") in ("Succeeded", "Failed"),
        due=conditions.millis_of(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        failed_by_node=_failed_by_node(status),
        completing=TRACKING_FINALIZER in (meta.get("finalizers") or ()) and _completed(pod),
        placed=placed,
        at_domain_gate=gated,
        progress=annotations.get(names.PROGRESS) or "",
        manifest=pod if placed or gated else {},
    )


def _completed(pod: Json) -> bool:
    """Its containers have ended well. It is not ready from then on, and a moment later its phase is Succeeded."""
    ready = condition_of(pod, "Ready") or {}
    return ready.get("status") == "False" and ready.get("reason") == "PodCompleted"


def _failed_by_node(status: Json) -> bool:
    if status.get("phase") != "Failed":
        return False
    reason = status.get("reason") or ""
    if reason in _NODE_FAULTS or (reason.startswith("OutOf") and "/" in reason):  # OutOf<device>
        return True
    states = (row.get("state") or {} for row in status.get("containerStatuses") or ())
    return any((state.get("terminated") or {}).get("reason") == _STATUS_UNKNOWN for state in states)
