"""Pods that the scheduler can't bind to the node that they were sent to: for how long that is tolerated.

The room that the engine keeps for a pod may be another's all the same: pods of others come first, and the scheduler knows rules
that the engine does not (ports, affinity between pods, resources that somebody else claims). A refusal counts once it has lasted
longer than two of the scheduler's tries: what is only slow, such as a pod of others that ends, is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.engine.model import BoundPod, Millis
from gangline.engine.nodes.pod_locations import PodLocations
from gangline.engine.queues.workload_state import WorkloadState

#: So long a pod may be refused before the engine acts, in milliseconds. The scheduler waits up to 10 s before it tries again.
TOLERATED: Final = 20_000
#: A gang that is sent back to its queue waits before it is tried again: at first so long, then twice as long each time.
FIRST_PAUSE: Final = 30_000
LONGEST_PAUSE: Final = 600_000
#: the cause where a pod can't be bound to its node
UNSCHEDULABLE: Final = "Unschedulable"


class UnboundPods:
    """Watches which pods are refused, and since when that is known."""

    def __init__(self, pods: PodLocations) -> None:
        self._pods = pods
        #: workload and pod -> since when
        self._since: dict[tuple[str, str], Millis] = {}
        #: workloads with pods that have been refused for too long
        self.overdue: frozenset[str] = frozenset()

    def watch(self, now: Millis) -> None:
        refused = ((key, pod.name) for key, pods in self._pods.refused().items() for pod in pods)
        self._since = {each: self._since.get(each, now) for each in refused}
        self.overdue = frozenset(key for (key, _), since in self._since.items() if since + TOLERATED <= now)

    def next_due(self) -> Millis | None:
        return min((since + TOLERATED for since in self._since.values()), default=None)

    def under(self, gang: WorkloadState, now: Millis) -> Mapping[str, tuple[BoundPod, Millis]]:
        """The nodes to which pods of the gang have not been bound for too long, with the first such pod, and since when.

        Nodes that the gang was moved off already, perhaps by another process, are left out: its pods there are about to go.
        """
        found: dict[str, tuple[BoundPod, Millis]] = {}
        gang.nodes.set_refusing(gang.nodes.refusing & {pod.node for pod in self._pods.refused().get(gang.key, ())})
        for pod in self._pods.refused().get(gang.key, ()):
            since = self._since.get((gang.key, pod.name), now)
            moved = pod.node in gang.nodes.refusing or (
                pod.node in gang.workload.avoid and since <= gang.workload.healed_at
            )
            if since + TOLERATED <= now and not moved:
                found.setdefault(pod.node, (pod, since))
        return found


def pause(count: int) -> Millis:
    """How long a gang waits that was sent back for the `count`th time."""
    return min(LONGEST_PAUSE, FIRST_PAUSE << min(count - 1, 16))
