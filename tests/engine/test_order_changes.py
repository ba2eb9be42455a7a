"""Orders by windows of time and by how full a queue is (rows C5, busy hours, and C4, demand, of placement-and-sharing)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.engine import test_demand
from tests.engine.test_demand import gang, started
from tests.examples import examples

from gangline.engine import Engine, outlook
from gangline.engine.model import (
    Admit,
    Backfill,
    ClusterQueue,
    FlavorQuotas,
    Gone,
    LocalQueue,
    Node,
    OrderInForce,
    Ordering,
    OrderStep,
    OrderWhenFull,
    Put,
    Quota,
    ReportPending,
    ResourceGroup,
    RuntimeForecast,
    Workload,
)

HOUR = 3_600_000
#: largest first from 9 to 17 o'clock of the first day
BUSY_HOURS = (OrderStep(9 * HOUR, "LargestFirst", "busy-hours"), OrderStep(17 * HOUR, "Priority"))


def queue(gpus: int, *, backfill: Backfill | None = None, cohort: str = "", **order: Any) -> ClusterQueue:
    groups = (ResourceGroup(("gpu",), (FlavorQuotas("a100", {"gpu": Quota(gpus)}),)),)
    return ClusterQueue("q", cohort, groups=groups, ordering=Ordering(**order), backfill=backfill)


def engine_with(config: ClusterQueue, *workloads: Workload, nodes: tuple[Node, ...] = ()) -> Engine:
    return test_demand.engine_with(config, *workloads, nodes=nodes, pods_ready=False)


def order_of(engine: Engine) -> OrderInForce:
    (found,) = (each.item for each in engine.facts() if isinstance(each, Put) and isinstance(each.item, OrderInForce))
    return found


def run(engine: Engine, now: int) -> list[str]:
    """Decide, and confirm what is admitted. Returns the names of what starts."""
    decisions = engine.decide(now)
    confirm(engine, decisions, now)
    assert not started(engine.decide(now))
    return started(decisions)


def confirm(engine: Engine, decisions: Any, now: int) -> None:
    facts = {
        each.item.key: each.item for each in engine.facts() if isinstance(each, Put) and isinstance(each.item, Workload)
    }
    for each in decisions:
        if isinstance(each, Admit):
            held = replace(facts[each.workload], admission=each.admission, admitted=True, admitted_at=now)
            engine.observe(Put(held))


def finish(engine: Engine, name: str) -> None:
    engine.observe(Gone(Workload, f"team/{name}"))


def forecast(engine: Engine, name: str, hours: float) -> None:
    length = round(hours * HOUR)
    engine.observe(Put(RuntimeForecast(f"team/{name}", ((0.5, length), (0.9, length)), "Model", 12)))


# --- busy hours -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hour", "gpus"), [(8, 11), (9, 16), (16, 16), (17, 11)])
def test_c5_in_busy_hours_the_largest_are_first_so_that_less_room_is_lost_on_nodes(hour: int, gpus: int) -> None:
    """Two nodes with 8 GPUs, arrivals of 2, 3, 6 and 5: in order of age 5 has no node, and 11 of 16 GPUs are used."""
    nodes = tuple(Node(f"n{number}", {"pool": "a100"}, {"gpu": 8}) for number in range(2))
    gangs = [gang(f"g{gpus}", "one", gpus, at=number) for number, gpus in enumerate((2, 3, 6, 5))]
    engine = engine_with(queue(16, steps=BUSY_HOURS), *gangs, nodes=nodes)
    assert sum(int(name.removeprefix("g")) for name in run(engine, hour * HOUR)) == gpus


def test_a_window_wakes_the_engine_and_orders_who_waits_while_who_runs_goes_on() -> None:
    engine = engine_with(
        queue(8, steps=BUSY_HOURS),
        gang("runs", "one", 8),
        gang("small", "one", 2, at=1),
        gang("large", "one", 8, at=2),
    )
    assert run(engine, 8 * HOUR) == ["runs"]
    assert engine.pending("q") == ["team/small", "team/large"]
    assert engine.next_wakeup(8 * HOUR) == 9 * HOUR
    assert [each for each in engine.decide(9 * HOUR) if not isinstance(each, ReportPending)] == [], "nobody is stopped"
    assert engine.pending("q") == ["team/large", "team/small"]
    assert order_of(engine) == OrderInForce("q", "LargestFirst", "busy-hours", since=9 * HOUR)
    assert engine.next_wakeup(9 * HOUR) == 17 * HOUR
    engine.decide(17 * HOUR)
    assert engine.pending("q") == ["team/small", "team/large"]


def test_why_names_the_window_and_when_it_ends() -> None:
    engine = engine_with(queue(8, steps=BUSY_HOURS), gang("runs", "one", 8), gang("waits", "one", 8, at=1))
    run(engine, 8 * HOUR)
    text = engine.order_text("q")
    assert text == ("The queue's order is Priority until 1970-01-01 09:00 UTC, then LargestFirst (window busy-hours)")
    engine.decide(9 * HOUR)
    text = engine.order_text("q")
    assert text == ("The queue's order is LargestFirst (window busy-hours) until 1970-01-01 17:00 UTC, then Priority")


def test_the_plan_plays_a_window_that_is_still_to_come() -> None:
    """At 8 runs a gang that ends at 10: then the largest is first, though the small one came earlier."""
    engine = engine_with(
        queue(8, steps=BUSY_HOURS),
        gang("runs", "one", 8),
        gang("small", "one", 2, at=1),
        gang("large", "one", 8, at=2),
    )
    for name in ("runs", "small", "large"):
        forecast(engine, name, 2)
    run(engine, 8 * HOUR)
    found = outlook(list(engine.facts()), engine.settings, 8 * HOUR, clock=lambda: 0.0)
    large, small = (found.starts[f"team/{name}"].p50 for name in ("large", "small"))
    assert 10 * HOUR <= large < small


def test_a_local_queue_that_used_least_is_first_in_a_window() -> None:
    """Usage counts before the window, too: the order begins with the past."""
    engine = engine_with(
        queue(8, steps=(OrderStep(9 * HOUR, "FairShare", "nights"),)),
        gang("long", "one", 8),
    )
    run(engine, 0)
    engine.observe(Put(gang("a", "one", 8, at=HOUR // 1000)))
    engine.observe(Put(gang("b", "two", 8, at=2 * HOUR // 1000)))
    for hour in range(1, 9):
        engine.decide(hour * HOUR)
    assert engine.pending("q") == ["team/a", "team/b"]
    engine.decide(9 * HOUR)
    assert engine.pending("q") == ["team/b", "team/a"]


# --- reserved heads ---------------------------------------------------------------------------------------------------


def reserving() -> Engine:
    """`small` is the head and reserved a start; `large` came later, and is first in busy hours."""
    engine = engine_with(
        queue(8, steps=BUSY_HOURS, backfill=Backfill()),
        gang("runs", "one", 7),
        gang("small", "one", 2, at=1),
        gang("large", "two", 8, at=2),
    )
    for name in ("runs", "small", "large"):
        forecast(engine, name, 5)
    run(engine, 8 * HOUR)
    assert engine.reservations() == {"team/small": 13 * HOUR}
    return engine


def test_a_reserved_head_keeps_its_reservation_when_the_order_changes() -> None:
    engine = reserving()
    engine.decide(9 * HOUR)
    assert engine.reservations() == {"team/small": 13 * HOUR}
    assert engine.pending("q") == ["team/small", "team/large"]
    assert order_of(engine).first == ("team/small",)
    finish(engine, "runs")
    assert run(engine, 10 * HOUR) == ["small"]
    assert order_of(engine).first == (), "it has started"
    assert engine.reservations() == {"team/large": 15 * HOUR}


def test_whose_run_is_stopped_later_has_no_old_turn() -> None:
    engine = reserving()
    engine.decide(9 * HOUR)
    finish(engine, "runs")
    run(engine, 10 * HOUR)
    engine.decide(10 * HOUR)
    small = next(each.item for each in engine.facts() if isinstance(each, Put) and each.item == _fact(engine, "small"))
    assert isinstance(small, Workload)
    engine.observe(Put(replace(small, admission=None, admitted=False, evicted="Preempted", requeued=True)))
    engine.decide(11 * HOUR)
    assert order_of(engine).first == ()


def _fact(engine: Engine, name: str) -> Workload:
    return next(
        each.item
        for each in engine.facts()
        if isinstance(each, Put) and isinstance(each.item, Workload) and each.item.name == name
    )


def test_a_higher_priority_precedes_a_kept_head() -> None:
    engine = reserving()
    engine.decide(9 * HOUR)
    engine.observe(Put(gang("urgent", "one", 8, at=3, priority=9)))
    engine.decide(9 * HOUR)
    assert engine.pending("q")[0] == "team/urgent"


@pytest.mark.parametrize("key", ["FairShare", "Demand", "ShortestFirst"])
def test_a_kept_head_precedes_others_in_every_order(key: str) -> None:
    steps = (OrderStep(9 * HOUR, key, "w"),)
    engine = engine_with(
        queue(8, steps=steps, backfill=Backfill()),
        gang("runs", "one", 7),
        gang("head", "one", 2, at=1),
        gang("other", "two", 8, at=2),
    )
    for name, hours in (("runs", 5), ("head", 5), ("other", 1)):
        forecast(engine, name, hours)
    run(engine, 8 * HOUR)
    engine.decide(9 * HOUR)
    assert engine.pending("q") == ["team/head", "team/other"]
    assert list(engine.reservations()) == ["team/head"]


@pytest.mark.parametrize("hour", [9, 10])
def test_an_engine_that_begins_anew_keeps_the_head_and_the_order(hour: int) -> None:
    """It gets the facts that the former one had: at 9 that is the order before the window, during which that one was killed."""
    before = reserving()
    if hour == 10:
        before.decide(9 * HOUR)
    engine = Engine(before.settings)
    for change in before.facts():
        engine.observe(change)
    engine.decide(10 * HOUR)
    assert engine.next_wakeup(10 * HOUR) == 10 * HOUR
    engine.decide(10 * HOUR)
    assert engine.reservations() == {"team/small": 13 * HOUR}
    assert order_of(engine).key == "LargestFirst"
    assert order_of(engine).first == ("team/small",)


# --- fullness ---------------------------------------------------------------------------------------------------------

FULL = OrderWhenFull("SmallestFirst", above=0.9, below=0.7)


@pytest.mark.parametrize("of", ["Cohort", "ClusterQueue"])
def test_c4_a_full_queue_has_another_order_until_it_is_clearly_less_full(of: str) -> None:
    """8 of 10 GPUs: not full. 9: full. 8 and 7: still. 6: no longer; and 8 again: not yet."""
    engine = engine_with(queue(10, key="LargestFirst", when_full=replace(FULL, of=of)))
    keys: list[str] = []
    held = 0
    for number, change in enumerate((8, 1, -1, -1, -1, 2)):
        names = [f"h{held + each}" for each in range(abs(change))]
        if change > 0:
            for name in names:
                engine.observe(Put(gang(name, "one", 1, at=number)))
            run(engine, number)
        else:
            finish(engine, f"h{held - 1}")
        held += change
        engine.decide(number)
        keys.append(order_of(engine).key)
    large, small = "LargestFirst", "SmallestFirst"
    assert keys == [large, small, small, small, large, large]


def test_what_others_of_the_cohort_hold_counts_unless_the_policy_looks_at_the_queue_alone() -> None:
    other = replace(queue(10, cohort="c"), name="other", ordering=None)
    for of, key in (("Cohort", "SmallestFirst"), ("ClusterQueue", "Priority")):
        engine = engine_with(queue(10, cohort="c", when_full=OrderWhenFull("SmallestFirst", 0.5, 0.4, of)))
        engine.observe(Put(other))
        engine.observe(Put(LocalQueue("team", "theirs", "other")))
        engine.observe(Put(gang("theirs", "theirs", 10)))
        run(engine, 0)
        engine.decide(0)
        expected = key if of == "Cohort" else "SmallestFirst"
        # the queue may have all 20 of its cohort, and holds nothing of it
        assert order_of(engine).key == ("Priority" if of == "ClusterQueue" else expected)


def test_an_open_window_comes_before_fullness() -> None:
    engine = engine_with(queue(8, steps=BUSY_HOURS, when_full=FULL), gang("runs", "one", 8))
    run(engine, 8 * HOUR)
    for hour, key in ((8, "SmallestFirst"), (9, "LargestFirst"), (17, "SmallestFirst")):
        engine.decide(hour * HOUR)
        assert order_of(engine).key == key


def test_an_engine_that_begins_between_the_two_bounds_goes_on_as_the_former_one() -> None:
    engine = engine_with(queue(10, when_full=FULL), *(gang(f"h{n}", "one", 1) for n in range(9)))
    run(engine, 0)
    engine.decide(0)
    finish(engine, "h8")
    engine.decide(1)
    assert order_of(engine).key == "SmallestFirst", "8 of 10"
    for with_order in (True, False):
        anew = Engine(engine.settings)
        for change in engine.facts():
            if with_order or not isinstance(change, Put) or not isinstance(change.item, OrderInForce):
                anew.observe(change)
        anew.decide(2)
        assert order_of(anew).full is with_order


# --- laws -------------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(("Priority", "LargestFirst", "SmallestFirst", "Demand", "FairShare"))


@st.composite
def orders(draw: st.DrawFn) -> Ordering:
    times = sorted(draw(st.sets(st.integers(1, 30), max_size=4)))
    steps = tuple(OrderStep(at * 1000, draw(KEYS), draw(st.sampled_from(("", "w")))) for at in times)
    full = draw(
        st.none()
        | st.builds(OrderWhenFull, KEYS, st.just(0.8), st.just(0.4), st.sampled_from(("Cohort", "ClusterQueue")))
    )
    assume(steps or full)
    return Ordering(draw(KEYS), steps=steps, when_full=full)


def _arrivals(plan: list[tuple[int, int, bool]]) -> Iterator[tuple[int, Workload, bool]]:
    for number, (at, gpus, ends) in enumerate(sorted(plan)):
        yield at, gang(f"g{number}", "one" if number % 2 else "two", gpus, at=at), ends


@examples(30)
@given(
    order=orders(),
    depth=st.sampled_from((None, 1, 2)),
    plan=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8), st.booleans()), max_size=12),
)
def test_changing_orders_stop_nobody_and_lose_nobody(
    order: Ordering, depth: int | None, plan: list[tuple[int, int, bool]]
) -> None:
    backfill = None if depth is None else Backfill(depth=depth)
    engine = engine_with(replace(queue(8, backfill=backfill), ordering=order))
    holding: list[str] = []
    waiting: set[str] = set()
    arrivals = list(_arrivals(plan))
    for second in range(32):
        for at, workload, ends in arrivals:
            if at == second:
                engine.observe(Put(workload))
                waiting.add(workload.key)
                if ends and holding:
                    engine.observe(Gone(Workload, holding.pop(0)))
        decisions = engine.decide(second * 1000)
        assert all(isinstance(each, Admit | ReportPending) for each in decisions), "nothing that runs is touched"
        confirm(engine, decisions, second * 1000)
        for name in started(decisions):
            holding.append(f"team/{name}")
            waiting.discard(f"team/{name}")
        assert set(engine.pending("q")) == waiting
        assert set(order_of(engine).first) <= waiting


# --- orders by waiting time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backfill", [None, Backfill(depth=0), Backfill()])
def test_who_has_waited_too_long_is_first_with_and_without_backfill(backfill: Backfill | None) -> None:
    order = queue(8, key="SmallestFirst", max_wait_seconds=3600.0, backfill=backfill)
    engine = engine_with(order, gang("runs", "one", 8))
    assert run(engine, 1000) == ["runs"]
    for waiting in (gang("large", "one", 8, at=1), gang("small", "one", 2, at=1800)):
        engine.observe(Put(waiting))
    engine.decide(HOUR // 2)
    assert engine.pending("q") == ["team/small", "team/large"]
    engine.decide(HOUR + 120_000)
    assert engine.pending("q") == ["team/large", "team/small"]


def test_the_response_ratio_rises_without_backfill() -> None:
    """After a minute the long job that came first has the higher ratio, after four hours the short one."""
    engine = engine_with(
        queue(8, key="HighestResponseRatio"),
        gang("runs", "one", 8),
        gang("long", "one", 8, at=1),
        gang("short", "one", 8, at=3600),
    )
    forecast(engine, "long", 20)
    forecast(engine, "short", 1)
    assert run(engine, 1000) == ["runs"]
    engine.decide(HOUR + 60_000)
    assert engine.pending("q")[0] == "team/long"
    engine.decide(5 * HOUR)
    assert engine.pending("q")[0] == "team/short"
