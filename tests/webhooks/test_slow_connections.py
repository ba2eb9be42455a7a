"""The webhooks' server and connections that are slow, or do nothing: with a real socket, without TLS and a cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from tests.http_connections import stays_open_while_used

from gangline.tls.asgi import LONGEST_HEAD, Protocol
from gangline.tls.connections import ConnectionWatch, of_uvicorn
from gangline.tls.listening import bound
from gangline_webhooks.app import Readiness, create_app
from gangline_webhooks.facts import Facts
from gangline_webhooks.intake import ReviewIntake


@contextlib.asynccontextmanager
async def serving(within: float = 10, **limits: Any) -> AsyncIterator[tuple[int, ConnectionWatch]]:
    listener = bound("127.0.0.1", 0)
    app = create_app(Facts(None), Readiness(), intake=ReviewIntake(4096, within=within))
    server = uvicorn.Server(uvicorn.Config(app, http=Protocol, lifespan="off", log_config=None, access_log=False))
    watch = of_uvicorn(server, period=0.05, **limits)
    tasks = [asyncio.ensure_future(server.serve(sockets=[listener])), asyncio.ensure_future(watch.run())]
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield listener.getsockname()[1], watch
    finally:
        server.should_exit = server.force_exit = True
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    async with serving(head_within=0.3) as (port, watch):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /mutate HTTP/1.1\r\nHost:")
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        assert watch.closed == 1
        writer.close()


async def test_a_connection_in_use_stays_open_however_old_it_is() -> None:
    """API servers keep theirs for hours, and use them for requests so short that it is idle whenever it is looked at."""
    async with serving(head_within=0.3) as (port, watch):
        await stays_open_while_used(port, watch)


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with serving(within=0.2) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
        writer.close()


HEADERS = b"X-A: b\r\n" * 4096
#: what a client sends without end after these beginnings
ENDLESS = {
    "headers": (b"POST /mutate HTTP/1.1\r\nHost: a\r\n", HEADERS),
    "a header": (b"POST /mutate HTTP/1.1\r\nHost: a", b"a" * 2**15),
    "a URL": (b"POST /mutate", b"a" * 2**15),
    "requests": (
        b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n{",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1024,
    ),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_what_comes_without_end_is_cut_off(what: str) -> None:
    beginning, more = ENDLESS[what]
    async with serving() as (port, watch):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(beginning)
        with contextlib.suppress(ConnectionError):
            for _ in range(64 * LONGEST_HEAD // len(more)):
                writer.write(more)
                await writer.drain()
                await asyncio.sleep(0)
            await asyncio.wait_for(reader.read(), 10)  # else it is open still
        assert not watch.connections()
        writer.close()


async def test_what_follows_a_body_in_pieces_is_not_kept() -> None:
    async with serving() as (port, watch):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n")
        for _ in range(8):
            writer.write(HEADERS)
            await writer.drain()
            await asyncio.sleep(0.01)
        (connection,) = watch.connections()
        assert len(connection.headers) == 2
        writer.close()


LEAVES_NO_LINE = {
    "no HTTP": b"GET\x00 / HTTP/9.9\r\n\r\n",
    "an upgrade": b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "half a body": b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{",
}


@pytest.mark.parametrize("what", LEAVES_NO_LINE)
async def test_no_client_fills_the_log(what: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (port, watch):
        caplog.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LEAVES_NO_LINE[what])
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        while watch.connections():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert caplog.text == ""
