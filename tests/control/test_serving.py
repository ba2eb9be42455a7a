"""The plan of StatefulSets and LeaderWorkerSets: which Workloads there are, what they count, and whose the pods are."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from tests.cluster.serving import leader_worker_set, stateful_set
from tests.control.test_pod_groups import Lookups
from tests.objects import PodObject, Stored, WorkloadObject, as_stored, condition_of

from gangline.api import admission, names
from gangline.api.admission import AdmissionFacts
from gangline.control.feed.mirror import Mirror
from gangline.control.kinds import group_plan
from gangline.control.kinds.group_plan import GroupDemand, GroupView
from gangline.control.kinds.serving_parents import HeldIndex, ServedParents
from gangline.control.kinds.serving_plan import ParentView, plan
from gangline.control.kinds.steps import (
    ChangeStatus,
    CreateWorkload,
    DeletePod,
    DeleteWorkload,
    Note,
    PatchPod,
    PatchPodStatus,
    PatchWorkload,
    Step,
)
from gangline.control.writes.status import run_changes
from gangline.jobs.base import JobError, UnknownClassError
from gangline.jobs.pods import member
from gangline.jobs.pods.group import PodGroup
from gangline.jobs.serving import BY_RESOURCE, named
from gangline.kube import resources as kube

Json = dict[str, Any]
STS, LWS = BY_RESOURCE[kube.STATEFUL_SETS], BY_RESOURCE[kube.LEADER_WORKER_SETS]
NOW = 1_700_000_000_000


def stored(obj: Json, uid: str = "u1") -> Stored:
    """As the API server has it once the webhook has seen it."""
    obj["metadata"] |= {"uid": uid, "resourceVersion": "5"}
    return as_stored(admission.default(obj, None, AdmissionFacts()).obj)


def pod(
    name: str, parent: Stored, *, uid: str = "u1", owner: str = "", template: Json | None = None, **given: Any
) -> PodObject:
    """A pod that its StatefulSet, of this uid, has just made."""
    body = copy.deepcopy(template or parent["spec"]["template"])
    body["metadata"] |= {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"}
    reference = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": owner or parent["metadata"]["name"],
        "uid": uid,
    }
    body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    body["metadata"]["labels"] |= given.pop("labels", {})
    body["metadata"]["annotations"] |= given.pop("annotations", {})
    made = admission.default({"apiVersion": "v1", "kind": "Pod", **body}, None, AdmissionFacts()).obj
    made["status"] = {"phase": "Pending"}
    return PodObject(made)


def view(
    parent: Stored,
    *workloads: WorkloadObject,
    pods: Sequence[PodObject] = (),
    active: bool = False,
    **given: Any,
) -> ParentView:
    kind = STS if parent["kind"] == "StatefulSet" else LWS
    return ParentView(
        kind=kind,
        parent=parent,
        workloads={each.name: each for each in workloads},
        pods=[member.read_held(each) for each in pods],
        active=lambda name: active,
        **given,
    )


def planned(parent: Stored, *workloads: WorkloadObject, **given: Any) -> list[Step]:
    return plan(view(parent, *workloads, **given), Lookups())


def workload_of(parent: Stored, index: int = 0, **status: Any) -> WorkloadObject:
    """The Workload that the plan makes for a group."""
    bodies = [step.body for step in planned(parent) if isinstance(step, CreateWorkload)]
    body = copy.deepcopy(bodies[index])
    body["metadata"] |= {"uid": f"w{index}", "resourceVersion": "3"}
    return WorkloadObject({**body, "status": status})


def reserved(workload: WorkloadObject, *conditions: str) -> WorkloadObject:
    rows = [{"type": each, "status": "True", "reason": "X"} for each in ("QuotaReserved", "Admitted", *conditions)]
    status = {**workload.status, "admission": {"clusterQueue": "cq"}, "conditions": rows}
    return WorkloadObject({**workload, "status": status})


def on_hold(workload: WorkloadObject) -> WorkloadObject:
    row = {"type": "QuotaReserved", "status": "False", "reason": "OnHold"}
    return WorkloadObject({**workload, "status": {"conditions": [row]}})


def after(step: Step) -> Json:
    """The status that a step makes."""
    assert isinstance(step, ChangeStatus)
    status = copy.deepcopy(step.workload["status"])
    step.change(status, NOW)
    return status


# --- StatefulSets -----------------------------------------------------------------------------------------------------


def test_a_stateful_set_has_one_workload_as_in_kueue():
    parent = stored(stateful_set("db", "lq", 3))
    [step, note] = planned(parent)
    assert isinstance(step, CreateWorkload)
    meta, spec = step.body["metadata"], step.body["spec"]
    assert meta["name"] == named(STS, parent, "db") and meta["name"].startswith("statefulset-db-")
    assert meta["labels"] == {names.JOB_UID: "u1"}
    assert meta["annotations"] == {
        names.IS_GROUP_WORKLOAD: "true",
        names.JOB_OWNER_GVK: "apps/v1, Kind=StatefulSet",
        names.JOB_OWNER_NAME: "db",
    }
    assert meta["ownerReferences"] == [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u1"}]
    assert spec["queueName"] == "lq"
    [main] = spec["podSets"]
    assert (main["name"], main["count"], list(main["template"])) == ("main", 3, ["spec"])
    assert isinstance(note, Note)
    assert planned(parent, workload_of(parent)) == []


def test_only_marked_ones_that_name_a_queue_are_planned():
    parent = stored(stateful_set("db", "lq", 3))
    assert planned(parent, managed=False) == []
    unmarked = stateful_set("db", "lq", 3)
    unmarked["metadata"] |= {"uid": "u1"}
    assert planned(as_stored(unmarked)) == []
    leaving = copy.deepcopy(parent)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
    assert planned(leaving) == []


def test_a_pod_becomes_a_member_of_its_group():
    parent = stored(stateful_set("db", "lq", 2, priority="high"))
    workload = workload_of(parent)
    [step] = planned(parent, workload, pods=[pod("db-0", parent)])
    assert isinstance(step, PatchPod)
    name = workload["metadata"]["name"]
    assert step.body["metadata"] == {
        "resourceVersion": "7",
        "labels": {names.MANAGED: "true", names.QUEUE_NAME: "lq", names.PRIORITY_CLASS: "high"},
        "annotations": {
            names.POD_GROUP: name,
            names.PREBUILT_WORKLOAD: name,
            names.POD_GROUP_TOTAL: "2",
            names.POD_GROUP_SERVING: "true",
            names.ROLE_HASH: "main",
            names.POD_GROUP_FAST: "true",
            names.POD_GROUP_INDEX_LABEL: "apps.kubernetes.io/pod-index",
        },
    }


def marked(made: PodObject, group: str, **labels: str) -> PodObject:
    made["metadata"]["labels"] |= {names.MANAGED: "true", names.QUEUE_NAME: "lq", **labels}
    made["metadata"]["annotations"][names.POD_GROUP] = group
    return made


def test_pods_that_wait_follow_to_another_queue_and_to_another_revision():
    parent = stored(stateful_set("db", "other", 2))
    workload = workload_of(parent)
    old = marked(pod("db-0", parent), workload["metadata"]["name"])
    [step] = planned(parent, workload, pods=[old])
    assert isinstance(step, PatchPod)
    assert step.body["metadata"]["labels"] == {names.QUEUE_NAME: "other"}
    [step] = planned(parent, workload, pods=[old], outdated=frozenset({"uid-db-0"}))
    assert isinstance(step, DeletePod)
    [step] = planned(parent, reserved(workload), pods=[old], outdated=frozenset({"uid-db-0"}))
    assert isinstance(step, PatchPod), "one that may start needs no successor"


def test_at_zero_it_leaves_its_queue_and_gives_its_quota_back_with_its_last_pod():
    parent = stored(stateful_set("db", "lq", 2))
    workload = workload_of(parent)
    none = stored(stateful_set("db", "lq", 0))
    assert planned(none) == [], "no Workload is made"
    [step] = planned(none, workload)
    row = condition_of({"status": after(step)}, "QuotaReserved")
    assert row is not None
    assert (row["status"], row["reason"], row["message"]) == (
        "False",
        "OnHold",
        "StatefulSet scaled to zero; workload on hold",
    )
    assert planned(none, on_hold(workload)) == []
    assert planned(none, reserved(workload), active=True) == []
    [step] = planned(none, reserved(workload))
    status = after(step)
    assert "admission" not in status
    assert condition_of({"status": status}, "Admitted")["status"] == "False"  # type: ignore[index]


def test_up_again_it_counts_its_pods_anew_before_it_is_queued():
    workload = workload_of(stored(stateful_set("db", "lq", 2)))
    parent = stored(stateful_set("db", "lq", 5))
    [step] = planned(parent, on_hold(workload))
    assert isinstance(step, PatchWorkload)
    assert [row["count"] for row in step.body["spec"]["podSets"]] == [5]
    workload["spec"]["podSets"] = step.body["spec"]["podSets"]
    [step] = planned(parent, on_hold(workload))
    row = condition_of({"status": after(step)}, "QuotaReserved")
    assert row is not None and row["reason"] == "PendingEvaluation"


def test_another_size_while_it_holds_quota_and_none_of_its_pods_runs():
    """Down to zero and up again before the quota was given back: it is given back now."""
    workload = workload_of(stored(stateful_set("db", "lq", 2)))
    parent = stored(stateful_set("db", "lq", 5))
    [step] = planned(parent, reserved(workload))
    assert after(step)["conditions"][0]["reason"] == "OnHold"


def test_the_scale_subresource_takes_what_there_is():
    workload = reserved(workload_of(stored(stateful_set("db", "lq", 4))))
    group = workload["metadata"]["name"]
    parent = stored(stateful_set("db", "lq", 2))
    pods = [marked(pod(f"db-{i}", parent), group) for i in range(3)]
    assert planned(parent, workload, pods=pods, active=True) == [], "its third pod has not ended yet"
    [step] = planned(parent, workload, pods=pods[:2], active=True)
    assert after(step)["reclaimablePods"] == [{"name": "main", "count": 2}]
    workload["status"]["reclaimablePods"] = [{"name": "main", "count": 2}]
    assert planned(parent, workload, pods=pods[:2], active=True) == []
    more = stored(stateful_set("db", "lq", 3))
    [step] = planned(more, workload, pods=pods[:2], active=True)
    assert isinstance(step, Note) and step.reason == "ScaledBeyondQuota"
    # without quota it counts anew: first what was reclaimed, then the pods, so that it never counts too little
    workload["status"] = {"reclaimablePods": [{"name": "main", "count": 2}], "conditions": []}
    [step] = planned(more, workload)
    assert "reclaimablePods" not in after(step)
    workload["status"] = {"conditions": []}
    [step] = planned(more, workload)
    assert isinstance(step, PatchWorkload) and step.body["spec"]["podSets"][0]["count"] == 3


def test_an_evicted_one_without_pods_gives_its_quota_back():
    parent = stored(stateful_set("db", "lq", 2))
    workload = reserved(workload_of(parent), "Evicted")
    [step] = planned(parent, workload)
    assert "admission" not in after(step)
    waits = marked(pod("db-0", parent), workload["metadata"]["name"])
    assert planned(parent, workload, pods=[waits]) == [], "its group gives it back"
    assert planned(parent, workload, active=True) == []


class Classes(Lookups):
    def priority(self, job: Json, pod_sets: Sequence[Json]) -> tuple[int, Json | None]:
        name = (job["metadata"].get("labels") or {}).get(names.PRIORITY_CLASS)
        if name == "missing":
            raise UnknownClassError("there is none")
        return (5, {"group": names.GROUP, "kind": "WorkloadPriorityClass", "name": name}) if name else (0, None)


def test_queue_and_priority_are_followed():
    parent = stored(stateful_set("db", "lq", 2))
    workload = workload_of(parent)
    moved = stored(stateful_set("db", "other", 2, priority="high"))
    reference = {"group": names.GROUP, "kind": "WorkloadPriorityClass", "name": "high"}
    [step, note] = plan(view(moved, workload), Classes())
    assert isinstance(step, PatchWorkload)
    assert step.body["spec"] == {"queueName": "other", "priority": 5, "priorityClassRef": reference}
    assert isinstance(note, Note) and note.reason == "UpdatedWorkload"
    runs = reserved(workload)
    runs["spec"] |= {"priorityClassRef": {**reference, "name": "low"}}
    [step, _] = plan(view(moved, runs, active=True), Classes())
    assert isinstance(step, PatchWorkload)
    assert step.body["spec"] == {"priority": 5, "priorityClassRef": reference}, "the queue stays"
    with pytest.raises(UnknownClassError):
        plan(view(stored(stateful_set("db", "lq", 2, priority="missing"))), Classes())


def test_gates_are_removed_with_those_of_its_owner():
    parent = stateful_set("db", "lq", 2)
    parent["metadata"]["annotations"] = {names.ADMISSION_GATED_BY: "a.example/b"}
    workload = workload_of(stored(parent))
    assert workload["metadata"]["annotations"][names.ADMISSION_GATED_BY] == "a.example/b"
    [step] = planned(stored(stateful_set("db", "lq", 2)), workload)
    assert isinstance(step, PatchWorkload)
    assert step.body["metadata"]["annotations"] == {names.ADMISSION_GATED_BY: None}


def test_the_hints_of_a_parent_are_those_of_its_workloads_also_while_they_run():
    parent = stored(stateful_set("s", "lq", 2))
    parent["metadata"]["annotations"] = {names.CHECKPOINT_INTERVAL: "30m", names.STALL: "none"}
    workload = reserved(workload_of(parent))
    kept = {key: value for key, value in workload["metadata"]["annotations"].items() if key in names.HINTS}
    assert kept == {names.CHECKPOINT_INTERVAL: "30m", names.STALL: "none"}
    assert planned(parent, workload, active=True) == []
    parent["metadata"]["annotations"] = {names.CHECKPOINT_INTERVAL: "10m"}
    [step] = planned(parent, workload, active=True)
    assert isinstance(step, PatchWorkload)
    assert step.body["metadata"]["annotations"] == {names.CHECKPOINT_INTERVAL: "10m", names.STALL: None}


def test_a_workload_that_an_older_kueue_or_a_manager_has_made_is_adopted():
    parent = stored(stateful_set("db", "lq", 2))
    assert list(STS.adopted_names(parent)) == [named(STS, parent, "db"), named(STS, parent, "db", uid="")]
    workload = workload_of(parent)
    workload["metadata"] |= {"name": named(STS, parent, "db", uid=""), "ownerReferences": [], "annotations": {}}
    [step] = planned(parent, workload)
    assert isinstance(step, PatchWorkload)
    assert [row["uid"] for row in step.body["metadata"]["ownerReferences"]] == ["u1"]
    sent = stored(stateful_set("db", "lq", 2))
    sent["metadata"]["labels"][names.MULTIKUEUE_ORIGIN] = "multikueue"
    sent["metadata"]["annotations"] = {names.MULTIKUEUE_ORIGIN_UID: "there"}
    assert planned(sent) == [], "its manager makes its Workload"
    assert named(STS, sent, "db") == named(STS, parent, "db", uid="there")


# --- LeaderWorkerSets -------------------------------------------------------------------------------------------------


def test_each_group_of_a_leader_worker_set_has_a_workload_as_in_kueue():
    parent = stored(leader_worker_set("llm", "lq", 2, 4))
    bodies = [step.body for step in planned(parent) if isinstance(step, CreateWorkload)]
    assert [body["metadata"]["name"] for body in bodies] == [named(LWS, parent, f"llm-{i}") for i in range(2)]
    assert bodies[1]["metadata"]["name"].startswith("leaderworkerset-llm-1-")
    assert bodies[1]["metadata"]["annotations"] == {
        names.IS_GROUP_WORKLOAD: "true",
        names.JOB_OWNER_GVK: "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
        names.JOB_OWNER_NAME: "llm",
        names.COMPONENT_INDEX: "1",
    }
    assert [(row["name"], row["count"]) for row in bodies[0]["spec"]["podSets"]] == [("leader", 1), ("worker", 3)]
    alone = leader_worker_set("llm", "lq", 1, 4)
    del alone["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    [row] = workload_of(stored(alone))["spec"]["podSets"]
    assert (row["name"], row["count"]) == ("main", 4)


def test_keys_of_its_controller_are_not_in_its_pod_sets():
    parent = leader_worker_set("llm", "lq", 1, 2)
    worker = parent["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]
    worker["labels"] |= {member.SET_NAME: "llm", member.GROUP_INDEX: "0"}
    template = workload_of(stored(parent))["spec"]["podSets"][1]["template"]
    assert template["metadata"]["labels"] == {"app": "llm", member.SET_NAME: "llm", names.QUEUE_NAME: "lq"}


def test_a_topology_request_counts_workers_by_their_index():
    parent = leader_worker_set("llm", "lq", 1, 2)
    for each in ("leaderTemplate", "workerTemplate"):
        meta = parent["spec"]["leaderWorkerTemplate"][each]["metadata"]
        meta["annotations"] = {names.REQUIRED_TOPOLOGY: "rack"}
    leader, worker = workload_of(stored(parent))["spec"]["podSets"]
    assert leader["topologyRequest"] == {"required": "rack"}
    assert worker["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "leaderworkerset.sigs.k8s.io/worker-index",
    }


def test_groups_come_and_go_with_the_replicas():
    parent = stored(leader_worker_set("llm", "lq", 3, 2))
    three = [workload_of(parent, i) for i in range(3)]
    assert planned(parent, *three) == []
    [step, _] = planned(parent, three[0], three[2])
    assert isinstance(step, CreateWorkload) and step.body["metadata"]["annotations"][names.COMPONENT_INDEX] == "1"
    less = stored(leader_worker_set("llm", "lq", 1, 2))
    steps = planned(less, *three)
    assert [step.workload["metadata"]["name"] for step in steps if isinstance(step, DeleteWorkload)] == [
        each["metadata"]["name"] for each in three[1:]
    ]
    for each in three[1:]:
        each["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
    assert planned(less, *three) == []


def test_groups_of_a_rolling_update_beyond_its_replicas_are_queued_too():
    parent = stored(leader_worker_set("llm", "lq", 2, 2))
    parent["status"] = {"replicas": 4, "updatedReplicas": 1}
    assert LWS.size(parent) == 2
    for surge, size in ((1, 4), ("50%", 4), (0, 2), ("0%", 2), (None, 2)):
        parent["spec"]["rolloutStrategy"] = {"rollingUpdateConfiguration": {"maxSurge": surge}}
        assert LWS.size(parent) == size
    parent["spec"]["rolloutStrategy"] = {"rollingUpdateConfiguration": {"maxSurge": 1}}
    parent["status"]["updatedReplicas"] = 2
    assert LWS.size(parent) == 2


def test_more_groups_than_any_cluster_has_are_made_bit_by_bit():
    parent = stored(leader_worker_set("llm", "lq", 1_000_000, 2))
    assert sum(isinstance(step, CreateWorkload) for step in planned(parent)) == 200
    parent["spec"]["replicas"] = 1_000_001
    with pytest.raises(JobError, match=r"spec\.replicas"):
        planned(parent)


@pytest.mark.parametrize(("number", "role"), [("", "leader"), ("1", "worker")])
def test_pods_of_a_group_have_the_role_of_their_pod_set(number: str, role: str):
    parent = stored(leader_worker_set("llm", "lq", 2, 2))
    both = parent["spec"]["leaderWorkerTemplate"]
    notes = {member.LEADER_NAME: "llm-1"} if number else {}
    made = pod("llm-1", parent, template=both["workerTemplate"], annotations=notes, labels={member.SET_NAME: "llm"})
    workloads = [workload_of(parent, i) for i in range(2)]
    assert planned(parent, *workloads, pods=[made]) == [], "it does not say its group yet"
    made["metadata"]["labels"][member.GROUP_INDEX] = "1"
    [step] = planned(parent, *workloads, pods=[made])
    assert isinstance(step, PatchPod)
    annotations = step.body["metadata"]["annotations"]
    assert (annotations[names.ROLE_HASH], annotations[names.POD_GROUP_TOTAL]) == (role, "2")
    assert annotations[names.POD_GROUP] == workloads[1]["metadata"]["name"]
    made["metadata"]["labels"][member.GROUP_INDEX] = "7"
    assert planned(parent, *workloads, pods=[made]) == [], "a group that it does not have"


# --- whose pods they are ----------------------------------------------------------------------------------------------


def put(mirror: Mirror, resource: kube.Resource, obj: Json) -> None:
    mirror.upsert(resource, as_stored(copy.deepcopy(obj)))


def test_a_pod_belongs_to_its_stateful_set_by_uid():
    mirror, index = Mirror(lambda change: None), HeldIndex({"statefulset"})
    parent = stored(stateful_set("db", "lq", 2))
    put(mirror, kube.STATEFUL_SETS, parent)
    families, ref = ServedParents(mirror, index), (kube.STATEFUL_SETS, "default/db")
    index.upsert(pod("db-0", parent))
    index.upsert(pod("thief", parent, uid="another"))
    assert [each.name for each in families.pods_of(ref, parent)] == ["db-0"]
    assert set(index.changed) == {ref}
    index.remove("default/db-0")
    assert families.pods_of(ref, parent) == []


def test_a_pod_belongs_to_its_leader_worker_set_by_the_chain_of_its_owners():
    mirror, index = Mirror(lambda change: None), HeldIndex({"leaderworkerset.x-k8s.io/leaderworkerset"})
    parent = stored(leader_worker_set("llm", "lq", 1, 3))
    both = parent["spec"]["leaderWorkerTemplate"]
    put(mirror, kube.LEADER_WORKER_SETS, parent)

    def owned(name: str, uid: str, kind: str, owner: str, owner_uid: str) -> Json:
        reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": owner_uid, "controller": True}
        meta = {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "resourceVersion": "1",
            "ownerReferences": [reference],
        }
        return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": {}}

    put(mirror, kube.STATEFUL_SETS, owned("llm", "leaders", "LeaderWorkerSet", "llm", "u1"))
    put(mirror, kube.STATEFUL_SETS, owned("llm-0", "workers", "Pod", "llm-0", "uid-llm-0"))
    put(mirror, kube.STATEFUL_SETS, owned("mine", "mine", "Pod", "llm-0-1", "uid-llm-0-1"))
    labels = {member.SET_NAME: "llm", member.GROUP_INDEX: "0"}
    for name, uid, owner in (
        ("llm-0", "leaders", "llm"),
        ("llm-0-1", "workers", "llm-0"),
        ("llm-0-2", "older", "llm-0"),  # of a StatefulSet that is gone
        ("thief", "mine", "mine"),  # made by a worker
    ):
        index.upsert(pod(name, parent, uid=uid, owner=owner, template=both["workerTemplate"], labels=labels))
    families, ref = ServedParents(mirror, index), (kube.LEADER_WORKER_SETS, "default/llm")
    assert [each.name for each in families.pods_of(ref, parent)] == ["llm-0", "llm-0-1"]
    workload = workload_of(parent)
    assert families.demand(workload) == GroupDemand(3)
    grouped = marked(index_pod(parent, labels), workload["metadata"]["name"])
    index.upsert(grouped)
    assert families.demand(workload) == GroupDemand(3, pods=frozenset({"uid-llm-0"}))
    parent["spec"]["startupPolicy"] = "LeaderReady"
    put(mirror, kube.LEADER_WORKER_SETS, {**parent, "metadata": {**parent["metadata"], "resourceVersion": "6"}})
    assert families.demand(workload) == GroupDemand(3, in_stages=True, pods=frozenset({"uid-llm-0"}))


def index_pod(parent: Stored, labels: Json) -> PodObject:
    template = parent["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    made = pod("llm-0", parent, uid="leaders", owner="llm", template=template, labels=labels)
    made["metadata"]["resourceVersion"] = "8"
    return made


# --- the groups of their pods -----------------------------------------------------------------------------------------


def group_steps(
    parent: Stored, workload: WorkloadObject, pods: Sequence[PodObject], demand: GroupDemand | None = None
) -> list[str]:
    """The names of what the plan of the pod group does, with the pods."""
    group = PodGroup.of(workload["metadata"]["name"], [member.read(each) for each in pods])
    seen = GroupView(group, workload, True, any(each.started for each in group.pods), NOW, demand)
    found: list[str] = []
    for step in group_plan.plan(seen, Lookups()):
        kind = type(step).__name__
        found.append(f"{kind} {step.slot}" if isinstance(step, ChangeStatus) else kind)
    return found


def joined(parent: Stored, workload: WorkloadObject, *made: PodObject) -> list[PodObject]:
    """The pods as members of their group, which own its Workload."""
    view_of = view(parent, workload, pods=made)
    steps = [step for step in plan(view_of, Lookups()) if isinstance(step, PatchPod)]
    for each, step in zip(made, steps, strict=True):
        for part in ("labels", "annotations"):
            each["metadata"][part] |= step.body["metadata"][part]
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": each.key, "uid": each.uid} for each in made]
    workload["metadata"]["ownerReferences"] += owners
    return list(made)


def admitted(parent: Stored, index: int = 0) -> WorkloadObject:
    workload = reserved(workload_of(parent, index))
    sets = [{"name": row["name"], "count": row["count"], "flavors": {}} for row in workload["spec"]["podSets"]]
    workload["status"]["admission"]["podSetAssignments"] = sets
    run_changes.missing_pods(False)(workload["status"], NOW)
    return workload


def lws_pods(parent: Stored, count: int) -> list[PodObject]:
    both = parent["spec"]["leaderWorkerTemplate"]
    labels = {member.SET_NAME: "llm", member.GROUP_INDEX: "0"}
    made = [pod("llm-0", parent, owner="llm", template=both["leaderTemplate"], labels=labels)]
    for i in range(1, count):
        notes = {member.LEADER_NAME: "llm-0"}
        name = f"llm-0-{i}"
        made.append(pod(name, parent, owner="llm-0", template=both["workerTemplate"], labels=labels, annotations=notes))
    return made


def test_no_group_of_a_leader_worker_set_starts_with_fewer_pods_than_it_has():
    parent = stored(leader_worker_set("llm", "lq", 1, 3))
    workload = admitted(parent)
    pods = joined(parent, workload, *lws_pods(parent, 2))
    assert "PatchPod" not in group_steps(parent, workload, pods)
    workload = admitted(parent)
    pods = joined(parent, workload, *lws_pods(parent, 3))
    assert group_steps(parent, workload, pods).count("PatchPod") == 3


def test_a_leader_whose_workers_come_later_starts_before_them():
    parent = stored(leader_worker_set("llm", "lq", 1, 3, startup="LeaderReady"))
    workload = admitted(parent)
    pods = joined(parent, workload, *lws_pods(parent, 1))
    assert group_steps(parent, workload, pods, GroupDemand(3, in_stages=True)).count("PatchPod") == 1
    assert "PatchPod" not in group_steps(parent, workload, pods, GroupDemand(3))


def test_a_group_of_an_owner_makes_no_workload_of_its_own():
    parent = stored(stateful_set("db", "lq", 2))
    workload = workload_of(parent)
    pods = joined(parent, workload, pod("db-0", parent))
    group = PodGroup.of(workload["metadata"]["name"], [member.read(each) for each in pods])
    assert group_plan.plan(GroupView(group, None, True, False, NOW), Lookups()) == []
    del pods[0]["spec"]["schedulingGates"]
    pods[0]["spec"]["nodeName"] = "n"
    group = PodGroup.of(workload["metadata"]["name"], [member.read(each) for each in pods])
    first = group_plan.plan(GroupView(group, None, True, True, NOW), Lookups())[0]
    assert isinstance(first, PatchPodStatus), "it runs without quota"


def test_pods_of_a_group_whose_workload_is_about_to_count_others_wait():
    parent = stored(stateful_set("db", "lq", 2))
    workload = admitted(parent)
    pods = joined(parent, workload, pod("db-0", parent))
    assert "PatchPod" in group_steps(parent, workload, pods, GroupDemand(2))
    assert "PatchPod" not in group_steps(parent, workload, pods, GroupDemand(5))


def test_pods_beyond_what_the_workload_counts_wait_and_the_first_ones_start():
    parent = stored(stateful_set("db", "lq", 2))
    workload = admitted(parent)
    pods = joined(parent, workload, *(pod(f"db-{i}", parent) for i in (2, 1, 0)))
    pods[2]["metadata"]["creationTimestamp"] = "2026-11-25T03:00:00Z"
    group = PodGroup.of(workload["metadata"]["name"], [member.read(each) for each in pods])
    steps = group_plan.plan(GroupView(group, workload, True, False, NOW, GroupDemand(2)), Lookups())
    assert sorted(step.pod.name for step in steps if isinstance(step, group_plan.PatchPod)) == ["db-0", "db-1"]
    assert not any(isinstance(step, group_plan.DeletePod) for step in steps)


def test_a_group_all_of_whose_pods_were_deleted_keeps_its_workload():
    parent = stored(stateful_set("db", "lq", 1))
    workload = admitted(parent)
    [made] = joined(parent, workload, pod("db-0", parent))
    made["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"
    assert not {"DeleteWorkload", "PatchWorkload"} & set(group_steps(parent, workload, [made]))


def test_a_group_of_another_size_gives_its_quota_back_when_it_starts_anew_and_queues_with_the_new_size():
    parent = stored(leader_worker_set("llm", "lq", 1, 2))
    workload = reserved(workload_of(parent))
    parent["spec"]["leaderWorkerTemplate"]["size"] = 3
    [note] = planned(parent, workload, active=True)
    assert isinstance(note, Note) and note.reason == "ScaledBeyondQuota"
    assert "now has 3 in each group: the others wait until the group starts anew" in note.message

    def carried_out(workload: WorkloadObject) -> WorkloadObject:
        [step] = planned(parent, workload)
        new = copy.deepcopy(workload)
        if isinstance(step, PatchWorkload):
            new["spec"] |= step.body["spec"]
        else:
            assert isinstance(step, ChangeStatus)
            step.change(new["status"], NOW)
        return new

    member = carried_out(workload)
    assert "admission" not in member["status"]
    assert (condition_of(member, "QuotaReserved") or {})["reason"] == "OnHold"
    resized = carried_out(member)
    assert [row["count"] for row in resized["spec"]["podSets"]] == [1, 2]
    waiting = carried_out(resized)
    assert (condition_of(waiting, "QuotaReserved") or {}).get("reason") != "OnHold"
    assert planned(parent, waiting) == []
