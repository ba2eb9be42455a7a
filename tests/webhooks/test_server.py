"""The server without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from tests.bench.reviews import review
from tests.builders.written import job

from gangline.devcluster.certs import Authority
from gangline.tls import certificates
from gangline.tls.certificates import CertificateError, ServerNames
from gangline.tls.connections import LiveContext
from gangline.tls.listening import bound
from gangline_webhooks.app import Readiness, create_app
from gangline_webhooks.facts import Facts
from gangline_webhooks.server import WebhookOptions, _endpoint, _names, _uvicorn  # pyright: ignore[reportPrivateUsage]


async def test_answers_do_not_wait_for_acknowledgements():
    """Nagle's algorithm costs 40 ms per answer, and asyncio switches it off only on some sockets."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    def on_connect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.put_nowait(writer)  # it closes the connection when nobody holds it any more

    listener = bound("127.0.0.1", 0)
    server = await asyncio.start_server(on_connect, sock=listener)
    _, writer = await asyncio.open_connection(*listener.getsockname())
    other_end = await accepted.get()
    assert other_end.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    writer.close()
    server.close()


def test_the_certificate_covers_how_we_are_reached():
    local = _names(WebhookOptions("127.0.0.1", 0, url_host="127.0.0.1"))
    assert "127.0.0.1" in local.addresses
    assert "gangline-webhooks.gangline-system.svc" in local.dns
    assert "10.0.0.7" in _names(WebhookOptions("0.0.0.0", 0, url_host="10.0.0.7")).addresses
    assert "::1" in _names(WebhookOptions("::", 0, url_host="::1")).addresses
    assert "hooks.example.com" in _names(WebhookOptions("0.0.0.0", 0, url_host="hooks.example.com")).dns


def test_how_we_are_registered():
    assert _endpoint(WebhookOptions("0.0.0.0", 0, url_host="127.0.0.1"), 4711).url == "https://127.0.0.1:4711"
    assert _endpoint(WebhookOptions("0.0.0.0", 0, url_host="::1"), 4711).url == "https://[::1]:4711"
    inside = _endpoint(WebhookOptions("0.0.0.0", 9443), 9443)
    assert (inside.url, inside.service, inside.port) == ("", "gangline-webhooks", 443)


# --- client certificates ----------------------------------------------------------------------------------------------------

OURS, STRANGER = Authority.create("api-server-clients"), Authority.create("another-ca")


@contextlib.asynccontextmanager
async def serving(authority: Authority | None) -> AsyncIterator[tuple[int, bytes]]:
    """A server that wants client certificates of this CA; its port, and the CA of its own certificate."""
    held = certificates.create(ServerNames((), ("127.0.0.1",)), datetime.now(UTC))
    tls = LiveContext()
    tls.load(held.serving)
    if authority is not None:
        tls.ask_for_client_certificates(authority.pair.certificate.decode())
    listener = bound("127.0.0.1", 0)
    server = _uvicorn(create_app(Facts(None), Readiness(), certified=authority is not None), tls)
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    await server.listening.wait()
    try:
        yield listener.getsockname()[1], held.bundle
    finally:
        server.should_exit = server.force_exit = True
        await task


@pytest.mark.parametrize(
    ("wanted", "shown", "statuses"),
    [
        (None, None, {"/mutate": 200, "/validate": 200, "/convert": 400, "/healthz": 200}),
        (OURS, None, {"/mutate": 403, "/validate": 403, "/convert": 400, "/healthz": 200}),
        (OURS, OURS, {"/mutate": 200, "/validate": 200, "/convert": 400, "/healthz": 200}),
        (OURS, STRANGER, {"/mutate": 0}),
    ],
)
async def test_reviews_need_the_certificate_that_is_asked_for(
    wanted: Authority | None, shown: Authority | None, statuses: dict[str, int], tmp_path: Path
) -> None:
    """API servers show none for conversions, kubelets none for probes."""
    async with serving(wanted) as (port, bundle):
        context = ssl.create_default_context(cadata=bundle.decode())
        if shown is not None:
            context.load_cert_chain(*shown.issue_client("api-server").save(tmp_path, "client"))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            for path, status in statuses.items():
                method = "GET" if path == "/healthz" else "POST"
                body = review(job(queue="main"), None) if method == "POST" else None
                try:
                    async with session.request(method, f"https://127.0.0.1:{port}{path}", data=body) as answer:
                        assert answer.status == status, (path, await answer.text())
                except aiohttp.ClientError:
                    assert status == 0, path


def test_what_is_no_ca_is_said() -> None:
    with pytest.raises(CertificateError, match="no certificate of a CA"):
        LiveContext().ask_for_client_certificates("not a certificate")
