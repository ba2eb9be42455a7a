"""Runs that outlast their forecast: what is said, when, how often, and what a policy does about it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.engine import EngineWorld, cluster_queue, gang, of

from gangline.engine.model import Admit, Backfill, Decision, Evict, Overrun, RuntimeForecast, Warn

HOUR = 3_600_000
MINUTE = 60_000


def forecast(name: str = "a", q90: int = HOUR, samples: int = 12, source: str = "Model") -> RuntimeForecast:
    return RuntimeForecast(f"team/{name}", ((0.5, q90 // 2), (0.9, q90), (0.95, 2 * q90)), source, samples)


def running(policy: Overrun | None, *, known: RuntimeForecast | None = None) -> EngineWorld:
    """`a` has just started on all 8 GPUs."""
    world = EngineWorld(cluster_queue("q", 8, overrun=policy))
    world.put(gang("a", 8))
    if known is not None:
        world.put(known)
    assert of(world.decide(), Admit) == ["a"]
    return world


def after(world: EngineWorld, time: int) -> list[Decision]:
    """What is decided when `a` has run for `time` milliseconds."""
    world.now = world.workloads["team/a"].admitted_at + time - 1000
    return world.decide()


def warned(decisions: list[Decision]) -> list[str]:
    return [decision.reason for decision in decisions if isinstance(decision, Warn)]


def test_a_run_is_warned_then_overdue_and_each_is_said_once() -> None:
    world = running(Overrun(), known=forecast())
    assert after(world, HOUR - 1000) == []
    assert warned(after(world, HOUR)) == ["RanPastForecast"]
    assert after(world, HOUR + MINUTE) == []
    (overdue,) = after(world, 3 * HOUR)
    assert isinstance(overdue, Warn)
    assert (overdue.reason, overdue.about) == ("Overdue", "team/a")
    assert overdue.message == (
        "has run for 3h; 90 % of such runs end within 1h, 3 times that is overdue (Model, 12 samples)"
    )
    assert after(world, 100 * HOUR) == [], "a prediction alone stops nothing"


def test_the_engine_asks_to_be_woken_when_a_run_becomes_overdue() -> None:
    world = running(Overrun(), known=forecast())
    started = world.workloads["team/a"].admitted_at
    world.decide()
    assert world.engine.next_wakeup(world.now) == started + HOUR
    after(world, HOUR)
    world.decide()
    assert world.engine.next_wakeup(world.now) == started + 3 * HOUR


def test_a_forecast_that_comes_late_counts() -> None:
    world = running(Overrun())
    assert after(world, 2 * HOUR) == []
    world.put(forecast())
    assert warned(world.decide()) == ["RanPastForecast"]


def test_a_later_longer_forecast_takes_nothing_back() -> None:
    world = running(Overrun(), known=forecast())
    assert warned(after(world, HOUR)) == ["RanPastForecast"]
    world.put(forecast(q90=10 * HOUR))
    assert after(world, 11 * HOUR) == []
    assert warned(after(world, 30 * HOUR)) == ["Overdue"]


def test_what_the_cluster_remembers_is_not_said_again() -> None:
    world = running(Overrun(), known=forecast())
    world.change("a", overrun="Warned")
    assert after(world, 2 * HOUR) == []
    world.change("a", overrun="Overdue")
    assert after(world, 4 * HOUR) == []


@pytest.mark.parametrize("policy", [None, Overrun(action="None")])
def test_without_a_policy_nothing_happens(policy: Overrun | None) -> None:
    world = running(policy, known=forecast())
    assert after(world, 100 * HOUR) == []
    assert world.engine.next_wakeup(world.now) is None


def test_an_overdue_run_gives_way_only_while_others_wait_for_what_it_holds() -> None:
    world = running(Overrun(action="Requeue"), known=forecast())
    assert warned(after(world, 3 * HOUR)) == ["Overdue"]
    assert of(after(world, 4 * HOUR), Evict) == []
    world.put(gang("b9", 4))
    decisions = after(world, 4 * HOUR + MINUTE)
    (eviction,) = [decision for decision in decisions if isinstance(decision, Evict)]
    assert (eviction.workload, eviction.reason, eviction.deactivate) == ("team/a", "Overrun", False)
    world.complete_evictions()
    world.decide()
    assert world.running() == ["b9"], "it is queued behind those that waited"
    assert world.engine.pending("q") == ["team/a"]


@pytest.mark.parametrize(
    "waiting",
    [
        gang("b9", 4, priority=-1),
        gang("b9", pod_sets=(), queue="q"),
        gang("b9", 4, requeued=False, requeue_at=10**15, evicted="PodsReadyTimeout"),
    ],
    ids=["lower priority", "wants nothing of it", "backs off"],
)
def test_it_gives_way_to_nobody_who_would_not_gain(waiting: Any) -> None:
    world = running(Overrun(action="Requeue"), known=forecast())
    after(world, 3 * HOUR)
    world.put(waiting)
    assert of(after(world, 5 * HOUR), Evict) == []


def test_grace_is_given_before_anything_is_done() -> None:
    world = running(Overrun(action="Deactivate", grace_seconds=600), known=forecast())
    assert warned(after(world, 3 * HOUR)) == ["Overdue"]
    assert of(after(world, 3 * HOUR + 9 * MINUTE), Evict) == []
    (eviction,) = after(world, 3 * HOUR + 10 * MINUTE)
    assert isinstance(eviction, Evict)
    assert (eviction.reason, eviction.underlying_cause, eviction.deactivate) == ("Deactivated", "Overrun", True)
    assert after(world, 4 * HOUR) == [], "it is being evicted already"


@pytest.mark.parametrize(("samples", "source"), [(0, ""), (0, "Default"), (900, "Global")])
def test_no_run_is_late_by_a_forecast_that_is_not_its_own(samples: int, source: str) -> None:
    world = running(Overrun(action="Deactivate"), known=forecast(samples=samples, source=source))
    assert after(world, 100 * HOUR) == []


def test_the_authors_own_word_is_enough() -> None:
    world = running(Overrun(action="Deactivate"), known=forecast(samples=0, source="Hint"))
    decisions = after(world, 3 * HOUR)
    assert warned(decisions) == ["Overdue"], "first it is said, then done"
    evicted = [decision.workload for decision in decisions if isinstance(decision, Evict)]
    assert evicted == ["team/a"]


def test_a_new_run_starts_with_a_clean_slate() -> None:
    world = running(Overrun(action="Requeue"), known=forecast())
    after(world, 3 * HOUR)
    world.put(gang("b9", 8))
    after(world, 4 * HOUR)
    world.complete_evictions()
    world.decide()
    world.finish("b9")
    assert of(world.decide(), Admit) == ["a"]
    assert after(world, HOUR - MINUTE) == []
    assert warned(after(world, HOUR)) == ["RanPastForecast"]


def test_a_stalled_workload_is_queued_again_at_its_old_place() -> None:
    world = running(None)
    world.put(gang("b9", 8))
    world.change("a", stalled="Notify")
    assert of(world.decide(), Evict) == []
    world.change("a", stalled="Requeue")
    (eviction,) = [decision for decision in world.decide() if isinstance(decision, Evict)]
    assert eviction.reason == "Stalled"
    world.change("a", stalled="", admission=None, admitted=False, reserved_at=0, requeued=True)
    world.decide()
    assert world.running() == ["a"]


@pytest.mark.parametrize(
    ("said", "started"),
    [({}, True), ({"overran": True}, False), ({"overran": True, "max_execution_seconds": 1200}, True)],
    ids=["trusted", "was overdue", "was overdue, but has a limit"],
)
def test_who_was_overdue_is_not_started_ahead_of_a_reserved_one(said: dict[str, Any], started: bool) -> None:
    world = EngineWorld(cluster_queue("q", 8, backfill=Backfill()))
    world.put(forecast("long1", HOUR), gang("long1", 4))
    world.decide()
    world.put(forecast("head2", HOUR), gang("head2", 8))
    world.put(forecast("short3", HOUR // 3), gang("short3", 4, **said))
    world.decide()
    assert world.running() == (["long1", "short3"] if started else ["long1"])
