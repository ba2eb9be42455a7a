"""Quota of Workloads that are gone while their pods still run: it is held until the last of these has ended.

Mostly a Workload stays until then: the operator's finalizer keeps it. But somebody may take the finalizer off, and a JobSet may
be complete before its last pods are. Then the engine is told of a gang on its way out in the Workload's place, under a name that
no object can have. Only processes that saw the Workload go know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from gangline.api import parse
from gangline.control.fencing import out_of_reach_since
from gangline.control.footprints import Footprints, GangPod
from gangline.engine import model
from gangline.kube.resources import key_of

Json: TypeAlias = dict[str, Any]
#: why such a gang is on its way out
DEPARTED: Final = "WorkloadDeparted"


@dataclass(frozen=True, slots=True)
class _Remnant:
    """What is left of a Workload: the uids of its pods."""

    workload: str
    pods: frozenset[str]


@dataclass(slots=True)
class Outliving:
    """`observe` receives the engine's facts; `node_of` finds a node by its name."""

    footprints: Footprints
    node_of: Callable[[str], Json | None]
    observe: Callable[[model.Change], None]
    _remnants: dict[str, _Remnant] = field(default_factory=dict[str, _Remnant])  # by the engine's name for it

    def departed(self, workload: Json, now: model.Millis) -> None:
        """The Workload, as it was, holds quota no more. Raises ParseError where what it held can't be read."""
        key = key_of(workload)
        pods = frozenset(pod.uid for pod in self.running(self.footprints.of(key)))
        held = parse.holding(workload) if pods else None
        if held is not None:
            gang = replace(held, name=f"{held.name}#{held.uid}", evicted=DEPARTED, evicted_at=now)
            self._remnants[gang.key] = _Remnant(key, pods)
            self.observe(model.Put(gang))

    def look(self) -> None:
        """Give back the quota of those whose last pod has gone."""
        for name, left in list(self._remnants.items()):
            if not any(pod.uid in left.pods for pod in self.running(self.footprints.of(left.workload))):
                del self._remnants[name]
                self.observe(model.Gone(model.Workload, name))

    def running(self, pods: Iterable[GangPod]) -> list[GangPod]:
        """Those that run or may yet: they have not ended, and no node out of reach has them."""
        nodes = {node: out_of_reach_since(self.node_of(node)) for node in {pod.node for pod in pods} if node}
        return [pod for pod in pods if not pod.ended and nodes.get(pod.node) is None]
