"""Budgets that are used up: workloads do not start, or go after others, until they begin anew; nobody is stopped for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gangline.engine import Engine
from gangline.engine.model import (
    Admit,
    ClusterQueue,
    Decision,
    Flavor,
    FlavorQuotas,
    Gone,
    LocalQueue,
    Ordering,
    PodSet,
    Put,
    Quota,
    ReportPending,
    ResourceGroup,
    RuntimeForecast,
    SpentBudget,
    Workload,
)

TEXT = "the budget 'month' of user alice is used"


def gang(name: str, gpus: int = 4, at: int = 0, **more: Any) -> Workload:
    return Workload(
        name, "team", name, more.pop("queue", "q"), (PodSet("main", gpus, {"gpu": 1}),), created=at * 1000, **more
    )


def cluster(*workloads: Workload, gpus: int = 8, **more: Any) -> Engine:
    engine = Engine()
    groups = (ResourceGroup(("gpu",), (FlavorQuotas("a100", {"gpu": Quota(gpus)}),)),)
    engine.observe(Put(Flavor("a100")))
    engine.observe(Put(ClusterQueue("q", groups=groups, **more)))
    for name in ("q", "other"):
        engine.observe(Put(LocalQueue("team", name, "q")))
    for workload in workloads:
        engine.observe(Put(workload))
    return engine


def started(decisions: list[Decision]) -> list[str]:
    return [each.workload.partition("/")[2] for each in decisions if isinstance(each, Admit)]


def spent(name: str, **more: Any) -> SpentBudget:
    return SpentBudget(f"team/{name}", TEXT, **more)


def test_a_workload_waits_without_quota_while_its_budget_is_used_and_others_start() -> None:
    engine = cluster(gang("a"), gang("b", at=1))
    engine.observe(Put(spent("a")))
    decisions = engine.decide(0)
    assert started(decisions) == ["b"]
    (pending,) = [each.explanation for each in decisions if isinstance(each, ReportPending)]
    assert (pending.reason, pending.message) == ("BudgetUsed", TEXT)
    explanation = engine.explain("team/a")
    assert explanation is not None
    assert explanation.reason == "BudgetUsed"
    engine.observe(Gone(SpentBudget, "team/a"))
    assert started(engine.decide(1000)) == ["a"]


def test_the_fact_may_come_first_and_ends_by_itself_when_the_budget_begins_anew() -> None:
    engine = cluster()
    engine.observe(Put(spent("a", until=60_000)))
    engine.observe(Put(gang("a")))
    assert started(engine.decide(0)) == []
    assert engine.next_wakeup(0) == 60_000
    assert started(engine.decide(59_999)) == []
    assert started(engine.decide(60_000)) == ["a"]


def test_a_later_end_counts_where_the_fact_was_replaced() -> None:
    engine = cluster(gang("a"))
    engine.observe(Put(spent("a", until=60_000)))
    engine.observe(Put(spent("a", until=90_000)))
    assert started(engine.decide(60_000)) == []
    assert started(engine.decide(90_000)) == ["a"]


def test_what_runs_goes_on() -> None:
    engine = cluster(gang("a"))
    (admit,) = engine.decide(0)
    assert isinstance(admit, Admit)
    engine.observe(Put(spent("a")))
    assert engine.decide(1000) == []
    running = replace(gang("a"), admission=admit.admission, admitted=True, admitted_at=0)
    engine.observe(Put(running))
    assert engine.decide(2000) == []
    assert engine.usage("q") == {"a100": {"gpu": 4}}


FORECASTS = [
    RuntimeForecast(f"team/{name}", ((0.5, length),)) for name, length in (("a", 1000), ("b", 9000), ("c", 5000))
]


@pytest.mark.parametrize("key", ["Priority", "ShortestFirst", "AgedShortestFirst", "SmallestFirst", "FairShare"])
def test_a_lowered_workload_goes_after_all_others_of_its_priority_in_every_order(key: str) -> None:
    policy = None if key == "Priority" else Ordering(key)
    engine = cluster(
        gang("a", at=0, queue="other"),
        gang("b", at=1),
        gang("c", at=2),
        gang("low", at=3, priority=-1),
        gpus=4,
        ordering=policy,
    )
    for forecast in FORECASTS:
        engine.observe(Put(forecast))
    engine.observe(Put(spent("a", holds=False)))
    explanation = engine.explain("team/a")
    assert explanation is not None
    assert explanation.message.endswith(f". The workload goes after others of its priority: {TEXT}")
    order = [name.partition("/")[2] for name in engine.pending("q")]
    assert order[-2:] == ["a", "low"]
    assert set(order[:2]) == {"b", "c"}
    assert started(engine.decide(0)) in (["b"], ["c"])
    engine.observe(Gone(SpentBudget, "team/a"))
    assert engine.pending("q")[0] in ("team/a", "team/c", "team/b")


def test_a_lowered_workload_starts_where_nobody_else_waits_and_is_ordered_as_usual_when_it_comes_back() -> None:
    engine = cluster(gang("a"))
    engine.observe(Put(spent("a", holds=False)))
    assert started(engine.decide(0)) == ["a"]
    engine.observe(Gone(SpentBudget, "team/a"))
    engine.observe(Put(gang("a", evicted="Preempted", requeued=True)))
    engine.observe(Put(gang("b", gpus=8, at=5)))
    assert engine.pending("q") == ["team/a", "team/b"]


def test_an_engine_with_the_same_facts_decides_the_same() -> None:
    engine = cluster(gang("a"), gang("b", at=1), gang("c", at=2), gpus=4)
    engine.observe(Put(spent("a")))
    engine.observe(Put(spent("b", holds=False, until=9_000)))
    again = Engine()
    for fact in engine.facts():
        again.observe(fact)
    assert started(again.decide(0)) == started(engine.decide(0)) == ["c"]
    assert again.next_wakeup(0) == engine.next_wakeup(0) == 9_000
