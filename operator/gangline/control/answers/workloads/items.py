"""A workload in an answer: JSON with stable field names, and the view that a client makes of it again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from gangline.api import quantity
from gangline.control.answers.workloads.snapshot import JobState, WorkloadView
from gangline.control.answers.workloads.words import amount, why
from gangline.kube.resources import Json

_FIELDS: Final = tuple(field.name for field in fields(WorkloadView))


def as_json(view: WorkloadView) -> dict[str, Any]:
    """The JSON of a workload. `position` counts from 0, as in Kueue's visibility API; times are seconds since the epoch."""
    fields: dict[str, Any] = {name: getattr(view, name) for name in _FIELDS} | {
        "state": str(view.state),
        "flavors": list(view.flavors),
        "warnings": list(view.warnings),
        "gpus": view.gpus,
        "never_fits": view.never_fits,
        "why": why(view) if view.state is not JobState.SUCCEEDED else "",
        "held": [{"flavor": f, "resource": r, "amount": amount(n, r)} for (f, r), n in view.held.items()],
        "amounts": {r: amount(n, r) for r, n in view.amounts.items()},
    }
    return {_NAMES[name]: value for name, value in fields.items()}


def of_json(item: Json) -> WorkloadView:
    """The view of an item. Raises KeyError, TypeError or ValueError for anything else."""
    known = {name: item[_NAMES[name]] for name in _FIELDS if _NAMES[name] in item}
    return WorkloadView(
        **known
        | {
            "state": JobState(item["state"]),
            "flavors": tuple(item["flavors"]),
            "warnings": tuple(item["warnings"]),
            "held": {(row["flavor"], row["resource"]): _amount(row["amount"], row["resource"]) for row in item["held"]},
            "amounts": {resource: _amount(text, resource) for resource, text in item["amounts"].items()},
        }
    )


def _amount(text: str, resource: str) -> int:
    return quantity.parse(text, resource)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


#: as the API writes them
_NAMES: Final = {name: _camel(name) for name in (*_FIELDS, "gpus", "never_fits", "why")}
