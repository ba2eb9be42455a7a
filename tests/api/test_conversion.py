"""v1beta1 to v1beta2 and back: nothing is lost, nothing is made up, and legacy recipes become valid."""

from __future__ import annotations

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.api.generated import NAMES, Json, objects, unknown, with_defaults
from tests.examples import examples

from gangline.api import names
from gangline.api.convert.conversion import ConversionError, convert
from gangline.api.read.workloads import admissions
from gangline.api.schema import kinds
from gangline.api.schema.json_schema import structural

SCHEMAS = {
    (kind.kind, version.name): structural(version.model)
    for kind in kinds.KINDS
    if kind.group == names.GROUP
    for version in kind.versions
}
KUEUE_KINDS = sorted({kind for kind, _ in SCHEMAS})
some = examples(30, suppress_health_check=list(HealthCheck))

CLASS_REFS = st.builds(
    lambda pair, name: {"group": pair[0], "kind": pair[1], "name": name},
    st.sampled_from([("kueue.x-k8s.io", "WorkloadPriorityClass"), ("scheduling.k8s.io", "PriorityClass")]),
    NAMES,
)
HOSTS = st.sampled_from(["node-1", "node-10", "node-2.zone", "x", "", "node-1-node-1"])


@st.composite
def domain_lists(draw: st.DrawFn) -> tuple[list[str], list[admissions.Domain]]:
    levels = draw(st.lists(NAMES, min_size=1, max_size=3))
    values = st.tuples(*[HOSTS for _ in levels])
    return levels, draw(st.lists(st.tuples(values, st.integers(1, 9)), max_size=5))


OLD_TOPOLOGIES = domain_lists().map(
    lambda pair: {"levels": pair[0], "domains": [{"values": list(v), "count": n} for v, n in pair[1]]}
)
NEW_TOPOLOGIES = domain_lists().map(lambda pair: {"levels": pair[0], "slices": admissions.encode(pair[1])})
SPECIAL = {
    "v1beta1": {"topologyAssignment": OLD_TOPOLOGIES},
    "v1beta2": {"topologyAssignment": NEW_TOPOLOGIES, "priorityClassRef": CLASS_REFS},
}


def stored(kind: str, version: str) -> st.SearchStrategy[Json]:
    """Objects of this kind and version, defaulted, with annotations of others."""
    schema = SCHEMAS[kind, version]
    head = {"apiVersion": f"{names.GROUP}/{version}", "kind": kind}
    metadata = st.sampled_from(
        [
            {"name": "x"},
            {"name": "x", "annotations": {"team": "a", "gangline.io/unrelated": "{"}, "labels": {"l": "v"}},
        ]
    )
    return st.builds(
        lambda body, meta: with_defaults({**head, "metadata": meta, **body}, schema),
        objects(schema, SPECIAL[version]),
        metadata,
    )


@pytest.mark.parametrize("kind", KUEUE_KINDS)
@pytest.mark.parametrize(("first", "second"), [("v1beta1", "v1beta2"), ("v1beta2", "v1beta1")])
@some
@given(data=st.data())
def test_round_trips_on_all_kinds(kind: str, first: str, second: str, data: st.DataObject) -> None:
    obj = data.draw(stored(kind, first))
    before = copy.deepcopy(obj)
    there = convert(obj, second)
    assert obj == before, "the original is not to be changed"
    assert there["apiVersion"] == f"{names.GROUP}/{second}"
    assert unknown(there, SCHEMAS[kind, second]) == []
    assert convert(there, f"{names.GROUP}/{first}") == before
    defaulted = with_defaults(there, SCHEMAS[kind, second])
    assert with_defaults(convert(defaulted, first), SCHEMAS[kind, first]) == before


@pytest.mark.parametrize("kind", KUEUE_KINDS)
@some
@given(data=st.data())
def test_foreign_annotations_and_the_rest_of_metadata_stay(kind: str, data: st.DataObject) -> None:
    obj = data.draw(stored(kind, "v1beta1"))
    there = convert(obj, "v1beta2")
    ours = (names.V1BETA1_FIELDS, names.LEGACY_RECLAIM)
    kept = {key: text for key, text in there["metadata"].get("annotations", {}).items() if key not in ours}
    assert kept.items() >= {k: t for k, t in obj["metadata"].get("annotations", {}).items() if k not in ours}.items()
    assert {**there["metadata"], "annotations": 0} == {**obj["metadata"], "annotations": 0}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("kind", KUEUE_KINDS)
@pytest.mark.parametrize(("first", "second"), [("v1beta1", "v1beta2"), ("v1beta2", "v1beta1")])
@some
@given(data=st.data())
def test_malformed_objects_convert_or_are_refused(kind: str, first: str, second: str, data: st.DataObject) -> None:
    obj = data.draw(stored(kind, first))
    place: Any = obj
    while True:  # somewhere in the object stands something else
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    if key in ("apiVersion", "kind") and place is obj:
        return
    place[key] = data.draw(json_values)
    try:
        convert(obj, second)
    except ConversionError as error:
        assert str(error).startswith("status.admission.podSetAssignments")


@pytest.mark.parametrize("wrong", [[], {}, 7, None, "x", [None], True])
def test_wrong_types_are_left_to_the_schema(wrong: Any) -> None:
    fields = ("resourceGroups", "preemption", "flavorFungibility", "admissionChecks", "admissionChecksStrategy")
    fields += ("podSets", "priorityClassName", "priorityClassSource", "priorityClassRef", "preemptionGates")
    for kind in ("ClusterQueue", "Workload"):
        for version, other in (("v1beta1", "v1beta2"), ("v1beta2", "v1beta1")):
            obj = {"apiVersion": f"{names.GROUP}/{version}", "kind": kind}
            assert convert({**obj, "spec": wrong, "status": wrong, "metadata": wrong}, other)["kind"] == kind
            assert convert({**obj, "spec": dict.fromkeys(fields, wrong)}, other)["kind"] == kind
            assert convert({**obj, "spec": {"resourceGroups": [{"flavors": [wrong]}, wrong]}}, other)["kind"] == kind


RECIPE: Json = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ClusterQueue",
    "metadata": {"name": "tpu-training-cq"},
    "spec": {
        "resourceGroups": [
            {"flavors": [{"name": "tpu-v6e-slice", "resources": [{"name": "google.com/tpu", "nominalQuota": 32}]}]}
        ],
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {
            "reclaimWithinCohort": "Never",
            "reclaimOutOfCohort": {"enable": True, "reclaimMoreThanNominalQuota": False},
        },
    },
}


def test_a_recipe_becomes_a_valid_queue() -> None:
    queue = convert(RECIPE, "v1beta2")
    spec = queue["spec"]
    assert spec["resourceGroups"][0]["coveredResources"] == ["google.com/tpu"]
    assert spec["namespaceSelector"] == {}
    assert spec["preemption"] == {"reclaimWithinCohort": "Never", "withinClusterQueue": "LowerPriority"}
    assert json.loads(queue["metadata"]["annotations"][names.LEGACY_RECLAIM])["enable"] is True
    assert convert(queue, "v1beta1") == RECIPE


def test_a_recipe_that_turns_reclaim_off_preempts_nobody() -> None:
    recipe = copy.deepcopy(RECIPE)
    recipe["spec"]["preemption"]["reclaimOutOfCohort"]["enable"] = False
    assert "withinClusterQueue" not in convert(recipe, "v1beta2")["spec"]["preemption"]


def test_an_explicit_policy_beats_the_recipe() -> None:
    recipe = copy.deepcopy(RECIPE)
    recipe["spec"]["preemption"]["withinClusterQueue"] = "LowerOrNewerEqualPriority"
    queue = convert(recipe, "v1beta2")
    assert queue["spec"]["preemption"]["withinClusterQueue"] == "LowerOrNewerEqualPriority"
    assert convert(queue, "v1beta1") == recipe


def test_who_changes_a_derived_value_has_the_last_word() -> None:
    queue = copy.deepcopy(convert(RECIPE, "v1beta2"))
    queue["spec"]["preemption"]["withinClusterQueue"] = "Never"
    queue["spec"]["namespaceSelector"] = {"matchLabels": {"team": "a"}}
    back = convert(queue, "v1beta1")
    assert "reclaimOutOfCohort" not in back["spec"]["preemption"]
    assert back["spec"]["namespaceSelector"] == {"matchLabels": {"team": "a"}}
    again = convert(back, "v1beta2")["spec"]
    assert again["preemption"]["withinClusterQueue"] == "Never"
    assert again["namespaceSelector"] == {"matchLabels": {"team": "a"}}


def test_a_complete_queue_without_selector_still_selects_nothing() -> None:
    queue = copy.deepcopy(RECIPE)
    queue["spec"]["resourceGroups"][0]["coveredResources"] = ["google.com/tpu"]
    del queue["spec"]["preemption"]
    assert "namespaceSelector" not in convert(queue, "v1beta2")["spec"]


def test_old_names_of_fields_and_values() -> None:
    old = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "x"},
        "spec": {
            "cohort": "all",
            "admissionChecks": ["a", "b"],
            "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"},
        },
    }
    spec = convert(old, "v1beta2")["spec"]
    assert spec["cohortName"] == "all"
    assert spec["admissionChecksStrategy"] == {"admissionChecks": [{"name": "a"}, {"name": "b"}]}
    assert spec["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}


def test_workload_fields() -> None:
    old: Json = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "x"},
        "spec": {"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"},
        "status": {
            "accumulatedPastExexcutionTimeSeconds": 7,
            "admission": {
                "clusterQueue": "q",
                "podSetAssignments": [
                    {
                        "name": "main",
                        "topologyAssignment": {
                            "levels": ["block", "kubernetes.io/hostname"],
                            "domains": [
                                {"values": ["b1", "node-1.x"], "count": 2},
                                {"values": ["b1", "node-2.x"], "count": 2},
                            ],
                        },
                    }
                ],
            },
        },
    }
    new = convert(old, "v1beta2")
    assert new["spec"] == {
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    }
    assert new["status"]["accumulatedPastExecutionTimeSeconds"] == 7
    assert new["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] == {
        "levels": ["block", "kubernetes.io/hostname"],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [
                    {"universal": "b1"},
                    {"individual": {"prefix": "node-", "roots": ["1", "2"], "suffix": ".x"}},
                ],
                "podCounts": {"universal": 2},
            }
        ],
    }


@pytest.mark.parametrize(
    "text", ["", "not json", "[]", '{"derivedCoveredResources": 7, "admissionChecks": [[]]}', "[" * 10**5]
)
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_notes_that_a_user_has_scribbled_on_do_no_harm(text: str, version: str) -> None:
    annotations = dict.fromkeys((names.V1BETA1_FIELDS, names.V1BETA2_FIELDS, names.LEGACY_RECLAIM), text)
    obj = {**RECIPE, "apiVersion": f"{names.GROUP}/{version}", "metadata": {"name": "x", "annotations": annotations}}
    other = "v1beta1" if version == "v1beta2" else "v1beta2"
    assert convert(obj, other)["spec"]["queueingStrategy"] == "BestEffortFIFO"


def test_the_default_retry_delay_is_shown_in_v1beta1() -> None:
    check = {"apiVersion": names.V1BETA2, "kind": "AdmissionCheck", "metadata": {}, "spec": {"controllerName": "c"}}
    assert convert(check, "v1beta1")["spec"]["retryDelayMinutes"] == 15


@pytest.mark.parametrize(
    ("obj", "target", "message"),
    [
        ({"apiVersion": names.V1BETA2, "kind": "Pod"}, "v1beta1", "cannot convert Pod"),
        ({"apiVersion": "v1", "kind": "Workload"}, "v1beta1", "cannot convert Workload from v1 to"),
        ({"apiVersion": names.V1BETA2, "kind": "Workload"}, "v1beta3", "to kueue.x-k8s.io/v1beta3"),
        ({}, "v1beta1", "cannot convert None"),
    ],
)
def test_refuses_what_it_does_not_know(obj: Json, target: str, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        convert(obj, target)


def test_slices_that_contradict_themselves_are_noted_in_v1beta1_so_that_workloads_can_be_listed() -> None:
    slices = [{"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a"]}}], "podCounts": {"universal": 1}}]
    assignment = {"name": "main", "topologyAssignment": {"levels": ["l"], "slices": slices}}
    workload = {
        "apiVersion": names.V1BETA2,
        "kind": "Workload",
        "metadata": {"name": "w"},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}},
    }
    old = convert(workload, "v1beta1")
    assert old["status"]["admission"]["podSetAssignments"] == [{"name": "main"}]
    assert convert(old, "v1beta2") == workload


@pytest.mark.parametrize(("length", "noted"), [(1000, True), (256 * 1024 - 40, False)])
@pytest.mark.parametrize(
    ("first", "second", "annotation", "spec"),
    [
        ("v1beta2", "v1beta1", names.V1BETA2_FIELDS, {"preemptionGates": [{"name": "g"}]}),
        ("v1beta1", "v1beta2", names.V1BETA1_FIELDS, {"priorityClassName": "nobody-says-of-which-kind"}),
    ],
)
def test_annotations_stay_small_enough_for_the_api_server(
    first: str, second: str, annotation: str, spec: Json, length: int, noted: bool
) -> None:
    meta = {"name": "w", "annotations": {"team": "x" * length}}
    obj = {"apiVersion": f"{names.GROUP}/{first}", "kind": "Workload", "metadata": meta, "spec": spec}
    shown = convert(obj, second)
    assert shown["spec"] == {}
    assert (annotation in shown["metadata"]["annotations"]) == noted
    assert sum(len(name) + len(text) for name, text in shown["metadata"]["annotations"].items()) <= 256 * 1024


HOSTILE = {
    "of another type": {"priorityClassName": {"a": 1}, "flavors": "x", "retryDelayMinutes": "x"},
    "of another type inside": {"flavors": [{"name": 7}], "priorityClassName": ["x"]},
    "half a character": {"flavors": [{"name": "\ud800"}], "priorityClassName": "\ud800"},
    "no time": {
        "flavors": [{"nodeTaints": [{"timeAdded": "yesterday"}]}],
        "pendingWorkloadsStatus": {"lastChangeTime": ""},
    },
    "too large a number": {"flavors": 2**70, "retryDelayMinutes": 2**70, "priorityClassName": 2**70},
    "too deep": {"flavors": json.loads("[" * 300 + "]" * 300), "priorityClassName": json.loads("[" * 300 + "]" * 300)},
}


@pytest.mark.parametrize("kind", ["Workload", "LocalQueue", "AdmissionCheck", "ClusterQueue"])
@pytest.mark.parametrize("notes", HOSTILE.values(), ids=HOSTILE)
def test_a_note_that_does_not_fit_its_field_is_not_put_back(kind: str, notes: Json) -> None:
    """Otherwise one object makes every list of its kind in v1beta1 undecodable."""
    body = {"kind": kind, "spec": {}, "status": {}}
    plain = convert({**body, "apiVersion": names.V1BETA2, "metadata": {"name": "x"}}, "v1beta1")
    annotations = {names.V1BETA1_FIELDS: json.dumps(notes)}
    old = convert(
        {**body, "apiVersion": names.V1BETA2, "metadata": {"name": "x", "annotations": annotations}}, "v1beta1"
    )
    assert {**old, "metadata": 0} == {**plain, "metadata": 0}
    orjson.dumps(old)


def test_usage_over_time_in_the_status_survives_v1beta2() -> None:
    usage = {"consumedResources": {"cpu": "3", "nvidia.com/gpu": 8}, "lastUpdate": "2026-01-31T12:00:00Z"}
    obj = {
        "apiVersion": names.V1BETA1,
        "kind": "ClusterQueue",
        "metadata": {"name": "x"},
        "spec": {},
        "status": {"fairSharing": {"weightedShare": 7, "admissionFairSharingStatus": usage}},
    }
    stored = convert(obj, "v1beta2")
    assert stored["status"] == {"fairSharing": {"weightedShare": 7}}
    assert convert(stored, "v1beta1") == obj
    stored["status"]["fairSharing"]["weightedShare"] = 9
    assert convert(stored, "v1beta1")["status"]["fairSharing"] == {
        "weightedShare": 9,
        "admissionFairSharingStatus": usage,
    }
    note = {"admissionFairSharingStatus": {"consumedResources": {"cpu": "x" * 99}, "lastUpdate": "2026"}}
    stored["metadata"]["annotations"] = {names.V1BETA1_FIELDS: json.dumps(note)}
    assert convert(stored, "v1beta1")["status"]["fairSharing"] == {"weightedShare": 9}
