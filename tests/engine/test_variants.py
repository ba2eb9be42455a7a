"""Flavors that a workload allows, and variants of one workload: which starts, which moves, and what their parent holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang, group
from tests.examples import examples

from gangline.engine.model import ConcurrentAdmission, Evict, Flavor, PreemptionPolicy, Settings, Workload, WriteFailed

ON = Settings(pods_ready=None, gates={"ConcurrentAdmission": True})
OFF = Settings(pods_ready=None)
FLAVORS = ("reservation", "demand", "spot")


def world(
    gpus: tuple[int, ...] = (8, 8, 8), *, settings: Settings = ON, rule: Any = None, **fields: Any
) -> EngineWorld:
    groups = (group({name: {GPU: size} for name, size in zip(FLAVORS, gpus, strict=True)}),)
    rule = ConcurrentAdmission() if rule is None else rule
    return EngineWorld(
        *(Flavor(name) for name in FLAVORS),
        cluster_queue("q", groups=groups, concurrent_admission=rule or None, **fields),
        settings=settings,
    )


def variants(name: str = "job", gpus: int = 8, flavors: tuple[str, ...] = FLAVORS, **fields: Any) -> list[Workload]:
    """The uids are in the reverse order of the flavors: the order in the queue must not come from them."""
    return [
        gang(f"{name}-{flavor}", gpus, allowed_flavors=(flavor,), variant_of=f"uid-{name}", **fields)
        for flavor in flavors
    ]


def parent(name: str = "job", gpus: int = 8, **fields: Any) -> Workload:
    return gang(name, gpus, has_variants=True, **fields)


# --- allowed flavors --------------------------------------------------------------------------------------------------


def test_a_workload_uses_only_the_flavors_that_it_allows() -> None:
    here = world(rule=False)
    here.put(gang("w1", 8, allowed_flavors=("spot", "unknown")), gang("w2", 8))
    here.decide()
    held = {each.name: each.admission.pod_sets[0].flavors[GPU] for each in here.workloads.values() if each.admission}
    assert held == {"w1": "spot", "w2": "reservation"}


def test_what_it_does_not_allow_is_named_and_it_is_not_taken_for_one_of_its_shape() -> None:
    here = world((8, 0, 0), rule=False)
    here.put(gang("w1", 8, allowed_flavors=("spot",)), gang("w2", 8))
    here.decide()
    assert here.running() == ["w2"]
    found = here.engine.explain("team/w1")
    assert found is not None
    said = "skipping flavor reservation due to WorkloadAllowedResourceFlavorAnnotation annotation"
    assert said in found.message


def test_allowed_flavors_count_only_where_the_gate_is_on() -> None:
    here = world(rule=False, settings=OFF)
    here.put(gang("w1", 8, allowed_flavors=("spot",)))
    here.decide()
    admission = here.workloads["team/w1"].admission
    assert admission is not None
    assert admission.pod_sets[0].flavors == {GPU: "reservation"}


# --- variants ---------------------------------------------------------------------------------------------------------


def test_the_most_preferred_flavor_that_fits_is_taken_at_once() -> None:
    here = world()
    here.put(parent(), *variants())
    decisions = here.decide()
    assert here.running() == ["job-reservation"]
    assert not [each for each in decisions if isinstance(each, Evict)]


def test_a_parent_neither_queues_nor_holds() -> None:
    here = world()
    here.put(parent(), *variants())
    assert here.engine.pending("q") == ["team/job-demand", "team/job-reservation", "team/job-spot"]
    here.decide()
    here.change("job", admission=here.workloads["team/job-reservation"].admission, admitted=True)
    assert here.engine.usage("q") == {"reservation": {GPU: 8}}
    assert here.engine.workloads_of("q")[2] == ["team/job-reservation"]
    assert here.decide() == []
    assert here.engine.explain("team/job") is None


def test_a_parent_that_is_known_before_its_queue_holds_nothing_either() -> None:
    here = world()
    here.put(parent(), *variants())
    here.decide()
    here.change("job", admission=here.workloads["team/job-reservation"].admission, admitted=True)
    first = EngineWorld(settings=ON)
    first.put(*here.workloads.values())
    store = here.engine._store
    first.put(*store.flavors.values(), *store.cluster_queues.values())
    assert first.engine.usage("q") == {"reservation": {GPU: 8}}
    assert first.engine.snapshot() == here.engine.snapshot()


def test_a_workload_without_variants_waits_for_them() -> None:
    here = world()
    here.put(gang("w1", 1))
    assert here.decide() == []
    found = here.engine.explain("team/w1")
    assert found is not None
    assert found.message == "The variants of the workload are not created yet"


def test_variants_do_not_queue_where_no_policy_is_in_force() -> None:
    for here in (world(rule=False), world(settings=OFF)):
        here.put(*variants())
        here.decide()
        assert here.running() == []
        found = here.engine.explain("team/job-spot")
        assert found is not None
        assert "no concurrentAdmissionPolicy in force" in found.message


def test_a_job_moves_to_a_more_preferred_flavor_when_that_opens() -> None:
    here = world()
    here.put(*variants("old", flavors=("reservation",)))
    here.decide()
    here.put(parent(), *variants())
    here.decide()
    assert here.running() == ["job-demand", "old-reservation"]
    here.finish("old-reservation")
    evictions = [each for each in here.decide() if isinstance(each, Evict)]
    assert [(each.workload, each.reason) for each in evictions] == [("team/job-demand", "FlavorMigration")]
    assert evictions[0].message == (
        "Evicted to accommodate a workload (UID: uid-job-reservation) due to migration to more favorable resource flavor"
    )
    assert here.decide() == []  # it waits until the job has stopped
    assert here.running() == []
    found = here.engine.explain("team/job-reservation")
    assert found is not None
    assert (found.reason, found.message) == (
        "WaitingForPreemptedWorkloads",
        "Pending the migration of 1 workload(s)",
    )
    here.complete_evictions()
    here.decide()
    assert here.running() == ["job-reservation"]


def test_a_migration_whose_write_fails_is_decided_again() -> None:
    here = world((0, 8, 0))
    here.put(*variants())
    here.decide()
    groups = (group({name: {GPU: 8} for name in FLAVORS}),)
    here.put(cluster_queue("q", groups=groups, concurrent_admission=ConcurrentAdmission()))
    assert [type(each) for each in here.decide(lost=["team/job-demand"])][:1] == [Evict]
    here.engine.observe(WriteFailed("team/job-demand"))
    assert [each.workload for each in here.decide() if isinstance(each, Evict)] == ["team/job-demand"]


def test_it_stays_where_it_is_with_retain_first_admission() -> None:
    here = world((0, 8, 8), rule=ConcurrentAdmission("RetainFirstAdmission"))
    here.put(*variants())
    here.decide()
    groups = (group({name: {GPU: 8} for name in FLAVORS}),)
    here.put(cluster_queue("q", groups=groups, concurrent_admission=ConcurrentAdmission("RetainFirstAdmission")))
    assert not [each for each in here.decide() if isinstance(each, Evict)]
    assert here.running() == ["job-demand"]


def test_it_does_not_move_to_flavors_after_the_last_acceptable_one() -> None:
    rule = ConcurrentAdmission(last_acceptable="reservation")
    here = world((0, 0, 8), rule=rule)
    here.put(*variants())
    here.decide()
    here.put(
        cluster_queue(
            "q",
            groups=(group({"reservation": {GPU: 0}, "demand": {GPU: 8}, "spot": {GPU: 8}}),),
            concurrent_admission=rule,
        )
    )
    assert not [each for each in here.decide() if isinstance(each, Evict)]
    here.put(cluster_queue("q", groups=(group({name: {GPU: 8} for name in FLAVORS}),), concurrent_admission=rule))
    assert [each.workload for each in here.decide() if isinstance(each, Evict)] == ["team/job-spot"]


def test_a_variant_that_has_to_wait_does_not_keep_others_from_starting() -> None:
    here = world()
    here.put(*variants())
    here.decide()
    here.put(*variants("next9"))
    here.decide()
    assert here.running() == ["job-reservation", "next9-demand"]


def test_variants_of_the_same_uid_in_another_namespace_are_no_siblings() -> None:
    here = world((0, 8, 8))
    here.put(*variants(flavors=("demand",)))
    here.decide()
    foreign = replace(variants(flavors=("reservation",))[0], namespace="other", uid="uid-foreign")
    here.put(foreign)
    here.put(
        cluster_queue(
            "q", groups=(group({name: {GPU: 8} for name in FLAVORS}),), concurrent_admission=ConcurrentAdmission()
        )
    )
    assert not [each for each in here.decide() if isinstance(each, Evict)]


def test_a_parent_says_what_each_variant_waits_for() -> None:
    here = world((0, 4, 4))
    here.put(parent(), *variants())
    here.decide()
    found = here.engine.explain("team/job")
    assert found is not None
    for flavor in FLAVORS:
        assert f"{flavor} (team/job-{flavor}): " in found.message


# --- preemption gates -------------------------------------------------------------------------------------------------

PREEMPTS = PreemptionPolicy(within_cluster_queue="LowerPriority")


def test_a_gated_workload_starts_where_it_fits_and_preempts_nobody() -> None:
    here = world(rule=False, preemption=PREEMPTS)
    here.put(*(gang(f"low{n}", 8, priority=0) for n in range(3)))
    here.decide()
    here.put(gang("high", 8, priority=9, preemption_gates=("example.com/a",)))
    decisions = here.decide()
    assert [type(each).__name__ for each in decisions] == ["ReportPending"]
    explanation = decisions[0].explanation  # type: ignore[union-attr]
    assert (explanation.reason, explanation.message) == (
        "AdmissionGated",
        "Workload requires preemption, but it's gated",
    )
    assert explanation.preemption_gates == ("example.com/a",)
    found = here.engine.explain("team/high")
    assert found is not None
    assert "The preemption gates of the workload must open (example.com/a)" in found.needs
    here.finish("low1")
    here.decide()
    assert here.running() == ["high", "low0", "low2"]


def test_it_preempts_once_its_gate_opens() -> None:
    here = world((8, 0, 0), rule=False, preemption=PREEMPTS)
    here.put(gang("low", 8))
    here.decide()
    here.put(gang("high", 8, priority=9, preemption_gates=("example.com/a",)))
    here.decide()
    assert here.evicted() == []
    here.change("high", preemption_gates=())
    here.decide()
    assert here.evicted() == ["low"]


def test_a_gated_workload_lets_those_behind_it_start_unless_the_queue_is_strict() -> None:
    for strategy, running in (("BestEffortFIFO", ["low0", "small2"]), ("StrictFIFO", ["low0"])):
        here = world((8, 0, 0), rule=False, preemption=PREEMPTS, strategy=strategy)
        here.put(gang("low0", 6))
        here.decide()
        here.put(gang("high1", 8, priority=9, preemption_gates=("example.com/a",)), gang("small2", 2))
        here.decide()
        assert here.running() == running


def test_gates_count_only_where_a_feature_gate_heeds_them() -> None:
    for gates, evicted in (({}, ["low"]), ({"MultiKueueOrchestratedPreemption": True}, list[str]())):
        here = world((8, 0, 0), rule=False, preemption=PREEMPTS, settings=Settings(pods_ready=None, gates=gates))
        here.put(gang("low", 8), gang("high", 8, priority=9, preemption_gates=("example.com/a",), created=0))
        here.change("high", active=False)
        here.decide()
        here.change("high", active=True)
        here.decide()
        assert here.evicted() == evicted


_EVENTS = st.lists(
    st.tuples(st.sampled_from(("arrive", "open", "close", "finish", "stop")), st.integers(0, 7), st.integers(0, 3)),
    max_size=25,
)


@examples(60)
@given(_EVENTS)
def test_nothing_is_preempted_for_a_gated_workload(events: list[tuple[str, int, int]]) -> None:
    from gangline.engine.model import Preempt

    here = world((4, 2, 0), rule=False, preemption=PreemptionPolicy(within_cluster_queue="LowerOrNewerEqualPriority"))
    for kind, number, amount in events:
        name = f"w{number}"
        known = here.workloads.get(f"team/{name}")
        if kind == "arrive" and known is None:
            gates = ("example.com/a",) if number % 2 else ()
            here.put(gang(name, amount + 1, priority=amount, preemption_gates=gates))
        elif kind in ("open", "close") and known is not None:
            here.change(name, preemption_gates=("example.com/a",) if kind == "close" else ())
        elif kind == "finish" and known is not None and known.admission is not None:
            here.finish(name)
        elif kind == "stop":
            here.complete_evictions()
        closed = {key for key, each in here.workloads.items() if each.preemption_gates}
        for decision in here.decide():
            assert not (isinstance(decision, Preempt) and decision.by in closed)


_VARIANT_EVENTS = st.lists(
    st.tuples(st.sampled_from(("family", "quota", "finish", "stop", "restart")), st.integers(0, 3), st.integers(0, 8)),
    max_size=20,
)


@examples(60)
@given(_VARIANT_EVENTS)
def test_a_workload_never_runs_twice(events: list[tuple[str, int, int]]) -> None:
    here, sizes = world((2, 2, 2)), [2, 2, 2]
    for kind, number, amount in events:
        if kind == "family" and f"team/j{number}-spot" not in here.workloads:
            here.put(*variants(f"j{number}", 1 + amount % 3))
        elif kind == "quota" and number < 3:
            sizes[number] = amount
            groups = (group({name: {GPU: size} for name, size in zip(FLAVORS, sizes, strict=True)}),)
            here.put(cluster_queue("q", groups=groups, concurrent_admission=ConcurrentAdmission()))
        elif kind == "finish":
            for flavor in FLAVORS:
                if f"team/j{number}-{flavor}" in here.workloads:
                    here.finish(f"j{number}-{flavor}")
        elif kind == "stop":
            here.complete_evictions()
        elif kind == "restart":
            here.restart()
        here.decide()
        holding = [each.variant_of for each in here.workloads.values() if each.admission is not None]
        assert len(holding) == len(set(holding))
