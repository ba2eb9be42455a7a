"""One log line per decision that was carried out: what happened to which Workload, in which queue, on which flavors, and why."""

from __future__ import annotations

import logging
from typing import Any, Final

from gangline import logs
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

log = logging.getLogger(__name__)

RESERVED: Final = "quota reserved"
ADMITTED: Final = "admitted"
PREEMPTED: Final = "preempted"
EVICTED: Final = "evicted"
HEALING: Final = "healing"
HEALED: Final = "healed"
FINISHED: Final = "finished"


def note(what: str, workload: WorkloadObject, cause: str, **more: Any) -> None:
    """Log a decision. `workload` as the API server answered the write; `more`: particulars of this kind of decision, None is left
    out.
    """
    admission = workload.admission or {}
    logs.tell(
        log,
        what,
        workload=workload.key,
        queue=admission.get("clusterQueue"),
        flavors=_flavors(admission),
        cause=cause,
        **more,
    )


def _flavors(admission: Json) -> str | None:
    """The names of all flavors, in the order of pod sets and resources."""
    assigned = admission.get("podSetAssignments") or ()
    names = [name for pod_set in assigned for name in (pod_set.get("flavors") or {}).values()]
    return ",".join(dict.fromkeys(names)) or None
