"""The ClusterQueues that do not follow their QueuePolicy because of its floor, as the status of the QueuePolicy says."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

from gangline.api.read import conditions
from gangline.engine import PLAIN, PolicyFallback
from gangline.objects import Stored

Json: TypeAlias = dict[str, Any]

#: characters of the reason that are read
_MOST: Final = 500


def recorded(policy: Stored) -> dict[str, PolicyFallback]:
    """The modes of ClusterQueues that do not follow this policy, by ClusterQueue. Raises AttributeError, TypeError or ValueError
    for what no operator wrote.
    """
    found: dict[str, PolicyFallback] = {}
    rows: object = policy.status.get("fallenBack")
    for row in cast("list[object]", rows) if isinstance(rows, list) else ():
        if isinstance(row, dict):
            entry = cast(Json, row)
            mode, name, why = entry.get("mode"), entry.get("clusterQueue"), entry.get("message")
            if mode in PLAIN and isinstance(name, str):
                since = conditions.millis_of(entry.get("since"))
                found[name] = PolicyFallback(mode, since, why[:_MOST] if isinstance(why, str) else "")
    return found


def of_queue(policy: Stored | None, cluster_queue: str) -> PolicyFallback | None:
    """The mode that a ClusterQueue follows instead of this policy; None if it follows the policy."""
    try:
        return recorded(policy).get(cluster_queue) if policy is not None else None
    except (AttributeError, TypeError, ValueError):
        return None
