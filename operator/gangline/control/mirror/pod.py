"""One pod as the operator needs it: the only module that reads a pod's JSON for its gang."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gangline import bounded
from gangline.api import names
from gangline.api.read import conditions
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json, condition_of, controller_of, deleting, key_of, revision, true_condition

#: the scheduling gate of pods that wait until their domain is known
GATE: Final[Json] = {"name": names.DOMAIN_GATE}
#: a pod keeps it until its Job has counted it
TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
#: characters of a scheduler's message that are kept
_LONGEST: Final = 1024
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
    #: it has ended well
    succeeded: bool = False
    #: the host that its own node selector demands: it was given a place there, and may not be bound yet
    host: str = ""
    #: its successor gets the same name, so the pod has to be gone before that can be created
    keeps_name: bool = False
    #: it failed, and its node is the cause
    failed_by_node: bool = False
    #: its containers have ended well, whether or not its phase and its Job say so yet
    completed: bool = field(default=False, compare=False)
    #: its gang has a topology assignment, which gives its domain
    placed: bool = field(default=False, compare=False)
    #: it waits until its domain is known
    at_domain_gate: bool = field(default=False, compare=False)
    #: it waits until a slice of its elastic job is admitted with so many pods
    at_elastic_gate: bool = field(default=False, compare=False)
    #: it has a scheduling gate, whoever's: it is bound to no node yet
    gated: bool = field(default=False, compare=False)
    #: it belongs to an elastic job
    elastic: bool = field(default=False, compare=False)
    #: the progress that it reports by its annotation
    progress: str = field(default="", compare=False)
    #: why the scheduler has bound it to no node, in the scheduler's words
    unscheduled: str = field(default="", compare=False)
    #: its resourceVersion as a number
    version: int = field(default=0, compare=False)
    #: what of its newest JSON says where it may run, kept only where a gate may have to be removed from it
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
    """The key of the Workload that a pod's JSON claims to belong to; of an elastic job, its first slice. Anyone who creates pods
    can write it.
    """
    meta = pod["metadata"]
    name = claimed_slice(pod) or (meta.get("annotations") or {}).get(names.WORKLOAD_ANNOTATION)
    return f"{meta['namespace']}/{name}" if name else None


def claimed_slice(pod: Json) -> str:
    """The name of the first slice of the elastic job that a pod claims to belong to, "" = of none."""
    return (pod["metadata"].get("annotations") or {}).get(names.SLICE_NAME) or ""


def waits_at_elastic_gate(pod: Json) -> bool:
    """It waits until a slice of its job is admitted with so many pods."""
    return any(gate.get("name") == names.ELASTIC_GATE for gate in pod["spec"].get("schedulingGates") or ())


def waits_at_domain_gate(pod: Json) -> bool:
    return not deleting(pod) and GATE in (pod["spec"].get("schedulingGates") or ())


def read_pod(pod: Json, workload: str) -> Pod:
    """The pod of a Workload that it was proven to belong to ("" = of none)."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    group, groups = bounded.whole(labels.get(_GROUP)), bounded.whole(labels.get(_GROUPS))
    placed, gated = names.TAS_LABEL in labels, waits_at_domain_gate(pod)
    waits, owner = waits_at_elastic_gate(pod), controller_of(pod)
    return Pod(
        key=key_of(pod),
        uid=meta.get("uid", ""),
        workload=workload,
        pod_set=labels.get(names.PODSET, "main"),
        job=owner["name"] if owner is not None else "",
        node=spec.get("nodeName") or "",
        attempt=bounded.whole(annotations.get(names.ATTEMPT)) or 0,
        created=conditions.millis_of(meta.get("creationTimestamp")),
        index=bounded.whole(labels.get(_INDEX)),
        group=(group, groups) if group is not None and groups else None,
        ready=true_condition(pod, "Ready") is not None,
        ended=status.get("phase") in ("Succeeded", "Failed"),
        succeeded=status.get("phase") == "Succeeded",
        due=conditions.millis_of(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        host=(spec.get("nodeSelector") or {}).get("kubernetes.io/hostname") or "",
        keeps_name=_keeps_name(meta, owner),
        failed_by_node=_failed_by_node(status),
        completed=status.get("phase") == "Succeeded" or _completed(pod),
        placed=placed,
        at_domain_gate=gated,
        at_elastic_gate=waits,
        gated=bool(spec.get("schedulingGates")),
        elastic=bool(claimed_slice(pod)),
        progress=annotations.get(names.PROGRESS) or "",
        unscheduled=_unscheduled(pod),
        version=revision(pod),
        manifest=_kept(pod) if placed or gated or waits else {},
    )


def _kept(pod: Json) -> Json:
    """The pod without what its containers run, their volumes and their states: most of its JSON, which places nothing."""
    spec = {name: value for name, value in pod["spec"].items() if name != "volumes"}
    for kind in ("initContainers", "containers"):
        if rows := spec.get(kind):
            spec[kind] = [{name: row[name] for name in ("name", "resources") if name in row} for row in rows]
    metadata = {name: value for name, value in pod["metadata"].items() if name != "managedFields"}
    return {**pod, "metadata": metadata, "spec": spec, "status": {"phase": (pod.get("status") or {}).get("phase")}}


def _keeps_name(meta: Json, owner: Json | None) -> bool:
    """Its controller names pods itself, as those of Kubeflow do. Executors of Spark, whose owner is a pod, differ by run.

    The place of a pod that is queued itself is its group's, whatever its successor is called.
    """
    queued = (meta.get("labels") or {}).get(names.MANAGED) == "true"
    if owner is None or queued or owner.get("kind") == kube.PODS.kind:
        return False
    return owner.get("kind") == kube.STATEFUL_SETS.kind or not meta.get("generateName")


def _unscheduled(pod: Json) -> str:
    row = condition_of(pod, "PodScheduled") or {}
    if row.get("status") != "False":
        return ""
    return str(row.get("message") or row.get("reason") or "not scheduled yet")[:_LONGEST]


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
