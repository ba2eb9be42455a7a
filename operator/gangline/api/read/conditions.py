"""Kubernetes conditions as plain JSON lists, and RFC 3339 times.

A condition keeps its `lastTransitionTime` while its status stays the same, as `metav1.Condition` demands.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from gangline import bounded
from gangline.kube.resources import Json

Conditions = list[Json]

#: The API refuses longer messages; a cut is marked.
MAX_MESSAGE = 32_768


def timestamp(millis: int) -> str:
    """RFC 3339 in seconds, as `metav1.Time` prints it."""
    return _in_seconds(millis // 1000)


@lru_cache(maxsize=256)
def _in_seconds(seconds: int) -> str:
    """Thousands of conditions get the time of the same few seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@bounded.parser(64, worst=("2026-01-31T12:00:00Z", "T", "9", ".9"))
def millis_of(text: str | None) -> int:
    """The inverse of `timestamp`; 0 for an absent time."""
    if not text:
        return 0
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def cut(message: str) -> str:
    """The message as the API takes it."""
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 4] + " ..."


def find(conditions: Conditions | None, kind: str) -> Json | None:
    return next((c for c in conditions or () if c.get("type") == kind), None)


def is_true(conditions: Conditions | None, kind: str) -> bool:
    found = find(conditions, kind)
    return found is not None and found.get("status") == "True"


def mark_observed(old: Json, new: Json, generation: int) -> None:
    """Record on each condition of the status `new` that differs from its like in `old` the generation that it is about."""
    before = {row.get("type"): row for row in old.get("conditions") or ()}
    for row in new.get("conditions") or ():
        if generation and row != before.get(row.get("type")):
            row["observedGeneration"] = generation


def put(
    conditions: Conditions,
    kind: str,
    status: bool,
    reason: str,
    message: str,
    *,
    now: int | str,
    generation: int | None = None,
) -> bool:
    """Set one condition in place. Returns whether anything but its observed generation changed.

    `now`: in milliseconds, or as an API server has written a time.
    """
    wanted = "True" if status else "False"
    message = cut(message)
    current = find(conditions, kind)
    if current is None:
        conditions.append({"type": kind, "status": "", "reason": "", "message": "", "lastTransitionTime": ""})
        current = conditions[-1]
    changed = (current["status"], current.get("reason"), current.get("message")) != (wanted, reason, message)
    if current["status"] != wanted or not current.get("lastTransitionTime"):
        current["lastTransitionTime"] = now if isinstance(now, str) else timestamp(now)
    current.update(status=wanted, reason=reason, message=message)
    if generation is not None:
        current["observedGeneration"] = generation
    return changed
