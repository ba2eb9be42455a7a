"""Reservations of a replay from files of manifests: the same objects that a cluster takes.

A cluster made of a trace has one flavor, whichever name a Reservation gives it, and nodes `node-00000`, `node-00001` and so on.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gangline import bounded
from gangline.api.admission import syntax
from gangline.api.read import models
from gangline.api.read.reading import ParseError, child
from gangline.api.reservations import reservation
from gangline.api.schema.v1alpha1.reservation import ReservationSpec
from gangline.api.spec_fields import SpecError
from gangline.console.replaying import manifests
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


def read(files: Iterable[Path]) -> dict[str, Json]:
    """The specs of the Reservations of all files, by name. Raises ReplayError."""
    found: dict[str, Json] = {}
    for file in files:
        for document in manifests.of_kind(manifests.text_of(file, "--reservation"), file.name, kube.RESERVATIONS.kind):
            name = _name(document, file.name)
            if name in found:
                raise ReplayError(f"{file.name}: there are two Reservations {name}")
            found[name] = _spec(document, f"{file.name}: Reservation {name}")
    return found


def _name(document: Json, file: str) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or syntax.dns_label_faults(name):
        raise ReplayError(f"{file}: metadata.name of a Reservation is no name: {bounded.shown(name)}")
    return name


def _spec(document: Json, where: str) -> Json:
    try:
        spec = child(document, "spec", "")
        unknown = models.unknown(models.read(ReservationSpec, spec, "spec"), spec, "spec")
        reservation(document)
    except (ParseError, SpecError) as error:
        raise ReplayError(f"{where}: {error}") from None
    if unknown:
        raise ReplayError(f"{where}: {unknown[0]}: there is no such field")
    return spec


def of_trace(found: dict[str, Json], plan: ReplayPlan, prepared: Prepared) -> tuple[Planned, list[str]]:
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


def changes_of(found: dict[str, Json], at: Millis) -> list[RecordedChange]:
    """The Reservations as if they were created at this time."""
    return [_change(at, kube.RESERVATIONS.kind, name, {"spec": spec}) for name, spec in found.items()]


def _change(at: Millis, kind: str, name: str, body: Json) -> RecordedChange:
    return RecordedChange(at, kind, name, body, FileLine(Path(), 0))


def _first(plan: ReplayPlan) -> Millis:
    return round(plan.first * 1000)


def _last(plan: ReplayPlan) -> Millis:
    """The last time at which any job can still run."""
    return round(plan.last * 1000) + 2 * LONGEST
