"""Injecting an admission into a pod template, taking it back, and telling templates apart."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs.support import template

from gangline.api import names
from gangline.jobs import podspec
from gangline.jobs.base import JobError, PodSetInfo

GPU_TAINT = {"key": "gpu", "operator": "Exists"}
INFO = PodSetInfo(
    name="main",
    count=2,
    node_selector={"pool": "a100"},
    tolerations=[GPU_TAINT],
    labels={names.PODSET: "main"},
    annotations={names.WORKLOAD_ANNOTATION: "job-train-12345"},
    scheduling_gates=[{"name": "kueue.x-k8s.io/topology"}],
)


def test_merge_adds_everything_and_changes_no_argument():
    original = template(nodeSelector={"zone": "b"}, tolerations=[{"key": "own"}])
    before = copy.deepcopy(original)
    merged = podspec.merge(original, INFO)
    assert original == before
    assert merged["spec"]["nodeSelector"] == {"zone": "b", "pool": "a100"}
    assert merged["spec"]["tolerations"] == [{"key": "own"}, GPU_TAINT]
    assert merged["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert merged["metadata"]["labels"] == {**before["metadata"]["labels"], names.PODSET: "main"}
    assert merged["metadata"]["annotations"] == {names.WORKLOAD_ANNOTATION: "job-train-12345"}


def test_e3_the_scheduler_of_a_job_is_the_one_that_its_author_chose():
    chosen = template()
    chosen["spec"]["schedulerName"] = "hami-scheduler"
    assert podspec.merge(chosen, INFO)["spec"]["schedulerName"] == "hami-scheduler"
    assert "schedulerName" not in podspec.merge(template(), INFO)["spec"]
    assert "schedulerName" not in podspec.additions_of(INFO)


def test_merging_twice_is_merging_once():
    once = podspec.merge(template(), INFO)
    assert podspec.merge(once, INFO) == once


@pytest.mark.parametrize(
    ("info", "field"),
    [
        (PodSetInfo("main", 1, node_selector={"pool": "h100"}), "spec.template.spec.nodeSelector[pool]"),
        (PodSetInfo("main", 1, labels={"app": "other"}), "spec.template.metadata.labels[app]"),
        (PodSetInfo("main", 1, annotations={"note": "b"}), "spec.template.metadata.annotations[note]"),
    ],
)
def test_a_conflicting_key_is_named(info: PodSetInfo, field: str):
    mine = template(nodeSelector={"pool": "a100"})
    mine["metadata"]["annotations"] = {"note": "a"}
    with pytest.raises(JobError) as caught:
        podspec.merge(mine, info)
    assert caught.value.field == field


def test_restore_keeps_the_labels_of_the_controller():
    original = podspec.without_labels(template(), ["controller-uid", "app"])
    restored = podspec.restore(podspec.merge(template(), INFO), original, keep_labels=["controller-uid"])
    assert podspec.labels_of(restored) == {**podspec.labels_of(original), "controller-uid": "uid"}
    assert "nodeSelector" not in restored["spec"]
    assert "tolerations" not in restored["spec"]
    assert "schedulingGates" not in restored["spec"]


def _changed_image(mine: dict[str, Any]) -> None:
    mine["spec"]["containers"][0]["image"] = "train:2"


def _other_selector(mine: dict[str, Any]) -> None:
    mine["spec"]["nodeSelector"] = {"zone": "c"}


def _less_labels(mine: dict[str, Any]) -> None:
    del mine["metadata"]["labels"]["app"]


def _empty_fields(mine: dict[str, Any]) -> None:
    mine["spec"] |= {"securityContext": {}, "volumes": [], "hostname": None}


def _more_selectors(mine: dict[str, Any]) -> None:
    mine["spec"]["nodeSelector"] = {"zone": "b", "pool": "a100"}


def _no_tolerations(mine: dict[str, Any]) -> None:
    del mine["spec"]["tolerations"]


@pytest.mark.parametrize(
    ("change", "at_rest", "injected"),
    [
        (lambda mine: None, True, True),
        (_empty_fields, True, True),
        (_changed_image, False, False),
        (_other_selector, False, False),
        (_less_labels, False, False),
        (_more_selectors, False, True),
        (_no_tolerations, False, True),
    ],
)
def test_same(change: Any, at_rest: bool, injected: bool):
    original = template(nodeSelector={"zone": "b"}, tolerations=[GPU_TAINT])
    mine = copy.deepcopy(original)
    change(mine)
    assert podspec.same(mine, original) is at_rest
    assert podspec.same(mine, original, injected=True) is injected


def test_topology_request():
    mine = template()
    assert podspec.topology_request(mine, "index") == {"podIndexLabel": "index"}, "its pods are numbered anyway"
    assert podspec.topology_request(mine, "") is None
    mine["metadata"]["annotations"] = {
        names.REQUIRED_TOPOLOGY: "rack",
        names.SLICE_REQUIRED_TOPOLOGY: "host",
        names.SLICE_SIZE: "4",
        names.SLICE_CONSTRAINTS: '[{"topology": "block", "size": 8}]',
        names.PODSET_GROUP: "gang",
    }
    assert podspec.topology_request(mine, "index") == {
        "required": "rack",
        "podSetSliceRequiredTopology": "host",
        "podSetSliceSize": 4,
        "podsetSliceRequiredTopologyConstraints": [{"topology": "block", "size": 8}],
        "podSetGroupName": "gang",
        "podIndexLabel": "index",
    }


@pytest.mark.parametrize(
    ("key", "value"), [(names.SLICE_SIZE, "0"), (names.SLICE_SIZE, "four"), (names.SLICE_CONSTRAINTS, "[")]
)
def test_a_bad_topology_annotation_is_named(key: str, value: str):
    mine = template()
    mine["metadata"]["annotations"] = {key: value}
    with pytest.raises(JobError, match=r"spec\.template\.metadata\.annotations") as caught:
        podspec.topology_request(mine, "index")
    assert key in caught.value.field


PATIENCE = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for state in ("not-ready", "unreachable")
]


def test_patience_with_failing_nodes_is_added_and_taken_back():
    original = template(tolerations=[{"key": "own"}])
    merged = podspec.merge(original, PodSetInfo("main", 1, patience=PATIENCE))
    assert merged["spec"]["tolerations"] == [{"key": "own"}, *PATIENCE]
    assert podspec.same(merged, original, injected=True)
    assert podspec.restore(merged, original) == original


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 5}, ["unreachable"]),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, ["not-ready", "unreachable"]),
        ({"operator": "Exists"}, []),
    ],
)
def test_what_a_user_says_of_failing_nodes_stands(own, added):
    merged = podspec.merge(template(tolerations=[own]), PodSetInfo("main", 1, patience=PATIENCE))
    assert [row["key"].rpartition("/")[2] for row in merged["spec"]["tolerations"][1:]] == added


def test_nodes_that_failed_are_the_last_choice_and_that_is_taken_back():
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    other = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a", "b"]}
    wish = {"weight": 100, "preference": {"matchExpressions": [other]}}
    plain = podspec.keep_off(template(), ["b", "a"])
    assert plain["spec"]["affinity"] == {"nodeAffinity": {preferred: [wish]}}
    assert podspec.restore(plain, template()) == template()
    own = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}}
    original = template(affinity={"nodeAffinity": {preferred: [own]}, "podAffinity": {"x": 1}})
    kept = podspec.keep_off(original, ["a", "b"])
    assert kept["spec"]["affinity"] == {"nodeAffinity": {preferred: [own, wish]}, "podAffinity": {"x": 1}}
    assert podspec.same(kept, original, injected=True)
    assert podspec.restore(kept, original) == original
    assert podspec.keep_off(original, []) is original


@pytest.mark.parametrize(("said", "attempt"), [(None, 0), ("3", 3), ("-1", 0), ("x", 0)])
def test_the_attempt_of_a_template(said, attempt):
    annotations = {names.ATTEMPT: said} if said is not None else {}
    assert podspec.attempt_of({"metadata": {"annotations": annotations}, "spec": {}}) == attempt


# --- templates are shared ---------------------------------------------------------------------------------------------

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
_MAPS = st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3)


def _pruned(value: Any, *, inside: bool = True) -> Any:
    """Without what is equal to an absent field. In lists nothing is absent, but all that is empty is alike."""
    if isinstance(value, dict):
        slim = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in slim.items() if item is not None} or (None if inside else {})
    if isinstance(value, list):
        return [_pruned(item) for item in value] or None
    return value


@settings(max_examples=400, deadline=None)
@given(_MAPS, _MAPS)
def test_templates_are_the_same_if_they_are_without_empty_fields(mine: dict[str, Any], theirs: dict[str, Any]):
    assert podspec.same(mine, theirs) == (_pruned(mine, inside=False) == _pruned(theirs, inside=False))
    assert podspec.same(mine, copy.deepcopy(mine))


@settings(max_examples=200, deadline=None)
@given(_MAPS, _MAPS)
def test_nothing_is_changed_in_place(extra: dict[str, Any], other: dict[str, Any]):
    mine, original = template(**extra), template(**other)
    for each in (mine, original):
        each["metadata"]["annotations"] = {"note": "a"}
    before = copy.deepcopy((mine, original))
    merged = podspec.merge(mine, INFO)
    podspec.keep_off(merged, ["node-1"])
    podspec.restore(merged, original, ["app"])
    podspec.without_labels(mine, ["app"])
    podspec.same(mine, original, injected=True)
    podspec.same_containers(mine, original, tolerations=True)
    draft = podspec.draft(mine)
    draft["metadata"]["annotations"]["more"] = "b"
    draft["spec"]["containers"][0]["env"] = []
    draft["spec"]["restartPolicy"] = "Never"
    assert (mine, original) == before
    if extra:
        name = next(iter(extra))
        assert merged["spec"][name] is mine["spec"][name], "what is not changed is shared"
