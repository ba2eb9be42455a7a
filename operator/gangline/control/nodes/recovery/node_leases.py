"""The times at which each node last renewed its Lease, by this process's own clock.

A kubelet renews the Lease of its node every quarter of the Lease's duration. Only that a renewal arrived counts, and when: the
times written in Leases are those of other clocks, and are compared for equality alone. Times here are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gangline.kube.resources import Json
from gangline.objects import Stored

NAMESPACE: Final = "kube-node-lease"
#: Kubernetes' default, and the most that counts
DURATION: Final = 40
LONGEST: Final = 3600
#: Kubelets add up to 4 % to the time between two renewals; and a renewal takes a moment. A node that is later is only probed.
_LATE: Final = 1.04
_SLACK: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Renewal:
    written: str
    heard: float
    interval: float


class NodeLeases:
    """The Leases of all nodes that have one."""

    def __init__(self) -> None:
        self._renewals: dict[str, _Renewal] = {}

    def put(self, lease: Stored, now: float) -> bool:
        """Store a Lease. Returns whether it was renewed; the first sight of it is no renewal, since it may be old."""
        name, spec = lease.name, lease.spec
        written, before = str(spec.get("renewTime")), self._renewals.get(name)
        if before is not None and before.written == written:
            return False
        self._renewals[name] = _Renewal(written, now, _duration(spec) / 4 * _LATE + _SLACK)
        return before is not None

    def remove(self, name: str) -> None:
        self._renewals.pop(name, None)

    def clear(self) -> None:
        self._renewals.clear()

    def overdue(self, now: float) -> list[str]:
        """Nodes that should have renewed their Lease; none where most others are overdue too: then the API server, or the way
        to it, is the likely cause.
        """
        late = sorted(name for name, last in self._renewals.items() if last.heard + last.interval < now)
        on_time = len(self._renewals) - len(late)
        return late if on_time and on_time >= (len(self._renewals) - 1) / 2 else []

    def on_time(self, late: Iterable[str]) -> list[str]:
        """The nodes that are not late."""
        return sorted(self._renewals.keys() - set(late))


def _duration(spec: Json) -> int:
    value = spec.get("leaseDurationSeconds")
    return min(value, LONGEST) if type(value) is int and value > 0 else DURATION
