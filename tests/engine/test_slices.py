"""Workload slices: a job that grows asks for the difference only, keeps its flavors, and is never counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang, group, of, reported_pending
from tests.engine.node_world import NodeWorld, node, plain
from tests.engine.node_world import queue as node_queue
from tests.engine.twins import Twins
from tests.examples import examples

from gangline.engine.model import (
    AdmissionCheck,
    Admit,
    CheckRef,
    ClusterQueue,
    Cohort,
    Decision,
    FairSharing,
    Flavor,
    Node,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Quota,
    Settings,
    Topology,
    TopologyRequest,
    Workload,
    WriteFailed,
)
from gangline.engine.queues.cluster_queue import OLD_IS_OF_ANOTHER

LOWER = PreemptionPolicy("LowerPriority")


def slice_of(name: str, pods: int, old: str = "", **fields: Any) -> Workload:
    """One slice of the job `job`, of `pods` pods of one GPU."""
    replaces = f"team/{old}" if old else ""
    return gang(name, 1, pods=pods, replaces=replaces, job_uid=fields.pop("job_uid", "job"), **fields)


def usage(world: EngineWorld, queue: str = "q") -> int:
    return sum(flavor.get(GPU, 0) for flavor in world.engine.usage(queue).values())


# --- growing ----------------------------------------------------------------------------------------------------------


def test_only_the_difference_is_asked_for_and_all_of_it_is_granted() -> None:
    world = EngineWorld(cluster_queue("q", 8), slice_of("s1", 4))
    assert of(world.decide(), Admit) == ["s1"]
    world.put(slice_of("s2", 8, "s1"))
    (admit,) = world.decide()
    assert isinstance(admit, Admit) and admit.workload == "team/s2"
    (assigned,) = admit.admission.pod_sets
    assert (assigned.count, assigned.usage) == (8, {GPU: 8})
    assert usage(world) == 8, "the old slice and the new one both hold quota, and count once"
    world.finish("s1")
    assert usage(world) == 8
    assert world.decide() == []


def test_a_slice_that_its_job_takes_later_asks_for_the_difference_from_then_on() -> None:
    """As it arrives from another cluster it is nobody's: it waits, and has no one preempted for all that it asks for."""
    world = EngineWorld(cluster_queue("q", 6, preemption=LOWER), slice_of("s1", 2), gang("low", 1, priority=-1))
    world.decide()
    world.put(slice_of("s2", 5, "s1", job_uid="", priority=9))
    decisions = world.decide()
    assert reported_pending(decisions)["s2"].explanation.message == OLD_IS_OF_ANOTHER and len(decisions) == 1
    assert world.decide() == []
    world.put(slice_of("s2", 5, "s1", priority=9))
    assert of(world.decide(), Admit) == ["s2"]
    assert usage(world) == 6


def test_a_slice_that_nobody_takes_is_tried_when_the_one_that_it_names_is_gone() -> None:
    world = EngineWorld(cluster_queue("q", 6), slice_of("s1", 2))
    world.decide()
    world.put(slice_of("s2", 3, "s1", job_uid=""))
    assert of(world.decide(), Admit) == []
    world.finish("s1")
    assert of(world.decide(), Admit) == ["s2"]


def test_the_difference_waits_while_the_old_slice_runs() -> None:
    world = EngineWorld(cluster_queue("q", 8), slice_of("s1", 4), gang("other9", 3))
    world.decide()
    world.put(slice_of("s2", 6, "s1"))
    report = reported_pending(world.decide())["s2"].explanation
    assert report.message == (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 1 more needed"
    )
    assert (report.requested, report.available, report.short) == (2, 1, 1)
    assert usage(world) == 7
    world.finish("other9")
    assert of(world.decide(), Admit) == ["s2"]
    assert usage(world) == 6


def test_an_old_slice_that_was_cut_counts_with_what_is_left() -> None:
    world = EngineWorld(cluster_queue("q", 8), slice_of("s1", 6))
    world.decide()
    world.change("s1", pod_sets=(PodSet("main", 2, {GPU: 1}),))
    assert usage(world) == 2
    world.put(gang("other1", 3))
    world.decide()
    world.put(slice_of("s2", 6, "s1"))
    assert of(world.decide(), Admit) == [], "4 more are needed, and 3 are left"
    world.change("s2", pod_sets=(PodSet("main", 5, {GPU: 1}),))
    assert of(world.decide(), Admit) == ["s2"]
    assert usage(world) == 8


def test_a_slice_may_be_smaller_than_the_one_that_it_replaces() -> None:
    """The job grew, and shrank before its new slice was admitted."""
    world = EngineWorld(cluster_queue("q", 4), slice_of("s1", 4))
    world.decide()
    world.put(slice_of("s2", 1, "s1"), gang("other9", 3))
    assert of(world.decide(), Admit) == ["s2", "other9"]
    assert usage(world) == 4


def test_what_a_slice_gives_back_is_not_free_before_it_starts() -> None:
    two = (PodSet("a", 2, {GPU: 1}), PodSet("b", 2, {GPU: 1}))
    other = (PodSet("a", 0, {GPU: 1}), PodSet("b", 6, {GPU: 1}))
    world = EngineWorld(cluster_queue("q", 4, "pool"), cluster_queue("p", 0, "pool"))
    world.put(slice_of("s1", 0, pod_sets=two))
    assert of(world.decide(), Admit) == ["s1"]
    world.put(slice_of("s2", 0, "s1", pod_sets=other), gang("w9", 1, "p"))
    assert of(world.decide(), Admit) == []
    assert usage(world) == 4


def test_a_new_slice_keeps_the_flavors_of_the_old_one() -> None:
    flavors = {"a100": {GPU: 4}, "h100": {GPU: 8}}
    world = EngineWorld(Flavor("h100"), cluster_queue("q", groups=(group(flavors),)), slice_of("s1", 3))
    world.decide()
    assert world.engine.usage("q") == {"a100": {GPU: 3}}
    world.put(slice_of("s2", 6, "s1"))
    report = reported_pending(world.decide())["s2"].explanation
    assert "could not assign h100 flavor since the original workload is assigned: a100" in report.message
    world.put(cluster_queue("q", groups=(group({"a100": {GPU: 6}, "h100": {GPU: 8}}),)))
    assert of(world.decide(), Admit) == ["s2"]
    assert world.engine.usage("q") == {"a100": {GPU: 6}}


def test_without_the_gate_a_slice_is_a_workload_like_any_other() -> None:
    off = Settings(pods_ready=None, gates={"ElasticJobsViaWorkloadSlices": False})
    world = EngineWorld(cluster_queue("q", 8), slice_of("s1", 4), settings=off)
    world.decide()
    world.put(slice_of("s2", 6, "s1"))
    assert of(world.decide(), Admit) == []
    assert usage(world) == 4


def test_a_slice_replaces_only_its_own_job_in_its_own_namespace() -> None:
    world = EngineWorld(cluster_queue("q", 8), slice_of("s1", 4))
    world.decide()
    world.put(slice_of("s2", 6, "s1", job_uid="another"))
    world.put(replace(slice_of("s3", 6), replaces="elsewhere/s1"))
    assert of(world.decide(), Admit) == []
    assert usage(world) == 4


def test_an_unknown_or_waiting_slice_is_no_discount() -> None:
    world = EngineWorld(cluster_queue("q", 4), slice_of("s1", 6))
    world.decide()
    world.put(slice_of("s2", 7, "s1"), slice_of("s4", 7, "gone"))
    assert of(world.decide(), Admit) == []


def test_two_slices_that_name_each_other_both_count() -> None:
    world = EngineWorld(cluster_queue("q", 8), slice_of("s1", 3))
    world.decide()
    world.put(slice_of("s2", 3, "s1"))
    world.decide(lost=())
    assert usage(world) == 3
    world.change("s1", replaces="team/s2")
    assert usage(world) == 6


# --- crashes and refused writes ---------------------------------------------------------------------------------------


def test_a_refused_admission_leaves_the_old_slice_as_it_was() -> None:
    world = EngineWorld(cluster_queue("q", 8), slice_of("s1", 4))
    world.decide()
    world.put(slice_of("s2", 8, "s1"))
    world.decide(lost=["team/s2"])
    assert usage(world) == 8
    world.engine.observe(WriteFailed("team/s2"))
    assert usage(world) == 4
    assert of(world.decide(), Admit) == ["s2"]


def test_an_operator_that_dies_before_the_old_slice_is_finished_counts_once() -> None:
    world = EngineWorld(cluster_queue("q", 8), slice_of("s1", 4))
    world.decide()
    world.put(slice_of("s2", 7, "s1"))
    world.decide()
    for order in (1, -1):
        world.workloads = dict(list(world.workloads.items())[::order])
        world.restart()
        world.engine.decide(world.now)
        assert usage(world) == 7
    world.put(gang("w9", 1))
    assert of(world.decide(), Admit) == ["w9"]


def test_nothing_is_decided_about_a_superseded_slice() -> None:
    """Its queue is stopped before it is declared finished: only the slice that runs is evicted."""
    world = EngineWorld(cluster_queue("q", 8), slice_of("s1", 4))
    world.decide()
    world.put(slice_of("s2", 6, "s1"))
    world.decide()
    world.put(cluster_queue("q", 8, stop_policy="HoldAndDrain"))
    assert [each.workload for each in world.decide() if type(each).__name__ == "Evict"] == ["team/s2"]


# --- preemption -------------------------------------------------------------------------------------------------------


def test_a_slice_preempts_for_the_difference_and_never_its_own_job() -> None:
    newer = PreemptionPolicy("LowerOrNewerEqualPriority")
    world = EngineWorld(cluster_queue("q", 8, preemption=newer), slice_of("s1", 4, priority=1), gang("low9", 2, pods=2))
    world.decide()
    world.put(slice_of("s2", 6, "s1", priority=5))
    assert of(world.decide(), Preempt) == ["low9"]
    world.complete_evictions()
    assert of(world.decide(), Admit) == ["s2"]
    assert usage(world) == 6


def test_the_old_slice_is_no_victim_in_the_cycle_in_which_it_is_replaced() -> None:
    """An owner of the cohort's quota reclaims it while the job grows: the job is a victim as a whole, once it has grown."""
    reclaim = PreemptionPolicy(reclaim_within_cohort="Any")
    world = EngineWorld(
        cluster_queue("q", 4, "pool"), cluster_queue("p", 4, "pool", preemption=reclaim), slice_of("s1", 5, queue="q")
    )
    world.decide()
    world.put(slice_of("s2", 6, "s1"), gang("owner9", 4, "p"))
    decisions = world.decide()
    assert not ({"s1", "s2"} <= {*of(decisions, Preempt), *of(decisions, Admit)} and "s1" in of(decisions, Admit))
    for _ in range(4):
        world.complete_evictions()
        for name in ("s1",):
            if (
                "team/s2" in world.workloads
                and world.workloads["team/s2"].admission
                and f"team/{name}" in world.workloads
            ):
                world.finish(name)
        world.decide()
    assert "owner9" in world.running()
    assert usage(world, "q") + usage(world, "p") <= 8


def test_a_new_slice_waits_while_the_old_one_is_being_stopped() -> None:
    world = EngineWorld(cluster_queue("q", 8, preemption=LOWER), slice_of("s1", 6))
    world.decide()
    world.put(gang("urgent9", 8, priority=9))
    assert of(world.decide(), Preempt) == ["s1"]
    world.put(slice_of("s2", 7, "s1"))
    assert of(world.decide(), Admit) == []
    assert usage(world) == 6
    world.finish("s1")
    assert of(world.decide(), Admit) == ["urgent9"]
    world.finish("urgent9")
    (admit,) = world.decide()
    assert isinstance(admit, Admit) and admit.admission.pod_sets[0].usage == {GPU: 7}


def test_a_growing_job_borrows_for_the_difference_alone() -> None:
    world = EngineWorld(cluster_queue("q", Quota(4, borrowing_limit=2), "pool"), cluster_queue("p", 4, "pool"))
    world.put(slice_of("s1", 4))
    world.decide()
    world.put(slice_of("s2", 7, "s1"))
    assert of(world.decide(), Admit) == []
    world.change("s2", pod_sets=(PodSet("main", 6, {GPU: 1}),))
    assert of(world.decide(), Admit) == ["s2"]
    status = world.engine.queue_status("q")
    assert [(each.total, each.borrowed) for each in status.reservation] == [(6, 2)]


def test_checks_are_asked_again_for_the_new_slice() -> None:
    world = EngineWorld(
        AdmissionCheck("budget"), cluster_queue("q", 8, checks=(CheckRef("budget"),)), slice_of("s1", 2)
    )
    (admit,) = world.decide()
    assert isinstance(admit, Admit) and not admit.admitted
    world.put(slice_of("s2", 3, "s1"))
    (admit,) = world.decide()
    assert isinstance(admit, Admit) and admit.checks == ("budget",) and not admit.admitted
    assert usage(world) == 3


# --- nodes and places -------------------------------------------------------------------------------------------------


def test_on_nodes_only_the_difference_needs_room() -> None:
    world = NodeWorld(node("n0"), node("n1"), node_queue(100), plain("s1", 1, job_uid="job"))
    world.decide()
    world.bind()
    world.put(plain("s2", 2, job_uid="job", replaces="team/s1"))
    assert of(world.decide(), Admit) == ["s2"]
    world.put(plain("w9", 1))
    assert of(world.decide(), Admit) == [], "both nodes are taken"
    world.finish("s1")
    assert of(world.decide(), Admit) == []


def test_pods_keep_their_places_where_the_gate_is_on() -> None:
    racks = Topology("default", ("rack", "kubernetes.io/hostname"))
    hosts = [
        Node(f"h{n}", {"rack": f"r{n // 2}", "kubernetes.io/hostname": f"h{n}"}, {GPU: 2, "pods": 9}) for n in range(2)
    ]
    gates = {"ElasticJobsViaWorkloadSlicesWithTAS": True}
    anywhere = TopologyRequest(unconstrained=True)
    world = EngineWorld(racks, *hosts, cluster_queue("q", 99), settings=Settings(pods_ready=None, gates=gates))
    world.put(Flavor("a100", topology="default"))

    def placed(name: str, pods: int, old: str = "") -> Workload:
        return slice_of(name, 0, old, pod_sets=(PodSet("main", pods, {GPU: 1}, topology=anywhere),))

    world.put(placed("s1", 3))
    (admit,) = world.decide()
    assert isinstance(admit, Admit)
    before = {each.values: each.count for each in admit.admission.pod_sets[0].topology.domains}  # type: ignore[union-attr]
    world.put(placed("s2", 4, "s1"))
    (admit,) = world.decide()
    assert isinstance(admit, Admit)
    after = {each.values: each.count for each in admit.admission.pod_sets[0].topology.domains}  # type: ignore[union-attr]
    assert after == {("h0",): 2, ("h1",): 2}
    assert all(after[values] >= count for values, count in before.items())
    world.put(slice_of("w9", 0, job_uid="", pod_sets=(PodSet("main", 1, {GPU: 1}, topology=anywhere),)))
    assert of(world.decide(), Admit) == []


# --- whatever happens -------------------------------------------------------------------------------------------------

QUOTA = 6
NEWER = PreemptionPolicy("LowerOrNewerEqualPriority", "Any")
FOREST: tuple[ClusterQueue, ...] = (
    cluster_queue("q0", QUOTA, "pool", preemption=NEWER),
    cluster_queue("q1", Quota(QUOTA, lending_limit=4), "pool", preemption=LOWER),
)


class Elastic(Twins):
    """Jobs grow and shrink beside others; writes get lost, operators die. What a job's newest slice with quota has is what
    counts.
    """

    fair = False

    @initialize()
    def start(self) -> None:
        fair = FairSharing() if self.fair else None
        self.live(Cohort("pool"), *FOREST, settings=Settings(pods_ready=None, fair_sharing=fair))

    @rule(queue=st.integers(0, 1), pods=st.integers(1, 7), priority=st.integers(0, 2))
    def submit(self, queue: int, pods: int, priority: int) -> None:
        self.count += 1
        name = f"s{self.count}"
        self.both("put", slice_of(name, pods, queue=f"q{queue}", priority=priority, job_uid=f"job-{self.count}"))

    def chain(self, job: str) -> list[Workload]:
        return sorted((each for each in self.all if each.job_uid == job), key=lambda each: each.created)

    @rule(data=st.data(), pods=st.integers(0, 8))
    def resize(self, data: st.DataObject, pods: int) -> None:
        """As the operator does: a slice that waits is changed, one with quota is cut, or replaced by a larger one."""
        jobs = sorted({each.job_uid for each in self.all})
        if not jobs:
            return
        newest = self.chain(data.draw(st.sampled_from(jobs)))[-1]
        if newest.evicted and newest.admission is not None:
            return
        if newest.admission is None or pods < newest.pod_sets[0].count:
            self.both("change", newest.name, pod_sets=(PodSet("main", pods, {GPU: 1}),))
            return
        self.count += 1
        name = f"s{self.count}"
        fields = {"queue": newest.queue, "priority": newest.priority, "job_uid": newest.job_uid}
        self.both("put", slice_of(name, pods, newest.name, **fields))

    @rule()
    def tidy(self) -> None:
        """Slices are declared finished once the one that replaces them has quota, and where they were stopped for good."""
        for each in self.all:
            heirs = [other for other in self.all if other.replaces == each.key]
            stopped = each.evicted and each.admission is None and heirs
            if stopped or any(other.admission is not None for other in heirs):
                self.done(each.name)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        jobs = sorted({each.job_uid for each in self.all})
        if jobs:
            for each in self.chain(data.draw(st.sampled_from(jobs))):
                self.done(each.name)

    def check(self, decisions: Sequence[Decision]) -> None:
        engine = self.world.engine
        counted: dict[str, int] = {}
        for job in {each.job_uid for each in self.all}:
            slices = [engine._store.gangs[each.key] for each in self.chain(job)]
            holding = [each for each in slices if each.holds]
            live = [each for each in holding if not engine._store.superseded(each)]
            assert len(live) <= 1, f"{job} is counted twice"
            assert not live or live[0] is holding[-1]
            for each in live:
                queue = each.workload.queue
                counted[queue] = counted.get(queue, 0) + each.demands[0].count
        for queue in ("q0", "q1"):
            held = sum(flavor.get(GPU, 0) for flavor in engine.usage(queue).values())
            assert held <= counted.get(queue, 0)
        total = sum(sum(f.get(GPU, 0) for f in engine.usage(q).values()) for q in ("q0", "q1"))
        assert total <= 2 * QUOTA, "more is granted than there is"


class ElasticAndFair(Elastic):
    fair = True


TestElastic = Elastic.TestCase
TestElastic.settings = examples(60, stateful_step_count=40)
TestElasticAndFair = ElasticAndFair.TestCase
TestElasticAndFair.settings = examples(30, stateful_step_count=40)
