"""JSON output of workloads, for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gangline.console.views import table
from gangline.console.views.snapshot import State, WorkloadView


def as_json(view: WorkloadView) -> dict[str, Any]:
    """A workload as JSON with stable field names; `position` counts from 0, as in Kueue's visibility API."""
    fields = asdict(view) | {
        "state": str(view.state),
        "gpus": view.gpus,
        "neverFits": view.never_fits,
        "why": table.why(view) if view.state is not State.SUCCEEDED else "",
        "held": [{"flavor": f, "resource": r, "amount": table.amount(n, r)} for (f, r), n in view.held.items()],
        "amounts": {r: table.amount(n, r) for r, n in view.amounts.items()},
    }
    return {_camel(name): value for name, value in fields.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
