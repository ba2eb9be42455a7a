"""/metrics: over plain HTTP beside the probes, or as Kueue serves it, over TLS to users whom the API server lets read it.

A scrape then carries a bearer token, for whose user a SubjectAccessReview must allow `get` of the non-resource URL /metrics.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import Receive, Scope, Send

from gangline.control.answers.api.access_review import PathAccess, Reviews
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.process.token_review import TokenReviews
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.tls import certificates
from gangline.tls.apps import add_get, address_of, new_app
from gangline.tls.asgi import AsgiServer
from gangline.tls.certificates import CertificateError, Certificates, KeyPair, service_names
from gangline.tls.connections import USUAL, Handshakes, LiveContext
from gangline.tls.listening import bound
from gangline.tls.requests import BusyError

log = logging.getLogger(__name__)

PATH: Final = "/metrics"
#: the Service in the self-signed certificate
SERVICE: Final = "gangline-operator-metrics"
#: seconds between two looks at the certificate
PERIOD: Final = 30.0
KEEP_ALIVE: Final = 120
#: a page is used for this many times as long as it took to make, and at most for this many seconds
SHARE: Final = 4.0
LONGEST_GOOD: Final = 2.0
_SCHEME: Final = "bearer "


class MetricsPage:
    """The page with all metrics of the operator, in Prometheus' text format.

    One page is made at a time, for all who ask meanwhile, and used again for a moment: frequent requests take at most a fifth of
    the time.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.perf_counter) -> None:
        self._metrics = metrics
        self._clock = clock
        self._making = asyncio.Lock()
        self._made: list[bytes] = []
        self._good_until = float("-inf")

    def add_to(self, app: FastAPI) -> None:
        add_get(app, PATH, self.get, summary="Metrics in Prometheus' text format", response_class=PlainTextResponse)

    async def get(self) -> Response:
        return _InParts(await self._parts())

    async def _parts(self) -> list[bytes]:
        async with self._making:
            begun = self._clock()
            if begun >= self._good_until:
                self._made = [part async for part in self._metrics.parts() if part]
                lasts = min(LONGEST_GOOD, SHARE * (self._clock() - begun))
                self._good_until = self._clock() + lasts
                asyncio.get_running_loop().call_later(lasts, self._forget, self._made)
            return self._made

    def _forget(self, made: list[bytes]) -> None:
        """Drop the page: with thousands of queues it has tens of megabytes."""
        if self._made is made:
            self._made, self._good_until = [], float("-inf")


class _InParts(Response):
    """Sends a page in the parts that it was made in. Together they would be copied, and FastAPI's stream costs 0.1 ms more."""

    media_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, parts: Sequence[bytes]) -> None:
        super().__init__(headers={"Content-Length": str(sum(map(len, parts)))})
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass(frozen=True, slots=True)
class MetricsEndpointOptions:
    """The address to listen on (port 0 chooses one); a directory with tls.crt and tls.key, or None for a self-signed pair."""

    listen: tuple[str, int]
    cert_dir: Path | None = None


class SecuredMetrics:
    """The page on a server of its own. Binds its port at once, so that a conflict is reported at the start."""

    def __init__(
        self,
        client: ApiClient,
        page: MetricsPage,
        options: MetricsEndpointOptions,
        namespace: str,
        tls: Handshakes = USUAL,
    ) -> None:
        """Bind the port. Raises OSError where the address is taken."""
        self._page = page
        self._options = options
        self._names = service_names(SERVICE, namespace)
        self._tokens = TokenReviews(client)
        self._reviews = Reviews(client)
        self._tls = LiveContext(tls)
        self._made: Certificates | None = None
        self._socket: socket.socket = bound(*options.listen)
        self.port: int = self._socket.getsockname()[1]
        self._server: AsgiServer | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Serve until cancelled; without a usable certificate, wait for one. Admission goes on meanwhile."""
        while True:
            try:
                if self._tls.load(self._pair()):
                    log.info("%s: the certificate is loaded", PATH)
                self._trouble = ""
                if self._server is None:
                    await self._serve()
            except CertificateError as error:
                if str(error) != self._trouble:
                    log.warning("%s: %s", PATH, error)
                self._trouble = str(error)
            await asyncio.sleep(PERIOD)

    async def close(self) -> None:
        """Stop serving. May be called twice."""
        if self._server is not None:
            self._server.close()
        self._socket.close()

    def _pair(self) -> KeyPair:
        if (directory := self._options.cert_dir) is not None:
            return KeyPair.read(directory)
        now = datetime.now(UTC)
        held = self._made or certificates.create(self._names, now)
        self._made = certificates.renewed(held, self._names, now) or held
        return self._made.serving

    def app(self) -> FastAPI:
        app = new_app()
        add_get(app, PATH, self._get)
        return app

    async def _serve(self) -> None:
        server = AsgiServer(self.app(), KEEP_ALIVE, head_within=KEEP_ALIVE)
        await server.listen(self._socket, self._tls.context)
        self._server = server
        log.info("%s is served at https://%s:%d", PATH, self._options.listen[0], self.port)

    async def _get(self, request: Request) -> Response:
        given = request.headers.get("Authorization", "")
        if not given.lower().startswith(_SCHEME) or not given.isascii():
            return _unauthenticated("a bearer token is wanted")
        try:
            user = await self._tokens.user(given[len(_SCHEME) :].strip(), address_of(request))
            if user is None:
                return _unauthenticated("the token is not valid")
            if not await self._reviews.allowed(user, PathAccess(PATH)):
                return PlainTextResponse(f"user {user.name} may not get {PATH}\n", 403)
        except BusyError as error:
            return PlainTextResponse(f"{error}\n", 429, error.headers)
        except ApiError as error:
            log.warning("%s: the review failed: %s", PATH, error)
            return PlainTextResponse("the API server did not answer the review\n", 503)
        return await self._page.get()


def _unauthenticated(why: str) -> Response:
    return PlainTextResponse(f"{why}\n", 401, {"WWW-Authenticate": "Bearer"})
