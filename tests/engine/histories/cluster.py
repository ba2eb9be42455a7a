"""A cluster that lives through a history: pods are bound, evictions complete, and decisions are carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.builders.engine import EngineWorld
from tests.engine.histories.chance import Chance
from tests.engine.histories.configuration import GPU, HOST, ZONE, Configuration
from tests.engine.histories.text import brief, moment
from tests.engine.states import check_states

from gangline.engine.model import (
    BoundPod,
    Decision,
    Evict,
    Gone,
    Heal,
    LocalQueue,
    Node,
    PodSet,
    Put,
    Warn,
    Workload,
    WorkloadPods,
    WriteFailed,
)


class Cluster(Chance, EngineWorld):
    """Carries out what the engine decides; a few writes are lost. `log` has a line for each fact and decision."""

    def __init__(self, configuration: Configuration) -> None:
        self.log: list[str] = []
        self.drawn, self.random = configuration, configuration.random
        self.pods: dict[str, list[BoundPod]] = {}
        self.serial = 0
        self.count = 0
        #: name -> how long it really runs, in seconds
        self.lengths: dict[str, int] = {}
        super().__init__(settings=configuration.settings)
        for item in (*configuration.ground, *configuration.nodes.values(), *configuration.queues.values()):
            self.tell(item)
        for name in configuration.queues:
            self.tell(LocalQueue("team", f"{name}-other", name, weight=2.0))

    def tell(self, item: Any) -> None:
        self.log.append(f"put {brief(item)}")
        self.put(item)

    def alter(self, workload: Workload, **values: Any) -> None:
        self.log.append(f"change {workload.name} {brief(values)}")
        self.change(workload.name, **values)

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self.engine._store.nodes

    # --- what the engine decides --------------------------------------------------------------------------------------

    def decide_and_carry_out(self) -> None:
        self.now += 1000
        room = self.between(0, 2) if self.chance(0.1) else None
        for decision in self.engine.decide(self.now, room):
            self.log.append(f"  {brief(decision)}")
            if isinstance(decision, Warn):
                self._warned(decision)
            elif self.chance(0.03):
                self.log.append("    the write is lost")
                self.engine.observe(WriteFailed(decision.workload))
            else:
                self.write(decision)
        check_states(self.engine)
        self.log.append(f"  next wake-up {moment(self.engine.next_wakeup(self.now))}")

    def _warned(self, warning: Warn) -> None:
        state = {"RanPastForecast": "Warned", "Overdue": "Overdue"}.get(warning.reason)
        if state and warning.about in self.workloads:
            self.put(replace(self.workloads[warning.about], overrun=state, overran=state == "Overdue"))

    def write(self, decision: Decision) -> None:
        super().write(decision)
        workload = self.workloads[decision.workload]
        match decision:
            case Heal(workload=key, how=how, lost=lost):
                self.put(
                    replace(
                        workload,
                        replaced=(*workload.replaced, (self.now, len(lost))),
                        avoid=(*workload.avoid, *lost),
                        healed_at=self.now,
                        pods_were_ready=True,
                    )
                )
                pods = self.pods.get(key, [])
                kept = [] if how == "Restart" else [pod for pod in pods if pod.node not in lost]
                self.pods[key] = [*kept, *(replace(pod, terminating=True) for pod in pods if pod not in kept)]
                self.report(key)
            case Evict(avoid=avoid) if avoid:
                self.put(replace(workload, avoid=avoid, healed_at=self.now))
            case _:
                if getattr(decision, "backfilled", False):
                    self.put(replace(workload, backfilled=True))

    def let_go(self) -> None:
        for name in self.evicted():
            self.drop_pods(f"team/{name}")
            workload = self.workloads[f"team/{name}"]
            self.put(
                replace(
                    workload,
                    backfilled=False,
                    pods_ready=False,
                    pods_were_ready=False,
                    overrun="",
                    stalled="",
                    refused_at=0,
                    unscheduled=None,
                )
            )
        self.complete_evictions()

    def report(self, key: str, failed: tuple[tuple[str, str], ...] = ()) -> None:
        footprint = WorkloadPods(key, tuple(self.pods[key]), failed)
        self.log.append(f"put {brief(footprint)}")
        self.engine.observe(Put(footprint))

    def drop_pods(self, key: str) -> None:
        if self.pods.pop(key, None) is not None:
            self.engine.observe(Gone(WorkloadPods, key))

    def bind(self) -> None:
        """Missing pods of what runs go where the assignment says, or onto the first nodes of the flavor with room."""
        if not self.drawn.on_nodes:
            return
        for key, workload in sorted(self.workloads.items()):
            if workload.admission is None or workload.evicted or not workload.admitted:
                continue
            before = list(self.pods.get(key, []))
            gone = [pod for pod in before if pod.node not in self.nodes or (pod.terminating and self.chance(0.6))]
            mine = [pod for pod in before if pod not in gone]
            for part, pod_set in zip(workload.admission.pod_sets, workload.pod_sets, strict=True):
                zone = "a" if part.flavors.get(GPU) == "a100" else "b"
                places = [name for name in sorted(self.nodes) if self.nodes[name].labels.get(ZONE) == zone]
                if part.topology is not None and part.topology.levels[-1] == HOST:
                    places = [each.values[-1] for each in part.topology.domains for _ in range(each.count)]
                missing = part.count - sum(pod.pod_set == part.name for pod in mine)
                for place in places:
                    while missing > 0 and place in self.nodes and self._has_room(place, pod_set, mine):
                        self.serial += 1
                        ready = self.chance(0.9)
                        mine.append(BoundPod(f"p{self.serial}", part.name, place, self.serial % 4, ready))
                        missing -= 1
            if mine != before:
                self.pods[key] = mine
                self.report(key)
            if workload.avoid and len(mine) == sum(part.count for part in workload.admission.pod_sets):
                self.alter(workload, avoid=(), pods_were_ready=False)

    def _has_room(self, name: str, pod_set: PodSet, mine: Sequence[BoundPod]) -> bool:
        node = self.nodes[name]
        used = pod_set.requests.get(GPU, 0)
        for key, pods in (*self.pods.items(), ("", mine)):
            sets = {each.name: each for each in self.workloads[key].pod_sets} if key in self.workloads else {}
            used += sum(sets.get(pod.pod_set, pod_set).requests.get(GPU, 0) for pod in pods if pod.node == name)
        return node.ready and not node.unschedulable and used <= node.allocatable.get(GPU, 0)
