"""Quota of Workloads that are gone while their pods still run: it is held until the last of these has ended.

Mostly a Workload stays until then: the operator's finalizer keeps it. But somebody may take the finalizer off, and a JobSet may
be complete before its last pods are. Then the engine is told of a gang on its way out in the Workload's place, under a name that
no object can have. Only processes that saw the Workload go know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from gangline.api.read import parse
from gangline.control.mirror.mirror import JOB_KINDS, Mirror, controller_uid
from gangline.control.mirror.pod_index import Footprints, GangPod, gang_pod
from gangline.control.mirror.pod_owners import PodOwners
from gangline.control.recovery.fencing import out_of_reach_since
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Resource, key_of

Json: TypeAlias = dict[str, Any]
#: why such a gang is on its way out
DEPARTED: Final = "WorkloadDeparted"


@dataclass(slots=True)
class _Remnant:
    """What is left of a Workload: the uids of its pods, to which its job may add until it has been stopped."""

    workload: Json
    pods: set[str] = field(default_factory=set[str])
    stopped: bool = False


@dataclass(slots=True)
class Outliving:
    """`observe` receives the engine's facts; `pending` says whether a write of ours to an object is under way."""

    mirror: Mirror
    footprints: Footprints
    owners: PodOwners
    pending: Callable[[Resource, str], bool]
    observe: Callable[[model.Change], None]
    _remnants: dict[str, _Remnant] = field(default_factory=dict[str, _Remnant])  # by the engine's name for it

    def departed(self, workload: Json, now: model.Millis) -> None:
        """The Workload, as it was, holds quota no more. Raises ParseError where what it held can't be read."""
        left = _Remnant(workload)
        held = parse.holding(workload) if self._still_holds(left) else None
        if held is not None:
            gang = replace(held, name=f"{held.name}#{held.uid}", evicted=DEPARTED, evicted_at=now)
            self._remnants[gang.key] = left
            self.observe(model.Put(gang))

    def names(self) -> list[tuple[str, str]]:
        """Under which name each is known to the engine, and the key of the Workload that it was."""
        return [(name, key_of(left.workload)) for name, left in self._remnants.items()]

    def look(self, name: str) -> None:
        """Give back its quota if its last pod has gone."""
        if not self._still_holds(self._remnants[name]):
            del self._remnants[name]
            self.observe(model.Gone(model.Workload, name))

    def runs(self, workload: str) -> bool:
        """A pod runs, or may yet, that says it is of this Workload; its owners may have gone, by which it could prove it."""
        claimants = (gang_pod(pod) for pod in self.owners.claimants(workload))
        bound = [pod for pod in claimants if pod is not None and pod.node]
        return bool(self._running([*self.footprints.of(workload), *bound]))

    def _still_holds(self, left: _Remnant) -> bool:
        key, job = key_of(left.workload), controller_uid(left.workload)
        of_job = (pod for pod in self.owners.claimants(key) if left.stopped or job in self.mirror.controllers_of(pod))
        claimants = [pod for pod in map(gang_pod, of_job) if pod is not None]
        running = {pod.uid for pod in self._running([*self.footprints.of(key), *claimants])}
        if not left.stopped:
            left.pods |= running
            left.stopped = self._stopped(left.workload)
        return not left.stopped or not left.pods.isdisjoint(running)

    def _stopped(self, workload: Json) -> bool:
        """Its job starts no pods any more: it is gone, over or suspended."""
        ref = self.mirror.job_of(workload)
        job = self.mirror.get(*ref) if ref is not None else None
        if ref is None or job is None:
            return True
        kind = JOB_KINDS[ref[0]]
        if kind.finished(job) is not None:
            return True
        held = kind.is_suspended(job) and not self.pending(*ref)
        return held and not kind.is_active(job, self.mirror.children_of(job))

    def _running(self, pods: Iterable[GangPod]) -> list[GangPod]:
        """Those that have not ended and are not on nodes out of reach."""
        nodes = self.mirror.objects[kube.NODES]
        away = {node for node in {pod.node for pod in pods} if node and out_of_reach_since(nodes.get(node)) is not None}
        return [pod for pod in pods if not pod.ended and pod.node not in away]
