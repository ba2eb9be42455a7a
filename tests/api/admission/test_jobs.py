"""Jobs of every kind: what is filled in at creation, and what may change when."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.builders.written import Json, gpujob, job, template

from gangline.api import names
from gangline.api.admission import AdmissionFacts, default, validate
from gangline.api.admission.of_jobs.pods import MOST_AMOUNTS, MOST_CONTAINERS

QUEUE, CLASS = names.QUEUE_NAME, names.PRIORITY_CLASS
SIMPLE = AdmissionFacts()


def never(*_: object) -> bool:
    raise AssertionError("this must not be asked")


#: everything that costs a read is forbidden
INCURIOUS = AdmissionFacts(never, never, never)
WITH_DEFAULTS = AdmissionFacts(
    local_queue_exists=lambda namespace, name: (namespace, name) == ("team", "default"),
    priority_class_exists=lambda name: name == "default",
)


def errors(obj: Json, old: Json | None = None, context: AdmissionFacts = SIMPLE) -> list[str]:
    return [str(error) for error in validate(obj, old, context)]


def running(obj: Json) -> Json:
    obj = copy.deepcopy(obj)
    obj["spec"]["suspend"] = False
    return obj


def held(obj: Json) -> Json:
    obj = copy.deepcopy(obj)
    obj["spec"]["suspend"] = True
    return obj


def relabelled(obj: Json, **labels: str | None) -> Json:
    obj = copy.deepcopy(obj)
    kept = obj["metadata"].setdefault("labels", {})
    for key, value in labels.items():
        kept.pop(key, None) if value is None else kept.update({key: value})
    return obj


# --- defaulting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [job, gpujob])
def test_a_queued_job_is_held(make: Any):
    result = default(make(queue="main"), None, SIMPLE)
    assert result.obj["spec"]["suspend"] is True
    assert result.warnings == ()


@pytest.mark.parametrize("make", [job, gpujob])
def test_a_job_without_a_queue_is_left_as_it_is(make: Any):
    obj = make(queue="")
    assert default(obj, None, SIMPLE).obj == obj


def test_the_original_is_not_touched():
    obj = job(queue="main")
    before = copy.deepcopy(obj)
    default(obj, None, WITH_DEFAULTS)
    assert obj == before


def test_a_queue_given_as_annotation_becomes_the_label():
    result = default(job(annotations={QUEUE: "main"}), None, SIMPLE)
    assert result.obj["metadata"]["labels"] == {QUEUE: "main"}
    assert result.obj["metadata"]["annotations"] == {QUEUE: "main"}
    assert result.obj["spec"]["suspend"] is True


def test_the_label_wins_and_the_author_is_told():
    result = default(job(queue="main", annotations={QUEUE: "other"}), None, SIMPLE)
    assert result.obj["metadata"]["labels"][QUEUE] == "main"
    assert result.warnings == (f'the {QUEUE} annotation "other" is ignored: the label says "main"',)


LACKING = AdmissionFacts(
    local_queue_is_missing=lambda namespace, name: True, priority_class_is_missing=lambda name: True
)


@pytest.mark.parametrize("make", [job, gpujob])
def test_the_author_hears_of_a_queue_and_a_class_that_do_not_exist(make: Any):
    named = relabelled(make(queue="main"), **{names.PRIORITY_CLASS: "gold"})
    named["metadata"]["namespace"] = "ml"
    assert default(named, None, LACKING).warnings == (
        "LocalQueue main does not exist in namespace ml: the job waits until it does",
        "WorkloadPriorityClass gold does not exist: the job is not queued until it does",
    )
    assert default(named, None, SIMPLE).warnings == ()
    assert default(named, named, LACKING).warnings == (), "one warning"
    assert default(relabelled(named, **{QUEUE: "Not A Name"}), None, LACKING).warnings[0].startswith("WorkloadPriority")


@pytest.mark.parametrize(("hint", "warned"), [("banana", True), ("0s", True), (7, True), ("90m", False), (None, False)])
def test_the_author_hears_of_a_hint_that_is_no_duration(hint: Any, warned: bool):
    obj = job(queue="main", annotations={names.EXPECTED_RUNTIME: hint} if hint is not None else {})
    warnings = default(obj, None, SIMPLE).warnings
    assert bool(warnings) is warned
    if warned:
        assert "must be a duration above zero" in warnings[0] and names.EXPECTED_RUNTIME in warnings[0]
        assert default(obj, obj, SIMPLE).warnings == ()


def test_the_author_of_a_gpujob_hears_that_it_is_outside_of_any_queue():
    [warning] = default(gpujob(queue=""), None, SIMPLE).warnings
    assert "names no queue" in warning and "takes no quota" in warning
    [held] = default(gpujob(queue=""), None, replace(SIMPLE, without_queue=True)).warnings
    assert held == "it names no queue (label kueue.x-k8s.io/queue-name): it is held until it names one"
    assert default(job(queue=""), None, SIMPLE).warnings == ()


def test_an_annotation_that_can_be_no_label_is_left_to_validation():
    obj = job(annotations={QUEUE: "q" * 64})
    result = default(obj, None, SIMPLE)
    assert "labels" not in result.obj["metadata"]
    [error] = errors(result.obj)
    assert error.startswith(f"metadata.annotations[{QUEUE}]: Invalid value")
    assert error.endswith("must be no more than 63 bytes, to be kept as a label")


def test_the_default_queue_of_the_namespace():
    result = default(job(), None, WITH_DEFAULTS)
    assert result.obj["metadata"]["labels"] == {QUEUE: "default", CLASS: "default"}
    assert result.obj["spec"]["suspend"] is True
    in_other_namespace = job()
    in_other_namespace["metadata"]["namespace"] = "other"
    assert default(in_other_namespace, None, WITH_DEFAULTS).obj == in_other_namespace


def test_a_class_that_the_user_chose_stays():
    result = default(job(queue="main", labels={CLASS: "high"}), None, INCURIOUS)
    assert result.obj["metadata"]["labels"][CLASS] == "high"


def owned_by(kind: str, api_version: str, *, controller: bool = True) -> Json:
    reference = {"apiVersion": api_version, "kind": kind, "name": "parent", "uid": "u", "controller": controller}
    child = job(queue="main")
    child["metadata"]["ownerReferences"] = [reference]
    return child


@pytest.mark.parametrize(("kind", "version"), [("GPUJob", names.V1ALPHA1), ("JobSet", "jobset.x-k8s.io/v1alpha2")])
def test_the_child_of_a_queued_job_is_never_queued_itself(kind: str, version: str):
    child = owned_by(kind, version)
    asked: list[tuple[str, str]] = []

    def queued(namespace: str, reference: Json, child: Json) -> bool:
        asked.append((namespace, reference["name"]))
        return True

    assert default(child, None, AdmissionFacts(owner_is_queued=queued)).obj == child
    assert asked == [("team", "parent")]


def test_the_child_of_a_job_without_a_queue_stands_on_its_own():
    child = owned_by("GPUJob", names.V1ALPHA1)
    assert default(child, None, AdmissionFacts(owner_is_queued=lambda *_: False)).obj["spec"]["suspend"] is True


@pytest.mark.parametrize(
    "child", [owned_by("CronJob", "batch/v1"), owned_by("GPUJob", names.V1ALPHA1, controller=False)]
)
def test_other_owners_are_not_even_asked(child: Json):
    child["metadata"]["labels"][CLASS] = "high"
    assert default(child, None, INCURIOUS).obj["spec"]["suspend"] is True


def test_after_creation_only_the_label_is_filled_in():
    old = job()
    new = job(annotations={QUEUE: "main"})
    result = default(new, old, INCURIOUS)
    assert result.obj["metadata"]["labels"] == {QUEUE: "main"}
    assert "suspend" not in result.obj["spec"]


def resized(obj: Json, **sizes: int) -> Json:
    obj = copy.deepcopy(obj)
    obj["spec"].update(sizes)
    return obj


@pytest.mark.parametrize(
    "before, after, grown",
    [
        ({"parallelism": 1, "completions": 100}, {"parallelism": 40}, True),
        ({"completions": 1}, {"parallelism": 40}, False),
        ({"parallelism": 4, "completions": 4}, {"parallelism": 40, "completions": 40}, True),
        ({"parallelism": 8, "completions": 4}, {"parallelism": 8, "completions": 8}, True),
        ({"parallelism": 4, "completions": 4}, {"parallelism": 40, "completions": 4}, False),
        ({"parallelism": 4, "completions": 4}, {"parallelism": 2}, False),
        ({"parallelism": 4, "completions": 4}, {}, False),
    ],
)
def test_a_running_job_that_grows_is_held_in_the_same_write(before: Json, after: Json, grown: bool):
    old = running(resized(job(queue="main"), **before))
    result = default(resized(old, **after), old, INCURIOUS)
    assert result.obj["spec"]["suspend"] is grown
    assert any("more pods than it was admitted with" in warning for warning in result.warnings) is grown


def test_a_job_that_grows_as_it_is_set_going_by_hand_stays_held():
    old = held(resized(job(queue="main"), completions=100))
    assert default(running(resized(old, parallelism=40)), old, INCURIOUS).obj["spec"]["suspend"] is True


def test_a_job_in_no_queue_may_grow():
    old = running(job())
    assert default(resized(old, parallelism=40), old, INCURIOUS).obj["spec"]["suspend"] is False


def test_with_partial_admission_growing_is_refused():
    old = running(resized(job(queue="main", annotations={names.MIN_PARALLELISM: "2"}), parallelism=4))
    new = default(resized(old, parallelism=40), old, INCURIOUS).obj
    assert any("spec.parallelism: Forbidden: cannot change when partial" in error for error in errors(new, old))


def test_the_author_of_a_running_job_that_shrinks_hears_that_it_starts_again():
    old = running(job(queue="main", parallelism=4, completions=4))
    smaller = default(resized(old, parallelism=2), old, INCURIOUS)
    assert smaller.obj["spec"]["suspend"] is False, "the operator stops it, as Kueue does"
    assert any("asks for fewer pods" in warning for warning in smaller.warnings)
    assert not default(resized(old, parallelism=4), old, INCURIOUS).warnings
    waiting = job(queue="main", parallelism=4, suspend=True)
    assert not default(resized(waiting, parallelism=2), waiting, INCURIOUS).warnings


@pytest.mark.parametrize(
    "change, grown", [({"replicas": 3}, True), ({"replicas": 1}, False), ({"name": "other"}, True)]
)
def test_a_running_jobset_that_grows_is_held(change: Json, grown: bool):
    row = {"name": "workers", "replicas": 2, "template": {"spec": job()["spec"]}}
    old = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "team", "labels": {QUEUE: "main"}},
        "spec": {"suspend": False, "replicatedJobs": [row]},
    }
    new = {**old, "spec": {"suspend": False, "replicatedJobs": [{**row, **change}]}}
    assert default(new, old, INCURIOUS).obj["spec"]["suspend"] is grown


@pytest.mark.parametrize(
    "obj", [job(), job(queue="main"), job(annotations={QUEUE: "main"}), gpujob(), owned_by("GPUJob", names.V1ALPHA1)]
)
def test_defaulting_twice_is_defaulting_once(obj: Json):
    once = default(obj, None, WITH_DEFAULTS).obj
    assert default(once, None, WITH_DEFAULTS).obj == once


# --- what all jobs have in common -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [job, gpujob])
def test_good_jobs_pass(make: Any):
    assert errors(make(queue="main")) == []


def test_a_job_without_a_queue_is_not_judged():
    assert errors(job(labels={names.MAX_EXEC_TIME: "never"}, parallelism=0)) == []


def test_a_queue_name_is_a_subdomain():
    [error] = errors(job(queue="Main_Queue"))
    assert error == (
        f'metadata.labels[{QUEUE}]: Invalid value: "Main_Queue": a lowercase RFC 1123 subdomain must consist of lower '
        "case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character "
        "(e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0", "Invalid value: 0: should be greater than 0"),
        ("-5", "Invalid value: -5: should be greater than 0"),
        ("1h", 'Invalid value: "1h": strconv.Atoi: parsing "1h": invalid syntax'),
        ("9" * 30, "value out of range"),
        ("3600", ""),
    ],
)
def test_maximum_execution_time(value: str, said: str):
    found = errors(job(queue="main", labels={names.MAX_EXEC_TIME: value}))
    assert found == [] if not said else said in found[0]


@pytest.mark.parametrize(("value", "said"), [("2026-12-01T08:00:00Z", ""), ("tomorrow", "must be a time such as")])
def test_the_date_by_which_room_is_made(value: str, said: str):
    found = errors(job(queue="main", annotations={names.START_BY: value}))
    assert found == [] if not said else said in found[0] and names.START_BY in found[0]


@pytest.mark.parametrize(
    ("value", "said"), [("30m", ""), ("1h30m", ""), ("soon", "a duration"), ("0s", "greater than 0")]
)
@pytest.mark.parametrize("name", [names.CHECKPOINT_INTERVAL, names.UNSCHEDULED_TIMEOUT])
def test_annotations_that_are_durations(name: str, value: str, said: str):
    found = errors(job(queue="main", annotations={name: value}))
    assert found == [] if not said else said in found[0] and name in found[0]


@pytest.mark.parametrize(
    ("labels", "limit", "said"),
    [
        ({names.ARRAY: "sweep"}, "10", ""),
        ({names.ARRAY: "sweep"}, "0", "should be a whole number greater than 0"),
        ({names.ARRAY: "sweep"}, "ten", "should be a whole number greater than 0"),
        ({names.ARRAY: "sweep"}, "9" * 5000, "should be a whole number greater than 0"),
        ({}, "10", "Required value: names the array whose tasks the limit is for"),
    ],
)
def test_the_limit_of_an_array(labels: dict[str, str], limit: str, said: str):
    obj = job(queue="main", labels=labels, annotations={names.ARRAY_LIMIT: limit})
    found = errors(obj, obj)
    assert bool(found) == bool(said) and all(said in each for each in found), found


def test_a_running_job_is_adopted_by_naming_queue_and_workload_at_once():
    adopted = running(job(queue="main", labels={names.PREBUILT_WORKLOAD: "job-train"}))
    assert errors(adopted, running(job())) == []
    assert len(errors(running(job(queue="main")), running(job()))) == 1, "the Workload is missing"
    assert len(errors(adopted, running(job(labels={names.PREBUILT_WORKLOAD: "other"})))) == 2


def test_the_queue_of_a_running_job_is_fixed():
    old = running(job(queue="main"))
    assert errors(running(job(queue="other")), old) == [
        f'metadata.labels[{QUEUE}]: Invalid value: "other": field is immutable'
    ]
    assert errors(held(job(queue="other")), held(job(queue="main"))) == []
    assert errors(running(job(annotations={QUEUE: "main"})), old) == []  # the same queue, named otherwise


def test_a_job_can_not_leave_its_queue_where_there_is_a_default():
    old = held(job(queue="main"))
    assert errors(held(job()), old, WITH_DEFAULTS) == [
        f'metadata.labels[{QUEUE}]: Invalid value: "": queue-name must not be empty in namespace with default queue'
    ]
    assert errors(held(job()), old) == []


def test_priority_classes_come_and_go_by_rule():
    plain = job(queue="main")
    ranked = job(queue="main", labels={CLASS: "high"})
    path = f"metadata.labels[{CLASS}]"
    assert errors(running(ranked), running(plain)) == [
        f'{path}: Invalid value: "high": WorkloadPriorityClass cannot be added to a non-suspended workload'
    ]
    assert errors(held(ranked), held(plain)) == []
    assert errors(held(plain), held(ranked)) == [
        f'{path}: Invalid value: "": WorkloadPriorityClass cannot be removed from a workload'
    ]
    assert errors(running(job(queue="main", labels={CLASS: "low"})), running(ranked)) == []


def test_the_time_limit_of_a_running_job_is_fixed():
    short, long = (job(queue="main", labels={names.MAX_EXEC_TIME: value}) for value in ("10", "20"))
    assert errors(running(long), running(short)) == [
        f'metadata.labels[{names.MAX_EXEC_TIME}]: Invalid value: "20": field is immutable'
    ]
    assert errors(held(long), held(short)) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("", "a.io/x", "Forbidden: cannot add admission gate after creation"),
        ("a.io/x", "a.io/x,b.io/y", "Forbidden: can only remove gates, not add new ones"),
        ("a.io/x,b.io/y", "b.io/y", ""),
        ("a.io/x", "", ""),
    ],
)
def test_gates_can_only_go(before: str, after: str, said: str):
    old, new = (
        held(job(queue="main", annotations={names.ADMISSION_GATED_BY: gates} if gates else None))
        for gates in (before, after)
    )
    path = f"metadata.annotations[{names.ADMISSION_GATED_BY}]"
    assert errors(new, old) == ([f"{path}: {said}"] if said else [])


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        ("a.io/x,", "cannot contain empty gate names"),
        ("a.io/x,a.io/x", "duplicate gate name: a.io/x"),
        ("plain", "must be a domain-prefixed path"),
        ("a.io/" + "x" * 60, "may not be more than 63 bytes"),
        ("a.io/x, b.io/y", ""),
    ],
)
def test_gate_names(gates: str, said: str):
    found = errors(job(queue="main", annotations={names.ADMISSION_GATED_BY: gates}))
    assert found == [] if not said else said in found[0]


def test_an_elastic_job_stays_elastic():
    elastic = job(queue="main", annotations={"kueue.x-k8s.io/elastic-job": "true"})
    [error] = errors(held(job(queue="main")), held(elastic))
    assert error == "metadata.annotations[kueue.x-k8s.io/elastic-job]: Invalid value: false: field is immutable"


def test_a_huge_annotation_does_not_come_back_in_the_error():
    [error] = errors(job(annotations={QUEUE: "Q" * 2**20}))[:1]
    assert f"metadata.annotations[{QUEUE}]" in error
    assert len(error) < 1000


# --- batch/v1 Job -----------------------------------------------------------------------------------------------------

MIN, SYNC = names.MIN_PARALLELISM, names.COMPLETIONS_EQUAL_PARALLELISM


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0", "Invalid value: 0: should be between 0 and 7"),
        ("8", "Invalid value: 8: should be between 0 and 7"),
        ("x", 'Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax'),
        ("7", ""),
    ],
)
def test_minimum_parallelism(value: str, said: str):
    found = errors(job(queue="main", annotations={MIN: value}))
    assert found == ([f"metadata.annotations[{MIN}]: {said}"] if said else [])


def test_completions_that_follow_parallelism():
    path = f"metadata.annotations[{SYNC}]"
    good = job(queue="main", annotations={SYNC: "true"})
    assert errors(good) == []
    assert errors(job(queue="main", annotations={SYNC: "yes"})) == [
        f'{path}: Invalid value: "yes": strconv.ParseBool: parsing "yes": invalid syntax'
    ]
    assert errors(job(queue="main", annotations={SYNC: "true"}, completionMode="NonIndexed", completions=9)) == [
        f'{path}: Invalid value: "true": should not be enabled for NonIndexed jobs',
        f"spec.completions: Invalid value: 9: should be equal to parallelism when {SYNC} is annotation is true",
    ]
    assert errors(running(job(queue="main")), running(good)) == [
        f"{path}: Forbidden: field is immutable while the job is not suspended"
    ]


def test_a_partly_admitted_job_keeps_its_size():
    old = running(job(queue="main", annotations={MIN: "2"}, parallelism=4))
    resized = running(job(queue="main", annotations={MIN: "2"}, parallelism=8))
    assert errors(resized, old) == [
        "spec.parallelism: Forbidden: cannot change when partial admission is enabled and the job is not suspended"
    ]
    assert errors(held(resized), old) == []  # the stop that restores it
    assert errors(old, held(resized)) == []  # the start with fewer pods


def test_a_gang_of_no_pods():
    assert errors(job(queue="main", parallelism=0)) == []  # as in Kueue: it is admitted, and waits for its pods
    assert errors(job(queue="main", parallelism=0, completions=0)) == []
    assert errors(running(job(queue="main", parallelism=0)), running(job(queue="main"))) == []  # a pause is allowed


def test_an_elastic_job_can_not_ask_for_a_place():
    elastic = job(queue="main", annotations={"kueue.x-k8s.io/elastic-job": "true"})
    elastic["spec"]["template"]["metadata"] = {"annotations": {names.REQUIRED_TOPOLOGY: "rack"}}
    assert errors(elastic) == [
        f"spec.template.metadata.annotations.{names.REQUIRED_TOPOLOGY}: Forbidden: "
        "required topology is not supported with elastic jobs"
    ]


TAS = "spec.template.metadata.annotations"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({names.REQUIRED_TOPOLOGY: "rack"}, []),
        ({names.SLICE_REQUIRED_TOPOLOGY: "rack", names.SLICE_SIZE: "4"}, []),
        (
            {names.REQUIRED_TOPOLOGY: "rack", names.PREFERRED_TOPOLOGY: "rack"},
            [
                f"{TAS}: Invalid value: must not contain more than one topology annotation: "
                f'["{names.REQUIRED_TOPOLOGY}", "{names.PREFERRED_TOPOLOGY}", "{names.UNCONSTRAINED_TOPOLOGY}"]'
            ],
        ),
        (
            {names.UNCONSTRAINED_TOPOLOGY: "maybe"},
            [f'{TAS}[{names.UNCONSTRAINED_TOPOLOGY}]: Invalid value: "maybe": must be a boolean value'],
        ),
        (
            {names.SLICE_REQUIRED_TOPOLOGY: "rack"},
            [
                f"{TAS}[{names.SLICE_SIZE}]: Required value: must be set when "
                f"'{names.SLICE_REQUIRED_TOPOLOGY}' is specified"
            ],
        ),
        (
            {names.SLICE_REQUIRED_TOPOLOGY: "rack", names.SLICE_SIZE: "9"},
            [f'{TAS}[{names.SLICE_SIZE}]: Invalid value: "9": must not be greater than pod set count 8'],
        ),
        (
            {names.SLICE_REQUIRED_TOPOLOGY: "rack", names.SLICE_SIZE: "many"},
            [f'{TAS}[{names.SLICE_SIZE}]: Invalid value: "many": must be a numeric value'],
        ),
        (
            {names.SLICE_SIZE: "2"},
            [
                f"{TAS}[{names.SLICE_SIZE}]: Forbidden: may not be set when "
                f"'{names.SLICE_REQUIRED_TOPOLOGY}' is not specified"
            ],
        ),
        (
            {names.PODSET_GROUP: "7", names.REQUIRED_TOPOLOGY: "rack"},
            [f'{TAS}[{names.PODSET_GROUP}]: Invalid value: "7": must not be a number'],
        ),
    ],
)
def test_topology_requests(asked: Json, said: list[str]):
    obj = job(queue="main")
    obj["spec"]["template"]["metadata"] = {"annotations": asked}
    assert errors(obj) == said


LAYERS = "kueue.x-k8s.io/podset-slice-required-topology-constraints"


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ('[{"topology": "block", "size": 8}, {"topology": "rack", "size": 4}]', ""),
        ("[", "must be a valid JSON array"),
        ("{}", "must contain between 1 and 3 layers"),
        ('[{"topology": "block", "size": 0}]', "[0].size: Invalid value: 0: must be greater than or equal to 1"),
        ('[{"topology": "block", "size": 16}]', "must not be greater than pod set count 8"),
        ('[{"topology": "b", "size": 8}, {"topology": "r", "size": 3}]', "must evenly divide the parent layer size 8"),
        ('[{"topology": "b", "size": 8}, {"topology": "b", "size": 4}]', '[1].topology: Duplicate value: "b"'),
    ],
)
def test_slices_within_slices(layers: str, said: str):
    obj = job(queue="main")
    obj["spec"]["template"]["metadata"] = {"annotations": {LAYERS: layers}}
    found = errors(obj)
    assert found == [] if not said else said in found[0]


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ({"cpu": "-1"}, '.resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
        ({"cpu": "one"}, "quantities must match"),
        ({"pods": "1"}, '.resources.requests[pods]: Invalid value: "pods": the key is reserved for internal kueue use'),
    ],
)
def test_requests_are_countable(requests: Json, said: str):
    obj = job(queue="main")
    obj["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = requests
    [error] = errors(obj)
    assert error.startswith("spec.template.spec.containers[0].resources.requests[")
    assert said in error


# --- GPUJob -----------------------------------------------------------------------------------------------------------


def role(**fields: Any) -> Json:
    return {**gpujob()["spec"]["roles"][0], **fields}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"roles": []}, "spec.roles: Required value: a gang needs at least one role"),
        ({"roles": [role(name="")]}, "spec.roles[0].name: Required value"),
        ({"roles": [role(), role()]}, 'spec.roles[1].name: Duplicate value: "worker"'),
        ({"roles": [role(replicas=0)]}, "spec.roles[0].replicas: Invalid value: 0: must be greater than or equal to 1"),
        ({"roles": [role(gpus=-1)]}, "spec.roles[0].gpus: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"roles": [role(minReplicas=9)]},
            "spec.roles[0].minReplicas: Invalid value: 9: must be less than or equal to spec.roles[0].replicas",
        ),
        (
            {"roles": [role(minReplicas=1), role(name="ps", minReplicas=1)]},
            "spec.roles[1].minReplicas: Invalid value: 1: at most one role can use minReplicas",
        ),
        ({"roles": [role(template={})]}, "spec.roles[0].template: Required value"),
        (
            {"roles": [role(template={"spec": {"containers": []}})]},
            "spec.roles[0].template.spec.containers: Required value: a pod needs at least one container",
        ),
        ({"workers": 2}, "spec.workers: Forbidden: may not be set when roles are given"),
        ({"roles": None}, "spec.roles: Required value: give roles, or workers and a template"),
        (
            {"runtime": {"expected": "3h", "limit": "2h"}},
            'spec.runtime.expected: Invalid value: "3h": must not exceed spec.runtime.limit',
        ),
        ({"runtime": {"steps": 5}}, "spec.runtime.secondsPerStep: Required value: must be set when steps is set"),
    ],
)
def test_gangs_that_make_no_sense(spec: Json, said: str):
    assert errors(gpujob(**spec)) == [said]
    assert errors(gpujob(queue="", **spec)) == [said]  # our own kind is checked with or without a queue


def test_role_names_are_dns_labels():
    [error] = errors(gpujob(roles=[role(name="Worker")]))
    assert error.startswith('spec.roles[0].name: Invalid value: "Worker": a lowercase RFC 1123 label must consist of')


def test_the_short_form_is_one_role():
    short = gpujob(roles=None, workers=4, gpusPerWorker=4, minWorkers=2, template=role()["template"])
    assert errors(short) == []
    short["spec"]["minWorkers"] = 5
    assert errors(short) == ["spec.minWorkers: Invalid value: 5: must be less than or equal to spec.workers"]


HALF = {"by": "HAMi", "percent": 50}
CLAIMED = {"by": "DRA", "percent": 50, "memory": "8Gi", "deviceClass": "gpu.example.com"}
#: a template that leaves GPUs to the role
BARE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def sharing(gpus: int = 1, share: Json | None = None, template: Json | None = None) -> Json:
    return role(gpus=gpus, share=share or HALF, template=template or BARE)


def test_parts_of_gpus_can_be_asked_for():
    assert errors(gpujob(roles=[sharing()])) == []
    assert errors(gpujob(roles=[sharing(2, {"by": "KAI", "percent": 1})])) == []
    short = gpujob(roles=None, workers=4, gpusPerWorker=8, share=HALF, template=BARE)
    assert errors(short) == []
    assert errors(gpujob(roles=[role(gpus=4)], share=HALF)) == [
        "spec.share: Forbidden: may not be set when roles are given"
    ]
    [error] = errors(running(gpujob(roles=[sharing()])), running(gpujob(roles=[role(gpus=4)])))
    assert error.startswith("spec.roles: Invalid value: ") and error.endswith("field is immutable")


@pytest.mark.parametrize(
    ("share", "more", "said"),
    [
        ({"by": "HAMi"}, {}, "spec.roles[0].share.percent: Required value"),
        ({"percent": 5}, {}, "spec.roles[0].share.by: Required value"),
        (
            {"by": "Run", "percent": 5},
            {},
            'spec.roles[0].share.by: Invalid value: "Run": must be one of HAMi, KAI, DRA, VisibleDevices, Annotations',
        ),
        (
            {"by": "KAI", "percent": 0},
            {},
            "spec.roles[0].share.percent: Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            {"by": "KAI", "percent": 100},
            {},
            "spec.roles[0].share.percent: Invalid value: 100: must be less than or equal to 99",
        ),
        (
            {**HALF, "memory": "much"},
            {},
            'spec.roles[0].share.memory: Invalid value: "much": must be memory of a card, such as 8Gi',
        ),
        (
            {"by": "KAI", "percent": 5, "memory": "8Gi"},
            {},
            "spec.roles[0].share.memory: Forbidden: KAI divides memory as it divides the compute power",
        ),
        (HALF, {"gpus": 0}, "spec.roles[0].gpus: Required value: there is no GPU to share"),
        (
            {**CLAIMED, "deviceClass": None},
            {},
            "spec.roles[0].share.deviceClass: Required value: the DeviceClass of the cards",
        ),
        (
            {**CLAIMED, "memory": None},
            {},
            "spec.roles[0].share.memory: Required value: a claim that does not say takes all memory of the card",
        ),
        (
            {**CLAIMED, "compute": "tflops"},
            {},
            'spec.roles[0].share.compute: Invalid value: "tflops": must be milli or cores, with the domain of its driver if it '
            "has one",
        ),
        (CLAIMED, {"gpus": 33}, "spec.roles[0].gpus: Invalid value: 33: a claim has at most 32 GPUs"),
        (
            {**HALF, "deviceClass": "gpu.example.com"},
            {},
            "spec.roles[0].share.deviceClass: Forbidden: belongs to a claim, which only DRA makes",
        ),
        (
            {**HALF, "compute": "cores"},
            {},
            "spec.roles[0].share.compute: Forbidden: belongs to a claim, which only DRA makes",
        ),
    ],
)
def test_shares_that_make_no_sense(share: Json, more: Json, said: str):
    assert errors(gpujob(roles=[sharing(**{"share": share, **more})])) == [said]


def test_claims_share_cards_of_any_kind():
    assert errors(gpujob(roles=[sharing(4, CLAIMED)], gpuResource="amd.com/gpu")) == []
    visible = {"by": "VisibleDevices", "percent": 50}
    assert errors(gpujob(roles=[sharing(4, visible)], gpuResource="amd.com/gpu")) == []
    assert errors(gpujob(roles=[sharing(1, {**CLAIMED, "compute": "gpu.example.com/cores"})])) == []
    (error,) = errors(gpujob(roles=[sharing(1, {**CLAIMED, "deviceClass": "GPU!"})]))
    assert error.startswith('spec.roles[0].share.deviceClass: Invalid value: "GPU!": ')


def test_a_template_has_no_claim_of_the_same_name():
    own = {"spec": {**BARE["spec"], "resourceClaims": [{"name": "gangline-gpu", "resourceClaimName": "mine"}]}}
    assert errors(gpujob(roles=[sharing(1, CLAIMED, own)])) == [
        'spec.roles[0].template.spec.resourceClaims[0].name: Duplicate value: "gangline-gpu"'
    ]


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": {"annotations": {"gpu-fraction": "0.5"}}},
        {"metadata": {"annotations": {"gangline.io/gpu-share": "0.5"}}},
        {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}},
    ],
)
def test_a_template_does_not_ask_for_gpus_besides_a_share(template: Json):
    assert errors(gpujob(roles=[sharing(template={**BARE, **template})])) == [
        "spec.roles[0].share: Forbidden: spec.roles[0].template asks for GPUs itself"
    ]


def test_only_hamis_and_kais_gpus_can_be_shared():
    [error] = errors(gpujob(roles=[sharing()], gpuResource="amd.com/gpu"))
    assert error.startswith("spec.roles[0].share: Forbidden: only nvidia.com/gpu can be shared")


def test_a_running_gang_keeps_its_shape():
    old = running(gpujob())
    [error] = errors(running(gpujob(roles=[role(replicas=9)])), old)
    assert error.startswith("spec.roles: Invalid value: ")
    assert error.endswith("field is immutable")
    assert errors(held(gpujob(roles=[role(replicas=9)])), held(gpujob())) == []
    assert errors(running(gpujob(restart={"maxRestarts": 5})), old) == []
    [error] = errors(running(gpujob(runtime={"limit": "2h"})), running(gpujob(runtime={"limit": "1h"})))
    assert error.startswith("spec.runtime.limit: Invalid value: ")


def test_two_roles_can_stand_together():
    def grouped(**fields: Any) -> Json:
        body = role(**fields)
        body["template"] = copy.deepcopy(body["template"])
        asked = {names.PODSET_GROUP: "pair", names.REQUIRED_TOPOLOGY: "rack"}
        body["template"]["metadata"] = {"annotations": asked}
        return body

    assert errors(gpujob(roles=[grouped(name="leader", replicas=1), grouped()])) == []
    found = errors(gpujob(roles=[grouped(name="a"), grouped(name="b")]))
    assert len(found) == 2
    assert "can only define groups where at least one pod set has only 1 replica, got: 8 replica(s) and 8" in found[0]
    assert "can only define groups of exactly 2 pod sets, got: 1 pod set(s)" in errors(gpujob(roles=[grouped()]))[0]


@pytest.mark.parametrize(
    ("gpus", "limits", "refused"),
    [
        (8, {"nvidia.com/gpu": 4}, True),
        (8, {"nvidia.com/gpu": "8"}, False),
        (8, {}, False),
        (None, {"nvidia.com/gpu": 4}, False),
        (8, {"nvidia.com/gpu": "many"}, False),  # another rule refuses it
        (8, {"example.com/gpu": 4}, False),
    ],
)
def test_gpus_that_are_given_twice_must_agree(gpus: int | None, limits: Json, refused: bool):
    made = template()
    made["spec"]["containers"][0]["resources"] = {"limits": limits}
    spec: Json = {"roles": None, "workers": 2, "template": made}
    if gpus is not None:
        spec["gpusPerWorker"] = gpus
    found = [error for error in errors(gpujob(queue="main", **spec)) if "gpusPerWorker" in error]
    assert bool(found) is refused
    if refused:
        detail = "must be 4, as spec.template asks for 4 of nvidia.com/gpu per pod, or be left out"
        assert found == [f"spec.gpusPerWorker: Invalid value: 8: {detail}"]
    roles = [{"name": "worker", "replicas": 2, "gpus": gpus, "template": made}]
    assert (
        any(error.startswith("spec.roles[0].gpus:") for error in errors(gpujob(queue="main", roles=roles))) is refused
    )


def test_a_gpujob_that_is_stored_already_may_go_on():
    made = template()
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 4}}
    stored = gpujob(queue="main", roles=[{"name": "worker", "gpus": 8, "template": made}])
    assert not [error for error in errors(relabelled(stored, other="label"), stored) if "gpus" in error]


@pytest.mark.parametrize("waits", [True, False])
def test_a_child_of_a_queued_job_runs_no_sooner_than_that(waits: bool):
    context = AdmissionFacts(owner_is_queued=lambda *_: True, owner_waits=lambda *_: waits)
    child, held = job(), job()
    for each in (child, held):
        each["metadata"]["ownerReferences"] = [
            {"apiVersion": "gangline.io/v1alpha1", "kind": "GPUJob", "name": "g", "uid": "u", "controller": True}
        ]
    held["spec"]["suspend"] = True
    assert bool(default(child, None, context).obj["spec"].get("suspend")) is waits
    started = default(child, held, context)
    assert bool(started.obj["spec"].get("suspend")) is waits
    said = ['it belongs to GPUJob "g", which waits for its quota: it is suspended'] if waits else []
    assert list(started.warnings) == said
    assert not default(child, child, context).obj["spec"].get("suspend"), "it runs: the operator stops it"


def pod_with(containers: int, amounts: int) -> Json:
    requests = {f"example.com/r{number}": "1" for number in range(amounts)}
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}] * containers}}


@pytest.mark.parametrize(
    ("containers", "amounts", "said"),
    [
        (MOST_CONTAINERS, 1, ""),
        (MOST_CONTAINERS + 1, 0, "spec.template.spec.containers: Too many: 1001: must have at most 1000 items"),
        (1, MOST_AMOUNTS, ""),
        (10, MOST_AMOUNTS // 10 + 1, "spec.template.spec: Too many: 1010: must name at most 1000 amounts of resources"),
    ],
)
def test_a_pod_has_so_many_containers_and_amounts(containers: int, amounts: int, said: str):
    found = validate(job(queue="main", template=pod_with(containers, amounts)), None, SIMPLE)
    assert [str(error)[: len(said)] for error in found] == ([said] if said else [])
