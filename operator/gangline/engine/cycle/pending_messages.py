"""The messages for pending workloads: Kueue's words, from the numbers of the last attempt."""

from __future__ import annotations

from gangline.engine.flavors.assignment import EXCEEDS_MAX, WAITING, Assignment, FlavorObstacle
from gangline.engine.text import quantity_text


def obstacle_text(obstacle: FlavorObstacle) -> str:
    kind, flavor, resource, before, amount, limit, text = obstacle
    if kind == EXCEEDS_MAX:
        first, second, most = (quantity_text.text(resource, number) for number in (before, amount, limit))
        return (
            f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({first})"
            f" + current podset request ({second}) > maximum capacity ({most})"
        )
    if kind == WAITING:
        more = quantity_text.text(resource, before + amount - limit)
        return f"insufficient unused quota for {resource} in flavor {flavor}, {more} more needed"
    return text


def assignment_text(assignment: Assignment) -> str:
    """Pod set by pod set, the reasons sorted; "" if there are none."""
    parts: list[str] = []
    said: set[int] = set()
    for pod_set in assignment.pod_sets:
        if pod_set.obstacles and not pod_set.fits and id(pod_set.obstacles) not in said:
            said.add(id(pod_set.obstacles))
            reasons = ", ".join(sorted({obstacle_text(obstacle) for obstacle in pod_set.obstacles}))
            parts.append(f"couldn't assign flavors to pod set {pod_set.name}: {reasons}")
    return "; ".join(parts)


def preemption_text(reason: str, *, uid: str, job_uid: str, preemptor_path: str, victim_path: str) -> str:
    because = {
        "InClusterQueue": "prioritization in the ClusterQueue",
        "InCohortReclamation": "reclamation within the cohort",
        "InCohortFairSharing": "Fair Sharing within the cohort",
        "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
    }.get(reason, "UNKNOWN")
    return (
        f"Preempted to accommodate a workload (UID: {uid or 'UNKNOWN'}, JobUID: {job_uid or 'UNKNOWN'}) due to {because};"
        f" preemptor path: {preemptor_path or 'UNKNOWN'}; preemptee path: {victim_path or 'UNKNOWN'}"
    )
