"""Fields of the choice among flavors: spec.flavors of a QueuePolicy, and how fast a job says that it is on which flavor."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.admission import AdmissionFacts, validate
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
