"""The questions of a pod group about other clusters in which its pods may run (`control.checks.multikueue` answers them)."""

from __future__ import annotations

from typing import Final, Protocol

from gangline.objects import WorkloadObject


class Elsewhere(Protocol):
    def sends(self, workload: WorkloadObject) -> bool:
        """Whether the pods of the Workload wait here, and run in another cluster if they run at all."""
        ...

    def may_run(self, workload: WorkloadObject) -> bool:
        """Whether pods of the Workload may still run in another cluster."""
        ...

    def pods_ready(self, workload: WorkloadObject) -> bool:
        """Whether all pods of the Workload are ready in their cluster, as far as that says so."""
        ...


class Nowhere:
    """Implements `Elsewhere`: there are no other clusters."""

    def sends(self, workload: WorkloadObject) -> bool:
        return False

    def may_run(self, workload: WorkloadObject) -> bool:
        return False

    def pods_ready(self, workload: WorkloadObject) -> bool:
        return False


NOWHERE: Final[Elsewhere] = Nowhere()
