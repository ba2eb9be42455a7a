"""The judge of the chaos test: it sees everything that must never be, and nothing where all is well."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.witness import NODES, PODS, READY_GRACE, TRUSTED, WAITING_GRACE, WORKLOADS, Witness

Json = dict[str, Any]
GPUS = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]}
LONG_AGO = -1000.0


def rows(*true: str) -> list[Json]:
    return [{"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "T"} for kind in true]


class Scene:
    """Two slices of two nodes with eight GPUs each."""

    def __init__(self, quota: int = 32) -> None:
        self.witness = Witness(quota)
        for number in range(4):
            self.node(f"n{number}", LONG_AGO, slice=f"s{number // 2}")

    def node(self, name: str, now: float, *, ready: bool = True, gpus: int = 8, **labels: str) -> None:
        status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": rows("Ready") if ready else []}
        self.witness.see(NODES, name, {"metadata": {"name": name, "labels": labels}, "status": status}, now)

    def pod(self, name: str, node: str, gang: str = "a", index: int = 0, phase: str = "Running", **meta: Any) -> None:
        owner = {"uid": f"job-{gang}", "controller": True}
        labels = {"batch.kubernetes.io/job-completion-index": str(index)}
        found = {"name": name, "uid": name, "ownerReferences": [owner], "labels": labels, **meta}
        found["annotations"] = {"kueue.x-k8s.io/workload": gang}
        body = {"metadata": found, "spec": {"nodeName": node, **GPUS}}
        self.witness.see(PODS, name, {**body, "status": {"phase": phase, "conditions": rows("Ready")}})

    def gang(self, name: str, pods: int, *true: str, priority: int = 0, alone: int = 0, slice_of: str = "") -> None:
        assignment = {"name": "main", "count": pods}
        notes = {"gangline.io/whole-domains": f'{{"main": {{"by": "slice", "count": {alone}}}}}'} if alone else {}
        notes |= {"kueue.x-k8s.io/workload-slice-name": slice_of} if slice_of else {}
        self.witness.see(
            WORKLOADS,
            name,
            {
                "metadata": {"name": name, "annotations": notes},
                "spec": {
                    "priority": priority,
                    "podSets": [{"name": "main", "count": pods, "template": {"spec": GPUS}}],
                },
                "status": {"conditions": rows(*true), "admission": {"podSetAssignments": [assignment]}},
            },
        )

    def lasts(self, seconds: float, start: float = 0.0) -> list[str]:
        """What is said when all stays as it is for so long."""
        for step in range(int(seconds * 2) + 1):
            self.witness.look(start + step / 2)
        return self.witness.violations


RUNS = ("QuotaReserved", "Admitted")


def test_a_node_with_too_many_pods_is_seen_at_the_event() -> None:
    scene = Scene()
    scene.pod("a", "n0")
    scene.pod("b", "n0", index=1)
    assert scene.witness.violations == []
    scene.pod("c", "n0", index=2)
    assert scene.witness.violations == ["node n0 has 8 GPUs and pods with 12"]


@pytest.mark.parametrize("ending", ["gone", "ended", "moved"])
def test_room_that_was_given_back_counts_no_more(ending: str) -> None:
    scene = Scene()
    scene.pod("a", "n0")
    scene.pod("b", "n0", index=1)
    if ending == "gone":
        scene.witness.see(PODS, "a", None)
    else:
        scene.pod("a", "n0" if ending == "ended" else "n1", phase="Succeeded" if ending == "ended" else "Running")
    scene.pod("c", "n0", index=2)
    assert scene.witness.violations == []


def test_a_node_that_shrinks_under_its_pods() -> None:
    scene = Scene()
    scene.pod("a", "n0")
    scene.node("n0", 0.0, gpus=3)
    assert len(scene.witness.violations) == 1


def test_one_member_in_two_places() -> None:
    scene = Scene()
    scene.pod("a", "n0")
    scene.pod("b", "n1", deletionTimestamp="now")
    assert scene.witness.violations == [], "one of them is going"
    scene.pod("c", "n2")
    assert scene.witness.violations == ["index 0 of Job job-a runs 2 times"]


def test_more_quota_than_there_is() -> None:
    scene = Scene(quota=12)
    scene.gang("a", 2, *RUNS)
    scene.gang("b", 1, *RUNS, "Finished")
    assert scene.witness.violations == []
    scene.gang("c", 2, "QuotaReserved")
    assert scene.witness.violations == ["gangs hold 16 GPUs of a quota of 12"]


def test_slices_of_an_elastic_job_hold_quota_together() -> None:
    scene = Scene(quota=12)
    scene.gang("a", 1, *RUNS, slice_of="a")
    scene.gang("a-2", 2, "QuotaReserved", slice_of="a")
    scene.gang("b", 1, *RUNS)
    assert scene.witness.violations == [], "one follows the other"
    scene.gang("a", 1, *RUNS, "Finished", slice_of="a")
    scene.gang("a-2", 3, *RUNS, slice_of="a")
    assert scene.witness.violations == ["gangs hold 16 GPUs of a quota of 12"]


def test_a_partial_slice_and_one_whose_pods_are_of_the_slice_before() -> None:
    scene = Scene()
    scene.gang("a", 1, *RUNS, "Finished", slice_of="a")
    scene.gang("a-2", 2, *RUNS, "PodsReady", slice_of="a")
    scene.pod("a", "n0")
    scene.pod("b", "n1", index=1)
    assert scene.lasts(2 * READY_GRACE) == []
    scene.witness.see(PODS, "b", None)
    assert scene.lasts(READY_GRACE + 1, 100) == ["a-2: partial for 16 s: 1 of 2 pods are there"]


def test_a_partial_gang_that_counts_as_running() -> None:
    scene = Scene()
    scene.gang("a", 2, *RUNS, "PodsReady")
    scene.pod("a", "n0")
    assert scene.lasts(READY_GRACE) == []
    assert scene.lasts(1, READY_GRACE + 0.5) == ["a: partial for 16 s: 1 of 2 pods are there"]
    scene = Scene()
    scene.gang("a", 2, *RUNS, "PodsReady")
    scene.pod("a", "n0")
    scene.pod("b", "n1", index=1)
    assert scene.lasts(2 * READY_GRACE) == []
    scene.node("n1", 0.0, ready=False)
    assert len(scene.lasts(READY_GRACE + 1, 100)) == 1, "it sits on a node that is dead"


def inverted(*, lesser: int = 0, pods: int = 8, fresh: bool = False, quota: int = 32, alone: int = 0) -> list[str]:
    """A gang of priority 1 waits, for eight pods of four GPUs, behind one of other priority that holds two nodes."""
    scene = Scene(quota)
    scene.gang("low", 4, *RUNS, priority=lesser)
    for index in range(4):
        scene.pod(f"low{index}", f"n{index // 2}", "low", index)
    scene.gang("high", pods, priority=1, alone=alone)
    if fresh:
        scene.node("n3", 0.0, ready=False)
        scene.node("n3", 0.0, slice="s1")
    return scene.lasts(WAITING_GRACE + (TRUSTED / 2 if fresh else 1))


def test_a_gang_that_waits_for_a_lesser_one() -> None:
    assert inverted() == ["high: inverted for 30 s: priority 1 waits behind ['low']"]
    assert inverted(alone=2) != [], "and in whole domains"


def test_waiting_that_is_as_it_should_be() -> None:
    assert inverted(lesser=1) == [], "an equal is no lesser one"
    assert inverted(pods=9) == [], "it would not fit"
    assert inverted(fresh=True) == [], "a node has just come back"
    assert inverted(quota=28) == [], "quota keeps it waiting"
    assert inverted(alone=3, pods=6) == [], "there are two domains"


def test_who_stays_needs_room_too() -> None:
    """Another of the same priority holds quota, and its pods are on their way."""
    scene = Scene(64)
    scene.gang("low", 2, *RUNS)
    scene.gang("peer", 1, *RUNS, priority=1)
    scene.gang("high", 8, priority=1)
    assert scene.lasts(WAITING_GRACE + 1) == []


def test_what_ended_is_remembered_by_member() -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.pod(name, "n0", phase="Succeeded")
    assert scene.witness.succeeded == {("job-a", "0"): {"a", "b"}}
