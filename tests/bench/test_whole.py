"""What `bench.whole` counts: GPUs that gangs hold while one of their pods fits nowhere."""

from __future__ import annotations

import pytest
from bench.whole import Held, gangs
from tests.builders.objects import Workload, condition

from gangline.kube.resources import Json

JOB = Workload("w", "ns").owned_by("Job", "j", uid="u").made["metadata"]["ownerReferences"]


def gang(*conditions: str) -> Json:
    row = {"name": "main", "resourceUsage": {"nvidia.com/gpu": "16", "cpu": "4"}}
    made = Workload("w", "ns").owned_by("Job", "j", uid="u").holds("cq", row)
    return made.conditions(*map(condition, conditions)).made


def pod(*, node: str = "", reason: str = "", phase: str = "Pending", going: bool = False) -> Json:
    rows = [{"type": "PodScheduled", "status": "False", "reason": reason}] if reason else []
    meta: Json = {"namespace": "ns", "name": "p", "ownerReferences": JOB}
    return {
        "metadata": {**meta, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if going else {})},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": rows},
    }


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        ([pod(node="n")], ""),
        ([pod(node="n"), pod()], "binding"),
        ([pod(reason="SchedulingGated")], "binding"),
        ([pod(reason="Unschedulable"), pod()], "unbound"),
        ([pod(reason="Unschedulable", going=True)], ""),
        ([pod(reason="Unschedulable", phase="Failed")], ""),
    ],
)
def test_what_the_pods_of_a_gang_wait_for(pods: list[Json], state: str) -> None:
    assert gangs(iter([gang("Admitted")]), iter(pods)) == [("ns/w", 16, state)]


@pytest.mark.parametrize("conditions", [(), ("Admitted", "Evicted"), ("Admitted", "Finished")])
def test_gangs_that_hold_nothing_for_good_do_not_count(conditions: tuple[str, ...]) -> None:
    assert gangs(iter([gang(*conditions)]), iter([])) == []


def test_sums_over_looks() -> None:
    held = Held()
    held.look(10.0, 0.5, [("a", 8, "unbound"), ("b", 4, "binding"), ("c", 2, "")])
    held.look(12.0, 2.0, [("a", 8, "unbound")])
    held.look(13.0, 1.0, [("a", 8, "")])
    held.look(14.0, 1.0, [("a", 8, "unbound")])
    assert (held.held, held.unbound, held.binding) == (14 * 0.5 + 32, 28.0, 2.0)
    assert (held.longest, held.worst, held.episodes) == (2.0, "a", 2)
