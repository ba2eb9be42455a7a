"""Short texts about workloads, as all answers word them: amounts, durations, and why a workload is in its state."""

from __future__ import annotations

from gangline.api import quantity
from gangline.control.answers import reasons
from gangline.control.answers.snapshot import State, WorkloadView


def why(view: WorkloadView) -> str:
    """A short explanation of the workload's state; empty if the state needs none."""
    if view.hidden:
        return ""
    if view.state is State.RUNNING:
        return f"on {', '.join(view.flavors)}" if view.flavors else ""
    if view.state is State.STARTING:
        return f"on {', '.join(view.flavors)}" if view.flavors else "admitted"
    if view.state is State.SUCCEEDED:
        return ""
    if view.evicted and (view.state is State.STOPPING or view.reason in ("", "PendingEvaluation")):
        return view.evicted
    if view.state is State.PENDING:
        words = reasons.brief(view.reason, view.message) or "not evaluated yet"
        return f"{view.reason}: {words}" if view.reason and words != view.reason else words
    return f"{view.reason}: {view.message}" if view.message else view.reason


def amount(value: int, resource: str) -> str:
    return quantity.format(value, resource)


def age(seconds: float) -> str:
    """A duration as kubectl prints it: 42s, 3m12s, 47m, 5h10m, 3d4h, 12d."""
    s = max(0, int(seconds))
    minutes, hours, days = s // 60, s // 3600, s // 86400
    if s < 120:
        return f"{s}s"
    if minutes < 10:
        return f"{minutes}m{s % 60}s" if s % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d"


def runtime_text(p50: float, p90: float, flavor: str = "") -> str:
    """`p50 – p90` of a runtime in seconds, with the flavor if it makes a difference."""
    return f"{age(p50)} – {age(p90)}{f' on {flavor}' if flavor else ''}"
