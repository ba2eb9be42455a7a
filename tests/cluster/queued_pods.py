"""Plain pods and pod groups as users write them."""

from __future__ import annotations

from typing import Any

from gangline.api import names

Json = dict[str, Any]
CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod"]},
}


def pod(
    name: str,
    queue: str,
    *,
    group: str = "",
    total: int = 0,
    gpus: int = 1,
    runtime: str = "600s",
    priority: str = "",
    annotations: dict[str, str] | None = None,
) -> Json:
    """A pod that runs for `runtime`; with `group`, one of `total` pods of it."""
    labels = {names.QUEUE_NAME: queue} | ({names.PRIORITY_CLASS: priority} if priority else {})
    notes = {names.SIMULATED_RUNTIME: runtime, **(annotations or {})}
    if group:
        labels[names.POD_GROUP] = group
        notes[names.POD_GROUP_TOTAL] = str(total)
    container = {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": notes},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


def gang(name: str, queue: str, roles: dict[int, int], **given: Any) -> list[Json]:
    """The pods of a group: for each role the GPUs of a pod, and how many pods have them."""
    sizes = [gpus for gpus, count in roles.items() for _ in range(count)]
    made = {"group": name, "total": len(sizes), **given}
    return [pod(f"{name}-{i}", queue, gpus=gpus, **made) for i, gpus in enumerate(sizes)]
