"""Answers about what has been: events as they came, gangs that lost nodes, and whether reserved starts came true."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Final

from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.swap_record import RecordedSwap
from gangline.control.answers.desk import SLICE, Desk, Routes, Wish, view_of
from gangline.control.answers.pages import EVERYTHING, Listed, ListedUsage, ListPage
from gangline.control.answers.refusals import (
    NoAttemptsError,
    NoEventsError,
    NoSuchDecisionError,
    NotReadableError,
    TooSlowError,
)
from gangline.control.answers.sight import Asker, Sight
from gangline.control.answers.usage import attempts, decided
from gangline.control.answers.usage.accounts import user_of_workload
from gangline.control.answers.usage.attempt_watch import AttemptWatch
from gangline.control.answers.usage.happenings import EventSubject, Happening, Log, subject_of
from gangline.control.answers.workloads import briefs
from gangline.control.answers.workloads.snapshot import WorkloadView
from gangline.control.audit.decision_index import PreemptedSpan, RecordedDecision
from gangline.control.audit.decision_inputs import NotRepeatableError
from gangline.control.audit.hindsight import Hindsight
from gangline.control.audit.replay_process import ReplayError
from gangline.engine import Lateness
from gangline.engine.model import ReservedHead
from gangline.forecast.history.attempts import PREEMPTED, AttemptQuery, JobAttempt
from gangline.forecast.history.usage import Window
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

#: Workloads of which the record is looked for before other tasks get their turn
_AT_ONCE: Final = 1000
#: the last reserved starts of a queue that are listed one by one
_STARTS: Final = 20
#: parts of the record that one answer reads, each bounded, to find decisions of a ClusterQueue
_PARTS: Final = 4
#: decisions or attempts that are shown before other tasks get their turn
_ROWS: Final = 50
#: where no decisions are recorded
_NO_RECORD: Final = Hindsight(unknown="this operator keeps no record of its decisions (--audit)")
#: the last attempts of jobs of one name
_OF_JOB: Final = 200


@dataclass(frozen=True, slots=True)
class DecisionList:
    """A page of decisions. `last`: the number after which the next page begins, None = there is none; `covered_from`: the instant
    from which on the record covers all, in seconds, None while nothing is recorded; `recorded`: decisions are recorded at all.
    """

    items: list[Json]
    last: int | None
    covered_from: float | None
    recorded: bool


class RecordAnswers(Desk):
    """Answers about what has been."""

    # --- events -------------------------------------------------------------------------------------------------------

    @property
    def events_log(self) -> Log:
        """The log of events. Raises NoEventsError."""
        if self.log is None:
            raise NoEventsError("nobody remembers here what happened")
        return self.log

    def check_events(self, namespace: str, cluster_queue: str) -> None:
        """Check that events of this queue can be answered. Raises NoSuchQueueError, NoEventsError."""
        self._check_queue(Wish(namespace, cluster_queue), self._routes())
        _ = self.events_log

    async def events(
        self, asker: Asker, namespace: str, cluster_queue: str, after: int, most: int, since: float = 0.0
    ) -> tuple[list[Json], int]:
        """Events after a number, of those that the log has next and that are wanted, and the number of the last one looked at.

        Of a namespace ("" = of all), or of a ClusterQueue in all namespaces. Raises ForgottenError, NoEventsError.
        """
        looked = self.events_log.after(after, most)
        found = [each for each in looked if each.at >= since and _is_of(each, namespace, cluster_queue)]
        last = looked[-1].number if looked else after
        if not found:
            return [], last
        sight = await asker.sight({each.of.namespace for each in found}, self._own_queues(namespace, self._routes()))
        jobs = self._names_in(found)
        return [each.as_json(sight, jobs) for each in found], last

    def _names_in(self, found: Collection[Happening]) -> Mapping[str, str]:
        """Names of the jobs that texts of events name by the keys of their Workloads."""
        return self.job_names() if any("/" in each.text for each in found) else {}

    # --- recorded decisions -------------------------------------------------------------------------------------------

    async def decisions(
        self,
        asker: Asker,
        namespace: str,
        cluster_queue: str = "",
        after: int = -1,
        most: int = 250,
        *,
        since: float | None = None,
        until: float | None = None,
        workload: str = "",
    ) -> DecisionList:
        """The decisions after a number, of those that were made between two instants, as the record has them, oldest first: about
        Workloads of a namespace ("" = all), about one of them, or of a ClusterQueue in all namespaces. Raises NoSuchQueueError.
        """
        routes = self._routes()
        self._check_queue(Wish(namespace, cluster_queue), routes)
        record = self.source.record
        if record is None:
            return DecisionList([], None, None, recorded=False)
        of = "" if cluster_queue else namespace
        window = {"since": _millis(since), "until": _millis(until), "namespace": of, "workload": workload}
        found: list[RecordedDecision] = []
        subjects: dict[str, EventSubject] = {}
        more = True
        for _ in range(_PARTS):
            page = await record.page(after, most - len(found), **window)
            subjects |= await self._subjects(page.decisions, routes, known=subjects)
            found += [
                each
                for each in page.decisions
                if not cluster_queue or decided.queue_of(each, subjects.get(each.workload)) == cluster_queue
            ]
            after, more = page.last, page.more
            if not more or len(found) >= most:
                break
        sight = await asker.sight(decided.namespaces_of(found), self._own_queues(namespace, routes))
        jobs = self.job_names({key: each.job_name for key, each in subjects.items()})
        rows: list[Json] = []
        for number, each in enumerate(found, start=1):
            rows.append(decided.row(each, subjects, sight, jobs))
            if number % _ROWS == 0:
                await asyncio.sleep(0)
        begun = record.covered_from
        return DecisionList(rows, after if more else None, begun / 1000 if begun is not None else None, recorded=True)

    async def decision(self, asker: Asker, namespace: str, number: int) -> Json:
        """A decision about a Workload of a namespace ("" = of any), what the engine knew, and whether it decides the same again.

        Raises NoSuchDecisionError, NotReadableError, TooSlowError.
        """
        record, routes = self.source.record, self._routes()
        if record is None:
            raise NoSuchDecisionError("this operator keeps no record of its decisions (--audit)")
        found = await record.find(number)
        if found is None or namespace not in ("", found[0].namespace):
            where = f" about a Workload of namespace {namespace}" if namespace else ""
            raise NoSuchDecisionError(f"the record has no decision {number}{where}")
        each, part = found
        if not decided.sees(each, await asker.sight(decided.namespaces_of([each]), ())):
            raise NotReadableError("you may not list the Workloads of the namespace that this decision is about")
        if part is None:
            raise NoSuchDecisionError("the record has not any more what was known before this decision")
        try:
            inputs = await record.inputs(each, part)
        except NotRepeatableError as error:
            raise NoSuchDecisionError(str(error)) from error
        except ReplayError as error:
            raise TooSlowError(str(error)) from error
        keys = decided.keys_in(inputs)
        subjects = await self._subjects([each], routes, keys)
        spaces = {key.partition("/")[0] for key in keys} | decided.namespaces_of([each])
        sight = await asker.sight(spaces, self._own_queues(namespace or each.namespace, routes))
        jobs = self.job_names({key: of.job_name for key, of in subjects.items()})
        return {"decision": decided.row(each, subjects, sight, jobs), **decided.inputs_seen(inputs, subjects, sight)}

    async def record_check(self, asker: Asker) -> Json | None:
        """The last check of the whole record; None where there is none. It never waits for one."""
        record = self.source.record
        if record is None:
            return None
        check = record.check()
        sight = await asker.sight({key.partition("/")[0] for key in decided.keys_in(check)}, ())
        return {**check, "differences": [each | decided.rounds_seen(each, sight) for each in check["differences"]]}

    async def _subjects(
        self,
        found: Iterable[RecordedDecision],
        routes: Routes,
        others: Iterable[str] = (),
        known: Mapping[str, EventSubject] | None = None,
    ) -> dict[str, EventSubject]:
        """The jobs of Workloads that decisions name, and of others, by their keys: as they are, or as they were last seen."""
        keys = {key for each in found for key in (each.workload, decided.preemptor(each))} | set(others)
        subjects: dict[str, EventSubject] = {}
        gone: dict[str, EventSubject] | None = None
        for number, key in enumerate(sorted(keys - {""} - set(known or ())), start=1):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            raw = self.source.mirror.workloads.get(key)
            view = self._view(key, raw, routes) if raw is not None else None
            if view is not None:
                subjects[key] = decided.with_user(subject_of(view), user_of_workload(self.source, key))
                continue
            if gone is None:
                gone = self.log.subjects() if self.log is not None else {}
            if key in gone:
                subjects[key] = gone[key]
        return subjects

    # --- attempts -----------------------------------------------------------------------------------------------------

    @property
    def attempt_record(self) -> AttemptWatch:
        """The record of attempts. Raises NoAttemptsError."""
        if self.record is None:
            raise NoAttemptsError("nobody keeps a record of attempts here")
        return self.record

    async def attempts(
        self,
        asker: Asker,
        namespace: str,
        since: float,
        page: ListPage = EVERYTHING,
        cluster_queue: str = "",
        *,
        ended_as: str = "",
        job: str = "",
        kind: str = "",
        caused: bool = False,
        cheaper: bool = False,
    ) -> Listed:
        """A page of the attempts in progress and of those that ended in the last `since` seconds, of a namespace ("" = of all)
        and a ClusterQueue; only those that `ended_as` this, and those of a job by its name, or by its kind too.

        With `caused`, the attempts that were preempted for jobs of this namespace, ClusterQueue and name, whosever they are; with
        `cheaper`, whether preemptions could have lost less.
        Raises NoSuchQueueError, NoAttemptsError, WrongNameError.
        """
        routes = self._routes()
        self._check_queue(Wish(namespace, cluster_queue), routes)
        after = self.source.now() / 1000 - since
        if caused:
            query = AttemptQuery(since=after, end=PREEMPTED, by_namespace=namespace, by_queue=cluster_queue, by_job=job)
        else:
            query = AttemptQuery(
                since=after, end=ended_as, namespace=namespace, cluster_queue=cluster_queue, job_name=job
            )
        found = await self.attempt_record.attempts(query)
        if wanted := briefs.singular(kind):
            kinds = [each.by_job.partition("/")[0] if caused else each.job_kind.lower() for each in found]
            found = [each for each, of in zip(found, kinds, strict=True) if of == wanted]
        shown, left = page.cut(found)
        return Listed(await self._attempt_rows(asker, namespace, shown, routes, cheaper=cheaper), left)

    async def attempts_of(
        self, asker: Asker, namespace: str, kind: str, name: str, *, cheaper: bool = False
    ) -> list[Json]:
        """The attempts of the jobs of this name in a namespace, also of deleted ones, the last first.

        Raises NotReadableError, NoSuchJobError, WrongNameError, NoAttemptsError.
        """
        record, routes = self.attempt_record, self._routes()
        if not (await asker.sight({namespace}, ())).sees(namespace):
            raise NotReadableError(f"you may not list the Workloads of namespace {namespace}")
        found = await record.attempts(AttemptQuery(namespace=namespace, job_name=name, most=_OF_JOB))
        found = [each for each in found if briefs.singular(kind) in ("", each.job_kind.lower())]
        if not found:
            view = await self._found(asker, namespace, kind, name, routes)
            found = await record.attempts(AttemptQuery(namespace=namespace, job_name=view.job_name, most=_OF_JOB))
            found = [each for each in found if each.job_kind == view.job_kind]
        return await self._attempt_rows(asker, namespace, found, routes, cheaper=cheaper)

    async def _attempt_rows(
        self, asker: Asker, namespace: str, found: Sequence[JobAttempt], routes: Routes, *, cheaper: bool = False
    ) -> list[Json]:
        spaces = {each.namespace for each in found} | {each.by.partition("/")[0] for each in found if each.by}
        sight = await asker.sight(spaces, self._own_queues(namespace, routes))
        hindsight = await self._hindsight(found) if cheaper else None
        now, rows = self.source.now() / 1000, list[Json]()
        for number, row in enumerate(attempts.rows(found, sight, self.job_names(), now, hindsight)):
            if number % _ROWS == _ROWS - 1:
                await asyncio.sleep(0)
            rows.append(row)
        return rows

    async def _hindsight(self, found: Iterable[JobAttempt]) -> dict[str, Hindsight]:
        """Whether the preemptions that ended attempts could have lost less, by the keys of the attempts."""
        preempted = [(each, each.ended) for each in found if each.end == PREEMPTED and each.ended is not None]
        if self.source.record is None:
            return dict.fromkeys((each.key for each, _ in preempted), _NO_RECORD)
        spans = [
            PreemptedSpan(f"{each.namespace}/{each.workload}", round(1000 * each.reserved), round(1000 * (ended + 1)))
            for each, ended in preempted  # conditions have whole seconds
        ]
        verdicts = await self.source.record.hindsight(spans)
        return {each.key: what for (each, _), what in zip(preempted, verdicts, strict=True)}

    async def usage(
        self,
        asker: Asker,
        namespace: str,
        since: float,
        by: str,
        half_life: float | None = None,
        page: ListPage = EVERYTHING,
        cluster_queue: str = "",
        *,
        start: float | None = None,
        end: float | None = None,
        zone: tzinfo = UTC,
    ) -> ListedUsage:
        """A page of the sums of attempts over the last `since` seconds, or from `start` to `end` where these are given: with a
        namespace, of the ClusterQueues that it uses. Days begin at midnight in `zone`.

        All jobs count, whoever may see them. Raises NoSuchQueueError, NoAttemptsError.
        """
        routes = self._routes()
        asked_about = self._queues_of(Wish(namespace, cluster_queue), routes)
        own = self._own_queues(namespace, routes)
        queues = None if asked_about is None else frozenset(asked_about)
        now = self.source.now() / 1000
        until = now if end is None else min(now, end)
        window = Window(min(until, now - since if start is None else start), until, by, half_life, queues, zone=zone)
        asked = (by, since, start, end, half_life, queues, str(zone))
        made = await self.attempt_record.usage(window, asked)
        sight = await asker.sight({space for space, _ in made.by_group if space}, own)
        found = await asyncio.to_thread(attempts.sums, made.by_group, made.window, sight)
        return ListedUsage(*page.cut(found.rows), found.total, made.window.since, made.window.until)

    # --- gangs that lost nodes ----------------------------------------------------------------------------------------

    async def swaps(self, asker: Asker, namespace: str, cluster_queue: str = "", page: ListPage = EVERYTHING) -> Listed:
        """A page of the recorded recoveries, the latest first. Raises NoSuchQueueError."""
        routes = self._routes()
        self._check_queue(Wish(namespace, cluster_queue), routes)
        found: list[tuple[RecordedSwap, str, WorkloadObject]] = []
        for number, (key, raw) in enumerate(self._workloads()):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            if self._is_in(key, raw, namespace, cluster_queue, routes):
                found += ((swap, key, raw) for swap in swap_record.of(raw).log)
        found.sort(key=lambda each: (-each[0].detected, each[1]))
        chosen, left = page.cut(found)
        sight = await asker.sight({key.partition("/")[0] for _, key, _ in chosen}, self._own_queues(namespace, routes))
        views = {key: view_of(key, raw, routes) for _, key, raw in chosen}
        rows = [swap_row(swap, sight.workload(view)) for swap, key, _ in chosen if (view := views[key]) is not None]
        return Listed(rows, left)

    def _is_in(self, key: str, raw: WorkloadObject, namespace: str, cluster_queue: str, routes: Routes) -> bool:
        if cluster_queue:
            return self._queue_of(raw, routes) == cluster_queue
        return namespace in ("", key.partition("/")[0])

    # --- promises of reservations -------------------------------------------------------------------------------------

    async def audits(
        self, asker: Asker, namespace: str, cluster_queue: str = "", page: ListPage = EVERYTHING
    ) -> Listed:
        """A page of the ClusterQueues, and how their reserved jobs fared since this leader began. Raises NoSuchQueueError."""
        routes = self._routes()
        self._check_queue(Wish(namespace, cluster_queue), routes)
        known = self.source.mirror.objects[kube.CLUSTER_QUEUES]
        own = self._own_queues(namespace, routes) if namespace else set(known)
        queues = sorted({cluster_queue} if cluster_queue else own & set(known))
        chosen, left = page.cut(queues)
        starts = [each for each in self.source.engine.head_starts() if each.cluster_queue in chosen]
        sight = await asker.sight(
            {each.workload.partition("/")[0] for each in starts}, self._own_queues(namespace, routes)
        )
        jobs = self.job_names() if starts else {}
        rows = [
            self._audit(queue, sight, [each for each in starts if each.cluster_queue == queue], jobs)
            for queue in chosen
        ]
        return Listed(rows, left)

    def _audit(self, queue: str, sight: Sight, starts: list[ReservedHead], jobs: Mapping[str, str]) -> Json:
        engine = self.source.engine
        lateness, delays = engine.head_lateness().get(queue, Lateness()), engine.head_delay_seconds().get(queue, {})
        name = sight.queue_name(queue)
        return {
            "metadata": {"name": name},
            "clusterQueue": name,
            **lateness.as_json(),
            "delaySeconds": {cause: round(seconds, 3) for cause, seconds in sorted(delays.items())},
            "starts": [
                {
                    "job": sight.name(each.workload, jobs),
                    **self._whose(each.workload, sight),
                    "planned": _seconds(each.planned),
                    "promised": _seconds(each.promised),
                    "started": each.started / 1000,
                    "missedBy": each.cause,
                }
                for each in starts[-_STARTS:]
            ],
        }

    def _whose(self, key: str, sight: Sight) -> Json:
        """Namespace and user of a workload, "" for a hidden one."""
        space = key.partition("/")[0]
        seen = sight.sees(space)
        return {"namespace": space if seen else "", "user": user_of_workload(self.source, key) if seen else ""}


def _seconds(millis: int | None) -> float | None:
    return None if millis is None else millis / 1000


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _is_of(each: Happening, namespace: str, cluster_queue: str) -> bool:
    return each.of.cluster_queue == cluster_queue if cluster_queue else namespace in ("", each.of.namespace)


def swap_row(swap: RecordedSwap, view: WorkloadView) -> Json:
    """A swap as a row of an answer. The row of a hidden gang has its size, the times and how long the swap took."""
    times: dict[str, Any] = {
        "detected": swap.detected,
        "decided": swap.decided,
        "created": swap.created,
        "running": swap.running,
    }
    meta = {"name": view.name} if view.hidden else {"namespace": view.namespace, "name": view.name}
    return {
        "metadata": meta,
        "hidden": view.hidden,
        "namespace": view.namespace,
        "workload": view.name,
        "job": view.job,
        "user": view.user,
        "queue": view.queue,
        "clusterQueue": view.cluster_queue,
        "gpus": view.gpus,
        "pods": view.pods,
        "how": swap.how,
        "cause": "" if view.hidden else swap.cause,
        "from": [] if view.hidden else list(swap.lost),
        "to": [] if view.hidden else list(swap.to),
        "state": "Recovering" if swap.open else "Recovered",
        "times": {stage: at / 1000 if at is not None else None for stage, at in times.items()},
        "seconds": swap.stages(),
    }
