"""What a pod group has to know of other clusters in which its pods may run (`control.multikueue`)."""

from __future__ import annotations

from typing import Final, Protocol

from gangline.kube.resources import Json


class Elsewhere(Protocol):
    def sends(self, workload: Json) -> bool:
        """The pods of the Workload wait here, and run in another cluster if they run at all."""
        ...

    def may_run(self, workload: Json) -> bool:
        """Pods of it may still run there."""
        ...

    def pods_ready(self, workload: Json) -> bool:
        """All of its pods are ready there, as far as that cluster says."""
        ...


class Nowhere:
    """Implements `Elsewhere`: there are no other clusters."""

    def sends(self, workload: Json) -> bool:
        return False

    def may_run(self, workload: Json) -> bool:
        return False

    def pods_ready(self, workload: Json) -> bool:
        return False


NOWHERE: Final[Elsewhere] = Nowhere()
