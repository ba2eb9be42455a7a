"""The recipe form of a v1beta1 ClusterQueue.

Published GKE recipes have ClusterQueues that Kueue's own schema refuses: resource groups without `coveredResources`, no
`namespaceSelector`, and `preemption.reclaimOutOfCohort`. Their meaning is clear, so it is filled in, with a warning to the
author. A complete ClusterQueue is not changed.
"""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission.findings import Json, fill, listing, mapping, objects, spec, text

#: the API server cuts a longer warning
_LONGEST_WARNING: Final = 256

#: The schema sets Never before a webhook sees the object, so Never cannot be distinguished from absent: both are replaced.
_UNSET: Final = (None, "", "Never")


def is_legacy(queue: Json) -> bool:
    """Whether this is a v1beta1 ClusterQueue in the recipe form."""
    if queue.get("apiVersion") != names.V1BETA1:
        return False
    if "reclaimOutOfCohort" in mapping(spec(queue).get("preemption")):
        return True
    return any(_lacks_resources(group) for group in objects(spec(queue).get("resourceGroups")))


def complete(queue: Json) -> list[str]:
    """Fill in what the recipe form leaves out. Returns at most one warning. Idempotent."""
    if not is_legacy(queue):
        return []
    body = fill(queue, "spec")
    if body is None:
        return []
    done = [*_resources(body), *_selector(body), *_preemption(body)]
    return [_warning(done)] if done else []


def _lacks_resources(group: Json) -> bool:
    return bool(group) and not listing(group.get("coveredResources"))


def _resources(body: Json) -> list[str]:
    """Let each group without `coveredResources` cover the resources of its flavors, in the order of the first flavor."""
    taken: list[str] = []
    groups = list(listing(body.get("resourceGroups")))
    for i, group in enumerate(map(mapping, groups)):
        if not _lacks_resources(group):
            continue
        flavors = objects(group.get("flavors"))
        found = dict.fromkeys(
            text(quota.get("name")) for flavor in flavors for quota in objects(flavor.get("resources"))
        )
        if found:
            groups[i] = {**group, "coveredResources": list(found)}
            taken += found
    if not taken:
        return []
    body["resourceGroups"] = groups
    return [f"coveredResources taken from the flavors ({', '.join(taken)})"]


def _selector(body: Json) -> list[str]:
    if not body or body.get("namespaceSelector") is not None:
        return []
    body["namespaceSelector"] = {}
    return ["namespaceSelector {} (every namespace)"]


def _preemption(body: Json) -> list[str]:
    preemption = mapping(body.get("preemption"))
    reclaim = mapping(preemption.get("reclaimOutOfCohort"))
    if reclaim.get("enable") is not True:
        return []
    done: list[str] = []
    writable = fill(body, "preemption")
    if writable is not None and preemption.get("withinClusterQueue") in _UNSET:
        writable["withinClusterQueue"] = "LowerPriority"
        done.append("reclaimOutOfCohort.enable read as withinClusterQueue: LowerPriority")
        if reclaim.get("reclaimMoreThanNominalQuota") is True:
            done.append("reclaimMoreThanNominalQuota ignored")
    return done


def _warning(done: list[str]) -> str:
    written = f"legacy ClusterQueue form completed: {'; '.join(done)}"
    return written if len(written) <= _LONGEST_WARNING else f"{written[: _LONGEST_WARNING - 1]}…"
