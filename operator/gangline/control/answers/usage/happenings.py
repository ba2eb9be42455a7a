"""A bounded log of what happened to jobs lately: changes of state, recoveries and moved starts. A client can follow it.

Kept by the leader alone, from the objects that it sees anyway. Events are numbered from the time at which the leader began to
lead, so a number of an earlier leader, or one whose event is forgotten, can be recognized.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gangline.control.answers.sight import Sight
from gangline.control.answers.workloads.reasons import preemption
from gangline.control.answers.workloads.snapshot import (
    FINISHED,
    JobState,
    WorkloadView,
    judge,
    routes_of,
    workload_view,
)
from gangline.control.answers.workloads.words import DELETED, RECOVERED, START_MOVED, SUBMITTED
from gangline.control.feed.mirror import Mirror
from gangline.control.parts.messages import Messages, Recovered, StartMoved
from gangline.control.parts.part import Part
from gangline.kube import resources as kube
from gangline.kube.reflector import Event
from gangline.kube.resources import Json, Resource
from gangline.objects import WorkloadObject

log = logging.getLogger(__name__)

#: events that are remembered: of a busy cluster about an hour, and 10 MB at most …
MOST: Final = 10_000
#: … with texts of this many characters
LONGEST: Final = 1024
#: numbers of events per millisecond of a leader's start
_ROOM: Final = 1000


class ForgottenError(LookupError):
    """The number is of an event that is not remembered any more, or of another leader."""


@dataclass(frozen=True, slots=True)
class EventSubject:
    """The Workload and the job to which something happens."""

    namespace: str
    workload: str
    job_kind: str
    job_name: str
    user: str
    queue: str
    cluster_queue: str
    gpus: int
    pods: int
    flavors: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.workload}"


@dataclass(frozen=True, slots=True)
class Happening:
    """One event. `at`: seconds since the epoch."""

    number: int
    at: float
    what: str
    reason: str
    text: str
    of: EventSubject

    def as_json(self, sight: Sight, jobs: Mapping[str, str]) -> Json:
        """The event as an asker may see it: of others' jobs what changed, when, and its size."""
        of, visible = self.of, sight.sees(self.of.namespace)
        label = sight.label(of.key)
        meta: Json = {"name": f"{of.workload if visible else label}.{self.number:x}"}
        if visible:
            meta |= {"namespace": of.namespace}
        return {
            "metadata": {**meta, "uid": f"{self.number:x}", "resourceVersion": str(self.number)},
            "at": self.at,
            "event": self.what,
            "reason": self.reason if visible else "",
            "text": sight.text(self.text, jobs) if visible else "",
            "hidden": not visible,
            "namespace": of.namespace if visible else "",
            "workload": of.workload if visible else label,
            "jobKind": of.job_kind if visible else "",
            "jobName": of.job_name if visible else label,
            "user": of.user if visible else "",
            "queue": of.queue if visible else "",
            "clusterQueue": sight.queue_name(of.cluster_queue),
            "gpus": of.gpus,
            "pods": of.pods,
            "flavors": list(of.flavors),
        }


class Log:
    """The remembered events, oldest first, and a signal for those who wait for more."""

    def __init__(self, now: Callable[[], int], most: int = MOST) -> None:
        self._now = now
        self._kept: deque[Happening] = deque(maxlen=most)
        self._next = now() * _ROOM
        self._signal = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the last event, or of none before the first."""
        return self._next - 1

    @property
    def before_first(self) -> int:
        """The number after which everything that is remembered follows."""
        return self._kept[0].number - 1 if self._kept else self.last

    def begin(self) -> None:
        """Begin a leader's numbers, which are above those of all leaders before it."""
        self._kept.clear()
        self._next = max(self._next, self._now() * _ROOM)

    def add(self, what: str, of: EventSubject, text: str = "", reason: str = "") -> None:
        if len(text) > LONGEST:  # at the end of a word: no part of a name stays that would not be hidden
            text = text[:LONGEST].rpartition(" ")[0]
        self._kept.append(Happening(self._next, self._now() / 1000, what, reason, text, of))
        self._next += 1
        self._signal.set()
        self._signal = asyncio.Event()

    def subjects(self) -> dict[str, EventSubject]:
        """The jobs of all events that are remembered, by the keys of their Workloads, as they were last."""
        return {each.of.key: each.of for each in self._kept}

    def after(self, number: int, most: int) -> list[Happening]:
        """The events after this number, `most` of them, oldest first. Raises ForgottenError."""
        if number > self.last or number < self.before_first:
            raise ForgottenError(f"resourceVersion {number} is too old, or another leader's: list again")
        skipped = number - self.before_first
        return list(itertools.islice(self._kept, skipped, skipped + most))

    async def more(self, number: int, seconds: float) -> bool:
        """Wait until there are events after this number; False when there are none after so many seconds."""
        if number < self.last:
            return True
        signal = self._signal
        try:
            async with asyncio.timeout(seconds):
                await signal.wait()
        except TimeoutError:
            return False
        return True


@dataclass(slots=True)
class _Known:
    """The state of a Workload when it was last seen; `reason`: why it waited."""

    state: JobState
    reason: str
    subject: EventSubject


class Happenings(Part):
    """Notes what happens to Workloads in the log. Its own troubles cost an event, never an object."""

    name = "happenings"
    kinds = (kube.WORKLOADS,)

    def __init__(self, mirror: Mirror, messages: Messages, now: Callable[[], int]) -> None:
        self.log = Log(now)
        self._mirror = mirror
        self._now = now
        #: since when this process leads, in seconds since the epoch
        self._since: float | None = None
        self._known: dict[str, _Known] = {}
        # of what the watch shows while a write is in doubt the mirror learns later
        self._changed = mirror.changes.workloads.subscribe(worth=mirror.has(kube.WORKLOADS))
        messages.subscribe(Recovered, lambda message: self._add_text(RECOVERED, message.workload, message.text))
        messages.subscribe(StartMoved, lambda message: self._add_text(START_MOVED, message.workload, message.text))

    def lead(self) -> None:
        self.log.begin()
        self._since = self._now() // 1000

    def observe(self, resource: Resource, event: Event) -> None:
        """Note what the mirror has learned from the event, if it shows that already."""
        self._note_changed()

    def act(self, now: int) -> None:
        self._note_changed()

    def _note_changed(self) -> None:
        if self._since is None:
            return
        for key in sorted(self._changed.take()):
            try:
                self._note(key, self._since)
            except Exception as error:  # an object stays in decisions although its event can't be logged
                log.debug("an event is left out: %r", error)

    def _note(self, key: str, since: float) -> None:
        raw, known = self._mirror.workloads.get(key), self._known.get(key)
        if raw is None:
            if known is not None:
                del self._known[key]
                if known.state not in FINISHED:
                    self.log.add(DELETED, known.subject)
            return
        state, reason, message, at = judge(raw)
        reason_shown = reason if state in (JobState.PENDING, JobState.INACTIVE) else ""
        if known is not None and (known.state, known.reason) == (state, reason_shown):
            return
        if known is not None and state is JobState.INACTIVE and known.reason == reason_shown:
            return  # why it waited before is still there: what made it inactive follows
        view = view_of_workload(self._mirror, raw)
        self._known[key] = _Known(state, reason_shown, of := subject_of(view))
        if known is None and view.created >= since:
            self.log.add(SUBMITTED, of)
            if state is JobState.PENDING and not reason:
                return
        # of one that this leader has not seen before, only what is new
        if known is not None or at >= since:
            self.log.add(str(state), of, self._cause(view) or message, reason)

    def _add_text(self, what: str, raw: WorkloadObject, text: str) -> None:
        if self._since is None:
            return
        try:
            self.log.add(what, subject_of(view_of_workload(self._mirror, raw)), text)
        except Exception as error:
            log.debug("an event is left out: %r", error)

    def _cause(self, view: WorkloadView) -> str:
        """The cause of an eviction. It names the preempting Workload by its key in place of its UID, so that `Sight.text` can
        hide it.
        """
        found = preemption(view.evicted)
        if found is None:
            return view.evicted
        job = self._mirror.job_with(found.job_uid)
        by = next((each.key for each in self._mirror.workloads_of(job)), "") if job is not None else ""
        return f"preempted for {by or 'another job'} ({found.cause})"


def view_of_workload(mirror: Mirror, raw: WorkloadObject) -> WorkloadView:
    """The view of a Workload, with the user whom its job names."""
    local = mirror.local_queues.get(f"{raw.namespace}/{raw.queue_name}")
    view = workload_view(raw, routes_of([local] if local is not None else []))
    job = mirror.job_of(raw)
    owner = mirror.job(job) if job is not None else None
    return replace(view, user=owner.user or view.user) if owner is not None else view


def subject_of(view: WorkloadView) -> EventSubject:
    return EventSubject(
        view.namespace,
        view.name,
        view.job_kind,
        view.job_name,
        view.user,
        view.queue,
        view.cluster_queue,
        view.gpus,
        view.pods,
        view.flavors,
    )
