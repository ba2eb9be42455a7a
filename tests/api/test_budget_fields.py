"""Budgets and limits of preemption in a QueuePolicy: what is refused, by which name, and what the operator reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.admission import AdmissionFacts, validate
from gangline.api.read import policy_reader
from gangline.api.read.parse import ParseError
from gangline.api.schema.v1alpha1.queuepolicy import QueuePolicy
from gangline.engine.model import ClusterQueue, PreemptionBounds, PreemptionLimits

Json = dict[str, Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "budgets" / "policy.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "budgets.md"


def policy(**spec: Any) -> Json:
    body = {"clusterQueues": {"names": ["q"]}, **spec}
    return {"apiVersion": "gangline.io/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": "p"}, "spec": body}


def budget(**fields: Any) -> Json:
    return policy(budgets=[{"name": "b", "gpuHours": "10", **fields}])


def errors(obj: Json) -> list[str]:
    return [str(error) for error in validate(obj, None, AdmissionFacts())]


def test_the_example_is_valid_and_read_as_the_page_says() -> None:
    obj = yaml.safe_load(EXAMPLE.read_text())
    assert errors(obj) == []
    QueuePolicy.model_validate(obj)
    contract, fair_use, course, project = policy_reader.budgets(obj)
    assert (contract.per, contract.hours, contract.period.kind, contract.at100) == (
        "ClusterQueue",
        2e5,
        "Month",
        "Notify",
    )
    assert (fair_use.period.length, fair_use.at100) == (720 * 3600, "LowerOrder")
    assert (course.only, course.at100, str(course.period.zone)) == ({"course-ml"}, "HoldStarts", "Europe/Berlin")
    assert (project.per, project.label) == ("JobLabel", "example.com/project")
    shown = yaml.safe_load(PAGE.read_text().split("```yaml\n")[1].split("```")[0])
    assert errors(shown) == []
    assert [each.name for each in policy_reader.budgets(shown)] == ["contract", "fair-use", "course", "project"]


def test_limits_are_read_and_none_means_as_ever() -> None:
    limits = {"causes": {"perHour": 2}, "suffers": {"lostGpuHoursPerDay": "1.5"}}
    queue = policy_reader.with_policy(ClusterQueue("q"), policy(preemptionLimits=limits))
    assert queue.preemption_limits == PreemptionLimits(PreemptionBounds(2), PreemptionBounds(None, 1.5))
    for nothing in ({}, {"preemptionLimits": {}}, {"preemptionLimits": {"causes": {}}}):
        assert policy_reader.with_policy(ClusterQueue("q"), policy(**nothing)).preemption_limits is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gpuHours": "-1"}, "spec.budgets[0].gpuHours: Invalid value"),
        ({"gpuHours": "1e15"}, "spec.budgets[0].gpuHours"),
        ({"gpuHours": "many"}, "spec.budgets[0].gpuHours"),
        ({"period": "Rolling"}, "spec.budgets[0].window: Required value"),
        ({"period": "Rolling", "window": "1s"}, "must be from 1m to 8784h"),
        ({"period": "Rolling", "window": "9000h"}, "must be from 1m to 8784h"),
        ({"period": "Rolling", "window": "soon"}, "spec.budgets[0].window"),
        ({"period": "Month", "window": "1h"}, "needs period Rolling"),
        ({"timeZone": "Mars/Olympus"}, "spec.budgets[0].timeZone"),
        ({"timeZone": "../../etc/passwd"}, "there is no time zone"),
        ({"timeZone": "Europe"}, "there is no time zone"),
        ({"per": "NamespaceLabel"}, "spec.budgets[0].label: Required value"),
        ({"per": "NamespaceLabel", "label": "not a key"}, "spec.budgets[0].label"),
        ({"per": "JobLabel"}, "a budget per JobLabel names a label"),
        ({"per": "JobLabel", "label": "not a key"}, "spec.budgets[0].label"),
        ({"per": "User", "label": "team"}, "needs per NamespaceLabel or JobLabel"),
        ({"per": "LocalQueue", "only": ["q"]}, "spec.budgets[0].only[0]"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(fields: Json, said: str) -> None:
    (error,) = errors(budget(**fields))
    assert said in error


@pytest.mark.parametrize(
    "fields",
    [{"timeZone": "Mars/Olympus"}, {"period": "Rolling", "window": "1s"}, {"period": "Rolling"}, {"per": "JobLabel"}],
)
def test_a_policy_that_was_stored_without_the_webhook_is_not_read(fields: Json) -> None:
    with pytest.raises(ParseError, match=r"spec\.budgets\[0\]"):
        policy_reader.budgets(budget(**fields))


@pytest.mark.parametrize("side", ["causes", "suffers"])
def test_limits_are_not_negative(side: str) -> None:
    (error,) = errors(policy(preemptionLimits={side: {"lostGpuHoursPerDay": "-2"}}))
    assert f"spec.preemptionLimits.{side}.lostGpuHoursPerDay" in error
