"""Kueue's visibility API and Gangline's answers as parts of the cluster's API: served by the leader over TLS to the API server's
aggregator.

A request that the API server forwards is answered for the user that it names, if that user has access (a SubjectAccessReview).
Requests that do not come through the aggregator get a 401.

The certificate is created in this process, and published with its CA when the process registers itself (`api_service`); no key is
ever stored. The trusted CA is read again each minute, because the API server may change its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

import orjson
from aiohttp import web

from gangline.control.answers.answers import Answers
from gangline.control.answers.api import discovery, front_proxy
from gangline.control.answers.api.access_review import ResourceAttributes, Reviews
from gangline.control.answers.api.answers_api import LONGEST, TIME, AnswersApi, as_response
from gangline.control.answers.api.api_service import SERVICE, Address, Registration
from gangline.control.answers.api.discovery import ServedResource
from gangline.control.answers.api.front_proxy import FrontProxyError, Trust, UnauthenticatedError, User
from gangline.control.answers.api.pending_view import NoQueueError, PageError, PendingPage, Visibility
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json
from gangline.tls import certificates
from gangline.tls.certificates import CertificateError, Certificates, service_names
from gangline.tls.connections import USUAL, Handshakes, LiveContext, of_aiohttp, runner_of
from gangline.tls.listening import bound
from gangline.tls.requests import BusyError, Turnstile

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: seconds between two checks of the trusted CA and of the certificate's age …
PERIOD: Final = 60.0
#: … after a failure …
RETRY: Final = 2.0
#: … and between two checks of the registration
REGISTER_EVERY: Final = 600.0
#: seconds that an idle connection is kept; longer than the API server keeps its own, so that the API server closes first
KEEP_ALIVE: Final = 120.0
#: pages of pending workloads that are made at a time, those that wait for their turn, and those of one user, made or waiting
AT_ONCE: Final = 2
WAITING: Final = 64
PER_USER: Final = 8
_USER: Final = web.RequestKey("user", User)
_SERVED: Final = " and ".join(group.name for group in discovery.GROUPS)
#: in the details of every failure that this server reports
SOURCE: Final = "answers.gangline.io"


@dataclass(frozen=True, slots=True)
class AggregatedApiOptions:
    """The address to listen on (port 0 chooses one), and the name or address by which API servers reach this process."""

    listen: tuple[str, int]
    host: str


class AggregatedApi:
    """Binds its port at once, so that a conflict is reported at the start; listens from `run()` on."""

    def __init__(
        self,
        client: ApiClient,
        visibility: Visibility,
        options: AggregatedApiOptions,
        namespace: str,
        *,
        answers: Answers,
        accuracy: Callable[[], Json] | None = None,
        state: Callable[[], Json] | None = None,
        tls: Handshakes = USUAL,
    ) -> None:
        """Bind the port. Raises OSError where the address is taken."""
        self._client = client
        self._visibility = visibility
        self._options = options
        self._tls = tls
        self._names = service_names(SERVICE, namespace)
        self._reviews = Reviews(client)
        self._turns = Turnstile(AT_ONCE, WAITING, PER_USER)
        self._prepare = answers.prepare
        self._answers = AnswersApi(answers, self._reviews, accuracy, state)
        groups = {group.name: group.versions for group in discovery.GROUPS}
        self._registration = Registration(client, groups, namespace)
        self._socket: socket.socket = bound(*options.listen)
        self.port: int = self._socket.getsockname()[1]
        self._trust: Trust | None = None
        self._held: Certificates | None = None
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None
        self._watch: asyncio.Future[None] | None = None
        self._registered_at = float("-inf")
        self._trouble = ""

    # --- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Register and serve until cancelled. Errors are logged once and retried: admission goes on without this API."""
        while True:
            try:
                await self._upkeep()
            except (ApiError, FrontProxyError, OSError) as error:
                self._complain(str(error))
                await asyncio.sleep(RETRY)
                continue
            self._trouble = ""
            await self._prepare()
            await asyncio.sleep(PERIOD)

    async def close(self) -> None:
        """Withdraw the registration and stop. May be called twice."""
        held, self._held = self._held, None
        if held is not None:
            await self._registration.withdraw(held.bundle)
        if self._watch is not None:
            self._watch.cancel()
        self._answers.end()
        if self._runner is not None:
            await self._runner.cleanup()
        self._socket.close()

    async def _upkeep(self) -> None:
        trust = await front_proxy.read(self._client)
        now = datetime.now(UTC)
        held = self._held or certificates.create(self._names, now)
        held = certificates.renewed(held, self._names, now) or held
        if (trust, held) != (self._trust, self._held):
            await self._listen(trust, held)
        if time.monotonic() > self._registered_at + REGISTER_EVERY:
            await self._registration.ensure(Address(self._options.host, self.port), held.bundle)
            self._registered_at = time.monotonic()
            log.info("%s are served at %s:%d", _SERVED, self._options.host, self.port)

    async def _listen(self, trust: Trust, held: Certificates) -> None:
        """Listen again with a new context: open connections keep the one they were opened with."""
        context = _context(trust, held, self._tls)
        if self._runner is None:
            self._runner = runner_of(self.app(), keepalive_timeout=KEEP_ALIVE)
            await self._runner.setup()
            if self._runner.server is not None:
                self._watch = asyncio.ensure_future(of_aiohttp(self._runner.server, KEEP_ALIVE).run())
        before, following = (
            self._site,
            self._socket.dup(),
        )  # of the same socket, so that no connection is refused in between
        site = web.SockSite(self._runner, self._socket, ssl_context=context)
        await site.start()
        if before is not None:
            await before.stop()
        self._site, self._socket, self._trust, self._held = site, following, trust, held
        self._registered_at = float("-inf")

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("%s are not served: %s", _SERVED, trouble)
        self._trouble = trouble

    # --- requests -----------------------------------------------------------------------------------------------------

    def app(self) -> web.Application:
        app = web.Application(middlewares=[_status, self._authenticate], client_max_size=LONGEST)
        group = discovery.VISIBILITY
        for version in group.versions:
            for served in group.resources:
                for _, path in served.paths(group.root(version)):
                    app.router.add_get(path, self._pending(version, served))
        self._answers.add_to(app, _USER)
        for path, document in discovery.documents().items():
            app.router.add_get(path, _document(document))
        return app

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        transport, trust = request.transport, self._trust
        if trust is None or transport is None:
            raise web.HTTPServiceUnavailable(text="not serving yet")
        try:
            request[_USER] = trust.user(transport.get_extra_info("peercert"), request.headers.items())
        except UnauthenticatedError as error:
            raise web.HTTPUnauthorized(text=str(error)) from None
        return await handler(request)

    def _pending(self, version: str, served: ServedResource) -> Handler:
        group, plural = discovery.VISIBILITY.name, served.plural

        async def answer(request: web.Request) -> web.Response:
            name, namespace = request.match_info["name"], request.match_info.get("namespace", "")
            user = request[_USER]
            access = ResourceAttributes(group, version, plural, served.subresource, name, namespace)
            try:
                async with asyncio.timeout(TIME), self._turns.turn(user.account):
                    if not await self._reviews.allowed(user, access):
                        why = f'{plural} "{name}" is forbidden: User "{user.name}" cannot {access}'
                        raise web.HTTPForbidden(text=why)
                    page = PendingPage.of(request.query)
                    items = await self._visibility.pending(name, namespace, page)
            except BusyError as error:
                raise web.HTTPTooManyRequests(text=str(error), headers=error.headers) from None
            except TimeoutError:
                raise web.HTTPGatewayTimeout(text=f"the answer took more than {TIME:g} s") from None
            except PageError as error:
                raise web.HTTPBadRequest(text=str(error)) from None
            except NoQueueError:
                raise web.HTTPNotFound(text=f'{plural} "{name}" not found') from None
            head = {"kind": served.kind, "apiVersion": f"{group}/{version}", "metadata": {}}
            return as_response({**head, "items": items})

        return answer


def _document(document: Json) -> Handler:
    body = orjson.dumps(document)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    return answer


_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    501: "NotImplemented",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@web.middleware
async def _status(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every failure into a Status object, as an API server does."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _failure(error.status, error.text or error.reason, error.headers.get("Retry-After"))
    except ApiError as error:
        log.warning("%s: the access review failed: %s", request.path, error)
        return _failure(500, "the API server did not answer the access review")
    except Exception:
        log.exception("%s failed", request.path)
        return _failure(500, "internal error; see the operator's log")


def _failure(code: int, message: str, retry_after: str | None = None) -> web.Response:
    """A failure as a Status object. Its `details` tell a failure of this server from one of the API server before it."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "details": {"group": SOURCE}}
    answer = as_response(
        {**body, "message": message, "reason": _REASONS.get(code, "InternalError"), "code": code}, code
    )
    if retry_after is not None:
        answer.headers["Retry-After"] = retry_after
    return answer


def _context(trust: Trust, held: Certificates, tls: Handshakes) -> ssl.SSLContext:
    live = LiveContext(tls)
    live.load(held.serving)
    try:
        live.ask_for_client_certificates(trust.authority)
    except CertificateError as error:
        raise FrontProxyError(f"{front_proxy.CONFIG_MAP}: requestheader-client-ca-file: {error}") from error
    return live.context
