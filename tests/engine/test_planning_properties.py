"""What must hold while starts are reserved: random histories of backfill, wrong forecasts, lost writes, nodes and restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from tests.builders.engine import GPU, cluster_queue
from tests.engine.twins import Twins
from tests.examples import examples

from gangline.engine.model import (
    Backfill,
    CheckpointPreemption,
    ClusterQueue,
    Flavor,
    Gone,
    Node,
    Ordering,
    PodSet,
    PreemptionPolicy,
    RuntimeForecast,
    Settings,
    Topology,
    TopologyRequest,
    VictimPolicy,
    Workload,
)
from gangline.engine.topology.topology_ledger import HOSTNAME

RECLAIM = PreemptionPolicy("LowerPriority", "Any")
TWICE = VictimPolicy(max_preemptions=2)
LENGTHS = (10, 60, 300, 3600)


class Plans(Twins):
    """Two queues that reserve and one that doesn't share a cohort; forecasts are as wrong as they can be."""

    policy = Backfill(revoke="Any")
    ordering: Ordering | None = None
    #: of 4 GPUs each; 0 = quota alone decides
    hosts = 0

    @initialize()
    def start(self) -> None:
        items: list[Any] = [self.queue("a", 8), self.queue("b", 4), self.queue("plain", 4)]
        if self.hosts:
            items = [
                Topology("hosts", (HOSTNAME,)),
                Flavor("a100", topology="hosts"),
                *map(self.host, range(self.hosts)),
                *items,
            ]
        self.live(*items, settings=Settings(pods_ready=None))

    def queue(self, name: str, gpus: int) -> ClusterQueue:
        fields = {} if name == "plain" else {"backfill": self.policy, "ordering": self.ordering}
        return cluster_queue(name, gpus, "pool", preemption=RECLAIM, victims=TWICE, **fields)

    def host(self, number: int) -> Node:
        return Node(f"n{number}", {HOSTNAME: f"n{number}"}, {GPU: 4, "pods": 100})

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(
        queue=st.sampled_from(("a", "b", "plain")),
        gpus=st.integers(1, 4),
        pods=st.integers(1, 3),
        priority=st.integers(0, 1),
        length=st.none() | st.sampled_from(LENGTHS),
        checkpoint=st.sampled_from((None, 20)),
    )
    def submit(
        self, queue: str, gpus: int, pods: int, priority: int, length: int | None, checkpoint: int | None
    ) -> None:
        self.count += 1
        name = f"w{self.count}"
        request = TopologyRequest(unconstrained=True) if self.hosts else None
        pod_sets = (PodSet("main", pods, {GPU: gpus}, topology=request),)
        created = self.world.now
        workload = Workload(
            f"uid-{name}",
            "team",
            name,
            queue,
            pod_sets,
            priority=priority,
            created=created,
            checkpoint_seconds=checkpoint,
        )
        if length is not None:
            self.foresee(name, length)
        self.both("put", workload)

    def foresee(self, name: str, length: int) -> None:
        quantiles = ((0.1, length * 250), (0.5, length * 1000), (0.9, length * 3000))
        self.both("put", RuntimeForecast(f"team/{name}", quantiles, "Model", 9))

    @precondition(lambda self: bool(self.all))
    @rule(data=st.data(), length=st.sampled_from(LENGTHS))
    def forecast_anew(self, data: st.DataObject, length: int) -> None:
        self.foresee(data.draw(st.sampled_from(sorted(each.name for each in self.all))), length)

    @precondition(lambda self: bool(self.world.running()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.done(data.draw(st.sampled_from(self.world.running())))

    @precondition(lambda self: bool(self.all))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.both("delete", data.draw(st.sampled_from(sorted(each.name for each in self.all))))

    @rule(queue=st.sampled_from(("a", "b")), gpus=st.integers(4, 10))
    def change_quota(self, queue: str, gpus: int) -> None:
        self.both("put", self.queue(queue, gpus))

    @precondition(lambda self: self.hosts)
    @rule(number=st.integers(0, 3), there=st.booleans())
    def change_node(self, number: int, there: bool) -> None:
        for world in (self.world, self.twin):
            if there:
                world.put(self.host(number))
            else:
                world.engine.observe(Gone(Node, f"n{number}"))

    @rule(seconds=st.sampled_from((1, 10, 100, 1000)))
    def time_passes(self, seconds: int) -> None:
        self.pass_time(seconds)

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def the_promise_is_kept(self) -> None:
        """No reserved head starts later because of backfill (revoke Any), or of backfill that is overdue (Overdue)."""
        if hasattr(self, "world"):
            kept = {"Any": "backfill", "Overdue": "overdue"}.get(self.policy.revoke)
            for queue, delays in self.world.engine.head_delay_seconds().items():
                assert not delays.get(kept or "", 0), (queue, delays)

    def teardown(self) -> None:
        """With all quota and nodes back, each gang finishes exactly once."""
        if not hasattr(self, "world"):
            return
        for name, gpus in (("a", 12), ("b", 12)):
            self.both("put", self.queue(name, gpus))
        for number in range(self.hosts):
            self.both("put", self.host(number))
        for _ in range(6 * len(self.all) + 8):
            self.pass_time(100)
            self.carry_out(self.decisions())
            self.both("complete_evictions")
            self.carry_out(self.decisions())
            self.both("complete_evictions")
            if running := self.world.running():
                self.done(running[0])
            if not self.all:
                return
        raise AssertionError(f"never came to run: {[each.key for each in self.all]}")


class OverduePlans(Plans):
    policy = Backfill(depth=2, candidates="ShortestFirst", revoke="Overdue", overdue_factor=1.0)
    ordering = Ordering("AgedShortestFirst", 5.0, 57_600.0, optimism=0.75)


class PaidPlans(OverduePlans):
    """Heads hold others back only once their wait pays for it."""

    policy = replace(OverduePlans.policy, idle_share=0.2)


class GivingWayPlans(Plans):
    policy = Backfill(
        revoke="Overdue",
        overdue_factor=0.25,
        checkpoint_preemption=CheckpointPreemption(3.0, 0.5, 30.0, longer_than_backfilled=0.3, max_preemptions=3),
    )
    ordering = Ordering("AgedShortestFirst", 5.0, 57_600.0, optimism=0.75)


class PlacedPlans(GivingWayPlans):
    hosts = 4


TestPlans = Plans.TestCase
TestOverduePlans = OverduePlans.TestCase
TestPaidPlans = PaidPlans.TestCase
TestGivingWayPlans = GivingWayPlans.TestCase
TestPlacedPlans = PlacedPlans.TestCase
for case in (TestPlans, TestOverduePlans, TestPaidPlans, TestGivingWayPlans, TestPlacedPlans):
    case.settings = examples(20, stateful_step_count=40)
del case
