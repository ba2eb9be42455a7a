"""A pod belongs to a gang only if its owners prove it: annotations can be written by anybody."""

from __future__ import annotations

from typing import Any

from tests.builders.objects import T, a_node, a_pod
from tests.objects import PodObject, altered, as_stored

from gangline.api import names
from gangline.api.jobkinds.spark import SPARK_APPLICATION
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod import GATE
from gangline.control.feed.pod_index import PodIndex
from gangline.control.feed.pod_owners import PodOwners
from gangline.control.isolation.intake import measure
from gangline.kube import resources as kube

Json = dict[str, Any]


def owned(obj: Json, kind: str, name: str, *, controller: bool = True) -> Any:
    group = {"JobSet": "jobset.x-k8s.io/v1alpha2", "Job": "batch/v1"}[kind]
    reference = {"apiVersion": group, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": controller}
    obj["metadata"].setdefault("ownerReferences", []).append(reference)
    return as_stored(obj)


def an_object(name: str, namespace: str = "ns", **spec: Any) -> Any:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1"}
    return as_stored({"metadata": meta, "spec": spec, "status": {}})


def a_job(name: str, namespace: str = "ns") -> Any:
    template = {"spec": {"containers": [{"name": "c"}]}}
    return as_stored(
        an_object(name, namespace, template=template, selector={"matchLabels": {"controller-uid": f"uid-{name}"}})
    )


def gang(job: str = "j", workload: str = "w") -> tuple[Mirror, PodOwners]:
    mirror = Mirror(observe=lambda change: None)
    mirror.upsert(kube.JOBS, a_job(job))
    mirror.upsert(kube.WORKLOADS, owned(an_object(workload, podSets=[]), "Job", job))
    return mirror, PodOwners(mirror)


def member(name: str = "p", job: str = "j", **labels: str) -> PodObject:
    return PodObject(owned(a_pod(name, created=T, **{"controller-uid": f"uid-{job}", **labels}), "Job", job))


def test_a_pod_of_the_workloads_job_belongs_to_it() -> None:
    _, owners = gang()
    assert owners.gang_of(member())


def test_a_pod_that_names_no_workload_belongs_to_none() -> None:
    _, owners = gang()
    assert owners.gang_of(a_pod("p", workload="")) is None
    assert owners.claimants("ns/w") == []


def test_an_annotation_alone_proves_nothing() -> None:
    _, owners = gang()
    assert not owners.gang_of(a_pod("p"))
    assert owners.claimants("ns/w") == [a_pod("p")]
    assert not owners.gang_of(a_pod("q", workload="no-such-workload"))


def test_an_owner_that_does_not_exist_or_is_not_the_controller_proves_nothing() -> None:
    _, owners = gang()
    assert not owners.gang_of(member(job="elsewhere"))
    assert not owners.gang_of(owned(a_pod("q", **{"controller-uid": "uid-j"}), "Job", "j", controller=False))


def test_a_pod_that_the_jobs_selector_does_not_select_is_a_strangers() -> None:
    _, owners = gang()
    assert not owners.gang_of(member(**{"controller-uid": "uid-other"}))


def test_another_job_of_the_same_namespace_is_no_proof_for_this_workload() -> None:
    mirror, owners = gang()
    mirror.upsert(kube.JOBS, a_job("mine"))
    assert not owners.gang_of(member(job="mine"))


def test_an_owner_in_another_namespace_is_no_proof() -> None:
    mirror, owners = gang()
    mirror.upsert(kube.JOBS, a_job("far", "other"))
    mirror.upsert(kube.WORKLOADS, owned(an_object("w2", podSets=[]), "Job", "far"))
    pod = owned(a_pod("p", workload="w2", **{"controller-uid": "uid-far"}), "Job", "far")
    assert not owners.gang_of(pod)


def test_the_chain_of_owners_is_followed() -> None:
    mirror = Mirror(observe=lambda change: None)
    owners = PodOwners(mirror)
    pod = member()
    mirror.upsert(kube.JOBS, owned(a_job("j"), "JobSet", "js"))
    mirror.upsert(kube.WORKLOADS, owned(an_object("w", podSets=[]), "JobSet", "js"))
    assert not owners.gang_of(pod)
    mirror.upsert(kube.JOB_SETS, an_object("js", replicatedJobs=[]))
    assert owners.gang_of(pod)


def test_a_pod_that_came_before_its_owners_is_looked_at_again() -> None:
    mirror = Mirror(observe=lambda change: None)
    owners = PodOwners(mirror)
    pod = member()
    assert not owners.gang_of(pod)
    mirror.upsert(kube.JOBS, a_job("j"))
    mirror.upsert(kube.WORKLOADS, owned(an_object("w", podSets=[]), "Job", "j"))
    assert owners.provable() == [pod]
    assert owners.gang_of(pod)
    assert owners.provable() == []


def test_what_was_proven_holds_until_the_pod_is_gone_whatever_is_written_on_it() -> None:
    mirror, owners = gang()
    assert owners.gang_of(member()) == "ns/w"
    mirror.remove(kube.WORKLOADS, "ns/w")
    assert owners.gang_of(member()) == "ns/w"
    for written in ("other", ""):
        pod = member()
        pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = written
        assert owners.gang_of(pod) == "ns/w"
        pods = PodIndex(lambda change: None, lambda workload: {}, owners=owners)
        pods.upsert(pod)
        assert [each.key for each in pods.of("ns/w")] == ["ns/p"]
    assert owners.gang_of(a_pod("p")) == "ns/w", "its job was deleted with --cascade=orphan"
    assert owners.gang_of(a_pod("p", workload="")) == "ns/w", "and it says nothing any more"
    owners.forget("ns/p", gone=True)
    assert owners.gang_of(a_pod("p")) is None


def test_only_the_operator_leaves_a_pod_behind() -> None:
    mirror, owners = gang()
    mirror.upsert(kube.NODES, a_node("n1"))
    assert owners.gang_of(member())
    left = a_pod("p", workload="", due=T)
    left["metadata"]["annotations"][names.LEFT_BEHIND] = "ns/w"
    assert owners.gang_of(left) == "ns/w", "its node is there: the annotation is somebody else's"
    mirror.remove(kube.NODES, "n1")
    assert owners.gang_of(left) is None
    mirror.upsert(kube.NODES, a_node("n1"))
    assert owners.gang_of(left) is None, "its node has returned, and its gang went on without it"


def test_pods_whose_job_was_orphaned_prove_themselves_to_an_operator_that_starts_later() -> None:
    mirror, owners = gang()
    orphan, of_other = a_pod("p"), a_pod("q", workload="other")
    assert owners.gang_of(orphan) is None and owners.gang_of(of_other) is None
    owners.provable()
    mirror.remove(kube.JOBS, "ns/j")
    workload = an_object("w", podSets=[])
    workload["metadata"] |= {"labels": {names.JOB_UID: "uid-j"}, "resourceVersion": "2"}
    mirror.upsert(kube.WORKLOADS, workload)
    assert owners.provable() == [orphan]
    assert owners.gang_of(orphan) == "ns/w"
    assert owners.gang_of(of_other) is None


def test_a_workload_that_never_had_a_job_has_claimants_only() -> None:
    mirror, owners = gang()
    mirror.upsert(kube.WORKLOADS, an_object("own", podSets=[]))
    assert owners.gang_of(a_pod("p", workload="own")) is None


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    _, owners = gang()
    owners.gang_of(member("a"))
    owners.gang_of(a_pod("b"))
    owners.forget("ns/a", gone=True)
    owners.forget("ns/b", gone=True)
    assert not owners._proven and not owners._unproven and not owners._claims and not owners._uids


def test_a_stranger_is_in_no_gang_and_keeps_its_gates() -> None:
    _, owners = gang()
    pods = PodIndex(lambda change: None, lambda workload: {}, owners=owners)
    pod = a_pod("p", "")
    pod["spec"]["schedulingGates"] = [dict(GATE)]
    pods.upsert(pod)
    assert pods.of("ns/w") == []
    assert pods.at_node_gate("") == []
    pods.upsert(altered(pod, metadata={**pod["metadata"], "annotations": {}}))
    assert [each.workload for each in pods.at_node_gate("")] == [""], "it claims nothing, and nobody keeps it"


def of_spark(name: str, owner: str, kind: str = "Pod", **labels: str) -> PodObject:
    made = a_pod(name, created=T, **{"sparkoperator.k8s.io/app-name": "app", **labels})
    api_version = "v1" if kind == "Pod" else "sparkoperator.k8s.io/v1beta2"
    reference = {"apiVersion": api_version, "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return PodObject(made)


def test_executors_of_spark_belong_to_the_gang_of_their_driver_whichever_comes_first() -> None:
    mirror = Mirror(observe=lambda change: None)
    app = an_object("app")
    mirror.upsert(
        SPARK_APPLICATION.resource, {**app, "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}
    )
    workload = an_object("w", podSets=[])
    reference = {"kind": "SparkApplication", "name": "app", "uid": "uid-app", "controller": True}
    workload["metadata"]["ownerReferences"] = [reference]
    mirror.upsert(kube.WORKLOADS, workload)
    owners = PodOwners(mirror)
    pods = PodIndex(observe=lambda change: None, counts=lambda workload: {}, owners=owners)
    executor, driver = of_spark("executor", "driver"), of_spark("driver", "app", "SparkApplication")
    for pod in (executor, of_spark("stranger", "driver", **{"sparkoperator.k8s.io/app-name": "other"}), driver):
        pods.upsert(pod)
    for pod in owners.provable():
        pods.upsert(pod)
    assert sorted(pod.name for pod in pods.of("ns/w")) == ["driver", "executor"]
    pods.upsert(of_spark("late", "driver"))
    assert sorted(pod.name for pod in pods.of("ns/w")) == ["driver", "executor", "late"]
    assert not PodOwners(mirror).gang_of(executor), "without its driver it proves nothing"


def test_pods_that_only_claim_to_belong_to_a_gang_are_not_looked_at_for_each_of_its_pods() -> None:
    """Only those that the proven pod controls: who forges many pods causes no work whenever a pod of the job comes."""
    _, owners = gang()
    for number in range(5):
        owners.gang_of(a_pod(f"liar{number}"))
    child = a_pod("child")
    child["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "p1", "uid": "uid-p1", "controller": True}]
    owners.gang_of(child)
    owners.provable()
    assert owners.gang_of(member("p0"))
    assert owners.provable() == []
    assert owners.gang_of(member("p1"))
    assert owners.provable() == [child]
    for name in ("child", *(f"liar{number}" for number in range(5))):
        owners.forget(f"ns/{name}", gone=True)
    assert (owners._controlled, owners._claims) == ({}, {})


def test_pods_that_claim_a_workload_take_no_more_memory_than_their_namespace_has() -> None:
    """Those that run are kept beyond it, as all that uses resources; an error names the limit; what has gone makes room."""
    mirror, owners = gang()
    complaints: list[str] = []
    mirror.complain = lambda obj, error: complaints.append(f"{obj['metadata']['name']}: {error}")
    stored, weight = mirror.intake.stored["ns"], measure(kube.PODS, a_pod("liar0", "")).weight
    mirror.intake.most = stored + 10 * weight
    for number in range(30):
        owners.gang_of(a_pod(f"liar{number}", ""))
    assert 9 <= len(owners.claimants("ns/w")) <= 10
    assert mirror.intake.stored["ns"] <= mirror.intake.most
    assert complaints[-1].startswith("liar29: the namespace ns stores more than 0 MiB of pods")
    owners.gang_of(a_pod("bound"))
    assert a_pod("bound") in owners.claimants("ns/w")
    for pod in owners.claimants("ns/w"):
        owners.forget(f"ns/{pod['metadata']['name']}", gone=True)
    assert mirror.intake.stored["ns"] == stored
    assert not owners.gang_of(a_pod("liar29", ""))
    assert owners.claimants("ns/w") == [a_pod("liar29", "")]


def test_the_json_of_gated_pods_takes_no_more_memory_than_their_namespace_has() -> None:
    """A pod beyond it keeps its gate until it changes; what is bound or gone makes room."""
    mirror, owners = gang()
    complaints: list[str] = []
    mirror.complain = lambda obj, error: complaints.append(obj["metadata"]["name"])
    pods = PodIndex(lambda change: None, mirror.pod_counts, owners=owners)
    before = mirror.intake.stored["ns"]

    def gated(name: str) -> PodObject:
        pod = member(name)
        pod["spec"] = {"schedulingGates": [dict(GATE)]}
        return PodObject(pod)

    pods.upsert(gated("p00"))
    weight = mirror.intake.stored["ns"] - before
    mirror.intake.most = before + 10 * weight
    for number in range(1, 30):
        pods.upsert(gated(f"p{number:02}"))
    assert len(pods.at_node_gate("ns/w")) == 10
    assert mirror.intake.stored["ns"] == mirror.intake.most
    assert (complaints[0], complaints[-1], len(pods.of("ns/w"))) == ("p10", "p29", 30)
    pods.remove("ns/p00")
    pods.upsert(member("p01"))  # it runs
    pods.upsert(gated("p28"))
    pods.upsert(gated("p29"))
    assert {"p28", "p29"} < {pod.name for pod in pods.at_node_gate("ns/w")}
    for number in range(30):
        pods.remove(f"ns/p{number:02}")
    assert mirror.intake.stored["ns"] == before
