"""ClusterQueues: the recipe form, the finalizer, and every rule about quotas with the text Kueue gives it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.builders.written import Json, cluster_queue, recipe

from gangline.api import names
from gangline.api.admission import AdmissionFacts, default, validate, warnings

NOTHING_ELSE = AdmissionFacts()


def errors(obj: Json, old: Json | None = None) -> list[str]:
    return [str(error) for error in validate(obj, old, NOTHING_ELSE)]


def quota(obj: Json, index: int = 0) -> Json:
    return obj["spec"]["resourceGroups"][0]["flavors"][0]["resources"][index]


# --- the recipe form --------------------------------------------------------------------------------------------------


def test_the_recipe_is_completed_and_its_author_is_told():
    result = default(recipe(), None, NOTHING_ELSE)
    spec = result.obj["spec"]
    assert spec["resourceGroups"][0]["coveredResources"] == ["google.com/tpu"]
    assert spec["namespaceSelector"] == {}
    assert spec["preemption"]["withinClusterQueue"] == "LowerPriority"
    assert spec["preemption"]["reclaimOutOfCohort"] == {"enable": True, "reclaimMoreThanNominalQuota": False}
    [warning] = result.warnings
    for word in ("google.com/tpu", "namespaceSelector", "withinClusterQueue: LowerPriority", "reclaimOutOfCohort"):
        assert word in warning
    assert len(warning) <= 256
    assert errors(result.obj) == []


def test_the_recipe_is_completed_although_the_schema_has_filled_in_never():
    queue = recipe()
    queue["spec"]["preemption"]["withinClusterQueue"] = "Never"
    assert default(queue, None, NOTHING_ELSE).obj["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority"


def test_a_policy_that_the_user_chose_stays():
    queue = recipe()
    queue["spec"]["preemption"]["withinClusterQueue"] = "LowerOrNewerEqualPriority"
    result = default(queue, None, NOTHING_ELSE)
    assert result.obj["spec"]["preemption"]["withinClusterQueue"] == "LowerOrNewerEqualPriority"
    assert "withinClusterQueue" not in result.warnings[0]


def test_a_disabled_reclaim_turns_nothing_on():
    queue = recipe()
    queue["spec"]["preemption"]["reclaimOutOfCohort"]["enable"] = False
    spec = default(queue, None, NOTHING_ELSE).obj["spec"]
    assert "withinClusterQueue" not in spec["preemption"]
    assert spec["namespaceSelector"] == {}


def test_what_is_not_honoured_is_said():
    queue = recipe()
    queue["spec"]["preemption"]["reclaimOutOfCohort"]["reclaimMoreThanNominalQuota"] = True
    [warning] = default(queue, None, NOTHING_ELSE).warnings
    assert "reclaimMoreThanNominalQuota ignored" in warning


def test_resources_come_from_all_flavors_in_order():
    queue = recipe()
    del queue["spec"]["preemption"]
    flavors = queue["spec"]["resourceGroups"][0]["flavors"]
    flavors[0]["resources"].insert(0, {"name": "cpu", "nominalQuota": 1})
    flavors.append({"name": "spot", "resources": copy.deepcopy(flavors[0]["resources"])})
    completed = default(queue, None, NOTHING_ELSE).obj
    assert completed["spec"]["resourceGroups"][0]["coveredResources"] == ["cpu", "google.com/tpu"]
    assert errors(completed) == []


def test_a_queue_written_in_full_is_left_alone():
    queue = cluster_queue("v1beta1")
    del queue["spec"]["namespaceSelector"]
    result = default(queue, None, NOTHING_ELSE)
    assert result.obj["spec"] == queue["spec"]
    assert result.warnings == ()


def test_v1beta2_has_no_recipe_form():
    queue = {**recipe(), "apiVersion": "kueue.x-k8s.io/v1beta2"}
    result = default(queue, None, NOTHING_ELSE)
    assert result.obj["spec"] == queue["spec"]
    assert result.warnings == ()


def test_applying_the_recipe_again_changes_nothing_and_warns_again():
    stored = default(recipe(), None, NOTHING_ELSE).obj
    again = copy.deepcopy(stored)
    del again["spec"]["resourceGroups"][0]["coveredResources"]  # kubectl sends the whole list
    result = default(again, stored, NOTHING_ELSE)
    assert result.obj == stored
    assert len(result.warnings) == 1
    assert default(stored, stored, NOTHING_ELSE).warnings == ()


# --- the finalizer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ClusterQueue", "ResourceFlavor"])
def test_queues_and_flavors_are_kept_while_in_use(kind: str):
    obj = {**cluster_queue(), "kind": kind}
    obj["metadata"]["finalizers"] = ["example.com/mine"]
    once = default(obj, None, NOTHING_ELSE).obj
    assert once["metadata"]["finalizers"] == ["example.com/mine", names.IN_USE_FINALIZER]
    assert default(once, None, NOTHING_ELSE).obj == once


def test_a_finalizer_that_was_removed_does_not_come_back():
    assert "finalizers" not in default(cluster_queue(), cluster_queue(), NOTHING_ELSE).obj["metadata"]


def test_an_object_on_its_way_out_is_not_touched_or_judged():
    queue = cluster_queue()
    quota(queue)["nominalQuota"] = "-1"
    queue["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert default(queue, None, NOTHING_ELSE).obj == queue
    assert errors(queue, cluster_queue()) == []


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_good_queue_passes(version: str):
    assert errors(cluster_queue(version)) == []


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("-1", 'Invalid value: "-1": must be greater than or equal to 0'),
        (-1, "Invalid value: -1: must be greater than or equal to 0"),
        ("-0.0001", "must be greater than or equal to 0"),
        ("many", "quantities must match the regular expression"),
        ("1 Gi", "quantities must match the regular expression"),
        ("", "quantities must match the regular expression"),
        (True, "quantities must match the regular expression"),
        ([], "quantities must match the regular expression"),
        ("9" * 5000, "quantities must match the regular expression"),
        (None, "Required value"),
    ],
)
def test_quotas_that_can_not_be_counted_are_named(amount: Any, said: str):
    queue = cluster_queue()
    quota(queue)["nominalQuota"] = amount
    [error] = errors(queue)
    assert error.startswith("spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: ")
    assert said in error
    assert len(error) < 600


@pytest.mark.parametrize("amount", ["0", 0, "500m", "1.5Ti", "1e3", 0.5, "9223372036854775807", "10Ei", "1e300"])
def test_quotas_as_people_write_them_pass(amount: Any):
    queue = cluster_queue()
    quota(queue, 1)["nominalQuota"] = amount
    assert errors(queue) == []


@pytest.mark.parametrize("limit", ["borrowingLimit", "lendingLimit"])
def test_limits_need_a_cohort(limit: str):
    queue = cluster_queue()
    quota(queue)[limit] = "10"
    path = f"spec.resourceGroups[0].flavors[0].resources[0].{limit}"
    assert errors(queue) == [f'{path}: Invalid value: "10": must be nil when cohort is empty']
    assert errors({**queue, "spec": {**queue["spec"], "cohortName": "all"}}) == []


def test_the_cohort_of_v1beta1_counts():
    queue = cluster_queue("v1beta1", cohort="all")
    quota(queue)["borrowingLimit"] = "10"
    assert errors(queue) == []
    assert errors({**queue, "apiVersion": names.V1BETA2}) != []


def test_nobody_lends_more_than_they_have():
    queue = cluster_queue(cohortName="all")
    quota(queue)["lendingLimit"] = "64001m"
    assert errors(queue) == [
        'spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "64001m": '
        "must be less than or equal to the nominalQuota"
    ]
    quota(queue)["lendingLimit"] = "64000m"
    assert errors(queue) == []


def test_quota_without_bound_may_be_lent_but_not_more():
    queue = cluster_queue(cohortName="all")
    quota(queue).update(nominalQuota="1E", lendingLimit="1E")
    assert errors(queue) == []
    quota(queue)["lendingLimit"] = "1E1"
    assert errors(queue) == []
    quota(queue)["lendingLimit"] = "1Ei"
    [error] = errors(queue)
    assert "must be less than or equal to the nominalQuota" in error


def test_a_flavor_lists_the_covered_resources_in_their_order():
    queue = cluster_queue()
    queue["spec"]["resourceGroups"][0]["coveredResources"].reverse()
    at = "spec.resourceGroups[0].flavors[0].resources"
    assert errors(queue) == [
        f'{at}[0].name: Invalid value: "cpu": must match the name in coveredResources',
        f'{at}[1].name: Invalid value: "nvidia.com/gpu": must match the name in coveredResources',
    ]
    queue["spec"]["resourceGroups"][0]["coveredResources"] = ["cpu"]
    assert errors(queue) == [f"{at}: Invalid value: must have the same number of resources as the coveredResources"]


def test_resources_and_flavors_belong_to_one_group():
    queue = cluster_queue()
    queue["spec"]["resourceGroups"].append(copy.deepcopy(queue["spec"]["resourceGroups"][0]))
    assert errors(queue) == [
        'spec.resourceGroups[1].coveredResources[0]: Duplicate value: "cpu"',
        'spec.resourceGroups[1].coveredResources[1]: Duplicate value: "nvidia.com/gpu"',
        'spec.resourceGroups[1].flavors[0].name: Duplicate value: "h100"',
    ]


def test_resource_names_are_qualified_names():
    queue = cluster_queue()
    queue["spec"]["resourceGroups"][0]["coveredResources"][0] = "@cpu"
    quota(queue)["name"] = "@cpu"
    [error] = errors(queue)
    assert error.startswith(
        'spec.resourceGroups[0].coveredResources[0]: Invalid value: "@cpu": name part must consist of alphanumeric'
    )


def test_totals_are_limited():
    flavor = {"resources": [{"name": f"r{i}", "nominalQuota": 1} for i in range(3)]}
    covered = [f"r{i}" for i in range(3)]
    group = {"coveredResources": covered, "flavors": [{**flavor, "name": f"f{i}"} for i in range(257)]}
    queue = cluster_queue(resourceGroups=[group])
    assert errors(queue) == [
        "spec.resourceGroups: Invalid value: 257: total number of flavors across all resourceGroups "
        "must be ≤ 256, got 257",
        "spec.resourceGroups[0]: Invalid value: 771: number of flavor-resource combinations in a resourceGroup "
        "must be ≤ 512, got 771",
    ]


def test_checks_are_bound_to_flavors_of_the_queue():
    strategy = {"admissionChecks": [{"name": "prov", "onFlavors": ["h100", "b200"]}]}
    queue = cluster_queue(admissionChecksStrategy=strategy)
    assert errors(queue) == [
        "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]: "
        'Unsupported value: "b200": supported values: "h100"'
    ]
    changed = copy.deepcopy(queue)
    changed["spec"]["stopPolicy"] = "Hold"
    assert errors(changed, queue) == []  # stored so already


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ("-1", 'spec.fairSharing: Invalid value: "-1": must be greater than or equal to 0'),
        ("1n", 'spec.fairSharing: Invalid value: "1n": When not 0, weight must be > 10e-9'),
        ("2n", ""),
        ("0", ""),
        ("1.5", ""),
        ("heavy", 'spec.fairSharing: Invalid value: "heavy": quantities must match the regular expression'),
    ],
)
def test_weights(weight: str, said: str):
    found = errors(cluster_queue(fairSharing={"weight": weight}))
    assert found[0].startswith(said) if said else found == [], found


def test_a_selector_must_make_sense():
    selector = {
        "matchLabels": {"team": "a b"},
        "matchExpressions": [{"key": "x", "operator": "In"}, {"key": "y", "operator": "Is"}],
    }
    found = errors(cluster_queue(namespaceSelector=selector))
    assert found[0].startswith('spec.namespaceSelector.matchLabels: Invalid value: "a b": a valid label must be')
    assert found[1:] == [
        "spec.namespaceSelector.matchExpressions[0].values: Required value: "
        "must be specified when `operator` is 'In' or 'NotIn'",
        'spec.namespaceSelector.matchExpressions[1].operator: Invalid value: "Is": not a valid selector operator',
    ]


def test_preference_needs_both_to_try_the_next_flavor():
    fungibility = {
        "whenCanBorrow": "MayStopSearch",
        "whenCanPreempt": "TryNextFlavor",
        "preference": "BorrowingOverPreemption",
    }
    [error] = errors(cluster_queue(flavorFungibility=fungibility))
    assert error.startswith('spec.flavorFungibility.preference: Invalid value: "BorrowingOverPreemption": preference')
    assert errors(cluster_queue(flavorFungibility={**fungibility, "whenCanBorrow": "TryNextFlavor"})) == []


def test_borrowing_while_preempting_needs_reclaim():
    preemption = {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}
    assert errors(cluster_queue(preemption=preemption)) == [
        "spec.preemption: Invalid value: reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
    ]


def test_concurrent_admission():
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    queue = cluster_queue(concurrentAdmissionPolicy=policy, queueingStrategy="StrictFIFO")
    assert [error.split(": ")[0] for error in errors(queue)] == ["spec.queueingStrategy"]
    assert errors(cluster_queue(concurrentAdmissionPolicy=policy), cluster_queue()) == [
        "spec.concurrentAdmissionPolicy: Invalid value: "
        '{"migration":{"mode":"TryPreferredFlavors"}}: field is immutable'
    ]


@pytest.mark.parametrize(
    ("migration", "said"),
    [
        ({"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "h100"}}, ""),
        ({"mode": "RetainFirstAdmission"}, ""),
        (
            {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "a100"}},
            '.lastAcceptableFlavorName: Invalid value: "a100": must be one of the flavors defined in the ClusterQueue: '
            "[h100]",
        ),
        (
            {"mode": "RetainFirstAdmission", "constraints": {"lastAcceptableFlavorName": "h100"}},
            ': Forbidden: may only be set when migration.mode is "TryPreferredFlavors" (got "RetainFirstAdmission")',
        ),
    ],
)
def test_migration_of_concurrent_admissions(migration: Json, said: str):
    found = errors(cluster_queue(concurrentAdmissionPolicy={"migration": migration}))
    path = "spec.concurrentAdmissionPolicy.migration.constraints"
    assert found == ([f"{path}{said}"] if said else [])


def test_an_update_that_leaves_the_spec_alone_is_not_judged():
    queue = cluster_queue()
    quota(queue)["nominalQuota"] = "-1"
    labelled = copy.deepcopy(queue)
    labelled["metadata"]["labels"] = {"a": "b"}
    assert errors(labelled, queue) == []


def test_the_policy_of_concurrent_admission_names_its_gate():
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    assert warnings(cluster_queue(concurrentAdmissionPolicy=policy)) == [
        "spec.concurrentAdmissionPolicy has an effect only where the feature gate ConcurrentAdmission is on"
    ]
    assert warnings(cluster_queue()) == []
