"""Fields of the choice among flavors: spec.flavors of a QueuePolicy, and how fast a job says that it is on which flavor."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api import names
from gangline.api.admission import AdmissionFacts, validate
from gangline.api.flavor_speeds import MOST_FLAVORS, declared_speeds
from gangline.api.read import policy_reader
from gangline.api.read.reading import ParseError
from gangline.engine.model import EarliestCompletion

Json = dict[str, Any]


def policy(flavors: Json | None) -> Json:
    spec = {"clusterQueues": {"names": ["q"]}, **({} if flavors is None else {"flavors": flavors})}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        (None, None),
        ({}, EarliestCompletion(3600.0)),
        ({"choose": "EarliestCompletion", "waitAtMost": "90m"}, EarliestCompletion(5400.0)),
        ({"waitAtMost": "0s"}, EarliestCompletion(0.0)),
        ({"choose": "QueueOrder", "waitAtMost": "90m"}, None),
    ],
)
def test_the_fields_and_their_defaults(fields: Json | None, read: EarliestCompletion | None) -> None:
    assert policy_reader.flavors(policy(fields)) == read
    assert validate(policy(fields), None, AdmissionFacts()) == []


@pytest.mark.parametrize("wait", ["soon", "-5m", "9" * 400])
def test_a_time_that_is_none_is_refused(wait: str) -> None:
    errors = [str(error) for error in validate(policy({"waitAtMost": wait}), None, AdmissionFacts())]
    assert len(errors) == 1 and "spec.flavors.waitAtMost" in errors[0]


def test_another_choice_is_not_read() -> None:
    with pytest.raises(ParseError, match=r"spec\.flavors\.choose"):
        policy_reader.flavors(policy({"choose": "Fastest"}))


# --- what a job says --------------------------------------------------------------------------------------------------


def job(speeds: str) -> Json:
    template = {"spec": {"containers": [{"name": "main", "image": "a"}], "restartPolicy": "Never"}}
    metadata = {
        "name": "j",
        "namespace": "team",
        "labels": {names.QUEUE_NAME: "q"},
        "annotations": {names.FLAVOR_SPEEDS: speeds},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": template},
    }


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a100=2.5,v100=1,cpu=0.1", {"a100": 2.5, "v100": 1.0, "cpu": 0.1}),
        (" a100=2 , v100=1 ", {"a100": 2.0, "v100": 1.0}),
        ("a.b-c=1000", {"a.b-c": 1000.0}),
        ("a=0.001", {"a": 0.001}),
    ],
)
def test_speeds_of_a_job(written: str, read: dict[str, float]) -> None:
    assert declared_speeds({names.FLAVOR_SPEEDS: written}) == read
    assert validate(job(written), None, AdmissionFacts()) == []


@pytest.mark.parametrize(
    "written",
    [
        "",
        "fast",
        "a100=",
        "a100=0",
        "a100=-1",
        "a100=1e3",
        "a100=1001",
        "a100=0.0009",
        "a100=nan",
        "a100=1,a100=2",
        "a100=1,,v100=1",
        "A100=1",
        ",".join(f"f{number}=1" for number in range(MOST_FLAVORS + 1)),
        "a" * 20_000,
    ],
)
def test_speeds_that_are_none_are_refused_and_not_read(written: str) -> None:
    errors = [str(error) for error in validate(job(written), None, AdmissionFacts())]
    assert len(errors) == 1 and "metadata.annotations[gangline.io/flavor-speeds]" in errors[0]
    assert declared_speeds({names.FLAVOR_SPEEDS: written}) == {}


def test_a_job_without_speeds_says_none() -> None:
    assert declared_speeds({}) == {} and declared_speeds({names.FLAVOR_SPEEDS: 3}) == {}
