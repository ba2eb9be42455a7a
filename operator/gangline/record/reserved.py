"""The windows of Reservations over the time of a replay, each when an operator with these objects would pass it to its engine.

The operator's own expansion does the work: windows of a schedule are known a few ahead, and nodes of a flavor are chosen as they
come and go. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from gangline.api.read.conditions import timestamp
from gangline.api.read.expansion import Expanded, expand
from gangline.engine.model import Millis, ReservedWindow, changes_between
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.record.history import RecordedChange
from gangline.replay.planned import Planned, PlannedWindow
from gangline.replay.trace_facts import HOST
from gangline.replay.world import ReplayEvent

RESERVATIONS: Final = kube.RESERVATIONS.kind
#: the kinds on which windows depend
_KINDS: Final = frozenset(
    each.kind for each in (kube.RESERVATIONS, kube.NODES, kube.RESOURCE_FLAVORS, kube.CLUSTER_QUEUES, kube.LOCAL_QUEUES)
)
#: changes within so many milliseconds are looked at together, about as in the operator: a list of nodes comes one by one
_PERIOD: Final[Millis] = 2_000


def planned(
    recorded: Iterable[RecordedChange], until: Millis, local_queue: Callable[[str], str] = str
) -> tuple[Planned, list[str]]:
    """The windows of these changes, which are in the order of time, up to a time; and what can't be honoured at the end, as
    sentences. `local_queue` gives the key of a LocalQueue in the replay.
    """
    state = _State(local_queue)
    wanted = (each for each in recorded if each.kind in _KINDS)
    for _, changed in groupby(wanted, key=lambda each: each.at // _PERIOD):
        together = list(changed)
        at = together[-1].at
        state.go_on(at)
        news = [state.put(each) for each in together]
        if any(news):
            state.expand(at)
    state.go_on(until)
    troubles = [f"Reservation {each.name}: {trouble}" for each in state.expanded for trouble in each.troubles]
    return Planned(tuple(state.events), tuple(state.begun(until))), troubles


@dataclass(slots=True)
class _State:
    """The cluster, as far as Reservations depend on it, and the windows that follow from it."""

    local_queue: Callable[[str], str]
    objects: dict[str, dict[str, Json]] = field(default_factory=lambda: {kind: {} for kind in _KINDS})
    known: dict[str, ReservedWindow] = field(default_factory=dict[str, ReservedWindow])
    expanded: Sequence[Expanded] = ()
    events: list[ReplayEvent] = field(default_factory=list[ReplayEvent])
    #: every window that began, by name, as it was last
    seen: dict[str, PlannedWindow] = field(default_factory=dict[str, PlannedWindow])

    def put(self, change: RecordedChange) -> bool:
        """Whether windows may be others now: most changes of nodes and queues say nothing about them."""
        objects, name, body = self.objects[change.kind], change.name, change.body
        before = objects.get(name)
        if body is None:
            objects.pop(name, None)
        else:
            objects[name] = _object(change, before)
        return objects.get(name) != before and (change.kind == RESERVATIONS or bool(self.objects[RESERVATIONS]))

    def go_on(self, until: Millis) -> None:
        """Windows end as time passes, and later ones come to be known."""
        while self.known and (end := min(window.end for window in self.known.values())) <= until:
            self.expand(end)

    def expand(self, now: Millis) -> None:
        objects = self.objects
        self.expanded = expand(
            objects[RESERVATIONS].values(),
            objects[kube.NODES.kind],
            objects[kube.RESOURCE_FLAVORS.kind],
            objects[kube.CLUSTER_QUEUES.kind],
            objects[kube.LOCAL_QUEUES.kind],
            now,
        )
        wanted: dict[str, ReservedWindow] = {}
        for each in self.expanded:
            if each.facts is None:
                continue
            # nodes of a flavor stay the same while they exist
            objects[RESERVATIONS][each.name]["status"] = {"nodes": each.nodes}
            for window in each.windows():
                queues = frozenset(map(self.local_queue, window.local_queues))
                wanted[window.name] = replace(window, local_queues=queues)
                self._see(wanted[window.name], each.nodes, now)
        for name in self.known.keys() - wanted.keys():
            self._forget(name, now)
        changes = tuple(changes_between(ReservedWindow, self.known, wanted))
        self.known = wanted
        if changes:
            self.events.append(ReplayEvent(now, changes))

    def _see(self, window: ReservedWindow, nodes: Iterable[str], now: Millis) -> None:
        """Note a window. Nodes that it gets or loses after its beginning are not noted."""
        known = self.seen.get(window.name)
        if known is None or window.begin > now:
            self.seen[window.name] = PlannedWindow(window, _names(nodes, self.objects[kube.NODES.kind]))
        else:
            self.seen[window.name] = PlannedWindow(window, known.nodes)

    def _forget(self, name: str, now: Millis) -> None:
        """A window is over, or there is none any more."""
        window = self.seen[name].window
        if window.begin >= now:
            del self.seen[name]
        elif window.end > now:
            self.seen[name] = PlannedWindow(replace(window, end=now), self.seen[name].nodes)

    def begun(self, until: Millis) -> list[PlannedWindow]:
        """The windows that began before a time, in their order."""
        found = (each for each in self.seen.values() if each.window.begin < until)
        return sorted(found, key=lambda each: (each.window.begin, each.window.name))


def _object(change: RecordedChange, before: Json | None) -> Json:
    """The object as `expand` reads it: what else there is of a node or a queue does not concern it."""
    body = change.body or {}
    metadata: Json = {"name": change.name.rpartition("/")[2], "labels": body.get("labels") or {}}
    if change.kind == kube.NODES.kind:
        return {"metadata": metadata, "spec": {"unschedulable": body.get("unschedulable", False)}}
    if change.kind == kube.RESOURCE_FLAVORS.kind:
        return {"metadata": metadata, "spec": {"nodeLabels": (body.get("spec") or {}).get("nodeLabels")}}
    if change.kind == RESERVATIONS:
        created = timestamp(change.at) if before is None else before["metadata"]["creationTimestamp"]
        status = {} if before is None else before.get("status") or {}
        return {
            "metadata": {**metadata, "creationTimestamp": created},
            "spec": body.get("spec"),
            "status": status,
        }
    return {"metadata": metadata}


def _names(nodes: Iterable[str], known: Mapping[str, Json]) -> frozenset[str]:
    """The names of nodes, and of their hosts, by which topologies know them."""
    hosts = (((known.get(name) or {}).get("metadata") or {}).get("labels", {}).get(HOST, name) for name in nodes)
    return frozenset((*nodes, *hosts))
