"""The webhook process: serve, register, renew, drain."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import json
import logging
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from gangline import files
from gangline.api.admission.of_jobs import identifiers
from gangline.api.read.configuration.managed_jobs import EVERY_QUEUED, ManagedJobs
from gangline.jobs import declare
from gangline.kube import field_tracking, ownership
from gangline.kube.client import ApiClient, ApiError
from gangline.kube.config import Login
from gangline.kube.transport import tell_refusals
from gangline.tls.asgi import settings
from gangline.tls.certificates import CertificateError, ServerNames, service_names
from gangline.tls.connections import USUAL, Handshakes, LiveContext, of_uvicorn
from gangline.tls.listening import bound
from gangline_webhooks import registrar
from gangline_webhooks.app import Readiness, create_app
from gangline_webhooks.certificate_store import (
    SECRET,
    CertificateSource,
    DirectorySource,
    SecretSource,
    ServingCertificate,
)
from gangline_webhooks.facts import Facts
from gangline_webhooks.registrar import Registrar, WithdrawnError
from gangline_webhooks.registration import Endpoint

log = logging.getLogger(__name__)

#: seconds between two checks of certificates and registration
PERIOD = 30.0
#: seconds between attempts while there is no certificate yet, or CRDs are still missing
RETRY = 1.0
#: seconds for which an idle connection is kept; longer than the API server keeps its own, so that it closes first
KEEP_ALIVE = 120
#: seconds that requests in progress get to finish, and a registration in progress
DRAIN = 10
UPKEEP_ENDS = 5.0
#: an API server's error may quote everything that was sent
LONGEST_LINE = 1000

CERTIFICATES = "certificates"
REGISTRATION = "registration"


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Options of the webhooks. `cert_dir` selects cert-manager's mode, `url_host` registration by URL."""

    host: str
    port: int  # 0 = any free port
    url_host: str = ""  # the host in the registered URLs; "" = registered by service
    service: str = "gangline-webhooks"
    namespace: str = "gangline-system"
    secret: str = SECRET
    cert_dir: Path | None = None
    #: PEM of the CA whose client certificates reviews of objects need; "" = anybody may ask
    client_authority: str = ""
    inject_from: str = ""  # cert-manager's namespace/name of the Certificate
    ready_file: Path | None = None
    unregister_on_exit: bool = False
    #: leave managedFields on Workloads
    track_fields: bool = False
    #: which jobs are managed, as in the configuration file
    jobs: ManagedJobs = EVERY_QUEUED
    tls: Handshakes = USUAL
    #: seconds between SIGTERM and the end of accepting: time for endpoints to be removed
    linger: float = 0.0


async def run(login: Login, options: WebhookOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError if the address is in use, and CertificateError for a CA that is none."""
    listener = bound(options.host, options.port)
    port: int = listener.getsockname()[1]
    async with ApiClient(login, observe=tell_refusals(log.warning)) as client:
        process = _Process(client, options, port)
        await process.run(listener)


async def unregister(login: Login, options: WebhookOptions) -> None:
    """Take the webhooks out of the cluster. Raises ApiError."""
    async with ApiClient(login) as client:
        await registrar.withdraw(client, _endpoint(options, options.port))


class _Server(uvicorn.Server):
    """uvicorn without signal handlers (they would stop accepting at once), and with a callback when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Process:
    def __init__(self, client: ApiClient, options: WebhookOptions, port: int) -> None:
        identifiers.choose(annotations_first=options.jobs.annotated_identifiers)
        declare(options.jobs.declared, options.jobs.external)
        self._client = client
        self._options = options
        self._port = port
        self._tls = LiveContext(options.tls)
        if options.client_authority:
            self._tls.ask_for_client_certificates(options.client_authority)
        self._readiness = Readiness([CERTIFICATES, REGISTRATION])
        self._source = _source(client, options)
        self._registrar = Registrar(
            client,
            _endpoint(options, port),
            options.inject_from,
            options.jobs,
        )
        self._stop = asyncio.Event()
        self._trouble = ""

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        served = await self._first_certificates()
        if served is None:
            listener.close()
            return
        gc.collect()
        gc.freeze()  # what is there stays: garbage is looked for in reviews alone, which saves pauses of some 70 ms
        facts, certified = Facts(self._client, managed=self._options.jobs), bool(self._options.client_authority)
        server = _uvicorn(create_app(facts, self._readiness, certified=certified), self._tls)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        watching = asyncio.create_task(of_uvicorn(server, KEEP_ALIVE).run())
        upkeep = asyncio.create_task(self._upkeep(server, served))
        untracking = asyncio.create_task(self._end_field_tracking())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((serving, upkeep, stopping), return_when=asyncio.FIRST_COMPLETED)
        self._stop.set()
        await asyncio.wait((upkeep, stopping), timeout=UPKEEP_ENDS)
        upkeep.cancel()
        untracking.cancel()
        watching.cancel()
        await self._drain(server, serving)
        for task in (serving, upkeep):
            if task.done() and not task.cancelled():
                task.result()  # a crash must be visible

    async def _first_certificates(self) -> ServingCertificate | None:
        """Wait for the first certificate; None if the process was asked to stop before."""
        while not self._stop.is_set():
            served = await self._refresh()
            if served is not None:
                return served
            await self._pause(RETRY)
        return None

    async def _refresh(self) -> ServingCertificate | None:
        """Fetch and load certificates. On failure the loaded ones stay."""
        try:
            served = await self._source.fetch()
            if self._tls.load(served.pair):
                log.info("serving certificate loaded")
        except (ApiError, CertificateError) as error:
            self._complain(f"certificates: {error}")
            return None
        self._readiness.done(CERTIFICATES)
        return served

    async def _upkeep(self, server: _Server, served: ServingCertificate) -> None:
        """Keep registration and certificates up to date, until asked to stop."""
        await server.listening.wait()  # before that no request may be sent here
        while not self._stop.is_set():
            registered = await self._register(served)
            await self._pause(PERIOD if registered else RETRY)
            served = await self._refresh() or served

    async def _end_field_tracking(self) -> None:
        if not self._options.track_fields:
            await field_tracking.end(self._client, ownership.WEBHOOKS)

    async def _register(self, served: ServingCertificate) -> bool:
        """True once everything is registered, the conversion of all CRDs included, and API servers accept our certificate."""
        try:
            missing = await self._registrar.ensure(served.bundle)
            trusted = self._readiness.ready or await self._registrar.trusts(served.pair.certificate)
        except (ApiError, WithdrawnError) as error:
            self._complain(f"registration: {error}")
            return False
        if missing:
            self._complain(f"registration waits for CRDs: {', '.join(missing)}")
            return False
        if not trusted:  # cert-manager has not injected the CA yet
            self._complain("registration waits for the CA of the serving certificate")
            return False
        self._trouble = ""
        if REGISTRATION in self._readiness.waiting_for:
            self._readiness.done(REGISTRATION)
            self._announce()
        return True

    def _complain(self, trouble: str) -> None:
        """Log what is missing, once: attempts are repeated every second."""
        if trouble != self._trouble:
            log.warning("%s", trouble[:LONGEST_LINE])
        self._trouble = trouble

    def _announce(self) -> None:
        log.info("ready on port %d", self._port)
        if self._options.ready_file is not None:
            files.write(self._options.ready_file, json.dumps({"port": self._port}) + "\n")

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _drain(self, server: _Server, serving: asyncio.Task[None]) -> None:
        """Report not ready, let endpoints be removed while clients are asked to leave, then answer what is in progress."""
        self._readiness.ending = True
        if self._options.unregister_on_exit:
            try:
                await registrar.remove(self._client)
            except ApiError as error:
                log.warning("could not unregister: %s", error)
        if not serving.done():
            await asyncio.sleep(self._options.linger)
        server.should_exit = True
        await asyncio.wait((serving,))
        if self._options.ready_file is not None:
            self._options.ready_file.unlink(missing_ok=True)


def _uvicorn(app: ASGIApp, tls: LiveContext) -> _Server:
    config = settings(
        app,
        ssl_context_factory=lambda _config, _default: tls.context,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=DRAIN,
    )
    return _Server(config)


def _names(options: WebhookOptions) -> ServerNames:
    """The service's names, and the host of the registered URLs."""
    names, host = service_names(options.service, options.namespace), options.url_host
    if not host:
        return names
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        return ServerNames(tuple(dict.fromkeys((*names.dns, host))), names.addresses)
    return ServerNames(names.dns, tuple(dict.fromkeys((*names.addresses, address))))


def _source(client: ApiClient, options: WebhookOptions) -> CertificateSource:
    if options.cert_dir is not None:
        return DirectorySource(options.cert_dir)
    return SecretSource(client, options.namespace, options.secret, _names(options))


def _endpoint(options: WebhookOptions, port: int) -> Endpoint:
    if options.url_host:
        host = f"[{options.url_host}]" if ":" in options.url_host else options.url_host
        return Endpoint(url=f"https://{host}:{port}")
    return Endpoint(service=options.service, namespace=options.namespace)
