"""Promises of reserved heads: made from how late earlier ones started, kept nine times in ten, and missed by a named cause."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, gang
from tests.engine.clockwork import HOST
from tests.engine.test_timeline_properties import forecast
from tests.examples import examples

from gangline.engine.model import (
    Backfill,
    Flavor,
    Gone,
    Node,
    PodSet,
    PreemptionPolicy,
    Put,
    ReservedHead,
    Topology,
)
from gangline.engine.queues import promises as module
from gangline.engine.queues.promises import LATE, Promises, lateness_of, size_class

MINUTE = 60_000
HOUR = 60 * MINUTE


class Head:
    """As much of a WorkloadState as the ledger reads."""

    def __init__(self, number: int, namespace: str = "team") -> None:
        self.key, self.uid = f"{namespace}/h{number}", f"uid-{number}"


def past(number: int, late: float = 1.0, queue: str = "q", size: int = 2) -> ReservedHead:
    """A head that started an hour after its first plan, times `late`, long ago."""
    at = START - (number + 2) * 100 * HOUR
    return ReservedHead(f"team/p{number}", queue, f"p{number}", size, at, at + HOUR, at + round(late * HOUR))


def played(count: int, factor: Any, seed: int = 1) -> list[ReservedHead]:
    """One head after the other, each planned for in some time and started after `factor(random, number)` times that."""
    ledger, random, now = Promises(), Random(seed), START
    for number in range(count):
        head: Any = Head(number)
        planned = random.randint(1, 300) * MINUTE
        ledger.plan(head, "q", number % 3, now, now + planned)
        now += max(1, round(planned * factor(random, number)))
        ledger.start(head, "q", now, "")
    return list(ledger.starts)


# --- how many hold --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.1, 0.5, 0.9])
def test_nine_of_ten_promises_hold(spread: float) -> None:
    sums = lateness_of(played(900, lambda random, _: math.exp(random.gauss(0, spread))))
    assert sums.promised > 850 and sums.coverage is not None
    assert 0.88 <= sums.coverage <= 0.93, sums


def test_nine_of_ten_hold_when_heads_become_later() -> None:
    heads = played(900, lambda random, number: math.exp(random.gauss(number / 600, 0.4)))
    for part in (heads[:300], heads[300:600], heads[600:]):
        sums = lateness_of(part)
        assert sums.coverage is not None and 0.86 <= sums.coverage <= 0.95, sums


def test_a_promise_lies_as_far_ahead_as_it_must_and_never_before_the_plan() -> None:
    for spread in (0.0, 0.1):
        heads = played(300, lambda random, _, spread=spread: 0.5 * math.exp(random.gauss(0, spread)))
        assert all(head.promised >= (head.planned or 0) for head in heads if head.promised is not None)
    sums = lateness_of(heads)
    assert sums.coverage == 1.0, "the plan itself holds"
    assert sums.length == sum((head.planned or 0) - head.at for head in heads if head.promised is not None)


def test_nothing_is_promised_by_few_heads_or_beyond_a_useful_length() -> None:
    assert all(head.promised is None for head in played(20, lambda random, _: random.random()))
    assert played(25, lambda random, _: random.random())[-1].promised is not None
    assert all(
        head.promised is None for head in played(300, lambda random, _: 30.0 if random.random() < 0.3 else 1.0)[250:]
    )


def test_after_a_time_in_which_nothing_could_be_promised_something_is_again() -> None:
    heads = played(700, lambda random, number: 30.0 if number % 2 and number < 200 else 1.0)
    assert heads[199].promised is None and heads[-1].promised is not None


def test_heads_that_wait_on_count_once_their_time_is_over() -> None:
    """Thirty have started in time, and ten wait on: at first that says nothing, later that one in four is late."""
    ledger = Promises()
    for number in range(30):
        ledger.put(past(number))
    for number in range(10):
        ledger.plan(Head(number), "q", 2, START, START + HOUR)  # type: ignore[arg-type]
    early: Any = Head(100)
    ledger.plan(early, "q", 2, START + 30 * MINUTE, START + 90 * MINUTE)
    assert ledger.promised(early) == START + 90 * MINUTE
    late: Any = Head(101)
    ledger.plan(late, "q", 2, START + 4 * HOUR, START + 5 * HOUR)
    promised = ledger.promised(late)
    assert promised is None or promised >= START + 7 * HOUR


def test_heads_of_other_sizes_and_queues_count_as_much_as_a_few() -> None:
    def promised(*known: ReservedHead) -> float | None:
        ledger, head = Promises(), Head(0)
        for each in known:
            ledger.put(each)
        ledger.plan(head, "q", 2, START, START + HOUR)  # type: ignore[arg-type]
        at = ledger.promised(head)  # type: ignore[arg-type]
        return None if at is None else (at - START) / HOUR

    others = [past(100 + number, 3.0, "elsewhere") for number in range(100)]
    small = [past(300 + number, 3.0, size=0) for number in range(100)]
    own = [past(1000 + number) for number in range(200)]
    assert promised(*others) == pytest.approx(3) and promised(*small) == pytest.approx(3), "all that is known"
    assert promised(*others, *own[:20]) == pytest.approx(3)
    assert promised(*others, *small, *own) == pytest.approx(1), "its own are enough"


@examples(200)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from([0.5, 1.0])), max_size=40),
    st.sampled_from([0.5, 0.9, 0.98]),
)
def test_the_factor_is_the_least_that_would_have_been_enough(rows: list[tuple[int, int, float]], level: float) -> None:
    heads = [(float(need), float(need + more), weight) for need, more, weight in rows]

    def enough(factor: float) -> bool | None:
        known = [(need, weight) for need, until, weight in heads if until > factor]
        late = sum(weight for need, _, weight in heads if need > factor)
        total = sum(weight for _, weight in known)
        return None if len(known) < module._FEW else total - late >= level * (total + 1)

    found = module._least_factor(heads, level)
    tried = [(factor, enough(factor)) for factor in sorted({need for need, _, _ in heads})]
    before = [factor for factor, verdict in tried if verdict is None]
    expected = next((factor for factor, verdict in tried if verdict and not any(b < factor for b in before)), None)
    assert found == expected


# --- what is kept ---------------------------------------------------------------------------------------------------------


def test_another_process_promises_the_same() -> None:
    ledger, again = Promises(), Promises()
    for number in range(40):
        ledger.put(past(number, 1 + number / 20))
    waits: Any = Head(0)
    ledger.plan(waits, "q", 2, START, START + HOUR)
    for head in ledger.facts():
        again.put(head)
        again.put(head)
    assert again.of(waits) == ledger.of(waits) and list(again.facts()) == list(ledger.facts())
    assert not again.starts and not again.lateness, "these are of the process"
    for each in (ledger, again):
        each.plan(Head(1), "q", 2, START + HOUR, START + 2 * HOUR)  # type: ignore[arg-type]
    assert ledger.open["team/h1"] == again.open["team/h1"]


def test_what_is_kept_is_bounded() -> None:
    ledger = Promises()
    for number in range(3 * module._KEPT):
        ledger.plan(Head(number), "q", 0, START, START + HOUR)  # type: ignore[arg-type]
    assert len(ledger.open) == module._OPEN
    for number in range(3 * module._KEPT):
        head: Any = Head(number)
        ledger.plan(head, f"q{number}", 0, START, START + HOUR)
        ledger.start(head, f"q{number}", START + HOUR, "")
    assert len(list(ledger.facts())) <= module._KEPT + module._OPEN and len(ledger._of_queue) <= module._KEPT


def test_sizes_are_shares_of_what_the_queue_can_use() -> None:
    assert [size_class(share) for share in (0.0, 1 / 16, 0.2, 0.25, 1.0)] == [0, 1, 1, 2, 2]


# --- in the engine --------------------------------------------------------------------------------------------------------


def promised_head(depth: int = 1, **fields: Any) -> EngineWorld:
    """w0 holds 4 of 8 until second 4,601. w1 waits for all 8, and is promised that, since all before it were in time."""
    queue = cluster_queue("q", 8, backfill=Backfill(depth=depth), **fields)
    world = EngineWorld(queue, *(past(number) for number in range(30)), forecast("w0", 3600), gang("w0", 4))
    world.decide()
    world.put(forecast("w1", 600), gang("w1", 8))
    world.decide()
    assert world.engine.promised_start("team/w1") == START + 4_601_000
    return world


def at(world: EngineWorld, seconds: int) -> EngineWorld:
    world.now = START + (seconds - 1) * 1000
    world.decide()
    return world


def cause(world: EngineWorld) -> str:
    """What the promise to w1 was missed by; "" = it was kept."""
    (head,) = (each for each in world.engine.head_starts() if each.workload == "team/w1")
    assert head.promised is not None and (head.started > head.promised + LATE) == (head.cause != "")
    assert world.engine.head_lateness()["q"].causes[head.cause] == (head.cause != "")
    return head.cause


def test_a_head_is_told_what_it_was_promised() -> None:
    world = promised_head()
    explanation = world.engine.explain("team/w1")
    assert explanation is not None
    assert ". Promised to start by 2026-01-01 01:30 UTC. Planned to start by" in explanation.message
    at(world, 4601)
    world.finish("w0")
    assert "w1" in at(world, 4610).running() and cause(world) == ""


def test_without_a_past_nothing_is_promised_and_decisions_are_the_same() -> None:
    queue = cluster_queue("q", 8, backfill=Backfill())
    world = EngineWorld(queue, forecast("w0", 3600), gang("w0", 4), forecast("w1", 600), gang("w1", 8))
    world.decide()
    explanation = world.engine.explain("team/w1")
    assert world.engine.promised_start("team/w1") is None
    assert explanation is not None and "Promised" not in explanation.message


def test_a_run_that_outlasts_its_forecast_is_the_cause() -> None:
    world = at(promised_head(), 4700)
    world.finish("w0")
    at(world, 6000)
    assert cause(world) == "forecast"


def test_a_head_that_goes_first_is_the_cause() -> None:
    world = promised_head()
    world.put(forecast("w2", 3600), gang("w2", 8, priority=1))
    at(world, 1100)
    world.finish("w0")
    assert "w2" in at(world, 4590).running()
    at(world, 8202)
    world.finish("w2")
    at(world, 8203)
    assert cause(world) == "new_head"


def test_who_preempts_is_the_cause() -> None:
    world = promised_head(2, preemption=PreemptionPolicy("LowerPriority"))
    world.put(forecast("w2", 7200), gang("w2", 8, priority=1))
    at(world, 1100)
    world.complete_evictions()
    assert "w2" in at(world, 1101).running()
    world.delete("w0")
    at(world, 8400)
    world.finish("w2")
    at(world, 8401)
    assert cause(world) == "preemption"


def test_the_floor_is_the_cause() -> None:
    """In best effort w2 may pass the head."""
    world = promised_head()
    world.put(cluster_queue("q", 8, fallen_back="BestEffort"), forecast("w2", 7200), gang("w2", 4))
    assert "w2" in at(world, 1100).running()
    at(world, 4601)
    world.finish("w0")
    at(world, 8400)
    world.finish("w2")
    assert "w1" in at(world, 8401).running()
    at(world, 8402)
    assert cause(world) == "floor"


def test_a_lost_node_is_the_cause() -> None:
    hosts = [Node(f"n{number}", {HOST: f"n{number}"}, {GPU: 8, "pods": 100}) for number in range(2)]
    queue = cluster_queue("q", 16, backfill=Backfill())

    def placed(name: str, pods: int) -> Any:
        return gang(name, pod_sets=(PodSet("main", pods, {GPU: 8}),))

    flavor = Flavor("a100", topology="hosts")
    world = EngineWorld(Topology("hosts", (HOST,)), flavor, *hosts, queue, *(past(number) for number in range(30)))
    world.put(forecast("w0", 3600), placed("w0", 1))
    world.decide()
    world.put(forecast("w1", 600), placed("w1", 2))
    world.decide()
    admission = world.workloads["team/w0"].admission
    assert admission is not None and admission.pod_sets[0].topology is not None
    taken = admission.pod_sets[0].topology.domains[0].values[-1]
    (free,) = (host for host in hosts if host.name != taken)
    world.engine.observe(Gone(Node, free.name))
    at(world, 1100)
    at(world, 4601)
    world.finish("w0")
    at(world, 4700)
    world.engine.observe(Put(free))
    at(world, 4800)
    at(world, 4801)
    assert cause(world) == "nodes"


def test_a_promise_outlives_the_operator() -> None:
    world = promised_head()
    known = list(world.engine.promises())
    world.restart()
    for head in known:
        world.engine.observe(Put(head))
    at(world, 2000)
    assert world.engine.promised_start("team/w1") == START + 4_601_000
    world.finish("w0")
    at(world, 4610)
    assert cause(world) == ""


def test_what_has_started_while_nobody_led_is_learned() -> None:
    world = promised_head()
    known = list(world.engine.promises())
    world.finish("w0")
    at(world, 2000)
    world.restart()
    for head in known:
        world.engine.observe(Put(head))
    assert "team/w1" not in {head.workload for head in world.engine.promises() if not head.started}
    (head,) = (head for head in world.engine.promises() if head.workload == "team/w1")
    assert head.started == START + 2_000_000


def test_a_workload_that_is_gone_was_promised_nothing() -> None:
    world = promised_head()
    world.delete("w1")
    at(world, 2000)
    assert all(head.started for head in world.engine.promises()) and not world.engine.head_lateness()
