"""What backfill promises, tried on random days."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import START, EngineWorld, cluster_queue, gang, of
from tests.engine.clockwork import Clockwork, Job, not_overcommitted
from tests.examples import examples

from gangline.engine.backfill.reservation import FAR, Reservation
from gangline.engine.backfill.timeline import Timeline
from gangline.engine.model import Backfill, Ordering, Preempt, RuntimeForecast
from gangline.engine.state.figures import snapshot

ORDERS = ("QueueOrder", "ShortestFirst", "LargestFirst", "BestFit", "AgedShortestFirst")
KEYS = ("Priority", "ShortestFirst", "AgedShortestFirst", "SmallestFirst", "LargestFirst", "HighestResponseRatio")
ORDERINGS = (*map(Ordering, KEYS), Ordering("AgedShortestFirst", optimism=0.75), Ordering("Priority", optimism=1.0))
RELAXED = examples(15)


@st.composite
def jobs(draw: st.DrawFn, *, sure: bool = False, queues: tuple[str, ...] = ("q",), limit: int = 12) -> list[Job]:
    """`sure`: limits that are never exceeded; else forecasts that may be wrong either way."""
    found: list[Job] = []
    for _ in range(draw(st.integers(3, limit))):
        lasts = draw(st.integers(1, 300))
        gpus, pods = draw(st.sampled_from([(1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (2, 3), (8, 3)]))
        guess = max(1, round(lasts * draw(st.sampled_from([0.1, 0.5, 1.0, 2.0, 5.0]))))
        known = draw(st.booleans()) or sure
        forecast = ((0.1, max(1, guess // 4)), (0.5, guess), (0.9, guess * 3)) if known and not sure else ()
        found.append(
            Job(
                draw(st.integers(0, 400)),
                lasts,
                gpus,
                pods,
                draw(st.sampled_from(queues)),
                forecast,
                lasts + draw(st.integers(1, 300)) if sure else None,
                draw(st.sampled_from([0, 0, 0, 1])) if not sure else 0,
            )
        )
    return found


def forecast(name: str, seconds: int) -> RuntimeForecast:
    return RuntimeForecast(f"team/{name}", ((0.5, seconds * 1000), (0.9, seconds * 1000)), "Model", 9)


def single(nodes: int, policy: Backfill, ordering: Ordering | None = None) -> Clockwork:
    queue = cluster_queue("q", 8 * (nodes or 3), backfill=policy, ordering=ordering)
    clock = Clockwork(queue, nodes=nodes)
    clock.checks.append(not_overcommitted)
    return clock


@RELAXED
@given(jobs(), st.sampled_from([0, 3]), st.sampled_from(ORDERS), st.sampled_from(ORDERINGS))
def test_any_backfill_that_is_in_the_way_goes_at_once(
    day: list[Job], nodes: int, candidates: str, ordering: Ordering
) -> None:
    clock = single(nodes, Backfill(candidates=candidates, revoke="Any"), ordering)
    clock.run(day)
    assert all(run.end is not None for run in clock.runs.values())
    assert clock.engine.head_delay_seconds() == {}


@RELAXED
@given(jobs(), st.sampled_from([0, 3]), st.sampled_from(ORDERS), st.sampled_from([1.0, 2.0]))
def test_overdue_backfill_delays_nobody(day: list[Job], nodes: int, candidates: str, factor: float) -> None:
    clock = single(nodes, Backfill(candidates=candidates, revoke="Overdue", overdue_factor=factor))
    clock.run(day)
    assert all(run.end is not None for run in clock.runs.values())
    assert "backfill" not in clock.engine.head_delay_seconds().get("q", {})


@RELAXED
@given(jobs(sure=True), st.sampled_from([0, 3]), st.sampled_from(ORDERS))
def test_with_sure_limits_every_first_plan_is_kept(day: list[Job], nodes: int, candidates: str) -> None:
    clock = single(nodes, Backfill(candidates=candidates))
    clock.run(day)
    for start in clock.engine.head_starts():
        assert start.planned is not None and start.started <= start.planned, start


@RELAXED
@given(jobs(), st.sampled_from([0, 3]), st.sampled_from([2, 3]), st.sampled_from(ORDERS))
def test_several_reservations_starve_nobody(day: list[Job], nodes: int, depth: int, candidates: str) -> None:
    clock = single(nodes, Backfill(depth=depth, candidates=candidates, revoke="Any"))
    clock.run(day)
    assert all(run.end is not None for run in clock.runs.values())


@RELAXED
@given(jobs(), st.sampled_from([0, 3]), st.sampled_from(ORDERINGS))
def test_what_is_kept_up_to_date_equals_what_is_built_anew(day: list[Job], nodes: int, ordering: Ordering) -> None:
    clock = single(nodes, Backfill(candidates="ShortestFirst", revoke="Overdue"), ordering)

    def compare(clock: Clockwork) -> None:
        store, planner = clock.engine._store, clock.engine._scheduler.backfill
        for kept in planner.timeline.reservations:
            moved, store.moved_holders, trees_rebuilt = store.moved_holders, {}, store.trees_rebuilt
            fresh = Timeline(store, store.estimates)
            fresh.level = planner.timeline.level
            fresh.sync(clock.now)
            anew = Reservation(kept.gang, kept.queue, kept.length)
            fresh.reservations.append(anew)
            fresh.reserve(anew, clock.now)
            assert anew.start == kept.start
            store.moved_holders, store.trees_rebuilt = moved, trees_rebuilt
        assert snapshot(store) == clock.engine.rebuilt().snapshot()

    clock.checks.append(compare)
    clock.run(day)


@RELAXED
@given(jobs(queues=("a", "b", "plain")), st.sampled_from([0, 3]))
def test_across_a_cohort_nothing_is_overcommitted_and_everybody_ends(day: list[Job], nodes: int) -> None:
    policy = Backfill(revoke="Any")
    queues = (
        cluster_queue("a", 8, "pool", backfill=policy),
        cluster_queue("b", 8, "pool", backfill=policy),
        cluster_queue("plain", 8, "pool"),
    )
    clock = Clockwork(*queues, nodes=nodes)
    clock.checks.append(not_overcommitted)
    clock.run(day)
    assert all(run.end is not None for run in clock.runs.values())


@RELAXED
@given(jobs(queues=("a", "b")), st.sampled_from([0, 3]))
def test_the_same_day_is_decided_the_same_way(day: list[Job], nodes: int) -> None:
    def once() -> list[tuple[int, str, str]]:
        policy = Backfill(depth=2, candidates="BestFit", revoke="Any")
        queues = (cluster_queue("a", 16, "pool", backfill=policy), cluster_queue("b", 8, "pool", backfill=policy))
        clock = Clockwork(*queues, nodes=nodes)
        clock.run(day)
        return clock.log

    assert once() == once()


def test_the_counterfactual_is_told() -> None:
    """Without revocation, a head that waits for a job that was let in and overstays counts every second of it."""
    clock = Clockwork(cluster_queue("q", 8, backfill=Backfill()))
    sure = ((0.5, 100), (0.9, 100))
    clock.run(
        [
            Job(0, 100, 4, forecast=sure),
            Job(1, 100, 8, forecast=sure),
            Job(2, 400, 4, forecast=((0.5, 50), (0.9, 60))),  # let in, says that it is gone by 62
        ]
    )
    assert (START + 2000, "Backfill", "j2") in clock.log
    assert clock.runs["j1"].starts == [402]
    # j0 ended at 100; j2 was overdue since 62
    assert clock.engine.head_delay_seconds() == {"q": {"backfill": 302.0}}
    (start,) = clock.engine.head_starts()
    assert start.planned is not None and start.planned < FAR and start.started == START + 402_000


def test_who_was_sent_away_is_remembered_until_the_head_has_had_its_quota() -> None:
    """A head may lose its reservation to one that goes before it: those sent away for it still wait for it."""
    world = EngineWorld(cluster_queue("q", 8, backfill=Backfill(revoke="Any")))
    world.put(forecast("long1", 3600), gang("long1", 4))
    world.decide()
    world.put(forecast("head2", 3600), gang("head2", 8), forecast("short3", 600), gang("short3", 4))
    world.decide()
    assert world.running() == ["long1", "short3"]
    world.finish("long1")
    assert of(world.decide(), Preempt) == ["short3"]
    head = world.engine._store.gangs["team/head2"]
    assert head.backfill.preempted_for_it == {"uid-short3"}
    world.put(forecast("first4", 3600), gang("first4", 8, priority=1))
    world.decide()
    assert world.engine._scheduler.backfill.reserved_gangs() == [world.engine._store.gangs["team/first4"]]
    assert head.backfill.preempted_for_it == {"uid-short3"}
    world.complete_evictions()
    world.decide()
    world.finish("first4")
    world.decide()
    assert world.running() == ["head2"]
    world.change("head2", admission=None, admitted=False, reserved_at=0)
    assert not head.backfill.preempted_for_it


def made_anew(rule: str = "Never") -> Clockwork:
    """j1 needs all and is planned for minute 20; j2 passes it and overruns; j3, of higher priority, takes the headship."""
    clock = Clockwork(cluster_queue("q", 8, backfill=Backfill(revoke=rule)))
    clock.run(
        [
            Job(0, 1200, 4, forecast=((0.5, 1200), (0.9, 1200))),
            Job(60, 600, 8, forecast=((0.5, 600), (0.9, 600))),
            Job(120, 7200, 4, forecast=((0.5, 300), (0.9, 300))),
            Job(1800, 600, 4, forecast=((0.5, 600), (0.9, 600)), priority=1),
            Job(1860, 1200, 8, forecast=((0.5, 1200), (0.9, 1200)), priority=1),
        ]
    )
    return clock


def test_the_first_plan_counts_whoever_went_first_meanwhile() -> None:
    clock = made_anew()
    assert clock.runs["j4"].starts == [7320], "it took the headship of j1, and waits for j2 as well"
    assert clock.runs["j1"].starts == [8520]
    starts = {start.workload: start for start in clock.engine.head_starts()}
    assert starts["team/j1"].planned == START + 1_200_000, "as planned before j4 came"
    lateness = clock.engine.head_lateness()["q"]
    assert (lateness.planned, lateness.promised, lateness.late) == (2, 0, 0), "two heads say too little to promise by"


def test_a_plan_is_settled_by_any_start() -> None:
    """A start is planned for head2, which loses its reservation to one that goes before it, and starts beside that one."""
    world = EngineWorld(cluster_queue("q", 8, backfill=Backfill()))
    world.put(forecast("long1", 600), gang("long1", 8))
    world.decide()
    world.put(forecast("head2", 600), gang("head2", 4))
    world.decide()
    head = world.engine._store.gangs["team/head2"]
    planned = world.engine._store.promises.of(head)
    assert planned is not None and planned.planned is not None and planned.at < planned.planned
    world.put(forecast("first3", 600), gang("first3", 4, priority=1))
    world.decide()
    assert [each.key for each in world.engine._scheduler.backfill.reserved_gangs()] == ["team/first3"]
    assert world.engine._store.promises.of(head) == planned
    world.finish("long1")
    world.decide()
    assert world.running() == ["first3", "head2"]
    assert world.engine._store.promises.of(head) is None and not head.backfill.holds_back
    assert {start.workload: start.planned for start in world.engine.head_starts()}["team/head2"] == planned.planned


def test_a_new_reservation_does_not_forget_who_passed_before() -> None:
    """j1 loses the headship to j4 and gets it back while j2, which passed it long before, still runs."""
    clock = Clockwork(cluster_queue("q", 8, backfill=Backfill()))
    clock.run(
        [
            Job(0, 1200, 4, forecast=((0.5, 1200), (0.9, 1200))),
            Job(60, 600, 8, forecast=((0.5, 600), (0.9, 600))),
            Job(120, 7200, 3, forecast=((0.5, 300), (0.9, 300))),
            Job(1100, 1200, 5, forecast=((0.5, 1200), (0.9, 1200)), priority=1),
        ]
    )
    assert clock.runs["j3"].starts == [1200] and clock.runs["j1"].starts == [7320]
    # j3 is gone at 2400, and from then on j2 alone keeps j1 waiting, as it would have from 1200 on without j3
    assert clock.engine.head_delay_seconds()["q"]["backfill"] == 7320 - 2400
