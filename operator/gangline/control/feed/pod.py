"""One pod as the operator needs it: the only module that reads a pod's JSON for its gang."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.api.read import conditions
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import PodObject

#: the scheduling gate of pods that wait until their node or domain is known
GATE: Final[Json] = {"name": names.DOMAIN_GATE}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
#: the field by which a node affinity names a node
METADATA_NAME: Final = "metadata.name"
#: a pod keeps it until its Job has counted it
TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
#: characters of the annotation by which a pod reports its progress; a reader refuses more
LONGEST_PROGRESS: Final = 4096
#: characters of a scheduler's message that are kept
_LONGEST: Final = 1024
#: and of why it refuses a pod on its node
_LONGEST_REFUSAL: Final = 256
#: words of a scheduler's message about what a pod waits for wherever it goes: claims of volumes and devices
_NOT_YET: Final = ("persistentvolumeclaim", "resourceclaim")
_UNSCHEDULABLE: Final = "Unschedulable"
_OURS: Final = {names.DOMAIN_GATE, names.TOPOLOGY_GATE, names.ELASTIC_GATE, names.ADMISSION_GATE}
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
    #: the only node that its affinity allows, while it has no gate of Gangline and is not bound; "" = there is none
    sent: str = ""
    #: why the scheduler can't bind it to the node that it was sent to, in the scheduler's words
    refused: str = ""
    #: the scheduler says that no node fits it as things are
    unschedulable: bool = False
    #: its successor gets the same name, so the pod has to be gone before that can be created
    keeps_name: bool = False
    #: it failed, and its node is the cause
    failed_by_node: bool = False
    #: its containers have ended well, whether or not its phase and its Job say so yet
    completed: bool = field(default=False, compare=False)
    #: its gang has a topology assignment, which gives its domain
    placed: bool = field(default=False, compare=False)
    #: it waits until its node or domain is known
    at_node_gate: bool = field(default=False, compare=False)
    #: it waits until a slice of its elastic job is admitted with so many pods
    at_elastic_gate: bool = field(default=False, compare=False)
    #: it has a scheduling gate, whoever's: it is bound to no node yet
    gated: bool = field(default=False, compare=False)
    #: it belongs to an elastic job
    elastic: bool = field(default=False, compare=False)
    #: the progress that it reports by its annotation
    progress: str = field(default="", compare=False)
    #: by when its workload should save its work, as its annotation says
    save_by: str = field(default="", compare=False)
    #: why the scheduler has bound it to no node, in the scheduler's words
    unscheduled: str = field(default="", compare=False)
    #: its resourceVersion as a number
    version: int = field(default=0, compare=False)
    #: what of its newest JSON says where it may run, kept only where a gate may have to be removed from it
    manifest: PodObject = field(default_factory=PodObject, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def terminating(self) -> bool:
        return self.due > 0

    @property
    def alive(self) -> bool:
        """Whether the pod runs or will run: it has neither ended nor is being deleted."""
        return not self.ended and not self.terminating

    def bound(self, count: int) -> model.BoundPod:
        """The pod as the engine sees it; `count` pods are in its pod set, and an index beyond them counts as none."""
        index = self.index
        if index is not None and self.group is not None:
            number, groups = self.group
            index += number * (count // groups)
        if index is not None and index >= count:
            index = None
        node, sent = self.node or self.sent, bool(self.sent)
        return model.BoundPod(
            self.name, self.pod_set, node, index, self.ready, self.terminating, self.due, sent, self.refused
        )

    def after(self, manifest: PodObject) -> Pod:
        """The pod as it is with other gates and another affinity."""
        found = read_pod(manifest, self.workload)
        return replace(self, at_node_gate=found.at_node_gate, sent=found.sent)


def claimed_workload(pod: PodObject) -> str | None:
    """The key of the Workload that a pod's JSON claims to belong to; of an elastic job, its first slice. Anyone who creates pods
    can write it.
    """
    name = claimed_slice(pod) or pod.annotations.get(names.WORKLOAD_ANNOTATION)
    return f"{pod.namespace}/{name}" if name else None


def claimed_slice(pod: PodObject) -> str:
    """The name of the first slice of the elastic job that a pod claims to belong to, "" = of none."""
    return pod.annotations.get(names.SLICE_NAME) or ""


def waits_at_elastic_gate(pod: PodObject) -> bool:
    """Whether the pod waits until a slice of its job is admitted with so many pods."""
    return names.ELASTIC_GATE in pod.gates


def waits_at_node_gate(pod: PodObject) -> bool:
    """Whether the pod waits until it is known to which node or domain it is sent, whatever gang it belongs to."""
    return not pod.deleting and names.DOMAIN_GATE in pod.gates


def only_node(spec: Json) -> str:
    """The one node that the required affinity of a pod allows by its name, "" = it names none, or several."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
    return terms_node.pop() if len(terms_node := {_named_node(term) for term in terms}) == 1 else ""


def _named_node(term: Json) -> str:
    for row in term.get("matchFields") or ():
        values = row.get("values") or ()
        if row.get("key") == METADATA_NAME and row.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return ""


def read_pod(pod: PodObject, workload: str) -> Pod:
    """The pod of a Workload that it was proven to belong to ("" = of none)."""
    annotations, labels = pod.annotations, pod.labels
    group, groups = bounded.whole(labels.get(_GROUP)), bounded.whole(labels.get(_GROUPS))
    gates, placed = set(pod.gates), names.TAS_LABEL in labels
    waits, owner = names.ELASTIC_GATE in gates, pod.controller
    # one that is queued by itself waits at the gate of topologies, and for its node once it has lost the gate of its admission
    at_gates = names.DOMAIN_GATE in gates or (bool(workload) and not placed and names.TOPOLOGY_GATE in gates)
    gated = at_gates and not pod.deleting and not waits and names.ADMISSION_GATE not in gates
    free = not (gates & _OURS or placed or pod.node or pod.deleting)
    sent = only_node(pod.spec) if free else ""
    return Pod(
        key=pod.key,
        uid=pod.uid,
        workload=workload,
        pod_set=labels.get(names.PODSET, "main"),
        job=owner["name"] if owner is not None else "",
        node=pod.node,
        attempt=bounded.whole(annotations.get(names.ATTEMPT)) or 0,
        created=conditions.millis_of(pod.created),
        index=bounded.whole(labels.get(_INDEX)),
        group=(group, groups) if group is not None and groups else None,
        ready=pod.is_true("Ready"),
        ended=pod.has_ended,
        succeeded=pod.phase == "Succeeded",
        due=conditions.millis_of(pod.deletion_time),
        finalizers=tuple(pod.finalizers),
        host=(pod.spec.get("nodeSelector") or {}).get("kubernetes.io/hostname") or "",
        sent=sent,
        refused=_refused(pod) if sent else "",
        unschedulable=_is_unschedulable(pod),
        keeps_name=_keeps_name(pod, owner),
        failed_by_node=_failed_by_node(pod.status),
        completed=pod.phase == "Succeeded" or _completed(pod),
        placed=placed,
        at_node_gate=gated,
        at_elastic_gate=waits,
        gated=bool(pod.gates),
        elastic=bool(claimed_slice(pod)),
        progress=(annotations.get(names.PROGRESS) or "")[: LONGEST_PROGRESS + 1],
        save_by=annotations.get(names.SAVE_BY) or "",
        unscheduled=_unscheduled(pod),
        version=pod.revision,
        manifest=_kept(pod) if placed or gated or waits else PodObject(),
    )


def _kept(pod: PodObject) -> PodObject:
    """The pod without what its containers run, their volumes and their states: most of its JSON, which places nothing."""
    spec = {name: value for name, value in pod.spec.items() if name != "volumes"}
    for kind in ("initContainers", "containers"):
        if rows := spec.get(kind):
            spec[kind] = [{name: row[name] for name in ("name", "resources") if name in row} for row in rows]
    metadata = {name: value for name, value in pod.metadata.items() if name != "managedFields"}
    return PodObject({**pod, "metadata": metadata, "spec": spec, "status": {"phase": pod.status.get("phase")}})


def _keeps_name(pod: PodObject, owner: Json | None) -> bool:
    """Whether the pod's controller names pods itself, as those of Kubeflow do. Executors of Spark, whose owner is a pod, differ
    by run.

    The place of a pod that is queued itself is its group's, whatever its successor is called.
    """
    queued = pod.labels.get(names.MANAGED) == "true"
    if owner is None or queued or owner.get("kind") == kube.PODS.kind:
        return False
    return owner.get("kind") == kube.STATEFUL_SETS.kind or not pod.metadata.get("generateName")


def by_obstacle(pods: Iterable[Pod]) -> list[tuple[str, list[Pod]]]:
    """The living pods without a node, by the scheduler's reason, most pods first. What it says of its own preemption is left out,
    since that does not concern jobs in queues.
    """
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if not pod.node and pod.alive and pod.unscheduled:
            found[pod.unscheduled.partition(" preemption: ")[0].rstrip(". ")].append(pod)
    return sorted(found.items(), key=lambda row: -len(row[1]))


def _unscheduled(pod: PodObject) -> str:
    row = pod.condition("PodScheduled") or {}
    if row.get("status") != "False":
        return ""
    return str(row.get("message") or row.get("reason") or "not scheduled yet")[:_LONGEST]


def _refused(pod: PodObject) -> str:
    """The scheduler's message, where the reason lies in the pod's node: the scheduler makes no room for the pod, and the pod
    waits for no claim. Otherwise "".
    """
    why = str((pod.condition("PodScheduled") or {}).get("message") or "")
    nominated = pod.status.get("nominatedNodeName")
    waits = nominated or any(word in why.lower() for word in _NOT_YET)
    return (why or _UNSCHEDULABLE)[:_LONGEST_REFUSAL] if _is_unschedulable(pod) and not waits else ""


def _is_unschedulable(pod: PodObject) -> bool:
    row = pod.condition("PodScheduled") or {}
    return row.get("status") == "False" and row.get("reason") == _UNSCHEDULABLE


def _completed(pod: PodObject) -> bool:
    """Whether the pod's containers have ended well. It is not ready from then on, and a moment later its phase is Succeeded."""
    ready = pod.condition("Ready") or {}
    return ready.get("status") == "False" and ready.get("reason") == "PodCompleted"


def _failed_by_node(status: Json) -> bool:
    if status.get("phase") != "Failed":
        return False
    reason = status.get("reason") or ""
    if reason in _NODE_FAULTS or (reason.startswith("OutOf") and "/" in reason):  # OutOf<device>
        return True
    states = (row.get("state") or {} for row in status.get("containerStatuses") or ())
    return any((state.get("terminated") or {}).get("reason") == _STATUS_UNKNOWN for state in states)
