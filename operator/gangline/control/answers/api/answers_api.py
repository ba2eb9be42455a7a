"""`answers.gangline.io`: what the leader knows about jobs, for the user that the API server names.

The API server has checked that the user may ask; it is asked again here, as for the visibility API. What an answer shows in full
is a second question: the jobs of namespaces in which the user may list Workloads. So many answers are made at a time and no more,
each within a time limit; what is too much gets a 429.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

import orjson
from aiohttp import web

from gangline import bounded
from gangline.control.answers.ahead import capacity, changes, plan_checks, whatif
from gangline.control.answers.answers import Answers
from gangline.control.answers.api import event_stream, live_stream
from gangline.control.answers.api.access_review import ResourceAttributes, Reviews
from gangline.control.answers.api.discovery import ANSWERS, METHODS, WATCH, ServedResource
from gangline.control.answers.api.front_proxy import User
from gangline.control.answers.api.question import LONGEST_SINCE, LONGEST_USAGE, Question, QuestionError
from gangline.control.answers.desk import Wish
from gangline.control.answers.live.answers import Looks
from gangline.control.answers.live.table import LiveTable
from gangline.control.answers.pages import Listed, ListPage
from gangline.control.answers.refusals import (
    NoAttemptsError,
    NoEventsError,
    NoSuchDecisionError,
    NoSuchJobError,
    NoSuchNodeError,
    NoSuchQueueError,
    NotReadableError,
    NotWaitingError,
    PodsUnknownError,
    TooSlowError,
)
from gangline.control.answers.sight import ALL, Asker, Sight
from gangline.control.answers.source import NoForecastsError
from gangline.control.answers.usage.happenings import ForgottenError
from gangline.control.answers.workloads.briefs import WrongNameError
from gangline.forecast.history.attempts import ENDS
from gangline.forecast.history.usage import BY, LABEL
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.tls.requests import BusyError, Turnstile

#: seconds for one answer: less than an API server waits (60)
TIME: Final = 40.0
#: answers made at a time, those waiting for their turn, and those of one user, made or waiting
AT_ONCE: Final = 8
WAITING: Final = 64
PER_USER: Final = 8
#: the same for simulations that a request starts
SIMULATIONS: Final = (2, 8, 1)
#: resources whose answers start a simulation of their own, besides what asks for `cheaper`
SIMULATED: Final = frozenset(
    {"queuedjobs/remedies", "queuedjobs/victims", "flavornodes/moves", "decisions/inputs", "whatifs"}
)
#: namespaces that are looked up for one answer; the jobs of further ones are hidden
NAMESPACES: Final = 100
#: bytes, levels and values of a request's body
LONGEST: Final = 512 * 1024
DEEPEST: Final = 60
MOST_VALUES: Final = 50_000

Answer: TypeAlias = Callable[["Request"], Awaitable[Json]]
#: a stream for a user about a namespace; with the parameters that are known, and the right that is needed
Watch: TypeAlias = Callable[[web.Request, User, str, frozenset[str], ResourceAttributes], Awaitable[web.StreamResponse]]
#: a page of rows about a namespace ("" = all) or a ClusterQueue
ByQueue: TypeAlias = Callable[[Asker, str, str, ListPage], Awaitable[Listed]]


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a user."""

    user: User
    namespace: str
    name: str
    question: Question
    body: bytes = b""


class Reviewed:
    """A user of the cluster, who sees what the API server lets this user list."""

    def __init__(self, reviews: Reviews, user: User, first: str) -> None:
        """Prepare the reviews of a user. `first`: the namespace of the request, which is looked up whatever else there is."""
        self._reviews = reviews
        self._user = user
        self._first = first

    async def sight(self, namespaces: Collection[str], queues: Collection[str]) -> Sight:
        if await self._may_list(""):
            return ALL
        others = sorted(set(namespaces) - {self._first})
        asked = [name for name in (self._first, *others) if name][:NAMESPACES]
        seen = await asyncio.gather(*(self._may_list(name) for name in asked))
        allowed = frozenset(name for name, may in zip(asked, seen, strict=True) if may)
        return Sight(namespaces=allowed, queues=frozenset(queues))

    async def _may_list(self, namespace: str) -> bool:
        """Whether the user may list the Workloads of a namespace ("" = of all)."""
        workloads = kube.WORKLOADS
        access = ResourceAttributes(workloads.group, workloads.version, workloads.plural, "", "", namespace, "list")
        return await self._reviews.allowed(self._user, access)


class AnswersApi:
    """Serves the answers. `accuracy` returns how accurate forecasts have been; None where none are made. `state` returns how the
    operator itself is.
    """

    def __init__(
        self,
        answers: Answers,
        reviews: Reviews,
        accuracy: Callable[[], Json] | None,
        state: Callable[[], Json] | None = None,
    ) -> None:
        self._answers = answers
        self._state = state
        self._reviews = reviews
        self._accuracy = accuracy
        self._turns = Turnstile(AT_ONCE, WAITING, PER_USER)
        self._simulations = Turnstile(*SIMULATIONS)
        self._streams = Turnstile(event_stream.STREAMS, 0, event_stream.PER_USER)
        self._live_streams = Turnstile(live_stream.STREAMS, 0, live_stream.PER_USER)
        self._watches: dict[str, tuple[Watch, Turnstile]] = {
            "jobevents": (self._watch_events, self._streams),
            "liverows": (self._watch_live, self._live_streams),
        }
        looks = Looks(answers)
        self._live = LiveTable(looks.look, looks.forget)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """End all streams."""
        self._ending.set()

    def add_to(self, app: web.Application, user: web.RequestKey[User]) -> None:
        """Add a route for each verb on each resource."""
        answers: dict[tuple[str, str], Answer] = {
            ("queuedjobs", "list"): self._list,
            ("queuedjobs", "get"): self._get,
            ("queuedjobs/why", "get"): self._why,
            ("queuedjobs/promises", "get"): self._promises,
            ("queuedjobs/remedies", "get"): self._remedies,
            ("queuedjobs/story", "get"): self._story,
            ("queuedjobs/pods", "get"): self._pods,
            ("queuedjobs/victims", "get"): self._victims,
            ("plannedruns", "list"): self._plan,
            ("queueshares", "list"): self._by_queue(self._answers.shares),
            ("plannedcapacities", "list"): self._capacity,
            ("pastruns", "list"): self._past,
            ("jobattempts", "list"): self._attempts,
            ("queuedjobs/attempts", "get"): self._attempts_of,
            ("usagesums", "list"): self._usage,
            ("flavornodes", "list"): self._nodes,
            ("flavornodes/moves", "get"): self._moves,
            ("jobevents", "list"): self._events,
            ("gangswaps", "list"): self._by_queue(self._answers.swaps),
            ("queueaudits", "list"): self._by_queue(self._answers.audits),
            ("forecastaccuracies", "list"): self._accuracies,
            ("operatorstates", "list"): self._operator,
            ("decisions", "list"): self._decisions,
            ("decisions/inputs", "get"): self._decision_inputs,
            ("recordchecks", "list"): self._record_checks,
            ("whatifs", "create"): self._what_if,
            ("planchecks", "create"): self._plan_check,
            ("liverows", WATCH): _only_watched,
        }
        for version in ANSWERS.versions:
            for served in ANSWERS.resources:
                for verb, path in served.paths(ANSWERS.root(version)):
                    handler = self._handler(version, served, verb, answers[served.name, verb], user)
                    app.router.add_route(METHODS[verb], path, handler)

    def _handler(
        self, version: str, served: ServedResource, verb: str, answer: Answer, user_of: web.RequestKey[User]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        known = frozenset(name for name, _ in served.parameters)
        watched = self._watches.get(served.plural)

        async def handle(request: web.Request) -> web.StreamResponse:
            user = request[user_of]
            namespace, name = request.match_info.get("namespace", ""), request.match_info.get("name", "")
            asked = WATCH if _is_watch(request, served) else "list" if verb == WATCH else verb
            access = ResourceAttributes(
                ANSWERS.name, version, served.plural, served.subresource, name, namespace, asked
            )
            if watched is not None and asked == WATCH:
                watch, streams = watched
                try:
                    async with streams.turn(user.account):
                        await self._check(user, access)
                        return await watch(request, user, namespace, known, access)
                except BusyError as error:
                    raise web.HTTPTooManyRequests(text=str(error), headers=error.headers) from None
            with_body = verb == "create"
            simulated = served.name in SIMULATED or request.query.get("cheaper") == "true"
            turns = self._simulations if simulated else self._turns
            try:
                async with asyncio.timeout(TIME), turns.turn(user.account):
                    await self._check(user, access)
                    body = await request.read() if with_body else b""
                    question = Question.of(request.query, known, served.longest or LONGEST_SINCE)
                    found = await answer(Request(user, namespace, name, question, body))
            except BusyError as error:
                raise web.HTTPTooManyRequests(text=str(error), headers=error.headers) from None
            except TimeoutError:
                raise web.HTTPGatewayTimeout(text=f"the answer took more than {TIME:g} s") from None
            except (QuestionError, WrongNameError) as error:
                raise web.HTTPBadRequest(text=str(error)) from None
            except (whatif.WrongJobError, changes.WrongChangeError, plan_checks.WrongPlanError) as error:
                raise web.HTTPUnprocessableEntity(text=str(error)) from None
            except (NoSuchJobError, NoSuchNodeError, NoSuchQueueError, NoSuchDecisionError) as error:
                raise web.HTTPNotFound(text=str(error)) from None
            except NotReadableError as error:
                raise web.HTTPForbidden(text=str(error)) from None
            except NotWaitingError as error:
                raise web.HTTPConflict(text=str(error)) from None
            except (NoForecastsError, PodsUnknownError, NoEventsError, NoAttemptsError) as error:
                raise web.HTTPNotImplemented(text=str(error)) from None
            except TooSlowError as error:
                raise web.HTTPGatewayTimeout(text=str(error)) from None
            except ForgottenError as error:
                raise web.HTTPGone(text=str(error)) from None
            kind = f"{served.kind}List" if verb == "list" else served.kind
            head = {"kind": kind, "apiVersion": f"{ANSWERS.name}/{version}", "metadata": {}}
            return as_response({**head, **found}, 201 if with_body else 200)

        return handle

    async def _check(self, user: User, access: ResourceAttributes) -> None:
        """Raises HTTPForbidden where the user may not ask this. It is asked within a turn: each costs a request."""
        if not await self._reviews.allowed(user, access):
            resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
            about = f' "{access.name}"' if access.name else ""
            raise web.HTTPForbidden(text=f'{resource}{about} is forbidden: User "{user.name}" cannot {access}')

    def _asker(self, request: Request) -> Reviewed:
        return Reviewed(self._reviews, request.user, request.namespace)

    @property
    def _now(self) -> float:
        return self._answers.source.now() / 1000

    # --- answers ------------------------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Json:
        asked = request.question
        wish = Wish(request.namespace, asked.cluster_queue, asked.finished, asked.times, asked.page, asked.annotations)
        return self._listed(await self._answers.jobs(self._asker(request), wish), asked.page)

    async def _get(self, request: Request) -> Json:
        asked = request.question
        return await self._answers.job(
            self._asker(request), request.namespace, asked.kind, request.name, with_times=asked.times
        )

    async def _why(self, request: Request) -> Json:
        job, lines = await self._answers.why(
            self._asker(request), request.namespace, request.question.kind, request.name
        )
        rows = [{"label": line.label, "text": line.text} for line in lines]
        return {"metadata": job["metadata"], "job": job, "lines": rows}

    async def _remedies(self, request: Request) -> Json:
        job, status = await self._answers.remedies(
            self._asker(request), request.namespace, request.question.kind, request.name
        )
        return {"metadata": job["metadata"], "job": job, **status}

    async def _promises(self, request: Request) -> Json:
        job, status = await self._answers.promises(
            self._asker(request), request.namespace, request.question.kind, request.name
        )
        return {"metadata": job["metadata"], "job": job, **status}

    async def _story(self, request: Request) -> Json:
        job, events = await self._answers.story(
            self._asker(request), request.namespace, request.question.kind, request.name
        )
        return {"metadata": job["metadata"], "job": job, "events": events}

    async def _pods(self, request: Request) -> Json:
        job, pods = await self._answers.pods(
            self._asker(request), request.namespace, request.question.kind, request.name
        )
        return {"metadata": job["metadata"], "job": job, "pods": pods}

    async def _plan(self, request: Request) -> Json:
        asked = request.question
        asker = self._asker(request)
        runs = await self._answers.plan(asker, request.namespace, asked.cluster_queue, asked.horizon, asked.page)
        return self._listed(runs, asked.page)

    async def _victims(self, request: Request) -> Json:
        job, status = await self._answers.would_preempt(
            self._asker(request), request.namespace, request.question.kind, request.name
        )
        return {"metadata": job["metadata"], "job": job, **status}

    def _by_queue(self, answer: ByQueue) -> Answer:
        async def listed(request: Request) -> Json:
            asked = request.question
            found = await answer(self._asker(request), request.namespace, asked.cluster_queue, asked.page)
            return self._listed(found, asked.page)

        return listed

    async def _past(self, request: Request) -> Json:
        asked = request.question
        found = await self._answers.past(
            self._asker(request), request.namespace, asked.since, asked.page, asked.cluster_queue
        )
        return self._listed(found, asked.page)

    async def _capacity(self, request: Request) -> Json:
        asked = request.question
        try:
            found = await self._answers.capacity(
                self._asker(request), request.namespace, asked.at, asked.page, asked.cluster_queue
            )
        except capacity.WrongTimeError as error:
            raise QuestionError(f"at {error}, not {asked.at}") from None
        return self._listed(found, asked.page)

    async def _attempts(self, request: Request) -> Json:
        asked = request.question
        if asked.ended_as not in ("", *ENDS):
            raise QuestionError(f"endedAs must be one of {', '.join(ENDS)}, not {bounded.shown(asked.ended_as)}")
        found = await self._answers.attempts(
            self._asker(request),
            request.namespace,
            asked.since,
            asked.page,
            asked.cluster_queue,
            ended_as=asked.ended_as,
            job=asked.job,
            kind=asked.kind,
            caused=asked.caused,
            cheaper=asked.cheaper,
        )
        return self._listed(found, asked.page)

    async def _attempts_of(self, request: Request) -> Json:
        asked = request.question
        found = await self._answers.attempts_of(
            self._asker(request), request.namespace, asked.kind, request.name, cheaper=asked.cheaper
        )
        return {"metadata": {"namespace": request.namespace, "name": request.name}, "attempts": found}

    async def _usage(self, request: Request) -> Json:
        asked = request.question
        by = asked.by or BY[0]
        if by not in BY and not by.startswith(LABEL):
            raise QuestionError(f"by must be one of {', '.join(BY)} or {LABEL}KEY, not {bounded.shown(by)}")
        if by.startswith(LABEL) and by.removeprefix(LABEL) not in (kept := self._answers.attempt_record.labels):
            known = f"kept are {', '.join(kept)}" if kept else "none is kept"
            raise QuestionError(f"by: {bounded.shown(by)}: this label of jobs is not kept (--history-labels): {known}")
        oldest = self._now - LONGEST_USAGE
        for name, at in (("start", asked.start), ("end", asked.end)):
            if at is not None and at < oldest:
                raise QuestionError(f"{name} must be from {math.ceil(oldest)}: older attempts are not kept; it is {at}")
        if asked.end is not None and asked.start is None:
            raise QuestionError("start belongs to a question with end")
        found = await self._answers.usage(
            self._asker(request),
            request.namespace,
            asked.since,
            by,
            asked.half_life,
            asked.page,
            asked.cluster_queue,
            start=asked.start,
            end=asked.end,
            zone=asked.zone,
        )
        return {**self._listed(found, asked.page), "start": found.start, "end": found.end, "total": found.total}

    async def _nodes(self, request: Request) -> Json:
        asked = request.question
        found = await self._answers.nodes(self._asker(request), request.namespace, asked.page, asked.cluster_queue)
        return self._listed(found, asked.page)

    async def _moves(self, request: Request) -> Json:
        found = await self._answers.moves(self._asker(request), request.namespace, request.name)
        return {"metadata": {"name": request.name}, "gangs": found}

    # --- events -------------------------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Json:
        """A page of events. It goes on after an event, by its number, so no event is in two pages."""
        asked, answers, asker = request.question, self._answers, self._asker(request)
        answers.check_events(request.namespace, asked.cluster_queue)
        kept = answers.events_log
        last, most = kept.last, asked.page.limit or 0
        after, found = asked.page.offset or kept.before_first, list[Json]()
        while after < last and len(found) < most:
            more, after = await answers.events(
                asker, request.namespace, asked.cluster_queue, after, most - len(found), self._now - asked.since
            )
            found += more
            await asyncio.sleep(0)
        more = {"continue": str(after)} if after < last else {}
        return {"metadata": {"resourceVersion": str(after), **more}, "now": self._now, "items": found}

    # --- recorded decisions -------------------------------------------------------------------------------------------

    async def _decisions(self, request: Request) -> Json:
        """A page of decisions. It goes on after a decision, by its number, and may be empty where others follow."""
        asked, now = request.question, self._now
        if asked.workload and not request.namespace:
            raise QuestionError("workload belongs to a question about a namespace")
        found = await self._answers.decisions(
            self._asker(request),
            request.namespace,
            asked.cluster_queue,
            asked.page.offset or -1,
            asked.page.limit or 0,
            since=now - asked.since,
            until=now - asked.until if asked.until else None,
            workload=f"{request.namespace}/{asked.workload}" if asked.workload else "",
        )
        more: Json = {"continue": str(found.last)} if found.last is not None else {}
        covered = {"from": found.covered_from, "record": found.recorded}
        return {"metadata": {**more, **covered}, "now": now, "items": found.items}

    async def _decision_inputs(self, request: Request) -> Json:
        number = bounded.whole(request.name)
        if number is None:
            raise NoSuchDecisionError(f"decisions have numbers, and {bounded.shown(request.name)} is none")
        found = await self._answers.decision(self._asker(request), request.namespace, number)
        return {"metadata": {"name": request.name}, **found}

    async def _record_checks(self, request: Request) -> Json:
        found = await self._answers.record_check(self._asker(request))
        return {"items": [{"metadata": {"name": "record"}, **found}] if found is not None else []}

    async def _watch_events(
        self, request: web.Request, user: User, namespace: str, known: frozenset[str], access: ResourceAttributes
    ) -> web.StreamResponse:
        answers, asker = self._answers, Reviewed(self._reviews, user, namespace)
        try:
            asked = Question.of(request.query, known)
            answers.check_events(namespace, asked.cluster_queue)
        except QuestionError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        except NoSuchQueueError as error:
            raise web.HTTPNotFound(text=str(error)) from None
        except NoEventsError as error:
            raise web.HTTPNotImplemented(text=str(error)) from None
        kept = answers.events_log
        head = {"kind": "JobEvent", "apiVersion": f"{access.group}/{access.version}"}

        async def shown(after: int, most: int) -> tuple[list[Json], int]:
            found, last = await answers.events(asker, namespace, asked.cluster_queue, after, most)
            return [{**head, **each} for each in found], last

        return await event_stream.stream(
            request,
            kept,
            kept.last if asked.after is None else asked.after or kept.before_first,
            asked.seconds,
            shown=shown,
            allowed=lambda: self._reviews.allowed(user, access),
            bookmark=lambda last: {**head, "metadata": {"resourceVersion": str(last)}},
            ending=self._ending,
        )

    async def _watch_live(
        self, request: web.Request, user: User, namespace: str, known: frozenset[str], access: ResourceAttributes
    ) -> web.StreamResponse:
        answers, asker = self._answers, Reviewed(self._reviews, user, namespace)
        try:
            asked = Question.of(request.query, known)
        except QuestionError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        return await live_stream.stream(
            request,
            self._live,
            asked.seconds,
            seen=lambda: answers.scope(asker, namespace),
            jobs=answers.job_names(),
            allowed=lambda: self._reviews.allowed(user, access),
            head={"kind": "LiveRow", "apiVersion": f"{access.group}/{access.version}"},
            ending=self._ending,
        )

    async def _accuracies(self, request: Request) -> Json:
        if self._accuracy is None:
            raise NoForecastsError("this operator makes no forecasts: it runs without a history (--history)")
        accuracy = self._accuracy()
        queues: Json = accuracy.get("queues", {})
        if request.namespace:
            routed = self._answers.known_queues(request.namespace)
            queues = {name: record for name, record in queues.items() if name in routed}
        return {
            "items": accuracy["runtimes"],
            **{name: accuracy[name] for name in ("since", "model", "starts")},
            "queues": queues,
        }

    async def _operator(self, request: Request) -> Json:
        return {"items": [self._state()] if self._state is not None else []}

    async def _what_if(self, request: Request) -> Json:
        body = _document(request.body, "WhatIf")
        spec = body.get("spec")
        if not isinstance(spec, dict):
            raise whatif.WrongJobError("spec: must be an object with the field job or change")
        for name in spec:
            if name not in ("job", "change", "at"):
                raise whatif.WrongJobError(f"spec.{bounded.shown(name)}: there is no such field")
        if "change" in spec:
            if "job" in spec:
                raise whatif.WrongJobError("spec: must have job or change, not both")
            if "at" in spec:
                raise whatif.WrongJobError("spec.at: is the time at which spec.job would be submitted")
            status = await self._answers.what_if_changed(self._asker(request), request.namespace, spec["change"])
            return {"metadata": {"namespace": request.namespace}, "spec": {}, "status": status}
        status = await self._answers.what_if(self._asker(request), request.namespace, spec.get("job"), spec.get("at"))
        return {"metadata": {"namespace": request.namespace}, "spec": {}, "status": status}

    async def _plan_check(self, request: Request) -> Json:
        asked = _document(request.body, "PlanCheck").get("spec")
        return {"spec": {}, "status": plan_checks.check(self._answers.source, asked)}

    def _listed(self, found: Listed, page: ListPage) -> Json:
        """A page as a list. Pages are of successive moments: a job that starts meanwhile may be in two of them, or in none."""
        more: Json = {"continue": str(page.end), "remainingItemCount": found.left} if found.left else {}
        return {"metadata": more, "now": self._now, "items": found.items}


async def _only_watched(request: Request) -> Json:
    raise QuestionError("these rows can only be watched: add watch=true")


def _is_watch(request: web.Request, served: ServedResource) -> bool:
    return WATCH in served.verbs and request.query.get(WATCH) in ("true", "1")


def _document(body: bytes, kind: str) -> Json:
    """The object of this kind in the body of a request. Raises WrongJobError."""
    try:
        found = bounded.load_json(body, most_bytes=LONGEST, most_depth=DEEPEST, most_values=MOST_VALUES)
    except bounded.BadJsonError as error:
        raise whatif.WrongJobError(f"the body is {error}") from None
    if not isinstance(found, dict):
        raise whatif.WrongJobError(f"the body is no object of kind {kind}")
    if found.get("kind") not in (None, kind):
        raise whatif.WrongJobError(f"kind: must be {kind}, not {bounded.shown(found['kind'])}")
    return found


def as_response(body: Json, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json", status=status)
