"""Whether quota that victims leave goes to others while the rest of the victims still stop: only without the gate."""

from __future__ import annotations

import pytest
from tests.builders.engine import EngineWorld, cluster_queue, gang

from gangline.engine.model import FairSharing, PreemptionPolicy, Settings

PREEMPTS = PreemptionPolicy("LowerPriority", "Any", borrow_within_cohort="LowerPriority")


def _half_free(*, fair: bool, gate: bool) -> EngineWorld:
    """`big3` preempted two workloads to borrow what they leave; one of them has stopped, and `small2` is within its quota."""
    settings = Settings(
        pods_ready=None,
        gates={"PrioritizePreemptorWorkloads": gate},
        fair_sharing=FairSharing() if fair else None,
    )
    here = EngineWorld(
        cluster_queue("q", 2, cohort="all", preemption=PREEMPTS, weight=10.0),
        cluster_queue("r", 1, cohort="all"),
        cluster_queue("s", 1, cohort="all"),
        settings=settings,
    )
    here.put(gang("old0", 1, "q"), gang("old1", 3, "r"))
    here.decide()
    here.put(gang("small2", 1, "s", priority=-1))
    here.decide()
    here.put(gang("big3", 4, "q", priority=5))
    here.decide()
    assert here.evicted() == ["old0", "old1"]
    here.change("old1", admission=None, admitted=False, reserved_at=0, requeued=True)
    here.decide()
    return here


@pytest.mark.parametrize("fair", [False, True])
def test_without_the_gate_a_workload_within_its_quota_goes_first(fair: bool) -> None:
    assert _half_free(fair=fair, gate=False).running() == ["small2"]


@pytest.mark.parametrize("fair", [False, True])
def test_with_the_gate_those_that_wait_for_victims_go_first(fair: bool) -> None:
    here = _half_free(fair=fair, gate=True)
    assert here.running() == []
    here.complete_evictions()
    here.decide()
    assert here.running() == ["big3"]
