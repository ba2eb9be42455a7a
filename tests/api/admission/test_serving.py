"""What the webhooks make of Deployments, StatefulSets and LeaderWorkerSets, and what they refuse."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.cluster.serving import deployment, leader_worker_set, stateful_set

from gangline.api import admission, names
from gangline.api.admission import AdmissionFacts
from gangline.api.admission.of_jobs.jobs import ELASTIC
from gangline.api.jobkinds.declaration import at, put

Json = dict[str, Any]
WORKER, LEADER = (("spec", "leaderWorkerTemplate", f"{each}Template") for each in ("worker", "leader"))
ALL = (deployment("d", "lq", 1), stateful_set("s", "lq", 1), leader_worker_set("l", "lq", 1, 2))
LWS = "leaderworkerset.x-k8s.io/leaderworkerset"


def made(obj: Json, old: Json | None = None, **context: Any) -> Json:
    return admission.default(obj, old, AdmissionFacts(**context)).obj


def notes(obj: Json, *path: str) -> Json:
    return at(obj, (*(path or ("spec", "template")), "metadata", "annotations")) or {}


def errors(obj: Json, old: Json | None = None, **context: Any) -> list[str]:
    return [str(error) for error in admission.validate(obj, old, AdmissionFacts(**context))]


def changed(obj: Json, *path: str | int, to: Any) -> Json:
    new = copy.deepcopy(obj)
    place = at(new, path[:-1])
    if isinstance(place, list) or not isinstance(path[-1], str):
        place[path[-1]] = to
    else:
        put(new, path, to) if not any(isinstance(part, int) for part in path) else place.__setitem__(path[-1], to)
    return new


def test_the_template_of_a_deployment_is_marked():
    found = made(deployment("d", "lq", 2, priority="high"))
    assert found["spec"]["template"]["metadata"] == {
        "labels": {"app": "d", names.MANAGED: "true", names.QUEUE_NAME: "lq", names.PRIORITY_CLASS: "high"},
        "annotations": {names.SUSPENDED_BY_PARENT: "deployment"},
    }


def test_the_template_of_a_stateful_set_is_marked():
    found = made(stateful_set("s", "lq", 2, priority="high"))
    assert found["spec"]["template"]["metadata"] == {
        "labels": {"app": "s"},
        "annotations": {names.SUSPENDED_BY_PARENT: "statefulset"},
    }


def test_both_templates_of_a_leader_worker_set_are_marked():
    found = made(leader_worker_set("l", "lq", 2, 2, priority="high"))
    marks = {names.SUSPENDED_BY_PARENT: LWS, names.POD_GROUP_SERVING: "true"}
    assert notes(found, *LEADER) == marks
    assert notes(found, *WORKER) == {**marks, "kueue.x-k8s.io/pod-index-offset": "1"}
    for path in (LEADER, WORKER):
        labels = at(found, (*path, "metadata", "labels"))
        assert labels == {"app": "l", names.QUEUE_NAME: "lq", names.PRIORITY_CLASS: "high"}
    alone = leader_worker_set("l", "lq", 2, 2)
    del alone["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    assert notes(made(alone), *WORKER) == marks
    grouped = changed(
        leader_worker_set("l", "lq", 2, 2), *WORKER, "metadata", "annotations", to={names.PODSET_GROUP: "g"}
    )
    assert "kueue.x-k8s.io/pod-index-offset" not in notes(made(grouped), *WORKER)


@pytest.mark.parametrize("obj", ALL, ids=lambda obj: obj["kind"])
def test_a_mark_is_made_once_and_again_after_it_was_replaced(obj: Json):
    first = made(obj)
    assert made(first, first) == first
    assert made(obj, first) == first


def test_who_names_no_queue_is_left_alone_unless_all_are_managed():
    plain = deployment("d", "", 1)
    assert made(plain) == plain
    everything = made(plain, without_queue=True)
    assert notes(everything) == {names.SUSPENDED_BY_PARENT: "deployment"}
    assert names.QUEUE_NAME not in everything["spec"]["template"]["metadata"]["labels"]
    assert made(plain, everything, without_queue=True) == everything, "a replaced template is marked again"
    has_default: Json = {"local_queue_exists": lambda namespace, name: True}
    assert made(plain, **has_default)["metadata"]["labels"] == {names.QUEUE_NAME: names.LOCAL_QUEUE_DEFAULT}
    assert made(plain, plain, **has_default) == plain, "what serves already goes on"
    unmanaged: Json = {"namespace_is_managed": lambda namespace, queued: False}
    assert made(deployment("d", "lq", 1), **unmanaged) == deployment("d", "lq", 1)


def test_a_stateful_set_of_a_queued_leader_worker_set_is_not_queued_itself():
    leaders = changed(
        stateful_set("s", "lq", 2), "spec", "template", "metadata", "annotations", to={names.SUSPENDED_BY_PARENT: LWS}
    )
    assert made(leaders) == leaders
    assert errors(changed(leaders, "spec", "replicas", to=5), leaders) == []


@pytest.mark.parametrize("obj", ALL, ids=lambda obj: obj["kind"])
def test_the_queue_changes_only_while_nothing_is_ready(obj: Json):
    moved = changed(obj, "metadata", "labels", to={names.QUEUE_NAME: "other"})
    assert errors(moved, obj) == []
    ready = changed(obj, "status", to={"readyReplicas": 1})
    assert errors(moved, ready) == [
        'metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "other": field is immutable'
    ]
    left = changed(obj, "metadata", "labels", to={})
    assert errors(left, obj) == ['metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "": field is immutable']
    given = changed(ready, "metadata", "labels", names.PRIORITY_CLASS, to="high")
    [error] = errors(given, ready)
    assert error.endswith('"high": WorkloadPriorityClass cannot be added to a non-suspended workload')
    [error] = errors(obj, given)
    assert error.endswith("WorkloadPriorityClass cannot be removed from a workload")


@pytest.mark.parametrize("obj", ALL, ids=lambda obj: obj["kind"])
def test_what_no_object_of_these_kinds_may_say(obj: Json):
    bad = changed(obj, "metadata", "labels", to={names.QUEUE_NAME: "Lq!", names.MAX_EXEC_TIME: "soon"})
    found = errors(bad)
    assert any(error.startswith("metadata.labels[kueue.x-k8s.io/queue-name]: ") for error in found)
    assert any(error.startswith("metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: ") for error in found)
    elastic = changed(obj, "metadata", "annotations", to={ELASTIC: "true"})
    [error] = errors(elastic)
    assert error == (
        "metadata.annotations[kueue.x-k8s.io/elastic-job]: Forbidden: elastic job is not supported for "
        f'"{obj["apiVersion"]}, Kind={obj["kind"]}"'
    )
    gated = changed(obj, "metadata", "annotations", to={names.ADMISSION_GATED_BY: "a.example/b"})
    [error] = errors(gated, obj)
    assert error.endswith("cannot add admission gate after creation")


def test_replicas_of_a_stateful_set_change_to_zero_and_from_zero():
    obj = stateful_set("s", "lq", 3)
    grown, none = (changed(obj, "spec", "replicas", to=count) for count in (5, 0))
    assert errors(grown, obj) == ["spec.replicas: Invalid value: 5: field is immutable"]
    assert errors(none, obj) == errors(grown, none) == []
    ending = changed(grown, "status", to={"replicas": 1})
    assert errors(ending, none) == ["spec.replicas: Forbidden: scaling down is still in progress"]
    free = changed(obj, "metadata", "labels", to={})
    assert errors(changed(free, "spec", "replicas", to=5), free) == []


def test_what_a_pod_requests_stays_and_its_image_may_change():
    for obj, path in ((stateful_set("s", "lq", 3), ("spec", "template")), (leader_worker_set("l", "lq", 1, 2), WORKER)):
        place = ".".join(path)
        main = (*path, "spec", "containers", 0)
        resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
        old = changed(obj, *main, "resources", to=resources)
        assert errors(changed(old, *main, "image", to="other"), old) == []
        same = changed(old, *main, "resources", to={**resources, "requests": {"nvidia.com/gpu": "1000m"}})
        assert errors(same, old) == [], "the same amount"
        more = changed(old, *main, "resources", to={**resources, "requests": {"nvidia.com/gpu": "2"}})
        said = "Invalid value: field is immutable"
        assert errors(more, old) == [f"{place}.spec.containers[0].resources.requests: {said}"]
        limited = changed(old, *main, "resources", to={"limits": {"nvidia.com/gpu": "1"}})
        assert errors(limited, old) == [], "a limit is a request, too"
        higher = changed(old, *main, "resources", to={"limits": {"nvidia.com/gpu": "2"}})
        assert errors(higher, old) == [f"{place}.spec.containers[0].resources.requests: {said}"]
        twice = changed(old, *path, "spec", "containers", to=at(old, (*path, "spec", "containers")) * 2)
        assert f"{place}.spec.containers: {said}" in errors(twice, old)
        placed = changed(old, *path, "spec", "nodeSelector", to={"disk": "ssd"})
        assert errors(placed, old) == [f"{place}.spec.nodeSelector: {said}"]
        assert errors(changed(old, *path, "spec", "nodeSelector", to={}), old) == []
    free = deployment("d", "lq", 1)
    assert errors(changed(free, "spec", "template", "spec", "nodeSelector", to={"disk": "ssd"}), free) == []


def test_what_a_leader_worker_set_may_not_say():
    obj = leader_worker_set("l", "lq", 2, 4)
    assert errors(obj) == []
    assert errors(changed(obj, "spec", "replicas", to=5), obj) == []
    [error] = errors(changed(obj, "spec", "replicas", to=1_000_001))
    assert error == (
        "spec.replicas: Invalid value: 1000001: invalid LeaderWorkerSet replicas: must be <= 1000000, got 1000001"
    )
    [error] = errors(changed(obj, "spec", "replicas", to=-1))
    assert error.endswith("must be >= 0, got -1")
    [error] = errors(changed(obj, "spec", "leaderWorkerTemplate", "size", to=5), obj)
    assert error == "spec.leaderWorkerTemplate.size: Invalid value: 5: field is immutable"
    assert errors(changed(obj, "spec", "leaderWorkerTemplate", "size", to=5), obj, group_size_stays=False) == []
    without = changed(obj, *LEADER, to=None)
    [error] = errors(without, obj)
    assert error == "spec.leaderWorkerTemplate.leaderTemplate: Invalid value: field is immutable"
    sliced = {"kueue.x-k8s.io/podset-slice-size": "9", names.SLICE_REQUIRED_TOPOLOGY: "rack"}
    [error] = errors(changed(obj, *WORKER, "metadata", "annotations", to=sliced))
    assert error.startswith(
        "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations[kueue.x-k8s.io/podset-slice-size]"
    )
    assert error.endswith("must not be greater than pod set count 3")


def test_what_has_no_effect_is_said():
    obj = deployment("d", "lq", 1)
    assert admission.warnings(obj) == []
    obj["metadata"]["labels"] |= {names.MAX_EXEC_TIME: "60", names.PREBUILT_WORKLOAD: "w"}
    assert [warning.partition(" ")[0] for warning in admission.warnings(obj)] == [
        names.PREBUILT_WORKLOAD,
        names.MAX_EXEC_TIME,
    ]
    limited = stateful_set("s", "lq", 1)
    limited["metadata"]["labels"] |= {names.MAX_EXEC_TIME: "60"}
    assert admission.warnings(limited) == []


@pytest.mark.parametrize("obj", ALL, ids=lambda obj: obj["kind"])
def test_hints_are_checked_and_told_of_where_they_do_nothing(obj: Json):
    written = {names.CHECKPOINT_INTERVAL: "soon", names.EXPECTED_RUNTIME: "-1h", names.STALL: "none"}
    hinted = changed(obj, "metadata", "annotations", to=written)
    [error] = errors(hinted)
    assert error.startswith(f"metadata.annotations[{names.CHECKPOINT_INTERVAL}]: Invalid value")
    assert not errors(changed(hinted, "metadata", "annotations", names.CHECKPOINT_INTERVAL, to="30m"))
    [ignored, *unheeded] = admission.warnings(hinted)
    assert "'-1h' is ignored" in ignored
    keys = [names.CHECKPOINT_INTERVAL, names.EXPECTED_RUNTIME, names.STALL] if obj["kind"] == "Deployment" else []
    assert [warning.partition(" ")[0] for warning in unheeded] == keys
