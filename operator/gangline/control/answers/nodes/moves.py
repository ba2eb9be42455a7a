"""Which jobs would leave a node, were it vacated (`gangline admin swap now`), and why others stay. For one user.

Nothing is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gangline.api import names
from gangline.api.read.workloads import swap_record
from gangline.control.answers.sight import Sight
from gangline.control.answers.source import Source
from gangline.control.answers.workloads.snapshot import WorkloadView
from gangline.control.forecasting.rehearsals import Move
from gangline.engine import tolerates
from gangline.engine.model import Taint
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

_TAINT: Final = Taint(names.VACATE)


def sitting(source: Source, node: str) -> list[str]:
    """The Workloads with pods on a node, by key."""
    pods = source.pods.on(node) if source.pods is not None else ()
    return sorted({pod.workload for pod in pods if pod.workload and pod.alive})


def rows(
    source: Source,
    sight: Sight,
    found: Iterable[str],
    moves: Iterable[Move],
    view: Callable[[str, WorkloadObject], WorkloadView | None],
) -> list[Json]:
    """One row per gang, those that move first."""
    moving = {move.workload: move for move in moves}
    made: list[Json] = []
    for key in found:
        raw = source.mirror.workloads.get(key)
        seen = view(key, raw) if raw is not None else None
        if raw is None or seen is None:
            continue
        move, shown = moving.get(key), sight.workload(seen)
        meta = {"name": shown.name} if shown.hidden else {"namespace": shown.namespace, "name": shown.name}
        made.append(
            {
                "metadata": meta,
                "hidden": shown.hidden,
                "namespace": shown.namespace,
                "job": shown.job,
                "user": shown.user,
                "queue": shown.queue,
                "clusterQueue": shown.cluster_queue,
                "gpus": seen.gpus,
                "pods": seen.pods,
                "moves": move is not None,
                "how": move.how if move is not None else "",
                "to": list(move.to) if move is not None and not shown.hidden else [],
                "obstacle": "" if move is not None or shown.hidden else obstacle(source, key, raw),
            }
        )
    return sorted(made, key=lambda row: (not row["moves"], row["namespace"], row["job"]))


def obstacle(source: Source, key: str, raw: WorkloadObject) -> str:
    """Why a gang stays on a node that is vacated."""
    value = source.mirror.workload_value(key)
    if value is None or value.admission is None:
        return "it is stopping"
    policy = source.mirror.recovery_of(value.admission.cluster_queue)
    if not policy.enabled:
        return "its QueuePolicy says recovery.enabled: false"
    if value.unowned:
        return "it has no job that would make its pods anew"
    if value.replaced_lately(source.now()) >= policy.swap_budget:
        return policy.spent
    if swap_record.of(raw).current is not None:
        return "it is recovering"
    if any(tolerates(each, _TAINT) for pod_set in value.pod_sets for each in pod_set.tolerations):
        return f"its pods tolerate the taint {names.VACATE}"
    return "no healthy nodes have room for it without a preemption"
