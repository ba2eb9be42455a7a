"""What must hold at every moment of a soak, judged by what the API server says and by nothing else.

- No workload is admitted twice: a reservation changes only by way of an eviction.
- No workload vanishes before it is finished, and none comes back to life.
- At rest, the status of every queue says exactly what its workloads add up to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gangline.api import names, quantity
from gangline.api.read import conditions, parse
from gangline.kube.resources import Json, key_of

#: (flavor, resource) -> amount in engine units
Usage: TypeAlias = Counter[tuple[str, str]]

_FIGURES = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
_USAGES = ("flavorsReservation", "flavorsUsage")


@dataclass(frozen=True, slots=True)
class Standing:
    """What one Workload says of itself."""

    uid: str
    queue: str = ""  # ClusterQueue of its reservation, "" = none
    since: str = ""  # of QuotaReserved
    usage: Usage = field(default_factory=Counter)
    admitted: bool = False
    evictions: int = 0
    finished: bool = False

    @classmethod
    def of(cls, workload: Json) -> Standing:
        status = workload.get("status") or {}
        rows = status.get("conditions")
        finished = conditions.is_true(rows, names.FINISHED)
        reserved = conditions.find(rows, names.QUOTA_RESERVED)
        evictions = sum(row.get("count", 0) for row in (status.get("schedulingStats") or {}).get("evictions", ()))
        uid = workload["metadata"]["uid"]
        if finished or reserved is None or reserved["status"] != "True" or "admission" not in status:
            return cls(uid, evictions=evictions, finished=finished)
        admission = parse.admission(status["admission"])
        usage: Usage = Counter()
        for pod_set in admission.pod_sets:
            for resource, flavor in pod_set.flavors.items():
                usage[flavor, resource] += pod_set.usage.get(resource, 0)
        return cls(
            uid,
            admission.cluster_queue,
            reserved["lastTransitionTime"],
            usage,
            conditions.is_true(rows, names.ADMITTED),
            evictions,
        )

    def same_reservation(self, other: Standing) -> bool:
        return (self.queue, self.since, self.usage) == (other.queue, other.since, other.usage)


class Ledger:
    """Follows the Workloads event by event. `violations` tells what should never have been."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.admissions = self.evictions = 0
        self._standing: dict[str, Standing] = {}

    @property
    def unfinished(self) -> list[str]:
        return [key for key, standing in self._standing.items() if not standing.finished]

    def upsert(self, workload: Json) -> None:
        key, now = key_of(workload), Standing.of(workload)
        before = self._standing.get(key, Standing(now.uid))
        if before.uid == now.uid:
            self._compare(key, before, now)
        self._standing[key] = now
        self.admissions += bool(now.queue) and not before.same_reservation(now)
        self.evictions += max(0, now.evictions - before.evictions)

    def remove(self, key: str) -> None:
        before = self._standing.pop(key, None)
        if before is not None and not before.finished:
            self._blame(f"{key} was lost: it is gone and had not finished")

    def _compare(self, key: str, before: Standing, now: Standing) -> None:
        if before.finished and not now.finished:
            self._blame(f"{key} was finished and no longer is")
        if before.queue and now.queue and not before.same_reservation(now) and before.evictions == now.evictions:
            self._blame(f"{key} was admitted twice: {before.queue} at {before.since}, {now.queue} at {now.since}")

    def _blame(self, text: str) -> None:
        self.violations.append(text)


# --- at rest ----------------------------------------------------------------------------------------------------------


def differences(workloads: Iterable[Json], queues: Iterable[Json], cluster_queue_of: Mapping[str, str]) -> list[str]:
    """Where the statuses of ClusterQueues and LocalQueues say otherwise than the Workloads. `cluster_queue_of` LocalQueues."""
    expected = _expected(workloads, cluster_queue_of)
    found: list[str] = []
    for queue in queues:
        key, status = key_of(queue), queue.get("status") or {}
        wanted = expected.get(key, {})
        for figure in _FIGURES:
            if status.get(figure, 0) != wanted.get(figure, 0):
                found.append(f"{key}: {figure} is {status.get(figure, 0)}, should be {wanted.get(figure, 0)}")
        for figure in _USAGES:
            said = _said(status.get(figure) or ())
            if +said != +wanted.get(figure, Counter()):
                found.append(f"{key}: {figure} is {dict(+said)}, should be {dict(+wanted.get(figure, Counter()))}")
    return found


def _expected(workloads: Iterable[Json], cluster_queue_of: Mapping[str, str]) -> dict[str, Json]:
    expected: dict[str, Json] = {}
    for workload in workloads:
        standing = Standing.of(workload)
        if standing.finished:
            continue
        local = f"{workload['metadata']['namespace']}/{workload['spec']['queueName']}"
        for key in (local, standing.queue or cluster_queue_of[local]):
            sums = expected.setdefault(key, {**dict.fromkeys(_FIGURES, 0), **{figure: Counter() for figure in _USAGES}})
            sums["pendingWorkloads"] += not standing.queue
            sums["reservingWorkloads"] += bool(standing.queue)
            sums["admittedWorkloads"] += standing.admitted
            sums["flavorsReservation"].update(standing.usage)
            if standing.admitted:
                sums["flavorsUsage"].update(standing.usage)
    return expected


def _said(rows: Iterable[Json]) -> Usage:
    """`[{name, resources: [{name, total}]}]` as amounts."""
    said: Usage = Counter()
    for row in rows:
        for entry in row.get("resources", ()):
            said[row["name"], entry["name"]] += quantity.parse(entry["total"], entry["name"])
    return said
