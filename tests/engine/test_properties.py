"""What must hold whatever happens: random histories of a small forest of queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.builders.engine import START, EngineWorld, cluster_queue, cohort, gang
from tests.examples import examples

from gangline.engine.engine import Engine
from gangline.engine.model import (
    FIXES,
    STILL_HELD,
    Admit,
    ClusterQueue,
    CompleteAdmission,
    Evict,
    FairSharing,
    Flavor,
    LocalQueue,
    Preempt,
    PreemptionPolicy,
    Put,
    Quota,
    Settings,
    VictimPolicy,
    WriteFailed,
)

RECLAIM = PreemptionPolicy("LowerPriority", "Any")
BORROW = PreemptionPolicy("LowerOrNewerEqualPriority", "LowerPriority", "LowerPriority", 1)

FOREST = (
    cohort("top", 2),
    cohort("left", 0, "top"),
    cohort("right", 3, "top"),
    cluster_queue("q0", Quota(6, borrowing_limit=4), "left", preemption=RECLAIM),
    cluster_queue("q1", Quota(4, lending_limit=2), "left", strategy="StrictFIFO", preemption=BORROW),
    cluster_queue("q2", 5, "right", preemption=BORROW),
    cluster_queue("q3", 4, strategy="StrictFIFO", preemption=PreemptionPolicy("LowerPriority")),
)
QUEUES = ("q0", "q1", "q2", "q3")


class Histories(RuleBasedStateMachine):
    """Jobs come, run, finish, are cancelled and preempted; writes get lost; the operator decides now and then."""

    fair = False
    fixes: frozenset[str] = frozenset()

    @initialize()
    def start(self) -> None:
        configured = Settings(
            fair_sharing=FairSharing() if self.fair else None, pods_ready=None, fixes={"*": self.fixes}
        )
        self.world = EngineWorld(*FOREST, settings=configured)
        self.twin = EngineWorld(*FOREST, settings=configured)
        self.count = 0
        self.raised = dict.fromkeys(QUEUES, 0)

    def both(self, what: str, *arguments: Any, **fields: Any) -> None:
        for world in (self.world, self.twin):
            getattr(world, what)(*arguments, **fields)

    @rule(
        queue=st.sampled_from(QUEUES),
        gpus=st.integers(1, 7),
        pods=st.integers(1, 2),
        priority=st.integers(0, 2),
    )
    def submit(self, queue: str, gpus: int, pods: int, priority: int) -> None:
        self.count += 1
        self.both("put", gang(f"w{self.count}", gpus, queue, pods, priority=priority))

    @rule(room=st.none() | st.integers(0, 3))
    def decide(self, room: int | None) -> None:
        decisions = self.world.decide(room=room)
        assert decisions == self.twin.decide(room=room), "the same history, another decision"
        self.check_gangs(decisions)

    @rule(data=st.data())
    def decide_and_lose_writes(self, data: st.DataObject) -> None:
        self.world.now += 1000
        self.twin.now += 1000
        decisions = self.world.engine.decide(self.world.now)
        assert decisions == self.twin.engine.decide(self.twin.now)
        for decision in decisions:
            failed = isinstance(decision, Admit) and data.draw(st.booleans())
            for world in (self.world, self.twin):
                if failed:
                    world.engine.observe(WriteFailed(decision.workload))
                else:
                    world.write(decision)

    @precondition(lambda self: bool(self.world.running()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.both("finish", data.draw(st.sampled_from(self.world.running())))

    @precondition(lambda self: bool(self.world.workloads))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.world.workloads)))
        self.both("delete", key.partition("/")[2])

    @rule()
    def evictions_complete(self) -> None:
        self.both("complete_evictions")

    @rule(queue=st.sampled_from((0, 2, 3)), more=st.integers(0, 3))
    def raise_quota(self, queue: int, more: int) -> None:
        item = FOREST[3 + queue]
        quota = item.groups[0].flavors[0].resources["nvidia.com/gpu"]
        self.raised[item.name] += more
        raised = Quota(quota.nominal + self.raised[item.name], quota.borrowing_limit, quota.lending_limit)
        fields = {"strategy": item.strategy, "preemption": item.preemption}
        self.both("put", cluster_queue(item.name, raised, item.cohort, **fields))

    @invariant()
    def nothing_is_used_twice(self) -> None:
        if not hasattr(self, "world"):
            return
        if STILL_HELD not in self.fixes and any(gang.evicting for gang in self.world.engine._store.gangs.values()):
            return  # as in Kueue, what victims still hold may be granted already
        found = self.world.engine.snapshot()
        for node, amounts in found.available.items():
            assert all(left >= 0 for left in amounts.values()), (node, amounts)

    @invariant()
    def kept_up_to_date_is_as_good_as_new(self) -> None:
        if hasattr(self, "world"):
            assert self.world.engine.snapshot() == self.world.engine.rebuilt().snapshot()

    def check_gangs(self, decisions: Sequence[Any]) -> None:
        for decision in decisions:
            if isinstance(decision, Admit):
                workload = self.world.workloads[decision.workload]
                counts = {assigned.name: assigned.count for assigned in decision.admission.pod_sets}
                assert counts == {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
            assert not isinstance(decision, Evict | CompleteAdmission)


class FairHistories(Histories):
    fair = True


class FixedHistories(Histories):
    fixes = FIXES


QUICK = examples(25, stateful_step_count=30)

TestHistories = Histories.TestCase
TestFairHistories = FairHistories.TestCase
TestFixedHistories = FixedHistories.TestCase
for case in (TestHistories, TestFairHistories, TestFixedHistories):
    case.settings = QUICK


jobs = st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(1, 7), st.integers(0, 2)), min_size=1, max_size=12)


@given(jobs=jobs, order=st.randoms(use_true_random=False), fair=st.booleans())
@examples(60)
def test_the_order_of_facts_is_irrelevant(jobs: list[tuple[str, int, int]], order: Any, fair: bool) -> None:
    facts = [Put(item) for item in (Flavor("a100"), *FOREST)]
    facts += [Put(LocalQueue("team", queue, queue)) for queue in QUEUES]
    facts += [
        Put(gang(f"w{number}", gpus, queue, priority=priority)) for number, (queue, gpus, priority) in enumerate(jobs)
    ]
    shuffled = list(facts)
    order.shuffle(shuffled)
    decided: list[list[Any]] = []
    for history in (facts, shuffled):
        engine = Engine(Settings(fair_sharing=FairSharing() if fair else None))
        for fact in history:
            engine.observe(fact)
        decisions = engine.decide(START)
        decided.append(sorted(decisions, key=lambda d: (type(d).__name__, d.workload)))
    assert decided[0] == decided[1]


@given(jobs=jobs)
@examples(60)
def test_strict_fifo_never_passes_its_head(jobs: list[tuple[str, int, int]]) -> None:
    world = EngineWorld(cluster_queue("q", 8, strategy="StrictFIFO"))
    for number, (_, gpus, priority) in enumerate(jobs):
        world.put(gang(f"w{number}", gpus + 2, priority=priority))
    for _ in range(30):
        before = world.engine.pending("q")
        admitted = [d.workload for d in world.decide() if isinstance(d, Admit)]
        assert admitted == before[: len(admitted)]
        if not world.running():
            break
        world.finish(world.running()[0])


@pytest.mark.parametrize("fixes", [frozenset[str](), FIXES], ids=["kueue", "gangline"])
@given(jobs=jobs)
@examples(40)
def test_what_preemption_promised_happens(fixes: frozenset[str], jobs: list[tuple[str, int, int]]) -> None:
    """When its victims are gone, and nobody else came, the preemptor starts."""
    world = EngineWorld(
        cluster_queue("q", 8, preemption=PreemptionPolicy("LowerPriority")),
        settings=Settings(pods_ready=None, fixes={"*": fixes}),
    )
    for number, (_, gpus, _) in enumerate(jobs):
        world.put(gang(f"w{number}", gpus, priority=0))
    world.decide()
    world.put(gang("urgent", 8, priority=9))
    world.decide()
    world.complete_evictions()
    world.decide()
    assert world.running() == ["urgent"]


@given(jobs=jobs)
@examples(30)
def test_nothing_starves_under_fair_sharing(jobs: list[tuple[str, int, int]]) -> None:
    """All that can ever fit has run once everything that runs ends after a while."""
    world = EngineWorld(*FOREST, settings=Settings(fair_sharing=FairSharing(), pods_ready=None))
    for number, (queue, gpus, priority) in enumerate(jobs):
        world.put(gang(f"w{number}", min(gpus, 4), queue, priority=priority))
    for _ in range(8 * len(jobs)):
        world.decide()
        world.complete_evictions()
        if world.running():
            world.finish(world.running()[0])
    world.decide()
    assert not [w for w in world.workloads.values() if w.admission is None]


@given(jobs=jobs, preemptors=st.integers(1, 4), fair=st.booleans())
@examples(60)
def test_with_a_limit_per_workload_preemption_comes_to_rest(
    jobs: list[tuple[str, int, int]], preemptors: int, fair: bool
) -> None:
    """If nobody comes and nobody finishes, evictions and admissions end: no two gangs throw each other out for ever."""
    queues = [
        replace(item, victims=VictimPolicy(max_preemptions=2)) for item in FOREST if isinstance(item, ClusterQueue)
    ]
    sharing = FairSharing() if fair else None
    world = EngineWorld(*FOREST, *queues, settings=Settings(fair_sharing=sharing, pods_ready=None, fixes={"*": FIXES}))
    for number, (queue, gpus, priority) in enumerate(jobs):
        world.put(gang(f"w{number}", gpus, queue, priority=priority))
        if number % preemptors == 0:
            world.decide()
    for _ in range(8 * len(jobs) + 10):
        world.decide()
        world.complete_evictions()
    assert not [d for d in world.decide() if isinstance(d, Admit | Preempt)]
