"""Pods of gangs, nodes, and an API server that only listens: what the tests of recovery share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.objects import NodeObject, PodObject

from gangline.api.read import conditions
from gangline.control.writes.outgoing import Write

Json = dict[str, Any]
T = 1_700_000_000_000


def a_pod(
    name: str,
    node: str = "n1",
    *,
    workload: str = "w",
    ready: bool = True,
    phase: str = "Running",
    due: int = 0,
    created: int = T - 60_000,
    attempt: int = 0,
    **labels: str,
) -> PodObject:
    """`due`: when its grace period is over, in ms; 0: it was not told to go."""
    meta: Json = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": conditions.timestamp(created),
        "labels": {"kueue.x-k8s.io/podset": "main", **labels},
        "annotations": {"kueue.x-k8s.io/workload": workload} if workload else {},
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    if attempt:
        meta["annotations"]["gangline.io/attempt"] = str(attempt)
    if due:
        meta["deletionTimestamp"] = conditions.timestamp(due)
    rows = [{"type": "Ready", "status": "True" if ready else "False"}]
    spec = {"nodeName": node} if node else {}
    return PodObject({"metadata": meta, "spec": spec, "status": {"phase": phase, "conditions": rows}})


def a_node(name: str, *, ready: str = "True", since: int = T - 600_000, taint: str = "", uid: str = "") -> NodeObject:
    row = {"type": "Ready", "status": ready, "lastTransitionTime": conditions.timestamp(since)}
    return NodeObject(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": f"{ready}{since}{taint}"},
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]} if taint else {},
            "status": {"conditions": [row]},
        }
    )


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
