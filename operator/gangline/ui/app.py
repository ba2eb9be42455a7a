"""The dashboard's server: pages, sessions, live rows, answers and actions, with the asker's own rights."""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, StreamingResponse

import gangline
from gangline import bounded
from gangline.api.read import conditions
from gangline.kube import own_access
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Forbidden, Invalid, TooManyRequests, Unauthorized, Unavailable
from gangline.kube.resources import Json, Resource
from gangline.kube.transport import Call
from gangline.tls.apps import address_of, new_app
from gangline.tls.requests import Bodies, BusyError, TooLargeError, Turnstile
from gangline.ui import sessions, upstream
from gangline.ui.live import Feeds, TooManyFeedsError, event
from gangline.ui.oidc import OidcError, OidcLogin
from gangline.ui.pages import HEADERS, Pages
from gangline.ui.sessions import Credentials, ForgedError, Sessions, SignedOutError, TokenSessions
from gangline.ui.upstream import Clients

log = logging.getLogger(__name__)

#: bytes of a request's body, of all and of one address at a time, and the seconds in which it has to arrive
LONGEST_BODY: Final = 512 * 1024
_BODIES: Final = (LONGEST_BODY, 10.0, 64 * LONGEST_BODY, 8 * LONGEST_BODY)
#: questions of all persons at a time, waiting, and of one person; and the same for open pages
QUESTIONS: Final = (64, 256, 16)
STREAMS: Final = (512, 0, 32)
#: examinations by doctor at a time, waiting, and of one person, and the seconds that one may take
EXAMINATIONS: Final = (4, 4, 1)
EXAMINED_WITHIN: Final = 75.0
#: paths to which other sites and links lead a person: a failure is a page there
WITHOUT_SCRIPT: Final = ("/login/callback", "/api/login/oidc")
#: jobs or nodes that one action changes
MOST_TARGETS: Final = 200
#: rows of one list, in pages of so many
MOST_ROWS: Final = 5000
_PAGE: Final = 1000
#: pages of one list: some have fewer rows than were asked for, though others follow
MOST_PAGES: Final = 12
#: what a list's metadata say beside where it goes on
_SHOWN_METADATA: Final = frozenset({"from", "record"})
#: parameters of spans of time, and how the operator calls them
_SPANS: Final[Mapping[str, str]] = {"since": "sinceSeconds", "until": "untilSeconds", "halfLife": "halfLifeSeconds"}
#: objects whose events are asked for at a time, and events of an answer
MOST_ABOUT: Final = 12
MOST_EVENTS: Final = 200
#: lines and bytes of a log, and the seconds in which it has to come
LOG_LINES: Final = 500
LOG_BYTES: Final = 256 * 1024
LOG_WITHIN: Final = 20.0
#: characters of the page to which a sign-in returns
LONGEST_PAGE: Final = 2048
#: characters of a name in a request, as in the API
LONGEST_NAME: Final = 253

#: the right that each verb needs
RIGHTS: Final[Mapping[str, tuple[str, Resource]]] = {
    "hold": ("patch", kube.WORKLOADS),
    "release": ("patch", kube.WORKLOADS),
    "cancel": ("delete", kube.JOBS),
    "move": ("patch", kube.JOBS),
    "top": ("patch", kube.JOBS),
    "cordon": ("patch", kube.NODES),
    "uncordon": ("patch", kube.NODES),
}


class RefusedError(Exception):
    """Says, in a sentence, why an action was not done."""


#: changes a job or node: client, namespace, name, the queue that a job moves to; `dry_run`. Returns what was done, as a sentence;
#: raises RefusedError
Verb: TypeAlias = Callable[..., Awaitable[str]]


#: examines the installation with the rights of a client: findings with `name`, `level` (ok, warning,
#: error, skipped), `text`, `advice` and `objects`
Doctor: TypeAlias = Callable[[ApiClient], Awaitable[list[Json]]]


class WrongRequestError(ValueError):
    """Says what is wrong with a request."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """What the server is made of. `namespace`: the one that is shown first; `cluster`: a name for the page's title."""

    sessions: Sessions
    pages: Pages
    verbs: Mapping[str, Verb]
    namespace: str = ""
    cluster: str = ""
    #: it has the rights of the one who started it, so it answers to its own names alone
    own: bool = False
    #: names by which browsers may reach the server (None = any): another site's name that leads here is no way in
    hosts: frozenset[str] | None = None
    #: None: nobody signs in with an issuer
    oidc: OidcLogin | None = None
    #: None: nothing is examined
    doctor: Doctor | None = None


class Server:
    """Answers the requests of browsers."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._sessions = dashboard.sessions
        self._clients = Clients()
        self._feeds = Feeds(self._clients)
        self._questions = Turnstile(*QUESTIONS)
        self._streams = Turnstile(*STREAMS)
        self._examinations = Turnstile(*EXAMINATIONS)
        self._bodies = Bodies(*_BODIES)

    async def close(self) -> None:
        await self._feeds.close()
        await self._clients.close()

    def app(self) -> FastAPI:
        app = new_app()
        app.middleware("http")(self._guarded)
        get: dict[str, Callable[..., Awaitable[Any]]] = {
            "/api/session": self._session,
            "/api/live": self._live,
            "/api/rights": self._rights,
            "/api/job/{namespace}/{kind}/{name}": self._job,
            "/api/job/{namespace}/{kind}/{name}/{part}": self._part_of_job,
            "/api/past": self._list("pastruns"),
            "/api/attempts": self._list("jobattempts"),
            "/api/usage": self._list("usagesums"),
            "/api/capacity": self._list("plannedcapacities"),
            "/api/annotations": self._annotations,
            "/api/audits": self._list("queueaudits"),
            "/api/swaps": self._list("gangswaps"),
            "/api/events": self._list("jobevents"),
            "/api/decisions": self._list("decisions"),
            "/api/decision/{number}": self._decision,
            "/api/check": self._check,
            "/api/accuracy": self._accuracy,
            "/api/moves/{node}": self._moves,
            "/api/operator": self._operator,
            "/api/doctor": self._doctor,
            "/healthz": self._healthz,
            "/enter": self._enter,
            "/api/login/oidc": self._begin_oidc,
            "/login/callback": self._end_oidc,
        }
        for path, answer in get.items():
            app.add_api_route(path, answer, methods=["GET"], include_in_schema=False, response_model=None)
        app.add_api_route("/api/session", self._sign_in, methods=["POST"], response_model=None)
        app.add_api_route("/api/session", self._sign_out, methods=["DELETE"], response_model=None)
        app.add_api_route("/api/actions", self._act, methods=["POST"], response_model=None)
        app.add_api_route("/api/whatif", self._what_if, methods=["POST"], response_model=None)
        app.add_api_route("/api/{path:path}", _nothing, methods=["GET", "POST", "DELETE"], response_model=None)
        app.add_api_route("/{path:path}", self._page, methods=["GET", "HEAD"], response_model=None)
        return app

    # --- every request ------------------------------------------------------------------------------------------------

    async def _guarded(self, request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        """Answer failures in one form, and send the headers that bound what a page may do."""
        hosts = self._dashboard.hosts
        if hosts is not None and request.headers.get("host", "") not in hosts:
            response: Response = _failure(421, "This name does not lead to the dashboard.")
        else:
            try:
                response = await answer(request)
            except Exception as error:
                failure = _failed(error, self._sessions.kinds)
                response = failure
                if request.url.path in WITHOUT_SCRIPT:
                    response = _as_page(failure, self._dashboard.oidc.issuer.url if self._dashboard.oidc else "/")
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if request.url.path.startswith("/api/"):
            response.headers.setdefault("Cache-Control", "no-store")
            response.headers.setdefault("Date", formatdate(usegmt=True))  # pages count ages by the server's clock
        return response

    @asynccontextmanager
    async def _client(self, request: Request) -> AsyncIterator[ApiClient]:
        """The client of the person who asks, within that person's turn. Raises SignedOutError, BusyError."""
        credentials = self._sessions.of(request)
        async with self._questions.turn(credentials.key), self._clients.of(credentials) as client:
            yield client

    def _changing(self, request: Request) -> Credentials:
        """Whose rights a request has that changes something. Raises SignedOutError, ForgedError."""
        credentials = self._sessions.of(request)
        sessions.check_header(request, credentials)
        return credentials

    async def _body(self, request: Request) -> Json:
        """The object in a request's body. Raises WrongRequestError, TooLargeError, BusyError."""
        async with self._bodies.read(request.stream(), address_of(request)) as body:
            try:
                found = bounded.load_json(body, most_bytes=LONGEST_BODY, most_depth=60, most_values=50_000)
            except bounded.BadJsonError as error:
                raise WrongRequestError(f"The body is {error}.") from None
        if not isinstance(found, dict):
            raise WrongRequestError("The body must be a JSON object.")
        return found

    # --- pages and sessions -------------------------------------------------------------------------------------------

    async def _page(self, path: str) -> Response:
        return self._dashboard.pages.answer(path)

    async def _healthz(self) -> Response:
        return Response("ok", media_type="text/plain")

    async def _enter(self, request: Request) -> Response:
        """The one-time link of a laptop."""
        response = RedirectResponse("./", status_code=303)
        laptop = self._sessions
        if isinstance(laptop, TokenSessions) or not laptop.enter(request.query_params.get("key", ""), response):
            return _failure(403, "This link was used already, or is of another dashboard: start `gangline ui` again.")
        return response

    async def _begin_oidc(self, request: Request) -> Response:
        """Lead the browser to the issuer."""
        oidc = self._dashboard.oidc
        if oidc is None:
            return await _nothing()
        async with self._questions.turn(address_of(request)):
            page, kept = await oidc.begin(request.query_params.get("next", "")[:LONGEST_PAGE])
        response = RedirectResponse(page, status_code=303)
        oidc.remember(kept, response)
        return response

    async def _end_oidc(self, request: Request) -> Response:
        """Sign in the browser that comes back from the issuer, if the API server accepts its token."""
        oidc, kept = self._dashboard.oidc, self._sessions
        if oidc is None or not isinstance(kept, TokenSessions):
            return await _nothing()
        async with self._questions.turn(address_of(request)):
            token, after = await oidc.end(request)
            if not sessions.is_token(token):
                raise OidcError("The issuer's token is too long for a browser.")
            async with self._clients.of(kept.with_token(token)) as client:
                await own_access.who_is(client)
        response = RedirectResponse(f"{oidc.issuer.url}{after}", status_code=303)
        kept.keep(token, response)
        oidc.forget(response)
        return response

    async def _session(self, request: Request) -> Response:
        credentials = self._sessions.of(request)
        async with self._client(request) as client:
            user, everywhere, spaces = await asyncio.gather(
                own_access.who_is(client), own_access.may(client, "list", kube.WORKLOADS), _namespaces(client)
            )
        first = self._dashboard.namespace
        answer = {
            "user": user,
            "all": everywhere,
            "namespaces": spaces or ([first] if first else []),
            "namespace": "" if everywhere else first or (spaces[0] if spaces else ""),
            "csrf": credentials.csrf,
            "cluster": self._dashboard.cluster,
            "version": gangline.__version__,
            "login": credentials.kind,
        }
        return JSONResponse(answer)

    async def _sign_in(self, request: Request) -> Response:
        """Sign in with a pasted token, if the API server accepts it."""
        if request.headers.get(sessions.CSRF_HEADER) != sessions.CSRF_LOGIN:
            raise ForgedError
        kept = self._sessions
        if not isinstance(kept, TokenSessions):
            raise WrongRequestError("This dashboard has the rights of its kubeconfig: nobody signs in with a token.")
        token = (await self._body(request)).get("token")
        token = token.strip() if isinstance(token, str) else ""
        if not sessions.is_token(token):
            raise WrongRequestError("This is no bearer token.")
        async with self._questions.turn(address_of(request)), self._clients.of(kept.with_token(token)) as client:
            user = await own_access.who_is(client)
        response = JSONResponse({"user": user})
        kept.keep(token, response)
        return response

    async def _sign_out(self, request: Request) -> Response:
        self._changing(request)
        response = JSONResponse({})
        self._sessions.leave(response)
        return response

    async def _rights(self, request: Request) -> Response:
        namespace = _named(request.query_params.get("namespace", ""), "namespace")

        async def allowed(verb: str, resource: Resource) -> Json:
            may = await own_access.may(client, verb, resource, namespace if resource.namespaced else "")
            return {"allowed": True} if may else {"allowed": False, "missing": f"{verb} {resource.plural}"}

        async with self._client(request) as client:
            wanted = sorted(set(RIGHTS.values()), key=str)
            found = dict(zip(wanted, await asyncio.gather(*(allowed(*each) for each in wanted)), strict=True))
        return JSONResponse({verb: found[right] for verb, right in RIGHTS.items()})

    # --- live rows ----------------------------------------------------------------------------------------------------

    async def _live(self, request: Request) -> Response:
        credentials = self._sessions.of(request)
        namespace = _named(request.query_params.get("namespace", ""), "namespace")

        async def sent() -> AsyncIterator[bytes]:
            try:
                async with (
                    self._streams.turn(credentials.key),
                    self._feeds.of(credentials, namespace) as feed,
                ):
                    yield b"retry: 2000\n\n"
                    async for piece in feed.events():
                        yield piece
            except (BusyError, TooManyFeedsError):
                yield event("trouble", {"kind": "Busy", "error": "This dashboard has as many open pages as it can."})

        return StreamingResponse(
            sent(), media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )

    # --- answers ------------------------------------------------------------------------------------------------------

    async def _job(self, request: Request, namespace: str, kind: str, name: str) -> Response:
        """A job with its explanation, its promises and its story. What one of these lacks is null."""
        path = _job_path(namespace, name)
        query = {"kind": _named(kind, "kind")}
        async with self._client(request) as client:
            job, why, promises, story = await asyncio.gather(
                upstream.ask(client, path, {**query, "times": "true"}),
                _if_any(upstream.ask(client, f"{path}/why", query)),
                _if_any(upstream.ask(client, f"{path}/promises", query)),
                _if_any(upstream.ask(client, f"{path}/story", query)),
            )
        return JSONResponse({"job": job, "why": why, "promises": promises, "story": story})

    async def _part_of_job(self, request: Request, namespace: str, kind: str, name: str, part: str) -> Response:
        if part == "events":
            return await self._kubernetes_events(request, namespace, name)
        if part == "logs":
            return await self._logs(request, namespace)
        if part not in ("remedies", "victims", "story", "why", "promises", "pods", "attempts"):
            return await _nothing()
        query = {"kind": _named(kind, "kind")}
        async with self._client(request) as client:
            return JSONResponse(await upstream.ask(client, f"{_job_path(namespace, name)}/{part}", query))

    async def _kubernetes_events(self, request: Request, namespace: str, name: str) -> Response:
        """Events about the job, its Workload and its pods, those of which the names are given, the latest first."""
        space = _named(namespace, "namespace")
        names = [_named(each, "about") for each in (name, *request.query_params.getlist("about"))][:MOST_ABOUT]
        async with self._client(request) as client:
            found = await asyncio.gather(
                *(client.list(kube.EVENTS, space, field_selector=f"regarding.name={each}") for each in names)
            )
        rows = [_event_as_json(each) for listed in found for each in listed.items]
        rows.sort(key=lambda row: row["at"], reverse=True)
        return JSONResponse({"events": rows[:MOST_EVENTS]})

    async def _logs(self, request: Request, namespace: str) -> Response:
        """The last lines of one container's log."""
        pod = quote(_named(request.query_params.get("pod", ""), "pod"), safe="")
        lines = bounded.whole(request.query_params.get("lines", "") or str(LOG_LINES))
        if not lines:
            raise WrongRequestError("lines: must be a whole number above 0.")
        query = {"tailLines": str(min(lines, LOG_LINES)), "limitBytes": str(LOG_BYTES)}
        if container := request.query_params.get("container", ""):
            query["container"] = _named(container, "container")
        path = f"/api/v1{_scope(namespace)}/pods/{pod}/log"
        async with self._client(request) as client:
            call = Call("get", kube.PODS, "GET", path, query, subresource="log", within=LOG_WITHIN, most=2 * LOG_BYTES)
            text = await client.exchange(call)
        return JSONResponse({"lines": text.decode(errors="replace").splitlines()})

    def _list(self, plural: str) -> Callable[[Request], Awaitable[Response]]:
        """A list of the operator: of a namespace, or of all. Its parameters are checked there."""

        async def listed(request: Request) -> Response:
            given = dict(request.query_params)
            scope = _scope(given.pop("namespace", ""))
            for name, sent in _SPANS.items():
                if (span := given.pop(name, "")) != "":
                    given[sent] = span
            left = bounded.whole(given.pop("limit", "") or str(_PAGE))
            if not left:
                raise WrongRequestError("limit: must be a whole number above 0.")
            async with self._client(request) as client:
                items, more, metadata = await _collected(client, f"{scope}/{plural}", given, min(left, MOST_ROWS))
            return JSONResponse({"items": items, "more": bool(more), "continue": more, **metadata})

        return listed

    async def _decision(self, request: Request, number: str) -> Response:
        """A decision with its inputs, decided again."""
        path = f"{_scope(request.query_params.get('namespace', ''))}/decisions/{quote(_named(number, 'number'), safe='')}/inputs"
        async with self._client(request) as client:
            found = await upstream.ask(client, path)
        return JSONResponse(
            {name: found[name] for name in ("decision", "same", "recorded", "repeated", "inputs", "version")}
        )

    async def _check(self, request: Request) -> Response:
        """The last check of the whole record: for those alone who may see the whole cluster."""
        async with self._client(request) as client:
            return JSONResponse({"items": (await upstream.ask(client, "/recordchecks"))["items"]})

    async def _annotations(self, request: Request) -> Response:
        """The annotations of the jobs that the person may see, by the uids of their Workloads."""
        scope = _scope(request.query_params.get("namespace", ""))
        query = {"annotations": request.query_params.get("keys", "")}
        async with self._client(request) as client:
            items, more, _ = await _collected(client, f"{scope}/queuedjobs", query, MOST_ROWS)
        rows = [{"uid": each["uid"], "annotations": each["annotations"]} for each in items if each.get("annotations")]
        return JSONResponse({"items": rows, "more": bool(more)})

    async def _accuracy(self, request: Request) -> Response:
        scope = _scope(request.query_params.get("namespace", ""))
        async with self._client(request) as client:
            return JSONResponse(await upstream.ask(client, f"{scope}/forecastaccuracies"))

    async def _operator(self, request: Request) -> Response:
        async with self._client(request) as client:
            found = (await upstream.ask(client, "/operatorstates"))["items"]
        if not found:
            return _failure(404, "The operator does not say how it is.")
        return JSONResponse({name: value for name, value in found[0].items() if name != "metadata"})

    async def _doctor(self, request: Request) -> Response:
        """What `gangline admin doctor --cluster` finds with the person's rights."""
        doctor, credentials = self._dashboard.doctor, self._sessions.of(request)
        if doctor is None:
            return await _nothing()
        async with self._examinations.turn(credentials.key), self._clients.of(credentials) as client:
            try:
                async with asyncio.timeout(EXAMINED_WITHIN):
                    return JSONResponse({"items": await doctor(client)})
            except TimeoutError:
                return _failure(504, f"The examination took more than {EXAMINED_WITHIN:g} seconds.")

    async def _moves(self, request: Request, node: str) -> Response:
        namespace = _named(request.query_params.get("namespace", "") or self._dashboard.namespace, "namespace")
        path = f"{_scope(namespace)}/flavornodes/{quote(_named(node, 'node'), safe='')}/moves"
        async with self._client(request) as client:
            return JSONResponse(await upstream.ask(client, path))

    async def _what_if(self, request: Request) -> Response:
        self._changing(request)  # nothing is stored, but it costs the operator a simulation
        body = await self._body(request)
        namespace = body.get("namespace")
        if not isinstance(namespace, str) or not namespace:  # of the whole cluster: a change of a quota or a node
            namespace = self._dashboard.namespace
        path = f"{_scope(namespace)}/whatifs"
        async with self._client(request) as client:
            spec = {name: body[name] for name in ("job", "change", "at") if name in body}
            return JSONResponse((await upstream.ask_with(client, path, {"spec": spec}))["status"])

    # --- actions ------------------------------------------------------------------------------------------------------

    async def _act(self, request: Request) -> Response:
        """Change jobs or nodes one after the other. One that is refused costs the others nothing."""
        self._changing(request)
        body = await self._body(request)
        verb = self._dashboard.verbs.get(str(body.get("verb")))
        targets, preview = body.get("targets"), body.get("preview") is True
        if verb is None:
            raise WrongRequestError(f"verb: must be one of {', '.join(self._dashboard.verbs)}.")
        if not isinstance(targets, list) or not 0 < len(targets) <= MOST_TARGETS:
            raise WrongRequestError(f"targets: must be a list of 1 to {MOST_TARGETS}.")
        wanted = [_target(each) for each in targets]
        queue = body.get("queue")
        more = [_named(queue, "queue")] if body["verb"] == "move" and isinstance(queue, str) else []
        if body["verb"] == "move" and not more:
            raise WrongRequestError("queue: must name the LocalQueue to which the jobs move.")
        results: list[Json] = []
        async with self._client(request) as client:
            for target, (namespace, name) in zip(targets, wanted, strict=True):
                try:
                    message = await verb(client, namespace, name, *more, dry_run=preview)
                    results.append({"target": target, "ok": True, "text": message})
                except (RefusedError, ApiError) as error:
                    text = error.message if isinstance(error, ApiError) else str(error)
                    results.append({"target": target, "ok": False, "text": text})
        return JSONResponse({"results": results})


# --- parts of requests ------------------------------------------------------------------------------------------------


def _named(text: str, what: str) -> str:
    """A name in a request. Raises WrongRequestError."""
    if (
        len(text) > LONGEST_NAME
        or any(char in text for char in "/\\?#%")
        or not text.isprintable()
        or text in (".", "..")
    ):
        raise WrongRequestError(f"{what}: {bounded.shown(text)} is no name.")
    return text


async def _collected(client: ApiClient, path: str, query: Mapping[str, str], most: int) -> tuple[list[Json], str, Json]:
    """Rows of a list, fetched in pages; where it goes on ("" = nowhere); and what else its metadata say."""
    given, items, metadata = dict(query), list[Json](), Json()
    more, pages = "start", 0
    while more and most > 0 and pages < MOST_PAGES:
        found = await upstream.ask(client, path, {**given, "limit": str(min(most, _PAGE))})
        items += found["items"]
        metadata = {name: value for name, value in found["metadata"].items() if name in _SHOWN_METADATA}
        most, pages, more = most - len(found["items"]), pages + 1, found["metadata"].get("continue", "")
        given["continue"] = more
    return items, more, metadata


def _scope(namespace: str) -> str:
    return f"/namespaces/{quote(_named(namespace, 'namespace'), safe='')}" if namespace else ""


def _job_path(namespace: str, name: str) -> str:
    return f"{_scope(namespace)}/queuedjobs/{quote(_named(name, 'name'), safe='')}"


def _target(given: object) -> tuple[str, str]:
    """Namespace and name of what an action changes. Raises WrongRequestError."""
    if not isinstance(given, dict):
        raise WrongRequestError("targets: each must be an object.")
    texts: dict[str, str] = {
        str(key): value
        for key, value in given.items()
        if isinstance(value, str)  # pyright: ignore[reportUnknownVariableType]
    }
    if "node" in texts:
        return "", _named(texts["node"], "node")
    if not texts.get("namespace") or not texts.get("name"):
        raise WrongRequestError("targets: each must have namespace, kind and name, or node.")
    kind = _named(texts.get("kind", ""), "kind")
    name = _named(texts["name"], "name")
    return _named(texts["namespace"], "namespace"), f"{kind.lower()}/{name}" if kind else name


async def _namespaces(client: ApiClient) -> list[str]:
    """The namespaces that the person may list; none where the person may not list them."""
    try:
        return sorted(each["metadata"]["name"] for each in (await client.list(kube.NAMESPACES)).items)
    except Forbidden:
        return []


async def _if_any(answer: Awaitable[Json]) -> Json | None:
    """An answer; None where there is none for such a job, as of one that does not wait."""
    try:
        return await answer
    except ApiError as error:
        if error.status in (404, 409, 501):
            return None
        raise


def _event_as_json(found: Json) -> Json:
    """An event of either form, as events.k8s.io has them and as it keeps those of older clients."""
    series = found.get("series") or {}
    at = series.get("lastObservedTime") or found.get("eventTime") or found.get("deprecatedLastTimestamp") or ""
    about = found.get("regarding") or {}
    return {
        "at": conditions.millis_of(at) / 1000,
        "type": found.get("type", ""),
        "reason": found.get("reason", ""),
        "note": found.get("note", ""),
        "count": series.get("count") or found.get("deprecatedCount") or 1,
        "about": f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
    }


async def _nothing() -> Response:
    return _failure(404, "There is no such answer.")


# --- failures ---------------------------------------------------------------------------------------------------------


class Failure(JSONResponse):
    """The answer to a request that failed. `said`: why, in a sentence."""

    def __init__(self, status: int, said: str, more: Mapping[str, Any]) -> None:
        super().__init__({"error": said, **more}, status)
        self.said = said


def _failure(status: int, error: str, **more: Any) -> Failure:
    return Failure(status, error, more)


def _as_page(failure: Failure, home: str) -> Response:
    """A failure for a person without a page of ours. `home`: where the dashboard begins."""
    said = html.escape(failure.said)
    text = (
        f'<!doctype html><title>Gangline</title><p>{said}</p><p><a href="{html.escape(home)}">To the dashboard</a></p>'
    )
    return HTMLResponse(text, failure.status_code)


def _failed(error: Exception, kinds: tuple[str, ...]) -> Failure:
    """The answer to a request that failed."""
    match error:
        case SignedOutError():
            return _failure(401, "Nobody is signed in.", login=list(kinds))
        case OidcError():
            return _failure(403, str(error))
        case ForgedError():
            return _failure(403, f"The header {sessions.CSRF_HEADER} is missing or wrong: load the page again.")
        case WrongRequestError():
            return _failure(400, str(error))
        case TooLargeError():
            return _failure(413, f"A request has at most {LONGEST_BODY} bytes.")
        case BusyError():
            answer = _failure(429, "The dashboard is busy: too many questions at a time.")
            answer.headers.update(error.headers)
            return answer
        case TimeoutError():
            return _failure(408, "The request did not arrive in time.")
        case Unauthorized():
            return _failure(401, "The API server does not accept these credentials any more.", login=list(kinds))
        case Forbidden():
            return _failure(403, error.message)
        case TooManyRequests():
            return _failure(429, error.message)
        case Unavailable():
            return _failure(503, error.message or "The API server does not answer.")
        case Invalid():
            return _failure(error.status or 400, error.message)
        case ApiError():
            return _failure(error.status or 502, error.message)
        case _:
            log.error("a request failed", exc_info=error)
            return _failure(500, "The dashboard failed: its log says why.")
