"""What must hold however nodes fail: random histories of gangs and nodes, with a cluster that does what the engine decides."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.builders.engine import gang
from tests.engine.node_world import FLAVOR, POOL, TPU, NodeWorld, node, plain, pools, queue, slices
from tests.examples import examples

from gangline.engine.model import (
    Admit,
    Decision,
    Evict,
    Flavor,
    Heal,
    PodSet,
    Preempt,
    Recovery,
    ReportPending,
    Taint,
    Topology,
    TopologyRequest,
    Warn,
    WriteFailed,
)
from gangline.engine.topology.placement_request import hosts_of
from gangline.engine.topology.topology_ledger import HOSTNAME

#: a breaker that never opens: here half of everything fails all the time
POLICY = Recovery(soak_seconds=5, swap_budget=1_000, breaker_share=1.0)
SIZE = 2
VACATE = Taint("gangline.io/vacate")


def in_order(decisions: list[Decision]) -> list[Decision]:
    """The decisions, with the reports that equal workloads get from one of them last: those come in any order."""
    equal = [each for each in decisions if isinstance(each, ReportPending) and each.by_equivalence]
    return [each for each in decisions if each not in equal] + sorted(equal, key=lambda each: each.workload)


class Failures(RuleBasedStateMachine):
    """Gangs come and finish, nodes fail, go, return, in any order; the operator is killed and started again."""

    pools = 3
    quota = 100
    #: pods go exactly where the engine keeps room for them; otherwise a scheduler of its own mind puts them somewhere
    follow_seats = True
    chips: tuple[int, ...] = (4,)
    #: pods that are to go take their time
    linger = False

    @initialize()
    def start(self) -> None:
        facts = (*pools(self.pools, SIZE), queue(self.quota, recovery=POLICY))
        self.world = NodeWorld(*facts, follow_seats=self.follow_seats, linger=self.linger)
        self.twin = NodeWorld(*facts, follow_seats=self.follow_seats, linger=self.linger)
        self.count = 0
        self.names = {n.name: n for n in pools(self.pools, SIZE)}
        self.serial = 0
        self.finished: list[str] = []
        self.submitted: list[str] = []

    def both(self, what: str, *arguments: Any, **fields: Any) -> None:
        for world in (self.world, self.twin):
            getattr(world, what)(*arguments, **fields)

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(pods=st.integers(1, 5), priority=st.integers(0, 2), data=st.data())
    def submit(self, pods: int, priority: int, data: st.DataObject) -> None:
        self.count += 1
        self.submitted.append(f"w{self.count}")
        chips = data.draw(st.sampled_from(self.chips))
        self.both("put", plain(f"w{self.count}", pods, chips, priority=priority))

    @rule(children=st.integers(1, 3), priority=st.integers(0, 2))
    def submit_slices(self, children: int, priority: int) -> None:
        self.count += 1
        self.submitted.append(f"w{self.count}")
        self.both("put", slices(f"w{self.count}", children, SIZE, priority=priority))

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        ready = sorted(name for name, found in self.world.nodes.items() if found.ready)
        if ready:
            names = data.draw(st.lists(st.sampled_from(ready), min_size=1, max_size=2, unique=True))
            self.both("fail", *names)

    @rule(data=st.data())
    def delete_node(self, data: st.DataObject) -> None:
        if len(self.world.nodes) > 1:  # without any, quota alone counts
            self.both("remove_node", data.draw(st.sampled_from(sorted(self.world.nodes))))

    @rule(data=st.data())
    def vacate(self, data: st.DataObject) -> None:
        """Somebody wants a node empty, or uses it again."""
        if self.world.nodes:
            name = data.draw(st.sampled_from(sorted(self.world.nodes)))
            found = self.world.nodes[name]
            self.both("put", replace(found, taints=() if found.taints else (VACATE,)))

    @rule(data=st.data())
    def bring_back(self, data: st.DataObject) -> None:
        away = sorted(n for n in self.names if n not in self.world.nodes or not self.world.nodes[n].ready)
        if away:
            self.repair(data.draw(st.sampled_from(away)))

    def repair(self, name: str) -> None:
        if name in self.world.nodes:
            self.both("repair", name)
        else:
            self.serial += 1
            self.both("collect_pods")
            self.both("put", node(name, self.names[name].labels[POOL], uid=f"uid-{name}-{self.serial}"))

    @rule()
    def decide(self) -> None:
        decisions = self.world.decide()
        assert in_order(decisions) == in_order(self.twin.decide()), "the same history, another decision"
        self.check(decisions)

    @rule(data=st.data())
    def decide_and_lose_writes(self, data: st.DataObject) -> None:
        self.both("tick", 1)
        decisions = self.world.engine.decide(self.world.now)
        assert in_order(decisions) == in_order(self.twin.engine.decide(self.twin.now))
        for decision in decisions:
            lost = isinstance(decision, Admit | Heal | Preempt | Evict) and data.draw(st.booleans())
            for world in (self.world, self.twin):
                if isinstance(decision, Warn):
                    continue
                if lost:
                    world.engine.observe(WriteFailed(decision.workload))
                else:
                    world.write(decision)

    @rule()
    def bind(self) -> None:
        self.both("bind")

    @rule()
    def evictions_complete(self) -> None:
        self.both("complete_evictions")

    @rule()
    def pods_are_collected(self) -> None:
        self.both("collect_pods")

    @rule()
    def recover(self) -> None:
        self.both("_recovered")

    @rule(seconds=st.integers(1, 20))
    def time_passes(self, seconds: int) -> None:
        self.both("tick", seconds)

    @precondition(lambda self: bool(self.world.running()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        whole = [name for name in self.world.running() if self.world.whole(name)]
        if whole:
            self.done(data.draw(st.sampled_from(whole)))

    def done(self, name: str) -> None:
        assert name not in self.finished
        self.finished.append(name)
        self.both("finish", name)

    @rule()
    def operator_dies(self) -> None:
        self.both("restart")

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self, decisions: list[Decision]) -> None:
        decided = [decision.workload for decision in decisions if isinstance(decision, Heal | Evict | Preempt)]
        assert len(decided) == len(set(decided)), "one gang, two fates"
        for decision in decisions:
            if isinstance(decision, Heal):
                assert decision.lost or decision.how == "Restart"

    @invariant()
    def no_node_is_given_twice(self) -> None:
        """Seats may exceed a node only while somebody on it is on the way out."""
        if not hasattr(self, "world") or not self.follow_seats:
            return
        capacity = self.world.engine._store.capacity
        leaving = {w.key for w in self.world.workloads.values() if w.evicted or w.admission is None}
        leaving |= self.world.engine._healing._awaiting  # they have room where victims are, who may not know it yet
        for name in self.world.nodes:
            room = capacity.rooms.get(name)
            assert room is not None
            if room.usable and not leaving.intersection(capacity.holders_on(name)):
                assert room.assigned.get(TPU, 0) <= room.node.allocatable[TPU], (name, capacity.holders_on(name))

    @invariant()
    def kept_up_to_date_is_as_good_as_new(self) -> None:
        if hasattr(self, "world"):
            assert self.world.engine.snapshot() == self.world.engine.rebuilt().snapshot()

    @rule()
    def comes_to_rest(self) -> None:
        """When nothing more happens, every gang that runs is whole, and nobody waits whom lower priorities keep from running."""
        self.rest()
        for name in self.world.running():
            assert self.world.whole(name), name
        self.check_priorities()

    def rest(self) -> None:
        """All that is under way comes to its end, and twice the longest soak passes."""
        for _ in range(40):
            self.both("tick", 20)
            news = self.world.decide()
            assert in_order(news) == in_order(self.twin.decide())
            self.both("bind")
            self.both("complete_evictions")
            self.both("collect_pods")
            self.both("_recovered")
            if (
                not [d for d in news if not isinstance(d, Warn)]
                and self.world.engine.next_wakeup(self.world.now) is None
            ):
                return
        raise AssertionError("never comes to rest")

    def check_priorities(self) -> None:
        if len(self.chips) > 1:
            return
        free = {name for name in self.world.nodes if self.world.free(name) == 4}
        for waiting in self.world.workloads.values():
            if waiting.admission is not None:
                continue
            lower = [w for w in self.world.workloads.values() if w.admission and w.priority < waiting.priority]
            nodes = free | {pod.node for w in lower for pod in self.world.pods[w.key]}
            nodes -= {name for name, found in self.world.nodes.items() if found.taints}
            pod_set = waiting.pod_sets[0]
            higher = [w for w in self.world.workloads.values() if w.admission and w.priority >= waiting.priority]
            if 4 * (pod_set.count + sum(w.pod_sets[0].count for w in higher)) > self.quota:
                continue
            if pod_set.exclusive:
                whole = [p for p in range(self.pools) if all(f"p{p}-n{n}" in nodes for n in range(SIZE))]
                assert len(whole) < pod_set.domains, (waiting.name, "would fit", sorted(nodes))
            else:
                assert len(nodes) < pod_set.count, (waiting.name, "would fit", sorted(nodes))

    def teardown(self) -> None:
        """With all nodes back every gang finishes exactly once."""
        if not hasattr(self, "world"):
            return
        for name in sorted(self.names):
            if name not in self.world.nodes or not self.world.nodes[name].ready:
                self.repair(name)
            self.both("put", replace(self.world.nodes[name], taints=()))
        for _ in range(2 * len(self.submitted) + 2):
            self.rest()
            for name in self.world.running():
                assert self.world.whole(name), name
                self.done(name)
            if not self.world.workloads:
                break
        assert sorted(self.finished) == sorted(self.submitted)


class Scheduled(Failures):
    """A scheduler that spreads and packs as it likes; pods of two sizes."""

    follow_seats = False
    chips = (1, 2, 4)


class ShortOfQuota(Failures):
    """Quota and nodes bound it by turns."""

    pools = 4
    quota = 24


class Lingering(Failures):
    """The same, with a scheduler of its own mind, while pods that are to go still sit where they were."""

    follow_seats = False
    linger = True


QUICK = examples(30, stateful_step_count=30)
TestFailures = Failures.TestCase
TestScheduled = Scheduled.TestCase
TestShortOfQuota = ShortOfQuota.TestCase
TestLingering = Lingering.TestCase
for case in (TestFailures, TestScheduled, TestShortOfQuota, TestLingering):
    case.settings = QUICK
del case


@given(seed=st.randoms(use_true_random=False), steps=st.integers(5, 30))
@examples(30)
def test_placed_gangs_are_never_on_lost_nodes_at_rest(seed: Random, steps: int) -> None:
    """Topology flavors: what runs is placed on nodes that are fine, and no leaf is given twice."""
    topology = Topology("default", (POOL, HOSTNAME))
    flavor = Flavor("tpu", node_labels=FLAVOR.node_labels, topology="default")
    world = NodeWorld(flavor, topology, *pools(3, 2), queue(100, recovery=POLICY))
    for number in range(steps):
        match seed.choice(("submit", "submit", "fail", "repair", "finish", "decide", "restart")):
            case "submit":
                request = seed.choice((TopologyRequest(required=POOL), TopologyRequest(unconstrained=True)))
                pod_set = PodSet("main", seed.randint(1, 3), {TPU: 4}, topology=request)
                world.put(gang(f"w{number}", pod_sets=(pod_set,), priority=seed.randint(0, 2)))
            case "fail":
                world.fail(seed.choice(sorted(world.nodes)))
            case "repair":
                world.repair(seed.choice(sorted(world.nodes)))
            case "finish":
                if world.running():
                    world.finish(seed.choice(world.running()))
            case "restart":
                world.restart()
            case _:
                world.decide()
    for _ in range(12):
        world.tick(20)
        world.settle(2)
    ledger = world.engine._store.topology.ledger("tpu")
    assert ledger is not None
    for name in world.running():
        hosts = hosts_of(world.workloads[f"team/{name}"].admission)
        assert all(world.nodes[host].ready for host in hosts), name
    for name in sorted(world.nodes):
        leaf = ledger.leaf((name,))
        assert (leaf is not None) == world.nodes[name].ready
        assert leaf is None or leaf.free[TPU] >= 0
