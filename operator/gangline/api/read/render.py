"""Turns the engine's decisions into the JSON that goes into a Workload's status (v1beta2)."""

from __future__ import annotations

from gangline.api import quantity
from gangline.api.read.workloads import admissions
from gangline.engine import model
from gangline.kube.resources import Json


def admission(value: model.Admission) -> Json:
    """`status.admission`; the inverse of `parse.admission`."""
    return {
        "clusterQueue": value.cluster_queue,
        "podSetAssignments": [_assignment(assignment) for assignment in value.pod_sets],
    }


def _assignment(value: model.PodSetAssignment) -> Json:
    row: Json = {"name": value.name, "count": value.count}
    # clients in Go leave empty maps out: what they write back is to be what was here
    if value.flavors:
        row["flavors"] = dict(value.flavors)
    if value.usage:
        row["resourceUsage"] = resources(value.usage)
    if value.topology is not None:
        row["topologyAssignment"] = topology_assignment(value.topology)
    if value.delayed_topology:
        row["delayedTopologyRequest"] = value.delayed_topology
    return row


def resources(amounts: model.Requests) -> dict[str, str]:
    """Resource -> canonical quantity."""
    return {resource: quantity.format(amount, resource) for resource, amount in amounts.items()}


def resource_requests(value: model.Workload) -> list[Json]:
    """`status.resourceRequests`: what the pods of each pod set count for together, without those that have finished."""
    return [
        {
            "name": pod_set.name,
            "resources": resources(
                {
                    name: size * max(0, pod_set.count - value.reclaimable.get(pod_set.name, 0))
                    for name, size in pod_set.counted.items()
                }
            ),
        }
        for pod_set in value.pod_sets
    ]


def topology_assignment(value: model.TopologyAssignment) -> Json:
    levels, domains = admissions.rows(value)
    return {"levels": levels, "slices": admissions.encode(domains)}
