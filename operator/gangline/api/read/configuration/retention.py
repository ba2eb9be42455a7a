"""`objectRetentionPolicies` of Kueue's configuration file: when finished and deactivated Workloads are deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline.api.read.configuration.fields import duration, mapping
from gangline.kube.resources import Json

SECTION: Final = "objectRetentionPolicies"


@dataclass(frozen=True, slots=True)
class Retention:
    """The times in seconds after which Workloads and jobs that have ended are deleted; None: they are not deleted."""

    #: from the end of a Workload to its deletion
    after_finished: float | None = None
    #: from the eviction of a Workload that was deactivated (not by its user) to the deletion of its job
    after_deactivated: float | None = None


#: what holds without the section
FOR_EVER: Final = Retention()


def load(root: Json) -> Retention:
    """Read for how long ended Workloads are kept. Raises ConfigurationError."""
    section = mapping(root.get(SECTION), SECTION)
    path = f"{SECTION}.workloads"
    workloads = mapping(section.get("workloads"), path)
    return Retention(
        *(
            duration(workloads, f"{path}.{name}", "") if workloads.get(name) is not None else None
            for name in ("afterFinished", "afterDeactivatedByKueue")
        )
    )
