"""Nodes with the signals of their health, topologies, and pods of others that take room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gangline.engine.model.selection import Taint
from gangline.engine.model.units import Millis, Requests

#: Beside resources, rooms count what pods take of interfaces, in Mbit/s, under this with the interface's name. No resource has a
#: name with spaces.
INTERFACE: Final = "interface "
#: … the accelerators of pods of a class, under this with the digest of the class; and those that pods have without requesting any
#: by number
DRAWN: Final = "drawn by "
DRAWN_BESIDES: Final = "drawn besides"

#: Beside annotations, nodes have what telemetry rules say of them: under this with the rule's policy and name the number that was
#: measured, and with these endings the CPU that was taken then, and why the rule excludes the node. No annotation of a cluster
#: has a name with spaces.
READING: Final = "telemetry "
TAKEN: Final = " taken"
EXCLUDED: Final = " excluded"


@dataclass(frozen=True, slots=True)
class Topology:
    """Node label keys, top level first."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    allocatable: Requests = field(default_factory=dict[str, int])
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    uid: str = ""
    #: type -> (status, when it last changed); Ready=Unknown differs from Ready=False here
    conditions: Mapping[str, tuple[str, Millis]] = field(default_factory=dict[str, tuple[str, Millis]])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    #: what the hardware has (status.capacity): allocatable below it means degraded devices
    capacity: Requests = field(default_factory=dict[str, int])
    #: image, by each of its names -> bytes; empty where no policy looks at images
    images: Mapping[str, int] = field(default_factory=dict[str, int])
    #: network interface -> its Mbit/s, as the node's owner says
    interfaces: Mapping[str, int] = field(default_factory=dict[str, int])
    #: what the node draws without any work, and the limit of each of its accelerators, in watts, as its owner says; 0 = not said
    idle_watts: int = 0
    gpu_watts: int = 0


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A bound, unfinished pod that no topology places: it takes room of its node.

    On flavors without a topology one of a gang does not: there the gang's own assignment has that room (`WorkloadPods`).
    """

    key: str
    node: str
    requests: Requests


# --- windows ----------------------------------------------------------------------------------------------------------
# Capacity as a function of time: nodes that a Reservation keeps, from one instant to another.


#: Key and effect of the mark that a window puts on its nodes inside the engine. No taint of a cluster has this effect,
#: or a space in its key, so that no toleration of a user tolerates it.
RESERVED: Final = "reserved window"


@dataclass(frozen=True, slots=True)
class ReservedWindow:
    """A window of a Reservation: from `begin` to `end` its nodes are for those whom it names alone, for nobody in a maintenance.

    Others may use the nodes of a soft window too, until one of those whom it names needs them. Whoever expands a Reservation into
    windows knows calendars and time zones; the engine gets instants.
    """

    #: reservation and begin: unique among all windows
    name: str
    reservation: str
    #: no pod of others may be on the nodes from here on
    begin: Millis
    end: Millis
    #: the nodes: by name, and all that have all of these labels (none: no labels select)
    nodes: frozenset[str] = frozenset()
    node_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    #: whose workloads may use it: names of ClusterQueues, keys of LocalQueues, and names of users (`Submitter`)
    cluster_queues: frozenset[str] = frozenset()
    local_queues: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    #: so long before `begin` it is announced to the workloads that will be stopped; those that a soft window recalls have as long
    notice: Millis = 0
    #: so long after `begin` the nodes have to be empty: pods that take longer to end are stopped as much earlier (`SaveTime`)
    lead: Millis = 0
    soft: bool = False
    #: workloads that declare checkpoints may start on the nodes though they will be stopped for it, if they can run for so long
    #: until then; None: they may not
    shortest_run: Millis | None = None

    @property
    def is_maintenance(self) -> bool:
        """Whether it is for nobody."""
        return not (self.cluster_queues or self.local_queues or self.users)

    def selects(self, node: Node) -> bool:
        """Whether the node is one of its nodes."""
        if node.name in self.nodes:
            return True
        return bool(self.node_labels) and self.node_labels.items() <= node.labels.items()


@dataclass(frozen=True, slots=True)
class Recall:
    """A workload was asked to leave the nodes of a soft window until an instant, since another one needs them.

    The engine decides that. As a fact it is what an earlier engine decided, so that nobody gets another deadline.
    """

    workload: str  # key
    reservation: str
    until: Millis
    #: key of the workload that needs the nodes
    by: str


@dataclass(frozen=True, slots=True)
class NodeEviction:
    """A workload that was admitted then has to leave its nodes, since one of them violates a telemetry rule."""

    workload: str  # key
    admitted_at: Millis
    message: str


@dataclass(frozen=True, slots=True)
class SaveTime:
    """How long the pods of a workload take to save their work and end once they are stopped, as was measured of its kind."""

    workload: str  # key
    millis: Millis


@dataclass(frozen=True, slots=True)
class Submitter:
    """The user of a workload; known only of users whom a window names."""

    workload: str  # key
    user: str


# --- runs -------------------------------------------------------------------------------------------------------------
# What is known of runs besides the Workload itself: forecasts, and where pods are.


@dataclass(frozen=True, slots=True)
class RuntimeForecast:
    """The runtime of a workload, from its start to its end, as quantiles; a fact like any other, replaced by newer ones.

    `quantiles` are (level, milliseconds) with rising levels. `engine.model.runtime` computes what they mean for a run that has
    already lasted a while: conditional on the elapsed time, never in the past.
    """

    workload: str  # key
    quantiles: tuple[tuple[float, Millis], ...]
    source: str = ""  # Model, Hint, Limit, Class, Queue, Global, …
    samples: int = 0
    #: flavor -> quantiles of a run there, where the flavor changes the runtime and the workload may get any of several
    #: flavors
    by_flavor: Mapping[str, tuple[tuple[float, Millis], ...]] = field(
        default_factory=dict[str, tuple[tuple[float, int], ...]]
    )


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod of a workload that is bound to a node and has not ended, or may be bound to no other one (`sent`)."""

    name: str
    pod_set: str
    node: str
    index: int | None = None  # rank in its pod set
    ready: bool = False
    terminating: bool = False
    #: end of its grace period once it is deleted; 0 = not known
    due: Millis = 0
    #: it is not bound yet
    sent: bool = False
    #: why the scheduler can't bind it there, "" = it can, or has not tried yet
    refused: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadPods:
    """Where the pods of a workload are. Complete: a pod that is not listed is not bound."""

    workload: str  # key
    pods: tuple[BoundPod, ...]
    #: pods that failed through a fault of their node: (pod, node)
    failed: tuple[tuple[str, str], ...] = ()


# --- health -----------------------------------------------------------------------------------------------------------
# One table of the signals of a node's health. `engine.nodes.health` follows them over time.


#: The node no longer runs its pods.
LOST: Final = "Lost"
#: The node gets no new work until the signal is gone.
SUSPECT: Final = "Suspect"
#: The node will be drained.
LEAVING: Final = "LeavingSoon"
#: The pods of the node that use devices are lost, and the others keep running.
DEGRADED: Final = "DegradedDevice"
#: A configuration gives a condition this class so that it has no effect.
IGNORE: Final = "Ignore"


@dataclass(frozen=True, slots=True)
class HealthSignal:
    """A row of the table: what is read, and what it means while it shows.

    `read` is Ready, Condition, Taint, Cordon, Label, Annotation, Due (a label with the second at which something begins),
    Object (existence and identity), or Pods (reported by `NodeHealth.note`). No `values` = any value.
    """

    kind: str
    read: str
    key: str
    means: str
    grace: Millis = 0
    values: frozenset[str] = frozenset()
    #: the signal counts for this long, if it still shows then; 0 = for as long as it shows
    lasts: Millis = 0


_UNFIT_STATES = ("quarantined", "draining", "drain-succeeded", "drain-failed", "remediating", "remediation-failed")

#: Ready=Unknown has already been silent for the node controller's grace (40 s and more); Ready=False is often a restart.
HEALTH_SIGNALS: Final[tuple[HealthSignal, ...]] = (
    HealthSignal("NotReady", "Ready", "False", LOST, 2_000),
    HealthSignal("Unreachable", "Ready", "Unknown", LOST, 1_000),
    HealthSignal("Deleted", "Object", "gone", LOST),
    HealthSignal("Unknown", "Object", "never seen", LOST, 10_000),
    HealthSignal("Silent", "Taint", "gangline.io/silent", LOST),
    HealthSignal("OutOfService", "Taint", "node.kubernetes.io/out-of-service", LOST),
    HealthSignal("UnreachableTaint", "Taint", "node.kubernetes.io/unreachable", LOST, 1_000),
    HealthSignal("NotReadyTaint", "Taint", "node.kubernetes.io/not-ready", LOST, 2_000),
    HealthSignal("Vacated", "Taint", "gangline.io/vacate", LEAVING),
    HealthSignal("Cordoned", "Cordon", "spec.unschedulable", LEAVING),
    HealthSignal("ImpendingTermination", "Taint", "cloud.google.com/impending-node-termination", LEAVING),
    HealthSignal("SpotInterruption", "Taint", "aws-node-termination-handler/spot-itn", LEAVING),
    HealthSignal("ScaleDown", "Taint", "ToBeDeletedByClusterAutoscaler", LEAVING),
    HealthSignal("Disrupted", "Taint", "karpenter.sh/disrupted", LEAVING),
    HealthSignal("Maintenance", "Label", "cloud.google.com/active-node-maintenance", LEAVING),
    HealthSignal("MaintenanceDue", "Due", "cloud.google.com/scheduled-maintenance-time", LEAVING),
    HealthSignal("Quarantined", "Label", "dgxc.nvidia.com/nvsentinel-state", SUSPECT, values=frozenset(_UNFIT_STATES)),
    HealthSignal("Throttled", "Annotation", "gangline.io/throttled", SUSPECT, values=frozenset({"true"})),
    HealthSignal("QuarantineEvent", "Annotation", "quarantineHealthEvent", SUSPECT),
    # NVSentinel: fatal conditions of a GPU or of its links
    *(
        HealthSignal(kind, "Condition", kind, DEGRADED, 10_000)
        for kind in ("GpuMemWatch", "GpuNvlinkWatch", "GpuPcieWatch", "GpuInforomWatch", "GpuDriverWatch")
    ),
    *(
        HealthSignal(kind, "Condition", kind, DEGRADED, 10_000)
        for kind in ("SysLogsXIDError", "SysLogsSXIDError", "SysLogsGPUFallenOff")
    ),
    # node-problem-detector
    HealthSignal("KernelDeadlock", "Condition", "KernelDeadlock", SUSPECT),
    HealthSignal("ReadonlyFilesystem", "Condition", "ReadonlyFilesystem", SUSPECT),
    HealthSignal("DevicesMissing", "Pods", "allocatable below what is bound", DEGRADED, 30_000),
    HealthSignal("StuckTerminating", "Pods", "pods that do not end", SUSPECT, 120_000),
    HealthSignal("PodsFailed", "Pods", "pods that failed by the node's fault", SUSPECT, lasts=300_000),
)
