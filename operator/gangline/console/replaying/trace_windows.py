"""The windows of Reservations over the nodes of a trace's cluster, and the quotas of its queues by QuotaPlans.

Such a cluster has one flavor, whichever name a Reservation gives it, and nodes `node-00000`, `node-00001` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from gangline.engine.model import Millis
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.record import calendar, reserved
from gangline.record.history import FileLine, RecordedChange
from gangline.replay.planned import Planned
from gangline.replay.policies import QUEUE
from gangline.replay.replay_plan import Prepared, ReplayPlan
from gangline.replay.replayed import LONGEST, ReplayError
from gangline.replay.trace_facts import FLAVOR, GPU, HOST, NAMESPACE, node_name, queue_of

#: marks the nodes of a trace's flavor
_LABELS: Final = {"pool": "trace"}


def of_trace(
    reservations: Mapping[str, Json], quota_plans: Mapping[str, Json], plan: ReplayPlan, prepared: Prepared
) -> tuple[Planned, list[str]]:
    """What these objects come to in a trace's cluster, and notes on what can't be honoured. Raises ReplayError."""
    if reservations and not plan.cluster.nodes:
        raise ReplayError("--reservation: a flat pool has no nodes; give --gpus-per-node")
    nominal = {QUEUE: plan.cluster.gpus}
    if prepared.quotas is not None:
        nominal = {queue_of(tenant): gpus for tenant, gpus in prepared.quotas.items()}
    names = (node_name(number) for number in range(plan.cluster.nodes))
    flavors = {spec["nodes"]["anyOf"]["flavor"] for spec in reservations.values() if spec["nodes"].get("anyOf")}
    first, until = round(plan.first * 1000), round(plan.last * 1000) + 2 * LONGEST
    changes = [
        *(_change(first, kube.NODES.kind, name, {"labels": {HOST: name, **_LABELS}}) for name in names),
        *(_change(first, kube.RESOURCE_FLAVORS.kind, name, {"spec": {"nodeLabels": _LABELS}}) for name in flavors),
        *(_change(first, kube.CLUSTER_QUEUES.kind, name, _queue(gpus)) for name, gpus in nominal.items()),
        *(_change(first, kube.LOCAL_QUEUES.kind, f"{NAMESPACE}/{name}", {}) for name in nominal),
        *changes_of(reservations, quota_plans, first),
    ]
    planned, troubles = reserved.planned(changes, until)
    quotas, lacking = calendar.quotas(changes, until)
    return replace(planned, quotas=tuple(quotas)), [*troubles, *lacking]


def changes_of(reservations: Mapping[str, Json], quota_plans: Mapping[str, Json], at: Millis) -> list[RecordedChange]:
    """The objects as if they were created at this time."""
    return [
        _change(at, resource.kind, name, {"spec": spec})
        for resource, found in ((kube.RESERVATIONS, reservations), (kube.QUOTA_PLANS, quota_plans))
        for name, spec in found.items()
    ]


def _queue(gpus: int) -> Json:
    """A ClusterQueue's spec with a trace's only quota."""
    flavors = [{"name": FLAVOR, "resources": [{"name": GPU, "nominalQuota": gpus}]}]
    return {"spec": {"resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]}}


def _change(at: Millis, kind: str, name: str, body: Json) -> RecordedChange:
    return RecordedChange(at, kind, name, body, FileLine(Path(), 0))
