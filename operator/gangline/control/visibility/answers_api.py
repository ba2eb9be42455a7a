"""`answers.gangline.io`: what the leader knows about jobs, for the user that the API server names.

The API server has checked that the user may ask; it is asked again here, as for the visibility API. What an answer shows in full
is a second question: the jobs of namespaces in which the user may list Workloads. So many answers are made at a time and no more,
each within a time limit; what is too much gets a 429.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiohttp import web

from gangline import bounded
from gangline.control.answers import whatif
from gangline.control.answers.answers import (
    Answers,
    Listed,
    NoSuchJobError,
    NoSuchQueueError,
    NotReadableError,
    Page,
    Wish,
)
from gangline.control.answers.lookup import WrongNameError
from gangline.control.answers.sight import ALL, Sight
from gangline.control.answers.source import NoForecastsError
from gangline.control.visibility.access_review import Access, Reviews
from gangline.control.visibility.discovery import ANSWERS, METHODS, Served
from gangline.control.visibility.front_proxy import User
from gangline.control.visibility.pending_view import as_response
from gangline.control.visibility.question import Question, QuestionError
from gangline.kube import resources as kube
from gangline.kube.resources import Json

#: seconds for one answer: less than an API server waits (60)
TIME: Final = 40.0
#: answers made at a time, those waiting for their turn, and those of one user, made or waiting
AT_ONCE: Final = 8
WAITING: Final = 64
PER_USER: Final = 8
#: the same for simulations that a request starts
SIMULATIONS: Final = (2, 8, 1)
#: namespaces that are looked up for one answer; the jobs of further ones are hidden
NAMESPACES: Final = 100
#: bytes and levels of a request's body
LONGEST: Final = 512 * 1024
DEEPEST: Final = 60

Answer: TypeAlias = Callable[["Request"], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a user."""

    user: User
    namespace: str
    name: str
    question: Question
    body: bytes = b""


class Turnstile:
    """Lets so many pass at a time, and so many wait; one user counts for at most `per_user` of them."""

    def __init__(self, at_once: int, waiting: int, per_user: int) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._per_user = per_user
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Raises HTTPTooManyRequests."""
        if self._users[user] >= self._per_user or self._users.total() >= self._most:
            raise web.HTTPTooManyRequests(
                text="too many questions at a time: ask again in a moment", headers={"Retry-After": "1"}
            )
        self._users[user] += 1
        try:
            async with self._turns:
                yield
        finally:
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]


class Reviewed:
    """A user of the cluster, who sees what the API server lets this user list."""

    def __init__(self, reviews: Reviews, user: User, first: str) -> None:
        """`first`: the namespace of the request, which is looked up whatever else there is."""
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
        access = Access(workloads.group, workloads.version, workloads.plural, "", "", namespace, "list")
        return await self._reviews.allowed(self._user, access)


class AnswersApi:
    """`accuracy` returns how accurate forecasts have been; None where none are made."""

    def __init__(self, answers: Answers, reviews: Reviews, accuracy: Callable[[], Json] | None) -> None:
        self._answers = answers
        self._reviews = reviews
        self._accuracy = accuracy
        self._turns = Turnstile(AT_ONCE, WAITING, PER_USER)
        self._simulations = Turnstile(*SIMULATIONS)

    def add_to(self, app: web.Application, user: web.RequestKey[User]) -> None:
        """Add a route for each verb on each resource."""
        answers: dict[tuple[str, str], Answer] = {
            ("queuedjobs", "list"): self._list,
            ("queuedjobs", "get"): self._get,
            ("queuedjobs/why", "get"): self._why,
            ("queuedjobs/story", "get"): self._story,
            ("plannedruns", "list"): self._plan,
            ("forecastaccuracies", "list"): self._accuracies,
            ("whatifs", "create"): self._what_if,
        }
        for version in ANSWERS.versions:
            for served in ANSWERS.resources:
                for verb, path in served.paths(ANSWERS.root(version)):
                    handler = self._handler(version, served, verb, answers[served.name, verb], user)
                    app.router.add_route(METHODS[verb], path, handler)

    def _handler(
        self, version: str, served: Served, verb: str, answer: Answer, user_of: web.RequestKey[User]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        known = frozenset(name for name, _ in served.parameters)

        async def handle(request: web.Request) -> web.Response:
            user = request[user_of]
            namespace, name = request.match_info.get("namespace", ""), request.match_info.get("name", "")
            access = Access(ANSWERS.name, version, served.plural, served.subresource, name, namespace, verb)
            if not await self._reviews.allowed(user, access):
                about = f' "{name}"' if name else ""
                raise web.HTTPForbidden(text=f'{served.name}{about} is forbidden: User "{user.name}" cannot {access}')
            with_body = verb == "create"
            turns = self._simulations if with_body else self._turns
            try:
                async with asyncio.timeout(TIME), turns.turn(user.name):
                    body = await request.read() if with_body else b""
                    question = Question.of(request.query, known)
                    found = await answer(Request(user, namespace, name, question, body))
            except TimeoutError:
                raise web.HTTPGatewayTimeout(text=f"the answer took more than {TIME:g} s") from None
            except (QuestionError, WrongNameError) as error:
                raise web.HTTPBadRequest(text=str(error)) from None
            except whatif.WrongJobError as error:
                raise web.HTTPUnprocessableEntity(text=str(error)) from None
            except (NoSuchJobError, NoSuchQueueError) as error:
                raise web.HTTPNotFound(text=str(error)) from None
            except NotReadableError as error:
                raise web.HTTPForbidden(text=str(error)) from None
            except NoForecastsError as error:
                raise web.HTTPNotImplemented(text=str(error)) from None
            kind = f"{served.kind}List" if verb == "list" else served.kind
            head = {"kind": kind, "apiVersion": f"{ANSWERS.name}/{version}", "metadata": {}}
            return as_response({**head, **found}, 201 if with_body else 200)

        return handle

    def _asker(self, request: Request) -> Reviewed:
        return Reviewed(self._reviews, request.user, request.namespace)

    @property
    def _now(self) -> float:
        return self._answers.source.now() / 1000

    # --- answers ------------------------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Json:
        asked = request.question
        wish = Wish(request.namespace, asked.cluster_queue, asked.finished, asked.times, asked.page)
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
        told = [{"label": line.label, "text": line.text} for line in lines]
        return {"metadata": job["metadata"], "job": job, "lines": told}

    async def _story(self, request: Request) -> Json:
        job, events = await self._answers.story(
            self._asker(request), request.namespace, request.question.kind, request.name
        )
        return {"metadata": job["metadata"], "job": job, "events": events}

    async def _plan(self, request: Request) -> Json:
        asked = request.question
        asker = self._asker(request)
        runs = await self._answers.plan(asker, request.namespace, asked.cluster_queue, asked.horizon, asked.page)
        return self._listed(runs, asked.page)

    async def _accuracies(self, request: Request) -> Json:
        if self._accuracy is None:
            raise NoForecastsError("this operator makes no forecasts: it runs without a history (--history)")
        told = self._accuracy()
        return {"items": told["runtimes"], **{name: told[name] for name in ("since", "model", "starts")}}

    async def _what_if(self, request: Request) -> Json:
        body = _document(request.body)
        spec = body.get("spec")
        if not isinstance(spec, dict):
            raise whatif.WrongJobError("spec: must be an object with the field job")
        for name in spec:
            if name != "job":
                raise whatif.WrongJobError(f"spec.{bounded.shown(name)}: there is no such field")
        status = await self._answers.what_if(self._asker(request), request.namespace, spec.get("job"))
        return {"metadata": {"namespace": request.namespace}, "spec": {}, "status": status}

    def _listed(self, found: Listed, page: Page) -> Json:
        """Pages are of successive moments: a job that starts meanwhile may be in two of them, or in none."""
        more: Json = {"continue": str(page.end), "remainingItemCount": found.left} if found.left else {}
        return {"metadata": more, "now": self._now, "items": found.items}


def _document(body: bytes) -> Json:
    """Raises WrongJobError."""
    try:
        found = bounded.load_json(body, most_bytes=LONGEST, most_depth=DEEPEST)
    except bounded.BadJsonError as error:
        raise whatif.WrongJobError(f"the body is {error}") from None
    if not isinstance(found, dict):
        raise whatif.WrongJobError("the body is no object of kind WhatIf")
    if found.get("kind") not in (None, "WhatIf"):
        raise whatif.WrongJobError(f"kind: must be WhatIf, not {bounded.shown(found['kind'])}")
    return found
