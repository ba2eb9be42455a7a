"""Pod groups as values: roles, pod sets, which pods are kept, when a group has finished."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.plain_pods import a_pod, changed, gang, group_of, read

from gangline.api import names
from gangline.api.role_hash import role_hash
from gangline.jobs.base import JobError, JobOutcome, PodSetInfo
from gangline.jobs.pods import composition
from gangline.jobs.pods import group as groups
from gangline.jobs.pods.group import IncompleteError


def test_the_role_hash_is_kueues():
    """Hashes that Kueue's own tests expect of such pods."""
    assert role_hash({"containers": [{"name": "c", "resources": {"requests": {}, "limits": {}}}]}) == "a9f06f3a"
    plain = {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
    turned = {"containers": [{"resources": {"requests": {"memory": "1Gi", "cpu": "1"}}, "image": "other"}]}
    assert role_hash(plain) == role_hash(turned), "neither the order of resources nor the image makes a role"
    assert role_hash(plain) != role_hash({**plain, "nodeSelector": {"a": "b"}})
    assert role_hash(plain) != role_hash({**plain, "resources": {"requests": {"cpu": "1"}}})


@pytest.mark.parametrize("spec", [{}, {"containers": "x"}, {"containers": [1], "nodeSelector": []}, {"resources": 3}])
def test_any_spec_has_a_role(spec: dict[str, object]):
    assert len(role_hash(spec)) == 8


def test_a_pod_alone_is_a_group_of_one():
    group = group_of(a_pod("p"), alone=True)
    [pod_set] = composition.pod_sets(group)
    assert (pod_set["name"], pod_set["count"]) == ("main", 1)
    workload = composition.new_workload(group, [pod_set], priority=0, priority_class_ref=None)
    assert workload["metadata"]["name"] == composition.alone_name(group.pods[0])
    assert workload["metadata"]["name"].startswith("pod-p-")
    assert workload["metadata"]["labels"] == {names.JOB_UID: "uid-p"}
    [owner] = workload["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", "uid-p", True)


def test_roles_are_pod_sets_in_the_order_of_their_names():
    group = group_of(*gang("g", "1", "2", "1", "1"))
    sets = composition.pod_sets(group)
    assert sorted(row["count"] for row in sets) == [1, 3]
    assert [row["name"] for row in sets] == sorted(row["name"] for row in sets)
    workload = composition.new_workload(group, sets, priority=3, priority_class_ref=None, labels_to_copy=["team"])
    assert workload["metadata"]["name"] == "g"
    assert workload["metadata"]["annotations"] == {names.IS_GROUP_WORKLOAD: "true"}
    assert workload["spec"]["queueName"] == "lq"
    assert len(workload["metadata"]["ownerReferences"]) == 4


def test_too_many_roles():
    with pytest.raises(JobError, match="can't include more than 18 roles"):
        composition.pod_sets(group_of(*gang("g", *(str(cpu) for cpu in range(1, 20)))))


def test_labels_to_copy_must_agree():
    pods = gang("g", "1", "1")
    for pod, team in zip(pods, ("a", "b"), strict=True):
        pod["metadata"]["labels"]["team"] = team
    group = group_of(*pods)
    sets = composition.pod_sets(group)
    with pytest.raises(JobError, match="pods have different label values"):
        composition.new_workload(group, sets, priority=0, priority_class_ref=None, labels_to_copy=["team"])


def test_annotations_to_copy_must_agree():
    pods = gang("g", "1", "1")
    pods[0]["metadata"]["annotations"]["note"] = "a"
    sets = composition.pod_sets(group_of(*pods))

    def made() -> dict[str, Any]:
        group = group_of(*pods)
        return composition.new_workload(group, sets, priority=0, priority_class_ref=None, annotations_to_copy=["note"])

    assert made()["metadata"]["annotations"] == {names.IS_GROUP_WORKLOAD: "true", "note": "a"}
    pods[1]["metadata"]["annotations"]["note"] = "b"
    with pytest.raises(JobError, match="pods have different annotation values"):
        made()


def test_a_group_waits_for_all_of_its_pods():
    pods = gang("g", "1", "1", "1")
    with pytest.raises(IncompleteError, match="'g' group has fewer runnable pods than expected"):
        groups.before_queueing(group_of(*pods[:2]))
    with pytest.raises(IncompleteError):
        groups.before_queueing(group_of(*pods[:2], changed(pods[2], deleted=True)))
    assert len(groups.before_queueing(group_of(*pods)).kept) == 3


def test_fast_admission_does_not_wait():
    pods = gang("g", "1", "1", "1", pod_group_fast_admission="true")
    divided = groups.before_queueing(group_of(pods[0]))
    [pod_set] = composition.pod_sets(group_of(pods[0]))
    assert (len(divided.kept), pod_set["count"]) == (1, 3)
    assert not groups.under_workload(group_of(pods[0]), {pod_set["name"]: 3}).absent


@pytest.mark.parametrize(
    "spoil",
    [
        lambda pod: pod["metadata"]["labels"].update({names.QUEUE_NAME: "other"}),
        lambda pod: pod["metadata"]["annotations"].update({names.POD_GROUP_TOTAL: "3"}),
    ],
)
def test_pods_have_to_agree(spoil: object):
    pods = gang("g", "1", "1")
    spoil(pods[1])  # type: ignore[operator]
    with pytest.raises(JobError, match="has different"):
        groups.before_queueing(group_of(*pods))


def test_the_newest_pods_are_too_many_and_those_that_run_are_kept():
    pods = [a_pod(f"p{age}", group="g", total=2, age=age) for age in range(4)]
    pods[3] = changed(pods[3], node="n", phase="Running")
    divided = groups.before_queueing(group_of(*pods))
    assert {pod.name for pod in divided.kept} == {"p0", "p3"}
    assert {pod.name for pod in divided.excess} == {"p1", "p2"}


def test_a_failed_pod_stays_until_it_is_replaced():
    pods = gang("g", "1", "1")
    failed = changed(pods[0], node="n", phase="Failed")
    role = read(pods[0])[0].role
    alone = groups.under_workload(group_of(failed, pods[1]), {role: 2})
    assert (alone.absent, alone.replaced, len(alone.kept)) == (1, (), 2)
    complete = groups.under_workload(group_of(failed, pods[1], a_pod("new", group="g", total=2, age=9)), {role: 2})
    assert complete.absent == 0
    assert [pod.name for pod in complete.replaced] == ["g-0"]


def test_when_a_group_has_finished():
    pods = gang("g", "1", "1")
    done = [changed(pod, node="n", phase="Succeeded") for pod in pods]
    assert groups.finished(group_of(*done)) == JobOutcome(True, "Pods succeeded: 2/2.")
    failed = changed(pods[1], node="n", phase="Failed")
    assert groups.finished(group_of(done[0], failed)) is None, "the failed pod may be replaced"
    failed["metadata"]["annotations"][names.RETRIABLE_IN_GROUP] = "false"
    assert groups.finished(group_of(done[0], failed)) == JobOutcome(True, "Pods succeeded: 1/2.")
    for pod in done:
        pod["metadata"]["annotations"][names.POD_GROUP_SERVING] = "true"
    assert groups.finished(group_of(*done)) is None, "a group that serves never finishes"
    assert groups.reclaimable(group_of(*done)) == {}


def test_ready_and_reclaimable():
    pods = gang("g", "1", "1")
    ready = changed(pods[0], node="n", phase="Running")
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    succeeded = changed(pods[1], node="n", phase="Succeeded")
    assert groups.ready(group_of(ready, succeeded))
    assert not groups.ready(group_of(ready, pods[1]))
    assert groups.reclaimable(group_of(ready, succeeded)) == {read(pods[0])[0].role: 1}


def test_the_start_of_a_pod():
    pod = a_pod("p")
    pod["spec"] |= {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "x"}]}
    info = PodSetInfo(
        "main", 1, {"pool": "gpu"}, [{"key": "gpu"}], {names.PODSET: "main"}, {names.WORKLOAD_ANNOTATION: "w"}
    )
    body = composition.start(read(pod)[0], info)
    assert body["metadata"]["resourceVersion"] == "1"
    assert body["metadata"]["labels"] == {names.PODSET: "main"}
    assert body["spec"] == {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "x"}, {"key": "gpu"}],
        "schedulingGates": None,
    }
    placed = PodSetInfo("main", 1, scheduling_gates=[{"name": names.TOPOLOGY_GATE}])
    assert composition.start(read(pod)[0], placed)["spec"]["schedulingGates"] == [{"name": names.TOPOLOGY_GATE}]
    sent = PodSetInfo(
        "main", 1, scheduling_gates=[{"name": names.DOMAIN_GATE}]
    )  # it waits for its node at the same gate
    assert composition.start(read(pod)[0], sent)["spec"]["schedulingGates"] == [{"name": names.TOPOLOGY_GATE}]
    with pytest.raises(JobError, match=r'is "b", but the admission needs "c"'):
        composition.start(read(pod)[0], PodSetInfo("main", 1, {"a": "c"}))


_PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])
_PODS = st.lists(
    st.tuples(st.sampled_from(["1", "2"]), _PHASES, st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=9
)


@given(_PODS, st.integers(1, 4), st.integers(0, 4))
def test_never_more_pods_are_kept_than_a_role_has(
    drawn: list[tuple[str, str, bool, bool, bool]], first: int, second: int
):
    pods = [
        changed(a_pod(f"p{i}", group="g", total=4, cpu=cpu, age=i), phase=phase, started=started, deleted=deleted)
        for i, (cpu, phase, started, deleted, _) in enumerate(drawn)
    ]
    for pod, (*_, held) in zip(pods, drawn, strict=True):
        if not held:
            pod["metadata"]["finalizers"] = []
    group = group_of(*pods)
    roles = sorted({pod.role for pod in group.pods})
    counts = dict(zip(roles, (first, second), strict=False))
    divided = groups.under_workload(group, counts)
    parts = [*divided.kept, *divided.excess, *divided.replaced]
    assert sorted(pod.key for pod in parts) == sorted(pod.key for pod in group.pods), "each pod is in one part"
    for role, count in counts.items():
        kept = [pod for pod in divided.kept if pod.role == role]
        assert len(kept) <= max(count, 0)
        active = [pod for pod in kept if pod.counts]
        excess = [pod for pod in divided.excess if pod.role == role]
        assert not excess or len(active) == count, "no pod is too many while one is missing"
        held = [pod.held for pod in active]
        assert not excess or all(held) or not any(pod.held for pod in excess)
    assert divided.absent == sum(
        max(0, count - sum(pod.counts for pod in divided.kept if pod.role == role)) for role, count in counts.items()
    )
