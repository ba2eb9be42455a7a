"""Messages between parts: frozen dataclasses, and a synchronous dispatcher.

A message says what has happened, or what its sender wants done. The sender does not know who listens. `tell` returns when every
listener has returned; an exception of a listener reaches the sender.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gangline.engine import ExpectedStart, model
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json, ObjectKey, Resource

M = TypeVar("M")


class Messages:
    """The dispatcher: messages go to those who subscribed to their class, in the order of subscription."""

    def __init__(self) -> None:
        self._listeners: dict[type[Any], list[Callable[[Any], None]]] = {}

    def subscribe(self, kind: type[M], listener: Callable[[M], None]) -> None:
        self._listeners.setdefault(kind, []).append(listener)

    def tell(self, message: object) -> None:
        for listener in self._listeners.get(type(message), ()):
            listener(message)


@dataclass(frozen=True, slots=True)
class FactObserved:
    """The engine was told a fact of the mirror, or of a run's own pace."""

    change: model.Change


@dataclass(frozen=True, slots=True)
class ObjectQuarantined:
    """An object could not be handled; `obj` is its JSON where it is at hand."""

    resource: Resource
    key: str
    obj: Json | None
    what: str


@dataclass(frozen=True, slots=True)
class WorkloadDeparted:
    """A Workload was deleted or has finished, and holds no quota any more. `workload` is as it was before."""

    workload: Json


@dataclass(frozen=True, slots=True)
class WriteResolved:
    """A write is through or was refused: for which job it was planned, the error if it was refused, and what was written."""

    owner: tuple[Resource, str] | None
    error: ApiError | None
    key: ObjectKey


@dataclass(frozen=True, slots=True)
class EvictionWanted:
    """The eviction of a gang has to be written now: why it is evicted is on record."""

    decision: model.Evict


@dataclass(frozen=True, slots=True)
class Recovered:
    """A gang that lost nodes runs again; `text` says how."""

    workload: Json
    text: str


@dataclass(frozen=True, slots=True)
class StartExpected:
    """A waiting workload, by its key, is expected to start then."""

    workload: str
    start: ExpectedStart


@dataclass(frozen=True, slots=True)
class StartMoved:
    """Receivers were notified that a workload's expected start moved; `text` says by how much."""

    workload: Json
    text: str


@dataclass(frozen=True, slots=True)
class OwnPaceEnded:
    """The estimate by a run's own pace, which took precedence over forecasts, holds no more."""

    workload: str


@dataclass(frozen=True, slots=True)
class DeliveryFailed:
    """A receiver of notices, named by its Secret, begins to fail."""

    namespace: str
    name: str
    why: str
