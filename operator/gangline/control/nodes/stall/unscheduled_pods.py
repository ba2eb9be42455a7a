"""Notices admitted gangs with pods for which the Kubernetes scheduler finds no node, and says so on their Workloads.

The Workload's condition PodsUnscheduled has the scheduler's words, and says since when. So a new operator goes on counting where
the last one ended. The engine reads it from there, and requeues the gang when it lasts too long.

A pod that waits at a gate is not the scheduler's yet. A pod that does not exist changes nothing: what was said before stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.control.feed.pod import Pod, by_obstacle
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.writes.status import run_changes
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.objects import WorkloadObject

#: Pods may be unscheduled for this long after the admission before that is said, in milliseconds: pods before them still end.
PATIENCE: Final = 10_000
#: A gang of which it was said is looked at again after this time, since a new pod may get a node at once, and nothing says that.
PERIOD: Final = 5_000
#: The scheduler's words change with every node; they are written again after this time, in milliseconds.
REFRESH: Final = 60_000
#: characters of the scheduler's words that are kept
LONGEST: Final = 512
#: the scheduler's words about a claim that does not exist, which the job has to bring
_NO_CLAIM: Final = ("persistentvolumeclaim", "resourceclaim"), "not found"


class UnscheduledPodsOfRuns(Reconciler[str]):
    name = "unscheduled pods"
    doing = "checking whether its pods are scheduled"

    def __init__(self, context: Context) -> None:
        super().__init__(context, context.pods.changed_unschedulable.subscribe(context.mirror.has(kube.WORKLOADS)))
        self._pods = context.pods
        self._engine = context.engine
        #: Workload -> when to look at it again
        self._later: dict[str, int] = {}
        #: Workload -> when its condition was written last
        self._written_at: dict[str, int] = {}

    def lead(self) -> None:
        self._changed.update(key for key, raw in self._mirror.workloads.items() if _said_of(raw) is not None)

    def _gather(self, now: int) -> None:
        for key in [key for key, at in self._later.items() if at <= now]:
            del self._later[key]
            self._changed.add(key)

    def _times(self) -> Iterable[int]:
        return self._later.values()

    def _reconcile(self, key: str, now: int) -> None:
        value, raw = self._mirror.workload_value(key), self._mirror.workloads.get(key)
        if value is None or raw is None or not _starts(value):
            self._written_at.pop(key, None)
            return
        if self._writes.in_doubt(kube.WORKLOADS, key):
            self._later[key] = now + PERIOD
            return
        living = [pod for pod in self._pods.of(key) if pod.alive]
        waiting = [pod for pod in living if pod.unschedulable and not pod.node and not pod.gated]
        said, total = _said_of(raw), max(_wanted(value), len(living))
        if waiting and now < value.admitted_at + PATIENCE:
            self._later[key] = value.admitted_at + PATIENCE
        elif waiting:
            self._later[key] = now + PERIOD
            if said is None or now >= self._written_at.get(key, 0) + REFRESH:
                self._say(key, now, waiting, total, said)
        elif said is None:
            self._written_at.pop(key, None)
        elif len(living) == total:
            self._change(key, key, run_changes.pods_unscheduled(False, ""))
        else:
            self._later[key] = now + PERIOD

    def _say(self, key: str, now: int, waiting: list[Pod], total: int, said: tuple[str, str] | None) -> None:
        (words, _), *_ = by_obstacle(waiting)
        words = bounded.printable(" ".join(words[:LONGEST].split()))
        by_job = _lacks_claim(words) or self._engine.matches_no_node(key)
        message = f"{len(waiting)} of {total} pods unscheduled: {words}"
        self._written_at[key] = now
        if said != (names.CAUSED_BY_JOB if by_job else names.UNSCHEDULABLE, message):
            self._change(key, key, run_changes.pods_unscheduled(by_job, message))


def _starts(value: model.Workload) -> bool:
    """Whether the workload runs, or is about to, and not all of its pods are ready."""
    return value.admitted and not (value.finished or value.evicted or value.pods_ready)


def _said_of(workload: WorkloadObject) -> tuple[str, str] | None:
    """Reason and message of PodsUnscheduled=True; None = it is not true."""
    row = workload.true_condition(names.PODS_UNSCHEDULED)
    return None if row is None else (str(row.get("reason")), str(row.get("message")))


def _wanted(value: model.Workload) -> int:
    """How many pods the workload has by its admission, without those that have ended for good."""
    pod_sets = value.admission.pod_sets if value.admission is not None else ()
    return sum(each.count - value.reclaimable.get(each.name, 0) for each in pod_sets)


def _lacks_claim(words: str) -> bool:
    kinds, missing = _NO_CLAIM
    return missing in words and any(kind in words.lower() for kind in kinds)
