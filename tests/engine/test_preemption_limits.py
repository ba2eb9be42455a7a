"""Limits of preemption: how often, and at what loss, a queue may preempt and be preempted. Beyond it the preemptor waits."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gangline.control.audit.fact_codec import change_from_json, change_to_json
from gangline.engine import Engine, IsolatedEngine
from gangline.engine.model import (
    Admit,
    ClusterQueue,
    Flavor,
    FlavorQuotas,
    Gone,
    LocalQueue,
    PastPreemption,
    PodSet,
    Preempt,
    PreemptionBounds,
    PreemptionLimits,
    PreemptionPolicy,
    PreemptionsUnknown,
    Put,
    Quota,
    ReportPending,
    ResourceGroup,
    Settings,
    SpentBudget,
    Workload,
    WriteFailed,
)

HOUR = 3_600_000
RECLAIM = PreemptionPolicy("LowerPriority", reclaim_within_cohort="Any")


def gang(name: str, queue: str, gpus: int = 1, **more: Any) -> Workload:
    return Workload(name, "team", name, queue, (PodSet("main", gpus, {"nvidia.com/gpu": 1}),), **more)


def queue(name: str, gpus: int, limits: PreemptionLimits | None = None) -> ClusterQueue:
    groups = (ResourceGroup(("nvidia.com/gpu",), (FlavorQuotas("a100", {"nvidia.com/gpu": Quota(gpus)}),)),)
    return ClusterQueue(name, cohort="pool", groups=groups, preemption=RECLAIM, preemption_limits=limits)


def cluster(
    owner: PreemptionLimits | None = None,
    borrower: PreemptionLimits | None = None,
    running: int = 4,
    kind: type[Engine] = Engine,
) -> Engine:
    """`owner` owns 4 GPUs, on which workloads of `borrower` run since 0."""
    engine = kind(Settings(pods_ready=None))
    engine.observe(Put(Flavor("a100")))
    for each in (queue("owner", 4, owner), queue("borrower", 0, borrower)):
        engine.observe(Put(each))
        engine.observe(Put(LocalQueue("team", each.name, each.name)))
    for number in range(running):
        engine.observe(Put(gang(f"b{number}", "borrower")))
    decisions = engine.decide(0)
    assert [type(each) for each in decisions] == [Admit] * running
    for each in decisions:
        if isinstance(each, Admit):
            name = each.workload.partition("/")[2]
            engine.observe(Put(gang(name, "borrower", admission=each.admission, admitted=True)))
    return engine


def causes(per_hour: int | None = None, lost: float | None = None) -> PreemptionLimits:
    return PreemptionLimits(causes=PreemptionBounds(per_hour, lost))


def suffers(per_hour: int | None = None, lost: float | None = None) -> PreemptionLimits:
    return PreemptionLimits(suffers=PreemptionBounds(per_hour, lost))


def submit(engine: Engine, *names: str, gpus: int = 1) -> None:
    for name in names:
        engine.observe(Put(gang(name, "owner", gpus)))


def preempted(engine: Engine, now: int) -> list[str]:
    """The workloads that are preempted at this time, one after the other; each stops, and is not queued again."""
    found: list[str] = []
    while victims := [each.workload for each in engine.decide(now) if isinstance(each, Preempt)]:
        found += victims
        for key in victims:
            engine.observe(Put(gang(key.partition("/")[2], "borrower", active=False)))
    return found


def test_without_limits_nothing_changes() -> None:
    engine = cluster()
    submit(engine, "o0", "o1", "o2")
    assert len(preempted(engine, 1000)) == 3


def test_a_queue_causes_so_many_preemptions_an_hour_and_the_next_one_when_the_first_is_an_hour_old() -> None:
    engine = cluster(causes(per_hour=2))
    submit(engine, "o0", "o1", "o2")
    assert len(preempted(engine, 1000)) == 2
    explanation = engine.explain("team/o2")
    assert explanation is not None
    assert explanation.reason == "PreemptionLimited"
    assert (
        "ClusterQueue owner may cause 2 preemption(s) an hour, and 2 were within the last hour" in explanation.message
    )
    assert engine.next_wakeup(3000) == 1000 + HOUR
    assert preempted(engine, 1000 + HOUR - 1) == []
    assert len(preempted(engine, 1000 + HOUR)) == 1


def test_the_waiting_preemptor_is_told_why() -> None:
    engine = cluster(causes(per_hour=0))
    submit(engine, "o0")
    explanations = [each.explanation for each in engine.decide(1000) if isinstance(each, ReportPending)]
    assert [each.reason for each in explanations] == ["PreemptionLimited"]
    assert "needs fewer or other victims" in explanations[0].message


def test_a_queue_suffers_so_many_preemptions_whoever_causes_them() -> None:
    engine = cluster(borrower=suffers(per_hour=1))
    submit(engine, "o0", "o1")
    assert len(preempted(engine, 1000)) == 1


def test_a_gang_with_more_victims_than_the_limit_preempts_none_of_them() -> None:
    engine = cluster(causes(per_hour=2))
    submit(engine, "big", gpus=3)
    assert preempted(engine, 1000) == []
    submit(engine, "small", gpus=2)
    assert len(preempted(engine, 2000)) == 2


def test_lost_gpu_hours_count_for_a_day() -> None:
    engine = cluster(borrower=suffers(lost=2.5))
    submit(engine, "o0", "o1", "o2")
    assert len(preempted(engine, HOUR)) == 2  # each has run for an hour on one GPU
    assert preempted(engine, 25 * HOUR - 1) == []
    explanation = engine.explain("team/o2")
    assert explanation is not None
    assert (
        "ClusterQueue borrower may suffer 2.5 lost GPU-hours a day, and 2 were within the last day"
        in explanation.message
    )


def test_past_preemptions_survive_a_restart_by_their_facts() -> None:
    engine = cluster(causes(per_hour=1))
    engine.observe(Put(PastPreemption("team/before", -1000, "borrower", "owner", HOUR)))
    submit(engine, "o0")
    assert preempted(engine, 1000) == []
    again = Engine(Settings(pods_ready=None))
    for fact in engine.facts():
        again.observe(fact)
    assert preempted(again, 1000) == []
    assert len(preempted(again, HOUR)) == 1


def test_queues_with_limits_preempt_nobody_until_it_is_known_what_was_preempted_before() -> None:
    engine = cluster(causes(per_hour=2))
    engine.observe(Put(PreemptionsUnknown(60_000)))
    submit(engine, "o0")
    assert preempted(engine, 1000) == []
    explanation = engine.explain("team/o0")
    assert explanation is not None
    assert "it is not known yet how many were preempted" in explanation.message
    again = Engine(Settings(pods_ready=None))
    for fact in engine.facts():
        again.observe(fact)
    assert preempted(again, 59_000) == []
    assert len(preempted(again, 60_000)) == 1
    engine.observe(Gone(PreemptionsUnknown, PreemptionsUnknown.name))
    assert len(preempted(engine, 2000)) == 1


def test_an_engine_that_is_built_again_remembers_what_it_preempted() -> None:
    engine = cluster(causes(per_hour=1), kind=IsolatedEngine)
    assert isinstance(engine, IsolatedEngine)
    submit(engine, "o0")
    assert len(preempted(engine, 1000)) == 1
    engine._rebuild()
    submit(engine, "o1")
    assert preempted(engine, 2000) == []


@pytest.mark.parametrize(
    "fact",
    [PastPreemption("team/a", 5, "q", "p", 7), PreemptionsUnknown(9), SpentBudget("team/a", "it is used", until=3)],
)
def test_the_record_has_these_facts(fact: Any) -> None:
    for change in (Put(fact), Gone(type(fact), "x")):
        assert change_from_json(orjson.loads(orjson.dumps(change_to_json(change)))) == change


def test_a_preemption_that_could_not_be_written_does_not_count() -> None:
    engine = cluster(causes(per_hour=1))
    submit(engine, "o0")
    (victim,) = [each.workload for each in engine.decide(1000) if isinstance(each, Preempt)]
    engine.observe(WriteFailed(victim))
    assert preempted(engine, 2000) == [victim]
