"""JSON objects as the API server serves them, for the pure functions of the console."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.builders.objects import Workload, container

from gangline.objects import LocalQueueObject, Stored, WorkloadObject

NOW = 1_800_000_000.0
GPU = "nvidia.com/gpu"


def stamp(seconds_ago: float) -> str:
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: bool, reason: str = "", message: str = "", ago: float = 10) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": stamp(ago),
    }


def workload(
    name: str,
    *conditions: dict[str, Any],
    namespace: str = "team-vision",
    kind: str = "Job",
    queue: str = "gpus",
    gpus: int | str = 8,
    pods: int = 1,
    priority: int = 0,
    ago: float = 30,
    admitted_to: str = "",
    flavor: str = "a100",
    active: bool = True,
) -> WorkloadObject:
    """A Workload of `pods` pods with `gpus` GPUs each."""
    made = Workload(f"{kind.lower()}-{name}-1a2b3", namespace, uid=f"uid-{name}", creationTimestamp=stamp(ago))
    made.owned_by(kind, name, uid=f"job-{name}").in_queue(queue).spec(priority=priority, active=active)
    made.pods(container({GPU: gpus}), count=pods)
    if admitted_to:
        usage = {"flavors": {GPU: flavor}, "resourceUsage": {GPU: str(int(gpus) * pods)}, "name": "main", "count": pods}
        made.holds(admitted_to, usage)
    return made.conditions(*conditions).made


def pending(name: str, reason: str = "", message: str = "", **more: Any) -> WorkloadObject:
    conditions = [condition("QuotaReserved", False, reason, message)] if reason else []
    return workload(name, *conditions, **more)


def running(name: str, queue: str = "vision", *, ready: bool = True, **more: Any) -> WorkloadObject:
    conditions = [
        condition("QuotaReserved", True),
        condition("Admitted", True),
        condition("PodsReady", ready, "Started" if ready else "WaitForStart"),
    ]
    return workload(name, *conditions, admitted_to=queue, **more)


def cluster_queue(
    name: str,
    *flavors: dict[str, Any],
    cohort: str = "lab",
    pending: int = 0,
    admitted: int = 0,
    active: bool = True,
) -> Stored:
    """`flavors` as made by `flavor`."""
    spec_flavors = [
        {
            "name": f["name"],
            "resources": [{"name": GPU, **{k: v for k, v in f.items() if k.endswith(("Quota", "Limit"))}}],
        }
        for f in flavors
    ]
    used = [
        {"name": f["name"], "resources": [{"name": GPU, "total": str(f["used"]), "borrowed": str(f["borrowed"])}]}
        for f in flavors
    ]
    reason = "Ready" if active else "Stopped"
    return Stored(
        {
            "metadata": {"name": name},
            "spec": {"cohortName": cohort, "resourceGroups": [{"coveredResources": [GPU], "flavors": spec_flavors}]},
            "status": {
                "conditions": [
                    condition("Active", active, reason, "Can't admit new workloads: is stopped." * (not active))
                ],
                "flavorsReservation": used,
                "pendingWorkloads": pending,
                "admittedWorkloads": admitted,
            },
        }
    )


def flavor(
    name: str, nominal: int, used: int = 0, borrowed: int = 0, borrowing_limit: int | None = None
) -> dict[str, Any]:
    quota = {"name": name, "nominalQuota": str(nominal), "used": used, "borrowed": borrowed}
    return quota if borrowing_limit is None else quota | {"borrowingLimit": str(borrowing_limit)}


def local_queue(name: str = "gpus", namespace: str = "team-vision", to: str = "vision") -> LocalQueueObject:
    metadata = {"name": name, "namespace": namespace}
    return LocalQueueObject({"metadata": metadata, "spec": {"clusterQueue": to}})
