"""Admission checks that would send workloads to other clusters say why their queues are inactive."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api import names
from gangline.api.admission import multikueue
from gangline.control.writes.unanswered_checks import MESSAGE, REASON, inactive_status

Json = dict[str, Any]
NOW = 1_800_000_000_000


def check(*conditions: Json, controller: str = multikueue.CONTROLLER) -> Json:
    return {
        "metadata": {"name": "elsewhere", "resourceVersion": "7", "generation": 2},
        "spec": {"controllerName": controller},
        "status": {"conditions": list(conditions)},
    }


def active(status: str, reason: str) -> Json:
    return {"type": names.ACTIVE, "status": status, "reason": reason, "message": "x", "lastTransitionTime": "t"}


def test_it_is_marked_once() -> None:
    other = {"type": "Other", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "t"}
    status = inactive_status(check(other), NOW)
    assert status is not None
    kept, written = status["conditions"]
    assert kept == other
    assert (written["type"], written["status"], written["reason"]) == (names.ACTIVE, "False", REASON)
    assert (written["message"], written["observedGeneration"]) == (MESSAGE, 2)
    assert inactive_status({**check(), "status": status}, NOW + 1) is None
    assert inactive_status({"metadata": {}, "spec": check()["spec"]}, NOW) is not None


@pytest.mark.parametrize(
    "answered",
    [
        check(active("True", "Active")),
        check(active("False", "SomeActiveClusters")),
        check(controller="kueue.x-k8s.io/provisioning-request"),
        check(controller="example.com/check"),
        {"metadata": {}},
    ],
)
def test_checks_that_somebody_answers_are_theirs(answered: Json) -> None:
    assert inactive_status(answered, NOW) is None
