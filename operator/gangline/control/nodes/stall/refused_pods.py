"""Finds admitted gangs whose pods the API server refuses to create, and says so: on the Workload, on the job, by an event.

The Job controller tells a refusal by events alone, so the events of a namespace are read, and only while a gang there has lacked
pods for a while. The conclusion is recorded in the Workload's condition PodsRefused. The engine reads it from there, and requeues
the gang when it lasts too long.

Reads events of Jobs about pods that the API server refuses: the kind of refusal, its words, and when. Pure.

Only an answer that a retry does not change counts: a quota, Pod Security, a webhook or policy that says no, an invalid template.
A timeout, an error of a server or a webhook that cannot be reached does not: those pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from gangline import bounded
from gangline.api import names
from gangline.api.read import conditions
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status import run_changes
from gangline.control.writes.status.change import Change
from gangline.engine import model
from gangline.jobs.base import ShowsRefusedPods
from gangline.kube import resources as kube
from gangline.kube.client import ApiError
from gangline.kube.resources import ObjectKey
from gangline.objects import Stored, WorkloadObject

log = logging.getLogger(__name__)


#: reason of a Job controller's event about a pod that could not be created
FAILED_CREATE: Final = "FailedCreate"
#: characters of a refusal that are kept
LONGEST: Final = 1000
#: words of an answer, and the reason that stands for it; the first that occurs counts
_KINDS: Final = (
    ("exceeded quota", "ExceededQuota"),
    ("violates PodSecurity", "PodSecurity"),
    ("denied request", "Denied"),
    ("denied the request", "Denied"),
    ("is forbidden", "Forbidden"),
    ("is invalid", "Invalid"),
)
#: words of answers that pass by themselves: a quota that is not counted yet, a namespace whose jobs go with it, servers that are
#: away
_PASSING: Final = (
    "status unknown for quota",
    "being terminated",
    "failed calling webhook",
    "failed to call webhook",
    "timed out",
    "timeout",
    "try again",
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of pods. `at` is in milliseconds since the epoch, on the clock of the Job controller."""

    at: int
    reason: str
    message: str


def read(event: Stored) -> Refusal | None:
    """The refusal that an event of a Job tells; None if it is about something else."""
    if event.get("reason") != FAILED_CREATE:
        return None
    text = _words(str(event.get("note") or ""))
    if any(words in text for words in _PASSING):
        return None
    reason = next((reason for words, reason in _KINDS if words in text), None)
    return Refusal(_time(event), reason, text) if reason is not None else None


@bounded.parser(65_536, instead="", worst=("exceeded quota ", "\n", "é"))
def _words(note: str) -> str:
    """One line of printable characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in note).split())
    return line.removeprefix("Error creating: ")[:LONGEST]


def _time(event: Stored) -> int:
    """The time at which the event was last seen."""
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event.created,
    )
    return max(conditions.millis_of(time) for time in times)


#: seconds between two looks
PERIOD: Final = 5.0
#: A gang may lack pods for this long after its admission, in milliseconds, before its events are read.
PATIENCE: Final = 10_000
#: namespaces whose events are read in one look, and events in each
NAMESPACES: Final = 20
EVENTS: Final = 500
#: how many workloads are looked at before other tasks get their turn
AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class _Suspect:
    """An admitted gang that lacks pods; `newest`: when its newest pod was created, 0 = it has none."""

    value: model.Workload
    jobs: frozenset[str]  # uids of the Jobs that create its pods
    newest: model.Millis


class RefusedPodsOfRuns(Part):
    name = "refused pods"

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._mirror = context.mirror
        self._writes = context.writes
        self._pods = context.pods
        self._recorder = context.recorder
        self._now = context.now
        self._quarantine = context.quarantine
        self._last = ""  # the namespace whose events were read last

    async def run(self, leading: Callable[[], bool]) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(PERIOD)
            if not leading():
                continue
            try:
                suspects = await self._look()
                for namespace in self._in_turn({suspect.value.namespace for suspect in suspects}):
                    refusals = await self._refusals_in(namespace)
                    if leading():
                        self._judge([each for each in suspects if each.value.namespace == namespace], refusals)
            except ApiError as error:
                log.info("events of Jobs could not be read: %s", error)
            except Exception:
                log.exception("gangs could not be checked for refused pods")

    # --- gangs that lack pods ---

    async def _look(self) -> list[_Suspect]:
        suspects: list[_Suspect] = []
        keys = list(self._mirror.workloads)
        for first in range(0, len(keys), AT_ONCE):
            for key in keys[first : first + AT_ONCE]:
                value = self._mirror.workload_value(key)
                if value is not None and not value.finished and (value.admitted or value.requeue_count):
                    look = partial(self._look_at, value, suspects.append)
                    self._quarantine.attempt("checking its pods", kube.WORKLOADS, key, look)
            await asyncio.sleep(0)  # decisions go first
        return suspects

    def _look_at(self, value: model.Workload, suspect: Callable[[_Suspect], None]) -> None:
        raw = self._mirror.workloads.get(value.key)
        if raw is None:
            return
        self._show_on_job(raw)
        if not value.admitted or value.evicted or value.admission is None:
            return
        found = self._suspect(value, value.admission, raw) if not value.pods_ready else None
        if found is None and value.refused_at and not run_changes.why_not_started(raw):
            self._accepted(value.key)
        elif found is not None and value.admitted_at <= self._now() - PATIENCE:
            suspect(found)

    def _suspect(self, value: model.Workload, admission: model.Admission, raw: WorkloadObject) -> _Suspect | None:
        """The facts about an admitted gang that lacks pods; None if it has all of them."""
        ref = self._mirror.job_of(raw)
        job = self._mirror.job(ref) if ref is not None else None
        wanted = sum(p.count - value.reclaimable.get(p.name, 0) for p in admission.pod_sets)
        pods = [pod for pod in self._pods.of(value.key) if pod.alive]
        if ref is None or job is None or len(pods) >= wanted or JOB_KINDS[ref[0]].is_suspended(job):
            return None
        jobs = [job] if ref[0] is kube.JOBS else self._mirror.children_of(job).jobs
        uids = frozenset(each.uid for each in jobs)
        return _Suspect(value, uids, max((pod.created for pod in pods), default=0))

    # --- what their events say ---

    def _in_turn(self, namespaces: Iterable[str]) -> Iterator[str]:
        """The namespaces to read now: after the last one, in order, so that each gets its turn."""
        ordered = sorted(namespaces)
        after = [name for name in ordered if name > self._last]
        for namespace in (*after, *(name for name in ordered if name <= self._last))[:NAMESPACES]:
            self._last = namespace
            yield namespace

    async def _refusals_in(self, namespace: str) -> dict[str, Refusal]:
        """The last refusal that the events tell of, by the uid of the Job."""
        selector = f"reason={FAILED_CREATE},regarding.kind=Job"
        found: dict[str, Refusal] = {}
        async for page in self._client.pages(kube.EVENTS, namespace, field_selector=selector, limit=EVENTS):
            for event in map(Stored, page.items):
                uid = str((event.get("regarding") or {}).get("uid"))
                refusal = self._read(namespace, event)
                if refusal is not None and (uid not in found or refusal.at > found[uid].at):
                    found[uid] = refusal
            break  # one page: a namespace with more refused Jobs than this is read in parts
        return found

    def _read(self, namespace: str, event: Stored) -> Refusal | None:
        try:
            return read(event)
        except (ValueError, TypeError, AttributeError) as error:  # anybody may write an event
            log.info("event %s/%s: %s", namespace, event.name, type(error).__name__)
            return None

    def _judge(self, suspects: Iterable[_Suspect], refusals: dict[str, Refusal]) -> None:
        for suspect in suspects:
            value = self._mirror.workload_value(suspect.value.key)
            if value is None or value.uid != suspect.value.uid or not value.admitted or value.evicted:
                continue
            known = [refusals[uid] for uid in suspect.jobs if uid in refusals]
            refusal = max(known, key=lambda refusal: refusal.at, default=None)
            if refusal is None:
                continue
            # whole seconds: a pod that was created after the refusal shows that pods are accepted again
            if suspect.newest > refusal.at:
                if value.refused_at:
                    self._accepted(value.key)
            elif refusal.at >= value.admitted_at and not value.refused_at:
                self._refused(value.key, refusal)

    # --- what is said ---

    def _refused(self, key: str, refusal: Refusal) -> None:
        def done(answer: WorkloadObject | None) -> None:
            if answer is None:
                return
            ref = self._mirror.job_of(answer)
            job = self._mirror.job(ref) if ref is not None else None
            for obj in (answer, job) if job is not None else (answer,):
                self._recorder.record(obj, "Warning", names.PODS_REFUSED, refusal.message)
            self._show_on_job(answer)

        change = run_changes.pods_refused(True, refusal.reason, refusal.message)
        self._write(key, change, done)

    def _accepted(self, key: str) -> None:
        self._write(key, run_changes.pods_refused(False, "Accepted", "The pods are created"), None)

    def _write(self, key: str, change: Change, done: Callable[[WorkloadObject | None], None] | None) -> None:
        if not self._writes.in_doubt(kube.WORKLOADS, key):
            self._writes.change(key, "pods-refused", change, priority=Priority.LIFECYCLE, done=done)

    def _show_on_job(self, workload: WorkloadObject) -> None:
        """Show the condition on a job whose kind has a status of its own as well."""
        row = workload.condition(names.PODS_REFUSED)
        ref = self._mirror.job_of(workload) if row is not None else None
        job = self._mirror.job(ref) if ref is not None else None
        if row is None or ref is None or job is None:
            return
        kind = JOB_KINDS[ref[0]]
        refused = row["status"] == "True"
        if not isinstance(kind, ShowsRefusedPods) or job.is_true(names.PODS_REFUSED) == refused:
            return
        at = conditions.timestamp(self._now())
        patch = kind.pods_refused(job, refused, row["reason"], row.get("message") or "", at)
        if patch is not None:
            version = {"metadata": {"resourceVersion": job.resource_version}}
            target = ObjectKey.of(ref[0], job)
            body = {**version, **patch.body}
            self._writes.send(target, "status", body, priority=Priority.STATUS, slot="pods-refused")
