"""Whatever opens room wakes all whom it could serve: a new engine with the same facts starts nothing that this one has not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.builders.engine import EngineWorld, group, of
from tests.examples import examples

from gangline.engine.model import (
    Admit,
    BoundPod,
    ClusterQueue,
    Cohort,
    Decision,
    Flavor,
    ForeignPod,
    Gone,
    Node,
    PodSet,
    PreemptionPolicy,
    Put,
    Recovery,
    Settings,
    Taint,
    Toleration,
    Topology,
    TopologyRequest,
    Workload,
    WorkloadPods,
    WriteFailed,
)

CPU = "cpu"
HOST, POOL, DISK = "kubernetes.io/hostname", "pool", "disk"
#: equal labels, narrower ones, with and without a topology: they all share nodes
SHARED = {POOL: "shared"}
FLAVORS = (
    Flavor("a", SHARED),
    Flavor("b", SHARED),
    Flavor("narrow", {**SHARED, DISK: "ssd"}),
    Flavor("placed", SHARED, topology="hosts"),
    Flavor("anywhere", topology="hosts"),
)
HOSTS = Topology("hosts", (HOST,))
NODES = ("n0", "n1", "n2")


def node(name: str, cpus: int = 8, *, pool: str = "shared", disk: str = "ssd", **fields: Any) -> Node:
    labels = {HOST: name, **({POOL: pool} if pool else {}), **({DISK: disk} if disk else {})}
    return Node(name, labels, {CPU: cpus, "pods": 110}, uid=f"uid-{name}", **fields)


def queue(name: str, *flavors: str, cpus: int = 24, **fields: Any) -> ClusterQueue:
    return ClusterQueue(name, groups=(group({flavor: {CPU: cpus} for flavor in flavors}),), **fields)


def job(name: str, queue: str, cpus: int, pods: int = 1, **fields: Any) -> Workload:
    created = fields.pop("created", 1_767_225_600_000 + 1000 * int("".join(filter(str.isdigit, name)) or 0))
    pod_set = PodSet("main", pods, {CPU: cpus}, **fields.pop("pod_set", {}))
    return Workload(f"uid-{name}", "team", name, queue, (pod_set,), created=created, **fields)


class Cluster(EngineWorld):
    """Decides until nothing is left to do."""

    def settle(self) -> list[Decision]:
        decisions = self.decide()
        while (due := self.engine.next_wakeup(self.now)) is not None and due <= self.now:
            decisions += self.decide()
        return decisions

    def missed(self) -> list[str]:
        return [each.workload for each in self.engine.missed_starts(self.now)]


# --- the cases that were seen ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flavor", "other"), [("a", "b"), ("a", "narrow"), ("narrow", "a"), ("placed", "a")])
@pytest.mark.parametrize("end", ["finish", "delete", "deactivate", "finish its pod"])
def test_queues_without_a_common_cohort_that_share_nodes(flavor: str, other: str, end: str) -> None:
    """`x` fills the node, `y` of another tree waits for it."""
    fixes = frozenset(
        {"PlacesOfFinishedPods"}
    )  # else, as in Kueue, these places stay taken until the whole job has ended
    world = Cluster(*FLAVORS, HOSTS, queue("qa", flavor, fixes=fixes), queue("qb", other), node("n0"))
    world.put(job("x", "qa", 6, pods=1))
    world.settle()
    world.put(job("y", "qb", 6))
    assert world.settle() and world.running() == ["x"]
    match end:
        case "finish":
            world.finish("x")
        case "delete":
            world.delete("x")
        case "deactivate":
            world.change("x", active=False)
            world.settle()
            world.complete_evictions()
        case _:
            world.change("x", reclaimable={"main": 1})
            world.put(WorkloadPods("team/x", ()))
    assert of(world.settle(), Admit) == ["y"]


@pytest.mark.parametrize("loss", ["the node is deleted", "the node loses its label"])
def test_the_last_node_of_a_flavor_goes(loss: str) -> None:
    """Flavors without nodes are bounded by quota alone."""
    world = Cluster(*FLAVORS, queue("qa", "a", cpus=16), node("n0"))
    world.put(job("x", "qa", 8, pods=2))
    assert not of(world.settle(), Admit)
    world.put(node("n0", pool="other")) if "label" in loss else world.engine.observe(Gone(Node, "n0"))
    assert of(world.settle(), Admit) == ["x"]


# --- any history ----------------------------------------------------------------------------------------------------------

QUEUES = (
    queue("alone", "a", cpus=12),
    queue("strict", "b", strategy="StrictFIFO"),
    queue("two", "narrow", "b", cohort="pool"),
    queue("other", "a", "b", cohort="pool", cpus=6, preemption=PreemptionPolicy("LowerPriority", "Any")),
    queue("hosts", "placed"),
    queue("all", "anywhere", "narrow"),
    queue("spare", "narrow", recovery=Recovery(spares=1, lend=True)),
)
NAMES = tuple(each.name for each in QUEUES)


class Histories(RuleBasedStateMachine):
    """Jobs, queues, flavors and nodes come, change and go."""

    fixes: frozenset[str] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        nodes = [node(name, disk="ssd" if name != "n2" else "") for name in NODES]
        self.world = Cluster(*FLAVORS, HOSTS, Cohort("pool"), *QUEUES, *nodes, settings=Settings(pods_ready=None))
        self.count = 0
        self.settled = False

    def put(self, *items: Any) -> None:
        self.settled = False
        self.world.put(*items)

    def draw_job(self, data: st.DataObject, *, holds: bool) -> Workload | None:
        those = sorted(each.key for each in self.world.workloads.values() if (each.admission is not None) == holds)
        return self.world.workloads[data.draw(st.sampled_from(those))] if those else None

    # --- jobs ---

    @rule(
        queue=st.sampled_from(NAMES),
        cpus=st.sampled_from((2, 3, 6, 8)),
        pods=st.integers(1, 3),
        priority=st.integers(0, 1),
        pod_set=st.sampled_from(
            ({}, {}, {"node_selector": {DISK: "ssd"}}, {"tolerations": (Toleration("t", "Exists"),)})
        ),
        within=st.sampled_from((None, None, TopologyRequest(required=HOST), TopologyRequest(preferred=HOST))),
    )
    def submit(
        self, queue: str, cpus: int, pods: int, priority: int, pod_set: dict[str, Any], within: TopologyRequest | None
    ) -> None:
        self.count += 1
        fields = {**pod_set, "topology": within if queue == "hosts" else None}
        self.put(job(f"w{self.count}", queue, cpus, pods, priority=priority, pod_set=fields))

    @rule(data=st.data(), how=st.sampled_from(("finish", "delete")))
    def end(self, data: st.DataObject, how: str) -> None:
        if (each := self.draw_job(data, holds=True)) is not None:
            self.settled = False
            self.world.engine.observe(Gone(WorkloadPods, each.key))
            getattr(self.world, how)(each.name)

    @rule(data=st.data(), holds=st.booleans())
    def delete_one(self, data: st.DataObject, holds: bool) -> None:
        if (each := self.draw_job(data, holds=holds)) is not None:
            self.settled = False
            self.world.delete(each.name)

    @rule(data=st.data(), holds=st.booleans(), active=st.booleans())
    def set_active(self, data: st.DataObject, holds: bool, active: bool) -> None:
        if (each := self.draw_job(data, holds=holds)) is not None:
            self.put(replace(each, active=active))

    @rule(data=st.data(), holds=st.booleans(), priority=st.integers(0, 2))
    def set_priority(self, data: st.DataObject, holds: bool, priority: int) -> None:
        if (each := self.draw_job(data, holds=holds)) is not None:
            self.put(replace(each, priority=priority))

    @rule(data=st.data(), queue=st.sampled_from(NAMES))
    def move(self, data: st.DataObject, queue: str) -> None:
        if (each := self.draw_job(data, holds=False)) is not None and each.pod_sets[0].topology is None:
            self.put(replace(each, queue=queue))

    @rule(data=st.data())
    def a_pod_finishes(self, data: st.DataObject) -> None:
        each = self.draw_job(data, holds=True)
        if each is not None and (done := each.reclaimable.get("main", 0) + 1) <= each.pod_sets[0].count:
            self.put(replace(each, reclaimable={"main": done}))

    @rule(data=st.data(), names=st.lists(st.sampled_from(NODES), max_size=3))
    def pods_are_seen(self, data: st.DataObject, names: Sequence[str]) -> None:
        if (each := self.draw_job(data, holds=True)) is not None:
            pods = tuple(BoundPod(f"{each.name}-{number}", "main", name, number) for number, name in enumerate(names))
            self.put(WorkloadPods(each.key, pods[: each.pod_sets[0].count]))

    @rule()
    def evictions_complete(self) -> None:
        self.settled = False
        for name in self.world.evicted():
            self.world.engine.observe(Gone(WorkloadPods, f"team/{name}"))
        self.world.complete_evictions()

    # --- the cluster ---

    @rule(
        name=st.sampled_from(NODES),
        cpus=st.sampled_from((4, 8, 8, 16)),
        pool=st.sampled_from(("shared", "shared", "other", "")),
        disk=st.sampled_from(("ssd", "")),
        tainted=st.sampled_from((False, False, True)),
        cordoned=st.sampled_from((False, False, True)),
        ready=st.sampled_from((True, True, True, False)),
    )
    def node_changes(
        self, name: str, cpus: int, pool: str, disk: str, tainted: bool, cordoned: bool, ready: bool
    ) -> None:
        taints = (Taint("t"),) if tainted else ()
        self.put(node(name, cpus, pool=pool, disk=disk, taints=taints, unschedulable=cordoned, ready=ready))

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.settled = False
        self.world.engine.observe(Gone(Node, name))

    @rule(name=st.sampled_from(NODES), cpus=st.integers(0, 8))
    def pod_of_others(self, name: str, cpus: int) -> None:
        self.settled = False
        pod = ForeignPod(f"others/{name}", name, {CPU: cpus})
        self.world.engine.observe(Put(pod) if cpus else Gone(ForeignPod, pod.key))

    @rule(
        flavor=st.sampled_from(FLAVORS),
        labels=st.sampled_from(({}, SHARED, {**SHARED, DISK: "ssd"}, {POOL: "other"})),
        topology=st.booleans(),
        autoscaled=st.sampled_from((False, False, True)),
    )
    def flavor_changes(self, flavor: Flavor, labels: dict[str, str], topology: bool, autoscaled: bool) -> None:
        used = any(each.admission is not None for each in self.world.workloads.values())
        topologies = flavor.topology if used else "hosts" if topology else ""
        self.put(replace(flavor, node_labels=labels, topology=topologies, autoscaled=autoscaled))

    @rule(queue=st.sampled_from(QUEUES), cpus=st.sampled_from((0, 6, 12, 24)), cohort=st.sampled_from(("", "pool")))
    def quota_changes(self, queue: ClusterQueue, cpus: int, cohort: str) -> None:
        groups = tuple(group({quotas.name: {CPU: cpus} for quotas in each.flavors}) for each in queue.groups)
        self.put(replace(queue, groups=groups, cohort=cohort))

    @rule(queue=st.sampled_from(QUEUES), policy=st.sampled_from(("None", "None", "Hold", "HoldAndDrain")))
    def stop(self, queue: ClusterQueue, policy: str) -> None:
        self.put(replace(queue, stop_policy=policy))

    @rule(seconds=st.sampled_from((1, 30, 600)))
    def time_passes(self, seconds: int) -> None:
        self.settled = False
        self.world.now += 1000 * seconds

    @rule(data=st.data())
    def a_write_is_lost(self, data: st.DataObject) -> None:
        decisions = [each for each in self.world.decide(lost=self.world.workloads) if isinstance(each, Admit)]
        for each in decisions:
            self.world.engine.observe(WriteFailed(each.workload))

    # --- what must hold ---

    @rule()
    def decide(self) -> None:
        self.world.settle()
        self.settled = True

    @invariant()
    def nothing_is_missed(self) -> None:
        if self.settled:
            assert not self.world.missed()

    def teardown(self) -> None:
        self.world.settle()
        assert not self.world.missed()


TestHistories = Histories.TestCase
TestHistories.settings = examples(60, stateful_step_count=40)
