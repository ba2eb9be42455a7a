"""The windows of Reservations over the nodes of a trace's cluster.

Such a cluster has one flavor, whichever name a Reservation gives it, and nodes `node-00000`, `node-00001` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gangline.engine.model import Millis
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.record import reserved
from gangline.record.history import FileLine, RecordedChange
from gangline.replay.planned import Planned
from gangline.replay.policies import QUEUE
from gangline.replay.replay_plan import Prepared, ReplayPlan
from gangline.replay.replayed import LONGEST, ReplayError
from gangline.replay.trace_facts import HOST, NAMESPACE, node_name, queue_of

#: marks the nodes of a trace's flavor
_LABELS: Final = {"pool": "trace"}


def of_trace(found: Mapping[str, Json], plan: ReplayPlan, prepared: Prepared) -> tuple[Planned, list[str]]:
    """The windows over the nodes of a trace's cluster, and notes on what of them can't be honoured. Raises ReplayError."""
    if not plan.cluster.nodes:
        raise ReplayError("--reservation: a flat pool has no nodes; give --gpus-per-node")
    queues = [QUEUE] if prepared.quotas is None else [queue_of(tenant) for tenant in prepared.quotas]
    names = (node_name(number) for number in range(plan.cluster.nodes))
    flavors = {spec["nodes"]["anyOf"]["flavor"] for spec in found.values() if spec["nodes"].get("anyOf")}
    first = _first(plan)
    changes = [
        *(_change(first, kube.NODES.kind, name, {"labels": {HOST: name, **_LABELS}}) for name in names),
        *(_change(first, kube.RESOURCE_FLAVORS.kind, name, {"spec": {"nodeLabels": _LABELS}}) for name in flavors),
        *(_change(first, kube.CLUSTER_QUEUES.kind, name, {}) for name in queues),
        *(_change(first, kube.LOCAL_QUEUES.kind, f"{NAMESPACE}/{name}", {}) for name in queues),
        *changes_of(found, first),
    ]
    return reserved.planned(changes, _last(plan))


def changes_of(found: Mapping[str, Json], at: Millis) -> list[RecordedChange]:
    """The Reservations as if they were created at this time."""
    return [_change(at, kube.RESERVATIONS.kind, name, {"spec": spec}) for name, spec in found.items()]


def _change(at: Millis, kind: str, name: str, body: Json) -> RecordedChange:
    return RecordedChange(at, kind, name, body, FileLine(Path(), 0))


def _first(plan: ReplayPlan) -> Millis:
    return round(plan.first * 1000)


def _last(plan: ReplayPlan) -> Millis:
    """The last time at which any job can still run."""
    return round(plan.last * 1000) + 2 * LONGEST
