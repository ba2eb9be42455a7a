"""One pod as the operator needs it: the only place where a pod's JSON is read for its gang."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gangline import bounded
from gangline.api import names
from gangline.api.read import conditions
from gangline.engine import model
from gangline.kube.resources import Json, controller_of, deleting, key_of, true_condition

#: the scheduling gate of pods that wait for their domain
GATE: Final[Json] = {"name": names.DOMAIN_GATE}
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_GROUP: Final = "jobset.sigs.k8s.io/job-index"
_GROUPS: Final = "jobset.sigs.k8s.io/replicatedjob-replicas"

#: failure reasons that are no fault of the pod: kubelet cannot run it on its node, or the node shuts down
_NODE_FAULTS: Final = frozenset({"UnexpectedAdmissionError", "NodeShutdown", "Terminated", "NodeLost"})
_STATUS_UNKNOWN: Final = "ContainerStatusUnknown"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a gang, or one that waits at a gate of ours. Times are milliseconds since the epoch, 0 = not (yet)."""

    key: str
    uid: str
    workload: str  #: key of its Workload; "" for a pod of others
    pod_set: str
    job: str  #: name of its Job
    node: str
    attempt: int
    created: int
    index: int | None
    group: tuple[int, int] | None  #: index among the equal Jobs of its pod set
    ready: bool
    ended: bool
    #: end of its grace period once it is deleted
    due: int
    finalizers: tuple[str, ...] = ()
    #: it failed through a fault of its node
    failed_by_node: bool = False
    #: its gang has a topology assignment, which decides its node
    placed: bool = field(default=False, compare=False)
    #: it waits for its domain
    at_domain_gate: bool = field(default=False, compare=False)
    #: the progress report in its annotation
    progress: str = field(default="", compare=False)
    #: its newest JSON, kept only while a gate may have to be removed
    manifest: Json = field(default_factory=dict[str, Any], compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def terminating(self) -> bool:
        return self.due > 0

    @property
    def alive(self) -> bool:
        """It runs, or will: it neither ended nor was deleted."""
        return not self.ended and not self.terminating

    def bound(self, count: int) -> model.BoundPod:
        """The pod for the engine; its pod set has `count` pods, and an index beyond them counts as none."""
        index = self.index
        if index is not None and self.group is not None:
            number, groups = self.group
            index += number * (count // groups)
        if index is not None and index >= count:
            index = None
        return model.BoundPod(self.name, self.pod_set, self.node, index, self.ready, self.terminating, self.due)


def claimed_workload(pod: Json) -> str | None:
    """The key of the Workload that a pod's JSON claims, which any user can write."""
    meta = pod["metadata"]
    name = (meta.get("annotations") or {}).get(names.WORKLOAD_ANNOTATION)
    return f"{meta['namespace']}/{name}" if name else None


def waits_at_domain_gate(pod: Json) -> bool:
    return not deleting(pod) and GATE in (pod["spec"].get("schedulingGates") or ())


def read_pod(pod: Json, workload: str) -> Pod:
    """The pod, of the Workload that it was proven to belong to ("" = none)."""
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
        placed=placed,
        at_domain_gate=gated,
        progress=annotations.get(names.PROGRESS) or "",
        manifest=pod if placed or gated else {},
    )


def _failed_by_node(status: Json) -> bool:
    if status.get("phase") != "Failed":
        return False
    reason = status.get("reason") or ""
    if reason in _NODE_FAULTS or (reason.startswith("OutOf") and "/" in reason):  # OutOf<device>
        return True
    states = (row.get("state") or {} for row in status.get("containerStatuses") or ())
    return any((state.get("terminated") or {}).get("reason") == _STATUS_UNKNOWN for state in states)
