"""Reservations: the engine gets their windows, nodes are cordoned in maintenances, and pods learn by when to save.

The windows are facts like any other, so they are in the audit record, and a standby knows them before it leads. What is written
follows from the present: the cluster shows which nodes were cordoned here, by an annotation, and nothing is remembered that a
killed operator could forget. A node that somebody else cordoned stays as it is, and so does one that somebody uncordoned in the
window.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from gangline.api import names
from gangline.api.read import conditions
from gangline.api.read.expansion import Expanded, expand
from gangline.api.reservations import MOST_RECALLS
from gangline.api.schedules import instant
from gangline.api.unchecked import mapping
from gangline.control.feed.pod_index import Pod
from gangline.control.kernel.context import Context
from gangline.control.nodes.windows.deadlines import Deadlines
from gangline.control.nodes.windows.save_times import SaveTimes
from gangline.control.nodes.windows.workload_facts import WorkloadFacts
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority, Write, status_write
from gangline.control.writes.status import reservation_status
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Forbidden
from gangline.kube.reflector import Event
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import NodeObject, Stored, WorkloadObject

log = logging.getLogger(__name__)

#: Pods and statuses are looked at this often while a window is open, or near, in milliseconds.
PERIOD: Final = 2_000
#: All workloads are compared with newer measures of stops this often, in milliseconds.
MEASURES_EVERY: Final = 60_000
#: after a refused write of a node
AGAIN: Final = 30_000


class Reserving(Part):
    """The part. `observe_fact` gives a change to the engine."""

    name = "reservations"
    kinds = (kube.RESERVATIONS, kube.RESOURCE_FLAVORS, kube.CLUSTER_QUEUES, kube.LOCAL_QUEUES)

    def __init__(
        self,
        context: Context,
        observe_fact: Callable[[model.Change], None],
        save_times: SaveTimes,
        deadlines: Deadlines,
    ) -> None:
        self._mirror = context.mirror
        self._pods = context.pods
        self._engine = context.engine
        self._writer = context.writer
        self._now = context.now
        self._observe_fact = observe_fact
        self._nodes_changed = context.mirror.changes.nodes.subscribe(worth=context.mirror.has(kube.NODES))
        self._nodes_unread = context.mirror.changes.nodes.subscribe(worth=context.mirror.has(kube.NODES))
        #: node -> what of it decides which Reservations select it
        self._selectable: dict[str, tuple[Json, bool]] = {}
        #: whether the windows have to be computed again; and whether flavors or queues changed, for which that may wait
        self._stale = True
        self._others_changed = False
        self._expanded: list[Expanded] = []
        #: the windows that the engine has, by name
        self._known: dict[str, model.ReservedWindow] = {}
        #: when the windows of this moment are others, without any event; and when changed nodes and queues are looked at next
        self._expires: int | None = None
        self._next_look = 0
        #: the time of the last look, which a clock that is set back may precede
        self._settled_at = 0
        #: whether the Reservations were expanded since this process last acted
        self._fresh = False
        #: the nodes that are to be cordoned, as of the last look at all nodes; None = they have to be looked at
        self._cordoned: dict[str, str] | None = None
        self._deadlines = deadlines
        #: users whom Reservations name; and which workloads are theirs
        self._users: frozenset[str] = frozenset()
        self._submitters = WorkloadFacts(context.mirror, observe_fact, model.Submitter, self._submitter)
        #: how long pods take to end; which measures the engine has, and when it gets newer ones
        self._save_times = save_times
        self._stops = WorkloadFacts(context.mirror, observe_fact, model.SaveTime, save_times.of)
        self._measured, self._measures_next = 0, 0
        #: why nodes can't be cordoned, "" = nothing is known against it; and until when it is not tried again
        self._refusal = ""
        self._refused_until = 0

    # --- windows ------------------------------------------------------------------------------------------------------

    def observe(self, resource: Resource, event: Event) -> None:
        if resource == kube.RESERVATIONS:
            self._stale = True
        else:  # statuses of queues change all the time
            self._others_changed = True

    def settle(self) -> None:
        reservations = self._mirror.objects[kube.RESERVATIONS]
        if not reservations and not self._known and not self._expanded:
            self._nodes_unread.take()
            return
        self._settle_windows(reservations)
        users = frozenset(user for each in self._known.values() for user in each.users)
        anew, self._users = users != self._users, users
        self._submitters.settle(wanted=bool(users), anew=anew)
        self._settle_stops(any(not window.soft for window in self._known.values()))

    def _settle_stops(self, wanted: bool) -> None:
        now = self._now()
        anew = wanted and self._save_times.version != self._measured and now >= self._measures_next
        if anew:
            self._measured, self._measures_next = self._save_times.version, now + MEASURES_EVERY
        if wanted:
            self._save_times.ask()
        self._stops.settle(wanted=wanted, anew=anew)

    def _submitter(self, workload: WorkloadObject) -> model.Submitter | None:
        user = self._mirror.user_of(workload)
        return model.Submitter(workload.key, user) if user in self._users else None

    def _settle_windows(self, reservations: Mapping[str, Stored]) -> None:
        now = self._now()
        if now < self._settled_at:  # the clock was set back: what is over may be ahead again
            self._stale, self._next_look, self._refused_until = True, 0, 0
        self._settled_at = now
        if (self._nodes_unread or self._others_changed) and now >= self._next_look:  # the engine matches labels at once
            self._next_look = now + PERIOD
            self._stale = self._read_nodes() or self._others_changed or self._stale
            self._others_changed = False
        if not self._stale and (self._expires is None or now < self._expires):
            return
        self._stale, self._fresh = False, True
        objects = self._mirror.objects
        self._expanded = expand(
            reservations.values(),
            self._mirror.nodes,
            objects[kube.RESOURCE_FLAVORS],
            objects[kube.CLUSTER_QUEUES],
            objects[kube.LOCAL_QUEUES],
            now,
        )
        self._expires = min((span.end for each in self._expanded for span in each.spans), default=None)
        wanted = {window.name: window for each in self._expanded for window in each.windows()}
        for change in model.changes_between(model.ReservedWindow, self._known, wanted):
            self._observe_fact(change)
        self._known = wanted
        for recall in recalls(reservations.values()):
            self._observe_fact(model.Put(recall))

    def _read_nodes(self) -> bool:
        """Whether any node came, went, or may be selected otherwise than before: most changes of nodes are heartbeats."""
        changed = False
        for name in self._nodes_unread.take():
            node = self._mirror.nodes.get(name)
            if node is None:
                changed = self._selectable.pop(name, None) is not None or changed
                continue
            selectable: tuple[Json, bool] = (node.labels, bool(node.spec.get("unschedulable")))
            changed = self._selectable.get(name) != selectable or changed
            self._selectable[name] = selectable
        return changed

    # --- acting -------------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        self._deadlines.lead()
        self._cordoned, self._fresh = None, True

    def act(self, now: int) -> None:
        self._cordon(self._in_maintenance(now), now)
        if not self._fresh and (self.due is None or now < self.due):
            return
        self._fresh = False
        self._tell_pods(now)
        for each in self._expanded:
            self._write_status(each, now)
        self.due = self._next_due(now)

    def _next_due(self, now: int) -> int | None:
        """The next time at which a window is announced, begins or ends; soon while one is announced or open."""
        times: list[int] = [self._next_look] if self._nodes_unread or self._others_changed else []
        for window in self._known.values():
            if window.begin - window.notice <= now < window.end:
                return now + PERIOD
            times += [time for time in (window.begin - window.notice, window.end) if time > now]
        return min(times, default=None)

    def _in_maintenance(self, now: int) -> dict[str, str]:
        """The nodes that nobody is to use now, each with the Reservation that says so."""
        found: dict[str, str] = {}
        for each in self._expanded:
            if each.facts is not None and each.facts.maintenance and each.open_at(now) is not None:
                for node in each.nodes:
                    found.setdefault(node, each.name)
        return found

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _cordon(self, wanted: dict[str, str], now: int) -> None:
        """Cordon the nodes of open maintenances, and uncordon those that were cordoned here and are in none any more."""
        if now < self._refused_until:
            return
        changed = self._nodes_changed.take()
        among = changed if wanted == self._cordoned else self._mirror.nodes
        self._cordoned = wanted
        for name in sorted(among):
            node = self._mirror.nodes.get(name)
            if node is not None and _change(node, wanted.get(name, "")) is not None:
                self._write_node(name, wanted.get(name, ""))

    def _write_node(self, name: str, wanted: str) -> None:
        key = ObjectKey(kube.NODES, "", name)

        def body() -> Json | None:  # as the node is then: another part may write it before
            node = self._mirror.nodes.get(name)
            return _change(node, wanted) if node is not None else None

        def failed(error: ApiError) -> None:
            if isinstance(error, Forbidden):
                self._refusal = "Nodes can't be cordoned: the operator has no right to patch them"
                self._refused_until, self._cordoned = self._now() + AGAIN, None
            log.warning("node %s could not be %s: %s", name, "cordoned" if wanted else "uncordoned", error)

        def done(answer: object) -> None:
            self._refusal = ""

        write = Write(key, "patch", body, priority=Priority.START_STOP, slot="cordon", on_done=done, on_error=failed)
        self._writer.submit(write)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _tell_pods(self, now: int) -> None:
        """Write on pods by when their workload should save its work, and take it off again where no window comes."""
        wanted: dict[str, int] = {}
        for key, recall in self._engine.recalls().items():
            wanted.update((pod.key, recall.until) for pod in self._pods.of(key) if not pod.ended)
        for window in self._known.values():
            if not window.soft and window.begin - window.notice <= now < window.end:
                for pod in self._intruders(window):
                    until = self._engine.leaves_at(window, pod.workload)
                    wanted[pod.key] = min(wanted.get(pod.key, until), until)
        self._deadlines.put(self.name, {key: conditions.timestamp(until) for key, until in wanted.items()})

    def _intruders(self, window: model.ReservedWindow) -> list[Pod]:
        """The pods on its nodes whose workloads have to leave them, or should have left."""
        found: list[Pod] = []
        for node in self._nodes_of(window):
            for pod in self._pods.on(node):
                workload = self._mirror.workloads.get(pod.workload)
                if pod.ended or workload is None:
                    continue
                if not self._is_for(window, workload):
                    found.append(pod)
        return found

    def _is_for(self, window: model.ReservedWindow, workload: WorkloadObject) -> bool:
        submitter = self._submitters.known.get(workload.key)
        return (
            workload.admitted_by in window.cluster_queues
            or f"{workload.namespace}/{workload.queue_name}" in window.local_queues
            or (submitter is not None and submitter.user in window.users)
        )

    def _nodes_of(self, window: model.ReservedWindow) -> tuple[str, ...]:
        return next((each.nodes for each in self._expanded if each.name == window.reservation), ())

    # --- statuses -----------------------------------------------------------------------------------------------------

    def _write_status(self, each: Expanded, now: int) -> None:
        key = ObjectKey(kube.RESERVATIONS, "", each.name)
        obj = self._mirror.get(kube.RESERVATIONS, each.name)
        if obj is None or self._writer.pending(key):
            return
        late = {
            pod.workload
            for window in self._known.values()
            if window.reservation == each.name and not window.soft and window.begin <= now < window.end
            for pod in self._intruders(window)
        }
        recalled = [recall for recall in self._engine.recalls().values() if recall.reservation == each.name]
        open_now = each.open_at(now)
        refusal = (self._refusal,) if self._refusal and open_now and each.facts and each.facts.maintenance else ()
        troubles = (*each.troubles, *refusal, *each.advice)
        new = reservation_status.status(
            obj, each.spans, each.nodes, troubles, late, recalled, open_now=open_now, now=now
        )
        if (write := status_write(key, obj.status, new)) is not None:
            self._writer.submit(write)


def recalls(reservations: Iterable[Stored]) -> Iterator[model.Recall]:
    """The recalls that an operator wrote into statuses: which workload leaves by when, so that a new operator keeps to it."""
    for each in reservations:
        rows = each.status.get("recalls")
        for row in map(mapping, rows[:MOST_RECALLS] if isinstance(rows, list) else ()):
            try:
                until = instant(row.get("until", ""))
            except (OverflowError, TypeError, ValueError):
                continue  # somebody else wrote it: the workload gets a new recall
            workload, by = row.get("workload"), row.get("by")
            if isinstance(workload, str) and isinstance(by, str):
                yield model.Recall(workload, each.name, until, by)


def _change(node: NodeObject, wanted: str) -> Json | None:
    """The patch that cordons a node for this Reservation, or with "" uncordons one that was cordoned here; None = none is due."""
    ours, cordoned = node.annotations.get(names.CORDONED_FOR), bool(node.spec.get("unschedulable"))
    version = {"resourceVersion": node.resource_version}
    if wanted:
        if ours or cordoned:  # it is as it should be, or somebody else has a say
            return None
        annotations: Json = {names.CORDONED_FOR: wanted}
        return {"metadata": {**version, "annotations": annotations}, "spec": {"unschedulable": True}}
    if not ours:
        return None
    return {"metadata": {**version, "annotations": {names.CORDONED_FOR: None}}, "spec": {"unschedulable": None}}
