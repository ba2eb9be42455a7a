"""Backfill by example: what a policy's settings change, one at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.builders.engine import GPU, EngineWorld, cluster_queue, gang, group, reported_pending

from gangline.engine.backfill import checkpoint_preemption
from gangline.engine.model import Admit, Backfill, ClusterQueue, PodSet, PreemptionPolicy, Put, RuntimeForecast
from gangline.engine.queues.timed_queue import TimedQueue


def forecast(name: str, seconds: int) -> RuntimeForecast:
    return RuntimeForecast(
        f"team/{name}", ((0.1, seconds * 500), (0.5, seconds * 1000), (0.9, seconds * 2000)), "Model", 9
    )


def blocked_head(*, backfill: Backfill) -> EngineWorld:
    """4 of 8 GPUs are held for an hour, and a head waits for 8 of them."""
    queues = [cluster_queue(name, 8, backfill=backfill) for name in ("q", "other")]
    world = EngineWorld(*queues, forecast("w0", 3600), gang("w0", 4), gang("w1", 8))
    world.decide()
    assert world.running() == ["w0"]
    return world


def test_a_queue_may_lose_its_policy_while_others_keep_theirs() -> None:
    world = blocked_head(backfill=Backfill())
    assert world.engine._scheduler.backfill.timeline.reservations
    world.put(replace(cluster_queue("q", 8), backfill=None))
    world.decide()
    assert not world.engine._scheduler.backfill.timeline.reservations
    world.put(gang("w2", 4))
    world.decide()
    assert world.running() == ["w0", "w2"], "without a policy the queue is Kueue's: best effort"


def test_a_policy_that_is_off_reserves_nothing() -> None:
    world = blocked_head(backfill=Backfill(depth=0))
    world.put(gang("w2", 4))
    world.decide()
    assert world.running() == ["w0", "w2"]


def test_candidates_are_tried_up_to_the_limit() -> None:
    """Those that are too long for the gap count; of `max_candidates` the one beyond is not tried in this round."""
    for most, starts in ((2, False), (3, True)):
        world = blocked_head(backfill=Backfill(max_candidates=most))
        for number, seconds in ((2, 90_000), (3, 80_000), (4, 60)):
            world.engine.observe(Put(forecast(f"w{number}", seconds)))
            world.put(gang(f"w{number}", number - 1))
        world.decide()
        assert ("w4" in world.running()) == starts, most


def test_a_shape_is_told_a_reason_once_though_its_numbers_change() -> None:
    """All of one shape wait for the same reason; when one is tried again with other numbers, the others get no report."""
    tried = PreemptionPolicy("LowerPriority")
    world = EngineWorld(cluster_queue("q", 8, backfill=Backfill(), preemption=tried), gang("w0", 5), gang("w1", 2))
    world.decide()
    for number in range(2, 6):
        world.put(gang(f"w{number}", 8))
    pending = reported_pending(world.decide())
    assert set(pending) == {"w2", "w3", "w4", "w5"}
    world.now += 600_000
    world.finish("w1")
    again = reported_pending(world.decide())
    assert again["w2"].explanation.reason == pending["w2"].explanation.reason
    assert again["w2"].explanation.message != pending["w2"].explanation.message
    assert set(again) == {"w2"}


def test_borrowers_that_were_held_back_are_tried_again_when_the_last_policy_goes() -> None:
    planned = cluster_queue("q", 8, "pool", backfill=Backfill())
    plain = cluster_queue("p", 4, "pool")
    world = EngineWorld(planned, plain, forecast("w0", 3600), gang("w0", 4), gang("w1", 12))
    world.decide()
    world.put(gang("w2", 8, "p"))
    assert reported_pending(world.decide())["w2"].explanation.reason == "WaitingForReservation"
    world.put(replace(planned, backfill=None))
    world.decide()
    assert world.running() == ["w0", "w2"]


def test_the_scarcest_resource_is_one_that_the_queue_has() -> None:
    groups = (group({"a100": {GPU: 8, "cpu": 0}}),)
    world = EngineWorld(
        ClusterQueue("q", groups=groups), gang("w1", pod_sets=(PodSet("main", 2, {GPU: 1, "cpu": 500}),))
    )
    world.decide()
    store = world.engine._store
    assert checkpoint_preemption._scarcest(store.gangs["team/w1"], store.queues["q"]) == (GPU, 2)


def test_many_different_gangs_are_not_compared_with_each_other_at_every_attempt() -> None:
    """Each of twice as many gangs, of shapes of their own, asks as many lists of others as before."""

    def asked(gangs: int) -> float:
        world = EngineWorld(cluster_queue("q", groups=(group({"a100": {GPU: 8, "cpu": 10**9}}),), backfill=Backfill()))
        world.put(gang("w0", 4), forecast("w0", 3600), gang("w1", 8))
        world.decide()
        pending = world.engine._store.queues["q"].pending
        assert isinstance(pending, TimedQueue)
        for number in range(2, 2 + gangs):  # every other one fits, but would delay the head
            asks = {GPU: 2 + 4 * (number % 2), "cpu": number}
            world.put(gang(f"w{number}", pod_sets=(PodSet("main", 1, asks),)), forecast(f"w{number}", 90_000))
        lists = (pending._untried, pending._offered, pending._candidates, pending._waiting)
        before = sum(each.asked for each in lists)
        world.decide()
        assert world.running() == ["w0"]
        assert pending.active == 0
        return (sum(each.asked for each in lists) - before) / gangs

    assert asked(200) < 1.2 * asked(100)
    assert asked(100) < 20


def test_gangs_that_can_never_start_are_left_out_until_they_change() -> None:
    """They are asked about once, not whenever the first of those that wait are sought."""
    world = EngineWorld(cluster_queue("q", 8, backfill=Backfill(depth=2)), gang("w0", 8))
    world.decide()
    for number in range(1, 6):
        world.put(gang(f"w{number}", 100 + number))
    world.decide()
    reservations = world.engine._scheduler.backfill.timeline.reservations
    pending = world.engine._store.queues["q"].pending
    assert isinstance(pending, TimedQueue)
    assert (list(reservations), list(pending._waiting.firsts(9))) == ([], [])
    world.put(cluster_queue("q", 105, backfill=Backfill(depth=2)))
    world.finish("w0")
    world.decide()
    assert world.running() == ["w1"]
    assert [r.gang.workload.name for r in reservations] == ["w2", "w3"]


def test_a_backfilled_workload_must_end_by_the_reserved_start_that_it_passed() -> None:
    """w0 holds 4 of 8 for an hour, so w1 is reserved to start then: what fits beside w0 and ends before may start."""
    for revoke in ("Never", "Overdue", "Any"):
        world = blocked_head(backfill=Backfill(revoke=revoke, candidate=0.5))
        world.put(forecast("w2", 600), gang("w2", 2), forecast("w3", 7200), gang("w3", 2))
        world.decide()
        assert world.running() == ["w0", "w2"], "w3 would delay w1"
        (start,) = world.engine.reservations().values()
        assert start is not None and list(world.engine.reservations()) == ["team/w1"] == [
            *world.engine.heads().values()
        ]
        assert world.engine.backfill_ends() == {"team/w2": start}
        assert world.engine.state_of("team/w3") == "HeldBack" and world.engine.cluster_queue_of("team/w3") == "q"
        world.change("w2", backfilled=True)  # as its status says
        world.restart()  # which of the waiting ones it passed is in no fact
        world.decide()
        assert list(world.engine.backfill_ends()) == ["team/w2"]
        world.finish("w0")
        world.finish("w2")
        world.decide()
        assert world.running() == ["w1"] and world.engine.backfill_ends() == {}


def test_what_may_stay_beside_a_reserved_head_has_no_such_end() -> None:
    queues = [cluster_queue("q", 8, backfill=Backfill(candidate=0.5))]
    world = EngineWorld(*queues, forecast("w0", 3600), gang("w0", 6), gang("w1", 6))
    world.decide()
    world.put(forecast("w2", 36_000), gang("w2", 2))  # there is room for both
    (admitted,) = [each for each in world.decide() if isinstance(each, Admit)]
    assert admitted.workload == "team/w2" and admitted.backfilled
    assert list(world.engine.reservations()) == ["team/w1"] and world.engine.backfill_ends() == {}


def test_looking_at_reservations_changes_no_decision() -> None:
    seen: list[int] = []

    def look(world: EngineWorld) -> None:
        seen.append(len(world.engine.backfill_ends()))
        assert len(world.engine.reservations()) <= 1 and world.engine.free_on_nodes() == {}

    def story(look: Callable[[EngineWorld], None]) -> list[str]:
        chance, said = random.Random(7), list[str]()
        world = EngineWorld(cluster_queue("q", 8, backfill=Backfill(revoke="Any", candidate=0.5)))
        for number in range(60):
            world.put(forecast(f"w{number}", chance.randint(60, 3600)), gang(f"w{number}", chance.randint(1, 8)))
            look(world)
            world.now += 60_000
            said += [f"{type(each).__name__} {getattr(each, 'workload', '')}" for each in world.decide()]
            look(world)
            if (running := world.running()) and chance.random() < 0.5:
                world.finish(chance.choice(running))
            world.complete_evictions()
        return said

    assert story(look) == story(lambda world: None)
    assert max(seen) >= 1
