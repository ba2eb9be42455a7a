"""Messages between parts: frozen dataclasses, and a synchronous dispatcher.

A message states what has happened, or what its sender wants done. The sender does not know the listeners. `publish` returns when
every listener has returned; an exception of a listener reaches the sender.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gangline.engine import ExpectedStart, model
from gangline.forecast.history.attempts import JobAttempt
from gangline.kube.errors import ApiError
from gangline.kube.resources import ObjectKey, Resource
from gangline.objects import Stored, WorkloadObject

M = TypeVar("M")


class Messages:
    """The dispatcher: passes each message to the listeners subscribed to its class, in the order of subscription."""

    def __init__(self) -> None:
        self._listeners: dict[type[Any], list[Callable[[Any], None]]] = {}

    def subscribe(self, kind: type[M], listener: Callable[[M], None]) -> None:
        self._listeners.setdefault(kind, []).append(listener)

    def publish(self, message: object) -> None:
        for listener in self._listeners.get(type(message), ()):
            listener(message)


@dataclass(frozen=True, slots=True)
class FactObserved:
    """The engine observed a fact of the mirror, or an estimate from a run's own pace."""

    change: model.Change


@dataclass(frozen=True, slots=True)
class ObjectQuarantined:
    """An object could not be handled; `obj` is its JSON where available."""

    resource: Resource
    key: str
    obj: Stored | None
    what: str


@dataclass(frozen=True, slots=True)
class WorkloadDeparted:
    """A Workload was deleted or has finished and holds no quota any more. `workload` is its last state before that."""

    workload: WorkloadObject


@dataclass(frozen=True, slots=True)
class WriteResolved:
    """A write succeeded or was refused: the job for which it was planned, the error if it was refused, and the object's key."""

    owner: tuple[Resource, str] | None
    error: ApiError | None
    key: ObjectKey


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """An object of which only the head was kept has been read again, whole."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class EvictionWanted:
    """A gang's eviction has to be written now; the reason is on record already."""

    decision: model.Evict


@dataclass(frozen=True, slots=True)
class StepReported:
    """A run has reported the step that it has reached; `at` in milliseconds since the epoch."""

    workload: str
    at: int
    step: int


@dataclass(frozen=True, slots=True)
class GpusMeasured:
    """Telemetry says of the last so many seconds whether the GPUs of a pod, given by its key, were idle."""

    pod: str
    seconds: float
    idle: bool


@dataclass(frozen=True, slots=True)
class AttemptNoted:
    """An attempt of a job begins, changes or ends. `counted`: up to when (Unix seconds) an end of it is recorded, after which it
    goes on all the same; 0 for none.
    """

    attempt: JobAttempt
    counted: float = 0.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """A gang that lost nodes runs again; `text` says how it recovered."""

    workload: WorkloadObject
    text: str


@dataclass(frozen=True, slots=True)
class StartExpected:
    """A waiting workload, given by its key, has a forecast start."""

    workload: str
    start: ExpectedStart


@dataclass(frozen=True, slots=True)
class StartMoved:
    """A workload's expected start moved, of which users were notified; `text` says by how much."""

    workload: WorkloadObject
    text: str


@dataclass(frozen=True, slots=True)
class OwnPaceEnded:
    """The estimate from a run's own pace, which took precedence over forecasts, is void."""

    workload: str


@dataclass(frozen=True, slots=True)
class NoticeLimited:
    """Notices about a workload, given by its key, are held back or not sent to its address; `why` names the bound."""

    workload: str
    why: str


@dataclass(frozen=True, slots=True)
class DeliveryFailed:
    """A receiver of notices, named by its Secret, begins to fail."""

    namespace: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class RemoteQuotasMoved:
    """Quotas of queues in another cluster may have changed, or the connection to it."""


@dataclass(frozen=True, slots=True)
class QuotaAutomationChanged:
    """The condition of a ClusterQueue whose quotas follow those of other clusters has changed."""

    cluster_queue: str
