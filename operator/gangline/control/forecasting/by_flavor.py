"""Runtime estimates by flavor: the flavors that a waiting workload may get, and how long it would run on each,
where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.control.mirror.mirror import Mirror
from gangline.engine import flavors_of, is_accelerator, model
from gangline.forecast.forecaster import Forecaster
from gangline.forecast.quantiles import Forecast
from gangline.kube import resources as kube

#: an estimate whose q50 and q90 moved by less than this share is not reported again
MATERIAL: Final = 0.05


def offered(mirror: Mirror, value: model.Workload) -> list[str]:
    """The flavors of the workload's queue that cover the accelerators it requests; it will get one of them."""
    queue = mirror.local_queues.get(f"{value.namespace}/{value.queue}")
    cluster_queue = mirror.get(kube.CLUSTER_QUEUES, queue.cluster_queue) if queue else None
    if cluster_queue is None:
        return []
    asked = {resource for pods in value.pod_sets for resource in pods.requests if is_accelerator(resource)}
    found = {
        flavor["name"]
        for group in cluster_queue.spec.get("resourceGroups") or ()
        if asked.intersection(group["coveredResources"])
        for flavor in group["flavors"]
    }
    return sorted(found)


def estimates(
    mirror: Mirror, forecaster: Forecaster, waiting: Mapping[str, Forecast], now: float
) -> dict[str, dict[str, Forecast]]:
    """The estimates of these waiting workloads (by key, with their estimate on any flavor) on each flavor that they may get.

    Workloads for which the flavor makes no difference are left out. `now` in Unix seconds.
    """
    if not forecaster.compares_flavors:
        return {}
    keys: dict[str, str] = {}  # by uid
    asked: dict[str, list[str]] = {}  # uids by flavor
    for key in waiting:
        value = mirror.workload_value(key)
        flavors = offered(mirror, value) if value is not None else []
        if value is not None and len(flavors) > 1:
            keys[value.uid] = key
            for flavor in flavors:
                asked.setdefault(flavor, []).append(value.uid)
    found: dict[str, dict[str, Forecast]] = {}
    for flavor, uids in sorted(asked.items()):
        for uid, estimate in forecaster.forecasts(uids, now, flavor, conditional=False).items():
            found.setdefault(keys[uid], {})[flavor] = estimate
    return {
        key: by_flavor
        for key, by_flavor in found.items()
        if any(differs(waiting[key], each) for each in by_flavor.values())
    }


def slowest(by_flavor: Mapping[str, Forecast], admission: model.Admission | None) -> str:
    """The slowest flavor of an admission, which sets the workload's pace; "" where no estimate distinguishes flavors."""
    known = [flavor for flavor in flavors_of(admission) if flavor in by_flavor]
    return max(known, key=lambda flavor: by_flavor[flavor].q50, default="")


def differs(old: Forecast | None, new: Forecast) -> bool:
    """Whether the estimates differ enough to report the new one."""
    if old is None or old.source != new.source:
        return True
    return any(abs(b - a) > MATERIAL * a for a, b in ((old.q50, new.q50), (old.q90, new.q90)))
