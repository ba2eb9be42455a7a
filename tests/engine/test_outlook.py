"""The engine played forward: who starts when, after whom, and how sure that is."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang

from gangline.engine.model import (
    Admit,
    Backfill,
    BoundPod,
    CheckpointPreemption,
    ClusterQueue,
    Flavor,
    ForeignPod,
    Gone,
    Node,
    Ordering,
    PodSet,
    Put,
    RuntimeForecast,
    Topology,
    TopologyRequest,
    Workload,
    WorkloadPods,
)
from gangline.engine.simulation.outlook import Outlook, outlook

MINUTE = 60_000


def forecast(name: str, minutes: float, spread: float = 1.0001) -> RuntimeForecast:
    quantiles = ((0.1, minutes / spread), (0.5, minutes), (0.9, minutes * spread))
    return RuntimeForecast(f"team/{name}", tuple((q, round(m * MINUTE)) for q, m in quantiles))


def world(*gangs: tuple[Workload, float], gpus: int = 8, spread: float = 1.0001, **fields: Any) -> EngineWorld:
    """Gangs with the minutes that they are forecast to run, after what could start has started."""
    made = EngineWorld(cluster_queue("q", gpus, **fields))
    for workload, minutes in gangs:
        made.put(forecast(workload.name, minutes, spread), workload)
    made.decide()
    return made


def look(made: EngineWorld, **options: Any) -> Outlook:
    return outlook(made.engine.facts(), made.engine.settings, made.now, **{"clock": time.perf_counter, **options})


def in_minutes(made: EngineWorld, seen: Outlook, name: str) -> tuple[float, float]:
    start = seen.starts[f"team/{name}"]
    assert start.p90 is not None
    return round((start.p50 - made.now) / MINUTE, 1), round((start.p90 - made.now) / MINUTE, 1)


def test_those_who_wait_start_one_after_the_other() -> None:
    made = world((gang("a1", 8), 60), (gang("b2", 8), 30), (gang("c3", 8), 10))
    seen = look(made)
    assert set(seen.starts) == {"team/b2", "team/c3"}
    assert in_minutes(made, seen, "b2") == (60.0, 60.0)
    assert in_minutes(made, seen, "c3") == (90.0, 90.0)
    assert seen.starts["team/c3"].because == "after team/b2 ends"


def test_a_run_that_has_lasted_a_while_ends_so_much_sooner() -> None:
    made = world((gang("a1", 8), 60), (gang("b2", 8), 30))
    made.now += 45 * MINUTE
    seen = look(made)
    assert in_minutes(made, seen, "b2")[0] == 15.0


def test_uncertain_lengths_make_the_start_uncertain() -> None:
    made = world((gang("a1", 8), 60), (gang("b2", 8), 30), (gang("c3", 8), 10), spread=4.0)
    seen = look(made)
    p50, p90 = in_minutes(made, seen, "c3")
    assert 40 < p50 < 180 and p90 > 1.5 * p50
    assert look(made) == seen, "the same facts at the same time give the same outlook"


def test_backfill_is_foreseen_as_the_engine_does_it() -> None:
    gangs = ((gang("long1", 4), 60), (gang("head2", 8), 30), (gang("short3", 4), 20), (gang("late4", 4), 90))
    plain = world(*gangs)
    assert "short3" in plain.running(), "best effort: whoever fits may go"
    careful = world(*gangs, backfill=Backfill())
    assert careful.running() == ["long1", "short3"]
    seen = look(careful)
    assert in_minutes(careful, seen, "head2")[0] == 60.0
    assert in_minutes(careful, seen, "late4")[0] == 90.0


def test_a_run_that_will_start_as_backfill_is_foreseen_with_the_instant_by_which_it_must_be_gone() -> None:
    gangs = ((gang("long1", 4), 60), (gang("ends2", 2), 10), (gang("head3", 8), 30), (gang("later4", 4), 40))
    made = world(*gangs, backfill=Backfill())
    assert made.running() == ["ends2", "long1"]
    runs = {run.workload: run for run in look(made).stretches}
    later, head = runs["team/later4"], runs["team/head3"]
    assert round((later.began - made.now) / MINUTE) == 10 and later.backfilled
    assert later.must_end_by is not None and abs(later.must_end_by - head.began) < 1000
    assert later.ended <= later.must_end_by
    assert head.must_end_by is None and not head.backfilled and runs["team/ends2"].must_end_by is None


def test_what_never_fits_has_no_start() -> None:
    made = world((gang("a1", 8), 60), (gang("huge2", 16), 30))
    assert look(made).starts == {}


def test_behind_a_run_of_unknown_length_nothing_is_promised() -> None:
    made = EngineWorld(cluster_queue("q", 8), gang("a1", 8), gang("b2", 8))
    made.decide()
    assert look(made).starts == {}


def test_preemption_is_foreseen_and_its_victim_starts_again() -> None:
    lower = ClusterQueue.__dataclass_fields__["preemption"].default
    made = world((gang("low1", 8), 60), preemption=replace(lower, within_cluster_queue="LowerPriority"))
    made.put(forecast("high2", 30), gang("high2", 8, priority=5))
    seen = look(made)
    assert in_minutes(made, seen, "high2")[0] == 0.0
    assert in_minutes(made, seen, "low1")[0] == 30.0


def test_what_a_victim_saved_is_not_run_again() -> None:
    """It runs 45 of 60 minutes and saves every 20; the 20 that are left of it follow the job that preempts it."""
    lower = ClusterQueue.__dataclass_fields__["preemption"].default
    queue = {"preemption": replace(lower, within_cluster_queue="LowerPriority")}
    made = world((gang("low1", 8, checkpoint_seconds=1200.0), 60), **queue)
    made.now += 45 * MINUTE
    made.put(forecast("high2", 30), gang("high2", 8, priority=5), forecast("last3", 5), gang("last3", 8, priority=-1))
    assert in_minutes(made, look(made), "last3")[0] == 50.0
    plain = world((gang("low1", 8), 60), **queue)
    plain.now += 45 * MINUTE
    plain.put(forecast("high2", 30), gang("high2", 8, priority=5), forecast("last3", 5), gang("last3", 8, priority=-1))
    assert in_minutes(plain, look(plain), "last3")[0] == 90.0, "all of it"


def test_a_victim_that_runs_again_can_be_preempted_again() -> None:
    """The engine has admitted it again, and no fact says so yet: it is not among those that leave anyway."""
    giving_way = Backfill(checkpoint_preemption=CheckpointPreemption(min_runtime_seconds=60.0))
    made = EngineWorld(cluster_queue("q", 8, backfill=giving_way, ordering=Ordering("ShortestFirst")))
    again = gang("long1", 8, checkpoint_seconds=60.0, evicted="Preempted", requeued=True, preemptions=1)
    made.put(forecast("long1", 6000), again)
    assert [type(each) for each in made.engine.decide(made.now)] == [Admit]
    (known,) = [each.item for each in made.engine.facts() if isinstance(each, Put) and isinstance(each.item, Workload)]
    assert known.admitted and not known.evicted
    made.now += 60 * MINUTE
    made.put(forecast("short2", 1), gang("short2", 8, created=made.now))
    assert in_minutes(made, look(made), "short2")[0] < 60.0


def test_a_hard_limit_bounds_a_run() -> None:
    made = world((gang("a1", 8, max_execution_seconds=600), 60), (gang("b2", 8), 30))
    assert in_minutes(made, look(made), "b2")[0] == 10.0


def test_only_those_asked_for_are_followed_to_their_start() -> None:
    made = world(*((gang(f"w{i}", 8), 10) for i in range(6)))
    seen = look(made, only=frozenset({"team/w2"}))
    assert set(seen.starts) == {"team/w2"}
    assert [stretch.workload for stretch in seen.stretches] == ["team/w0", "team/w1", "team/w2"]


def test_with_little_time_two_courses_must_do() -> None:
    made = world((gang("a1", 8), 60), (gang("b2", 8), 30), spread=4.0)
    seen = look(made, seconds=0.0)
    assert seen.courses == 2
    p50, p90 = in_minutes(made, seen, "b2")
    assert p50 == 60.0 and p90 > 90.0


def test_plan_and_starts_are_of_the_same_courses() -> None:
    """Uncertain runs one after the other: the plan has each start at its p50, and that course's cause."""
    gangs = [(gang(f"w{i}", 8 if i % 2 else 4), 20 * (1 + i % 3)) for i in range(6)]
    made = world(*gangs, spread=5.0)
    seen = look(made)
    firsts = {stretch.workload: stretch for stretch in reversed(seen.stretches)}
    assert len(seen.starts) >= 4 and seen.courses >= 8
    for key, start in seen.starts.items():
        assert firsts[key].began == start.p50 <= firsts[key].ended
        named = ", ".join(firsts[key].after[:3])
        assert start.because.startswith(f"after {named}") if named else start.because == "it can start now"


def test_a_start_is_caused_by_those_who_leave_what_it_uses() -> None:
    """Runs of other queues that end at the same instant have nothing to do with it."""
    made = EngineWorld(cluster_queue("q", 8), cluster_queue("other", 8))
    for name, queue, minutes in (("a1", "other", 60), ("b2", "q", 60), ("c3", "q", 10)):
        made.put(forecast(name, minutes, spread=1.0), gang(name, 8, queue))
    made.decide()
    seen = look(made)
    ends = {stretch.workload: stretch.ended for stretch in seen.stretches}
    assert ends["team/a1"] == ends["team/b2"] == seen.starts["team/c3"].p50
    assert seen.starts["team/c3"].because == "after team/b2 ends"


def test_the_runs_can_be_drawn() -> None:
    made = world((gang("a1", 8), 60), (gang("b2", 8), 30))
    stretches = look(made).stretches
    assert [(s.workload, s.cluster_queue) for s in stretches] == [("team/a1", "q"), ("team/b2", "q")]
    assert stretches[0].ended == stretches[1].began
    assert abs(stretches[1].ended - stretches[1].began - 30 * MINUTE) < 1000


def test_whoever_ends_leaves_its_nodes() -> None:
    """What is known of where pods sit ends with their run."""
    made = EngineWorld(Topology("hosts", ("kubernetes.io/hostname",)), Flavor("a100", topology="hosts"))
    made.put(cluster_queue("q", 8), Node("n", {"kubernetes.io/hostname": "n"}, {GPU: 8, "pods": 20}))
    for name, minutes in (("a1", 60), ("b2", 30)):
        pods = (PodSet("main", 1, {GPU: 8}, topology=TopologyRequest(unconstrained=True)),)
        made.put(forecast(name, minutes), gang(name, pod_sets=pods))
        made.decide()
    assert made.running() == ["a1"]
    made.put(WorkloadPods("team/a1", (BoundPod("a1-0", "main", "n"),)))
    assert in_minutes(made, look(made), "b2")[0] == 60.0


def test_whoever_ends_leaves_the_nodes_of_a_flavor_without_a_topology() -> None:
    """A pod is known twice: as one of its gang, and by what it takes of its node."""
    made = EngineWorld(Flavor("a100", node_labels={"pool": "a"}), Node("n", {"pool": "a"}, {GPU: 8, "pods": 20}))
    made.put(cluster_queue("q", 8))
    for name, minutes in (("a1", 60), ("b2", 30), ("c3", 10)):
        made.put(forecast(name, minutes), gang(name, 8))
    made.decide()
    assert made.running() == ["a1"]
    made.put(WorkloadPods("team/a1", (BoundPod("a1-0", "main", "n"),)), ForeignPod("team/a1-0", "n", {GPU: 8}))
    seen = look(made)
    assert in_minutes(made, seen, "b2")[0] == 60.0
    assert in_minutes(made, seen, "c3")[0] == 90.0
    # as the rehearsal of its end has it
    facts = [*made.engine.facts(), Gone(WorkloadPods, "team/a1"), Gone(Workload, "team/a1")]
    seen = outlook(facts, made.engine.settings, made.now, clock=time.perf_counter)
    assert in_minutes(made, seen, "b2")[0] == 0.0


def test_what_hangs_is_queued_again_once_in_a_course() -> None:
    """It used to be evicted again as soon as it had started, so that nothing behind it had an expected start."""
    made = world((gang("a1", 8), 60), (gang("b2", 8), 30))
    made.now += 45 * MINUTE
    made.change("a1", stalled="Requeue")
    seen = look(made)
    assert in_minutes(made, seen, "a1") == (0.0, 0.0)
    assert in_minutes(made, seen, "b2")[0] == 60.0, (
        "it lost its work, and knows 15 minutes more: all of it is done again"
    )
