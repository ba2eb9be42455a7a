"""A recorded cluster as the engine sees it, under any policy: its queues, quotas, flavors and nodes as they changed.

All jobs are moved to one namespace, each LocalQueue under a name of its own. Admission checks count as passed. Recovery, overrun
and stalls say nothing: no pod fails in a replay but those on lost nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gangline.api.read import policy_reader
from gangline.api.read.reading import ParseError
from gangline.api.schedules import Span
from gangline.engine import model
from gangline.engine.model import Change as Fact
from gangline.engine.model import Gone, Millis, Put, accelerators
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.record import values
from gangline.record.calendar import QUOTA_PLANS
from gangline.record.history import RecordedChange, RecordedHistory
from gangline.record.reserved import RESERVATIONS
from gangline.record.workloads import DecidingFields
from gangline.replay.policies import Policy, with_restart
from gangline.replay.replayed import LONGEST, ReplayedJob, name_of
from gangline.replay.trace_facts import NAMESPACE
from gangline.replay.world import ReplayEvent

#: the cluster's own settings and QueuePolicies
OWN: Final = Policy("own", "the cluster's own queues and QueuePolicies, as they were")
#: what is first known within this time of the beginning of a record was there before
BEGINNING: Final[Millis] = 60_000
_POLICIES: Final = kube.QUEUE_POLICIES.kind
_QUEUES: Final = kube.CLUSTER_QUEUES.kind
_LOCAL: Final = kube.LOCAL_QUEUES.kind
_NODES: Final = kube.NODES.kind
_TYPES: Final[Mapping[str, type[Any]]] = {
    kube.RESOURCE_FLAVORS.kind: model.Flavor,
    kube.TOPOLOGIES.kind: model.Topology,
    kube.COHORTS.kind: model.Cohort,
    _QUEUES: model.ClusterQueue,
    _LOCAL: model.LocalQueue,
    _NODES: model.Node,
}


@dataclass(frozen=True, slots=True)
class RecordedWorlds:
    """A record under any policy: see `replay.world.Worlds`."""

    first: Millis
    changes: tuple[RecordedChange, ...]
    shapes: Mapping[str, DecidingFields]

    def under(self, policy: Policy, restart_seconds: float) -> RecordedWorld:
        return RecordedWorld(self, policy, restart_seconds)


def worlds(history: RecordedHistory, shapes: Mapping[str, DecidingFields]) -> RecordedWorlds:
    return RecordedWorlds(history.first, tuple(history.changes), shapes)


class RecordedWorld:
    """The recorded cluster under one policy, see `replay.world.ReplayedWorld`."""

    def __init__(self, recorded: RecordedWorlds, policy: Policy, restart_seconds: float) -> None:
        self._shapes = recorded.shapes
        self._numbers: dict[str, int] = {}  # of nodes
        last = recorded.changes[-1].at if recorded.changes else recorded.first
        state = _State(policy, restart_seconds, self._numbers, Span(recorded.first, last + 2 * LONGEST))
        self._begins: list[Fact] = [Put(model.Namespace(NAMESPACE))]
        self._later: list[ReplayEvent] = []
        for change in recorded.changes:
            if change.kind in (RESERVATIONS, QUOTA_PLANS):
                continue  # what follows from them is planned (`record.reserved`, `record.calendar`)
            facts, lost = state.facts(change)
            if change.at <= recorded.first + BEGINNING:
                self._begins += facts
            elif facts:
                self._later.append(ReplayEvent(change.at, tuple(facts), frozenset(lost)))

    def begins(self) -> Iterable[Fact]:
        return self._begins

    def later(self) -> list[ReplayEvent]:
        return self._later

    def of(self, job: ReplayedJob) -> model.Workload:
        shape, name = self._shapes[job.id], name_of(job.number)
        return model.Workload(
            uid=name,
            namespace=NAMESPACE,
            name=name,
            queue=queue_name(shape.queue),
            pod_sets=shape.pod_sets,
            priority=shape.priority,
            created=job.submit,
            checkpoint_seconds=shape.checkpoint,
        )

    def number(self, node: str) -> int | None:
        return self._numbers.get(node)

    def places(self, admission: model.Admission) -> tuple[tuple[int, int], ...]:
        """The nodes of an admission by number, each with its accelerators, where a topology assignment names them."""
        return tuple(
            (self._numbers[domain.values[-1]], domain.count * accelerators(pods.usage) // max(1, pods.count))
            for pods in admission.pod_sets
            if pods.topology is not None
            for domain in pods.topology.domains
            if domain.values[-1] in self._numbers
        )


@dataclass(slots=True)
class _State:
    """The configuration, as far as the record has shown it."""

    policy: Policy
    restart_seconds: float
    numbers: dict[str, int]
    known: Span  # the time over which orders are known
    queues: dict[str, Json] = field(default_factory=dict[str, Json])
    policies: dict[str, Json] = field(default_factory=dict[str, Json])
    nodes: dict[str, model.Node] = field(default_factory=dict[str, model.Node])

    def facts(self, change: RecordedChange) -> tuple[list[Fact], set[int]]:
        """What the engine observes, and the numbers of nodes that were lost."""
        kind, name, body = change.kind, change.name, change.body
        if kind == _POLICIES:
            before = dict(self._all_queues())
            if body is None:
                self.policies.pop(name, None)
            else:
                self.policies[name] = values.policy(name, body)
            return [Put(queue) for key, queue in self._all_queues() if before[key] != queue], set()
        if kind == _NODES:
            return self._node(name, body)
        if kind == _QUEUES:
            if body is None:
                self.queues.pop(name, None)
            else:
                self.queues[name] = body
        key = f"{NAMESPACE}/{queue_name(name)}" if kind == _LOCAL else name
        if body is None:
            return [Gone(_TYPES[kind], key)], set()
        if kind == _QUEUES:
            return [Put(self._queue(name, body))], set()
        value = values.value(kind, name, body)
        if kind == _LOCAL:
            value = replace(value, namespace=NAMESPACE, name=queue_name(name), consumed={}, consumed_at=0)
        return [Put(value)], set()

    def _node(self, name: str, body: Json | None) -> tuple[list[Fact], set[int]]:
        before = self.nodes.pop(name, None)
        after = None if body is None else values.node(name, body)
        # pods know their nodes by the lowest level of the topology, usually this label
        places = {name} if before is None else {name, before.labels.get("kubernetes.io/hostname", name)}
        if after is not None:
            self.nodes[name] = after
            for place in (name, after.labels.get("kubernetes.io/hostname", name)):
                self.numbers.setdefault(place, len(self.numbers))
        lost = before is not None and before.ready and (after is None or not after.ready)
        fact: Fact = Gone(model.Node, name) if after is None else Put(after)
        return [fact], {self.numbers[place] for place in places if place in self.numbers} if lost else set()

    def _all_queues(self) -> Iterator[tuple[str, model.ClusterQueue]]:
        for name, body in self.queues.items():
            yield name, self._queue(name, body)

    def _queue(self, name: str, body: Json) -> model.ClusterQueue:
        """The ClusterQueue with the settings of the policy that is played."""
        raw = {"metadata": {"name": name, "labels": body.get("labels")}, "spec": body.get("spec")}
        queue = replace(
            values.value(_QUEUES, name, body),
            checks=(),
            namespace_selector=model.LabelSelector(),
            concurrent_admission=None,
            terminating=False,
        )
        try:
            own = policy_reader.with_policy(queue, policy_reader.in_force(self.policies.values(), raw), self.known)
        except ParseError:  # a policy that can't be read is not in force
            own = queue
        return self._played(own, raw)

    def _played(self, own: model.ClusterQueue, raw: Json) -> model.ClusterQueue:
        policy, queue = self.policy, own
        document = None if policy.document is None else dict(policy.document)
        if document is not None:
            if _selects_all(document) or policy_reader.selects(document, raw):
                queue = policy_reader.with_policy(own, document, self.known)
        elif policy.name != OWN.name:
            queue = replace(own, strategy=policy.strategy, ordering=policy.ordering, backfill=policy.backfill)
        if policy.unmoved:
            queue = replace(queue, moves=None)
        queue = with_restart(queue, self.restart_seconds)
        return replace(queue, recovery=None, overrun=None, refused_seconds=None)


def _selects_all(document: Json) -> bool:
    selection = document.get("spec", {}).get("clusterQueues") or {}
    return not selection.get("names") and not selection.get("matchLabels")


def queue_name(name: str) -> str:
    """A LocalQueue's key in one word."""
    return name.replace("/", ".", 1)
