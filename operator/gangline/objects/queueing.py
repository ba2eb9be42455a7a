"""What Workloads and LocalQueues have beside what all objects have."""

from __future__ import annotations

from gangline.api import names
from gangline.kube.resources import Json
from gangline.objects.stored import Stored


class WorkloadObject(Stored):
    """A Workload."""

    __slots__ = ()

    @property
    def pod_sets(self) -> list[Json]:
        return self.spec.get("podSets") or []

    @property
    def queue_name(self) -> str:
        """The name of its LocalQueue; "" if it names none."""
        return self.spec.get("queueName") or ""

    @property
    def priority(self) -> int:
        return self.spec.get("priority") or 0

    @property
    def active(self) -> bool:
        return self.spec.get("active") is not False

    @property
    def held(self) -> bool:
        """Whether its job's author holds it, by an annotation."""
        return names.is_held(self.annotations)

    @property
    def gated(self) -> bool:
        """Whether something keeps it from being admitted while it waits: admission gates, or its job's author."""
        return bool(self.annotations.get(names.ADMISSION_GATED_BY)) or self.held

    @property
    def max_execution_seconds(self) -> int | None:
        """The number of seconds that it may run; None without a limit."""
        return self.spec.get("maximumExecutionTimeSeconds")

    @property
    def admission(self) -> Json | None:
        """The quota that it holds, or held and has not given back yet."""
        return self.status.get("admission")

    @property
    def assignments(self) -> list[Json]:
        """What each pod set was assigned; empty without an admission."""
        return (self.admission or {}).get("podSetAssignments") or []

    @property
    def admitted_by(self) -> str:
        """The ClusterQueue of its admission; "" without one."""
        return (self.admission or {}).get("clusterQueue") or ""

    @property
    def quota_reserved(self) -> bool:
        """Whether its condition QuotaReserved is True."""
        return self.is_true(names.QUOTA_RESERVED)

    @property
    def holds_quota(self) -> bool:
        """Whether its quota is reserved, and its admission says which."""
        return "admission" in self.status and self.quota_reserved

    @property
    def admitted(self) -> bool:
        return self.is_true(names.ADMITTED)

    @property
    def evicted(self) -> bool:
        return self.is_true(names.EVICTED)

    @property
    def finished(self) -> bool:
        return self.is_true(names.FINISHED)

    @property
    def checks(self) -> list[Json]:
        """The states of its admission checks."""
        return self.status.get("admissionChecks") or []

    @property
    def cluster(self) -> str:
        """The worker cluster in which it runs; "" while it runs in none."""
        return self.status.get("clusterName") or ""

    @property
    def nominated_clusters(self) -> list[str]:
        """The worker clusters to which it is offered; empty once one of them is chosen."""
        return self.status.get("nominatedClusterNames") or []

    @property
    def is_placed(self) -> bool:
        """Whether its admission names topology domains."""
        return any("topologyAssignment" in assignment for assignment in self.assignments)


class LocalQueueObject(Stored):
    """A LocalQueue."""

    __slots__ = ()

    @property
    def cluster_queue(self) -> str:
        """The name of its ClusterQueue; "" if it names none."""
        return self.spec.get("clusterQueue") or ""
