"""What the webhooks make of pods, and what they refuse."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gangline.api import admission, names
from gangline.api.admission import AdmissionFacts

Json = dict[str, Any]
GATES = [{"name": names.ADMISSION_GATE}, {"name": names.TOPOLOGY_GATE}]


def pod(*, labels: Json | None = None, annotations: Json | None = None, owner: str = "") -> Json:
    meta: Json = {"name": "p", "namespace": "ns", "labels": labels or {}, "annotations": annotations or {}}
    if owner:
        version, _, kind = owner.rpartition("/")
        meta["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": True}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "c"}]}}


def group(name: str = "g", total: str = "2", **annotations: str) -> Json:
    notes = {names.POD_GROUP_TOTAL: total, **{f"{names.GROUP}/{key}": value for key, value in annotations.items()}}
    return pod(labels={names.QUEUE_NAME: "lq", names.POD_GROUP: name}, annotations=notes)


def is_held(made: Json) -> bool:
    return made["spec"].get("schedulingGates") == GATES


def test_a_pod_that_names_a_queue_waits():
    made = admission.default(pod(labels={names.QUEUE_NAME: "lq"}), None, AdmissionFacts()).obj
    assert is_held(made)
    assert made["metadata"]["finalizers"] == [names.MANAGED]
    assert made["metadata"]["labels"][names.MANAGED] == "true"
    assert admission.default(made, None, AdmissionFacts()).obj == made, "idempotent"
    assert not is_held(admission.default(pod(labels={names.QUEUE_NAME: "lq"}), pod(), AdmissionFacts()).obj), (
        "at creation only"
    )


def test_a_pod_without_a_queue_gets_that_of_its_namespace_or_is_left_alone():
    assert admission.default(pod(), None, AdmissionFacts()).obj == pod()
    made = admission.default(pod(), None, AdmissionFacts(local_queue_exists=lambda namespace, name: True)).obj
    assert made["metadata"]["labels"][names.QUEUE_NAME] == names.LOCAL_QUEUE_DEFAULT
    assert is_held(made)
    made = admission.default(pod(), None, AdmissionFacts(without_queue=True)).obj
    assert is_held(made)
    unmanaged = AdmissionFacts(namespace_is_managed=lambda namespace, queued: False)
    assert not is_held(admission.default(pod(labels={names.QUEUE_NAME: "lq"}), None, unmanaged).obj)


@pytest.mark.parametrize(("queued", "held"), [(True, False), (False, True)])
def test_a_pod_of_a_queued_job_waits_with_its_job(queued: bool, held: bool):
    made = pod(labels={names.QUEUE_NAME: "lq"}, owner="batch/v1/Job")
    context = AdmissionFacts(owner_is_queued=lambda namespace, reference, child: queued)
    assert is_held(admission.default(made, None, context).obj) is held


def test_a_pod_of_a_replica_set_waits_itself():
    context = AdmissionFacts(owner_is_queued=lambda namespace, reference, child: True)
    made = pod(labels={names.QUEUE_NAME: "lq"}, owner="apps/v1/ReplicaSet")
    assert is_held(admission.default(made, None, context).obj)


def test_a_pod_that_its_parent_holds_keeps_its_own_end():
    made = admission.default(pod(annotations={names.SUSPENDED_BY_PARENT: "statefulset"}), None, AdmissionFacts()).obj
    assert is_held(made)
    assert "finalizers" not in made["metadata"]
    assert names.MANAGED not in made["metadata"]["labels"]


def test_the_index_of_a_pod_comes_from_the_label_that_it_names():
    given = group(**{"pod-group-pod-index-label": "rank"})
    given["metadata"]["labels"]["rank"] = "1"
    assert admission.default(given, None, AdmissionFacts()).obj["metadata"]["labels"][names.POD_GROUP_INDEX] == "1"


def errors(made: Json, old: Json | None = None) -> str:
    return "; ".join(str(error) for error in admission.validate(made, old, AdmissionFacts()))


def test_a_group_is_valid():
    assert not errors(group())
    assert not errors(admission.default(group(), None, AdmissionFacts()).obj)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pod(annotations={names.POD_GROUP_TOTAL: "2"}), "metadata.labels[kueue.x-k8s.io/pod-group-name]: Required"),
        (pod(labels={names.POD_GROUP: "g"}), "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Required"),
        (group(total="many"), "kueue.x-k8s.io/pod-group-total-count]: Invalid value"),
        (group(total="0"), "group total count should be greater than zero"),
        (group(total="1000000"), "should be at most 100000"),
        (group(name="Not_A_Name"), "kueue.x-k8s.io/pod-group-name]: Invalid value"),
        (pod(labels={names.MANAGED: "maybe"}), "managed label value can only be 'true'"),
        (
            pod(labels={names.POD_GROUP: "g", names.PREBUILT_WORKLOAD: "w"}, annotations={names.POD_GROUP_TOTAL: "1"}),
            'prebuilt-workload-name]: Invalid value: "w": prebuilt workload and pod group should be equal',
        ),
        (
            pod(annotations={names.POD_GROUP: "g", names.PREBUILT_WORKLOAD: "w", names.POD_GROUP_TOTAL: "1"}),
            "metadata.annotations[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value",
        ),
        (
            pod(labels={names.POD_GROUP: "g", names.POD_GROUP_INDEX: "2"}, annotations={names.POD_GROUP_TOTAL: "2"}),
            "should be from 0 to 1",
        ),
    ],
)
def test_what_a_pod_may_not_say(given: Json, message: str):
    assert message in errors(given)


def test_what_may_not_change():
    held = admission.default(group(), None, AdmissionFacts()).obj
    moved = copy.deepcopy(held)
    moved["metadata"]["labels"][names.POD_GROUP] = "other"
    assert "field is immutable" in errors(moved, held)
    final = copy.deepcopy(held)
    final["metadata"]["annotations"][names.RETRIABLE_IN_GROUP] = "false"
    assert not errors(final, held)
    assert "unretriable pod group can't be converted to retriable" in errors(held, final)
    requeued = copy.deepcopy(held)
    requeued["metadata"]["labels"][names.QUEUE_NAME] = "lq2"
    assert not errors(requeued, held), "a pod that waits may change its queue"
    started = copy.deepcopy(requeued)
    del started["spec"]["schedulingGates"]
    assert "field is immutable" in errors(started, held)


def test_warnings():
    assert not admission.warnings(group())
    owned = pod(labels={names.MANAGED: "true"}, owner="batch/v1/Job")
    assert "pod owner is managed by kueue" in admission.warnings(owned)[0]
    assert "pod-group-fast-admission is ignored" in admission.warnings(group(**{"pod-group-fast-admission": "yes"}))[0]
