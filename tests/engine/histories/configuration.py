"""Configurations, drawn at random within a theme: settings, flavors, nodes, cohorts and queues with their policies."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

from tests.builders.engine import GPU, group
from tests.engine.histories.chance import Chance

from gangline.engine.model import (
    FIXES,
    AdmissionCheck,
    AdmissionFairSharing,
    Backfill,
    CheckpointPreemption,
    CheckRef,
    ClusterQueue,
    Cohort,
    FairSharing,
    Flavor,
    Fungibility,
    HealthPolicy,
    Node,
    Ordering,
    Overrun,
    PodsReadyPolicy,
    PreemptionPolicy,
    Quota,
    Recovery,
    Settings,
    Taint,
    Topology,
    VictimPolicy,
)

THEMES: Final = ("quota", "fair", "planning", "backfill", "nodes", "slices", "topology")
HOST, RACK, BLOCK, ZONE = "kubernetes.io/hostname", "rack", "block", "zone"
CPU = "cpu"
CHECKS = ("budget", "capacity")


class Configuration(Chance):
    """What a cluster of this theme and number is configured with, and the source of all chance in its history."""

    def __init__(self, theme: str, number: int) -> None:
        self.theme = theme
        self.random = random.Random(f"{theme} {number}")
        self.settings = self._settings()
        planned_on_nodes = theme in ("planning", "backfill") and number % 2 == 1
        self.on_nodes = theme in ("nodes", "slices", "topology") or planned_on_nodes
        self.ground = list(self._ground())
        self.queues = {queue.name: queue for queue in self._queues()}
        self.nodes = {node.name: node for node in self._nodes()} if self.on_nodes else {}

    # --- what is configured -------------------------------------------------------------------------------------------

    def _settings(self) -> Settings:
        ready = PodsReadyPolicy(
            timeout_seconds=self.one_of((60, 300)),
            recovery_timeout_seconds=self.one_of((None, 30)),
            block_admission=self.chance(0.2),
            timestamp=self.one_of(("Eviction", "Creation")),
            backoff_limit=self.one_of((None, 2)),
            backoff_base_seconds=self.one_of((10, 60)),
            backoff_max_seconds=240,
        )
        usage = AdmissionFairSharing(self.one_of((0.0, 600.0)), self.one_of((10.0, 300.0)), {CPU: 0.01})
        return Settings(
            fair_sharing=self.one_of((FairSharing(), FairSharing(("LessThanInitialShare",))))
            if self.theme == "fair"
            else None,
            admission_fair_sharing=usage if self.theme == "fair" and self.chance(0.5) else None,
            pods_ready=ready if self.theme in ("quota", "fair", "topology") and self.chance(0.6) else None,
            fixes={"*": self.one_of((frozenset(), FIXES))},
            health=self.one_of((HealthPolicy(), HealthPolicy({"DiskSick": "Lost"}, {"NotReady": 20.0}))),
            gates={gate: self.chance(0.5) for gate in ("TASBalancedPlacement", "TASRespectNodeAffinityPreferred")},
        )

    def _ground(self) -> Iterable[Any]:
        yield from (AdmissionCheck(name) for name in CHECKS)
        if self.theme == "topology":
            yield Topology("racks", (BLOCK, RACK, HOST) if self.chance(0.7) else (BLOCK, RACK))
            yield Flavor("a100", {ZONE: "a"}, topology="racks")
            yield Flavor("h100", {ZONE: "b"}, topology="racks" if self.chance(0.5) else "")
        elif self.on_nodes:
            yield Flavor("a100", {ZONE: "a"})
            yield Flavor("h100", {ZONE: "b"}, taints=(Taint("fast"),), autoscaled=self.chance(0.2))
        else:
            yield Flavor("a100", {ZONE: "a"} if self.chance(0.3) else {})
            yield Flavor("h100", taints=(Taint("fast"),) if self.chance(0.5) else ())
        yield Cohort("top", "", (group({"a100": {GPU: self.between(0, 4)}}),), weight=1.0)
        yield Cohort("left", "top")
        yield Cohort("right", "top", (group({"a100": {GPU: Quota(4, 2, 3)}}),), weight=self.one_of((1.0, 3.0)))

    def _queues(self) -> Iterable[ClusterQueue]:
        for name, cohort in (("q0", "left"), ("q1", "left"), ("q2", "right"), ("q3", "")):
            yield self.queue(name, cohort)

    def queue(self, name: str, cohort: str) -> ClusterQueue:
        limit = self.one_of((None, None, 4, 8)) if cohort else None
        lend = self.one_of((None, None, 2, 6)) if cohort else None
        first = {GPU: Quota(self.between(5, 12), limit, lend), CPU: Quota(64_000)}
        second = {GPU: Quota(self.between(0, 8), limit, None), CPU: Quota(32_000)}
        flavors = {"a100": first, "h100": second} if self.chance(0.6) else {"a100": first}
        more: dict[str, Any] = {}
        if self.theme == "backfill" or (self.theme == "planning" and self.chance(0.85)):
            more |= {"backfill": self._backfill(), "ordering": self._ordering(), "overrun": self._overrun()}
        if self.theme in ("slices", "nodes") and self.chance(0.3):
            more |= {"backfill": self._backfill(), "ordering": self._ordering()}
        if self.on_nodes:
            more["recovery"] = self._recovery()
        if self.theme in ("quota", "planning", "nodes") and self.chance(0.5):
            more["victims"] = VictimPolicy(
                self.one_of(("Kueue", "LeastLostWork", "FewestGangs")),
                self.one_of((None, 3)),
                self.one_of((None, 6)),
                self.one_of((0.0, 30.0, 120.0)),
                self.one_of((None, 1, 2)),
            )
        if self.theme == "fair" and self.settings.admission_fair_sharing:
            more["admission_mode"] = self.one_of(("", "UsageBasedAdmissionFairSharing"))
        if self.theme in ("quota", "fair", "topology") and self.chance(0.4):
            more["checks"] = (CheckRef("budget"), CheckRef("capacity", ("h100",)))[: self.between(1, 2)]
        return ClusterQueue(
            name,
            cohort=cohort,
            strategy=self.one_of(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            groups=(group(flavors),),
            fungibility=Fungibility(
                self.one_of(("MayStopSearch", "TryNextFlavor")),
                self.one_of(("MayStopSearch", "TryNextFlavor")),
                self.one_of(("", "BorrowingOverPreemption", "PreemptionOverBorrowing")),
            ),
            preemption=PreemptionPolicy(
                self.one_of(("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")),
                self.one_of(("Never", "Any", "Any", "LowerPriority")),
                self.one_of(("Never", "LowerPriority")),
                self.one_of((None, 1)),
            ),
            weight=self.one_of((1.0, 2.0, 0.0)) if self.theme == "fair" else 1.0,
            **more,
        )

    def _backfill(self) -> Backfill:
        rule = CheckpointPreemption(
            self.one_of((1.0, 3.0)),
            self.one_of((0.2, 2.0)),
            self.one_of((0.0, 30.0)),
            self.one_of((None, 0.3)),
            self.one_of((None, 2)),
        )
        budget = self.one_of((None, 0.01))
        return Backfill(
            depth=self.one_of((1, 2, 4)),
            candidates=self.one_of(("QueueOrder", "ShortestFirst", "LargestFirst", "BestFit", "AgedShortestFirst")),
            max_candidates=self.one_of((2, 1000)),
            running=self.one_of((0.5, 0.7)),
            candidate=self.one_of((0.5, 0.9)),
            revoke=self.one_of(("Never", "Overdue", "Any")),
            overdue_factor=self.one_of((0.5, 1.0, 2.0)),
            checkpoint_preemption=rule if self.chance(0.5) else None,
            loss_budget=budget,
            idle_share=self.one_of((None, 0.1, 0.5)),
        )

    def _ordering(self) -> Ordering | None:
        keys = ("Priority", "FairShare", "ShortestFirst", "AgedShortestFirst", "SmallestFirst", "HighestResponseRatio")
        return Ordering(
            self.one_of(keys),
            age_weight=self.one_of((2.0, 10.0)),
            age_cap_seconds=self.one_of((None, 600.0)),
            half_life_seconds=self.one_of((600.0, 7200.0)),
            max_wait_seconds=self.one_of((None, 900.0)),
            optimism=self.one_of((0.0, 0.75, 1.0)),
        )

    def _overrun(self) -> Overrun:
        action = self.one_of(("None", "Notify", "Requeue", "Deactivate"))
        return Overrun(self.one_of((0.5, 0.9)), self.one_of((1.0, 2.0)), action, self.one_of((0.0, 60.0)))

    def _recovery(self) -> Recovery:
        return Recovery(
            enabled=self.chance(0.9),
            spares=self.one_of((0, 0, 1)),
            spares_percent=self.one_of((0.0, 0.0, 20.0)),
            lend=self.chance(0.5),
            preempt_to_heal=self.chance(0.8),
            soak_seconds=self.one_of((0.0, 60.0)),
            swap_budget=self.one_of((1, 5)),
            breaker_share=self.one_of((0.3, 0.9)),
            proactive=self.chance(0.5),
        )

    def _nodes(self) -> Iterable[Node]:
        for zone, number in (("a", 8), ("b", 4)):
            for index in range(number):
                name = f"{zone}{index}"
                labels = {HOST: name, RACK: f"{zone}r{index // 2}", BLOCK: f"{zone}b{index // 4}", ZONE: zone}
                labels["disk"] = "ssd" if index % 2 else "hdd"
                taints = (Taint("fast"),) if zone == "b" and self.theme != "topology" else ()
                amounts = {GPU: 4, CPU: 32_000, "pods": 20}
                yield Node(name, labels, amounts, taints, uid=f"uid-{name}", capacity=amounts)
