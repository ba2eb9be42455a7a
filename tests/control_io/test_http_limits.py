"""The operator's own servers under slow, large and odd requests, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI, Response
from tests.http_connections import stays_open_while_used

from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.nodes.stall.progress_reports import BadReportError
from gangline.control.process import http_server, metrics_endpoint
from gangline.control.process.front_door import Probes
from gangline.control.process.http_server import ProgressEndpoint
from gangline.control.process.metrics_endpoint import MetricsPage
from gangline.tls.apps import add_get, new_app
from gangline.tls.asgi import AsgiServer
from gangline.tls.connections import ConnectionWatch
from gangline.tls.listening import bound
from gangline.tls.requests import Bodies, BusyError, TooLargeError, Turnstile


class Desk:
    """In place of an operator: what `/progress` needs of one."""

    def __init__(self) -> None:
        self.leading = asyncio.Event()
        self.leading.set()
        self.reports: list[Any] = []

    def report(self, namespace: str, name: str, uid: str, body: Any) -> None:
        if not isinstance(body, dict):
            raise BadReportError("the report must be a JSON object")
        self.reports.append(body)


async def large() -> Response:
    return Response(b"x" * 2**24)


async def broken() -> Response:
    raise RuntimeError("a bug of ours")


@asynccontextmanager
async def serving(desk: Desk, **limits: Any) -> AsyncIterator[tuple[int, ConnectionWatch]]:
    app = new_app("An operator")
    Probes(list, lambda: 0.0, lambda: "leading").add_to(app)
    ProgressEndpoint(desk, desk.leading.is_set).add_to(app)  # type: ignore[arg-type]
    add_get(app, "/broken", broken)
    add_get(app, "/large", large)
    async with listening(app, **limits) as (port, server):
        yield port, server.watch


@asynccontextmanager
async def listening(app: FastAPI, **limits: Any) -> AsyncIterator[tuple[int, AsgiServer]]:
    server, at = AsgiServer(app, **limits), bound("127.0.0.1", 0)
    await server.listen(at)
    try:
        yield at.getsockname()[1], server
    finally:
        server.close()


async def chunks(body: bytes, size: int = 512) -> AsyncIterator[bytes]:
    for first in range(0, len(body), size):
        yield body[first : first + size]


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "with a length"])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"step": 1}', 204),
        (json.dumps({"phase": "x" * 5000}).encode(), 413),
        (b" " * 1_000_000 + b"{}", 413),
        (nested(500), 400),
        (b"[" * 4000, 400),
        (b'{"step": ' + b"9" * 4000 + b"}", 400),
        (b"\xff\xfe", 400),
        (b"", 400),
        (b"[]", 400),
    ],
    ids=["good", "long", "a megabyte", "deep", "deeper", "many digits", "no text", "nothing", "a list"],
)
async def test_a_report_is_taken_or_refused_in_words(body: bytes, status: int, chunked: bool) -> None:
    desk = Desk()
    async with serving(desk) as (port, _), aiohttp.ClientSession() as session:
        data = chunks(body) if chunked else body
        async with session.post(f"http://127.0.0.1:{port}/progress/ns/w/u", data=data) as answer:
            assert answer.status == status, await answer.text()
    assert len(desk.reports) == (status == 204)


async def test_a_packed_body_is_not_unpacked() -> None:
    """64 KiB took 0.15 s of the main loop: a server reads the rest of a body, and unpacks it, after it has refused it."""
    body = gzip.compress(b" " * 2**20)
    async with serving(Desk()) as (port, _), aiohttp.ClientSession() as session:
        url, headers = f"http://127.0.0.1:{port}/progress/ns/w/u", {"Content-Encoding": "gzip"}
        async with session.post(url, data=body, headers=headers) as answer:
            assert answer.status == 400, "it is no JSON as it is; unpacked it would be too large"


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "BODY_WITHIN", 0.1)
    async with serving(Desk()) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /progress/ns/w/u HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
        writer.close()


async def test_a_connection_in_use_stays_open_however_old_it_is() -> None:
    """It is idle whenever it is looked at: its requests are short."""
    async with serving(Desk(), head_within=0.3, period=0.05) as (port, watch):
        await stays_open_while_used(port, watch)


async def test_connections_that_are_slow_with_their_head_are_closed() -> None:
    async with serving(Desk(), head_within=0.2, period=0.05) as (port, watch):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost:")
        with pytest.raises(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
            raise ConnectionResetError
        assert watch.closed == 1
        writer.close()


@pytest.mark.parametrize(
    "limits", [{"read_within": 0.3}, {"most_unread": 2 * 2**24}], ids=["for too long", "too many bytes"]
)
async def test_answers_that_nobody_reads_are_not_kept(limits: dict[str, Any]) -> None:
    async with serving(Desk(), period=0.05, **limits) as (port, watch), aiohttp.ClientSession() as session:
        unread = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(5)]
        for _, writer in unread:
            writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        while watch.closed < (5 if "read_within" in limits else 3):
            await asyncio.sleep(0.01)
        held = sum(each.transport.get_write_buffer_size() for each in watch.connections() if each.transport)
        assert held <= 2 * 2**24
        async with session.get(f"http://127.0.0.1:{port}/large") as answer:
            assert len(await answer.read()) == 2**24
        for _, writer in unread:
            writer.close()


async def test_a_page_of_metrics_is_made_once_for_all_who_ask_meanwhile() -> None:
    made, now = [0], 0.0

    class Slow(Metrics):
        async def parts(self) -> AsyncIterator[bytes]:
            made[0] += 1
            nonlocal now
            await asyncio.sleep(0.05)
            now += 0.1
            yield b"a 1\n"
            yield b""
            yield f"page {made[0]}\n".encode()

    page = MetricsPage(Slow(), clock=lambda: now)
    app = new_app()
    page.add_to(app)
    async with listening(app) as (port, _), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:

        async def scraped() -> str:
            async with client.get(metrics_endpoint.PATH) as answer:
                assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                return await answer.text()

        assert set(await asyncio.gather(*(scraped() for _ in range(20)))) == {"a 1\npage 1\n"}
        now += metrics_endpoint.SHARE * 0.1
        assert await scraped() == "a 1\npage 2\n"


MALFORMED = {
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    "a version that is none": b"GET /\x00 HTTP/9.9\r\n\r\n",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
async def test_what_is_no_request_is_answered_and_fills_no_log(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Desk()) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    assert caplog.text == ""


async def test_what_breaks_in_the_server_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Desk()) as (port, _), aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{port}/broken")
        assert answer.status == 500
    assert "a bug of ours" in caplog.text


async def test_one_client_does_not_keep_the_others_waiting() -> None:
    turns = Turnstile(at_once=1, waiting=2, per_client=2)
    order: list[str] = []

    async def take(client: str) -> None:
        async with turns.turn(client):
            order.append(client)
            await asyncio.sleep(0)

    async with turns.turn("alice"):
        waiting = asyncio.ensure_future(take("alice"))
        await asyncio.sleep(0)
        with pytest.raises(BusyError) as refused:
            await take("alice")
        assert refused.value.headers == {"Retry-After": "1"}
        other = asyncio.ensure_future(take("bob"))
        await asyncio.sleep(0)
        third = asyncio.ensure_future(take("carol"))  # as many wait as may: alice has two
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await waiting
        with pytest.raises(BusyError):  # nobody has more than one
            await take("dora")
    await asyncio.gather(other, third)
    await take("dora")
    assert order == ["bob", "carol", "dora"]


async def test_who_waited_and_left_keeps_no_turn() -> None:
    turns = Turnstile(at_once=1, waiting=2, per_client=3)

    async def take() -> None:
        async with turns.turn("alice"):
            pass

    async with turns.turn("bob"):
        left = [asyncio.ensure_future(take()) for _ in range(2)]
        await asyncio.sleep(0)
        left[0].cancel()
        await asyncio.sleep(0)
    left[1].cancel()  # just when it got its turn
    await asyncio.gather(*left, return_exceptions=True)
    async with asyncio.timeout(5), turns.turn("carol"):
        pass
    assert not turns._clients


async def sent(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


async def test_bodies_take_so_many_bytes_together_and_one_client_only_a_part() -> None:
    bodies = Bodies(longest=100, within=10, together=250, per_client=150)
    async with bodies.read(sent(50, 50), "alice") as first:
        assert first == b"x" * 100
        with pytest.raises(BusyError):
            async with bodies.read(sent(51), "alice"):
                pass
        async with bodies.read(sent(50), "alice"), bodies.read(sent(100), "bob"):
            with pytest.raises(BusyError):
                async with bodies.read(sent(1), "carol"):
                    pass
        async with bodies.read(sent(100), "carol"):
            pass
    with pytest.raises(TooLargeError):
        async with bodies.read(sent(100, 1), "alice"):
            pass
    assert not bodies._held


async def test_slow_bodies_give_way_to_the_client_that_sends_less() -> None:
    never = asyncio.Event()

    async def slow(size: int) -> AsyncIterator[bytes]:
        yield b"x" * size
        await never.wait()

    bodies = Bodies(longest=100, within=60, together=200, per_client=150)

    async def read(chunks: AsyncIterator[bytes], client: str) -> bytes:
        async with bodies.read(chunks, client) as body:
            return body

    held = [asyncio.ensure_future(read(slow(50), client)) for client in ("mallory", "mallory", "trent", "trent")]
    await asyncio.sleep(0)
    assert await read(sent(50, 25), "alice") == b"x" * 75
    await asyncio.sleep(0.01)
    assert [each.done() for each in held] == [True, False, True, False], "the oldest of each"
    with pytest.raises(BusyError):
        await held[0]
    for each in held:
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    assert not bodies._held
    assert not bodies._arriving


async def test_a_body_that_is_only_announced_takes_nothing_and_ends_in_time() -> None:
    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    bodies = Bodies(longest=100, within=0.05, together=100, per_client=100)

    async def wait() -> None:
        async with bodies.read(never(), "alice"):
            pass

    waiting = [asyncio.ensure_future(wait()) for _ in range(50)]
    await asyncio.sleep(0)
    async with bodies.read(sent(100), "bob"):
        pass
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in found} == {TimeoutError}
