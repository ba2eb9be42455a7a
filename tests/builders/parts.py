"""What stands around a part of the controller under test: a mirror, an API server that only listens, and what the part says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.builders.objects import T
from tests.context import a_context

from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod_index import PodIndex
from gangline.control.feed.pod_owners import PodOwners
from gangline.control.kernel.context import Context
from gangline.control.writes.outgoing import Write
from gangline.kube import resources as kube

Json = dict[str, Any]


@dataclass
class Listener:
    """A writer that keeps what it is given."""

    writes: list[Write] = field(default_factory=list)
    busy: set[Any] = field(default_factory=set)

    def submit(self, write: Write) -> None:
        self.writes.append(write)

    def pending(self, key: Any) -> bool:
        return key in self.busy

    def take(self) -> list[tuple[str, str, Any]]:
        """Verb, name and body of everything since the last time."""
        taken, self.writes = self.writes, []
        return [(write.verb, write.key.name, write.body) for write in taken]


@dataclass
class Recorder:
    said: list[tuple[str, str]] = field(default_factory=list)

    def record(self, about: Json, kind: str, reason: str, note: str, action: str = "") -> None:
        self.said.append((reason, note))


@dataclass
class Requests:
    """In place of `control.writes.writes.Writes`: a render of each body, and what to call when it was written."""

    sent: list[tuple[str, Any, Callable[[Json], None], Callable[[Exception], None]]] = field(default_factory=list)
    changes: list[tuple[str, str, Any]] = field(default_factory=list)
    doubted: bool = False
    waiting: bool = False

    def in_doubt(self, resource: Any, key: str) -> bool:
        return self.doubted

    def pending(self, resource: Any, key: str) -> bool:
        return self.waiting

    def send(self, key: Any, verb: str, body: Any, *, done: Any = None, failed: Any = None, **_: Any) -> None:
        self.sent.append((key.name, body() if callable(body) else body, done, failed))

    def change(self, workload: str, slot: str, change: Any, **_: Any) -> None:
        self.changes.append((workload, slot, change))


class PartWorld:
    """A mirror, an index of pods and a context for one part. Subclasses make their part, and say what happens to it."""

    now = T
    #: nobody observes what the mirror and the index read, unless a subclass says who
    observe: Callable[[Any], None] = staticmethod(lambda change: None)

    def __init__(self, *objects: tuple[kube.Resource, Json], owned: bool = False) -> None:
        """`owned`: the index counts a pod only while its owner is there."""
        self.mirror = Mirror(observe=self.observe)
        self.owners = PodOwners(self.mirror)
        self.pods = PodIndex(self.observe, self.mirror.pod_counts, owners=self.owners if owned else None)
        self.writer, self.recorder, self.writes = Listener(), Recorder(), Requests()
        self.woken = 0
        for resource, obj in objects:
            self.put(resource, obj)

    def context(self, **more: Any) -> Context:
        """The context of the part: this mirror, these pods, and in place of writers and recorders those that listen."""
        usual: dict[str, Any] = {
            "mirror": self.mirror,
            "pods": self.pods,
            "owners": self.owners,
            "writer": self.writer,
            "writes": self.writes,
            "recorder": self.recorder,
            "now": lambda: self.now,
            "wake": self.wake,
        }
        return a_context(**{**usual, **more})

    def wake(self) -> None:
        self.woken += 1

    def put(self, resource: kube.Resource, *objects: Json) -> None:
        """The watch shows these objects; pods come to the index."""
        for obj in objects:
            if resource is kube.PODS:
                self.pods.upsert(obj)
            else:
                self.mirror.upsert(resource, obj)
