"""The plan of a pod group, step by step, and under any order of events and crashes."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs.plain_pods import a_pod, changed, gang, read
from tests.merging import merge_patch as merged
from tests.objects import PodObject, Stored, WorkloadObject, condition_of, true_condition

from gangline.api import names
from gangline.control.feed.mirror import Mirror
from gangline.control.isolation.intake import NamespaceIntake
from gangline.control.kinds import group_plan
from gangline.control.kinds.group_index import GroupIndex
from gangline.control.kinds.group_plan import GroupView
from gangline.control.kinds.steps import (
    ChangeStatus,
    CreateWorkload,
    DeletePod,
    DeleteWorkload,
    NotePod,
    NoteWorkload,
    PatchPod,
    PatchPodStatus,
    PatchWorkload,
    Step,
)
from gangline.control.writes.status import run_changes, status_changes
from gangline.engine import model
from gangline.jobs.base import JobError
from gangline.jobs.pods import composition
from gangline.jobs.pods.group import IncompleteError, PodGroup
from gangline.kube import resources as kube
from gangline.kube.resources import key_of

Json = dict[str, Any]
NOW = 1_700_000_000_000


class Lookups:
    progress_url = ""
    labels_to_copy = ()
    annotations_to_copy = ()

    def flavor(self, name: str) -> Stored | None:
        return Stored({"spec": {"nodeLabels": {"pool": name}}})

    def patience(self, queue: str) -> int | None:
        return None

    def host_name(self, node: str) -> str:
        return node

    def selects_nodes(self, labels: Mapping[str, str]) -> bool:
        return False

    def priority(self, job: Json, pod_sets: Sequence[Json]) -> tuple[int, Json | None]:
        return 0, None


class PodGroupWorld:
    """The pods of one group and their Workload, as an API server and kubelets change them."""

    def __init__(self, *pods: PodObject, alone: bool = False) -> None:
        self.alone = alone
        self.pods: dict[str, PodObject] = {pod.name: pod for pod in pods}
        self.workload: WorkloadObject | None = None
        self.now = NOW
        self.version = 10
        #: pods that started while their Workload had no quota, or without the rest of their gang
        self.wrong: list[str] = []
        #: pods on nodes that cannot be reached
        self.lost: set[str] = set()

    # --- the plan ---

    def plan(self) -> list[Step]:
        if not self.pods:
            return []
        found = read(*copy.deepcopy(list(self.pods.values())))
        members = [replace(pod, lost=True, ready=False) if pod.name in self.lost else pod for pod in found]
        group = PodGroup.of(members[0].name if self.alone else members[0].group, members, alone=self.alone)
        view = GroupView(group, copy.deepcopy(self.workload), True, any(pod.started for pod in group.pods), self.now)
        try:
            return group_plan.plan(view, Lookups())
        except IncompleteError:
            return []

    def carry_out(self, step: Step) -> None:
        self.version += 1
        match step:
            case PatchPod(pod, body) if pod.name in self.pods:
                self._patch(pod.name, body)
            case PatchPodStatus(pod, body) if pod.name in self.pods:
                self.pods[pod.name]["status"].setdefault("conditions", []).extend(body["status"]["conditions"])
            case DeletePod(pod) if pod.name in self.pods:
                self.delete(pod.name)
            case CreateWorkload(body) if self.workload is None:
                self.workload = WorkloadObject({**copy.deepcopy(body), "status": {}})
                self.workload["metadata"] |= {"uid": "w", "resourceVersion": "1"}
            case PatchWorkload(_, body) if self.workload is not None:
                self.workload = merged(self.workload, body)
                self._collect()
            case ChangeStatus(_, _, change) if self.workload is not None:
                change(self.workload["status"], self.now)
            case DeleteWorkload() if self.workload is not None:
                self.workload["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
                self._collect()
            case _:
                pass

    def _patch(self, name: str, body: Json) -> None:
        old = self.pods[name]
        self.pods[name] = new = merged(old, body)
        if gated(old) and not gated(new):
            living = sum(pod["status"]["phase"] != "Failed" for pod in self.pods.values())
            fast = new["metadata"]["annotations"].get(names.POD_GROUP_FAST) == "true"
            total = int(new["metadata"]["annotations"].get(names.POD_GROUP_TOTAL, "1"))
            begun = any(not gated(pod) for each, pod in self.pods.items() if each != name)
            if not self.admitted or (living < total and not begun and not fast):
                self.wrong.append(name)
        self._collect()

    def _collect(self) -> None:
        for name, pod in list(self.pods.items()):
            gone = "deletionTimestamp" in pod["metadata"] and not pod["metadata"].get("finalizers")
            ended = not pod["spec"].get("nodeName") or pod["status"]["phase"] in ("Succeeded", "Failed")
            if gone and ended:
                del self.pods[name]
        meta = (self.workload or {"metadata": {}})["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            self.workload = None

    def settle(self) -> None:
        """Plans are carried out until there is nothing to do. A Workload whose last pod is gone goes, too."""
        if not self.pods:
            self.workload = None
        for _ in range(100):
            steps = [step for step in self.plan() if not isinstance(step, NotePod | NoteWorkload)]
            if not steps:
                return
            for step in steps:
                self.carry_out(step)
        raise AssertionError(f"never at rest: {self.plan()}")

    # --- what others do ---

    @property
    def admitted(self) -> bool:
        return self.workload is not None and self.workload.admitted

    def admit(self) -> None:
        """The engine admits what waits in its queue."""
        workload = self.workload
        if workload is None or "admission" in workload["status"] or "deletionTimestamp" in workload["metadata"]:
            return
        if any(true_condition(workload, kind) for kind in (names.WAITING_FOR_REPLACEMENT, names.FINISHED)):
            return
        sets = [
            model.PodSetAssignment(row["name"], row["count"], {"cpu": "f"}, {"cpu": 1000})
            for row in workload["spec"]["podSets"]
        ]
        decision = model.Admit("ns/g", "w", model.Admission("cq", tuple(sets)), True, self.now)
        status_changes.admit(decision)(workload["status"], self.now)

    def preempt(self) -> None:
        if self.admitted and self.workload is not None and not true_condition(self.workload, names.FINISHED):
            decision = model.Preempt("ns/g", "w", "InClusterQueue", "make room", "ns/other", "o")
            status_changes.preempt(decision)(self.workload["status"], self.now)

    def run(self) -> None:
        """The scheduler binds pods without gates, and kubelets run them and end deleted ones."""
        for name, pod in list(self.pods.items()):
            deleted = "deletionTimestamp" in pod["metadata"]
            if not gated(pod) and not deleted and pod["status"]["phase"] == "Pending":
                self.pods[name] = changed(pod, node="n", phase="Running")
            elif deleted and pod["status"]["phase"] == "Running" and name not in self.lost:
                pod["status"]["phase"] = "Failed"
        self._collect()

    def end(self, name: str, phase: str) -> None:
        if self.pods[name]["status"]["phase"] == "Running":
            self.pods[name]["status"]["phase"] = phase

    def delete(self, name: str) -> None:
        self.pods[name]["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
        self._collect()

    def add(self, pod: PodObject) -> None:
        self.pods[pod.name] = pod


def gated(pod: PodObject) -> bool:
    return bool(pod.gates)


def running(world: PodGroupWorld) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in world.pods.values())


def started(*cpus: str, **annotations: str) -> PodGroupWorld:
    world = PodGroupWorld(*gang("g", *cpus, **annotations))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def test_a_gang_from_its_pods_to_its_end():
    pods = gang("g", "1", "1", "2")
    world = PodGroupWorld(*pods[:2])
    world.settle()
    assert world.workload is None
    world.add(pods[2])
    world.settle()
    assert world.workload is not None
    assert all(map(gated, world.pods.values()))
    world.admit()
    world.settle()
    world.run()
    assert running(world) == 3
    for name in list(world.pods):
        world.end(name, "Succeeded")
    world.settle()
    assert true_condition(world.workload, names.FINISHED)["message"] == "Pods succeeded: 3/3."
    assert not any(pod["metadata"].get("finalizers") for pod in world.pods.values())
    assert not world.workload["metadata"].get("finalizers")


def test_a_preempted_gang_releases_its_quota_when_its_last_pod_has_ended():
    world = started("1", "1")
    world.preempt()
    world.settle()
    assert all("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())
    assert world.workload is not None
    assert "admission" in world.workload["status"], "the pods still run"
    for pod in world.pods.values():
        row = true_condition(pod, "TerminationTarget")
        assert (row["reason"], row["message"]) == ("WorkloadEvictedDueToPreempted", "make room")
    world.run()
    world.settle()
    assert "admission" not in world.workload["status"]
    row = true_condition(world.workload, names.WAITING_FOR_REPLACEMENT)
    assert (row["reason"], row["message"]) == ("Preempted", "make room")
    world.add(a_pod("r0", group="g", total=2))
    world.settle()
    world.admit()
    assert not world.admitted, "it waits for its second pod"
    world.add(a_pod("r1", group="g", total=2))
    world.settle()
    assert condition_of(world.workload, names.WAITING_FOR_REPLACEMENT)["status"] == "False"
    assert sorted(world.pods) == ["r0", "r1"]
    world.admit()
    world.settle()
    world.run()
    assert running(world) == 2


def test_a_pod_that_is_missing_when_the_gang_is_admitted_keeps_the_others_waiting():
    world = PodGroupWorld(*gang("g", "1", "1"))
    world.settle()
    world.admit()
    world.delete("g-0")
    world.settle()
    assert all(map(gated, world.pods.values()))
    assert true_condition(world.workload, names.WAITING_FOR_REPLACEMENT)["reason"] == "PodsFailed"
    world.add(a_pod("r", group="g", total=2))
    world.settle()
    world.run()
    assert running(world) == 2


def test_the_last_pod_of_a_group_that_failed_starts_alone_and_ends_the_group():
    world = started("1", "1")
    for name in ("g-0", "g-1"):
        world.end(name, "Failed")
    world.add(a_pod("g-2", group="g", total=2, age=5))
    world.settle()
    assert gated(world.pods["g-2"]), "its gang is not complete"
    world.add(a_pod("last", group="g", total=2, age=6, retriable_in_group="false"))
    del world.pods["g-2"]
    world.settle()
    world.run()
    assert running(world) == 1
    world.end("last", "Failed")
    world.settle()
    assert condition_of(world.workload or {}, names.FINISHED)


def test_pods_that_are_not_replaced_start_together_all_the_same():
    pods = gang("g", "1", "1", retriable_in_group="false")
    world = PodGroupWorld(*pods)
    world.settle()
    world.admit()
    world.delete("g-0")
    world.settle()
    assert not running(world)
    assert gated(world.pods["g-1"])


def test_a_gang_all_of_whose_pods_were_deleted_is_given_up():
    world = started("1", "1")
    for name in list(world.pods):
        world.delete(name)
    world.settle()
    assert len(world.pods) == 2, "they still run"
    world.run()
    world.settle()
    assert not world.pods
    assert world.workload is None


def test_a_pod_that_cannot_end_on_a_lost_node_leaves_its_place_to_another_one():
    world = started("1", "1", "1")
    world.delete("g-1")
    world.settle()
    assert world.workload is not None
    assert true_condition(world.workload, names.WAITING_FOR_REPLACEMENT) is None, "it may end any moment"
    world.lost = {"g-1"}
    world.settle()
    assert true_condition(world.workload, names.WAITING_FOR_REPLACEMENT) is not None
    assert true_condition(world.workload, names.ADMITTED) is not None
    world.add(a_pod("g-new", group="g", total=3, age=9))
    world.settle()
    world.run()
    world.settle()
    assert not gated(world.pods["g-new"])
    assert "deletionTimestamp" not in world.pods["g-new"]["metadata"], "it is not one too many"
    assert not world.pods["g-1"]["metadata"].get("finalizers")
    assert true_condition(world.workload, names.WAITING_FOR_REPLACEMENT) is None
    assert not world.wrong


def test_pods_whose_admission_was_not_kept_are_stopped_and_none_is_started():
    """Until the quota was given to others. What was kept is compared with what was written."""
    world = PodGroupWorld(*gang("g", "1", "1"))
    world.settle()
    world.admit()
    starts = [step for step in world.plan() if isinstance(step, PatchPod)]
    assert [step.starts_with is not None for step in starts] == [True, True]
    for step in starts:
        world.carry_out(step)
        assert step.starts_with is not None
        stored = copy.deepcopy(world.pods[step.pod.name])
        assert composition.not_kept(stored, step.starts_with) == []
        del stored["spec"]["nodeSelector"]
        assert composition.not_kept(stored, step.starts_with) == ["nodeSelector[pool]"]
    world.run()
    group = PodGroup.of("g", read(*world.pods.values()))
    view = GroupView(group, world.workload, True, True, world.now, not_kept=["pod g-0: nodeSelector[pool]"])
    for step in group_plan.plan(view, Lookups()):
        world.carry_out(step)
    assert world.workload is not None
    row = true_condition(world.workload, names.PODS_REFUSED)
    assert row["reason"] == run_changes.NOT_KEPT and "(pod g-0: nodeSelector[pool])" in row["message"]
    world.settle()
    world.run()
    world.settle()
    assert not running(world)
    for number in (2, 3):
        world.add(a_pod(f"g-{number}", group="g", total=2, age=9))
    world.settle()
    assert world.admitted and all(map(gated, world.pods.values())), "they wait"
    world.preempt()
    world.settle()
    world.admit()
    world.settle()
    world.run()
    assert running(world) == 2


def of_stateful_set(pod: PodObject) -> PodObject:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


@pytest.mark.parametrize("serving", ["true", "false"])
def test_a_deleted_pod_of_a_stateful_set_makes_room_for_the_next_one_of_its_name(serving: str):
    world = PodGroupWorld(*gang("g", "1", "1", "1", pod_group_serving=serving))
    of_stateful_set(world.pods["g-0"])
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    world.delete("g-0")
    world.settle()
    assert world.pods["g-0"]["metadata"]["finalizers"], "it still runs"
    world.run()
    world.settle()
    assert "g-0" not in world.pods
    assert world.workload is not None
    assert true_condition(world.workload, names.WAITING_FOR_REPLACEMENT) is not None
    world.add(of_stateful_set(a_pod("g-0", group="g", total=3, age=9, pod_group_serving=serving)))
    world.settle()
    world.run()
    assert running(world) == 3
    assert true_condition(world.workload, names.WAITING_FOR_REPLACEMENT) is None
    assert not world.wrong


def test_a_deleted_pod_of_another_owner_keeps_its_place_until_it_is_replaced():
    world = started("1", "1", pod_group_serving="true")
    world.delete("g-0")
    world.run()
    world.settle()
    assert world.pods["g-0"]["metadata"]["finalizers"]


def test_an_evicted_group_of_a_stateful_set_keeps_its_workload():
    """Its pods own it, and none of them is there for a moment otherwise."""
    world = PodGroupWorld(*map(of_stateful_set, gang("g", "1", "1", "1", pod_group_serving="true")))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.preempt()
    world.settle()
    world.run()
    world.settle()
    assert list(world.pods) == ["g-2"]
    for number in (0, 1):
        world.add(of_stateful_set(a_pod(f"g-{number}", group="g", total=3, age=9, pod_group_serving="true")))
    world.settle()
    assert sorted(world.pods) == ["g-0", "g-1"], "now the last one goes"
    world.add(of_stateful_set(a_pod("g-2", group="g", total=3, age=10, pod_group_serving="true")))
    world.settle()
    world.admit()
    world.settle()
    world.run()
    assert running(world) == 3
    assert not world.wrong


def test_a_gang_all_of_whose_pods_were_lost_is_not_given_up():
    world = started("1", "1")
    for name in ("g-0", "g-1"):
        world.delete(name)
        world.lost.add(name)
    world.settle()
    assert world.workload is not None
    assert "deletionTimestamp" not in world.workload["metadata"]


def test_pods_go_with_their_workload():
    world = started("1", "1", "1")
    world.end("g-0", "Succeeded")
    world.workload["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
    world.settle()
    assert sorted(world.pods) == ["g-1", "g-2"]
    world.run()
    world.settle()
    assert not world.pods
    assert world.workload is None


def test_pods_that_run_without_quota_are_stopped():
    world = started("1", "1")
    world.workload = None
    world.settle()
    assert all("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())


def test_a_workload_of_another_job_is_left_alone():
    world = PodGroupWorld(*gang("g", "1"))
    metadata = {"name": "g", "namespace": "ns", "resourceVersion": "1"}
    world.workload = WorkloadObject({"metadata": metadata, "spec": {}, "status": {}})
    [note] = world.plan()
    assert isinstance(note, NotePod)
    assert note.reason == "WorkloadNameConflict"
    world.delete("g-0")
    world.settle()
    assert not world.pods, "a pod that can never start is not kept"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_single_pod(phase: str):
    world = PodGroupWorld(a_pod("p"), alone=True)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.end("p", phase)
    world.settle()
    assert true_condition(world.workload, names.FINISHED)["reason"] == phase
    assert not world.pods["p"]["metadata"].get("finalizers")


def test_a_preempted_single_pod_goes_with_its_workload():
    world = PodGroupWorld(a_pod("p"), alone=True)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.preempt()
    world.settle()
    world.run()
    world.settle()
    assert not world.pods
    assert world.workload is None


def naming(*, controlled_by: str = "", **spec: Any) -> PodGroupWorld:
    """A pod that stands alone and names a Workload, which exists."""
    world = PodGroupWorld(a_pod("p", prebuilt_workload_name="mine"), alone=True)
    group = PodGroup.of("p", read(*world.pods.values()), alone=True)
    workload = composition.new_workload(group, composition.pod_sets(group), priority=0, priority_class_ref=None)
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": controlled_by, "controller": True}]
    workload["metadata"] |= {"uid": "w", "resourceVersion": "1", "ownerReferences": owners if controlled_by else []}
    workload["spec"]["podSets"][0]["template"]["spec"] |= spec
    world.workload = WorkloadObject({**workload, "status": {}})
    return world


def test_a_pod_takes_the_workload_that_it_names():
    world = naming()
    assert world.workload is not None
    world.settle()
    world.admit()
    world.settle()
    world.run()
    assert running(world) == 1
    world.end("p", "Succeeded")
    world.settle()
    assert world.workload["metadata"]["name"] == "mine"
    assert [(row["uid"], row["controller"]) for row in world.workload["metadata"]["ownerReferences"]] == [
        ("uid-p", True)
    ]
    assert condition_of(world.workload, names.FINISHED)
    assert not world.pods["p"]["metadata"].get("finalizers")


@pytest.mark.parametrize(("controlled_by", "problem"), [("other", "controlled by another object"), ("", "not found")])
def test_a_pod_waits_for_the_workload_that_it_names(controlled_by: str, problem: str):
    world = naming(controlled_by=controlled_by)
    if not controlled_by:
        world.workload = None
    before = copy.deepcopy(world.workload)
    [note] = world.plan()
    assert isinstance(note, NotePod)
    assert (note.reason, note.message) == ("PrebuiltWorkloadNotFound", f"Prebuilt workload ns/mine: {problem}")
    world.settle()
    assert world.workload == before
    assert gated(world.pods["p"])


def test_a_named_workload_of_other_pods_is_finished():
    world = naming(containers=[{"name": "another", "image": "i"}])
    world.settle()
    assert (condition_of(world.workload or {}, names.FINISHED) or {})["reason"] == "OutOfSync"
    assert gated(world.pods["p"])


def test_a_workload_that_pods_name_belongs_to_the_first_of_them():
    index = GroupIndex(Mirror(lambda change: None))
    pods = [a_pod(name, prebuilt_workload_name="mine") for name in ("a", "b")]
    for pod in pods:
        index.upsert(pod)
    free = WorkloadObject({"metadata": {"name": "mine", "namespace": "ns"}})
    assert index.behind("ns/mine", free) == (kube.PODS, "ns/a")
    index.remove("ns/a")
    assert index.behind("ns/mine", free) == (kube.PODS, "ns/b")
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    owned = WorkloadObject({"metadata": free.metadata | {"ownerReferences": [job]}})
    assert index.behind("ns/mine", owned) is None


def test_a_conflicting_node_selector_finishes_the_gang_before_any_pod_starts():
    pods = gang("g", "1", "1")
    pods[1]["spec"]["nodeSelector"] = {"pool": "other"}
    world = PodGroupWorld(*pods)
    world.settle()
    world.admit()
    world.settle()
    assert true_condition(world.workload, names.FINISHED)["reason"] == "FailedToStart"
    assert all(map(gated, world.pods.values()))


def test_a_total_that_is_no_number_is_an_error_of_the_group_alone():
    pods = gang("g", "1")
    pods[0]["metadata"]["annotations"][names.POD_GROUP_TOTAL] = "many"
    with pytest.raises(JobError, match="is not a whole number"):
        PodGroupWorld(*pods).plan()


_EVENTS = ("plan", "part of a plan", "admit", "preempt", "run", "fail", "succeed", "delete", "create")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(_EVENTS), max_size=40), st.integers(0, 2**32), st.sampled_from([True, False]))
def test_no_partial_gang_starts_and_no_group_is_stuck(events: list[str], seed: int, fast: bool):
    """Whatever happens, and wherever the operator is killed between two writes."""
    draw = random.Random(seed)
    notes = {"pod_group_fast_admission": "true"} if fast else {}
    world = PodGroupWorld(*gang("g", "1", "1", "1", **notes))
    made = 0
    for event in events:
        names_now = sorted(world.pods)
        match event:
            case "plan":
                for step in world.plan():
                    world.carry_out(step)
            case "part of a plan":
                steps = world.plan()
                for step in steps[: draw.randint(0, len(steps))]:
                    world.carry_out(step)
            case "create":
                made += 1
                world.add(a_pod(f"new-{made}", group="g", total=3, age=made, **notes))
            case "admit" | "preempt" | "run":
                getattr(world, event)()
            case _ if names_now:
                name = draw.choice(names_now)
                if event == "delete":
                    world.delete(name)
                else:
                    world.end(name, {"fail": "Failed", "succeed": "Succeeded"}[event])
            case _:
                pass
        assert not world.wrong
        live = [pod for pod in read(*world.pods.values()) if pod.started and not pod.deleted]
        assert len(live) <= 3, "more pods run than the gang has"
    for _ in range(6):  # nothing more happens but what kubelets do
        world.settle()
        world.run()
    world.settle()
    if not world.admitted or true_condition(world.workload, names.FINISHED):
        assert not [pod for pod in read(*world.pods.values()) if pod.started], "no pod runs without quota"


# --- imported pods ----------------------------------------------------------------------------------------------------


def imported_at(pods: Sequence[PodObject], at: int) -> list[PodObject]:
    """Pods that run, as `gangline admin import` hands them over."""
    found = [changed(pod, node="n", phase="Running") for pod in pods]
    for pod in found:
        pod["metadata"]["annotations"][names.IMPORTED_AT] = str(at // 1000)
    return found


def offered(world: PodGroupWorld, *pods: PodObject) -> None:
    """The import has made the Workload of these pods, and admitted it."""
    group = PodGroup.of("g", read(*pods))
    body = composition.new_workload(group, composition.pod_sets(group), priority=0, priority_class_ref=None)
    del body["metadata"]["annotations"][names.IS_GROUP_WORKLOAD]
    world.workload = WorkloadObject({**body, "status": {}})
    world.workload["metadata"] |= {"uid": "w", "resourceVersion": "1"}
    world.admit()


def test_an_imported_group_is_taken_over_pod_by_pod_and_nothing_is_stopped():
    pods = imported_at(gang("g", "1", "1", "1"), NOW)
    world = PodGroupWorld(*pods[:1])
    world.settle()
    assert world.workload is None
    assert "deletionTimestamp" not in world.pods["g-0"]["metadata"], "the watch of Workloads may be behind"
    offered(world, *pods)
    world.add(pods[1])
    world.settle()
    assert names.IS_GROUP_WORKLOAD not in world.workload["metadata"]["annotations"], "its other pod is on its way"
    world.add(pods[2])
    world.settle()
    assert world.workload["metadata"]["annotations"][names.IS_GROUP_WORKLOAD] == "true"
    assert condition_of(world.workload, names.WAITING_FOR_REPLACEMENT) in (None, {}) or (
        condition_of(world.workload, names.WAITING_FOR_REPLACEMENT)["status"] == "False"
    )
    assert running(world) == 3
    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())
    for name in list(world.pods):
        world.end(name, "Succeeded")
    world.settle()
    assert true_condition(world.workload, names.FINISHED)["message"] == "Pods succeeded: 3/3."


def test_an_imported_group_whose_workload_is_deleted_does_not_wait_for_the_pods_that_are_gone():
    pods = imported_at(gang("g", "1", "1"), NOW)
    world = PodGroupWorld(*pods)
    offered(world, *pods)
    world.settle()
    world.workload["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
    world.settle()
    del world.pods["g-0"]
    world.run()
    world.settle()
    assert not world.pods
    assert world.workload is None


def test_pods_that_say_they_were_imported_are_stopped_like_others_once_that_was_long_ago():
    for at in (NOW - group_plan.PATIENCE, NOW + group_plan.PATIENCE):
        world = PodGroupWorld(*imported_at(gang("g", "1"), at))
        world.settle()
        assert "deletionTimestamp" in world.pods["g-0"]["metadata"]


def test_a_group_takes_no_workload_that_was_not_made_for_its_pods():
    pods = imported_at(gang("g", "1"), NOW - group_plan.PATIENCE)
    world = PodGroupWorld(*pods)
    offered(world, *pods)
    world.workload["metadata"]["ownerReferences"][0]["uid"] = "another"
    steps = world.plan()
    assert [step.reason for step in steps if isinstance(step, NotePod)] == ["WorkloadNameConflict"]
    assert not any(isinstance(step, DeletePod | PatchPodStatus) for step in steps)


def test_an_imported_pod_takes_its_workload_also_in_the_place_of_a_deployment():
    [pod] = imported_at([a_pod("web")], NOW)
    pod["metadata"]["annotations"][names.SUSPENDED_BY_PARENT] = "deployment"
    pod["metadata"]["labels"][names.PREBUILT_WORKLOAD] = "w"
    assert read(pod)[0].prebuilt == "w"
    del pod["metadata"]["annotations"][names.IMPORTED_AT]
    assert read(pod)[0].prebuilt == "", "on a template it has no effect"
    pod["metadata"]["annotations"][names.IMPORTED_AT] = "9" * 30
    assert read(pod)[0].imported == 0


# --- in other clusters ------------------------------------------------------------------------------------------------


def admitted_group(*pods: PodObject) -> PodGroupWorld:
    world = PodGroupWorld(*pods)
    for step in world.plan():
        world.carry_out(step)
    for step in world.plan():
        world.carry_out(step)
    world.admit()
    return world


def steps_of_sent(world: PodGroupWorld, *, active: bool = False, ready_there: bool = False) -> list[Step]:
    members = read(*copy.deepcopy(list(world.pods.values())))
    group = PodGroup.of(members[0].group, members)
    view = GroupView(group, copy.deepcopy(world.workload), True, active, NOW, sent=True, ready_there=ready_there)
    return group_plan.plan(view, Lookups())


def test_pods_that_run_in_another_cluster_stay_gated_and_count_by_their_status() -> None:
    world = admitted_group(*gang("g", "1", "1"))
    assert any(isinstance(step, PatchPod) for step in world.plan()), "here they would start"
    assert not [step for step in steps_of_sent(world) if isinstance(step, PatchPod | DeletePod)]
    for pod in world.pods.values():
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for step in steps_of_sent(world):
        world.carry_out(step)
    assert world.workload is not None and true_condition(world.workload, names.PODS_READY) is not None
    for pod in world.pods.values():
        pod["status"] = {"phase": "Succeeded"}
    for step in steps_of_sent(world):
        world.carry_out(step)
    assert true_condition(world.workload, names.FINISHED) is not None


def test_quota_is_held_until_no_pod_runs_in_another_cluster() -> None:
    world = admitted_group(*gang("g", "1", "1"))
    assert world.workload is not None
    world.preempt()
    assert steps_of_sent(world, active=True) == []
    [step] = steps_of_sent(world, active=False)
    assert isinstance(step, ChangeStatus) and step.change is status_changes.release


def test_queued_pods_take_no_more_memory_than_their_namespace_has():
    intake, complaints = NamespaceIntake(most=20_000), []
    mirror = Mirror(lambda change: None, lambda pod, error: complaints.append(str(error)), intake=intake)
    index = GroupIndex(mirror)
    pods = [a_pod(f"p{number}") for number in range(30)]
    for pod in pods:
        index.upsert(pod)
    kept = [key_of(pod) for pod in pods if index.pod(key_of(pod)) is not None]
    assert 3 <= len(kept) < 10
    assert sum(intake.stored.values()) <= 20_000
    assert len(complaints) == 30 - len(kept)
    assert "stores more than" in complaints[0]
    for key in kept:
        index.remove(key)
    assert not intake.stored
    index.upsert(pods[-1])
    assert index.pod(key_of(pods[-1])) is not None, "what has gone made room"
