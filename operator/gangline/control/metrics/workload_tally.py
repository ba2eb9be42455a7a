"""Counts Workloads by what their conditions say, and sees them become ready, finish, and lose their quota.

The counts follow from the objects alone, so they are right after a restart. A transition counts if this process saw the state
before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from typing import Any, Final, NamedTuple

from gangline.api import names
from gangline.api.read.configuration.metrics_settings import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD
from gangline.control.metrics.custom_labels import Values
from gangline.control.metrics.recording import FOLLOWER, KueueMetrics
from gangline.control.parts.part import Part
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, Resource
from gangline.objects import Stored, WorkloadObject

PENDING, RESERVED, ADMITTED, FINISHED = "pending", "reserved", "admitted", "finished"
#: reasons where the conditions are not there yet
_NO_RESERVATION, _NOT_EVALUATED = "NoReservation", "PendingEvaluation"
#: deleted Cohorts that are remembered
_MOST_DELETED: Final = 1_000
#: kinds whose series go with the object, and where their labels come from
_OWNERS: Final = {kube.CLUSTER_QUEUES: CLUSTER_QUEUE, kube.LOCAL_QUEUES: LOCAL_QUEUE, kube.COHORTS: COHORT}


class Facet(NamedTuple):
    """The facts of one Workload that metrics count. `why`: reason and cause of one that is not admitted. `queue`: whose quota it
    holds.
    """

    state: str
    local_queue: str
    why: tuple[str, str] | None
    queue: str
    ready: bool
    custom: Values


class WorkloadTally(Part):
    name = "metrics"
    kinds = (kube.WORKLOADS, *_OWNERS)

    def __init__(
        self,
        metrics: KueueMetrics,
        now: Callable[[], int],
        gone: Callable[[str], None] = lambda queue: None,
        cohorts: Callable[[], Collection[str]] | None = None,
    ) -> None:
        """Count for these metrics. `gone` is called for each ClusterQueue that was deleted; `cohorts` names all cohorts that
        there are.
        """
        self._metrics = metrics
        self._now = now
        self._gone = gone
        self._cohorts = cohorts
        self._regrouped = (
            False  # a queue or a Cohort has gone or changed: cohorts that were only named may be none any more
        )
        self._facets: dict[str, Facet] = {}
        self._labels: dict[tuple[Resource, str], Values] = {}
        #: deleted Cohorts, until a ClusterQueue or Cohort that names one changes: as in Kueue, nothing below is shown meanwhile
        self.deleted_cohorts: set[str] = set()
        self._generations: dict[tuple[Resource, str], int] = {}  # of ClusterQueues and Cohorts
        #: finished Workloads by LocalQueue
        self.finished: Counter[str] = Counter()
        #: Workloads that are not admitted, by LocalQueue, reason and cause
        self.unadmitted: Counter[tuple[str, str, str]] = Counter()

    def custom(self, workload: str) -> Values:
        """The values of the custom labels of a Workload."""
        facet = self._facets.get(workload)
        return facet.custom if facet is not None else self._metrics.custom.values(WORKLOAD, None)

    def observe(self, resource: Resource, event: Event) -> None:
        if resource == kube.WORKLOADS:
            self._observe_workload(event)
        elif isinstance(event, Removed):
            self._labels.pop((resource, event.key), None)
            self._metrics.forget(resource, event.key)
            self._regrouped |= resource != kube.LOCAL_QUEUES
            self._generations.pop((resource, event.key), None)
            if resource == kube.CLUSTER_QUEUES:
                self._gone(event.key)
            elif resource == kube.COHORTS:
                if len(self.deleted_cohorts) >= _MOST_DELETED:
                    self.deleted_cohorts.clear()
                self.deleted_cohorts.add(event.key)
        elif isinstance(event, Upsert):
            self._observe_labels(resource, event.obj)
            self._observe_cohort(resource, event.obj)

    def _observe_cohort(self, resource: Resource, obj: Stored) -> None:
        """Note a Cohort that is there again, or a changed ClusterQueue or Cohort that names one."""
        above = _NAMES_COHORT.get(resource)
        if above is None:
            return
        key, generation = obj.key, obj.generation
        if resource == kube.COHORTS:
            self._regrouped = True
            self.deleted_cohorts.discard(key)
        if self._generations.get((resource, key)) != generation:
            self._generations[resource, key] = generation
            self._regrouped = True
            self.deleted_cohorts.discard(obj.spec.get(above) or "")

    def _observe_labels(self, resource: Resource, obj: Stored) -> None:
        """Note the custom labels of an object. Other labels begin other series: as in Kueue, those before are not shown any more,
        but for the counters of Cohorts.
        """
        labels = self._metrics.custom.values(_OWNERS[resource], obj)
        if labels and self._labels.setdefault((resource, obj.key), labels) != labels:
            self._labels[resource, obj.key] = labels
            if resource != kube.COHORTS:
                self._metrics.forget(resource, obj.key)

    def act(self, now: int) -> None:
        """Begin the counters of a cohort anew when it is named again, also where nobody has looked meanwhile."""
        if self._regrouped and self._cohorts is not None:
            self._metrics.keep_cohorts(self._cohorts())
        self._regrouped = False

    def _observe_workload(self, event: Event) -> None:
        if isinstance(event, Removed):
            old = self._facets.pop(event.key, None)
            if old is not None:
                self._count(old, -1)
        elif isinstance(event, Upsert):
            key = event.obj.key
            old, new = self._facets.get(key), self._facet(event.obj)
            if old == new:
                return
            self._facets[key] = new
            self._count(new, 1)
            if old is not None:
                self._count(old, -1)
                self._record(event.obj, old, new)

    def _record(self, workload: WorkloadObject, old: Facet, new: Facet) -> None:
        if new.state == FINISHED and old.state != FINISHED:
            self._metrics.finished(workload)
        if new.state == PENDING and old.state in (RESERVED, ADMITTED):
            self._metrics.released(workload, old.queue, self._now())
        if new.ready and not old.ready and self._metrics.role != FOLLOWER:
            self._metrics.ready(workload, self._now())

    def _count(self, facet: Facet, by: int) -> None:
        if facet.state == FINISHED:
            _add(self.finished, facet.local_queue, by)
        if facet.why is not None:
            _add(self.unadmitted, (facet.local_queue, *facet.why), by)

    def _facet(self, workload: WorkloadObject) -> Facet:
        rows = {row["type"]: row for row in workload.conditions}
        state = next((state for kind, state in _STATES if rows.get(kind, _NONE).get("status") == "True"), PENDING)
        why = None
        if state not in (ADMITTED, FINISHED) and not workload.deleting:
            reserved = rows.get(names.QUOTA_RESERVED, _UNKNOWN)
            cause = "" if reserved.get("status") == "True" else reserved.get("reason", "")
            why = rows.get(names.ADMITTED, _NONE).get("reason", _NO_RESERVATION), cause
        ready = rows.get(names.PODS_READY, _NONE)
        return Facet(
            state,
            f"{workload.namespace}/{workload.queue_name}",
            why,
            workload.admitted_by,
            ready.get("status") == "True" and ready.get("reason") == "Started",
            self._metrics.custom.values(WORKLOAD, workload),
        )


#: the field that names the Cohort above
_NAMES_COHORT: Final = {kube.CLUSTER_QUEUES: "cohortName", kube.COHORTS: "parentName"}
_NONE: Final[Json] = {}
_UNKNOWN: Final[Json] = {"reason": _NOT_EVALUATED}
_STATES: Final = ((names.FINISHED, FINISHED), (names.ADMITTED, ADMITTED), (names.QUOTA_RESERVED, RESERVED))


def _add(counts: Counter[Any], key: Hashable, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]
