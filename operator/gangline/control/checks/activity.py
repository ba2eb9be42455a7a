"""The condition Active of an AdmissionCheck, and the reference to its configuration. Messages are Kueue's."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.kube.resources import Json, Resource
from gangline.objects import Stored


class UnusableError(Exception):
    """The check cannot be answered as it is configured; the message says why."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The condition Active of an AdmissionCheck."""

    active: bool
    reason: str
    message: str


ACTIVE = Activity(True, "Active", "The admission check is active")


def named_configuration(check: Stored, wanted: Resource) -> str:
    """The name of the configuration of this kind to which the check's parameters refer. Raises UnusableError."""
    parameters: Json | None = check.spec.get("parameters")
    if parameters is None:
        raise UnusableError("missing parameters reference")
    name = parameters.get("name") or ""
    if not name:
        raise UnusableError("empty name: bad parameters reference")
    for what, value, right in (
        ("group", parameters.get("apiGroup") or "", wanted.group),
        ("kind", parameters.get("kind") or "", wanted.kind),
    ):
        if value != right:
            raise UnusableError(f'wrong {what} "{value}", expecting "{right}": bad parameters reference')
    return name
