"""Holds the quota of Workloads that were deleted or have finished while their pods still run, until the last pod has ended.

Usually a Workload stays until then: the operator's finalizer keeps it. But a user may remove the finalizer, and a JobSet may
complete before its last pods do. Then the engine observes an evicted gang in the Workload's place, under a name that no object
can have. Only processes that saw the Workload depart know of it.

It is looked at when its pods change, those that claim to be its own, or their nodes; and every `AGAIN` until its job has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from gangline.api.read import parse
from gangline.control.feed.pod import Pod, read_pod
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.kernel.context import Context
from gangline.control.nodes.recovery.fencing import out_of_reach_since
from gangline.control.parts.changed_keys import KeySet
from gangline.control.parts.messages import WorkloadDeparted
from gangline.control.parts.part import Part
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Resource
from gangline.objects import WorkloadObject

#: the eviction reason of such a gang
DEPARTED: Final = "WorkloadDeparted"
#: after this time it is looked again whether a job has stopped, in milliseconds
AGAIN: Final = 1_000


@dataclass(slots=True)
class _Remnant:
    """A departed Workload, and the uids of its pods, to which its job may add until it has stopped."""

    workload: WorkloadObject
    pods: set[str] = field(default_factory=set[str])
    stopped: bool = False
    #: where they are, and when it was last looked at
    nodes: set[str] = field(default_factory=set[str])
    looked_at: model.Millis = 0


class DepartedWorkloads(Part):
    """Holds the quota of departed Workloads until their last pod has ended.

    `observe` receives the engine's facts; `pending` says whether one of our writes to an object is in flight.
    """

    name = "departed"

    def __init__(
        self, context: Context, pending: Callable[[Resource, str], bool], observe: Callable[[model.Change], None]
    ) -> None:
        self._mirror = context.mirror
        self._pods = context.pods
        self._owners = context.owners
        self._pending = pending
        self._observe = observe
        self._quarantine = context.quarantine
        self._now = context.now
        self._remnants: dict[str, _Remnant] = {}  # by the engine's key for it
        self._of: dict[str, dict[str, None]] = {}  # Workload -> its remnants, by that key
        self._running_jobs: dict[str, None] = {}  # remnants whose job has not stopped
        self._changed: KeySet[str] = context.pods.changed.subscribe(worth=self._of.__contains__)
        context.owners.changed.feed(self._changed)
        self._changed_nodes: KeySet[str] = context.mirror.changes.nodes.subscribe(
            worth=lambda node: bool(self._remnants)
        )
        self._waiting: dict[str, None] = {}  # remnants to be looked at
        context.mirror.messages.subscribe(
            WorkloadDeparted, lambda message: self.departed(message.workload, context.now())
        )

    def settle(self) -> None:
        """Look at what has changed, in turn."""
        changed, nodes, now = self._changed.take(), self._changed_nodes.take(), self._now()
        if not self._remnants:
            return
        look = {name for key in changed for name in self._of.get(key, ())} | self._waiting.keys()
        if nodes:
            look |= {name for name, left in self._remnants.items() if not left.nodes.isdisjoint(nodes)}
        look |= {name for name in self._running_jobs if self._remnants[name].looked_at + AGAIN <= now}
        self._waiting = {}
        for name in self._quarantine.in_turn(sorted(look), self._put_back):
            key = self._remnants[name].workload.key
            self._quarantine.attempt("keeping its quota", kube.WORKLOADS, key, partial(self._look, name, now))
        self.due = now + AGAIN if self._running_jobs else None

    def _put_back(self, names: Iterable[str]) -> None:
        self._waiting.update(dict.fromkeys(names))

    def departed(self, workload: WorkloadObject, now: model.Millis) -> None:
        """Hold the quota of a Workload (its last state) that holds none itself any more. Raises ParseError where its former quota
        cannot be read.
        """
        left = _Remnant(workload)
        held = parse.holding(workload) if self._still_holds(left) else None
        if held is not None:
            gang = replace(held, name=f"{held.name}#{held.uid}", evicted=DEPARTED, evicted_at=now)
            self._remnants[gang.key] = left
            self._of.setdefault(workload.key, {})[gang.key] = None
            left.looked_at = now
            if not left.stopped:
                self._running_jobs[gang.key] = None
            self._observe(model.Put(gang))

    def _look(self, name: str, now: model.Millis) -> None:
        """Release the quota if the last pod has ended."""
        left = self._remnants[name]
        left.looked_at = now
        holds = self._still_holds(left)
        if left.stopped or not holds:
            self._running_jobs.pop(name, None)
        if not holds:
            del self._remnants[name]
            same = self._of[left.workload.key]
            del same[name]
            if not same:
                del self._of[left.workload.key]
            self._observe(model.Gone(model.Workload, name))

    def pods_of(self, workload: str) -> list[Pod]:
        """The pods that are of this Workload, and the bound ones that claim to be: the owners that would prove it may be gone."""
        claimants = (read_pod(pod, workload) for pod in self._owners.claimants(workload))
        return [*self._pods.of(workload), *(pod for pod in claimants if pod.node)]

    def runs(self, workload: str) -> bool:
        """Whether a pod of this Workload, proven or not, runs or may yet run."""
        return bool(self._running(self.pods_of(workload)))

    def _still_holds(self, left: _Remnant) -> bool:
        key, job = left.workload.key, left.workload.controller_uid
        of_job = (pod for pod in self._owners.claimants(key) if left.stopped or job in self._mirror.controllers_of(pod))
        claimants = [read_pod(pod, key) for pod in of_job]
        pods = [*self._pods.of(key), *claimants]
        left.nodes = {pod.node for pod in pods if pod.node and not pod.ended}
        running = {pod.uid for pod in self._running(pods)}
        if not left.stopped:
            left.pods |= running
            left.stopped = self._stopped(left.workload)
        return not left.stopped or not left.pods.isdisjoint(running)

    def _stopped(self, workload: WorkloadObject) -> bool:
        """Whether the job starts no more pods: it was deleted, has finished or is suspended."""
        ref = self._mirror.job_of(workload)
        job = self._mirror.job(ref) if ref is not None else None
        if ref is None or job is None:
            return True
        kind = JOB_KINDS[ref[0]]
        if kind.finished(job) is not None:
            return True
        held = kind.is_suspended(job) and not self._pending(*ref)
        return held and not kind.is_active(job, self._mirror.children_of(job))

    def _running(self, pods: Iterable[Pod]) -> list[Pod]:
        """The pods that have not ended and are not on unreachable nodes."""
        nodes = self._mirror.nodes
        unreachable = {
            node for node in {pod.node for pod in pods} if node and out_of_reach_since(nodes.get(node)) is not None
        }
        return [pod for pod in pods if not pod.ended and pod.node not in unreachable]
