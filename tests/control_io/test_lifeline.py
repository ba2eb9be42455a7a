"""What does not wait for the main loop: the lease is renewed and probes are answered while it is blocked, unless for good."""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from fastapi import Response
from fastapi.responses import PlainTextResponse
from tests.kube.fake_server import FakeServer

from gangline.control.process import kopf_shell
from gangline.control.process.front_door import BACKLOG, BEAT, LONGEST_ROUND, FrontDoor, Probes, Pulse, bind
from gangline.control.process.lease import Elector
from gangline.control.process.lifeline import Lifeline
from gangline.kube.client import ApiClient
from gangline.kube.config import Login
from gangline.kube.tokens import EARLY, LentToken
from gangline.tls.apps import add_get, new_app
from gangline.tls.asgi import AsgiServer


class Clock:
    """Time that passes when the test says so; any thread reads it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def soon(seconds: float) -> None:
    await asyncio.sleep(0.01)


def block_until(true: Callable[[], bool]) -> None:
    """Block this thread, and with it the main loop."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)


@asynccontextmanager
async def server_in_a_thread() -> AsyncIterator[FakeServer]:
    """An API server that answers while the main loop is blocked."""
    thread, server = Lifeline(), FakeServer()
    await thread.run(server.__aenter__())
    try:
        yield server
    finally:
        await thread.run(server.__aexit__(None, None, None))
        await thread.close()


class Process:
    """An operator's main loop, its pulse, and its candidate in the lifeline."""

    def __init__(self, client: ApiClient, clock: Clock, name: str, behind: Callable[[], float] = lambda: 0.0) -> None:
        self.lifeline = Lifeline()
        self.pulse = Pulse(behind, clock)
        self.client = client.for_another_thread()
        self.elector = Elector(self.client, identity=name, alive=self.pulse.alive, clock=clock, sleep=soon)

    async def _stand(self) -> None:
        async with self.client:
            await self.elector.run()

    async def __aenter__(self) -> Process:
        self.candidacy = self.lifeline.run(self._stand())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.lifeline.call(self.elector.stop)
        await self.candidacy
        await self.lifeline.close()


async def test_the_lease_is_renewed_while_the_main_loop_is_busy_for_longer_than_the_renew_deadline() -> None:
    clock = Clock()
    async with server_in_a_thread() as server, ApiClient(server.login()) as client:
        async with Process(client, clock, "one") as one:
            while not one.elector.leading():
                await asyncio.sleep(0.01)
            for _ in range(4):
                clock.now += 6.0
                renewals = server.requests["replace leases"]
                block_until(lambda: server.requests["replace leases"] >= renewals + 2)  # noqa: B023
                assert one.elector.leading()
            assert not one.elector.lost_because
            one.pulse.beat()
        assert not one.elector.leading()


async def test_the_lease_of_a_process_that_hangs_for_good_expires_and_another_one_leads() -> None:
    clock = Clock()
    async with (
        server_in_a_thread() as server,
        ApiClient(server.login()) as client,
        Process(client, clock, "one") as one,
    ):
        while not one.elector.leading():
            await asyncio.sleep(0.01)
        async with Process(client, clock, "two") as two:
            led_until = 0.0
            while not two.elector.leading():
                clock.now += 0.5
                two.pulse.beat()
                time.sleep(0.03)  # the main loop does not run any more
                led = one.elector.leading()
                assert not (led and two.elector.leading())
                led_until = clock.now if led else led_until
                assert clock.now < 1200
            assert LONGEST_ROUND < led_until - 1000 < LONGEST_ROUND + BEAT + 15
            assert "no progress" in one.elector.lost_because
            one.pulse.beat()
            assert not one.elector.leading(), "it writes nothing, even if it goes on"


async def test_a_process_that_hangs_does_not_stand_for_election() -> None:
    clock, due = Clock(), 0.0
    async with server_in_a_thread() as server, ApiClient(server.login()) as client:
        due = LONGEST_ROUND + 1
        async with Process(client, clock, "one", behind=lambda: due) as one:
            block_until(lambda: "no progress" in one.elector.waiting)
            assert not server.requests["create leases"]
            due = 0.0
            block_until(one.elector.leading)


async def test_after_a_stall_a_process_does_not_say_that_it_lost_the_lease_to_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    async with FakeServer() as server, ApiClient(server.login()) as client:
        elector = Elector(client, identity="one", clock=clock, sleep=soon)
        running = asyncio.ensure_future(elector.run())
        while not elector.leading():
            await asyncio.sleep(0.01)
        clock.now += 11
        await running
        assert elector.lost_because.endswith("was not renewed within 10 s: this process stood still")
        assert "lost to" not in caplog.text


# --- probes ---


@asynccontextmanager
async def open_door(still: Callable[[], float] = lambda: 0.0) -> AsyncIterator[int]:
    async def get() -> Response:
        return PlainTextResponse("main /metrics")

    health = Probes(list, still, lambda: "leading")
    app = new_app()
    health.add_to(app)
    add_get(app, "/metrics", get)
    server = AsgiServer(app)
    [listening] = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    lifeline = Lifeline()
    opened = lifeline.run(FrontDoor(health, asyncio.get_running_loop(), server.protocol).run(listening))
    try:
        yield port
    finally:
        opened.cancel()
        await lifeline.close()
        server.close()


def probe(port: int, path: str) -> tuple[int, str]:
    """As kubelet does; blocks the main loop."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"User-Agent": "kube-probe/1.36", "Accept": "*/*"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


async def test_probes_are_answered_while_the_main_loop_is_blocked() -> None:
    still = 0.0
    async with open_door(lambda: still) as port:
        assert probe(port, "/healthz") == (200, "ok\n")
        assert probe(port, "/readyz?verbose") == (200, "ok\nleading\n")
        still = 31.0
        assert probe(port, "/healthz") == (500, "the control loop has made no progress for 31 s\n")


async def test_everything_else_is_answered_by_the_main_loop() -> None:
    async with open_door() as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        for path, text in (("/metrics", "main /metrics"), ("/healthz", "ok\n"), ("/metrics", "main /metrics")):
            async with session.get(path) as answer:
                assert await answer.text() == text
        async with session.post("/healthz") as answer:
            assert answer.status == 405


async def test_connections_that_say_nothing_or_wait_for_the_main_loop_keep_no_probe_from_its_answer() -> None:
    async with open_door() as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(BACKLOG // 2)]
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * BACKLOG)]
        for each in waiting:
            each.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert probe(port, "/healthz") == (200, "ok\n")
        loop, answers = asyncio.get_running_loop(), list[bytes]()
        for each in waiting:
            each.setblocking(False)
            try:
                answers.append(await asyncio.wait_for(loop.sock_recv(each, 1000), 30))
            except ConnectionResetError:
                answers.append(b"")
        served = sum(answer.startswith(b"HTTP/1.1 200") for answer in answers)
        assert BACKLOG // 2 <= served <= BACKLOG
        assert all(not answer or answer.startswith(b"HTTP/1.1 200") for answer in answers), "the others were closed"
        for each in (*silent, *waiting):
            each.close()


def test_a_port_that_is_taken_is_an_error() -> None:
    [taken] = bind("127.0.0.1", 0)
    with taken, pytest.raises(OSError, match="ddress already in use"):
        bind("127.0.0.1", taken.getsockname()[1])


async def test_answers_do_not_wait_for_acknowledgements() -> None:
    loop, [listening] = asyncio.get_running_loop(), bind("127.0.0.1", 0)
    with listening, socket.create_connection(listening.getsockname()):
        connection, _ = await loop.sock_accept(listening)
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, connection)
        accepted = transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "an answer is sent in two parts"
        transport.abort()


# --- tokens ---


class Source:
    """A source of tokens, as an exec plugin is one; each renewal waits until it may end."""

    def __init__(self) -> None:
        self.given = 0
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def token(self) -> str:
        await self.may_end.wait()
        self.given += 1
        return f"token {self.given}"

    def reject(self) -> None:
        self.given += 100


async def test_tokens_of_another_thread_are_used_while_it_is_busy_or_renews_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LentToken, "PATIENCE", 0.05)
    source, lifeline = Source(), Lifeline()
    login = Login("https://x", tokens=source).for_another_thread(asyncio.get_running_loop())
    tokens = login.tokens
    assert isinstance(tokens, LentToken)

    async def bearer() -> str:
        return (await lifeline.run(login.headers()))["Authorization"]

    assert await bearer() == "Bearer token 1"
    assert await bearer() == "Bearer token 1", "without asking"
    assert 2 * LentToken.FRESH <= EARLY, "it holds at least as long again"
    source.may_end.clear()
    tokens._ask_at = 0.0
    assert await bearer() == await bearer() == "Bearer token 1", "while the next one is on its way"
    source.may_end.set()
    while await bearer() == "Bearer token 1":
        pass
    assert await bearer() == "Bearer token 2", "the renewal was not given up"
    tokens.reject()
    await asyncio.sleep(0.01)
    while (found := await bearer()) == "Bearer token 2":
        pass
    assert found == "Bearer token 103"
    await lifeline.close()


# --- signals ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_does_not_disturb_the_shutdown(
    number: signal.Signals, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(kopf_shell, "LONGEST_SHUTDOWN", 10_000.0)
    stop, started, cleaned = asyncio.Event(), asyncio.Event(), list[str]()
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))

    async def startup() -> None:
        started.set()
        await stop.wait()

    async def cleanup() -> None:
        os.kill(os.getpid(), number)  # while it shuts down
        await asyncio.sleep(0.05)
        cleaned.append("cleaned")

    login = Login("http://127.0.0.1:9")
    handlers = kopf_shell.registry(login, lambda *_: None, startup=startup, cleanup=cleanup)
    running = asyncio.ensure_future(kopf_shell.run(handlers, stop, "one"))
    await started.wait()
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), number)
    await asyncio.wait_for(running, 60)
    assert cleaned == ["cleaned"]
    assert not failures
    assert f"{number.name}: shutting down" in caplog.text and f"{number.name}: the shutdown goes on" in caplog.text
