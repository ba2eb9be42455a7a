"""Objects as the mirror stores them, for tests that make them."""

from __future__ import annotations

from typing import Any, TypeVar

from gangline.kube import resources as kube
from gangline.objects import JobObject, NodeObject, PodObject, Stored, WorkloadObject, view

__all__ = [
    "JobObject",
    "NodeObject",
    "PodObject",
    "Stored",
    "WorkloadObject",
    "altered",
    "as_stored",
    "condition_of",
    "true_condition",
]

T = TypeVar("T", bound=dict[str, Any])


def as_stored(obj: dict[str, Any]) -> Any:
    """The object with the names of its kind; without a kind with those it has, else with those of a job."""
    resource = kube.BY_KIND.get(str(obj.get("kind")))
    if resource is not None:
        return view(resource, obj)
    return obj if isinstance(obj, Stored) else JobObject(obj)


def altered(obj: T, **parts: Any) -> T:
    """A copy of the object, of the same type, with other parts."""
    return type(obj)({**obj, **parts})


def condition_of(obj: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """The row of this type among the conditions of an object's status."""
    return Stored(obj).condition(kind)


def true_condition(obj: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """The condition of this type if its status is True."""
    return Stored(obj).true_condition(kind)
