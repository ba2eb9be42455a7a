"""`gangline admin import`: what becomes of plain pods, pod groups, Deployments, StatefulSets and LeaderWorkerSets that run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.cluster.harness import cluster_queue, flavor, local_queue
from tests.cluster.queued_pods import pod as a_pod
from tests.cluster.serving import deployment, leader_worker_set, stateful_set
from tests.objects import JobObject, PodObject, Stored, altered, as_stored

from gangline.api import names
from gangline.api.admission import AdmissionFacts
from gangline.api.admission.of_jobs.serving import DEPLOYMENT_RULES, STATEFUL_SET_RULES
from gangline.api.jobkinds import own
from gangline.api.read import configuration
from gangline.console.importing import pod_planning, serving_planning
from gangline.console.importing.adoptions import AdoptablePods, Adoption, Parent, RollOut, Skipped
from gangline.console.importing.assigning import GATE
from gangline.console.importing.cluster_facts import ImportFacts
from gangline.console.importing.mapping import from_file, from_pairs
from gangline.jobs.pods.member import REVISION
from gangline.kube import resources as kube

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
RULES = from_pairs("team", {"vision": "lq"})
FRAMEWORKS = ["batch/job", "pod", *(each.framework for each in own.SERVING_KINDS)]
MANAGED = configuration.load(
    {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": FRAMEWORKS},
    }
).jobs
NOT_LISTED = configuration.load(None).jobs
QUEUES: dict[Any, dict[str, Stored]] = {
    kube.CLUSTER_QUEUES: {"vision": Stored(cluster_queue("vision", 8, flavors=("old", "new")))},
    kube.LOCAL_QUEUES: {"default/lq": as_stored(local_queue("lq", "vision", "default"))},
    kube.RESOURCE_FLAVORS: {
        "old": Stored(flavor("old", labels={"card": "v100"})),
        "new": Stored(flavor("new", labels={"card": "h100"})),
    },
}
FACTS = ImportFacts(QUEUES, {"n1": {"card": "h100"}, "n2": {"card": "v100"}})


def running(name: str, *, node: str = "n1", owner: Json | None = None, **given: Any) -> PodObject:
    """A pod that was created without a queue, and runs."""
    found = a_pod(name, "", **given)
    for container in found["spec"]["containers"]:  # the API server fills them in
        container["resources"]["requests"] = container["resources"]["limits"]
    meta = found["metadata"]
    del meta["labels"][names.QUEUE_NAME]
    meta |= {"uid": f"uid-{name}", "resourceVersion": "7", "creationTimestamp": "2026-11-26T00:00:00Z"}
    meta["labels"]["team"] = "vision"
    if owner is not None:
        meta["ownerReferences"] = [{"apiVersion": "apps/v1", "controller": True, **owner}]
    return PodObject({**found, "spec": {**found["spec"], "nodeName": node}, "status": {"phase": "Running"}})


def planned(*pods: PodObject, facts: ImportFacts = FACTS, managed: configuration.ManagedJobs = MANAGED) -> list[Any]:
    return pod_planning.plan(pods, RULES, facts, {"by": "import"}, managed)


def fault(*pods: PodObject, managed: configuration.ManagedJobs = MANAGED) -> str:
    [found] = planned(*pods, managed=managed)
    assert isinstance(found, Skipped)
    assert found.fault
    return found.reason


# --- plain pods -------------------------------------------------------------------------------------------------------


def test_a_pod_gets_the_workload_that_it_would_have_had():
    [found] = planned(running("alone", gpus=3))
    assert isinstance(found, Adoption)
    assert found.job.called == "pod/default/alone"
    [row] = found.admission.pod_sets
    assert (row.name, row.count, row.flavors, row.usage) == ("main", 1, {GPU: "new"}, {GPU: 3})
    meta, spec = found.workload["metadata"], found.workload["spec"]
    assert meta["name"].startswith("pod-alone-")
    assert meta["annotations"][names.ADMISSION_GATED_BY] == GATE
    assert meta["labels"] == {names.JOB_UID: "uid-alone", "by": "import"}
    [owner] = meta["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("uid-alone", False)
    assert spec["queueName"] == "lq"
    assert "nodeName" not in spec["podSets"][0]["template"]["spec"], "it may start on another node some day"


def test_pods_of_which_no_rule_says_anything_and_pods_of_others_are_not_named():
    other = running("other")
    other["metadata"]["labels"]["team"] = "speech"
    of_job = running("of-job", owner={"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"})
    of_node = running("of-node", owner={"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"})
    of_service = running("of-service", owner={"kind": "ReplicaSet", "name": "rs", "uid": "rs"})
    facts = replace(FACTS, of_others=frozenset({"uid-of-service"}))
    assert planned(other, of_job, of_node, of_service, facts=facts) == []
    [alone] = planned(of_service)
    assert isinstance(alone, Adoption), "a ReplicaSet of its own is no queued kind"


def test_pods_that_need_nothing_are_left_alone():
    done, gone, queued = running("done"), running("gone"), running("queued")
    done["status"]["phase"] = "Succeeded"
    gone["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"
    queued["metadata"]["labels"] |= {names.QUEUE_NAME: "lq", names.MANAGED: "true"}
    reasons = [(found.reason, found.fault) for found in planned(done, gone, queued)]
    assert reasons == [
        ("it has finished", False),
        ("it is being deleted", False),
        ("it is in its queue already", False),
    ]
    skipping = from_file("- match: {labels: {team: vision}}\n  skip: true")
    [left] = pod_planning.plan([running("x")], skipping, FACTS, {}, MANAGED)
    assert left == Skipped(AdoptablePods((running("x"),)), "a rule leaves it alone", fault=False)


def test_what_is_wrong_with_a_pod_is_named():
    named = running("named")
    named["metadata"]["labels"][names.QUEUE_NAME] = "other"
    assert fault(named) == 'it names queue "other", and the rules say "lq"'
    assert "lists pod: give the operator's configuration" in fault(running("x"), managed=NOT_LISTED)
    classed = running("classed")
    classed["spec"]["priorityClassName"] = "high"
    assert 'PriorityClass "high" not found' in fault(classed)


# --- groups -----------------------------------------------------------------------------------------------------------


def gang(total: int = 3, **given: Any) -> list[PodObject]:
    """Two pods of one GPU on new nodes, and one of two on an old one."""
    sizes = ((1, "n1"), (1, "n1"), (2, "n2"))
    return [
        running(f"g-{i}", group="g", total=total, gpus=gpus, node=node, **given) for i, (gpus, node) in enumerate(sizes)
    ]


def test_a_group_is_adopted_as_a_whole_with_the_flavor_of_each_role():
    [found] = planned(*gang())
    assert isinstance(found, Adoption)
    assert found.job.called == "podgroup/default/g"
    rows = found.admission.pod_sets
    assert sorted((row.count, row.flavors[GPU], row.usage[GPU]) for row in rows) == [(1, "old", 2), (2, "new", 2)]
    meta = found.workload["metadata"]
    assert meta["name"] == "g"
    assert {row["uid"] for row in meta["ownerReferences"]} == {"uid-g-0", "uid-g-1", "uid-g-2"}
    assert names.IS_GROUP_WORKLOAD not in meta["annotations"], "the operator would delete it, having none of its pods"


def test_a_group_is_adopted_only_while_all_its_pods_are_there():
    assert fault(*gang(total=4)) == "3 of its 4 pods are there: it can be adopted while all are"
    assert fault(*gang(total=2)) == "3 of its 2 pods are there: it can be adopted while all are"
    leaving = gang()
    leaving[0]["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"
    assert fault(*leaving) == "1 of its pods are being deleted"
    mixed = gang()
    del mixed[0]["metadata"]["labels"]["team"]
    assert fault(*mixed) == "different rules match its pods"
    unclear = gang()
    for pod in unclear:
        pod["metadata"]["annotations"][names.POD_GROUP_TOTAL] = "many"
    assert "is not a whole number" in fault(*unclear)


def test_a_group_that_was_handed_over_in_part_is_adopted_again():
    pods = gang()
    pods[0]["metadata"]["labels"] |= {names.QUEUE_NAME: "lq", names.MANAGED: "true"}
    [found] = planned(*pods)
    assert isinstance(found, Adoption)
    assert len(found.job.uids) == 3


# --- what serves ------------------------------------------------------------------------------------------------------


def serves(obj: Json, **status: Any) -> JobObject:
    obj["metadata"] |= {"uid": "parent", "generation": 3, "labels": {"team": "vision"}}
    return JobObject({**obj, "status": {"observedGeneration": 3, **status}})


def of(obj: JobObject, pods: list[PodObject], managed: configuration.ManagedJobs = MANAGED) -> list[Any]:
    return serving_planning.plan(Parent(obj), RULES, replace(FACTS, pods={"parent": pods}), {}, managed)


def said(obj: JobObject, pods: list[PodObject], managed: configuration.ManagedJobs = MANAGED) -> tuple[str, bool]:
    [found] = of(obj, pods, managed)
    assert isinstance(found, Skipped)
    return found.reason, found.fault


WEB = serves(deployment("web", "", 2), updatedReplicas=2)
DB = serves(stateful_set("db", "", 2), updateRevision="db-1")


def replicas(kind: str, *, revision: str = "db-1") -> list[PodObject]:
    owner = {"kind": kind, "name": "x", "uid": "maker"}
    found = [running(f"x-{i}", owner=owner) for i in range(2)]
    for pod in found:
        pod["metadata"]["labels"][REVISION] = revision
    return found


def test_each_pod_of_a_deployment_gets_a_workload():
    found = of(WEB, replicas("ReplicaSet"))
    assert [each.job.called for each in found] == ["pod/default/x-0", "pod/default/x-1"]
    assert {each.job.parent["metadata"]["name"] for each in found} == {"web"}


def test_a_stateful_set_gets_one_workload():
    [found] = of(DB, replicas("StatefulSet"))
    assert found.workload["metadata"]["name"].startswith("statefulset-db-")
    assert found.workload["metadata"]["annotations"][names.IS_GROUP_WORKLOAD] == "true"
    assert (found.workload["spec"]["queueName"], found.admission.pod_sets[0].usage) == ("lq", {GPU: 2})
    assert "lq" not in DB["metadata"]["labels"].values(), "the object itself is not changed"


@pytest.mark.parametrize(("obj", "kind"), [(WEB, "ReplicaSet"), (DB, "StatefulSet")], ids=["Deployment", "StatefulSet"])
def test_what_serves_is_adopted_only_while_its_controller_is_at_rest(obj: JobObject, kind: str):
    pods = replicas(kind)
    assert said(altered(obj, status={**obj["status"], "observedGeneration": 2}), pods)[0].startswith(
        "it was changed just"
    )
    assert said(obj, pods[:1])[0].startswith("it has 1 pods, and 2 replicas")
    rolling = replicas(kind, revision="db-0")
    rolling[1]["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert said(obj, rolling)[0].startswith("it is rolling out")
    assert said(obj, []) == ("it has no pods: it queues once it names a queue", False)
    assert "integrations.frameworks lists" in said(obj, pods, NOT_LISTED)[0]
    other = altered(obj, metadata={**obj["metadata"], "labels": {"team": "vision", names.QUEUE_NAME: "other"}})
    assert said(other, pods) == ('it names queue "other", and the rules say "lq"', True)


@pytest.mark.parametrize(("obj", "kind"), [(WEB, "ReplicaSet"), (DB, "StatefulSet")], ids=["Deployment", "StatefulSet"])
def test_an_adoption_that_was_interrupted_is_planned_again_until_it_is_complete(obj: JobObject, kind: str):
    labels = {"team": "vision", names.QUEUE_NAME: "lq"}
    meta = {**obj["metadata"], "labels": labels}
    halfway = altered(obj, metadata={**meta, "annotations": {names.IMPORTING: "{}"}}, status={})
    assert all(isinstance(each, Adoption) for each in of(halfway, replicas(kind)))
    managed = replicas(kind)
    for pod in managed:
        pod["metadata"]["labels"] |= {names.QUEUE_NAME: "lq", names.MANAGED: "true"}
    assert said(altered(obj, metadata=meta), managed) == ("it is in its queue already", False)


def test_a_leader_worker_set_says_why_it_is_not_adopted():
    obj = serves(leader_worker_set("llm", "", 1, 2))
    assert said(obj, [])[0].startswith("its controller starts every group anew")


def test_a_leader_worker_set_gets_its_queue_by_a_roll_out_that_its_user_allows():
    def rolled(obj: JobObject, managed: configuration.ManagedJobs = MANAGED) -> Any:
        [found] = serving_planning.plan(Parent(obj), RULES, FACTS, {}, managed, roll_out=True)
        return found

    obj = serves(leader_worker_set("llm", "", 1, 2))
    assert rolled(obj) == RollOut(Parent(obj), "lq")
    meta = {**obj["metadata"], "labels": {**obj["metadata"]["labels"], names.QUEUE_NAME: "lq"}}
    assert rolled(altered(obj, metadata=meta)).reason == "it is in its queue already"
    halfway = altered(obj, metadata={**meta, "annotations": {names.IMPORTING: "{}"}})
    assert rolled(halfway) == RollOut(Parent(halfway), "lq")
    assert rolled(altered(obj, spec={**obj["spec"], "replicas": 0})).reason.startswith("it has no pods")
    unlisted = replace(MANAGED, unlisted=MANAGED.unlisted | {("leaderworkerset.x-k8s.io", "LeaderWorkerSet")})
    assert "--config" in rolled(obj, unlisted).reason


@pytest.mark.parametrize(
    ("rules", "obj"), [(DEPLOYMENT_RULES, WEB), (STATEFUL_SET_RULES, DB)], ids=["Deployment", "StatefulSet"]
)
def test_what_serves_gets_a_queue_while_it_runs_only_from_an_import(rules: Any, obj: Json):
    old = altered(obj, status={"readyReplicas": 2})
    labels = {**obj["metadata"]["labels"], names.QUEUE_NAME: "lq"}
    new = altered(old, metadata={**obj["metadata"], "labels": labels})
    assert [error.path for error in rules.validate(new, old, AdmissionFacts())] == [
        "metadata.labels[kueue.x-k8s.io/queue-name]"
    ]
    importing = altered(new, metadata={**new["metadata"], "annotations": {names.IMPORTING: "{}"}})
    assert rules.validate(importing, old, AdmissionFacts()) == []
    moved = altered(importing, metadata={**importing["metadata"], "labels": {**labels, names.QUEUE_NAME: "other"}})
    assert rules.validate(moved, importing, AdmissionFacts()), "its queue stays"
