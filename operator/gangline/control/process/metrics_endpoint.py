"""/metrics: over plain HTTP beside the probes, or as Kueue serves it, over TLS to users whom the API server lets read it.

A scrape then carries a bearer token, for whose user a SubjectAccessReview must allow `get` of the non-resource URL /metrics.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from gangline.control.operator_metrics import Metrics
from gangline.control.process.token_review import TokenReviews
from gangline.control.visibility.access_review import PathAccess, Reviews
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.tls import certificates
from gangline.tls.certificates import CertificateError, Certificates, KeyPair, service_names
from gangline.tls.connections import USUAL, Handshakes, LiveContext, of_aiohttp, runner_of
from gangline.tls.listening import bound
from gangline.tls.requests import BusyError

log = logging.getLogger(__name__)

PATH: Final = "/metrics"
#: the Service in the self-signed certificate
SERVICE: Final = "gangline-operator-metrics"
#: seconds between two looks at the certificate
PERIOD: Final = 30.0
KEEP_ALIVE: Final = 120.0
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

    async def get(self, request: web.Request) -> web.StreamResponse:
        parts = await self._parts()
        answer = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
        await answer.prepare(request)
        for part in parts:
            await answer.write(part)
        await answer.write_eof()
        return answer

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


@dataclass(frozen=True, slots=True)
class Options:
    """The address to listen on (port 0 chooses one); a directory with tls.crt and tls.key, or None for a self-signed pair."""

    listen: tuple[str, int]
    cert_dir: Path | None = None


class SecuredMetrics:
    """The page on a server of its own. Binds its port at once, so that a conflict is reported at the start."""

    def __init__(
        self, client: ApiClient, page: MetricsPage, options: Options, namespace: str, tls: Handshakes = USUAL
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
        self._runner: web.AppRunner | None = None
        self._watch: asyncio.Future[None] | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Serve until cancelled; without a usable certificate, wait for one. Admission goes on meanwhile."""
        while True:
            try:
                if self._tls.load(self._pair()):
                    log.info("%s: the certificate is loaded", PATH)
                self._trouble = ""
                if self._runner is None:
                    await self._serve()
            except CertificateError as error:
                if str(error) != self._trouble:
                    log.warning("%s: %s", PATH, error)
                self._trouble = str(error)
            await asyncio.sleep(PERIOD)

    async def close(self) -> None:
        """Stop serving. May be called twice."""
        if self._watch is not None:
            self._watch.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
        self._socket.close()

    def _pair(self) -> KeyPair:
        if (directory := self._options.cert_dir) is not None:
            return KeyPair.read(directory)
        now = datetime.now(UTC)
        held = self._made or certificates.create(self._names, now)
        self._made = certificates.renewed(held, self._names, now) or held
        return self._made.serving

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_get(PATH, self._get)
        runner = runner_of(app, keepalive_timeout=KEEP_ALIVE)
        await runner.setup()
        if runner.server is not None:
            self._watch = asyncio.ensure_future(of_aiohttp(runner.server, KEEP_ALIVE).run())
        await web.SockSite(runner, self._socket, ssl_context=self._tls.context).start()
        self._runner = runner
        log.info("%s is served at https://%s:%d", PATH, self._options.listen[0], self.port)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not given.lower().startswith(_SCHEME) or not given.isascii():
            return _unauthenticated("a bearer token is wanted")
        try:
            user = await self._tokens.user(given[len(_SCHEME) :].strip(), request.remote or "")
            if user is None:
                return _unauthenticated("the token is not valid")
            if not await self._reviews.allowed(user, PathAccess(PATH)):
                return web.Response(status=403, text=f"user {user.name} may not get {PATH}\n")
        except BusyError as error:
            return web.Response(status=429, text=f"{error}\n", headers=error.headers)
        except ApiError as error:
            log.warning("%s: the review failed: %s", PATH, error)
            return web.Response(status=503, text="the API server did not answer the review\n")
        return await self._page.get(request)


def _unauthenticated(why: str) -> web.Response:
    return web.Response(status=401, text=f"{why}\n", headers={"WWW-Authenticate": "Bearer"})
