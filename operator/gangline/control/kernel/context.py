"""What all parts of the operator share, made once when the operator is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod_index import PodIndex
from gangline.control.feed.pod_owners import PodOwners
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.parts.messages import Messages
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.notify.notices import Notices
from gangline.control.writes.writer import Writer
from gangline.control.writes.writes import Writes
from gangline.engine import Engine
from gangline.kube.client import ApiClient
from gangline.kube.resources import Resource


@dataclass(frozen=True, slots=True)
class Context:
    """What a part reads, and by what it acts."""

    client: ApiClient
    engine: Engine
    #: the cluster as last seen; pods by gang and node; which gang a pod belongs to
    mirror: Mirror
    pods: PodIndex
    owners: PodOwners
    #: writes planned on what the mirror has; and the writer that sends them
    writes: Writes
    writer: Writer
    #: what people get: events, notifications, metrics
    recorder: EventRecorder
    notices: Notices
    metrics: Metrics
    #: what parts tell each other
    messages: Messages
    #: objects that could not be handled, and whose turn it is
    quarantine: Quarantine
    #: feature gates
    gates: Mapping[str, bool]
    #: whether the API server has a kind
    served: Callable[[Resource], bool]
    #: the present time in milliseconds since the epoch
    now: Callable[[], int]
    #: lets the loop take another round
    wake: Callable[[], None]
