"""The rows of the live view: a job, a queue, a node or a planned run, as plain values, and each as one asker may see it.

Two rows are equal where nothing changed that anybody could see. So nothing is in a row that changes by the mere passing of time,
such as how long a job has run: who shows it counts from the times that are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from gangline.control.answers.ahead.times import Times
from gangline.control.answers.desk import as_item
from gangline.control.answers.nodes import machines
from gangline.control.answers.nodes.machines import Machine
from gangline.control.answers.sight import Sight
from gangline.control.answers.usage import shares
from gangline.control.answers.workloads.snapshot import WorkloadView, named
from gangline.kube.resources import Json

JOBS: Final = "jobs"
QUEUES: Final = "queues"
NODES: Final = "nodes"
RUNS: Final = "runs"
TABLES: Final = (JOBS, QUEUES, NODES, RUNS)


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows that a watch is about. `queues`, `flavors`: None = all."""

    queues: frozenset[str] | None = None
    flavors: frozenset[str] | None = None


class LiveRow(Protocol):
    """One row. Rows are compared, so they are values."""

    @property
    def table(self) -> str: ...

    def is_in(self, scope: Scope) -> bool:
        """Whether a watch of this scope is about the row."""
        ...

    def as_json(self, sight: Sight, jobs: Mapping[str, str]) -> Json | None:
        """The row as the asker may see it; None if the asker may not know of it. `jobs`: names of jobs by the keys of their
        Workloads, for texts.
        """
        ...

    def is_personal(self, sight: Sight) -> bool:
        """Whether an asker who does not see everything sees more of the row than other askers. All others see the same, but for
        the name of its ClusterQueue.
        """
        ...

    @property
    def queue(self) -> str:
        """The ClusterQueue that the row names; "" if it names none."""
        ...


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job that waits or runs. `preemptor`: the job for which it was preempted."""

    view: WorkloadView
    times: Times
    preemptor: WorkloadView | None
    fallen_back: Json | None

    @property
    def table(self) -> str:
        return JOBS

    @property
    def queue(self) -> str:
        return self.view.cluster_queue

    def is_in(self, scope: Scope) -> bool:
        return scope.queues is None or self.view.cluster_queue in scope.queues

    def is_personal(self, sight: Sight) -> bool:
        return sight.sees(self.view.namespace)

    def as_json(self, sight: Sight, jobs: Mapping[str, str]) -> Json:
        shown = sight.workload(self.view)
        if self.preemptor is not None:
            (shown,) = named([shown], {self.preemptor.uid: sight.workload(self.preemptor).job})
        known = replace(self.times, because="" if shown.hidden else sight.text(self.times.because, jobs))
        return as_item(shown, known) | {"fallenBack": self.fallen_back}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A ClusterQueue, a LocalQueue or one of its users. `full_row`: the row for who sees everything."""

    full_row: Json
    queue: str

    @property
    def table(self) -> str:
        return QUEUES

    def is_in(self, scope: Scope) -> bool:
        return scope.queues is None or self.queue in scope.queues

    def is_personal(self, sight: Sight) -> bool:
        return self.full_row["level"] != shares.CLUSTER_QUEUE and sight.sees(self.full_row["namespace"])

    def as_json(self, sight: Sight, jobs: Mapping[str, str]) -> Json | None:
        return shares.seen_by(sight, self.full_row)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of at least one flavor."""

    machine: Machine

    @property
    def table(self) -> str:
        return NODES

    @property
    def queue(self) -> str:
        return ""

    def is_in(self, scope: Scope) -> bool:
        return scope.flavors is None or not scope.flavors.isdisjoint(self.machine.flavors)

    def is_personal(self, sight: Sight) -> bool:
        return any(sight.sees(each.namespace) for each in (*self.machine.occupants, *self.machine.awaited))

    def as_json(self, sight: Sight, jobs: Mapping[str, str]) -> Json:
        (seen,) = machines.seen_by(sight, [self.machine])
        return machines.as_json(seen)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in progress or an expected one. Times are seconds since the epoch; `number`: of the expected runs of a job, each but
    the last of which ends by an eviction; `after`: keys of the Workloads whose end lets it start; `latest_start`: p90; `nodes`:
    where its pods are now; `ends`: None where nobody knows; `reserved`: its start is reserved; `must_end_by`: of a backfilled
    run the reserved start that counts on its end.
    """

    workload: str
    number: int
    job: str
    job_kind: str
    user: str
    local_queue: str
    queue: str
    running: bool
    gpus: int
    began: float
    ends: float | None
    latest_start: float | None
    latest_end: float | None
    backfilled: bool
    reserved: bool
    must_end_by: float | None
    after: tuple[str, ...]
    nodes: tuple[str, ...]

    @property
    def table(self) -> str:
        return RUNS

    def is_in(self, scope: Scope) -> bool:
        return scope.queues is None or self.queue in scope.queues

    def is_personal(self, sight: Sight) -> bool:
        return sight.sees(self.workload.partition("/")[0])

    def as_json(self, sight: Sight, jobs: Mapping[str, str]) -> Json:
        namespace, _, name = self.workload.partition("/")
        seen = sight.sees(namespace)
        label = sight.label(self.workload)
        return {
            "metadata": {"namespace": namespace, "name": name} if seen else {"name": label},
            "hidden": not seen,
            "run": self.number,
            "job": self.job if seen else label,
            "jobKind": self.job_kind if seen else "",
            "user": self.user if seen else "",
            "queue": self.local_queue if seen else "",
            "clusterQueue": sight.queue_name(self.queue),
            "state": "Running" if self.running else "Pending",
            "gpus": self.gpus,
            "from": self.began,
            "to": self.ends,
            "fromLatest": self.latest_start,
            "toLatest": self.latest_end,
            "backfilled": self.backfilled,
            "reserved": self.reserved,
            "mustEndBy": self.must_end_by,
            "after": [sight.name(other, jobs) for other in self.after] if seen else [],
            "nodes": list(self.nodes),
        }
