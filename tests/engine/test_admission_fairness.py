"""Usage-based admission fair sharing: who has used less goes first."""

from __future__ import annotations

from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, gang, of

from gangline.engine.model import (
    AdmissionFairSharing,
    Admit,
    LocalQueue,
    Preempt,
    PreemptionPolicy,
    ReportPending,
    Settings,
    WriteFailed,
)

HOUR = 3600.0
NOW = START + 1_000_000


def fair_world(*items: object, half_life: float = HOUR, gpus: int = 8, **fields: object) -> EngineWorld:
    policy = AdmissionFairSharing(half_life_seconds=half_life, sampling_interval_seconds=300.0)
    queue = cluster_queue("q", gpus, admission_mode="UsageBasedAdmissionFairSharing", **fields)
    settings = Settings(pods_ready=None, admission_fair_sharing=policy)
    return EngineWorld(LocalQueue("team", "a", "q"), LocalQueue("team", "b", "q"), queue, *items, settings=settings)


def test_each_reservation_lets_the_other_queue_go_next() -> None:
    world = fair_world(*(gang(f"a{n}", 2, "a") for n in range(1, 4)), *(gang(f"b{n}", 2, "b") for n in range(5, 8)))
    order = [d.workload.partition("/")[2] for d in world.decide() if isinstance(d, Admit)]
    assert order == ["a1", "b5", "a2", "b6"]


def test_usage_outranks_priority() -> None:
    used = LocalQueue("team", "a", "q", consumed={GPU: 4.0}, consumed_at=NOW)
    world = fair_world(used, gang("a1", 8, "a", priority=9), gang("b2", 8, "b"))
    assert of(world.decide(), Admit) == ["b2"]


def test_a_heavier_queue_may_use_more() -> None:
    world = fair_world(
        LocalQueue("team", "a", "q", weight=4.0, consumed={GPU: 4.0}, consumed_at=NOW),
        LocalQueue("team", "b", "q", consumed={GPU: 2.0}, consumed_at=NOW),
        gang("a1", 8, "a"),
        gang("b2", 8, "b"),
    )
    assert of(world.decide(), Admit) == ["a1"]


def test_weight_0_is_last() -> None:
    world = fair_world(LocalQueue("team", "a", "q", weight=0.0), gang("a1", 8, "a"), gang("b2", 8, "b"))
    assert of(world.decide(), Admit) == ["b2"]


def test_what_ran_is_consumed_and_half_of_it_forgotten_every_half_life() -> None:
    world = fair_world(gang("a1", 8, "a"))
    world.decide()
    after_admission = world.engine.local_queue_status("team/a").consumed[GPU]
    share = 1 - 0.5 ** (300 / HOUR)
    assert abs(after_admission - 8 * share) < 1e-6  # the penalty, now part of what was consumed
    world.now += 3_600_000 - 1000
    world.decide()
    status = world.engine.local_queue_status("team/a")
    assert abs(status.consumed[GPU] - (after_admission * 0.5 + 8 * 0.5)) < 0.01
    assert status.consumed_at == world.now
    world.finish("a1")
    before = status.consumed[GPU]
    world.now += 3_600_000 - 1000
    world.decide()
    assert abs(world.engine.local_queue_status("team/a").consumed[GPU] - before / 2) < 0.01


def test_a_lost_reservation_is_not_paid_for() -> None:
    world = fair_world(gang("a1", 8, "a"), gang("b2", 8, "b"))
    world.decide(lost=["team/a1"])
    world.engine.observe(WriteFailed("team/a1"))
    assert world.engine.local_queue_status("team/a").consumed.get(GPU, 0.0) == 0.0


def test_the_one_that_used_most_is_preempted_first() -> None:
    world = fair_world(
        gang("a1", 4, "a", priority=1), gang("b2", 4, "b"), preemption=PreemptionPolicy("LowerPriority"), gpus=8
    )
    world.put(LocalQueue("team", "a", "q", consumed={GPU: 100.0}, consumed_at=world.now))
    world.decide()
    world.put(gang("urgent", 4, "b", priority=5))
    assert of(world.decide(), Preempt) == ["a1"]


def test_the_next_sample_wakes_the_engine() -> None:
    world = fair_world(gang("a1", 8, "a"))
    world.decide()
    assert world.decide() == []
    due = world.engine.next_wakeup(world.now)
    assert due is not None
    assert world.now < due <= world.now + 300_000


def test_a_head_by_usage_alone_is_tried_and_says_why_it_waits() -> None:
    """In a strict queue only the head is tried: the other one's turn comes with the next sample, and nothing else changes."""
    used = LocalQueue("team", "b", "q", consumed={GPU: 0.001}, consumed_at=NOW)
    world = fair_world(used, gang("runs", 6, "a"), strategy="StrictFIFO", half_life=60.0)
    assert of(world.decide(), Admit) == ["runs"]
    world.put(gang("b9", 9, "b"), gang("a9", 9, "a"))
    assert of(world.decide(), ReportPending) == ["b9"], "the first has used more"
    world.put(LocalQueue("team", "b", "q", consumed={GPU: 1000.0}, consumed_at=NOW + 1))
    assert of(world.decide(), ReportPending) == ["a9"]
    assert world.decide() == []
    world.put(LocalQueue("team", "b", "q", weight=1e9, consumed={GPU: 1000.0}, consumed_at=NOW + 1))
    assert of(world.decide(), ReportPending) == [], "it is head again, and its reason was reported already"


def test_a_head_by_usage_alone_starts_if_it_fits() -> None:
    used = LocalQueue("team", "b", "q", consumed={GPU: 0.001}, consumed_at=NOW)
    world = fair_world(used, gang("runs", 6, "a"), strategy="StrictFIFO")
    world.decide()
    world.put(gang("b9", 4, "b"), gang("a9", 2, "a"))
    assert of(world.decide(), Admit) == []
    world.put(LocalQueue("team", "a", "q", weight=1e9))
    assert of(world.decide(), Admit) == ["a9"]


def test_a_head_by_a_sample_alone_starts_if_it_fits() -> None:
    used = LocalQueue("team", "b", "q", consumed={GPU: 10.0}, consumed_at=NOW)
    world = fair_world(used, gang("runs", 6, "a"), strategy="StrictFIFO", half_life=600.0)
    world.decide()
    world.put(gang("a8", 4, "a"), gang("b9", 2, "b"))
    assert of(world.decide(), Admit) == [], "b has used more, and a8 does not fit"
    for _ in range(6):
        due = world.engine.next_wakeup(world.now)
        assert due is not None
        world.now = due - 1000
        if of(world.decide(), Admit) == ["b9"]:
            return
    raise AssertionError("a has used more by now")
