"""Accelerator seconds that admitted gangs hold while a pod of theirs can't be bound."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import a_pod, a_workload
from tests.builders.parts import PartWorld
from tests.objects import PodObject, altered

from gangline.control.feed.pod import GATE
from gangline.control.nodes.gates.held_unbound import HeldUnbound
from gangline.kube import resources as kube


def waiting(name: str, *, gated: bool = False, reason: str = "") -> PodObject:
    pod = a_pod(name, "", ready=False, phase="Pending")
    if gated:
        pod["spec"]["schedulingGates"] = [dict(GATE)]
    if reason:
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3"}]
    return pod


class HeldGang(PartWorld):
    """A gang with 16 GPUs."""

    def __init__(self, **conditions: Any) -> None:
        super().__init__()
        self.part = HeldUnbound(self.context())
        self.workload = a_workload(owner="train")
        row = {"name": "main", "count": 2, "flavors": {}, "resourceUsage": {"nvidia.com/gpu": "16", "cpu": "4"}}
        self.workload["status"]["admission"]["podSetAssignments"] = [row]
        self.mirror.upsert(kube.WORKLOADS, self.workload)

    def after(self, seconds: float, *pods: PodObject) -> float:
        """The seconds that are counted once these pods were seen, `seconds` later."""
        for pod in pods:
            self.pods.upsert(pod)
        self.part.act(self.now)
        self.now += round(seconds * 1000)
        return self.part.seconds(self.now).get(("cq",), 0.0)


@pytest.mark.parametrize("pod", [waiting("a", gated=True), waiting("a", reason="Unschedulable")])
def test_all_that_the_gang_holds_counts_until_its_last_pod_is_bound(pod: PodObject) -> None:
    world = HeldGang()
    assert world.after(5, a_pod("b", "n1")) == 0
    assert world.after(5, pod) == 80
    assert world.part.holding() == {"ns/w": 16}
    assert world.after(2.5) == 120
    assert world.after(60, a_pod("a", "n2", ready=False, phase="Pending")) == 120
    assert world.part.holding() == {}


@pytest.mark.parametrize(
    "pod",
    [
        waiting("a"),
        waiting("a", reason="SchedulingGated"),
        altered(waiting("a", reason="Unschedulable"), status={"phase": "Failed"}),
    ],
)
def test_a_pod_that_may_yet_be_bound_or_has_ended_costs_nothing(pod: PodObject) -> None:
    assert HeldGang().after(5, pod) == 0


def test_a_gang_that_holds_no_quota_costs_nothing() -> None:
    world = HeldGang()
    assert world.after(1, waiting("a", reason="Unschedulable")) == 16
    status = world.workload["status"]
    rows = [row for row in status["conditions"] if row["type"] != "Admitted"]
    meta = {**world.workload["metadata"], "resourceVersion": "2"}
    world.mirror.upsert(kube.WORKLOADS, {**world.workload, "metadata": meta, "status": {"conditions": rows}})
    assert world.after(60) == 16
